"""All observers of a run as one; an observer may report, and may not end a training."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from mpifl.common import one_line
from mpifl.report.observers.jsonlines import JsonLines
from mpifl.report.observers.observer import Observer, Record


class Observers:
    """Tell all observers of a run.

    An observer that raises is named in a line and then left alone. Notes wait until there are observers.
    """

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._attached = False
        self._waiting: list[str] = []
        self._said: set[Hashable] = set()

    def attach(self, observers: Iterable[Observer]) -> None:
        """Tell these observers from now on, at first the notes that waited for them."""
        self._observers = list(observers)
        self._attached = True
        for text in self._waiting:
            self.note(text)

    def begin(self, round: int, title: str) -> None:
        """Tell that the run starts after `round` rounds done."""
        self._tell("begin", round, title)

    def before(self, record: Record) -> None:
        """Tell how pretrained weights score before the first round."""
        self._tell("before", record)

    def round(self, record: Record) -> None:
        """Tell what a round brought."""
        self._tell("round", record)

    def flush(self) -> None:
        """Have the disk keep the lines of rounds, since a checkpoint of them is about to count.

        Raises:
            OSError: it cannot.
        """
        for observer in self._observers:
            if isinstance(observer, JsonLines):
                observer.flush()

    def note(self, text: str, once: Hashable = None) -> None:
        """Tell a line that the user should see.

        Args:
            once: What it is about; of one thing the user reads once in a training. None: the line always
                counts.
        """
        if once is not None and once in self._said:
            return
        if once is not None:
            self._said.add(once)
        if self._attached:
            self._tell("note", text)
        else:
            self._waiting.append(text)

    def end(self) -> None:
        """Tell that the run is over, whatever its end."""
        self._tell("end")

    def _tell(self, what: str, *told: Any) -> None:
        for observer in list(self._observers):
            if observer not in self._observers:  # it failed to tell of another's failure
                continue
            try:
                getattr(observer, what)(*told)
            except (Exception, SystemExit) as error:
                self._observers.remove(observer)
                self._complain(f"{observer}: {described(error)}; training continues without it")

    def _complain(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more
            if self._observers:
                self.note(text)
            else:
                print(text, file=sys.stderr, flush=True)


def described(error: BaseException) -> str:
    """Return an error in a line: its kind, what it says, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {one_line(error)} ({Path(frame.filename).name}:{frame.lineno})"
