"""Trainings with [privacy]: what they cost, when they end, what they refuse."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np
import pytest
import tomli_w
from pages import Reader
from typer.testing import CliRunner
from unit.builders import Alone, write_folder

from mpifl import FedAvg
from mpifl.cli.commands import app
from mpifl.common import InputError
from mpifl.data.shards import group_note, read_federation, write_groups
from mpifl.report.pages import write_report
from mpifl.report.runs import compare_runs, read_run
from mpifl.run.folder import round_of
from mpifl.run.job import check_job, read_job
from mpifl.training.beforehand.run_checks import plan_wings, validate_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.dpsgd import privacy_plan
from mpifl.wings.dpsgd.privacy_plan import digest_of
from mpifl.wings.privacy import SiteFolder, Steps, epsilon_of

SIZES = [20, 30]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Train a small job serially; tables replace the usual ones. Full batches need no dp-accounting."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    write_folder(tmp_path / "shards", SIZES, test=20)

    def act(name="toy", out=None, resume=False, overrides=(), **tables):
        path = tmp_path / f"{name}.toml"
        path.write_text(tomli_w.dumps(job_of(tmp_path, name, **tables)))
        run = tmp_path / (out or name)
        train(path, run, tuple(overrides), resume, Alone(), wings_of=wings_of)
        return run

    act.site = tmp_path / "site"
    return act


def job_of(folder: Path, name="toy", **tables):
    usual = {
        "rounds": 4,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [5]},
        "local": {"lr": 0.5, "batch_size": "full", "steps": 2},
        "privacy": {"clip": 1.0, "noise": 5.0, "delta": 0.01},
    }
    given = {**usual, **tables}
    given = {key: value for key, value in given.items() if value is not None}
    return {"name": name, "shards": str(folder / "shards"), **given}


def records(run: Path):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def same(one: Path, other: Path):
    return (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_each_silo_may_have_noise_of_its_own(start):
    noise = {"0": 5.0, "1": 9.0}
    last = records(start(privacy={"clip": 1.0, "noise_of": noise, "delta": 0.01}))[-1]
    expected = {name: epsilon_of([Steps(z, 1.0, 8)], 0.01, "pld") for name, z in noise.items()}
    assert last["epsilon_silos"] == pytest.approx(expected)
    assert last["noise_std"] == pytest.approx(max(5.0 / SIZES[0], 9.0 / SIZES[1]))


def test_a_round_says_what_it_cost_and_no_loss(start):
    found = records(start())
    for nth, record in enumerate(found, 1):
        expected = epsilon_of([Steps(5.0, 1.0, 2 * nth)], 0.01)
        assert record["epsilon"] == pytest.approx(expected)
        assert record["epsilon_silos"] == {"0": record["epsilon"], "1": record["epsilon"]}
        assert record["noise_std"] == pytest.approx(5.0 / 20)
        assert not {"train_loss", "clipped_examples", "private_steps", "budget_left"} & record.keys()
    assert "test_accuracy" in found[-1]


def test_the_same_job_again_costs_nothing_and_another_seed_does(start):
    first, again, other = start("a"), start("a", out="b"), start("a", out="c", seed=1)
    assert same(first, again)
    assert not same(first, other)
    assert len(SiteFolder(start.site).entries()) == 2 * 4 * 2


@pytest.mark.parametrize("stopped", [1, 3])
def test_a_run_that_goes_on_has_the_bits_and_the_cost_of_one_never_stopped(start, stopped):
    """After the checkpoint of round 2 or of none rounds are asked again."""
    start("whole", out="half", checkpoint={"every": 2}, overrides=[f"rounds={stopped}"])
    entries = len(SiteFolder(start.site).entries())
    for name in ("model.safetensors", *(f"checkpoints/round_{stopped:06d}/checkpoint.json",)):
        (start.site.parent / "half" / name).unlink(missing_ok=True)
    start("whole", out="half", checkpoint={"every": 2}, resume=True)
    whole = start("whole", checkpoint={"every": 2})
    assert entries == stopped * 2
    assert len(SiteFolder(start.site).entries()) == 4 * 2
    assert same(start.site.parent / "half", whole)
    costs = [{k: r[k] for k in ("epsilon", "epsilon_silos")} for r in records(whole)]
    assert [
        {k: r[k] for k in ("epsilon", "epsilon_silos")} for r in records(start.site.parent / "half")
    ] == costs


class Forgetful(FedAvg):
    """A silo fails once in round 2, after it has trained."""

    failed: ClassVar[list[int]] = []

    def train(self, silo, w):
        update = super().train(silo, w)
        if (silo.id, silo.round) == (1, 1) and not self.failed:
            self.failed.append(silo.id)
            raise OSError("the disk is gone")
        return update


def test_a_lost_round_is_asked_again_and_costs_nothing(start):
    failed = importlib.import_module("unit.training.test_accounting").Forgetful.failed  # as the job names it
    failed[:] = [0]
    own = {"name": "unit.training.test_accounting:Forgetful"}
    untroubled = start("own", out="untroubled", algorithm=own)
    (start.site / "ledger.jsonl").unlink()
    failed.clear()
    lost = start("own", out="lost", algorithm=own)
    assert failed == [1]
    assert "attempts_lost" in records(lost)[1]
    assert same(lost, untroubled)
    assert len(SiteFolder(start.site).entries()) == 4 * 2
    assert records(lost)[-1]["epsilon"] == records(untroubled)[-1]["epsilon"]


class Telltale(FedAvg):
    """A silo's error quotes one of its examples."""

    def train(self, silo, w):
        raise ValueError(f"an age of {silo.examples + 1936.25}")


def test_the_server_is_told_the_kind_of_a_fault_and_the_site_its_words(start, capsys):
    own = {"name": "unit.training.test_accounting:Telltale"}
    with pytest.raises(Exception, match=r"all 2 silos failed alike: silo 0: failed;") as caught:
        start("telltale", algorithm=own)
    assert "19" not in str(caught.value)
    run = start.site.parent / "telltale"
    assert not any(b"1956.25" in file.read_bytes() for file in run.rglob("*") if file.is_file())
    said = capsys.readouterr().err
    assert said.count("silo 0: ValueError: an age of 1956.25 (test_accounting.py:") == 1
    assert "silo 1: ValueError: an age of 1966.25" in said
    with pytest.raises(Exception, match="an age of"):
        start("open", algorithm=own, privacy=None)


def test_a_private_silo_whose_shard_is_broken_is_named(start, capsys):
    (start.site.parent / "shards" / "silo_0001.h5").write_bytes(b"none")
    with pytest.raises(InputError, match=r"^silo 1: a shard that cannot be read; "):
        start("broken")
    assert "silo_0001.h5: " in capsys.readouterr().err


def test_a_budget_takes_the_least_noise_and_ends_where_it_is_spent(start, capsys):
    run = start("budget", privacy={"clip": 1.0, "epsilon": 3.0, "delta": 0.01})
    found = records(run)
    assert len(found) == 4
    assert found[-1]["epsilon"] == pytest.approx(3.0, rel=1e-3)
    assert found[-1]["epsilon"] <= 3.0
    assert [record["budget_left"] for record in found] == [3, 2, 1, 0]
    told = r"^silo 0: privacy budget is spent \(and 1 more silo\); a larger \[privacy\] epsilon, or"
    with pytest.raises(InputError, match=told):
        start("another", seed=5, privacy={"clip": 1.0, "epsilon": 3.0, "delta": 0.01})
    line = r"silo 1: its privacy budget is spent: with epsilon (3|2\.99) in the site's ledger, "
    line += "the job's epsilon 3 at "
    left = r"delta 0.01 has 0(\.\d+|e-\d+)? left, which allows 0 of 2 more steps"
    assert re.search(line + left, capsys.readouterr().err)
    said = CliRunner().invoke(app, ["evaluate", str(run), "--silos", "--split", "train"]).output
    assert "note: the epsilon of the run covers its training, and not the figures of each silo above" in said
    done = CliRunner().invoke(app, ["privacy", str(start.site.parent / "another.toml")])
    assert str(done.exception).startswith("silo 0: its privacy budget is spent: "), "as check refuses it"
    assert str(done.exception).endswith("more steps; a larger privacy.epsilon would allow more")
    (start.site / "budget.toml").write_text("epsilon = 5.0\ndelta = 0.01\n")
    done = CliRunner().invoke(app, ["privacy", str(start.site.parent / "another.toml")])
    assert str(done.exception).endswith(" left, which allows 0 of 2 more steps; "
                                        "privacy.epsilon = 5 would allow 2 of 4 rounds there")  # fmt: skip
    (start.site / "budget.toml").unlink()
    assert not (start.site.parent / "another" / "metrics.jsonl").exists()
    assert len(records(start("again", privacy={"clip": 1.0, "epsilon": 3.0, "delta": 0.01}))) == 4, (
        "for nothing"
    )


MASKS = {"security": {"least": 1}}


@pytest.mark.parametrize("more", [{}, MASKS], ids=["open", "masked"])
def test_a_sites_own_budget_ends_a_run_with_its_model(start, capsys, more):
    start.site.mkdir(mode=0o700)
    budget = epsilon_of([Steps(5.0, 1.0, 5)], 0.001)
    (start.site / "budget.toml").write_text(f"epsilon = {budget}\ndelta = 0.001\n")
    run = start("spent", evaluate={"every": 3}, **more)
    assert ["test_accuracy" in record for record in records(run)] == [False, True], (
        "the run's model is scored"
    )
    assert [record.get("budget_left") for record in records(run)] == [None if more else 1, 0]
    assert (run / "model.safetensors").exists()
    said = capsys.readouterr().err
    line = "silo 0: its privacy budget allows 2 of 4 rounds, by the site's epsilon "
    assert said.count(line) == 1, "one line for a rank"
    assert "; the run ends when a budget does, with its model written" in said
    # noise decides whether accuracy moves
    assert re.search(
        "after round 2 of 4: another round would pass a privacy budget; (round|accuracy never)", said
    )
    spent = [one for entry in SiteFolder(start.site).entries("", "") for one in entry.steps]
    assert len(spent) == 4, "no silo paid for a round that was lost"
    assert epsilon_of(spent[:2], 0.001) <= budget


class Meanwhile(FedAvg):
    """Another run spends a silo's budget before the third round."""

    def train(self, silo, w):
        if silo.round == 2 and silo.id == 1:
            site, other = silo._guard.site, silo._guard.site.entries("", silo._guard.shards[1])[0]
            more = [(noise, rate, 20) for noise, rate, _ in other.taken]
            spent = {"question": "another", "run": "another", "taken": more}
            site.record(lambda: None if site.answered("another") else other.model_copy(update=spent))
        return super().train(silo, w)


@pytest.mark.parametrize("more", [{}, MASKS], ids=["open", "masked"])
def test_a_budget_that_another_run_spends_meanwhile_ends_a_run_with_its_model(start, capsys, more):
    start.site.mkdir(mode=0o700)
    budget = epsilon_of([Steps(5.0, 1.0, 10)], 0.001)
    (start.site / "budget.toml").write_text(f"epsilon = {budget}\ndelta = 0.001\n")
    own = {"name": "unit.training.test_accounting:Meanwhile"}
    run = start("meanwhile", algorithm=own, evaluate={"every": 2, "keep_best": True}, **more)
    assert [record["round"] for record in records(run)] == [1, 2]
    last = records(run)[-1]
    assert last["budget_left"] == 0
    if "model_round" in last:
        assert last["model_round"] == last["best_round"] == round_of(run / "model.safetensors")
        assert round_of(run / "last.safetensors") == 2
    else:  # noise left accuracy as it was: no round is best, and the run's model is the last one
        assert (run / "model.safetensors").exists()
        assert not (run / "last.safetensors").exists()
    assert read_run(run).finished
    why = "round 3 was lost: 1 of 2 silos answered (silo 1: privacy budget is spent)"
    assert f"{why}\nstopped early, after round 2 of 4: another round would pass" in capsys.readouterr().err
    assert len(records(start("meanwhile", resume=True, algorithm=own, **more))) == 2


def test_the_command_says_what_a_sites_budget_leaves_of_a_job(start, capsys, monkeypatch):
    path, out = start.site.parent / "told.toml", start.site.parent / "figures.json"
    path.write_text(tomli_w.dumps(job_of(start.site.parent, "told")))

    def told(*words):
        done = CliRunner().invoke(app, ["privacy", str(path), "--json", str(out), *words])
        return done, json.loads(out.read_text()).get("site")

    done, site = told()
    assert site is None
    assert "there is no such folder yet, so nothing is spent there" in done.output
    assert not start.site.exists()
    start.site.mkdir(mode=0o700)
    _, site = told()
    assert (site["budget"], [one["rounds_left"] for one in site["silos"]]) == (None, [4, 4])
    budget = epsilon_of([Steps(5.0, 1.0, 5)], 0.001)
    (start.site / "budget.toml").write_text(f"epsilon = {budget}\ndelta = 0.001\n")
    done, site = told()
    assert [one["rounds_left"] for one in site["silos"]] == [2, 2]
    assert [one["spent"] for one in site["silos"]] == [0, 0]
    line = "silo 0: its privacy budget allows 2 of 4 rounds, by the site's epsilon "
    assert line in done.output
    capsys.readouterr()
    start("told")
    assert line in capsys.readouterr().err, "the same line at the start"
    done, site = told()
    assert [one["rounds_left"] for one in site["silos"]] == [0, 0]
    assert site["silos"][0]["spent"] == pytest.approx(epsilon_of([Steps(5.0, 1.0, 4)], 0.001))
    assert site["silos"][0]["left"] == pytest.approx(budget - site["silos"][0]["spent"])
    assert line in done.output, "the rounds of this run that are answered at no cost count"
    done, site = told("--set", "seed=3")
    assert (
        "silo 0: its privacy budget is spent: with epsilon 1.04 in the site's ledger, the site's epsilon"
        in str(done.exception)
    )
    assert str(done.exception).endswith(f"; a larger epsilon in {start.site}/budget.toml would allow more")
    done, _ = told("--set", "privacy.evaluate_unprotected=true")
    assert "budget.toml: has no evaluate_unprotected = true" in str(done.exception)
    monkeypatch.delenv("MPIFL_SITE")
    assert told()[1] is None


def check(path: Path):
    job = read_job(path)
    spec = validate_job(job, str(path), wings_of)
    plan_wings(job, spec, str(path), wings_of(job))


def test_a_line_says_that_noise_is_sought_where_that_takes_seconds(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(privacy_plan, "noise_for", lambda *_: 1.0)  # which takes them
    privacy_plan._say_once.cache_clear()
    write_folder(tmp_path / "shards", SIZES)
    path = tmp_path / "job.toml"
    for size, times in {4: 1, "full": 0, 30: 0}.items():
        tables = {"privacy": {"clip": 1.0, "epsilon": 3.0, "delta": 0.01}, "local": {"batch_size": size}}
        path.write_text(tomli_w.dumps(job_of(tmp_path, **tables)))
        for _ in range(2):  # as a start looks first, and then counts
            check(path)
        said = "[privacy] epsilon = 3: the least noise is sought, of 2 sizes of silos; each takes seconds"
        assert capsys.readouterr().err.count(said) == times


def refused(folder: Path, **tables):
    path = folder / "job.toml"
    path.write_text(tomli_w.dumps(job_of(folder, **tables)))
    with pytest.raises(InputError) as caught:
        check(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(path))
    return line


PRIVACY = {"clip": 1.0, "noise": 1.0, "delta": 0.01}
REFUSED = [
    (
        {"privacy": {**PRIVACY, "epsilon": 2.5}},
        "and epsilon = 2.5 are given, and the one follows from the other",
    ),
    ({"privacy": {**PRIVACY, "noise_of": {"a": 2.0}}}, "noise_of, one for each; not both"),
    (
        {"privacy": {"clip": 1.0, "delta": 0.01, "noise_of": {"0": 2.0}}},
        "noise_of: has no noise of silo 1; name each of 0, 1 once",
    ),
    ({"privacy": {"clip": 1.0, "delta": 0.01}}, "needs noise, such as 1.1, or epsilon"),
    ({"privacy": {"noise": 1.0, "delta": 0.01}}, "[privacy] needs the key 'clip'"),
    (
        {"privacy": {}},
        "[privacy] needs clip = 1.0, noise = 1.1 or epsilon = 2.0 and delta = 1e-5, say",
    ),
    ({"privacy": {"epsilon": 1.0}}, "[privacy] needs clip = 1.0 and delta = 1e-5, say"),
    (
        {
            "local": {"deadline": 5.0, "precision": "bf16"},
            "tracking": {"step_losses": 5},
        },
        "(refused, too: [local] precision = 'bf16'; [tracking] step_losses = 5)",
    ),
    (
        {"privacy": {**PRIVACY, "level": "person"}},
        "level = \"person\": should be 'example' or 'silo'",
    ),
    ({"privacy": {**PRIVACY, "delta": 0.04}}, "[privacy] delta = 0.04: the largest silo has 30 examples"),
    ({"algorithm": {"name": "fedsgd"}}, "'fedsgd' takes the gradient of all examples; use fedavg"),
    ({"algorithm": {"name": "fsvrg"}}, "'fsvrg' corrects its steps by gradients of all examples"),
    ({"algorithm": {"name": "qfedavg"}}, "'qfedavg' weighs silos by their losses"),
    ({"algorithm": {"name": "qfedsgd"}}, "'qfedsgd' weighs silos by their losses"),
    ({"algorithm": {"name": "scaffold", "option": "I"}}, "use option = 'II'"),
    ({"algorithm": {"name": "fedprox", "measure_gamma": True}}, "leave measure_gamma out"),
    ({"algorithm": {"name": "fedprox", "adaptive": True}}, "leave adaptive out"),
    ({"local": {"deadline": 5.0}}, "[local] deadline = 5"),
    ({"local": {"compile": True}}, "[local] compile = true"),
    ({"local": {"batch_silos": True}}, "[local] batch_silos = true"),
    ({"local": {"precision": "bf16"}}, "[local] precision = 'bf16'"),
    ({"local": {"accumulate_batches": 2}}, "[local] accumulate_batches = 2"),
    ({"data": {"augment": "flip"}}, "[data] augment = 'flip'"),
    ({"attack": {"kind": "sign_flip", "silos": [0]}}, "[attack] kind = 'sign_flip'"),
    (
        {"cohort": {"select": "power-of-choice", "candidates": 2}},
        "select = 'power-of-choice': goes by losses",
    ),
    ({"task": {"name": "classification", "weights": [1.0, 2.0, 1.0]}}, "divided by the weights"),
    ({"task": {"name": "classification", "ignore": 0}}, "leave ignore out"),
    ({"model": {"name": "unit.training.test_accounting:normed"}}, "BatchNorm1d ('1') mixes examples"),
]


def normed(shape, classes):
    from torch import nn

    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, classes))


@pytest.mark.parametrize(("tables", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_what_no_noise_protects_is_refused_in_a_line(tmp_path, tables, line):
    write_folder(tmp_path / "shards", SIZES)
    assert line in refused(tmp_path, **tables)


@pytest.mark.parametrize(
    ("evaluate", "named"),
    [
        ({}, "[evaluate] silos = true: scores"),
        ({"target_accuracy": 0.9}, "(target may go by it)"),
        ({"patience": 2, "keep_best": True}, "(patience, keep_best may go by it)"),
    ],
)
def test_scoring_at_silos_is_refused_unless_the_job_says_that_it_is_unprotected(tmp_path, evaluate, named):
    write_folder(tmp_path / "shards", SIZES, silos_test=5)
    line = refused(tmp_path, evaluate=evaluate)
    assert named in line
    assert "use false, or set [privacy] evaluate_unprotected = true" in line
    path = tmp_path / "job.toml"
    for allowed in (
        {"evaluate": {"silos": False}},
        {"evaluate": evaluate, "privacy": {**PRIVACY, "evaluate_unprotected": True}},
    ):
        path.write_text(tomli_w.dumps(job_of(tmp_path, **allowed)))
        validate_job(read_job(path), str(path), wings_of)


def test_cox_is_refused():
    from mpifl.learning.tasks import TASKS

    assert "compares each example" in TASKS["survival"]().why_no_mean()
    assert TASKS["multilabel"](weights=[1.0, 2.0]).why_no_mean() == ""
    assert TASKS["classification"]().why_no_mean() == ""


def test_what_is_scored_unprotected_is_reported(start, tmp_path):
    write_folder(tmp_path / "shards", SIZES, silos_test=5)
    found = records(start(privacy={**PRIVACY, "evaluate_unprotected": True}))
    assert "silo_accuracy_mean" in found[-1]
    assert 0 <= found[-1]["clipped_examples"] <= 1
    assert "silos" not in found[-1].get("answers", {}), "only intervals are told of their rows"


ALLOWED = [
    {"name": "fedprox", "mu": 0.1},
    {"name": "scaffold"},
    {"name": "fednova"},
    {"name": "feddyn", "alpha": 0.1},
    {"name": "ditto"},
    {"name": "fedper", "personal": ["head.*"]},
    {"name": "moon"},
]


@pytest.mark.parametrize("algorithm", ALLOWED, ids=[one["name"] for one in ALLOWED])
def test_algorithms_that_only_train_are_as_they_were(start, algorithm):
    found = records(start(algorithm=algorithm, rounds=2, model={"name": "2nn"}))
    assert not found[-1]["faults"]
    trainings = 2 if algorithm["name"] == "ditto" else 1
    assert found[-1]["epsilon"] == pytest.approx(epsilon_of([Steps(5.0, 1.0, 4 * trainings)], 0.01))


@pytest.mark.parametrize(
    ("library", "local", "what"),
    [
        ("dp_accounting", {"batch_size": 4}, "counting steps that draw examples needs dp-accounting"),
        (
            "cryptography.hazmat.primitives.ciphers",
            {"batch_size": "full"},
            "drawing in secret needs cryptography",
        ),
    ],
)
def test_what_is_not_installed_is_said_before_anything_is_trained(start, monkeypatch, library, local, what):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{what}; install it: pip install 'mpifl\[privacy\]'"):
        start(local=local)
    assert not (start.site.parent / "toy").exists()


def test_without_a_site_a_line_says_what_to_set(start, monkeypatch):
    monkeypatch.delenv("MPIFL_SITE")
    with pytest.raises(InputError, match="MPIFL_SITE names no folder"):
        start()


def with_groups(folder: Path, silo: int, numbers) -> None:
    """Give the training examples of a silo their groups, as a table with `group` has them."""
    spec = read_federation(folder)
    path = folder / spec.silos[silo].file
    with h5py.File(path, "a") as file:
        write_groups(file, {"train": np.array(numbers)})
    content = path.read_bytes()
    entry = spec.silos[silo].model_copy(update={
        "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
        "groups": {"train": len(set(numbers))},
    })  # fmt: skip
    silos = [entry if one.silo == silo else one for one in spec.silos]
    spec.model_copy(update={"silos": silos}).write(folder)


def test_what_was_spent_is_seen(start, capsys, monkeypatch):
    """On the terminal, in the table beside the accuracy, and on the run's page, and what it is to a group."""
    shards, path = start.site.parent / "shards", start.site.parent / "seen.toml"
    with_groups(shards, 0, [0, 0, 1, 1] * 5)
    with_groups(shards, 1, [*range(18), *[18] * 12])
    run = start("seen", tracking={"console": "always"})
    expected = epsilon_of([Steps(5.0, 1.0, 8)], 0.01)
    said = capsys.readouterr()
    assert f"epsilon {expected:.3g}" in said.out
    has = "epsilon protects one example; silo 1 has 30 examples of 19 groups"
    told = f"{has}, up to 12 a group: a group's epsilon is up to 12 times as large, and its delta more"
    assert f"[privacy] {told}" in said.out + said.err
    for command in ("privacy", "check"):
        assert told in CliRunner().invoke(app, [command, str(path)]).output
    monkeypatch.delenv("MPIFL_SITE")
    said = CliRunner().invoke(app, ["privacy", str(path)]).stderr
    assert "MPIFL_SITE is not set, so what silos have spent before" in said
    monkeypatch.setenv("MPIFL_SITE", str(start.site))
    shown = Reader(write_report(run).read_text()).text
    assert told[1:] in " ".join(shown)
    assert group_note(Path("elsewhere"), read_federation(shards)).endswith(
        "silo 0 has 20 examples of 2 groups; it protects a group less"
    )
    summary = read_run(run)
    assert summary.figures(None)["epsilon"] == pytest.approx(expected)
    compare_runs([run, start("bare", privacy=None)])
    heading, *rows = [
        line for line in capsys.readouterr().out.splitlines() if "epsilon" in line or "seen" in line
    ]
    assert "epsilon" in heading
    assert f"{expected:.3f}" in rows[0]
    page = write_report(run).read_text()
    shown = Reader(page).text
    assert "Trust" in shown
    assert f"{expected:.4f}" in shown
    assert "Trust" not in Reader(write_report(start.site.parent / "bare").read_text()).text


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_bits_and_the_same_ledger(start):
    """By SIGKILL, at any moment: here as soon as the ledger has some lines."""
    tables = {"rounds": 30, "checkpoint": {"every": 10}, "evaluate": {"every": 30}}
    whole = start("killed", out="whole", **tables)
    ledger = start.site / "ledger.jsonl"
    lines = sorted(ledger.read_text().splitlines())
    ledger.unlink()
    folder = start.site.parent
    code = "import sys, mpifl; mpifl.train(sys.argv[1], out=sys.argv[2])"
    paths = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", code, str(folder / "killed.toml"), str(folder / "cut")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL) as run:
        while run.poll() is None and not (ledger.exists() and len(ledger.read_bytes().splitlines()) > 15):
            time.sleep(0.002)
        run.kill()
    assert 15 < len(ledger.read_text().splitlines()) < 60, "it was killed too late to show anything"
    start("killed", out="cut", resume=True, **tables)
    assert same(folder / "cut", whole)
    assert sorted(ledger.read_text().splitlines()) == lines


def test_a_key_at_its_default_changes_no_digest(tmp_path):
    """Or a key that comes with a later version would draw other noise for the same question."""
    given = {"name": "toy", "shards": "x", "rounds": 2, "model": {"name": "mlp"}}
    privacy = {"clip": 1.0, "noise": 2.0, "delta": 0.01}
    bare = check_job({**given, "privacy": privacy}, "the job")
    said = check_job(
        {**given, "privacy": {**privacy, "noise_at": "silo"}, "seed": 0, "attack": {}}, "the job"
    )
    other = check_job({**given, "privacy": {**privacy, "noise": 3.0}}, "the job")
    assert digest_of(bare) == digest_of(said) != digest_of(other)
    assert digest_of(bare) != digest_of(bare, "more")
