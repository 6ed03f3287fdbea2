"""The example that searches with Optuna: the same trials on any ranks, some of them pruned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT, ranks

SCRIPT = ROOT / "scripts" / "examples" / "optuna_search.py"


def test_trials_are_the_same_on_any_ranks_and_some_are_pruned(digits: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    job = tmp_path / "job.toml"
    text = '[model]\nname = "logreg"\n[checkpoint]\nevery = 9\n'
    job.write_text(f'name = "toy"\nshards = "{digits / "many"}"\nrounds = 4\ndevice = "cpu"\n{text}')
    told = {}
    for n in (1, 3):
        given = (job, "--trials", "9", "--out", tmp_path / f"on {n}")
        done = ranks(n, "-m", "mpi4py", SCRIPT, *given, cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        told[n] = [line for line in done.stdout.splitlines() if line.startswith(("trial", "best: trial"))]
    assert told[1] == told[3]
    rounds = [int(found[1]) for line in told[1] if (found := re.search(r"(\d) rounds", line))]
    assert len(rounds) == 9
    assert min(rounds) < 4 == max(rounds)
    assert told[1][-1].startswith("best: trial")


def test_a_figure_that_no_round_has_ends_all_ranks(digits: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    job = tmp_path / "job.toml"
    text = (
        f'name = "toy"\nshards = "{digits / "many"}"\nrounds = 1\ndevice = "cpu"\n[model]\nname = "logreg"\n'
    )
    job.write_text(text)
    done = ranks(2, "-m", "mpi4py", SCRIPT, job, "--figure", "accuracy", cwd=tmp_path, timeout=200, cold=True)
    assert done.returncode != 0
    assert "--figure accuracy: no round has it" in done.stderr
