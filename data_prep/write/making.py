"""All shards of a folder, by several threads:
the same bytes for any number of them, and whatever interrupts."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from data_prep.write.layout import passes
from data_prep.write.ledger import Ledger
from data_prep.write.writing import NewShard, Offsets, Writer
from mpifl.data.shards import ShardEntry

T = TypeVar("T")
HELD = (signal.SIGINT, signal.SIGTERM)


def default_jobs() -> int:
    """Return how many threads write unless told otherwise:
    as many as there are cores, but not more than four."""
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def make_shards(writer: Writer, shards: Sequence[NewShard], jobs: int, ledger: Ledger) -> list[ShardEntry]:
    """Lay out, fill and finish shards; those that the ledger has are taken from there.

    Raises:
        OSError: the file system refuses something.
        InputError: the source turns out damaged, or its rows do not fit.
    """
    with signals_held() as caught, ThreadPoolExecutor(jobs) as pool, _progress() as progress:
        try:
            return _make(writer, shards, ledger, _Crew(pool, progress, caught))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            with contextlib.suppress(OSError):  # a full disk is told by what met it first
                ledger.flush(writer.sync)
            raise


@contextlib.contextmanager
def signals_held() -> Iterator[list[int]]:
    """Hold Ctrl-C and SIGTERM back until the block ends; those that came are in the list that is lent.

    An exception out of a signal's handler can leave a lock behind that the threads then wait for, and HDF5
    swallows it.
    """
    caught: list[int] = []
    handlers = {number: signal.signal(number, lambda n, _: caught.append(n)) for number in HELD}
    try:
        yield caught
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])


def _make(writer: Writer, shards: Sequence[NewShard], ledger: Ledger, crew: _Crew) -> list[ShardEntry]:
    todo = [shard for shard in shards if shard.file not in ledger.shards]
    where = writer.laid_out if ledger.laid_out else writer.lay_out
    offsets = dict(crew.do("Laying out", {shard.file: partial(where, shard) for shard in todo}))
    if not ledger.laid_out:
        ledger.note_laid_out()
    _fill(writer, shards, offsets, ledger, crew)
    for file, entry in crew.do(
        "Finishing", {s.file: partial(writer.finish, s, offsets[s.file]) for s in todo}
    ):
        ledger.note_shard(entry, partial(writer.settle, file))
    ledger.flush(writer.sync)
    return [ledger.shards[shard.file] for shard in shards]


def _fill(
    writer: Writer, shards: Sequence[NewShard], offsets: dict[str, Offsets], ledger: Ledger, crew: _Crew
) -> None:
    """Write all rows, one source after the other, but for the pieces that are written already.

    Where a shard is finished already, all pieces are.
    """
    done = ledger.pieces
    for reading in passes([section for shard in shards for section in shard.sections]):
        first = reading.sections[0]
        pieces = {f"{first.file} {first.split} {piece.start}": piece for piece in reading.pieces}
        todo = {name: piece for name, piece in pieces.items() if name not in done}
        fills = {name: partial(writer.fill, reading, piece, offsets) for name, piece in todo.items()}
        for name, _ in crew.do("Writing", fills):
            ledger.note_piece(name, writer.sync)
        ledger.flush(writer.sync)


def _deliver(done: SimpleQueue[tuple[str, Future[T]]], name: str, future: Future[T]) -> None:
    done.put((name, future))


class _Interrupted(Exception):
    """A signal came; it is raised again when the threads have ended."""


class _Crew:
    """Threads, and the bar that shows how far they are."""

    def __init__(self, pool: ThreadPoolExecutor, progress: Progress, caught: list[int]) -> None:
        self._pool, self._progress, self._caught = pool, progress, caught

    def do(self, what: str, tasks: Mapping[str, Callable[[], T]]) -> Iterator[tuple[str, T]]:
        """Call functions, and yield their names and results as they come."""
        done: SimpleQueue[tuple[str, Future[T]]] = SimpleQueue()
        for name, task in tasks.items():
            self._pool.submit(task).add_done_callback(partial(_deliver, done, name))
        bar = self._progress.add_task(what, total=len(tasks))
        for _ in tasks:
            name, future = self._next(done)
            yield name, future.result()
            self._progress.advance(bar)

    def _next(self, done: SimpleQueue[tuple[str, Future[T]]]) -> tuple[str, Future[T]]:
        """Wait for a function to return, or for a signal."""
        while not self._caught:
            with contextlib.suppress(Empty):
                return done.get(timeout=0.1)
        raise _Interrupted


def _progress() -> Progress:
    """Return progress bars that are seen on a terminal, and nowhere else."""
    named = TextColumn("{task.description:>10}", markup=False)
    columns = named, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
