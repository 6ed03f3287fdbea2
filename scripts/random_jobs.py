"""Train jobs that are drawn over every key of the schema, each in two worlds that must agree.

    python -m scripts.random_jobs --minutes 60 --seed 1
    python -m scripts.random_jobs --jobs 20 --seed 1 --lanes 1
    python -m scripts.random_jobs --replay 17 --seed 1         # one of them again, with what it said

Each job has a small federation of 2 to 13 silos, and one key in its focus. It is trained in two worlds of 1
to 6 ranks. The second may have forced nodes, and every third is killed and gone on with. Both must end with
the same bits, or with the same line of refusal, and within a time. The same seed draws the same jobs and
worlds. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

ROOT = Path(__file__).resolve().parents[1]
# train with the tree that this file stands in, whatever is installed
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "mpi")]

import conftest  # noqa: E402

from scripts.jobs_at_random import worlds  # noqa: E402
from scripts.jobs_at_random.draw import Cell, cells, drawn, touched  # noqa: E402
from scripts.jobs_at_random.federations import make  # noqa: E402

Job = dict[str, Any]
BY_RANKS = ("rank", "worker")
"""Words of refusals that may differ between worlds, since they are about the ranks."""


@dataclass
class Tally:
    """What became of the jobs."""

    ends: Counter[str] = field(default_factory=Counter)
    trained: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)


class Jobs:
    """All jobs of a seed, drawn one after another and trained at once by several threads."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.cells, self.tally, self._lock = cells(), Tally(), threading.Lock()
        environment = conftest.rank_environment(COLUMNS="200", WARM_PYTHON=conftest.warm_executable())
        (folder / "runs").mkdir()
        self.trainer = worlds.Trainer(folder / "runs", conftest.python(), conftest.launcher(), environment)

    def draw(self, number: int) -> tuple[Job, Cell]:
        """Return the job of a number, and the key that it is about."""
        return drawn(number, self.seed, self.cells, lambda kind, nth: make(kind, nth, self.folder))

    def try_one(self, number: int, job: Job, focus: Cell) -> None:
        """Train a job in two worlds, and note what became of it."""
        first, second = worlds.worlds(job, Random(f"{self.seed} {number} worlds"))
        one = self.trainer.train(job, first)
        other = self.trainer.train(job, second, one.seconds)
        with self._lock:
            self._note(number, job, focus, (first, one), (second, other))

    def try_all(self, numbers: Iterable[int], lanes: int, until: float) -> None:
        """Draw and train one job after another, several at once, until a time."""
        free = threading.Semaphore(lanes)
        with ThreadPoolExecutor(lanes) as pool:
            trying: list[Future[None]] = []
            for number in numbers:
                free.acquire()
                if time.monotonic() > until or any(one.done() and one.exception() for one in trying):
                    break
                trying.append(pool.submit(self.try_one, number, *self.draw(number)))
                trying[-1].add_done_callback(lambda _: free.release())
        for one in trying:
            one.result()

    def _note(self, number: int, job: Job, focus: Cell, *ends: tuple[worlds.World, worlds.End]) -> None:
        one, other = (end for _, end in ends)
        counts = self.tally.trained if worlds.TRAINED in (one.how, other.how) else self.tally.refused
        counts.update(map(str, touched(job, self.cells)))
        fault = disagreement(one, other)
        self.tally.ends[fault or one.how] += 1
        if fault:
            told = [f"-- {world}: {end.how} in {end.seconds:.1f} s {end.said}" for world, end in ends]
            head = f"job {number} of seed {self.seed} about {focus}: {fault}"
            self.tally.found.append("\n".join([head, tomli_w.dumps(job), *told]))
            print(self.tally.found[-1], flush=True)


def disagreement(one: worlds.End, other: worlds.End) -> str:
    """Say how two worlds disagree, or how one ended as none should; "" where all is well."""
    for end in (one, other):
        if end.how in (worlds.HUNG, worlds.FAILED):
            return end.how
    by_ranks = [end for end in (one, other) if end.how == worlds.REFUSED and _is_by_ranks(end.what)]
    if one.how != other.how:
        return "" if by_ranks else f"{one.how} and {other.how}"
    if one.what == other.what or by_ranks:
        return ""
    if one.how != worlds.TRAINED:
        return "other lines"
    return "other " + ", ".join(key for key in one.what if one.what[key] != other.what[key])


def _is_by_ranks(line: str) -> bool:
    return any(word in line for word in BY_RANKS)


def report(jobs: Jobs, seconds: float) -> None:
    """Print what became of the jobs, and how often each key was trained with."""
    tally = jobs.tally
    print(f"{sum(tally.ends.values())} jobs in {seconds / 60:.1f} minutes: {dict(tally.ends)}")
    counts = sorted((tally.trained[str(cell)], tally.refused[str(cell)], str(cell)) for cell in jobs.cells)
    print("trained with, refused with, key")
    for trained, refused, cell in counts:
        print(f"{trained:6} {refused:6}  {cell}")
    print(f"{len(tally.found)} found")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--jobs", type=int, help="so many jobs, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="jobs at once")
    parser.add_argument("--replay", type=int, metavar="JOB", help="the job of this number alone")
    asked = parser.parse_args()
    begun = time.monotonic()
    numbers = range(10**9) if asked.jobs is None else range(asked.jobs)
    numbers = numbers if asked.replay is None else range(asked.replay, asked.replay + 1)
    bounded = asked.jobs is not None or asked.replay is not None
    with tempfile.TemporaryDirectory() as scratch:
        jobs = Jobs(asked.seed, Path(scratch))
        jobs.try_all(numbers, asked.lanes, math.inf if bounded else begun + asked.minutes * 60)
        report(jobs, time.monotonic() - begun)
    sys.exit(bool(jobs.tally.found))


if __name__ == "__main__":
    main()
