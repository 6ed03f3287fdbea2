"""A run watched in a terminal: on a login node, say, while the job runs elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live

from mpifl.common import Names
from mpifl.report.observers import PLAIN, figures_of, on_terminal
from mpifl.report.runs import show_next
from mpifl.report.terminal.following import Follower, Look, State, leaving_in_order
from mpifl.report.terminal.frame import frame

WIDE, HIGH = 100, 40
"""Of the one picture that goes to a file."""


def watch_run(run: Path, every: float = 2.0, once: bool = False, wait: bool = False) -> State:
    """Show how a run continues until it ends: a picture on a terminal, else a line for each round.

    Args:
        every: Seconds between two looks.
        once: Show it once, as it is now.
        wait: Wait for a run that is yet to begin, or to continue.

    Returns:
        What it was doing when last looked at.

    Raises:
        InputError: it is no run, or cannot be read.
    """
    follower = Follower(run, wait)
    look = follower.look()  # what is wrong is told before the screen is taken
    live = on_terminal()
    console = Console(**PLAIN) if live else Console(width=WIDE, height=HIGH, force_terminal=False, **PLAIN)
    if not live and not once:
        return _lines(follower, look, every)
    if live and not once and not look.state.over:
        look = _pictures(follower, look, every, console)
    _show(console, look)
    if look.state is State.FINISHED and live:
        show_next(console, run)
    return look.state


def _pictures(follower: Follower, look: Look, every: float, console: Console) -> Look:
    """Draw look after look on a screen of its own, which is given back whatever happens."""
    with Live(console=console, screen=True, auto_refresh=False) as live, _given_back(live):
        while not look.state.over:
            live.update(frame(look, console.width, console.height, console.options.ascii_only), refresh=True)
            time.sleep(every)
            look = follower.look()
    return look


@contextlib.contextmanager
def _given_back(live: Live) -> Iterator[None]:
    """Give the screen back while the program is stopped by TSTP, and when it is ended."""

    def pause(number: int, _: object) -> None:
        live.stop()
        os.kill(os.getpid(), signal.SIGSTOP)
        live.start()

    before = signal.signal(signal.SIGTSTP, pause)
    try:
        with leaving_in_order():
            yield
    finally:
        signal.signal(signal.SIGTSTP, before)


def _show(console: Console, look: Look) -> None:
    """Print a picture where the terminal goes on; without blank rows below."""
    console.print(frame(look, console.width, console.height, console.options.ascii_only))


def _lines(follower: Follower, look: Look, every: float) -> State:
    """Print a line for each round as it comes, and one for the end."""
    told, waiting = 0, False
    while True:
        summary = look.summary
        told = min(told, look.rounds)  # a run that continues does some again
        names = Names(look.environment.get("silos", ()))
        for record in summary.records if summary else ():
            if summary and record["round"] > told:
                told = record["round"]
                figures = figures_of(record, names, summary.metric, summary.by_valid)
                print(f"round {told}  {figures}", flush=True)
        if look.state.over:
            print(f"{look.run} {look.state.value}", flush=True)
            return look.state
        if look.state is State.AWAITED and not waiting:
            print(f"{look.run} {look.state.value}", flush=True)
        waiting = look.state is State.AWAITED
        time.sleep(every)
        look = follower.look()
