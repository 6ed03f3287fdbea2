"""Jobs that are submitted with the time and memory of their plan, on nodes that enforce both."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import pytest
from conftest import ROOT
from slurm.conftest import Slurm
from slurm.test_slurm import longer

PROGRAM = (sys.executable, "-m", "mpifl")


@pytest.mark.parametrize("number", [0, *map(longer, range(1, 20))])
def test_a_job_ends_within_what_its_plan_asks(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Jobs drawn at random are measured as a step of the same nodes, and submitted by their profile."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))
    from plan import drawn

    job, ranks = drawn(Random(f"slurm {number}"), tmp_path)
    profile, run, nodes = tmp_path / "nodes.toml", f"runs/planned-{number}", 1 + number % 2
    step = ("srun", "--mpi=pmix", "--mem=3900M", f"--nodes={nodes}", f"--ntasks={ranks}")
    slurm.call(*step, *PROGRAM, "doctor", job, "--profile", profile, seconds=300)
    slurm.call(*PROGRAM, "plan", job, "--profile", profile, "--json", tmp_path / "plan.json", seconds=300)
    plan = json.loads((tmp_path / "plan.json").read_text())
    asked = slurm.call(*PROGRAM, "submit", job, "--out", run, "--plan", profile)
    hours, minutes, _ = map(int, plan["forecast"]["sbatch"]["time"].split(":"))
    assert slurm.field(asked, "TimeLimit") == f"{hours:02d}:{minutes:02d}:00"
    assert slurm.field(asked, "MinMemoryNode") == plan["forecast"]["sbatch"]["mem"]
    assert slurm.field(asked, "NumNodes") in (str(nodes), f"{nodes}-{nodes}")
    slurm.completes(asked)
    assert slurm.field(asked, "Restarts") == "0"
    records = [json.loads(line) for line in (slurm.yard / run / "metrics.jsonl").read_text().splitlines()]
    assert [one["round"] for one in records][-1] == len(plan["rounds"])


def test_a_job_that_takes_more_memory_than_it_asked_for_is_ended(slurm: Slurm) -> None:
    """The test above would say nothing if nobody looked at memory."""
    run = "runs/starved"
    job = slurm.submit(run, "--ranks", "3", "--mem", "150M", "--set", "rounds=100000", "--time", "5")
    assert slurm.until_ended(job) != "COMPLETED"
    assert "emory" in (slurm.yard / f"{run}.log").read_text(errors="replace")
