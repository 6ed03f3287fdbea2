"""Which GPUs the ranks of a SLURM job see, and which of them each takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from slurm.conftest import Slurm

PROGRAM = Path(__file__).with_name("gpus_seen.py")
MPIRUN = "mpirun --map-by node --bind-to none"
SRUN = "srun --mpi=pmix --distribution=cyclic"


LONG = pytest.param(f"{MPIRUN} -n 5", id="mpirun", marks=pytest.mark.slow)


def seen(slurm: Slurm, library: Path, name: str, head: str, start: str, jobs: int = 1) -> list[Mapping]:
    """What each rank of a job writes, by job and rank."""
    out, script = slurm.yard / name, slurm.yard / f"{name}.sbatch"
    asked = "".join(f"#SBATCH {line.strip()}\n" for line in head.split(";"))
    script.write_text(
        f"#!/bin/bash\n{asked}unset SLURM_NTASKS_PER_NODE\n{start} {sys.executable} {PROGRAM} {out}\n"
    )
    job = slurm.call("sbatch", "--parsable", "--time=5", script, FAKE_LIBRARY=str(library))
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job), "the job's end", 180)
    found = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    assert found, "".join(path.read_text() for path in slurm.yard.glob("slurm-*.out"))
    return found


def taken(found: list[Mapping]) -> list[tuple[str, str]]:
    """Node and GPU of each worker of one job."""
    return [(rank["host"], rank["takes"]) for rank in found if rank["rank"]]


@pytest.mark.parametrize("start", [pytest.param(f"{SRUN} --ntasks=5", id="srun"), LONG])
def test_a_worker_takes_a_gpu_of_its_own(slurm: Slurm, library: Path, start: str) -> None:
    found = seen(slurm, library, start[:4], "--nodes=2; --ntasks-per-node=3; --gpus-per-node=2", start)
    assert [rank["visible"] for rank in found] == [["0", "1"]] * 5
    assert len(set(taken(found))) == 4
    assert found[0]["takes"] in "01", "the server shares one to score"


@pytest.mark.slow
def test_a_gpu_for_each_task_is_taken_by_its_task(slurm: Slurm, library: Path) -> None:
    head = "--nodes=2; --ntasks-per-node=2; --gpus-per-task=1"
    found = seen(slurm, library, "each", head, f"{SRUN} --gpus-per-task=1 --ntasks=4")
    assert [len(rank["visible"]) for rank in found] == [1] * 4
    assert len({(rank["host"], rank["takes"]) for rank in found}) == 4


@pytest.mark.slow
def test_tasks_of_an_array_on_one_node_take_unlike_gpus(slurm: Slurm, library: Path) -> None:
    head = "--array=0-1; --nodes=1; --nodelist=n1; --ntasks=2; --gres=gpu:1"
    found = seen(slurm, library, "array", head, f"{SRUN} --ntasks=2")
    assert [rank["visible"] for rank in found] in ([["0"], ["0"], ["1"], ["1"]], [["1"], ["1"], ["0"], ["0"]])
    assert all([rank["takes"]] == rank["visible"] for rank in found)


@pytest.mark.slow
def test_a_heterogeneous_job_has_gpus_at_its_workers_alone(slurm: Slurm, library: Path) -> None:
    head = "--ntasks=1; hetjob; --nodes=2; --ntasks-per-node=2; --gpus-per-node=2"
    found = seen(slurm, library, "het", head, "srun --mpi=pmix --het-group=0,1")
    assert [rank["visible"] for rank in found] == [[], *[["0", "1"]] * 4]
    assert found[0]["takes"] is None
    assert len(set(taken(found))) == 4


@pytest.mark.slow
@pytest.mark.parametrize("start", [f"{SRUN} --ntasks=3", f"{MPIRUN} -n 3"], ids=["srun", "mpirun"])
def test_where_another_job_holds_a_gpu_each_node_gives_its_free_one(
    slurm: Slurm, library: Path, start: str
) -> None:
    held = slurm.call("sbatch", "--parsable", "--nodelist=n2", "--gres=gpu:1", "--wrap=sleep 300")
    try:
        slurm.until(lambda: slurm.field(held, "JobState") == "RUNNING", "the other job")
        head = "--nodes=2; --nodelist=n1,n2; --ntasks-per-node=2; --gres=gpu:1"
        found = seen(slurm, library, f"held-{start[:4]}", head, start)
    finally:
        slurm.call("scancel", held)
    assert {rank["host"]: rank["visible"] for rank in found} == {"n1": ["0"], "n2": ["1"]}
    assert all([rank["takes"]] == rank["visible"] for rank in found)
