"""How much a rank tells the server about its silos' faults and times: all, or only the necessary."""

from __future__ import annotations

import math
import re
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from mpifl.common import (
    BeyondRange,
    BudgetSpent,
    Diverged,
    InputError,
    Names,
    ShardError,
    Unwritable,
    one_line,
    place_of,
)
from mpifl.run.folder import CheckpointError
from mpifl.silo import Silo, short_of_memory
from mpifl.wire import MOST_SCALARS

KINDS: dict[type[Exception], str] = {
    Diverged: "diverged",
    BeyondRange: "beyond the range",
    BudgetSpent: BudgetSpent.kind,
    ShardError: "a shard that cannot be read",
    CheckpointError: "a state that cannot be kept or read",
    Unwritable: "a file that cannot be written",
    InputError: "refused",
}
"""The kind of an error, for sites whose error messages may hold numbers of the data; the first that fits."""
MEMORY, OTHER = "out of memory", "failed"
MOST_CAUSES = 100
"""How many causes of an error are followed at most."""
_WORKER = str(Path(__file__).parent / "worker_side" / "worker.py")


class Telling:
    """Tells the server a fault in full: the error, and for an unexpected one its file and line.

    The traceback of an unexpected error is printed if the server asks for it.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._traces: dict[int, str] = {}
        """The tracebacks of the last request's errors, by silo."""

    def begin(self) -> None:
        """Forget the errors of the request before."""
        self._traces.clear()

    def fault(self, silo: int, error: Exception) -> str:
        """Return the text by which the server learns of a silo's error."""
        if isinstance(error, InputError):
            place = place_of(error)
            return f"{error} ({place})" if place else str(error)
        self._traces[silo] = _trace(error)
        return _described(error)

    def explain(self, silos: Collection[int]) -> None:
        """Print the tracebacks of some silos. The server chooses them, so that each error is printed once."""
        for silo in self._traces.keys() & set(silos):
            print(f"silo {self._names[silo]} failed:\n{self._traces[silo]}", file=sys.stderr, flush=True)

    def seconds(self, spent: float) -> float:
        """Return the seconds that the server learns, for the seconds that were spent."""
        return spent

    def work(self, silo: Silo) -> dict[str, Any]:
        """Return what the server learns of a silo's trainings: `seen`, and `losses` where they are noted.

        Raises:
            InputError: there are too many losses for a message.
        """
        if (count := len(silo.losses)) > MOST_SCALARS:
            what = (
                f"[tracking] step_losses: a round brings {count:,} losses, at most {MOST_SCALARS:,} are sent"
            )
            raise InputError(f"{what}; use a larger number")
        return {"seen": silo.seen, "losses": [loss if math.isfinite(loss) else None for loss in silo.losses]}


class KindsAlone(Telling):
    """Tells the server only the kind of a fault, times to two digits, and nothing of trainings.

    The error's text goes to the site's own stderr. A fault that differs from an earlier one only in numbers
    is not printed again.
    """

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self._printed: set[tuple[int, str]] = set()

    def fault(self, silo: int, error: Exception) -> str:
        """Print the error, and return its kind."""
        said = one_line(super().fault(silo, error))
        if (which := (silo, re.sub(r"\d+", "#", said))) not in self._printed:
            self._printed.add(which)
            print(f"silo {self._names[silo]}: {said}", file=sys.stderr, flush=True)
            super().explain([silo])
        return kind_of(error)

    def explain(self, silos: Collection[int]) -> None:
        """Print nothing: `fault` has printed the traceback already."""

    def work(self, silo: Silo) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def seconds(self, spent: float) -> float:
        """Return a time rounded to two digits, an error of at most 5 %."""
        return float(f"{spent:.1e}")


def kind_of(error: Exception) -> str:
    """Return the kind of an error whose text must not be told."""
    chain = list(_chain(error))
    if any(short_of_memory(one) for one in chain):
        return MEMORY
    return next((kind for type, kind in KINDS.items() if any(isinstance(one, type) for one in chain)), OTHER)


def first_of(faults: Mapping[int, str], names: Names) -> str:
    """Return the first of some silos' faults, with the silo's name if the fault is only a kind."""
    silo, fault = next(iter(faults.items()))
    return f"silo {names[silo]}: {fault}" if fault in {*KINDS.values(), MEMORY, OTHER} else fault


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes.

    Causes may form a circle: after `raise error from error` an error is its own cause.
    """
    for _ in range(MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _described(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line, where = " ".join(str(error).split()), f"{Path(frame.filename).name}:{frame.lineno}"
    return f"{type(error).__name__}: {line} ({', '.join(filter(None, [where, place_of(error)]))})"


def _trace(error: Exception) -> str:
    """Return the traceback of an error without the worker's own frames at its beginning."""
    begin = error.__traceback__
    while begin and begin.tb_next and begin.tb_frame.f_code.co_filename == _WORKER:
        begin = begin.tb_next
    place = [f"in {place_of(error)}\n"] if place_of(error) else []
    return "".join([*traceback.format_exception(type(error), error, begin), *place])
