"""Clipping: one factor by the joint norm, to the bit as numpy has it;
what it leaves alone, reports and refuses."""

import json

import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load_file
from unit.builders import Alone, make_federation, make_silo, net, same_bits, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.common.errors import InputError
from mpifl.run.job.job import check_job
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.training.loop import train
from mpifl.transforms.clipping import Clipping
from mpifl.wings import wings_of
from mpifl.wire.update import Mean, Uniform, Update, summed, uniform, unmarked

SILO = make_silo(FlatModel(net()))
LOCAL = LocalTraining(lr=0.1, batch_size=10, epochs=1)


def drawn(n, dtype=torch.float32, scale=1.0, seed=0):
    return scale * torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def in_numpy(bound, *vectors):
    """min(1, C / ||all of them||_2) times each, without torch."""
    squares = [np.square(v.astype(np.float64)).sum() for v in vectors]
    factor = min(1.0, bound / np.sqrt(np.sum(squares)))
    return [v * v.dtype.type(factor) for v in vectors]


@given(
    st.lists(st.tuples(st.integers(1, 900), st.booleans(), st.integers(0, 99)), min_size=1, max_size=3),
    st.sampled_from([1e-3, 0.5, 20.0, 1e4]),
    st.sampled_from([1e-6, 1.0, 300.0]),
)
def test_all_vectors_are_scaled_by_one_factor_of_their_joint_norm(shapes, bound, scale):
    vectors = [drawn(n, torch.float64 if wide else torch.float32, scale, seed) for n, wide, seed in shapes]
    found = Clipping(bound).update(SILO, Update(3.0, {str(i): v for i, v in enumerate(vectors)}))
    right = in_numpy(bound, *(v.numpy() for v in vectors))
    for i, (vector, one) in enumerate(zip(vectors, right, strict=True)):
        assert same_bits(found.vectors[str(i)], torch.from_numpy(one)) or vector.dtype == torch.float64
        assert torch.allclose(found.vectors[str(i)], torch.from_numpy(one), rtol=1e-14, atol=0)
    norm = float(torch.cat([v.double() for v in found.vectors.values()]).norm())
    assert norm <= bound * (1 + 1e-6)
    assert found.scalars["clipped"] == (float(torch.cat([v.double() for v in vectors]).norm()) > bound)
    assert found.weight == 3.0


def test_vectors_stay_uniform_and_those_within_the_bound_are_not_touched():
    delta, shift = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    update = Clipping(2.5).update(SILO, Update(1.0, {"delta": delta, "shift": uniform(shift)}))
    assert update.vectors["delta"].tolist() == [1.5, 0.0]
    assert isinstance(update.vectors["shift"], Uniform)
    assert update.vectors["shift"].vector.tolist() == [2.0]
    assert (delta.tolist(), shift.tolist()) == ([3.0, 0.0], [4.0]), "they may be what the silo was sent"
    update = Clipping(5.0).update(SILO, Update(1.0, {"delta": delta, "shift": uniform(shift)}))
    assert update.vectors["delta"] is delta
    assert update.scalars == {"clipped": 0.0}


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_left_for_the_sum_to_refuse(odd):
    delta = torch.tensor([3.0, odd])
    assert Clipping(1.0).update(SILO, Update(1.0, {"delta": delta})).vectors["delta"] is delta


def test_squares_beyond_float64_are_clipped_too():
    delta = torch.tensor([3e200, 4e200], dtype=torch.float64)
    clipped = Clipping(5.0).update(SILO, Update(1.0, {"delta": delta})).vectors["delta"]
    assert torch.allclose(clipped, torch.tensor([3.0, 4.0], dtype=torch.float64), rtol=1e-15, atol=0)


def test_only_float_vectors_of_a_training_are_clipped():
    for purpose in ("evaluation", "realignment"):
        update = Update(1.0, {"control": torch.tensor([3.0, 4.0])})
        assert Clipping(1.0).update(SILO, update, purpose).vectors["control"].tolist() == [3.0, 4.0]
        assert not update.scalars
    counts = torch.tensor([30, 40])
    assert Clipping(1.0).update(SILO, Update(1.0, {"counts": counts})).vectors["counts"] is counts
    assert Clipping(1.0).update(SILO, Update(1.0)) == Update(1.0)


def test_the_share_of_clipped_updates_counts_each_alike():
    told = {0: {"clipped": 1.0}, 3: {"clipped": 0.0}, 4: {"clipped": 0.0}, 5: {}}
    mean = Clipping(1.0).mean(None, Mean({}, {"clipped": 0.9, "x": 2.0}, told))
    assert mean.scalars == {"clipped": 1 / 3, "x": 2.0}
    assert Clipping(1.0).mean(None, Mean({}, {"x": 2.0}, {0: {}})).scalars == {"x": 2.0}


class Named(FedAvg):
    """Has a scalar of its own called as clipping's."""

    def train(self, silo, w):
        return silo.update(delta=w, clipped=0.5)


class Echo(FedAvg):
    """Returns the very vector that it was sent."""

    def train(self, silo, w):
        return silo.update(delta=w, train_loss=1.0)


def test_a_scalar_of_the_algorithms_may_not_be_called_so(tmp_path):
    spec = write_folder(tmp_path, [4])
    server, federation = make_federation(tmp_path, spec, Named(), transforms=[Clipping(1.0)])
    with pytest.raises(
        Exception, match=r"its scalar 'clipped' has the name of what \[aggregation\] clip reports"
    ):
        Named().round(server, federation.everyone(server))


def test_what_silos_are_sent_is_not_clipped_in_place(tmp_path):
    spec = write_folder(tmp_path, [4, 6])
    server, federation = make_federation(tmp_path, spec, Echo(), transforms=[Clipping(0.5)])
    before = server.state["w"].clone()
    mean = federation.everyone(server).mean(Echo().train, w=server.state["w"])
    assert same_bits(server.state["w"], before)
    assert float(mean["delta"].norm()) == pytest.approx(0.5)


@pytest.fixture
def run(tmp_path):
    """Return how to train a job of three silos; returns its folder and its rounds."""
    write_folder(tmp_path / "shards", [20, 30, 25], valid=6)
    usual = {
        "name": "toy",
        "shards": str(tmp_path / "shards"),
        "rounds": 1,
        "device": "cpu",
        "model": {"name": "logreg"},
    }

    def act(name="run", resume=False, force=False, **tables):
        (tmp_path / "job.toml").write_text(tomli_w.dumps({**usual, "local": {"lr": 0.1}, **tables}))
        train(tmp_path / "job.toml", tmp_path / name, (), resume, Alone(), force, wings_of=wings_of)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return tmp_path / name, [json.loads(line) for line in lines]

    return act


def moved(folder):
    """How far the parameters have moved, one after another."""
    first, last = (load_file(folder / f"{name}.safetensors") for name in ("initial", "model"))
    return torch.cat([(last[name] - first[name]).flatten() for name in first if name.startswith("head")])


def test_updates_are_clipped_before_they_are_encoded_and_the_share_is_a_figure_of_the_round(run):
    whole, records = run("whole", cohort={"fraction": 0.4})
    assert "clipped" not in records[0]
    length = float(moved(whole).norm())
    folder, records = run("loose", cohort={"fraction": 0.4}, aggregation={"clip": 2 * length})
    assert records[0]["clipped"] == 0.0
    assert torch.equal(moved(folder), moved(whole))
    clip, coarse = (
        {"aggregation": {"clip": length / 3}, "cohort": {"fraction": 0.4}},
        {"upload": "topk", "share": 0.3},
    )
    folder, records = run("clipped", **clip)
    assert records[0]["clipped"] == 1.0
    assert torch.allclose(moved(folder), moved(whole) / 3, rtol=1e-3, atol=1e-6)
    folder, records = run("encoded", compression=coarse, **clip)
    assert int((moved(folder) != 0).sum()) == 5  # of 15, ceil(0.3 * 15)
    assert float(moved(folder).norm()) < length / 3


def test_running_statistics_are_averaged_as_without_clipping(tmp_path, run, capsys, monkeypatch):
    layers = "nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(5, classes)"
    module = f"from torch import nn\ndef make(shape, classes):\n    return nn.Sequential({layers})\n"
    (tmp_path / "normalised.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    whole, clipped = (
        run(name, model={"name": "normalised:make"}, aggregation=table)[0]
        for name, table in (("whole", {}), ("clipped", {"clip": 1e-3}))
    )
    one, other = (load_file(folder / "model.safetensors") for folder in (whole, clipped))
    same = {name for name in one if torch.equal(one[name], other[name])}
    assert same == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert (
        capsys.readouterr().err.count("[aggregation] clip: running statistics (BatchNorm) stay unclipped")
        == 1
    )


def test_a_run_goes_on_with_another_bound_only_if_the_user_insists(run):
    run(aggregation={"clip": 1.0}, checkpoint={"every": 1})
    with pytest.raises(InputError, match=r"it differs in aggregation\.clip; .* or add --force"):
        run(aggregation={"clip": 0.001}, resume=True, rounds=2)
    _, records = run(aggregation={"clip": 0.001}, resume=True, rounds=2, force=True)
    assert [record["clipped"] for record in records] == [0.0, 1.0]


def job(algorithm, **more):
    tables = {
        "name": "toy",
        "shards": "x",
        "rounds": 1,
        "model": {"name": "logreg"},
        "aggregation": {"clip": 1.0},
    }
    return check_job({**tables, "algorithm": algorithm, **more}, "toy.toml")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("scaffold", "server and silos both add up 'shift', and their sums would part"),
        ("feddyn", "server and silos both add up 'delta', and their sums would part"),
        ("feddf", "'logits' is not a change of the model, and would be falsified"),
        ("fsvrg", "'gradient' is not a change of the model, and would be falsified"),
        ("qfedavg", "its step is divided by h, which is made of the whole step"),
        ("qfedsgd", "its step is divided by h, which is made of the whole step"),
    ],
)
def test_algorithms_whose_updates_must_stay_whole_are_refused(name, why):
    with pytest.raises(InputError) as error:
        job({"name": name})
    what = f"[aggregation] clip = 1.0: updates of {name} must stay whole: {why}; leave clip out"
    assert str(error.value) == f"toy.toml: {what}"


@pytest.mark.parametrize("name", ["fedavg", "fedsgd", "fedprox", "fednova", "ditto", "moon", "fedbn"])
def test_algorithms_whose_updates_are_changes_are_taken(name):
    assert job({"name": name}).aggregation.clip == 1.0


@pytest.mark.parametrize("clip", [0.0, -1.0, float("inf"), "1"])
def test_a_bound_is_above_0_and_finite(clip):
    with pytest.raises(InputError, match=r"^toy.toml: \[aggregation\] clip = "):
        job({"name": "fedavg"}, aggregation={"clip": clip})


def test_what_is_added_up_is_neither_clipped_nor_part_of_the_norm():
    delta, count = torch.tensor([3.0, 4.0]), torch.tensor([1000.0])
    update = Clipping(5.0).update(SILO, Update(1.0, {"delta": delta, "count": summed(count)}))
    assert update.vectors["delta"] is delta
    assert update.scalars == {"clipped": 0.0}
    update = Clipping(2.5).update(SILO, Update(1.0, {"delta": delta, "count": summed(count)}))
    assert update.vectors["delta"].tolist() == [1.5, 2.0]
    assert unmarked(update.vectors["count"]).tolist() == [1000.0]
    alone = Clipping(2.5).update(SILO, Update(1.0, {"count": summed(count)}))
    assert alone.scalars == {}, "there is nothing to clip"
