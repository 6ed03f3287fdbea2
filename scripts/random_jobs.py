"""Train jobs that are drawn over every key of the schema, each in two worlds that must agree.

    python -m scripts.random_jobs --minutes 60 --seed 1
    python -m scripts.random_jobs --jobs 20 --seed 1 --lanes 1
    python -m scripts.random_jobs --replay 17 --seed 1         # one of them again, with what it said

Each job has a small federation of 2 to 13 silos. It is about the key that the jobs before it had least, and
has several of the rarest. It is trained in two worlds of 1 to 6 ranks; the second may have forced nodes. Most
jobs are trained one after another in the worlds of their chunk. Every tenth is trained by the command that
users give; most of these are killed and gone on with. Both worlds must end with the same bits, or with the
same line of refusal, and within a time. The same seed draws the same jobs and worlds; a replay draws all
before it. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
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
from scripts.jobs_at_random.draw import Cell, Draws, cells, touched  # noqa: E402
from scripts.jobs_at_random.federations import make  # noqa: E402

Job = dict[str, Any]
CHUNK = 24
"""Jobs that are drawn at once, and share worlds."""
ALONE = 10
"""Every so many jobs one is trained by the command, in worlds of its own, most of which are killed."""
BY_RANKS = ("rank", "worker")
"""Words of lines that may differ between worlds, since they are about the ranks."""


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
        self._draws = Draws(seed, self.cells, lambda kind, nth: make(kind, nth, folder))
        environment = conftest.rank_environment(COLUMNS="200", WARM_PYTHON=conftest.warm_executable())
        (folder / "runs").mkdir()
        self.trainer = worlds.Trainer(folder / "runs", conftest.python(), conftest.launcher(), environment)

    def draw(self, number: int) -> tuple[Job, Cell]:
        """Return the job of a number, and the key that it is about."""
        return self._draws.job(number)

    def try_chunk(self, drawn: Mapping[int, tuple[Job, Cell]]) -> None:
        """Train some jobs by their numbers, each in two worlds, and note what became of them."""
        numbers = [*drawn]
        alone = {number for number in numbers if self._is_alone(number, drawn[number][0])}
        for number in alone:
            self._try_alone(number, *drawn[number])
        together: dict[int, list[int]] = {}
        for number in numbers:
            if number not in alone:
                together.setdefault(worlds.least_of(drawn[number][0]), []).append(number)
        for least, chosen in together.items():
            jobs = [drawn[number][0] for number in chosen]
            pair = self._common(numbers[0], least)
            ends = [self.trainer.train_all(jobs, world) for world in pair]
            for number, *two in zip(chosen, *ends, strict=True):
                self._note(number, *drawn[number], *zip(pair, two, strict=True))

    def _is_alone(self, number: int, job: Job) -> bool:
        return worlds.is_alone(job) or number % ALONE == 0

    def _try_alone(self, number: int, job: Job, focus: Cell) -> None:
        first, second = worlds.own_worlds(job, Random(f"{self.seed} {number} worlds"))
        one = self.trainer.train(job, first)
        other = self.trainer.train(job, second, one.seconds)
        self._note(number, job, focus, (first, one), (second, other))

    def _common(self, number: int, least: int) -> tuple[worlds.World, worlds.World]:
        return worlds.common_worlds(least, Random(f"{self.seed} {number // CHUNK} {least} worlds"))

    def replay(self, number: int) -> None:
        """Train one job by itself, in the worlds that it has among others."""
        job, focus = self.draw(number)
        if self._is_alone(number, job):
            self._try_alone(number, job, focus)
            return
        pair = self._common(number, worlds.least_of(job))
        self._note(number, job, focus, *((world, self.trainer.train(job, world)) for world in pair))

    def try_all(self, numbers: Iterable[int], lanes: int, until: float) -> None:
        """Draw and train chunks of jobs, several at once, until a time."""
        free, source = threading.Semaphore(lanes), iter(numbers)
        with ThreadPoolExecutor(lanes) as pool:
            trying: list[Future[None]] = []
            while chunk := list(itertools.islice(source, CHUNK)):
                free.acquire()
                if time.monotonic() > until or any(one.done() and one.exception() for one in trying):
                    break
                drawn = {number: self.draw(number) for number in chunk}  # by the main thread: it makes shards
                trying.append(pool.submit(self.try_chunk, drawn))
                trying[-1].add_done_callback(lambda _: free.release())
        for one in trying:
            one.result()

    def _note(self, number: int, job: Job, focus: Cell, *ends: tuple[worlds.World, worlds.End]) -> None:
        with self._lock:
            self._count(number, job, focus, *ends)

    def _count(self, number: int, job: Job, focus: Cell, *ends: tuple[worlds.World, worlds.End]) -> None:
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
    told = (worlds.REFUSED, worlds.LOST)
    by_ranks = [end for end in (one, other) if end.how in told and _is_by_ranks(end.what)]
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
    with tempfile.TemporaryDirectory() as scratch:
        jobs = Jobs(asked.seed, Path(scratch))
        if asked.replay is not None:
            jobs.replay(asked.replay)
        else:
            until = math.inf if asked.jobs else begun + asked.minutes * 60
            jobs.try_all(numbers, asked.lanes, until)
        report(jobs, time.monotonic() - begun)
    sys.exit(bool(jobs.tally.found))


if __name__ == "__main__":
    main()
