"""Sites that join by `mpifl submit --join`, as jobs of a real SLURM that are signalled amid a run."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from faults.processes import Command
from sites import kit
from sites.driver import SitesRun, sha256
from sites.test_site_runs import in_one_world, job_of
from slurm.conftest import Slurm, running

SITES = {"north": ["silo 0", "silo 1"], "south": ["silo 2"], "west": ["silo 3"]}
ROUNDS = 30


@pytest.mark.parametrize("clusters", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_sites_that_are_signalled_are_queued_again_and_go_on_to_the_same_bits(
    slurm: Slurm, tmp_path: Path, digits: Path, clusters: int
) -> None:
    """One SLURM for all sites, or one for each: a controller, a key and nodes of its own. Letters go by HTTPS
    then."""
    shards = digits / "digits"
    job = job_of(tmp_path, shards, "scaffold", rounds=ROUNDS)
    https = clusters > 1
    run = SitesRun(slurm.yard / f"over-{clusters}", job, shards, sites=SITES, https=https)
    with ExitStack() as held:
        if https:
            held.callback(lambda: run.server and run.server.kill())
            run.serve()
        where = dict.fromkeys(SITES, slurm)
        for name in [*SITES][1:clusters]:
            (yard := tmp_path / name).mkdir()
            where[name] = held.enter_context(running(yard, nodes=1))
        assert len({one.environment["SLURM_CONF"] for one in where.values()}) == clusters
        home = {"MPIFL_SITE": str(kit.home(run.base, kit.COORDINATOR))}
        words = ("-m", "mpifl", "train", job, "--out", run.run)
        coordinator = held.enter_context(Command(run.base / "coordinator", 1, *words, **home))
        jobs = {}
        for name, at in where.items():
            command = (sys.executable, "-m", "mpifl", "submit", "--join", run.links[name], "--shards", shards)
            more = ("--time", "10", "--out", f"runs/join-{name}-{clusters}")
            jobs[name] = at.call(*command, *more, MPIFL_SITE=str(kit.home(run.base, name)))
        slurm.until(lambda: run.rounds >= 3, "round 3")
        last = [*SITES][clusters - 1]
        where[last].call("scancel", "--signal=USR1", "--batch", jobs[last])
        where[last].until_started_again(jobs[last])
        for name, at in where.items():
            at.completes(jobs[name])
        assert coordinator.end().code == 0, coordinator.err
        log = (where[last].yard / "runs" / f"join-{last}-{clusters}.log").read_text()
    assert "; queued again" in log
    assert log.count("the end: the model is here") == 1
    assert sha256(run.run / "model.safetensors") == in_one_world(tmp_path, job)
