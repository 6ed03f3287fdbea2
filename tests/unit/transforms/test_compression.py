"""What compression changes on the way and what it leaves alone; what silos remember; what counts as sent."""

import json
from typing import Literal

import pytest
import torch
from pydantic import ValidationError
from unit.builders import EXAMPLES, batch_norm_net, make_federation, make_silo, net, same_bits, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.feddf import FedDF
from mpifl.algorithms.feddyn import FedDyn
from mpifl.algorithms.fsvrg import FSVRG
from mpifl.algorithms.scaffold import Scaffold
from mpifl.algorithms.server import Server
from mpifl.common.errors import InputError, RoundLost
from mpifl.exchange.server_side.costs import ExchangeCosts
from mpifl.run.job.tables.cohort_table import CohortTable
from mpifl.run.job.tables.transform_tables import CompressionSettings
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.transforms.running_statistics import RunningStatistics
from mpifl.wings.compression.codecs import QSGD, Cast, TopK
from mpifl.wings.compression.compressing_transform import Compression
from mpifl.wings.compression.compression_wing import codec_of, compression_of
from mpifl.wire.messages import Header, VectorHeader
from mpifl.wire.requests import Compute
from mpifl.wire.update import Uniform, Update, uniform

LOCAL = LocalTraining(lr=0.1, batch_size=10, epochs=1)
SIZES = [20, 30, 25]
ALIKE = CohortTable(weights="uniform")


class Watched(FedAvg):
    """Reports what each silo was sent and what it made of it."""

    def train(self, silo, w):
        update = super().train(silo, w)
        _seen.append((silo.id, w.clone(), update.vectors["delta"].clone()))
        return update

    def evaluate(self, silo, w):
        _seen.append((silo.id, w.clone(), None))
        return super().evaluate(silo, w=w)


_seen = []


@pytest.fixture
def run(tmp_path):
    """Return how to set up a federation of three silos with these settings."""

    def act(algorithm=None, model=None, cohort=EXAMPLES, **settings):
        _seen.clear()
        spec = write_folder(tmp_path, SIZES, valid=6)
        algorithm = algorithm or Watched(local=LOCAL)
        table = CompressionSettings(**settings)
        compression = compression_of(table, algorithm.absolute, algorithm.accumulated)
        transforms = [*([compression] if table.asked else []), RunningStatistics()]
        made = FlatModel(model or net()), transforms
        server, federation = make_federation(tmp_path, spec, algorithm, *made, seed=3, cohort=cohort)
        return algorithm, server, federation

    return act


def go(algorithm, server, federation, rounds=1, silos=(0, 1, 2)):
    for _ in range(rounds):
        algorithm.round(server, federation.cohort(list(silos), server))
        server.round += 1


def silo_with(model=None, **state):
    return make_silo(model or FlatModel(net()), state=state)


def vectors(n=300, seed=1):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("down", ["float16", "bfloat16", "qsgd"])
def test_silos_start_from_what_the_payload_says_and_the_server_goes_on_from_full_precision(run, down):
    algorithm, server, federation = run(download=down)
    start = server.state["w"].clone()
    go(algorithm, server, federation)
    sent = [w for _, w, _ in _seen]
    assert all(same_bits(w, sent[0]) for w in sent)
    assert 0 < (sent[0] - start).abs().max() < 0.01
    mean = sum(n * delta.double() for n, (_, _, delta) in zip(SIZES, _seen, strict=True)) / sum(SIZES)
    assert torch.allclose(server.state["w"], start + mean.float(), rtol=0, atol=1e-7)
    record = next(json.loads(r) for r in federation.transport.told if b'"kind"' in r)
    assert [(v["dtype"], v["length"]) for v in record["vectors"]] == [
        ("uint8", 43 + 4 if down == "qsgd" else 86)
    ]


def test_what_a_silo_is_judged_by_is_what_the_next_round_starts_from(run):
    algorithm, server, federation = run(download="qsgd", bits=4)
    go(algorithm, server, federation)
    federation.everyone(server).mean(algorithm.evaluate, w=server.state["w"])
    go(algorithm, server, federation)
    rounds = [_seen[i : i + 3] for i in (0, 3, 6)]
    assert same_bits(rounds[1][0][1], rounds[2][0][1])
    assert not torch.equal(rounds[0][0][1], rounds[1][0][1])


@pytest.mark.parametrize("up", ["float16", "bfloat16", "qsgd", "topk"])
def test_what_is_summed_is_what_a_receiver_would_have_read(run, up):
    algorithm, server, federation = run(upload=up)
    codec = codec_of(CompressionSettings(upload=up), up)
    start = server.state["w"].clone()
    go(algorithm, server, federation)
    total = torch.zeros(len(start), dtype=torch.float64)
    for (k, _, delta), n in zip(_seen, SIZES, strict=True):
        payload = codec.encode(
            delta, make_silo(FlatModel(net()), id=k, randomness=3).stream("compression of delta")
        )
        total += n * codec.decode(payload, len(delta))
    assert torch.allclose(server.state["w"], start + (total / sum(SIZES)).float(), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "settings", [{"upload": "topk", "share": 0.1}, {"upload": "qsgd", "bits": 2}, {"upload": "bfloat16"}]
)
def test_what_was_sent_and_what_is_left_are_what_there_was(settings):
    transform = compression_of(CompressionSettings(**settings, error_feedback=True), ())
    state, sent, true = {}, torch.zeros(300, dtype=torch.float64), torch.zeros(300, dtype=torch.float64)
    for round in range(20):
        silo, delta = make_silo(FlatModel(net()), state=state, round=round), vectors(seed=round)
        update = transform.update(silo, silo.update(delta=delta))
        state |= silo.kept
        sent, true = sent + update.vectors["delta"], true + delta
    memory = state["unsent delta"]
    assert memory.abs().max() > 1e-3
    assert torch.allclose(sent + memory, true, rtol=0, atol=2e-5)
    assert (sent - true).abs().max() > 1e-3


def controls(federation, name="c"):
    worker = federation._worker
    return [
        {**worker.states.kept.get(k, {}), **worker.states.pending.get(k, {})}.get(name, 0.0) for k in range(3)
    ]


def told(kind, federation, cohort):
    """Sum p_k g_k without what is yet to be sent, by which the server's control goes."""
    drawn = cohort == COHORTS[2]
    name, factor = ("delta" if kind is FedDyn and not drawn else "shift"), (-ALPHA if kind is FedDyn else 1)
    owed = controls(federation, f"unsent {name}")
    n = [1] * 3 if cohort == ALIKE or kind is Printed else SIZES
    known = [
        own - factor * unsent / (m if drawn else 1)
        for own, unsent, m in zip(controls(federation, kind.at_silo), owed, n, strict=True)
    ]
    return sum(m / sum(n) * control for m, control in zip(n, known, strict=True))


ALPHA = 0.1
COHORTS = [EXAMPLES, ALIKE, CohortTable(select="examples", weights="uniform")]


class Printed(Scaffold):
    """SCAFFOLD whose controls weigh 1/N whatever the deltas do."""

    control_weights: Literal["objective", "uniform"] = "uniform"


each_kind = pytest.mark.parametrize("kind", [Scaffold, FedDyn, Printed])
each_cohort = pytest.mark.parametrize("cohort", COHORTS, ids=["examples", "uniform", "drawn"])


@each_kind
@each_cohort
@pytest.mark.parametrize(
    "up", [{"upload": "qsgd", "bits": 2}, {"upload": "bfloat16"}, {"upload": "topk", "error_feedback": False}]
)
def test_the_servers_control_stays_the_mean_of_the_silos_but_for_what_is_yet_to_be_sent(
    run, kind, up, cohort
):
    algorithm, server, federation = run(kind(local=LOCAL), cohort=cohort, **up)
    for silos in ((0, 1, 2), (0, 2), (1,), (0, 1)):
        go(algorithm, server, federation, silos=silos)
    assert (
        max(float(one.abs().max()) for one in controls(federation, f"unsent {min(kind.accumulated)}")) > 1e-5
    )
    assert torch.allclose(server.state[kind.at_server], told(kind, federation, cohort), rtol=0, atol=1e-6)


@pytest.mark.parametrize("absent", [set(), {0}], ids=str)
@each_kind
@each_cohort
@pytest.mark.parametrize("up", [{"upload": "qsgd", "bits": 2}, {}])
def test_the_servers_control_is_brought_into_line_with_silos_that_have_lost_theirs(
    run, kind, up, cohort, absent
):
    """A silo that no rank can host has lost its own for good;
    shares stay those of all silos, as the rounds' do."""
    algorithm, server, federation = run(kind(local=LOCAL), cohort=cohort, **up)
    go(algorithm, server, federation, rounds=2)
    before = dict(federation._worker.states.kept[1])
    go(algorithm, server, federation, rounds=2)
    federation.everyone(server).mean(algorithm.tell_control)
    federation._worker.states.kept[1] = before
    for silo in {2, *absent}:
        federation._worker.states.kept.pop(silo)
    federation.membership.unavailable = absent
    apart = server.state[kind.at_server].clone()
    algorithm.realign(server, federation.everyone(server))
    assert torch.allclose(server.state[kind.at_server], told(kind, federation, cohort), rtol=0, atol=1e-7)
    assert (server.state[kind.at_server] - apart).abs().max() > 1e-4
    go(algorithm, server, federation)
    assert torch.allclose(server.state[kind.at_server], told(kind, federation, cohort), rtol=0, atol=1e-6)


def test_the_memory_comes_first_out_of_the_silos_state_and_only_where_asked_for():
    delta = torch.tensor([1.0, 0.5, 0.0])
    with_memory, without = Compression(TopK(0.3), None, True), Compression(TopK(0.3), None)
    silo = silo_with(**{"unsent delta": torch.tensor([0.0, 4.0, 0.0])})
    update = with_memory.update(silo, Update(1.0, {"delta": delta}))
    assert update.vectors["delta"].tolist() == [0.0, 4.5, 0.0]
    assert silo.kept["unsent delta"].tolist() == [1.0, 0.0, 0.0]
    assert delta.tolist() == [1.0, 0.5, 0.0]
    silo = silo_with(**{"unsent delta": torch.tensor([0.0, 4.0, 0.0])})
    assert without.update(silo, Update(1.0, {"delta": delta})).vectors["delta"].tolist() == [1.0, 0.0, 0.0]
    assert not silo.kept


def test_uniform_vectors_stay_uniform_and_each_name_has_a_memory_and_draws_of_its_own():
    transform = compression_of(CompressionSettings(upload="qsgd", bits=2, error_feedback=True), ())
    silo, vector = silo_with(), vectors()
    update = transform.update(silo, silo.update(delta=vector, shift=uniform(vector)))
    assert isinstance(update.vectors["shift"], Uniform)
    assert set(silo.kept) == {"unsent delta", "unsent shift"}
    assert not torch.equal(update.vectors["delta"], update.vectors["shift"].vector)
    assert {name: len(payload) for name, payload in update.payloads.items()} == {"delta": 79, "shift": 79}


@pytest.mark.parametrize("other", [{"id": 1}, {"round": 1}, {"randomness": 1}], ids=str)
def test_silos_rounds_and_seeds_draw_differently(other):
    transform, vector = Compression(QSGD(2), None), vectors()
    first, again, another = (
        transform.update(silo, Update(1.0, {"delta": vector})).vectors["delta"]
        for silo in (
            make_silo(FlatModel(net())),
            make_silo(FlatModel(net())),
            make_silo(FlatModel(net()), **other),
        )
    )
    assert same_bits(first, again)
    assert not torch.equal(first, another)


def test_vectors_that_are_no_changes_have_no_memory_and_are_never_sparse():
    assert "logits" in FedDF.absolute
    for settings, exact in (({"upload": "topk"}, True), ({"upload": "qsgd", "error_feedback": True}, False)):
        transform = compression_of(CompressionSettings(**settings), FedDF.absolute)
        silo, vector = silo_with(), vectors()
        update = transform.update(silo, silo.update(delta=vector, logits=uniform(vector)))
        assert set(silo.kept) == {"unsent delta"}
        assert torch.equal(update.vectors["logits"].vector, vector) == exact
        assert ("logits" in update.payloads) != exact


def test_fsvrgs_full_gradient_travels_whole_and_owes_nothing(run):
    """What top-k left out of it would be missing in every corrected step of the round."""
    algorithm, server, federation = run(FSVRG(local=LOCAL), upload="topk", share=0.1)
    w = server.state["w"].clone()
    own = [federation._worker.lend(k, 0).gradient(w).delta.double() for k in range(3)]
    full = federation.everyone(server).mean(algorithm.full_gradient, w=w)["gradient"]
    right = sum(n * gradient for n, gradient in zip(SIZES, own, strict=True)) / sum(SIZES)
    assert torch.allclose(full.double(), right, rtol=0, atol=1e-6)
    go(algorithm, server, federation)
    assert set(federation._worker.states.pending[0]) == {"unsent delta"}


def test_statistics_and_whatever_is_not_float32_stay_exact(run):
    given = {"upload": "topk", "share": 0.01, "download": "bfloat16"}
    algorithm, server, federation = run(model=batch_norm_net(), **given)
    go(algorithm, server, federation)
    record = next(json.loads(r) for r in federation.transport.told if b'"kind"' in r)
    assert {v["name"]: v["dtype"] for v in record["vectors"]} == {"w": "uint8", "statistics": "float64"}
    found, exact = server.state["statistics"], FlatModel(batch_norm_net()).statistics.read()
    assert found[-1] == 3
    assert ((found - exact)[:-1] != 0).all()
    transform = Compression(TopK(0.1), Cast("bfloat16"))
    others = {"counts": torch.arange(5), "exact": torch.rand(5, dtype=torch.float64), "empty": torch.empty(0)}
    update = transform.update(silo_with(), Update(1.0, dict(others)))
    message = transform.request(Server([]), {**others, "mu": 0.5, "name": "x"})
    assert all(update.vectors[name] is others[name] is message[name] for name in others)
    assert message.keys() == {*others, "mu", "name"}
    assert not update.payloads


def test_numbers_come_through_and_lengths_do_not_reach_the_algorithm():
    transform = Compression(None, QSGD(4))
    message = transform.request(Server([], seed=3), {"w": vectors(), "c": vectors(7), "mu": 0.5})
    received = transform.receive(silo_with(), message)
    assert received.keys() == {"w", "c", "mu"}
    assert [len(received["w"]), len(received["c"]), received["mu"]] == [300, 7, 0.5]


@pytest.mark.parametrize(
    ("settings", "up", "down"),
    [
        ({}, 4 * 43, 4 * 43),
        ({"upload": "bfloat16"}, 2 * 43, 4 * 43),
        ({"download": "float16"}, 4 * 43, 2 * 43),
        ({"upload": "qsgd", "bits": 3, "bucket": 20}, 3 * 4 + 17, 4 * 43),
        ({"upload": "topk", "share": 0.1, "download": "qsgd", "bits": 4}, 5 * 4 + 6, 4 + 22),
    ],
)
def test_bytes_are_those_of_the_payloads_and_of_the_records(run, settings, up, down):
    algorithm, server, federation = run(algorithm=Watched(local=LOCAL), **settings)
    assert len(server.state["w"]) == 43
    go(algorithm, server, federation)
    record = next(r for r in federation.transport.told if b'"kind"' in r)
    ledger = federation.ledger
    assert ledger.bytes_sent == 3 * (down + len(record))
    headers = ledger.bytes_received - 3 * up
    assert 3 * 80 < headers < 3 * 300
    assert sum(ledger.bytes_of_silo.values()) == ledger.bytes_sent + ledger.bytes_received
    assert ledger.bytes_of_silo.keys() == {0, 1, 2}
    assert max(ledger.bytes_of_silo.values()) < ledger.bytes_of_silo[0] + 10


def test_bytes_depend_neither_on_the_clock_nor_on_what_was_learned():
    """So that two runs of a job move the same bytes, and a plan can tell them."""
    found = []
    for seconds, loss, window, mu in ((0.5, 2.0, None, 1.0), (0.123456789, 0.6931471805599453, -12, 1 / 3)):
        ledger, of = ExchangeCosts(), VectorHeader(length=9, window=window)
        request = Compute(work="train", cohort=[0], scalars={"mu": mu, "k": 3, "name": "x"})
        header = Header(silo=0, seconds=seconds, weight=4.0, vectors={"delta": of}, seen=int(9 * loss))
        header = header.model_copy(update={"scalars": {"train_loss": loss}, "losses": [loss, None]})
        ledger.add(request, [header], [0], {}, seconds)
        found.append((ledger.bytes_sent, ledger.bytes_received, dict(ledger.bytes_of_silo)))
    assert found[0] == found[1]


def test_an_update_beyond_the_codecs_range_is_its_silos_fault(run):
    class Large(FedAvg):
        def train(self, silo, w):
            update = super().train(silo, w)
            return Update(update.weight, {"delta": update.vectors["delta"] * (1e9 if silo.id == 1 else 1)})

    algorithm, server, federation = run(Large(local=LOCAL), upload="float16", error_feedback=True)
    with pytest.raises(
        RoundLost, match=r"silo 1: its update was refused: \[compression\] upload: 'delta' reaches"
    ):
        go(algorithm, server, federation)
    with pytest.raises(InputError, match="use bfloat16"):
        Compression(Cast("float16"), None).update(silo_with(), Update(1.0, {"delta": torch.tensor([7e4])}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda message: message.update(w=message["w"][:-1]),
            r"'w' has a payload of .*; it must be 86 bytes",
        ),
        (lambda message: message["w"].fill_(0xFF), "'w' has a payload that holds NaN or Inf"),
        (lambda message: message.update({"length of w": -1}), "'w' has a payload"),
        (lambda message: message.update({"length of w": 43.0}), "'w' is of length 43.0"),
        (lambda message: message.pop("w"), "'w' is missing"),
        (lambda message: message.update(w=0.5), "'w' is missing"),
    ],
)
def test_a_damaged_request_is_a_fault_with_its_reason(change, said):
    transform = Compression(None, Cast("float16"))
    message = transform.request(Server([], seed=3), {"w": vectors(43)})
    change(message)
    with pytest.raises(InputError, match=rf"what it was sent was refused: \[compression\] download: {said}"):
        transform.receive(silo_with(), message)


def test_a_codec_that_writes_nonsense_is_its_silos_fault():
    class Broken(Cast):
        def encode(self, vector, draw):
            return super().encode(vector, draw).fill_(0xFF)

    with pytest.raises(
        InputError, match=r"its update was refused: \[compression\] upload: 'delta' has a payload"
    ):
        Compression(Broken("float16"), None).update(silo_with(), Update(1.0, {"delta": vectors()}))


@pytest.mark.parametrize("up", ["float16", "qsgd", "topk"])
def test_an_update_with_nan_is_refused_as_ever_and_leaves_no_memory(run, up):
    class Poisoned(FedAvg):
        def train(self, silo, w):
            return Update(silo.weight, {"delta": torch.full_like(w, float("nan"))})

    algorithm, server, federation = run(Poisoned(), upload=up)
    with pytest.raises(RoundLost, match="'delta' holds NaN or Inf"):
        go(algorithm, server, federation)
    assert not any(federation._worker.states.pending.values())


def test_a_request_beyond_the_codecs_range_loses_the_round_with_its_reason(run):
    algorithm, server, federation = run(download="float16")
    server.state["w"][3] = 7e4
    before = server.state["w"].clone()
    with pytest.raises(
        RoundLost, match=r"\[compression\] download: 'w' reaches 70000, beyond .* use bfloat16"
    ):
        go(algorithm, server, federation)
    assert same_bits(server.state["w"], before)


def test_scaffolds_controls_travel_compressed_both_ways(run):
    algorithm, server, federation = run(
        Scaffold(local=LOCAL), upload="qsgd", download="bfloat16", error_feedback=True
    )
    go(algorithm, server, federation, rounds=3)
    state = federation._worker.states.pending[0]
    assert set(state) == {"c", "unsent delta", "unsent shift"}
    assert server.state["c"].abs().max() > 0


def test_without_compression_there_is_no_transform_and_defaults_go_by_the_codec():
    assert not CompressionSettings().asked
    assert CompressionSettings().model_dump(exclude_none=True) == {"upload": "none", "download": "none"}
    assert CompressionSettings(upload="topk").model_dump(exclude_none=True) == {
        "upload": "topk",
        "download": "none",
        "error_feedback": True,
        "share": 0.01,
    }
    filled = CompressionSettings(upload="qsgd", download="qsgd", bits=3)
    assert (filled.error_feedback, filled.bits, filled.bucket, filled.norm) == (False, 3, 512, "max")
    assert codec_of(filled, "qsgd") == QSGD(3, 512, "max")
    again = CompressionSettings.model_validate_json(filled.model_dump_json(exclude_none=True))
    assert again == filled


@pytest.mark.parametrize(
    "keys", [{"upload": "qsgd", "bits": 9}, {"upload": "qsgd", "bits": 1}, {"upload": "topk", "share": 0.0}]
)
def test_codecs_are_given_what_they_can_do(keys):
    with pytest.raises(ValidationError):
        CompressionSettings(**keys)
