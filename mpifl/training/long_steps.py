"""Reports on stderr when the server computes for long. A thread watches the server's stack.

So rounds need no extra calls and cost nothing more. Training and scoring always take long and are not
reported. Waiting for ranks is reported elsewhere.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import dropwhile, takewhile
from pathlib import Path
from types import CodeType, FrameType

PATIENCE = 60.0
"""Seconds of computing until the first report; each further report waits twice as long."""
LOOKS = 24
"""How often the thread looks at the stack in that time. A step is what all looks since the last report
share."""
_LONG = {
    ("mpifl.exchange.worker_side.worker", "_work"),  # including a user's own loop
    ("mpifl.wire.point_to_point", "_until"),
    ("mpifl.wire.nodes", "poll"),
}
"""Functions that train, or wait for other ranks."""
_OF_WINGS = ("fast", "dpsgd", "split", "scoring", "sites.letters")
_LONG_ROOMS = ("mpifl.silo.", *(f"mpifl.wings.{wing}." for wing in _OF_WINGS))
PACKAGE = Path(__file__).parents[1]

Step = tuple[CodeType, int]
"""A function of the stack, and the line in it."""


class LongSteps:
    """A context that reports on stderr in which step its own thread computes for long.

    Args:
        round: Returns a value that changes when a new step begins.
    """

    def __init__(self, round: Callable[[], object] = lambda: None) -> None:
        self._round, self._of = round, threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="long steps", daemon=True)

    def __enter__(self) -> LongSteps:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        common: list[Step] = []
        since, due, round = time.monotonic(), PATIENCE, self._round()
        while not self._over.wait(PATIENCE / LOOKS):
            steps, now = list(self._stack()), time.monotonic()
            if not steps or self._round() != round:
                common, since, due, round = [], now, PATIENCE, self._round()
                continue
            common = _in_common(common or steps, steps)
            if now - since >= due:
                print(_said(now - since, common), file=sys.stderr, flush=True)
                common, due = [], 2 * due

    def _stack(self) -> Iterator[Step]:
        """Yield the steps of the stack, outermost first; none while the server trains, scores or waits."""
        frames = list(_outwards(sys._current_frames().get(self._of)))
        if not any(map(_is_long, frames)):
            for frame in reversed(frames):
                yield frame.f_code, frame.f_lineno


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_long(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return (module, frame.f_code.co_name) in _LONG or module.startswith(_LONG_ROOMS)


def _in_common(before: list[Step], now: list[Step]) -> list[Step]:
    """Return the calls that both stacks share, with the current lines."""
    both = takewhile(lambda pair: pair[0][0] is pair[1][0], zip(before, now, strict=False))
    return [latest for _, latest in both]


def _said(seconds: float, steps: list[Step]) -> str:
    """Return a line about an import, or the innermost step in code of mpifl or of the user."""
    within = dropwhile(lambda step: step[0].co_name != "_find_and_load", steps)
    loaded = (Path(code.co_filename) for code, _ in within if code.co_name == "<module>")
    for file in (one for one in loaded if not one.is_relative_to(PACKAGE)):
        _, _, below = str(file).rpartition("/site-packages/")
        name = Path(below).parts[0] if below != str(file) else file.stem
        name = file.parent.name if name == "__init__" else name.removesuffix(".py")
        return f"the server is still importing {name} after {seconds:.0f} s; it goes on when that is loaded"
    own = [(code, line) for code, line in steps if _is_own(code.co_filename)]
    code, line = (own or steps)[-1]
    where = "/".join(Path(code.co_filename).parts[-2:])
    if any(code.co_name == "models_of" for code, _ in own):
        return f"the server still builds and tries the model after {seconds:.0f} s; it goes on by itself"
    what = f"the server has worked for {seconds:.0f} s on {code.co_name} ({where}, line {line})"
    return f"{what}; nothing has failed, and it goes on; 'mpifl watch RUN' tells when a round ends"


def _is_own(file: str) -> bool:
    return file.startswith(str(PACKAGE)) or not file.startswith((sys.prefix, sys.base_prefix, "<"))
