"""A run's page, kept fresh while the run continues."""

from __future__ import annotations

import time
from pathlib import Path

from mpifl.common.pages import write_page
from mpifl.report.pages.run_page import bare_page, loads_itself, page, place
from mpifl.report.runs import Summary, read_run
from mpifl.report.terminal import Follower, Look, State, leaving_in_order


def keep_report(run: Path, out: Path | None = None, every: float = 10.0, alone: Path | None = None) -> State:
    """Write a run's page anew whenever there are more rounds, until the run ends; return how it did.

    Raises:
        InputError: it is no run, it cannot be read, or the page not be written.
    """
    path, follower, beside = place(run, out), Follower(run), read_run(alone) if alone else None
    look = follower.look()
    print(f"report: {path}", flush=True)
    written: tuple[int, State] | None = None
    try:
        with leaving_in_order():
            while not look.state.over:
                if written != (look.rounds, look.state):
                    write_page("--out", path, _page(look, every, beside))
                    written = look.rounds, look.state
                time.sleep(every)
                look = follower.look()
    finally:  # nobody keeps it fresh from here on
        write_page("--out", path, _page(look, None, beside))
    print(f"{run} {look.state.value}", flush=True)
    return look.state


def _page(look: Look, every: float | None, alone: Summary | None = None) -> str:
    if look.summary is not None:
        return page(look.summary, every, alone)
    said = ["No round is recorded yet.", *([] if every is None else [loads_itself(every)])]
    state = look.state.value, "warn", str(look.run)
    return bare_page(look.run, look.job, state, [("", " ".join(said))], every)
