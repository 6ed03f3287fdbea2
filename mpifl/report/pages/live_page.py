"""A run's page, kept fresh while the run goes on."""

from __future__ import annotations

import time
from pathlib import Path

from mpifl.common.pages import render, write_page
from mpifl.report.pages.run_page import loads_itself, page, place, title_of
from mpifl.report.runs import Follower, Look, State, Summary, leaving_in_order, read_run


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
    name = str(look.job.get("name", look.run.name))
    said = ["No round is recorded yet.", *([] if every is None else [loads_itself(every)])]
    head, state = [("", " ".join(said))], (look.state.value, "warn", str(look.run))
    return render("report.html", title=title_of(look.run, look.job), name=name, every=every, broad=False,
                  state=state, head=head, cards=[], figures=[], folds=[])  # fmt: skip
