"""What is wrong with a training is told before its ranks start, by the line that they would end with."""

import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from conftest import ROOT, rank_environment
from unit.builders import Alone, write_folder

from mpifl.cli.job_tools.beforehand import _is_suspect, check_beforehand
from mpifl.common import InputError
from mpifl.run.job import read_outline
from mpifl.run.job.tables import RULE_NAMES
from mpifl.wings import wings_of
from mpifl.wings.robust import RULES

TOLD = """
import runpy, sys
try:
    runpy.run_module("mpifl", run_name="__main__", alter_sys=True)
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
JOB = {"name": "toy", "rounds": 1, "model": {"name": "logreg"}, "tracking": {"console": False}}
REFUSED = {
    "schedule-over-rounds": ["local.schedule='cosine'", "local.schedule_rounds=3"],
    "key-of-a-table": ["local.lrr=0.1"],
    "algorithm": ["algorithm.name='fedporx'"],
    "key-of-an-algorithm": ["algorithm.name='fedprox'", "algorithm.nu=0.1"],
    "value-of-an-algorithm": ["algorithm.name='fedprox'", "algorithm.mu=-0.1"],
    "task": ["task.name='clasification'"],
    "metric": ["task.metrics=['acuracy']"],
    "server-optimizer": ["server_optimizer.name='adamw'"],
    "model": ["model.name='resnet'"],
    "own-model": ["model.name='no_such_module:net'"],
    "own-metric": ["task.metrics=['no_such_module:Metric']"],
    "own-observer": ["tracking.observers=['no_such_module:Chat']"],
    "selection": ["cohort.select='random'"],
    "shards": ["shards='nowhere'"],
    "split": ["evaluate.split='valid'"],
    "candidates": ["cohort.select='power-of-choice'", "cohort.candidates=9"],
    "layout": ["algorithm.name='splitnn'", "split.cut_width=2"],
}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beforehand")
    write_folder(folder / "shards", [6, 5, 4], test=4)
    (folder / "job.toml").write_text(tomli_w.dumps({**JOB, "shards": str(folder / "shards")}))
    return folder / "job.toml"


def refusal(act):
    with pytest.raises(InputError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_wrong_job_is_refused_with_the_line_of_its_ranks(changes, job, tmp_path, monkeypatch):
    from mpifl.training.loop import train

    monkeypatch.chdir(tmp_path)
    told = refusal(lambda: check_beforehand(job, changes, tmp_path / "run", resume=False, force=False))
    assert told == refusal(
        lambda: train(job, tmp_path / "run", tuple(changes), False, Alone(), wings_of=wings_of)
    )


def started(job, run, *arguments, cwd):
    """The code of `train --ranks 3`, whether ranks started, whether torch was imported, and what is told."""
    launcher = cwd / "launcher"
    launcher.write_text(f"#!/bin/sh\ntouch {cwd}/started\n")
    launcher.chmod(0o755)
    (cwd / "started").unlink(missing_ok=True)
    command = [sys.executable, "-c", TOLD, "train", job, "--ranks", "3", "--out", run, *arguments]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=rank_environment(MPIFL_MPIRUN=str(launcher)),
        timeout=60,
    )
    *told, torch = done.stderr.splitlines()
    return done.returncode, (cwd / "started").exists(), torch == "True", told


def test_no_rank_starts_for_a_wrong_job_and_nothing_heavy_is_imported_for_a_right_one(job, tmp_path):
    changes = ["--set", "local.schedule_rounds=3"]
    code, ranks, torch, told = started(job, tmp_path / "run", *changes, cwd=tmp_path)
    assert (code, ranks, torch, len(told)) == (2, False, False, 1)
    assert told[0].startswith(f"error: {job}: [local] schedule_rounds")
    assert started(job, tmp_path / "run", cwd=tmp_path)[1:3] == (True, False)


def test_one_process_looks_before_it_imports_torch_too(job, tmp_path):
    command = [sys.executable, "-c", TOLD, "train", job, "--out", tmp_path / "run", "--set", "local.lrr=1"]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=rank_environment(), timeout=60
    )
    told, torch = done.stderr.splitlines()
    assert (done.returncode, torch) == (2, "False")
    assert told.startswith(f"error: {job}: [local] has no key 'lrr'")


def test_a_run_in_the_folder_is_told_of_before_ranks_start(job, tmp_path):
    from mpifl.training.loop import train

    run = tmp_path / "run"
    train(job, run, (), False, Alone(), wings_of=wings_of)
    code, ranks, _, told = started(job, run, cwd=tmp_path)
    assert (code, ranks) == (2, False)
    assert "holds a run already" in told[0]
    code, ranks, _, told = started(job, run, "--resume", "--set", "local.lr=0.3", cwd=tmp_path)
    assert (code, ranks) == (2, False)
    assert "it differs in local.lr" in told[0]
    longer = ["--resume", "--set", "rounds=2"]
    assert started(job, run, *longer, cwd=tmp_path)[1:3] == (True, False)


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").rglob("*.toml")), ids=lambda path: path.stem)
def test_no_job_that_ships_is_suspect(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert not _is_suspect(read_outline(path))


def test_the_rules_that_a_job_is_held_against_are_those_that_there_are():
    assert tuple(RULES) == RULE_NAMES


def test_a_module_in_this_folder_is_found(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ["model.name='nets_of_mine:net'"]
    assert _is_suspect(read_outline(job, changes))
    Path("nets_of_mine.py").touch()
    assert not _is_suspect(read_outline(job, changes))
