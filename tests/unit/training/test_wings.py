"""How wings join a training, and what becomes of a job that asks for one that is not there."""

import dataclasses
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from conftest import ROOT
from unit.builders import Alone, write_folder, write_vertical_folder

from mpifl.common.errors import InputError
from mpifl.data.shards import read_federation
from mpifl.report.runs.silo_data import OF_GROUPS
from mpifl.run.job import check_job
from mpifl.run.job.tables import BY_COLUMNS, BY_WEIGHTS, OF_RULES
from mpifl.training import build, core_alone
from mpifl.training.beforehand import validate_job
from mpifl.training.loop import train
from mpifl.training.wing import Wing
from mpifl.wings import registry, wings_of
from mpifl.wings.analysis import Newton, wing
from mpifl.wings.robust import WEIGHT_RULES
from mpifl.wings.robust.column_rules import COLUMN_RULES
from mpifl.wire import Compute, KeepTestSet, Replicate

ASKED = {
    "site": ({}, "MPIFL_SITE"),
    "dpsgd": ({"privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.01}}, r"\[privacy\]"),
    "fast": ({"local": {"lr": 0.1, "compile": True}}, r"\[local\] compile or batch_silos"),
    "compression": ({"compression": {"upload": "qsgd"}}, r"\[compression\]"),
    "scoring": ({"evaluate": {"behind": True}}, r"\[evaluate\] behind = true"),
    "masked": ({"security": {}}, r"\[security\]"),
    "robust": ({"aggregation": {"rule": "median"}}, r"\[aggregation\] rule = 'median'"),
    "attacks": (
        {"attack": {"kind": "sign_flip", "silos": [0]}},
        r"\[attack\] kind = 'sign_flip'",
    ),
    "split": ({"algorithm": {"name": "splitnn"}, "split": {"cut_width": 2}}, r"\[split\]"),
    "analysis": (
        {"model": {"name": "logreg"}, "task": {"name": "binary"}, "algorithm": {"name": "newton"}},
        r"\[algorithm\] name = 'newton'",
    ),
    "sites": ({"cohort": {"late": "next", "deadline": 9.0}}, r"\[cohort\] late = 'next'"),
}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return how to make a job over three silos with further tables."""
    write_folder(tmp_path / "shards", [8, 8, 8])
    write_folder(tmp_path / "yes or no", [8, 8, 8], classes=2)
    write_vertical_folder(tmp_path / "columns", {"train": 8})
    monkeypatch.delenv("MPIFL_SITE", raising=False)

    def made(wing="", **tables):
        if wing == "site":
            monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
        folder = {"split": "columns", "analysis": "yes or no"}.get(wing, "shards")
        plain = {"name": "toy", "shards": str(tmp_path / folder), "rounds": 1, "model": {"name": "logreg"}}
        return check_job({**plain, "local": {"lr": 0.1}, **tables}, "the job")

    return made


def test_every_wing_of_the_registry_is_asked_for_by_a_job_here():
    assert [*ASKED] == [*registry.WINGS]


def test_a_plain_job_has_the_wing_that_takes_its_steps_alone(job):
    assert [one.name for one in wings_of(job())] == [registry.ALWAYS]
    assert list(core_alone(job())) == []


@pytest.mark.parametrize("name", registry.WINGS)
def test_a_wing_is_made_for_the_job_that_asks_for_it(job, name):
    (made,) = (one for one in wings_of(job(name, **ASKED[name][0])) if one.name == name)
    assert isinstance(made, Wing)
    assert type(made).__module__.startswith(f"mpifl.wings.{name}.")


@pytest.mark.parametrize("name", registry.WINGS)
def test_the_core_alone_refuses_a_job_that_asks_for_a_wing(job, name, tmp_path):
    tables, key = ASKED[name]
    line = rf"the job: {key}: is the work of the wing '{name}', which is not here$"
    with pytest.raises(InputError, match=line):
        validate_job(job(name, **tables), "the job")
    with pytest.raises(InputError, match=line):
        build.build(job(name, **tables), tmp_path / "run", (), False, Alone())


@pytest.mark.parametrize("name", registry.WINGS)
def test_a_wing_whose_folder_is_not_there_is_said_in_the_same_line(job, name, monkeypatch):
    tables, key = ASKED[name]
    monkeypatch.setitem(sys.modules, f"mpifl.wings.{name}", None)
    line = rf"^{key}: is the work of the wing '{name}', which is not here$"
    if algorithm := {"split": "splitnn", "analysis": "newton"}.get(name):  # which is missed first
        line = rf"\[algorithm\] name = '{algorithm}': unknown; use fedsgd, "
    with pytest.raises(InputError, match=line):
        wings_of(job(name, **tables))


def test_an_error_of_a_wing_itself_is_no_missing_wing(job, monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'numpi'", name="numpi")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="numpi"):
        wings_of(job(**ASKED["compression"][0]))


def test_a_fit_to_several_rows_of_a_group_says_that_they_count_as_independent(job, tmp_path):
    made = job(**ASKED["analysis"][0])
    fit, spec = wing(made), read_federation(tmp_path / "yes or no")
    for many, said in ((8, []), (4, [f"errors, p and {OF_GROUPS}"])):
        silos = [one.model_copy(update={"groups": {"train": many}}) for one in spec.silos]
        fit.check(spec.model_copy(update={"silos": silos}), Newton())
        assert fit.notes_of_job(1, None) == said


def wings(*given):
    """Return how to make wings, each of which gives what it is given here by the names of methods."""

    def made(job):
        for nth, methods in enumerate(given):
            says = {name: lambda self, *asked, said=said: said for name, said in methods.items()}
            one = type("Own", (Wing,), says)(job)
            one.name = f"own{nth}"
            yield one

    return lambda job: list(made(job))


def record_of(run):
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])


def trained(job, run, *given):
    train(job(), run, (), False, Alone(), wings_of=wings(*given))
    return record_of(run)


def test_what_wings_tell_stands_in_the_run_folder(job, tmp_path):
    record = trained(job, tmp_path / "run", {"spent": {"coins": 3}, "environment": {"mint": "here"}})
    about = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert record["coins"] == 3
    assert about["mint"] == "here"


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ([{"about": {"device": "mine"}}], "what a rank says of its 'device'"),
        ([{"aggregators": {Compute: None}}], "the answer to 'Compute'"),
        ([{"aggregators": {Replicate: None}}], "the answer to 'Replicate'"),
        ([{"spent": {"wire_sent": 1}}], "the figure 'wire_sent'"),
        ([{"spent": {"round": 77}}], "the figure 'round'"),
        ([{"environment": {"mpi": "mine"}}], "of the run's environment 'mpi'"),
        ([{"environment": {"metric": "mine"}}], "of the run's environment 'metric'"),
        ([{"environment": {"versions": {}}}], "of the run's environment 'versions'"),
    ],
)
def test_a_wing_that_tells_what_the_core_tells_is_refused(job, tmp_path, given, key):
    with pytest.raises(InputError, match=rf"the wing 'own0' tells {re.escape(key)}, which is told already$"):
        trained(job, tmp_path / "run", *given)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("about", {"mine": "a"}),
        ("aggregators", {KeepTestSet: None}),
        ("alignments", {0: "a" * 64}),
        ("spent", {"mine": 1}),
        ("environment", {"mine": 1}),
    ],
)
def test_a_key_that_two_wings_tell_is_refused(job, tmp_path, method, said):
    with pytest.raises(InputError, match=r"the wing 'own1' tells .* which is told already$"):
        trained(job, tmp_path / "run", {method: said}, {method: said})


@pytest.mark.parametrize("figure", ["round", "faults", "test_loss", "test_accuracy"])
def test_a_figure_of_a_model_that_is_told_already_is_refused(job, tmp_path, figure):
    write_folder(tmp_path / "shards", [8, 8, 8], test=8)
    assert trained(job, tmp_path / "fine", {"figures": {"norm": 2.0}})["norm"] == 2.0
    with pytest.raises(InputError, match=f"the wing 'own0' tells the figure '{figure}', which is told"):
        trained(job, tmp_path / "run", {"figures": {figure: 1.0}})


@pytest.mark.parametrize("method", ["assembled", "coins"])
def test_what_one_wing_alone_may_give_is_refused_of_two(job, tmp_path, method):
    said = {method: (None, None)}
    with pytest.raises(InputError, match=r"the wings 'own0' and 'own1' both give .*; ask for one of them$"):
        trained(job, tmp_path / "run", said, said)


def test_a_wing_that_a_job_asks_for_and_the_registry_does_not_list_is_refused(job, monkeypatch):
    monkeypatch.setattr(registry, "WINGS", tuple(name for name in registry.WINGS if name != "compression"))
    with pytest.raises(InputError, match=r"^\[compression\]: is the work of the wing 'compression', which"):
        wings_of(job(**ASKED["compression"][0]))


@pytest.mark.parametrize("lacks", ["rank 0", "rank 1"])
def test_a_rank_with_other_wings_than_rank_0_is_refused(job, tmp_path, lacks):
    full, none = wings({"told": "something"}), wings()
    plan = build._plan(job(), tmp_path / "run", (), False, False, none if lacks == "rank 0" else full)
    mine = (full if lacks == "rank 0" else none)(job())
    with pytest.raises(InputError, match=f"^the wing 'own0' takes part at rank . and not at {lacks}; start"):
        build._told(plan, mine, 1)


def test_an_alignment_that_cannot_be_read_is_a_problem_of_its_rank(job, tmp_path):
    def unread(self, spec, transport):
        raise InputError("the file is gone")

    one = type("Own", (Wing,), {"alignments": unread, "name": "own"})(job())
    made = job()
    plan = build.plan_of(made, read_federation(Path(made.shards)), tmp_path / "run", [one])
    prepared = build._prepared(made, lambda: plan, Alone(), lambda job: [one])
    assert prepared.problem.endswith("the file is gone")


def test_the_table_says_of_rules_what_the_rules_say_of_themselves():
    takes = {name: "byzantine" in inspect.signature(one).parameters for name, one in COLUMN_RULES.items()}
    assert takes == {name: one.tolerates for name, one in BY_COLUMNS.items()}

    def keys(kind):
        return {field.name for field in dataclasses.fields(kind)} & {*OF_RULES}

    said = {name: ({*one.keys}, one.tolerates, one.chooses) for name, one in BY_WEIGHTS.items()}
    assert said == {name: (keys(kind), kind.tolerates, kind.chooses) for name, kind in WEIGHT_RULES.items()}


DELETABLE = sorted({*registry.WINGS, "privacy"})
"""Folders without which the core trains."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package that has no wing; the first command compiles it for all."""
    folder, ignored = tmp_path_factory.mktemp("copy"), shutil.ignore_patterns("__pycache__", *DELETABLE)
    shutil.copytree(ROOT / "mpifl" / "wings", folder / "mpifl" / "wings", ignore=ignored)
    others = shutil.ignore_patterns("__pycache__", "wings")
    shutil.copytree(ROOT / "mpifl", folder / "mpifl", ignore=others, dirs_exist_ok=True)
    (folder / "jobs").symlink_to(ROOT / "jobs")
    assert not {path.name for path in (folder / "mpifl" / "wings").iterdir()} & {*DELETABLE}
    return folder


@pytest.fixture
def bare(job, tmp_path, copy):
    """Return how to run a command of a copy that has no wing, on the job file `job.toml`."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}

    def said(*words, **tables):
        told = job(**tables, device="cpu").model_dump(exclude_none=True)
        (tmp_path / "job.toml").write_text(tomli_w.dumps(told))
        how = {"capture_output": True, "text": True, "timeout": 180, "check": False}
        return subprocess.run([sys.executable, "-m", "mpifl", *words], cwd=tmp_path, env=environment, **how)

    return said


def test_without_the_folders_of_wings_a_plain_job_trains_and_one_that_asks_for_a_wing_is_refused(
    bare, tmp_path
):
    plain = bare("train", "job.toml", "--out", "plain")
    asking = bare("train", "job.toml", "--out", "asking", **ASKED["attacks"][0])
    assert plain.returncode == 0, plain.stderr
    assert (tmp_path / "plain" / "model.safetensors").exists()
    assert asking.returncode == 2
    line = asking.stderr.strip().splitlines()[-1]
    assert line.endswith(": is the work of the wing 'attacks', which is not here")


@pytest.mark.parametrize(
    ("words", "wing"),
    [
        ("doctor job.toml", "masked"),
        ("privacy job.toml", "dpsgd"),
        ("identity show", "site"),
    ],
)
def test_a_command_that_is_the_work_of_a_wing_says_so_in_a_line_where_it_is_not_there(bare, words, wing):
    done = bare(*words.split())
    assert done.returncode == 2
    assert done.stderr == f"error: the wing '{wing}' is not here, and this command needs it\n"


def test_what_is_not_of_wings_is_listed_without_them(bare):
    done = bare("list", "algorithms")
    assert done.returncode == 0
    assert "fedavg" in done.stdout
