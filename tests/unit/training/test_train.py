"""What the round loop does beside asking: drawing cohorts,
summing up figures over silos, and hearing signals."""

import importlib
import json
import math
import os
import re
import shutil
import signal
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tomli_w
import torch
from unit.builders import Alone, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.common.errors import InputError, RoundLost
from mpifl.common.machine import signals
from mpifl.learning.metrics import ACCURACY
from mpifl.report.pages.run_page import write_report
from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.environment import read_environment
from mpifl.training.loop import train
from mpifl.training.round_metrics import summarize
from mpifl.wings import wings_of

SIZES = [1, 9, 1, 9]


def test_figures_over_silos_are_summed_up_each_silo_alike():
    found = summarize("silo_loss", [1.0, 2.0, 6.0], worst=max, best=min)
    assert found == {
        "silo_loss_mean": 3.0,
        "silo_loss_worst": 6.0,
        "silo_loss_best": 1.0,
        "silo_loss_std": pytest.approx(math.sqrt(14 / 3)),
        "silo_loss_worst10": 6.0,
    }
    twenty = [k / 20 for k in range(20)]
    assert summarize("a", twenty, worst=min, best=max)["a_worst10"] == pytest.approx(0.025)
    assert summarize("a", twenty, worst=max, best=min)["a_worst10"] == pytest.approx(0.925)
    assert summarize("silo_accuracy", [0.5], worst=min, best=max)["silo_accuracy_std"] == 0.0
    assert summarize("silo_accuracy", [0.5, 0.25], worst=min, best=max)["silo_accuracy_worst"] == 0.25
    assert summarize("silo_loss", [], worst=max, best=min) == {}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_leaves_a_note_and_nothing_else(name):
    number = getattr(signal, name)
    handlers = {
        n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    }
    try:
        signals.install()
        assert not signals.pending()
        os.kill(os.getpid(), number)
        assert signals.pending()
        signals.clear()
        assert not signals.pending()
    finally:
        signals.clear()
        for n, handler in handlers.items():
            signal.signal(n, handler)


class Troubled(FedAvg):
    """Silo 1 fails at its first attempt in round 2, silo 2 whenever it is evaluated."""

    def train(self, silo, w):
        if (silo.id, silo.round) == (1, 1) and os.environ.pop("TROUBLE", None):
            raise RuntimeError("not yet")
        return super().train(silo, w)

    def evaluate(self, silo, **model):
        if silo.id == 2:
            raise RuntimeError("no scoring here")
        return super().evaluate(silo, **model)


class Unscored(FedAvg):
    def evaluate(self, silo, **model):
        raise RuntimeError("no scoring here")


class Doubled(FedAvg):
    """Minimises twice the cross entropy with half the learning rate: the same training."""

    def objective(self, module, x, y):
        return 2 * super().objective(module, x, y)


class Mistaken(FedAvg):
    """Fails at every silo, in its second round."""

    asked: ClassVar[list[int]] = []

    def train(self, silo, w):
        self.asked.append(silo.id)
        if silo.round == 1:
            raise KeyError("no such layer")
        return super().train(silo, w)


class Careless(FedAvg):
    def round(self, server, cohort):
        super().round(server, cohort)


@pytest.fixture
def run(tmp_path):
    """Train on three silos with these tables; return the records of the rounds."""

    def act(
        resume=False, test=20, valid=5, names=(), sizes=(10, 10, 10), on_round=lambda record: False, **tables
    ):
        if not resume:
            spec = write_folder(tmp_path / "shards", sizes, test=test, **({"valid": valid} if valid else {}))
            named = [
                entry.model_copy(update={"name": name})
                for entry, name in zip(spec.silos, names, strict=False)
            ]
            spec.model_copy(update={"silos": named or spec.silos}).write(tmp_path / "shards")
        usual = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 4, "device": "cpu"}
        job = tmp_path / "job.toml"
        job.write_text(tomli_w.dumps({**usual, "model": {"name": "mlp", "hidden": [4]}, **tables}))
        train(job, tmp_path / "run", (), resume, Alone(), on_round=on_round, wings_of=wings_of)
        return [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]

    return act


@pytest.mark.parametrize("test", [20, 0])
@pytest.mark.parametrize("jsonl", [True, False])
def test_a_run_that_stopped_at_its_target_is_resumed_to_the_same_end(run, tmp_path, jsonl, test):
    """As after a kill between the last checkpoint and the model."""
    tables = {"evaluate": {"target_accuracy": 0.0001, "stop_at_target": True}, "local": {"lr": 0.1}}
    first = run(test=test, **tables)
    assert len(first) == 1
    assert first[0]["test_accuracy" if test else "silo_accuracy_weighted"] > 0
    model = tmp_path / "run" / "model.safetensors"
    before = model.read_bytes()
    model.unlink()
    if not jsonl:
        (tmp_path / "run" / "metrics.jsonl").unlink()
    assert len(run(resume=True, **tables)) == jsonl
    assert model.read_bytes() == before


@pytest.mark.parametrize("marked", [True, False])
def test_a_control_that_weighed_silos_otherwise_is_asked_for_anew_at_a_resume(tmp_path, marked):
    """Before that was noted, controls weighed all silos alike,
    as one does of a run with weights = "uniform"."""
    write_folder(tmp_path / "shards", SIZES, valid=5)
    tables = {"algorithm": {"name": "scaffold"}, "checkpoint": {"every": 1}, "local": {"lr": 0.1}}
    tables |= {
        "name": "toy",
        "shards": str(tmp_path / "shards"),
        "model": {"name": "logreg"},
        "device": "cpu",
    }
    job, out = tmp_path / "job.toml", tmp_path / "run"

    def act(rounds, weights, resume=False):
        job.write_text(tomli_w.dumps({**tables, "rounds": rounds, "cohort": {"weights": weights}}))
        train(job, out, (), resume, Alone(), force=True, wings_of=wings_of)
        state, silos = checkpoint.read(out, rounds)
        own = [checkpoint.read_state(checkpoint.silo_file(out, rounds, k), silos[k])["c"] for k in range(4)]
        return state, own

    state, own = act(2, "uniform")
    assert torch.allclose(state["c"], sum(own) / 4, rtol=0, atol=1e-6)
    if not marked:
        assert state.pop("weight") == 4
        silos = checkpoint.read(out, 2)[1]
        checkpoint.commit(out, 2, serialization.write_state(checkpoint.server_file(out, 2), state), silos)
    state, own = act(3, "examples", resume=True)
    weighed = sum(n * c for n, c in zip(SIZES, own, strict=True)) / 20
    assert torch.allclose(state["c"], weighed, rtol=0, atol=1e-6)
    assert not torch.allclose(weighed, sum(own) / 4, rtol=0, atol=1e-2)


def test_what_keeps_silos_from_being_evaluated_is_told_once(run, capsys):
    run(algorithm={"name": "unit.training.test_train:Unscored"})
    said = capsys.readouterr().err
    assert said.count("not evaluated at the silos: all 3 silos failed alike: ") == 1
    assert said.count("Traceback") == 1


def test_faults_are_of_silos_that_a_round_went_on_without(run, capsys, monkeypatch):
    monkeypatch.setenv("TROUBLE", "once")
    records = run(algorithm={"name": "unit.training.test_train:Troubled"}, cohort={"quorum": 0.5})
    assert [record["faults"].keys() for record in records] == [set(), {"1"}, set(), set()]
    assert capsys.readouterr().err.count("silo 2 not evaluated: RuntimeError: no scoring here") == 1
    assert not any("attempts_lost" in record for record in records)


def test_whom_a_lost_attempt_missed_is_no_fault_of_the_round(run, monkeypatch):
    monkeypatch.setenv("TROUBLE", "once")
    quorum = {"quorum": 1.0}
    records = run(
        algorithm={"name": "unit.training.test_train:Troubled"}, cohort=quorum, evaluate={"silos": False}
    )
    assert [record["faults"] for record in records] == [{}] * 4
    assert ["attempts_lost" in record for record in records] == [False, True, False, False]
    assert "silo 1: RuntimeError: not yet" in records[1]["attempts_lost"][0]


def test_losses_that_are_reported_are_of_the_algorithms_objective(run, tmp_path):
    plain = run(local={"lr": 0.1, "epochs": 1, "batch_size": 5})
    shutil.rmtree(tmp_path / "run")
    doubled = run(
        algorithm={"name": "unit.training.test_train:Doubled"},
        local={"lr": 0.05, "epochs": 1, "batch_size": 5},
    )
    assert [r["test_accuracy"] for r in plain] == [r["test_accuracy"] for r in doubled]
    for name in ("train_loss", "test_loss", "silo_loss_mean", "silo_loss_worst"):
        assert [r[name] for r in doubled] == pytest.approx([2 * r[name] for r in plain], rel=1e-5), name


def test_a_mistake_of_all_silos_ends_the_run_at_once_with_one_traceback(run, capsys):
    asked = importlib.import_module("unit.training.test_train").Mistaken.asked
    with pytest.raises(RoundLost) as lost:
        run(algorithm={"name": "unit.training.test_train:Mistaken"}, checkpoint={"every": 10})
    assert asked == [0, 1, 2, 0, 1, 2]
    why = "round 2 was lost: all 3 silos failed alike: silo 0: KeyError: 'no such layer' (test_train.py:"
    assert str(lost.value).startswith(why)
    assert str(lost.value).endswith(
        "; a checkpoint is written: correct it, then continue with --resume"
        " (and --force, if the job or code of your own has changed)"
    )
    said = capsys.readouterr().err
    assert said.count("Traceback") == 1
    assert said.count("no such layer") == 2  # in its own traceback
    assert "was lost" not in said  # the command's last line says it


def test_a_round_that_returns_nothing_is_told_what_to_return(run):
    with pytest.raises(InputError, match=r"^Careless\.round returned None; have it return .*mean\.scalars"):
        run(algorithm={"name": "unit.training.test_train:Careless"})


class Uneven(FedAvg):
    """Silo k is said to have held out as many examples as it trains on, and to have an accuracy of k / 2."""

    def weight(self, work, examples, usual):
        return float(examples["train"])

    def evaluate(self, silo, **model):
        return silo.update(silo_accuracy=silo.id / 2, silo_loss=1.0)


@pytest.mark.parametrize(("target", "rounds"), [(0.6, 1), (0.7, 4)])
def test_without_a_test_set_the_target_is_for_the_mean_over_all_examples_held_out(
    run, capsys, target, rounds
):
    stop = {"target_accuracy": target, "stop_at_target": True}
    records = run(
        test=0, sizes=(2, 4, 6), evaluate=stop, algorithm={"name": "unit.training.test_train:Uneven"}
    )
    assert [record["silo_accuracy_weighted"] for record in records] == [
        pytest.approx((2 * 0.5 + 3 * 1.0) / 6)
    ] * rounds
    said = (
        "[evaluate] target_accuracy: is for the accuracy on all that the silos hold out, "
        "as there is no test set\n"
    )
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"test": 0, "valid": 0}, "there is no test set, and silos hold out no data"),
        ({"test": 0, "silos": False}, "there is no test set, and [evaluate] silos = false"),
        ({"test": 20}, ""),
    ],
    ids=str,
)
def test_a_target_that_nothing_is_held_against_is_told(run, capsys, given, why):
    evaluate = {"target_accuracy": 0.99, "silos": given.pop("silos", True)}
    run(evaluate=evaluate, **given)
    said = [line for line in capsys.readouterr().err.splitlines() if "target_accuracy" in line]
    assert said == ([f"[evaluate] target_accuracy: {why}"] if why else [])


@pytest.mark.parametrize("given", [{"test": 0}, {"algorithm": {"name": "fedper", "personal": ["*bias"]}}])
def test_a_test_set_that_the_workers_cannot_score_is_told(run, capsys, given):
    run(evaluate={"where": "workers"}, **{"test": 20, **given})
    assert (
        "[evaluate] where = 'workers': the server has no test set that it could judge"
        in capsys.readouterr().err
    )


def test_workers_score_the_test_set_as_the_server_does(run, tmp_path, capsys):
    figures = []
    for at in ("server", "workers"):
        records = run(evaluate={"where": at, "batch_size": 7}, test=20)
        figures.append([(record["test_loss"], record["test_accuracy"]) for record in records])
        shutil.rmtree(tmp_path / "run")
    assert figures[0] == figures[1]
    assert "the server scores what" not in capsys.readouterr().err


SCORED = {
    "model": {"name": "unit.training.test_best:normed"},
    "local": {"lr": 0.2, "batch_size": 5},
    "rounds": 6,
}
BEHIND = {
    **SCORED,
    "evaluate": {"batch_size": 7, "behind": True, "keep_best": True},
    "checkpoint": {"every": 4},
}


class Counting(FedAvg):
    """Counts the rounds that silo 0 has trained."""

    trained: ClassVar[list[int]] = []

    def train(self, silo, w):
        self.trained.extend([silo.round] * (silo.id == 0))
        return super().train(silo, w)


def scorers():
    """Return the processes that score behind a round of a training of this process."""
    text = f"/proc/self/task/{os.getpid()}/children"
    children = [Path("/proc", child) for child in Path(text).read_text().split()]
    return [int(one.name) for one in children if b"scorer.py" in (one / "cmdline").read_bytes()]


@pytest.fixture
def at_once(run, tmp_path):
    """Return the records and the model of rounds that are scored at once."""
    found = run(evaluate={"batch_size": 7, "keep_best": True}, **SCORED)
    model = (tmp_path / "run" / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "run")
    return [{**one, "model_round": 0, "answers": {}} for one in found], model


def figures_of(records):
    """Return what must be the same bits in the records of two runs."""
    names = ("round", "train_loss", "test_loss", "test_accuracy", "best_round", "evaluations_since_best")
    return [[one[name] for name in (*names, "silos")] for one in records]


def test_scored_behind_a_round_is_told_a_round_later_and_the_same_bits(run, tmp_path, capsys, at_once):
    """The process is killed amid it, and the server scores the rest."""
    trained = importlib.import_module("unit.training.test_train").Counting.trained
    trained.clear()
    heard = []

    def hear(record):
        heard.append((record["round"], len(trained)))
        if record["round"] == 2:
            (process,) = scorers()
            os.kill(process, signal.SIGKILL)
        return False

    found = run(on_round=hear, algorithm={"name": "unit.training.test_train:Counting"}, **BEHIND)
    assert figures_of(found) == figures_of(at_once[0])
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == at_once[1]
    assert heard == [(1, 2), (2, 3), (3, 4), (4, 4), (5, 6), (6, 6)]
    assert capsys.readouterr().err.count("so the server does: it has died") == 1


def test_scored_behind_the_round_the_end_is_a_round_later(run, tmp_path, capsys, at_once):
    records, _ = at_once
    target = records[0]["test_accuracy"]
    first = next(one["round"] for one in records if one["test_accuracy"] >= target)
    evaluate = {**BEHIND["evaluate"], "target_accuracy": target, "stop_at_target": True}
    found = run(**{**BEHIND, "evaluate": evaluate})
    assert figures_of(found) == figures_of(records[: first + 1])
    assert scorers() == []
    said = capsys.readouterr().err
    assert f"stopped early, after round {first + 1} of 6: the target" in said
    assert "so the server does" not in said


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"evaluate": {"behind": True, "where": "workers"}}, "behind: where = 'workers' takes the ranks"),
        ({"evaluate": {"behind": True, "split": "valid"}}, "behind: with split the test set is scored once"),
        ({"test": 0}, "the server has no test set that it could judge the model by; leave it out"),
        (
            {"algorithm": {"name": "fedper", "personal": ["*bias"]}},
            "the server has no test set that it could",
        ),
        ({"algorithm": {"name": "ifca", "clusters": 2}}, "'ifca' has a way of its own to score a model"),
    ],
    ids=str,
)
def test_what_cannot_be_scored_behind_a_round_is_refused(run, given, why):
    with pytest.raises(InputError, match=re.escape(why)):
        run(**{"evaluate": {"behind": True}, **given})


def test_where_silos_own_a_part_of_the_model_the_target_is_for_what_they_hold_out(run, capsys):
    own = {"name": "fedper", "personal": ["*bias"]}
    records = run(evaluate={"target_accuracy": 0.01, "stop_at_target": True}, algorithm=own)
    assert len(records) == 1
    assert "as silos own a part of the model" in capsys.readouterr().err


NAMES = ("cleveland", "long beach", "silo 2")


def test_silos_are_told_by_their_names(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TROUBLE", "once")
    run(algorithm={"name": "unit.training.test_train:Troubled"}, cohort={"quorum": 0.5}, names=NAMES)
    said = capsys.readouterr().err
    assert "silo 'long beach' failed:\nTraceback" in said
    assert "round 2: without silo 'long beach': RuntimeError: not yet" in said
    assert "silo 2 not evaluated" in said
    about = read_environment(tmp_path / "run")
    assert about["silos"] == ["cleveland", "long beach", "silo 2"]
    assert about["metrics"] == [about["metric"]] == [ACCURACY.model_dump()]
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RoundLost, match="silos failed alike: silo cleveland: KeyError"):
        run(algorithm={"name": "unit.training.test_train:Mistaken"}, names=NAMES)


def test_a_round_tells_each_silos_gamma_by_its_name(run, tmp_path):
    records = run(algorithm={"name": "fedprox", "measure_gamma": True}, names=NAMES, sizes=(10, 20, 10))
    for record in records:
        each = record["gamma_silos"]
        assert list(each) == ["cleveland", "'long beach'", "2"]
        assert record["gamma"] == pytest.approx(np.average([*each.values()], weights=[1, 2, 1]))
    assert len({gamma for record in records for gamma in record["gamma_silos"].values()}) == 12
    page = write_report(tmp_path / "run").read_text()
    assert "Last values of each silo (3)" in page
    assert f"{records[-1]['gamma_silos']['cleveland']:.4g}" in page
    shutil.rmtree(tmp_path / "run")
    assert "gamma_silos" not in run(algorithm={"name": "fedprox"})[0]


def test_a_lost_round_names_its_silos(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TROUBLE", "once")
    run(algorithm={"name": "unit.training.test_train:Troubled"}, names=NAMES)
    assert (
        "round 2 was lost: 2 of 3 silos answered (silo 'long beach': RuntimeError" in capsys.readouterr().err
    )


def test_silos_without_names_have_none_in_the_run_folder(run, tmp_path):
    run()
    assert "silos" not in read_environment(tmp_path / "run")
