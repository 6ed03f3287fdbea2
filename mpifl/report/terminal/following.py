"""A run followed while it continues, by its folder alone: over a network file system, too."""

from __future__ import annotations

import enum
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from mpifl.common import InputError, lock, written_after
from mpifl.report.runs import A_RUN, Record, Summary, read_run, read_tables
from mpifl.run.folder import GrowingMetrics, number, read_environment, why_lost

PATIENCE, ROUNDS = 60.0, 5
"""A training on another machine, whose lock is not seen here, has ended when nothing was written for so many
seconds, nor for the time of so many rounds."""
RECENT = 20
"""The rounds whose pace tells how long the rest will take."""
SIGNS = ("metrics.jsonl", "environment.json", "job.toml", "checkpoints", "model.safetensors", lock.FILE)
"""What a training writes now and then."""


class State(enum.Enum):
    """What a run is doing."""

    AWAITED = "has not started"
    GOING = "is in progress"
    FINISHED = "is finished"
    LOST = "was lost"
    STOPPED = "was stopped"

    @property
    def over(self) -> bool:
        """Whether nobody trains in the folder any more."""
        return self in (State.FINISHED, State.LOST, State.STOPPED)


@dataclass(frozen=True)
class Look:
    """A run folder as one look has found it."""

    run: Path
    state: State
    job: Mapping[str, Any] = field(default_factory=dict)
    """The tables of its job.toml."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    summary: Summary | None = None
    """What its rounds came to; None before the first."""
    holder: Mapping[str, Any] = field(default_factory=dict)
    """The host and the pid of the last training in it, and since when."""
    silent: float = 0.0
    """Seconds since anything was written, by the clocks of this machine and the file server."""

    @property
    def rounds(self) -> int:
        """The rounds done."""
        return self.summary.rounds if self.summary else 0

    @property
    def planned(self) -> int | None:
        """The rounds that the job asks for, if it can be read."""
        found = self.job.get("rounds")
        return found if type(found) is int else None

    @property
    def pace(self) -> float | None:
        """The seconds that a round takes, with scoring and checkpoints; None where they are not known yet."""
        return pace(self.summary.records) if self.summary else None

    @property
    def left(self) -> float | None:
        """The seconds that the planned rounds will take, if they take as long as the last."""
        each = self.pace
        return None if each is None or self.planned is None else each * max(self.planned - self.rounds, 0)


class Follower:
    """Looks at a run folder again and again, and reads of its metrics what is new."""

    def __init__(self, run: Path, wait: bool = False) -> None:
        """Args: run: The folder. wait: Whether the run may begin later, or continue after a stop."""
        self._run, self._wait = run, wait
        self._metrics = GrowingMetrics(run)

    def look(self) -> Look:
        """Look once.

        Raises:
            InputError: it is no run, or cannot be read.
        """
        run = self._run
        if not (run / "job.toml").exists():
            if self._wait:
                return Look(run, State.AWAITED)
            gone = "is not a folder" if run.exists() else "is not there"
            what = gone if not run.is_dir() else "is not a run: it has no job.toml"
            raise InputError(f"{run}: {what}; {A_RUN}, or give --wait if it is yet to begin")
        held, holder = lock.look(run)  # before the files: what ends in between has then written them
        records, environment = self._metrics.look(), read_environment(run)
        summary = read_run(run, records) if records else None
        job = summary.job if summary else read_tables(run / "job.toml")[0]
        silent, here = _silent(run), socket.gethostname()
        patience = max(PATIENCE, ROUNDS * (pace(records) or 0.0))
        if held is False and str(holder.get("host", here)) != here and silent < patience:
            held = None
        return Look(
            run=run,
            state=self._state(held, summary),
            job=job,
            environment=environment,
            summary=summary,
            holder=holder,
            silent=silent,
        )

    def _state(self, held: bool | None, summary: Summary | None) -> State:
        if summary and summary.finished:
            return State.FINISHED
        if held:
            return State.GOING
        if why_lost(self._run) is not None:
            return State.LOST
        if held is None:
            return State.GOING
        unrecorded = summary is None and written_after(
            self._run / "model.safetensors", self._run / "job.toml"
        )
        if unrecorded:  # by [tracking] jsonl = false
            return State.FINISHED
        return State.AWAITED if self._wait else State.STOPPED


def pace(records: Sequence[Record]) -> float | None:
    """Return the seconds from one round's end to the next's, the median of the last; None of a single one."""
    last = [(r["round"], at) for r in records[-RECENT - 1 :] if (at := number(r, "time")) is not None]
    found = [(then - at) / (later - round) for (round, at), (later, then) in pairwise(last)]
    return max(median(found), 0.0) if found else None


def _silent(run: Path) -> float:
    """Return the seconds since the newest change of what a training writes."""
    newest = 0.0
    for name in SIGNS:
        with suppress(OSError):
            newest = max(newest, (run / name).stat().st_mtime)
    return max(time.time() - newest, 0.0)


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Let TERM and HUP end this program as an exception does, so that it leaves nothing behind."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
