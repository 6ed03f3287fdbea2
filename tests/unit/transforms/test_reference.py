"""What updates are compared with, in whole trainings on one rank."""

import itertools
import json

import numpy as np
import pytest
import tomli_w
from safetensors.torch import load_file
from unit.builders import CLASSES, FEATURES, Alone, arrays, write_folder

from mpifl.algorithms import FedAvg
from mpifl.common.errors import InputError
from mpifl.report.pages import write_report
from mpifl.run.folder import checkpoint
from mpifl.silo.steps import Proximal
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.write_shard import write_shard


@pytest.fixture
def run(tmp_path):
    """Train over six silos; return the run folder and its records."""

    def act(name, **tables):
        public = tables.pop("public", 0)
        shards = tmp_path / f"shards{public}"
        if not shards.exists():
            spec = write_folder(shards, [20] * 6, test=5)
            if public:
                drawn = {"public": arrays(public, 77)}
                entry = write_shard(
                    shards / "public.h5", drawn, silo=None, name="public", features=FEATURES, classes=CLASSES
                )
                spec.model_copy(update={"public": entry}).write(shards)
        job = {"name": "toy", "rounds": 3, "shards": str(shards), "model": {"name": "logreg"}}
        (tmp_path / "job.toml").write_text(tomli_w.dumps({**job, "checkpoint": {"every": 1}, **tables}))
        train(tmp_path / "job.toml", tmp_path / name, (), False, Alone(), wings_of=wings_of)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return tmp_path / name, [json.loads(line) for line in lines]

    return act


def vector(state):
    """Weights first, then biases, as `w` has them."""
    return np.concatenate([state[name].flatten().double().numpy() for name in sorted(state, reverse=True)])


def test_the_last_aggregate_is_what_the_server_moved_by_and_lies_in_its_checkpoints(run):
    folder, _ = run("run", aggregation={"rule": "centered", "tau": 0.01}, checkpoint={"every": 1, "keep": 3})
    states = [checkpoint.read(folder, round)[0] for round in (1, 2, 3)]
    for before, after in itertools.pairwise(states):
        moved = (after["w"] - before["w"]).double()
        np.testing.assert_allclose(moved, after["reference delta"].double(), atol=1e-6)
        step = np.linalg.norm((after["reference delta"] - before["reference delta"]).double())
        assert 0 < step <= 0.01 * 1.001


def test_with_a_wide_tau_the_result_is_the_mean_and_silos_see_nothing_of_it(run):
    wide, _ = run("wide", aggregation={"rule": "centered", "tau": 1e6})
    mean, _ = run("mean", cohort={"weights": "uniform"})
    found, expected = (vector(load_file(one / "model.safetensors")) for one in (wide, mean))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_momentum_at_a_silo_goes_on_as_worker_momentum_does(run):
    """m = beta m + g (Karimireddy et al. 2021), one step a round; the update is -lr m."""
    local = {"momentum": 0.9, "keep_optimizer_state": True, "steps": 1, "batch_size": "full", "lr": 0.5}
    table = {"rule": "centered", "tau": 1e6}
    kept, _ = run("kept", aggregation=table, local=local, checkpoint={"every": 1, "keep": 3})
    states = [checkpoint.read(kept, round)[0]["w"].double().numpy() for round in (1, 2)]
    w0 = vector(load_file(kept / "initial.safetensors"))
    plain_steps = {**local, "momentum": 0.0, "keep_optimizer_state": False}
    plain, _ = run("plain", local=plain_steps, rounds=1)
    np.testing.assert_allclose(states[0], vector(load_file(plain / "model.safetensors")), atol=1e-6)
    start = {"name": "logreg", "weights": str(plain / "model.safetensors")}
    then, _ = run("then", local=plain_steps, rounds=1, model=start)
    gradient = vector(load_file(then / "model.safetensors")) - states[0]  # -lr g of round 2
    np.testing.assert_allclose(states[1] - states[0], 0.9 * (states[0] - w0) + gradient, atol=1e-5)


def test_weights_are_told_in_the_records_and_in_the_report(run):
    folder, records = run("run", aggregation={"rule": "multikrum", "m": 2, "byzantine": 1})
    for record in records:
        assert len(record["not_chosen"]) == 4
        assert sorted(record["weights"].values()) == [0, 0, 0, 0, 0.5, 0.5]
    page = write_report(folder).read_text()
    assert page.index("<summary>Trust") < page.index("Weights of silos (6)") < page.index("Every round")
    assert "suspected" not in page
    assert "LIE" not in page


def test_the_report_says_who_lies_and_how(run):
    folder, _ = run("run", attack={"kind": "scale", "silos": [1, 4], "factor": 9.0})
    page = write_report(folder).read_text()
    assert (
        "[attack] makes silos 1, 4 LIE ON PURPOSE (kind = scale, factor = 9.0). Such a run is for tests."
        in page
    )


def test_fltrust_compares_with_an_update_of_the_servers_own(run):
    _, records = run("run", public=30, aggregation={"rule": "fltrust"})
    assert all(max(record["weights"].values()) > 0 for record in records)
    with pytest.raises(InputError, match="'fltrust': the shards have no public examples; partition with"):
        run("without", aggregation={"rule": "fltrust"})


class Pulled(FedAvg):
    """Trains in a way of its own, and says nothing of it."""

    def train(self, silo, w):
        run = silo.train_locally(w, self.local, correct=Proximal(w, 0.1))
        return silo.update(delta=run.delta)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"algorithm": {"name": "fedprox", "mu": 9.0}}, "here is pulled towards the model; use 'fedavg'"),
        ({"algorithm": {"name": "fedsgd"}, "local": {"lr": 0.1}}, "is one gradient of all examples"),
        ({"algorithm": {"name": "moon", "mu": 1.0}}, "compares with the silo's last model"),
        ({"algorithm": {"name": "fedper", "personal": ["*bias"]}}, "of which a part is the silo's"),
        (
            {"algorithm": {"name": "unit.transforms.test_reference:Pulled"}},
            "here may differ, since Pulled has no `unlike_fedavg` beside its round or train; use 'fedavg'",
        ),
        (
            {"local": {"lr": 0.1, "momentum": 0.9, "keep_optimizer_state": True}},
            r"leave .* keep_optimizer_state out",
        ),
    ],
    ids=str,
)
def test_fltrust_is_for_silos_that_train_as_the_server_does(run, more, line):
    """Each update is made as long as the server's."""
    with pytest.raises(InputError, match=f"since its update is as long as the model's step; .*{line}"):
        run("run", public=30, aggregation={"rule": "fltrust"}, **more)


def test_by_fltrust_a_schedule_over_rounds_goes_on_at_the_server(run):
    """At its end the learning rate is next to nothing, and so is the model's step."""
    local = {"lr": 0.5, "steps": 2, "batch_size": 8, "schedule": "linear", "schedule_rounds": 4}
    folder, _ = run(
        "run",
        public=30,
        rounds=4,
        aggregation={"rule": "fltrust"},
        local=local,
        checkpoint={"every": 1, "keep": 5},
    )
    w = [checkpoint.read(folder, round)[0]["w"].double() for round in (1, 2, 3, 4)]
    steps = [float((after - before).norm()) for before, after in itertools.pairwise(w)]
    assert steps[-1] < 0.5 * steps[0]
