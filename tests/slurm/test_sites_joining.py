"""Sites that join by `mpifl submit --join`, as jobs of a real SLURM that are signalled amid a run."""

from __future__ import annotations

import sys
from pathlib import Path

from faults.processes import Command
from sites import kit
from sites.driver import sha256
from sites.test_site_runs import in_one_world, job_of
from slurm.conftest import Slurm

SITES = {"north": ["silo 0", "silo 1"], "south": ["silo 2", "silo 3"]}
ROUNDS = 30


def test_sites_that_are_signalled_are_queued_again_and_go_on_to_the_same_bits(
    slurm: Slurm, tmp_path: Path, digits: Path
) -> None:
    base = slurm.yard / "over"
    base.mkdir()
    digits = digits / "digits"
    job = job_of(base, digits, "scaffold", rounds=ROUNDS)
    kit.set_up(base, job, SITES)
    words = ["train", job, "--out", base / "run"]
    coordinator = Command(
        base / "coordinator", 1, "-m", "mpifl", *words, MPIFL_SITE=str(kit.home(base, kit.COORDINATOR))
    )
    with coordinator:
        jobs = {}
        for name in SITES:
            command = [sys.executable, "-m", "mpifl", "submit", "--join", base / "link", "--shards", digits]
            command += ["--time", "10", "--out", f"runs/join-{name}"]
            jobs[name] = slurm.call(*command, MPIFL_SITE=str(kit.home(base, name)))
        slurm.until_round("over/run", 3)
        slurm.call("scancel", "--signal=USR1", "--batch", jobs["north"])
        slurm.until_started_again(jobs["north"])
        for number in jobs.values():
            slurm.completes(number)
        assert coordinator.end().code == 0, coordinator.err
    log = (slurm.yard / "runs" / "join-north.log").read_text()
    assert "queued again" in log
    assert log.count("the end: the model is here") == 1
    assert sha256(base / "run" / "model.safetensors") == in_one_world(tmp_path, job)
