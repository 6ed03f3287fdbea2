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
from unit.builders import Alone, write_folder

from mpifl.common.errors import InputError
from mpifl.run.job import check_job
from mpifl.run.job.tables import BY_WEIGHTS, OF_RULES
from mpifl.training import build, core_alone
from mpifl.training.beforehand import validate_job
from mpifl.training.wing import Wing
from mpifl.wings import registry, wings_of
from mpifl.wings.robust import WEIGHT_RULES

ASKED = {
    "compression": ({"compression": {"up": "qsgd"}}, r"\[compression\]"),
    "robust": ({"aggregation": {"rule": "median"}}, r"\[aggregation\] rule = 'median'"),
    "attacks": (
        {"attack": {"kind": "sign_flip", "silos": [0]}},
        r"\[attack\] kind = 'sign_flip'",
    ),
}


@pytest.fixture
def job(tmp_path):
    """Return how to make a job over three silos with further tables."""
    write_folder(tmp_path / "shards", [8, 8, 8])

    def made(**tables):
        plain = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": {"name": "logreg"}}
        return check_job({**plain, "local": {"lr": 0.1}, **tables}, "the job")

    return made


def test_every_wing_of_the_registry_is_asked_for_by_a_job_here():
    assert [*ASKED] == [*registry.WINGS]


def test_a_plain_job_has_no_wing(job):
    assert list(wings_of(job())) == list(core_alone(job())) == []


@pytest.mark.parametrize("name", registry.WINGS)
def test_a_wing_is_made_for_the_job_that_asks_for_it(job, name):
    (made,) = wings_of(job(**ASKED[name][0]))
    assert isinstance(made, Wing)
    assert type(made).__module__.startswith(f"mpifl.wings.{name}.")


@pytest.mark.parametrize("name", registry.WINGS)
def test_the_core_alone_refuses_a_job_that_asks_for_a_wing(job, name, tmp_path):
    tables, key = ASKED[name]
    line = rf"the job: {key}: is the work of the wing '{name}', which is not here$"
    with pytest.raises(InputError, match=line):
        validate_job(job(**tables), "the job")
    with pytest.raises(InputError, match=line):
        build.build(job(**tables), tmp_path / "run", (), False, Alone())


@pytest.mark.parametrize("name", registry.WINGS)
def test_a_wing_whose_folder_is_not_there_is_said_in_the_same_line(job, name, monkeypatch):
    tables, key = ASKED[name]
    monkeypatch.setitem(sys.modules, f"mpifl.wings.{name}", None)
    with pytest.raises(InputError, match=rf"^{key}: is the work of the wing '{name}', which is not here$"):
        wings_of(job(**tables))


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


@pytest.mark.parametrize("name", ["attacks"])
def test_without_the_folder_of_a_wing_plain_jobs_train_and_one_that_asks_for_it_is_refused(
    job, name, tmp_path
):
    ignored = shutil.ignore_patterns("__pycache__", name)
    shutil.copytree(ROOT / "mpifl", tmp_path / "copy" / "mpifl", ignore=ignored)
    (tmp_path / "copy" / "jobs").symlink_to(ROOT / "jobs")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "copy")}

    def trained(**tables):
        file = tmp_path / "job.toml"
        file.write_text(tomli_w.dumps(job(**tables, device="cpu").model_dump(exclude_none=True)))
        words = [
            sys.executable,
            "-m",
            "mpifl",
            "train",
            str(file),
            "--out",
            str(tmp_path / f"run{len(tables)}"),
        ]
        return subprocess.run(
            words, capture_output=True, text=True, timeout=90, cwd=tmp_path, env=environment, check=False
        )

    plain, asking = trained(), trained(**ASKED[name][0])
    assert plain.returncode == 0, plain.stderr
    assert (tmp_path / "run0" / "model.safetensors").exists()
    assert asking.returncode == 2
    assert (
        asking.stderr.strip()
        .splitlines()[-1]
        .endswith(f": is the work of the wing '{name}', which is not here")
    )
