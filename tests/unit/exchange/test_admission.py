"""What the server takes of a report, and what it refuses:
a rank that breaks one rule has all its silos stay out."""

import functools
import itertools
import json
import os
import time

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from torch import nn
from unit.builders import CPU, Alone, make_federation, net, write_folder

from mpifl.algorithms.algorithm_registry import ALGORITHMS
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common.errors import InputError, RoundLost
from mpifl.common.names import Names
from mpifl.exchange.server_side import gathering
from mpifl.exchange.server_side.admission import ABOUT, RESERVED, ExpectedUpdates, Knowledge, screened
from mpifl.exchange.server_side.faults import Judge
from mpifl.exchange.server_side.membership import Membership
from mpifl.exchange.server_side.report_reading import Refused, longest_report, read
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.sums.mean import WeightedMean
from mpifl.sums.planning import PartialSum
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.memory import Memory
from mpifl.wire.messages import (
    LONGEST_TEXT,
    Done,
    FileReply,
    FinishReply,
    Header,
    Report,
    VectorHeader,
    clean,
)
from mpifl.wire.nodes import Nodes
from mpifl.wire.requests import Compute, Finish, Load, Open, Save, SaveStatus, ScoreBatches
from mpifl.wire.update import Mean

P = 5
SHA = "a" * 64
EXPECTED = ExpectedUpdates(weights={0: 10.0, 1: 20.0}, parameters=P, lengths={"logits": 7})


def header(silo=0, weight=10.0, length=P, window=0, **more):
    return Header(
        silo=silo, weight=weight, vectors={"delta": VectorHeader(length=length, window=window)}, **more
    )


def report(*headers, parts=None, **more):
    usual = [PartialSum(name="delta", window=0, handle=3)]
    return Report(headers=list(headers) or [header()], parts=usual if parts is None else parts, **more)


class Elsewhere:
    """The server's end of a world in which rank 2 is on another node,
    or on this one with memory that none can read."""

    rank = 0

    def __init__(self, elsewhere):
        self.nodes = Nodes([0, 0, 1] if elsewhere else [0, 0, 0], 0)

    def read(self, rank, handle, length, dtype):
        raise OSError("no such file")


def screen(came, silos=(0,), kind=Compute, readable=True, **fields):
    own = {"work": "train"} if kind is Compute else fields
    request = kind(cohort=list(silos), **own)
    accept = functools.partial(WeightedMean(CPU, Memory(shared=False)).accept, Elsewhere(readable), 2)
    return screened(came, request, "rank 2", silos, EXPECTED, accept)


def faults(*arguments, **more):
    return [header.fault for header in screen(*arguments, **more).headers]


def test_a_report_that_keeps_the_rules_is_taken_as_it_is():
    whole = report(header(), header(1, 20.0), Done(silo=2, fault="no disk"), seconds=0.5)
    assert screen(whole, (0, 1, 2)) == whole


def test_of_a_silo_that_failed_only_the_fault_is_taken():
    failed = Header(
        silo=0, weight=1e6, fault="no", vectors={"x": VectorHeader(length=1, window=0)}, scalars={"round": 1}
    )
    assert screen(report(failed, parts=[])).headers == [Done(silo=0, fault="no")]


ALONE = PartialSum(name="delta", window=0, handle=3, weight=10.0)
SUM = PartialSum(name="delta", window=0, handle=3)
REFUSED = {
    "answers for another's silo": (report(header(), header(1, 20.0)), "it answers for silo 1"),
    "answers twice": (report(header(), header()), "silo 0 more than once"),
    "leaves one out": (Report(), "says nothing of silo 0"),
    "weighs more": (report(header(weight=1e200)), "weight is 1e\\+200, the server expects 10"),
    "weighs an ulp more": (report(header(weight=float(np.nextafter(10.0, 11.0)))), "its weight is"),
    "is shorter": (report(header(length=4)), "'delta' has 4 elements, the server expects 5"),
    "payload too long": (
        report(
            Header(silo=0, weight=10.0, vectors={"delta": VectorHeader(length=P, window=0, bytes=10_000)})
        ),
        "was sent as 10000 bytes",
    ),
    "is called like a figure": (
        report(header(scalars={"seconds": 1.0})),
        "'seconds' has the name of a figure",
    ),
    "is called like an epsilon": (report(header(scalars={"epsilon": 0.1})), "'epsilon' has the name"),
    "ends a run without a budget": (report(header(scalars={"budget_left": 0.0})), "'budget_left' has the"),
    "is called like a score": (
        report(header(scalars={"test_accuracy": 1.0})),
        "'test_accuracy' has the name",
    ),
    "is a text": (report(header(scalars={"train_loss": "abc"})), "'train_loss' is a text"),
    "has no sum": (report(header(), parts=[]), "sums are not those"),
    "has a sum of nothing": (report(header(window=None)), "sums are not those"),
    "has a sum twice": (report(header(), parts=[SUM, SUM]), "sums are not those"),
    "has a vector twice": (report(header(), parts=[ALONE, ALONE]), "are not weighted"),
    "has another's sum": (report(header(), parts=[PartialSum(name="c", window=0)]), "sums are not those"),
    "sums in another window": (
        report(header(), parts=[PartialSum(name="delta", window=1)]),
        "sums are not those",
    ),
    "weighs its part": (
        report(header(), parts=[ALONE.model_copy(update={"weight": 1e6})]),
        "are not weighted",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_report_that_breaks_a_rule_is_refused_by_its_rank(case):
    came, why = REFUSED[case]
    (fault,) = faults(came)
    assert fault.startswith("the report of rank 2 was refused: ")
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(fault)


def test_all_silos_of_a_rank_stay_out_with_one_that_is_refused():
    refused = screen(report(header(), header(1, 21.0)), (0, 1))
    assert all("silo 1: its weight is 21" in header.fault for header in refused.headers)
    assert [header.silo for header in refused.headers] == [0, 1]
    assert refused.parts == []


def test_a_vector_as_it_came_is_weighted_as_its_header_says():
    assert screen(report(header(), parts=[ALONE])).headers == [header()]
    two, other = (header(), header(1, 20.0)), ALONE.model_copy(update={"weight": 20.0})
    for parts in ([ALONE, other], [ALONE, SUM], [SUM]):
        assert screen(report(*two, parts=parts), (0, 1)).headers == list(two)
    for parts in ([ALONE], [ALONE, ALONE], [ALONE, other, SUM], [ALONE, other, other]):
        assert "are not weighted" in faults(report(*two, parts=parts), (0, 1))[0]


@pytest.mark.parametrize(
    "part", [7, {}, {"name": "delta"}, {"name": "delta", "window": 100_000}, [], "delta", None]
)
def test_parts_of_another_form_are_refused_in_a_short_line(part):
    came = Report(headers=[header()], parts=[part])
    (fault,) = faults(read(came.encode()))
    assert "its sums cannot be read" in fault
    assert len(fault) < LONGEST_TEXT


def test_sums_that_cannot_be_read_are_refused():
    assert "cannot be read where it says that they lie" in faults(report(), readable=False)[0]


UPDATE = b'{"headers": [{"kind": "update", "silo": 0, %s}]}'


@pytest.mark.parametrize(
    "record",
    [b"{", b"", b"[]", b"\xff", b"[" * 100_000, b'{"serial": 1e400}', b'{"serial": ' + b"9" * 5000 + b"}"]
    + [UPDATE % (b'"weight": %s' % weight) for weight in (b"NaN", b"1.7e308", b"-1")]
    + [UPDATE % (b'"scalars": {"a": %s}' % value) for value in (b"1" + b"0" * 400, b"1e308", b"[]")],
    ids=lambda record: record[:40].decode("latin1"),
)  # fmt: skip
def test_what_is_no_report_is_refused_in_a_short_line(record):
    found = read(record)
    assert isinstance(found, Refused)
    assert len(str(found)) < LONGEST_TEXT
    assert "cannot be read" in faults(found)[0]


def many(value, times=1_000_000):
    return b"[" + b",".join([value] * times) + b"]"


def table(value, times=100_000):
    return b"{" + b",".join(b'"a%d": %s' % (nth, value) for nth in range(times)) + b"}"


CROWDED = {
    "replies": (
        b'{"headers": %s}' % many(b'{"kind":"done","silo":0}', 100_000),
        "replies of silos: 100000, at most 36",
    ),
    "numbers": (b'{"headers": %s}' % many(b"0"), "replies of silos: 1000000, at most 36"),
    "lists": (b'{"headers": [[], %s]}' % many(b"[]"), "keys of a reply: 1000000, at most 32"),
    "keys": (table(b"1"), "keys: 100000, at most 32"),
    "keys of a reply": (b'{"headers": [%s]}' % table(b"1"), "keys of a reply: 100000, at most 32"),
    "numbers of a reply": (UPDATE % (b'"scalars": %s' % table(b"1.5")), "scalars: 100000, at most 4096"),
    "lists for numbers": (UPDATE % (b'"scalars": %s' % table(b"[]")), "scalars: 100000, at most 4096"),
    "sealed": (UPDATE % (b'"sealed": %s' % many(b"1")), "sealed: 1000000, at most 4096"),
    "vectors": (UPDATE % (b'"vectors": %s' % table(b"1")), "vectors: 100000, at most 4096"),
    "keys of a vector": (
        UPDATE % (b'"vectors": {"a": %s}' % table(b"1")),
        "keys of a vector: 100000, at most 32",
    ),
    "sums": (b'{"parts": %s}' % many(b"1"), "parts of 0 vectors: 1000000, at most 32"),
    "ranks": (b'{"hanging": %s}' % many(b'""'), "hanging: 1000000, at most 65536"),
}


@pytest.mark.parametrize("case", CROWDED)
def test_a_report_of_more_than_was_asked_is_refused_before_its_entries_are_checked(case, monkeypatch):
    record, why = CROWDED[case]
    monkeypatch.setattr(Report, "model_validate_json", None)  # which would take up to half a minute
    assert why in str(read(record, 2))


def test_the_longest_report_follows_from_what_was_asked():
    request, of_file = Compute(work="train"), SaveStatus(checkpoint=1, wait=True)
    scalars = {f"{nth:0200}": -1.2345678901234567e-100 for nth in range(4096)}
    vectors = {f"{nth:0200}": VectorHeader(length=2**48, window=-70, bytes=2**48) for nth in range(256)}
    parts = [PartialSum(name=name, window=-70, handle=2**31, weight=1 / 3) for name in vectors]
    largest = Header(silo=0, weight=1 / 3, scalars=scalars, vectors=vectors, seconds=1e9)
    assert isinstance(read(Report(headers=[largest], parts=parts).encode(), 1), Report)
    assert len(Report(headers=[largest], parts=parts).encode()) < longest_report(request, 1)
    failed = Done(silo=2**48, fault="\u20ac" * LONGEST_TEXT, seconds=1e9)
    assert len(Report(headers=[failed] * 1000).encode()) < longest_report(of_file, 1000) < 17 << 20
    assert longest_report(of_file, 0) < 1 << 20
    assert longest_report(request, 10**6) == longest_report(ScoreBatches(size=1, examples=1, dealt=[]), 0)


UNASKED = "it answers what was not asked"
STATUS = (SaveStatus, {"checkpoint": 1, "wait": False})
ANSWERS = {
    "a save begun": ((Save, {}), FileReply(silo=0, writing=True), FileReply(silo=0, sha256=SHA), UNASKED),
    "nothing to save": ((Save, {}), FileReply(silo=0), Done(silo=0), UNASKED),
    "a file written": (STATUS, FileReply(silo=0, sha256=SHA), FileReply(silo=0), "does not say whether"),
    "a file that is not yet": (
        *(STATUS, FileReply(silo=0, writing=True)),
        *(FileReply(silo=0, writing=True, sha256=SHA), "does not say whether"),
    ),
    "a file that was to be waited for": (
        *((SaveStatus, {"checkpoint": 1, "wait": True}), FileReply(silo=0, sha256=SHA)),
        *(FileReply(silo=0, writing=True), "was to wait for its file"),
    ),
    "a full disk": (
        (Finish, {"sha256": SHA}),
        FinishReply(silo=0, unwritten="full"),
        Header(silo=0),
        UNASKED,
    ),
    "a load": ((Load, {}), Done(silo=0), FileReply(silo=0, sha256=SHA), UNASKED),
    "a training": ((Compute, {}), header(), Done(silo=0), UNASKED),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_silos_reply_to_a_request_is_held_against_its_kind(case):
    (kind, fields), good, bad, why = ANSWERS[case]
    parts = [PartialSum(name="delta", window=0)] if kind is Compute else []
    assert faults(Report(headers=[good], parts=parts), kind=kind, **fields) == [None]
    assert why in faults(Report(headers=[bad]), kind=kind, **fields)[0]


OTHER_FORMS = [
    b'"kind": "file", "sha256": "../"',
    b'"kind": "file", "sha256": 5',
    b'"kind": "file", "writing": "yes"',
    b'"kind": "finish", "unwritten": true',
    b'"kind": "done", "sha256": null',
    b'"kind": "shell"',
    b'"weight": 1.0',
]


@pytest.mark.parametrize("reply", OTHER_FORMS, ids=lambda reply: reply.decode())
def test_a_reply_of_another_form_cannot_be_read(reply):
    assert isinstance(read(b'{"headers": [{"silo": 0, %s}]}' % reply), Refused)


def test_a_worker_that_opens_its_shards_says_where_it_runs():
    about = dict.fromkeys(ABOUT, "x")
    assert faults(Report(headers=[Done(silo=0)], about=about), kind=Open) == [None]
    assert "does not say where it runs" in faults(Report(headers=[Done(silo=0)]), kind=Open)[0]


def test_texts_of_others_are_one_line_without_control_characters():
    assert clean("a\x1b[31m\nb\u202e") == "a [31m b "
    assert len(clean("x" * 10**6)) == LONGEST_TEXT
    assert Header(silo=0, fault="\x07" * 5).fault == " " * 5


def test_a_vector_that_some_silos_count_alike_and_others_do_not_loses_the_round():
    alike = Header(
        silo=1, weight=20.0, vectors={"delta": VectorHeader(length=P, window=0, combined="uniform")}
    )
    why = Judge(1.0, Names()).reason_to_lose(Compute(work="train", cohort=[0, 1]), [header(), alike])
    assert why == "'delta' is uniform by silo 1, weighted by silo 0"


OTHER = {"extra": VectorHeader(length=P, window=0)}
NONE: dict[str, VectorHeader] = {}


@pytest.mark.parametrize("odd", [OTHER, NONE], ids=["another", "none"])
def test_silos_that_disagree_are_told_what_most_send_and_it_is_forgotten_when_that_fails(odd):
    sent = {}
    judge = Judge(0.5, Names(), sent)
    first, cohort = Header(silo=0, weight=10.0, vectors=odd), [header(1), header(2)]
    request = Compute(work="train", cohort=[0, 1, 2])

    def lost(headers, **more):
        verdict = judge.decide(
            request.model_copy(update=more), {}, headers, WeightedMean(CPU, Memory(shared=False))
        )
        return verdict.lost

    assert "did not send" in lost([first, *cohort])
    assert sent == {"train": {"delta": "weighted"}}
    assert lost([Done(silo=0, fault="unlike"), *cohort], sent=sent["train"]) is None
    assert sent == {"train": {"delta": "weighted"}}
    assert lost([first, Done(silo=1, fault="no"), Done(silo=2, fault="no")], sent=sent["train"])
    assert sent == {}, "it did not help"
    assert lost([first, Header(silo=1, weight=10.0, vectors=odd), header(2)])
    assert sent == {"train": {"delta": "weighted"}}, "as it was when a round counted"
    assert lost([first, header(1)], sent=None)


def test_nobody_is_right_where_as_many_silos_send_one_as_another():
    sent = {}
    first = Header(silo=0, weight=10.0, vectors=OTHER)
    Judge(0.5, Names(), sent).decide(
        Compute(work="train", cohort=[0, 1]), {}, [first, header(1)], WeightedMean(CPU, Memory(shared=False))
    )
    assert sent == {}


def test_a_mean_without_the_vector_that_is_read_loses_the_round_in_a_line():
    with pytest.raises(RoundLost, match="sent 'delta'; vectors that came: 'gamma'"):
        Mean({"gamma": torch.zeros(1)}, {}, {})["delta"]


def test_a_report_with_other_vectors_than_silos_were_told_is_refused():
    told = functools.partial(screened, request=Compute(work="train", cohort=[0]), who="rank 2", silos=(0,))
    for sent, why in (
        ({"gain": "weighted"}, "it sent 'delta', other"),
        ({"delta": "uniform"}, "'delta' is weighted, and uniform"),
    ):
        (reply,) = told(
            report(), expected=ExpectedUpdates({0: 10.0}, P, sent=sent), accept=lambda *_: None
        ).headers
        assert why in reply.fault


class Asking(FedAvg):
    """Has methods of all kinds."""

    def look(self, silo):
        return silo.update(seen=1.0)

    def _hidden(self, silo):
        return silo.update()

    def helper(self, vector):
        return vector


@pytest.mark.parametrize("name", ["look", "train", "evaluate"])
def test_what_an_algorithm_offers_as_work_is_found(name):
    algorithm = Asking()
    assert algorithm.work(name) == getattr(algorithm, name)


@pytest.mark.parametrize(
    "name", ["_hidden", "helper", "round", "model_copy", "personal_model", "begin", "__init__", "x"]
)
def test_no_other_method_can_be_asked_for(name):
    with pytest.raises(InputError, match="offers no work"):
        Asking().work(name)


@pytest.mark.parametrize("kind", ALGORITHMS.values(), ids=ALGORITHMS)
def test_evaluations_weigh_what_is_scored(kind):
    weight = kind.model_construct().weight
    assert weight("evaluate", {"train": 9, "valid": 3, "test": 4}, 9.0) == 4.0
    assert weight("evaluate", {"train": 9, "valid": 3}, 9.0) == 3.0
    assert weight("evaluate", {"train": 9}, 1.0) == 0.0


def trained(folder, algorithm="fedavg"):
    """Train on two silos that hold out examples; return the run folder."""
    write_folder(folder / "shards", [10, 10], test=5, valid=4)
    job, model, every = folder / "job.toml", {"name": "logreg"}, {"every": 1}
    tables = {
        "name": "toy",
        "rounds": 2,
        "shards": str(folder / "shards"),
        "model": model,
        "checkpoint": every,
    }
    job.write_text(tomli_w.dumps({**tables, "algorithm": {"name": algorithm}}))
    train(job, folder / "run", (), False, Alone(), wings_of=wings_of)
    return folder / "run"


def test_every_figure_of_a_record_is_reserved_for_the_server(tmp_path):
    records = [json.loads(line) for line in (trained(tmp_path) / "metrics.jsonl").read_text().splitlines()]
    own = {key for record in records for key in record if not key.startswith(("test_", "silo_"))}
    assert own - RESERVED == {"train_loss"}
    states = (tmp_path / "run" / "checkpoints" / f"round_00000{nth}" / "server.safetensors" for nth in (1, 2))
    w, last = (load_file(path)["w"].double() for path in states)
    assert records[1]["update_norm"] == pytest.approx(float((last - w).norm()), rel=1e-5)


SEVENTH = Compute(work="train", serial=7)


class Slow:
    """The server's end of a world of three ranks that report when they are let."""

    size, origins, nodes, silent = 3, [0, 1, 4], Nodes([0, 0, 0], 0), frozenset()

    def __init__(self, *reports):
        self.reports = iter(reports)
        self.asked = 0

    def next_report(self, until, longest):
        self.asked += 1
        if self.asked == 2:  # nobody says anything for as long as one may wait here
            time.sleep(max(0.0, until - time.perf_counter()))
            return None
        return next(self.reports)


def test_the_user_is_told_once_who_is_waited_for_and_the_wait_goes_on(monkeypatch):
    monkeypatch.setattr(gathering, "REMINDER", 0.01)
    told, first, second = [], Report(serial=7).encode(), Report(serial=7).encode()
    waiting = gathering.ReportGathering(Slow((1, first), (2, second)), Membership({}), None)
    waiting.listen(told.append)
    assert [rank for rank, _ in waiting.reports(SEVENTH, None)] == [1, 2]
    assert told == ["waiting for rank 4"]
    assert waiting._membership.timed_out == set()


def test_a_report_of_before_is_dropped_and_one_of_the_future_is_refused():
    reports = (1, Report(serial=6).encode()), (1, b""), (2, Report(serial=9).encode())
    waiting = gathering.ReportGathering(Slow(*reports), Membership({}), None)
    waiting._transport.asked = 2
    came = dict(waiting.reports(SEVENTH, None))
    assert "a request that was not made yet" in str(came[2])
    assert "it is empty" in str(came[1])


def test_a_rank_that_reports_of_before_without_end_does_not_keep_the_deadline_from_biting():
    waiting = gathering.ReportGathering(Slow(), Membership({}), 0.05)
    waiting._transport.asked, waiting._transport.reports = 2, itertools.repeat((1, Report(serial=6).encode()))
    assert list(waiting.reports(SEVENTH, 0.05)) == []
    assert waiting._membership.timed_out == {1, 2}


@pytest.fixture
def pair(tmp_path):
    """A federation of two silos and its server."""
    spec = write_folder(tmp_path, [10, 10])

    def make(algorithm, model=None):
        server, federation = make_federation(tmp_path, spec, algorithm, model)
        return algorithm, server, federation

    return make


class Weightier(FedAvg):
    """Silo 1 claims more than its examples."""

    def train(self, silo, w):
        update = super().train(silo, w)
        update.weight *= 1 + 1e6 * silo.id
        return update


def test_an_update_that_weighs_other_than_its_examples_is_its_own_silos_fault_alone(pair):
    algorithm, server, federation = pair(Weightier())
    with pytest.raises(
        RoundLost, match=r"1 of 2 silos answered \(silo 1: its update was refused: its weight is"
    ):
        algorithm.round(server, federation.everyone(server))


class Swelling(FedAvg):
    """Sends what is finite, and adds up to what is not."""

    def train(self, silo, w):
        return silo.update(delta=torch.full_like(w, 3e38))

    def round(self, server, cohort):
        server.state["w"] += cohort.mean(self.train, w=server.state["w"])["delta"] * 10
        return {}


def test_a_mean_that_is_not_finite_loses_the_round_and_names_who_sent_it(pair, monkeypatch):
    algorithm, server, federation = pair(FedAvg())
    aggregation = federation._worker.aggregation
    parts = aggregation.parts

    def spoiled():
        for _, vector, _ in aggregation._here._stayed["delta"]:
            vector[0] = float("nan")
        return parts()

    monkeypatch.setattr(aggregation, "parts", spoiled)
    before = server.state["w"].clone()
    with pytest.raises(RoundLost, match="the mean of 'delta' is not finite; suspected: rank 0"):
        algorithm.round(server, federation.everyone(server))
    assert torch.equal(server.state["w"], before)


def test_a_model_that_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(
        RoundLost,
        match="the model's parameters are not finite after round 1, and are not written; there is no check",
    ):
        trained(tmp_path, "unit.exchange.test_admission:Swelling")
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert not list((tmp_path / "run").glob("checkpoints/*/checkpoint.json"))


class Masked(nn.Module):
    """Has a mask of minus infinity among its buffers, as attention has."""

    def __init__(self):
        super().__init__()
        self.inner = net(nn.BatchNorm1d(5))
        self.register_buffer("mask", torch.full((3,), -torch.inf))

    def forward(self, x):
        return self.inner(x)


def test_a_constant_buffer_that_is_not_finite_is_no_statistic(pair):
    model = FlatModel(Masked())
    assert len(model.statistics) == 11
    algorithm, server, federation = pair(FedAvg(), model)
    algorithm.round(server, federation.everyone(server))
    assert server.state["w"].isfinite().all()


def test_vectors_are_read_only_from_anonymous_files_that_cannot_shrink(tmp_path):
    memory, here = Memory(shared=True), os.getpid()
    handle = memory.handle(memory.empty(8, torch.float64))
    assert len(Memory(shared=True).attach(here, handle, 8, torch.float64)) == 8
    with pytest.raises(PermissionError):
        os.ftruncate(handle, 0)
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(loose, 64)
    plain = os.open(tmp_path / "plain", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, 64)
    read_end, write_end = os.pipe()
    try:
        for number in (loose, plain, read_end, write_end, 10**6):
            with pytest.raises(OSError, match=r"not sealed|not an anonymous file|No such file"):
                Memory(shared=True).attach(here, number, 8, torch.float64)
    finally:
        for number in (loose, plain, read_end, write_end):
            os.close(number)


def test_knowledge_is_of_the_vectors_that_are_sent_the_statistics_and_p(tmp_path):
    model = FlatModel(net(nn.BatchNorm1d(5)))
    server = Server([model])
    FedAvg().begin(server)
    server.state["statistics"] = model.statistics.read()
    knowledge = Knowledge(FedAvg(), [{"train": 7, "valid": 2}], "examples", 7.0)
    found = knowledge.expected(server, "train", [0], {"w": server.state["w"], "c": torch.zeros(3), "mu": 0.5})
    assert found.weights == {0: 7.0}
    assert found.parameters == len(model.shared)
    assert found.lengths == {"w": len(model.shared), "c": 3, "statistics": 11}
    assert knowledge.weight("evaluate", 0) == 2.0


def test_nobody_waits_for_a_silent_rank_until_it_answers() -> None:
    def gathered(silent, *reports):
        members = Membership({})
        members.silent = silent
        waiting = gathering.ReportGathering(Slow(*reports), members, None)
        waiting._transport.asked = 2
        return [rank for rank, _ in waiting.reports(SEVENTH, None)], members.silent, members.timed_out

    first, second = (1, Report(serial=7).encode()), (2, Report(serial=7).encode())
    assert gathered({2}, first) == ([1], {2}, {2})
    assert gathered({2}, second, first) == ([2, 1], set(), set())
    assert gathered({1, 2}) == ([], {1, 2}, {1, 2})


@pytest.mark.parametrize(("quorum", "asked", "enough"), [(0.07, 100, 7), (0.55, 100, 55), (0.5, 3, 2)])
def test_a_quorum_is_no_silo_more_than_it_says(quorum, asked, enough):
    """0.07 * 100 is 7.000000000000001."""
    request, judge = Compute(work="train", cohort=[*range(asked)]), Judge(quorum, Names())

    def reason(answered):
        good = [header(silo) for silo in range(answered)]
        bad = [Done(silo=silo, fault=f"no {'x' * silo}") for silo in range(answered, asked)]
        return judge.reason_to_lose(request, [*good, *bad])

    assert reason(enough) is None
    assert reason(enough - 1).startswith(f"{enough - 1} of {asked} silos answered")


def test_a_payload_has_eight_bytes_an_element_and_room_for_eight_more_at_most():
    def sent(count):
        vector = VectorHeader(length=P, window=0, bytes=count)
        return faults(report(Header(silo=0, weight=10.0, vectors={"delta": vector})))

    assert sent(8 * (P + 8)) == [None]
    assert "was sent as 105 bytes" in sent(8 * (P + 8) + 1)[0]
