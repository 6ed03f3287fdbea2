"""Jobs at random train in two worlds that must agree; what does not is found."""

import os
import time
from pathlib import Path
from random import Random

import pytest

from scripts import random_jobs
from scripts.jobs_at_random import worlds
from scripts.jobs_at_random.draw import Draws, cells, refusal, touched
from scripts.jobs_at_random.federations import make
from scripts.jobs_at_random.settings import COMMON, NOT_DRAWN
from scripts.jobs_at_random.worlds import End, World

SLOW = bool(os.environ.get("MPIFL_SLOW"))
PLANTED = """
import time
from mpi4py import MPI
from mpifl import FedAvg

class ByRanks(FedAvg):
    def train(self, silo, w):
        update = super().train(silo, w)
        update.vectors["delta"] += MPI.COMM_WORLD.size
        return update

class Hangs(FedAvg):
    def train(self, silo, w):
        time.sleep(100)
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> random_jobs.Jobs:
    return random_jobs.Jobs(5, tmp_path_factory.mktemp("random_jobs"))


def test_some_jobs_end_alike_in_two_worlds(jobs: random_jobs.Jobs) -> None:
    jobs.try_all(range(40 if SLOW else 2), 1, time.monotonic() + 3600)
    assert sum(jobs.tally.ends.values()) == (40 if SLOW else 2)
    assert not jobs.tally.found, "\n".join(jobs.tally.found)
    assert jobs.tally.trained["rounds"]


@pytest.mark.parametrize(("name", "fault"), [("ByRanks", "other model"), ("Hangs", "hung")])
def test_a_planted_fault_is_found(
    jobs: random_jobs.Jobs, name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    path = f"{tmp_path}{os.pathsep}{jobs.trainer.environment['PYTHONPATH']}"
    monkeypatch.setitem(jobs.trainer.environment, "PYTHONPATH", path)
    monkeypatch.setattr(worlds, "PATIENCE", 3.0 if name == "Hangs" else worlds.PATIENCE)
    shards = str(make("table", 3, jobs.folder))
    job = {"name": "planted", **COMMON, "shards": shards, "algorithm": {"name": f"planted:{name}"}}
    ends = [jobs.trainer.train(job, World(n)) for n in ((1, 2) if name == "ByRanks" else (2,))]
    assert random_jobs.disagreement(ends[0], ends[-1]).startswith(fault), ends[0].said


def test_a_job_is_the_same_whenever_it_is_drawn(jobs: random_jobs.Jobs, tmp_path: Path) -> None:
    again = Draws(5, cells(), lambda kind, nth: make(kind, nth, jobs.folder)).job(9)
    assert again == jobs.draw(9)
    assert worlds.own_worlds(again[0], Random("1")) == worlds.own_worlds(again[0], Random("1"))
    assert jobs._common(30, 4) == random_jobs.Jobs._common(jobs, 25, 4)


def test_ends_that_agree_and_such_that_do_not() -> None:
    trained, other = End(worlds.TRAINED, {"model": "a"}, 1.0), End(worlds.TRAINED, {"model": "b"}, 1.0)
    refused, by_ranks = End(worlds.REFUSED, "error: x", 1.0), End(worlds.REFUSED, "error: 2 workers", 1.0)
    assert not random_jobs.disagreement(trained, trained)
    assert not random_jobs.disagreement(refused, refused)
    assert not random_jobs.disagreement(trained, by_ranks)
    assert random_jobs.disagreement(trained, other) == "other model"
    assert random_jobs.disagreement(trained, refused) == "trained and refused"
    assert random_jobs.disagreement(trained, End(worlds.FAILED, 1, 1.0)) == "failed"


def test_each_key_of_the_schema_is_drawn_or_says_why_not(jobs: random_jobs.Jobs) -> None:
    names = {str(cell).partition(" ")[0] for cell in cells()}
    assert names.isdisjoint(NOT_DRAWN)
    assert len(names) > 120


@pytest.mark.slow
def test_each_key_has_a_setting_in_which_it_is_trained_with(jobs: random_jobs.Jobs) -> None:
    every = cells()
    allowed, draws = set(), Draws(3, every, lambda kind, nth: make(kind, nth, jobs.folder))
    for number in range(len(every)):
        job, focus = draws.job(number)
        if focus in touched(job, every) and refusal(job) is None:
            allowed.add(str(focus))
    assert {str(cell) for cell in every} - allowed == set()
