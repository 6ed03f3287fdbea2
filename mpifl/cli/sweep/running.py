"""Runs a grid's tasks as separate programs, so that a failed run does not end the others."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mpifl.cli.sweep.settings_grid import GridRun, grid, validate_all
from mpifl.common import InputError, cannot_be_written, no_link
from mpifl.report.observers import PLAIN, figures_of
from mpifl.report.pages import write_best
from mpifl.report.runs import Output, compare_runs, runs_in
from mpifl.run.folder import read_metrics, why_lost
from mpifl.wire.launching import check_launch

LOST = 3
"""The exit code if too few silos answered, for example when a training diverges."""
INTERRUPTED = 75
LOOK = 0.2
"""Seconds between two checks of a run."""
LONGEST = 200
"""The most characters that are shown of a run's last line."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
Lent = Callable[[GridRun], contextlib.AbstractContextManager[object]]
"""What is there for a task while it runs."""


def list_tasks(tasks: Sequence[GridRun]) -> str:
    """Return a line for each task with tabs: number, state (new, cut, lost or done) and run folder."""
    return "".join(f"{task.number}\t{task.state}\t{task.run}\n" for task in tasks)


def sweep_command(
    job: Path,
    given: Sequence[str],
    out: Path | None,
    ranks: int,
    what: str,
    number: int | None,
    retry: bool = False,
    settings: Sequence[str] = (),
) -> int:
    """Carry out `mpifl sweep` and return its exit code.

    Args:
        job: The job file.
        given: Keys and their values.
        out: The folder of the runs.
        ranks: MPI ranks of each run.
        what: `run`, `list` or `dry-run`.
        number: The number of the only task, or None for all.
        retry: Also continue runs that were lost.
        settings: Keys whose values go together.

    Raises:
        InputError: an argument is wrong.
    """
    if not given and not settings:
        raise InputError("sweep: nothing is varied; give --set, for instance --set local.lr=0.03,0.1")
    tasks = grid(job, given, out or Path("runs") / f"{job.stem}-sweep", settings)
    whole = tasks
    if number is not None:
        if not 0 <= number < len(tasks):
            raise InputError(f"--task {number}: there are the tasks 0 to {len(tasks) - 1}")
        tasks = tasks[number : number + 1]
    if what == "list":
        sys.stdout.write(list_tasks(tasks))
        return 0
    validate_all(tasks, job)
    if what == "dry-run":
        lines = [f"{shlex.join(command(task, job, ranks))}  # {task.state}\n" for task in tasks]
        sys.stdout.write("".join(lines))
        return 0
    if len(tasks) > 1 and any(task.job.privacy is not None for task in tasks):
        shared = "settings share the ledger of each site, and spend of one budget in the order of their runs"
        print(f"[privacy] {shared}; a later one may end early", file=sys.stderr, flush=True)
    return run_all(tasks, job, ranks, retry, whole)


def command(task: GridRun, job: Path, ranks: int) -> list[str]:
    """Return the command that runs or continues a task."""
    settings = [word for setting in task.settings for word in ("--set", setting)]
    program = [sys.executable, "-m", "mpifl", "train", str(task.file or job)]
    train, ranks = [*program, "--out", str(task.run), "--resume", *settings], task.ranks or ranks
    return [*train, "--ranks", str(ranks)] if ranks > 1 else train


def run_task(
    task: GridRun, job: Path, ranks: int, look: Callable[[bool], None] = lambda stopping: None
) -> int:
    """Run or continue one task, and return its exit code; its output goes to RUN/log.txt.

    On a signal that asks this program to end, the run writes its checkpoint and ends; on a second one it ends
    at once. The code is then 75.

    Args:
        job: The job file.
        ranks: MPI ranks.
        look: Called from time to time with whether the run was asked to stop.

    Raises:
        InputError: its folder cannot be written.
    """
    try:
        task.run.mkdir(parents=True, exist_ok=True)
        open(task.log, "ab", opener=no_link).close()
    except OSError as error:
        raise cannot_be_written(task.run, error) from None
    words, asked = command(task, job, ranks), []
    before = {number: signal.signal(number, lambda given, _: asked.append(given)) for number in STOPS}
    try:
        with open(task.log, "ab", opener=no_link) as out:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        heard = 0
        while process.poll() is None:
            if (
                len(asked) > heard
            ):  # a run that starts ranks passes a first INT on to them, and ends them at a second
                single = (task.ranks or ranks) == 1
                process.send_signal(signal.SIGKILL if heard and single else signal.SIGINT)
                heard = len(asked)
            look(bool(asked))
            time.sleep(LOOK)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = process.returncode
    return INTERRUPTED if asked else 128 - code if code < 0 else code  # as shells report a death by a signal


def run_all(
    tasks: Sequence[GridRun], job: Path, ranks: int, retry: bool = False, whole: Sequence[GridRun] = ()
) -> int:
    """Run all tasks that are not done, one after another, and print the comparison of all.

    A lost run would be lost again with the same bits, so it continues only with `retry`. A page is written of
    several tasks, and where one task was the last of the `whole` grid.

    Returns:
        0; 75 if a signal stopped it; else the exit code of the first run that failed, now or earlier.

    Raises:
        InputError: there is no launcher for ranks, or a folder cannot be written.
    """
    codes = run_each(tasks, job, ranks, retry)
    if INTERRUPTED in codes:
        return INTERRUPTED
    if any(task.summary() is not None for task in tasks):
        targets = {task.job.evaluate.wanted for task in tasks}
        # from the tasks, since the job of a run that was done before may name another
        target = targets.pop() if len(targets) == 1 else None
        begun, page = [task.run for task in tasks if task.state != "new"], None
        ended = all(task.state in ("done", "lost") for task in whole)
        if len(tasks) > 1 or (len(whole) > 1 and ended):  # of an array the last task writes the page
            page = tasks[0].run.parent / "sweep.html"
            begun = [*dict.fromkeys([*begun, *runs_in(page.parent)])]  # the page stays that of all
            write_best(begun, search=True)
        compare_runs(begun, target, Output(page=page), search=True)
    return next((code for code in codes if code), 0)


def run_each(
    tasks: Sequence[GridRun],
    job: Path,
    ranks: int,
    retry: bool = False,
    lent: Lent = contextlib.nullcontext,
    first_counts: bool = False,
) -> list[int]:
    """Run all tasks that are not done, one after another, with a line for each.

    Args:
        job: The job file of those that have none of their own.
        ranks: MPI ranks of each run.
        retry: Also continue runs that were lost.
        lent: What is there for a task while it runs.
        first_counts: Whether the others are of no use if the first task fails.

    Returns:
        The exit code of each, now or earlier; the last is 75 if a signal stopped it.

    Raises:
        InputError: no launcher starts the ranks, or a folder cannot be written.
    """
    codes: list[int] = []
    if (most := max((task.ranks or ranks for task in tasks), default=1)) > 1:
        check_launch(most, f"--ranks {most}")  # so that this is one line, not one for each run
    with _SweepProgress(tasks) as progress:
        for task in tasks:
            state = task.state
            if state == "done" or (state == "lost" and not retry):
                progress.skip(task, state)
                codes.append(LOST if state == "lost" else 0)
                continue
            with lent(task):
                codes.append(run_task(task, job, ranks, partial(progress.look, task)))
            progress.end(task, codes[-1])
            if codes[-1] == INTERRUPTED:
                progress.say("stopped by a signal; the same command continues")
                break
            if first_counts and codes[0]:
                break
    return codes


class _SweepProgress:
    """A line for each run, above a progress bar over the rounds of all runs."""

    def __init__(self, tasks: Sequence[GridRun]) -> None:
        self._tasks = tasks
        self._console = Console(**PLAIN)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TaskProgressColumn(),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console, disable=not self._console.is_terminal, speed_estimate_period=24 * 3600,
        )  # fmt: skip
        self._all = self._bar.add_task("", total=sum(task.job.rounds for task in tasks), figures="")
        self._before = 0

    def __enter__(self) -> _SweepProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)

    def skip(self, task: GridRun, state: str) -> None:
        self._before += task.job.rounds
        self._bar.reset(self._all, completed=self._before)
        why = ""
        if state == "lost":
            why = f": {shortened(why_lost(task.run) or '')}; give --retry to continue with it"
        self.say(f"{self._nth(task)} {state} before{why}")

    def look(self, task: GridRun, stopping: bool) -> None:
        records = read_metrics(task.run)
        last = records[-1] if records else {"round": 0}
        told = f"round {last['round']} {figures_of(last, metric=task.metric, valid=task.by_valid)}"
        figures = "stopping; once more ends it at once" if stopping else told
        done = self._before + last["round"]
        self._bar.update(self._all, completed=done, description=self._nth(task), figures=figures)

    def end(self, task: GridRun, code: int) -> None:
        self._before += task.job.rounds
        self._bar.update(self._all, completed=self._before)
        found = task.summary()
        rounds = "no round" if found is None else f"{found.rounds} rounds  {found.total('seconds'):.1f} s"
        figures = figures_of(found.of_model, metric=task.metric, valid=task.by_valid) if found else ""
        self.say(f"{self._nth(task)} {rounds}  {figures}")
        if code not in (0, INTERRUPTED):
            self.say(f"  ended with exit code {code}, {task.log} says: {_last_line(task)}")

    def _nth(self, task: GridRun) -> str:
        return f"[{task.number + 1}/{len(self._tasks)}] {task.name}"


def _last_line(task: GridRun) -> str:
    """Return the last line of a run's log on its error."""
    lines = [line for line in task.log.read_text(errors="replace").splitlines() if line.strip(" -")]
    errors = [line for line in lines if line.startswith("error:")]
    last = next(iter([*reversed(errors), *reversed(lines)]), "nothing")
    return shortened(last)


def shortened(said: str) -> str:
    """Return a line, shortened if it is too long."""
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
