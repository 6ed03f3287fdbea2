"""How wings join a training, and what becomes of a job that asks for one that is not there."""

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys

import pytest
import tomli_w
from conftest import ROOT
from unit.builders import Alone, write_folder, write_vertical_folder

from mpifl.common.errors import InputError
from mpifl.run.job import check_job
from mpifl.run.job.tables import BY_WEIGHTS, OF_RULES
from mpifl.training import build, core_alone
from mpifl.training.beforehand import validate_job
from mpifl.training.wing import Wing
from mpifl.wings import registry, wings_of
from mpifl.wings.robust import WEIGHT_RULES

ASKED = {
    "site": ({}, "MPIFL_SITE"),
    "dpsgd": ({"privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.01}}, r"\[privacy\]"),
    "fast": ({"local": {"lr": 0.1, "compile": True}}, r"\[local\] compile or batched"),
    "compression": ({"compression": {"up": "qsgd"}}, r"\[compression\]"),
    "scoring": ({"evaluate": {"at": "workers"}}, r"\[evaluate\] at = 'workers'"),
    "masked": ({"security": {}}, r"\[security\]"),
    "robust": ({"aggregation": {"rule": "median"}}, r"\[aggregation\] rule = 'median'"),
    "attacks": (
        {"attack": {"kind": "sign_flip", "silos": [0]}},
        r"\[attack\] kind = 'sign_flip'",
    ),
    "split": ({"algorithm": {"name": "splitnn"}, "vertical": {"cut": 2}}, r"\[vertical\]"),
}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return how to make a job over three silos with further tables."""
    write_folder(tmp_path / "shards", [8, 8, 8])
    write_vertical_folder(tmp_path / "columns", {"train": 8})
    monkeypatch.delenv("MPIFL_SITE", raising=False)

    def made(wing="", **tables):
        if wing == "site":
            monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
        folder = "columns" if wing == "split" else "shards"
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
    if name == "split":  # its algorithm is missed first
        line = r"\[algorithm\] name = 'splitnn': none such; take fedsgd, "
    with pytest.raises(InputError, match=line):
        wings_of(job(name, **tables))


def test_an_error_of_a_wing_itself_is_no_missing_wing(job, monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'numpi'", name="numpi")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="numpi"):
        wings_of(job(**ASKED["compression"][0]))


def test_the_table_says_of_rules_by_weights_what_the_rules_say_of_themselves():
    def keys(kind):
        return {field.name for field in dataclasses.fields(kind)} & {*OF_RULES}

    said = {name: ({*one.keys}, one.tolerates, one.chooses) for name, one in BY_WEIGHTS.items()}
    assert said == {name: (keys(kind), kind.tolerates, kind.chooses) for name, kind in WEIGHT_RULES.items()}


DELETABLE = sorted({*registry.WINGS, "privacy"})
"""Folders without which the core trains."""


def test_without_the_folders_of_wings_a_plain_job_trains_and_one_that_asks_for_a_wing_is_refused(
    job, tmp_path
):
    ignored = shutil.ignore_patterns("__pycache__", *DELETABLE)
    shutil.copytree(ROOT / "mpifl" / "wings", tmp_path / "copy" / "mpifl" / "wings", ignore=ignored)
    others = shutil.ignore_patterns("__pycache__", "wings")
    shutil.copytree(ROOT / "mpifl", tmp_path / "copy" / "mpifl", ignore=others, dirs_exist_ok=True)
    (tmp_path / "copy" / "jobs").symlink_to(ROOT / "jobs")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "copy")}
    assert not {path.name for path in (tmp_path / "copy" / "mpifl" / "wings").iterdir()} & {*DELETABLE}

    def trained(run, **tables):
        file = tmp_path / "job.toml"
        file.write_text(tomli_w.dumps(job(**tables, device="cpu").model_dump(exclude_none=True)))
        words = [sys.executable, "-m", "mpifl", "train", str(file), "--out", str(tmp_path / run)]
        said = {"capture_output": True, "text": True, "timeout": 90, "check": False}
        return subprocess.run(words, cwd=tmp_path, env=environment, **said)

    plain, asking = trained("plain"), trained("asking", **ASKED["attacks"][0])
    assert plain.returncode == 0, plain.stderr
    assert (tmp_path / "plain" / "model.safetensors").exists()
    assert asking.returncode == 2
    line = asking.stderr.strip().splitlines()[-1]
    assert line.endswith(": is the work of the wing 'attacks', which is not here")
