"""Sites that join by `mpifl submit --join`, as jobs of a real SLURM that are signalled amid a run."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from faults.processes import Command
from sites import kit
from sites.driver import SitesRun, sha256
from sites.people import COORDINATOR, USERS, People, users_python as users_python
from sites.test_site_runs import SITES as MANY_SITES, in_one_world, job_of
from slurm.conftest import Slurm, running

SITES = {"north": ["silo 0", "silo 1"], "south": ["silo 2"], "west": ["silo 3"]}
ROUNDS = 30


def test_sites_that_are_signalled_are_queued_again_and_go_on_to_the_same_bits(
    slurm: Slurm, tmp_path: Path, digits: Path
) -> None:
    """One SLURM for all sites, and letters by HTTPS."""
    shards = digits / "digits"
    job = job_of(tmp_path, shards, "scaffold", rounds=ROUNDS)
    run = SitesRun(slurm.yard / "over", job, shards, sites=SITES, https=True)
    with ExitStack() as held:
        held.callback(run.serve().kill)
        home = {"MPIFL_SITE": str(kit.home(run.base, kit.COORDINATOR))}
        words = ("-m", "mpifl", "train", job, "--out", run.run)
        coordinator = held.enter_context(Command(run.base / "coordinator", 1, *words, **home))
        jobs = {}
        for name in SITES:
            command = (sys.executable, "-m", "mpifl", "submit", "--join", run.links[name], "--shards", shards)
            more = ("--time", "10", "--out", f"runs/join-{name}")
            jobs[name] = slurm.call(*command, *more, MPIFL_SITE=str(kit.home(run.base, name)))
        slurm.until(lambda: run.rounds >= 3, "round 3")
        slurm.call("scancel", "--signal=USR1", "--batch", jobs["north"])
        slurm.until_started_again(jobs["north"])
        for name in SITES:
            slurm.completes(jobs[name])
        assert coordinator.end().code == 0, coordinator.err
        log = (slurm.yard / "runs" / "join-north.log").read_text()
    assert "; queued again" in log
    assert log.count("the end: the model is here") == 1
    assert sha256(run.run / "model.safetensors") == in_one_world(tmp_path, job)


@pytest.mark.slow
def test_three_sites_that_are_unix_users_with_a_slurm_each_make_the_model_of_one_mpirun(
    users_python: Path, tmp_path: Path, digits: Path
) -> None:
    """Each has a controller, a key and a node of its own, and all that runs there is its user's. A copier
    that is none of them carries the letters. One site is signalled amid the run."""
    shards = digits / "many"
    job = job_of(tmp_path, shards, "scaffold", rounds=ROUNDS)
    with ExitStack() as held:
        base = Path(held.enter_context(tempfile.TemporaryDirectory()))
        base.chmod(0o755)
        people = People(base, shards, MANY_SITES, users_python)
        people.agree(job, shards)
        held.enter_context(people.copying(5))
        coordinator = people.start(COORDINATOR, "train", "job.toml", "--out", "run")
        held.callback(coordinator.kill)
        where, jobs = {}, {}
        for name in people.sites:
            own = f"{name}:{USERS[name]}"
            at = held.enter_context(running(base / name, 1, own, people.environment(name)))
            submit = ("submit", "--join", people.link(name), "--shards", "shards", "--time", "10")
            jobs[name] = at.call(*people.command(*submit, "--out", "runs/join"))
            where[name] = at
        told = base / COORDINATOR / "run" / "metrics.jsonl"
        where["south"].until(lambda: told.exists() and told.read_text().count("\n") >= 3, "round 3", 300)
        where["south"].call("scancel", "--signal=USR1", "--batch", jobs["south"])
        where["south"].until_started_again(jobs["south"])
        for name, at in where.items():
            at.completes(jobs[name])
        people.end(COORDINATOR, coordinator)
        logs = {name: (base / name / "runs" / "join.log").read_text() for name in people.sites}
        assert "; queued again" in logs["south"]
        assert [log.count("the end: the model is here") for log in logs.values()] == [1, 1, 1]
        people.no_one_reads_what_is_anothers()
        model = sha256(base / COORDINATOR / "run" / "model.safetensors")
    assert model == in_one_world(tmp_path, job, n=4)
