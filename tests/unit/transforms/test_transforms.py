"""Running statistics beside the weights: averaged as updates are,
counters whole, and nothing where there are none."""

import json

import pytest
import torch
from unit.builders import Alone, batch_norm_net, make_federation, make_silo, net, same_bits, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedsgd import FedSGD
from mpifl.algorithms.scaffold import Scaffold
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.transforms.running_statistics import RunningStatistics
from mpifl.transforms.transform import Transform
from mpifl.wire.update import Mean, Update

LOCAL = LocalTraining(lr=0.1, batch_size=10, epochs=1)
SIZES = [20, 30]


def exchange(tmp_path, model, algorithm=None, rounds=1):
    """Run rounds of a two-silo federation; return server, federation and the mean's scalars."""
    spec = write_folder(tmp_path, SIZES, valid=6)
    algorithm = algorithm or FedAvg(local=LOCAL)
    server, federation = make_federation(tmp_path, spec, algorithm, model, [RunningStatistics()])
    for _ in range(rounds):
        algorithm.round(server, federation.cohort([0, 1], server))
        server.round += 1
    return server, federation


def learned(tmp_path, k, start, statistics):
    """Return delta and statistics of silo k after local training in round 0, by itself."""
    spec = read_federation(tmp_path)
    model = FlatModel(batch_norm_net())
    model.statistics.write(statistics)
    silo = make_silo(model, id=k, shard=open_shard(tmp_path, spec.silos[k], spec))
    return silo.train_locally(start, LOCAL).delta, model.statistics.read()


def test_a_round_of_two_silos_averages_statistics_by_their_examples_and_counters_stay_whole(tmp_path):
    model = FlatModel(batch_norm_net())
    start, before = model.trained.clone(), model.statistics.read()
    server, _ = exchange(tmp_path, model)
    runs = [learned(tmp_path, k, start, before) for k in (0, 1)]
    assert [statistics[-1] for _, statistics in runs] == [2, 3]
    mean = sum(n * statistics for n, (_, statistics) in zip(SIZES, runs, strict=True)) / sum(SIZES)
    found = server.state["statistics"]
    assert torch.allclose(found[:-1], mean[:-1], atol=1e-6)
    assert found[-1] == round(mean[-1].item()) == 3  # of 2.6
    assert torch.equal(found, server.model.statistics.read())
    delta = sum(n * delta for n, (delta, _) in zip(SIZES, runs, strict=True)) / sum(SIZES)
    assert torch.allclose(server.state["w"], start + delta, atol=1e-6)


def test_statistics_go_on_from_round_to_round(tmp_path):
    server, _ = exchange(tmp_path, FlatModel(batch_norm_net()), rounds=3)
    assert server.state["statistics"][-1] == 3 * 3


def test_silos_do_not_see_what_the_silo_before_left_in_the_lent_model(tmp_path):
    model = FlatModel(batch_norm_net())
    server, federation = exchange(tmp_path, model)
    mean = federation.cohort([1, 0], server).mean(FedAvg(local=LOCAL).train, w=server.state["w"])
    model.statistics.write(torch.full((11,), 5.0))
    server.state["statistics"] = torch.tensor([0.0] * 5 + [1.0] * 5 + [0.0], dtype=torch.float64)
    other, others = exchange(tmp_path / "again", FlatModel(batch_norm_net()))
    again = others.cohort([0, 1], other).mean(FedAvg(local=LOCAL).train, w=other.state["w"])
    assert same_bits(mean["delta"], again["delta"])


def test_a_pass_that_learns_nothing_does_not_take_away_what_training_learned():
    model = FlatModel(batch_norm_net())
    transform, silo = RunningStatistics(), make_silo(model)
    start = model.statistics.read()
    message = transform.receive(silo, {"w": model.trained.clone(), "statistics": start})
    run = silo.train_locally(message["w"], LOCAL)
    changed = model.statistics.read() - start
    delta, loss = run.delta.clone(), silo.loss(message["w"])  # a paper's F_k(w), asked for after training
    update = transform.update(silo, silo.update(delta=delta, loss=loss))
    assert changed.abs().sum() > 0
    assert torch.equal(update.vectors["statistics"], changed)


def test_an_evaluation_changes_no_statistics(tmp_path):
    server, federation = exchange(tmp_path, FlatModel(batch_norm_net()))
    before = server.state["statistics"].clone()
    mean = federation.everyone(server).mean(FedAvg().evaluate, w=server.state["w"])
    assert set(mean.scalars) == {"silo_loss", "silo_accuracy"}
    assert set(mean.vectors) == {"metric counts"}
    assert torch.equal(server.state["statistics"], before)


def test_fedsgd_averages_the_statistics_of_its_one_pass(tmp_path):
    server, _ = exchange(tmp_path, FlatModel(batch_norm_net()), FedSGD(local=LOCAL))
    assert server.state["statistics"][-1] == 1


@pytest.mark.parametrize(("make", "names"), [(net, {"w"}), (batch_norm_net, {"w", "statistics"})])
def test_statistics_travel_only_if_the_model_has_some(tmp_path, make, names):
    server, federation = exchange(tmp_path, FlatModel(make()))
    records = [json.loads(record) for record in federation.transport.told]
    assert [{vector["name"] for vector in r["vectors"]} for r in records if "kind" in r] == [names]
    pieces = {piece["name"] for r in records if "pieces" in r for piece in r["pieces"]}
    assert pieces == {name.replace("w", "delta") if name == "w" else name for name in names}
    assert ("statistics" in server.state) == ("statistics" in names)


def test_a_transform_by_itself_leaves_everything_as_it_is():
    transform, message, update, mean = Transform(), {"w": 1}, Update(1.0), Mean({}, {}, {})
    assert transform.request(None, message) is message
    assert transform.receive(None, message) is message
    assert transform.update(None, update) is update
    assert transform.mean(None, mean) is mean
    assert message == {"w": 1}


def test_transforms_act_in_order_and_in_reverse_on_the_way_back(tmp_path):
    calls = []

    class Noted(Transform):
        def __init__(self, name):
            self.name = name

        def request(self, server, message, purpose):
            calls.append(f"request {self.name}")
            return {**message, self.name: 1.0}

        def receive(self, silo, message, purpose):
            calls.append(f"receive {self.name}")
            return {key: value for key, value in message.items() if key != self.name}

        def update(self, silo, update, purpose):
            calls.append(f"update {self.name}")
            return update

        def mean(self, server, mean, purpose):
            calls.append(f"mean {self.name}")
            return mean

    spec = write_folder(tmp_path, [4])
    server, federation = make_federation(tmp_path, spec, transforms=[Noted("a"), Noted("b")])
    FedAvg().round(server, federation.everyone(server))
    assert calls == [
        f"{what} {name}"
        for what, order in (("request", "ab"), ("receive", "ab"), ("update", "ba"), ("mean", "ba"))
        for name in order
    ]
    assert isinstance(federation.transport, Alone)


def test_transforms_are_told_what_the_work_is_for(tmp_path):
    told = []

    class Listening(Transform):
        def request(self, server, message, purpose):
            told.append(("request", purpose))
            return message

        def receive(self, silo, message, purpose):
            told.append(("receive", purpose))
            return message

        def update(self, silo, update, purpose):
            told.append(("update", purpose))
            return update

        def mean(self, server, mean, purpose):
            told.append(("mean", purpose))
            return mean

    algorithm = Scaffold(local=LOCAL)
    spec = write_folder(tmp_path, [12], valid=6)
    server, federation = make_federation(tmp_path, spec, algorithm, transforms=[Listening()])
    everyone = federation.everyone(server)
    algorithm.round(server, everyone)
    everyone.mean(algorithm.evaluate, w=server.state["w"])
    algorithm.realign(server, everyone)
    purposes = ("training", "evaluation", "realignment")
    assert told == [
        (place, purpose) for purpose in purposes for place in ("request", "receive", "update", "mean")
    ]
