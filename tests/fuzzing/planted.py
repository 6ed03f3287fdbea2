"""Readers that do each of the things that must not be:
`scripts/fuzz.py --kinds fuzzing.planted` must find them all."""

import os
import signal
import time
from pathlib import Path

from fuzzing.outcomes import MOST_MEMORY, Kind


def make(folder: Path) -> None:
    folder.mkdir()


def spin(_: object) -> None:
    while True:
        pass


def turn_deaf(_: object) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)


def crash(_: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def swell(_: object) -> int:
    return len(b"\1" * ((MOST_MEMORY + 200) << 20))


def draw_one(draw, valid, folder):
    return draw.randrange(2)


KINDS = {
    "sound": Kind(draw_one, (1.0).__truediv__, (ZeroDivisionError,)),
    "traceback": Kind(draw_one, lambda given: {}[given], (ValueError,)),
    "hang": Kind(draw_one, spin, ()),
    "deaf": Kind(draw_one, turn_deaf, ()),
    "crash": Kind(draw_one, crash, ()),
    "memory": Kind(draw_one, swell, ()),
}
