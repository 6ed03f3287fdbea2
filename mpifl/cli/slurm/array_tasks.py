"""The runs of a batch job: one, or those of a sweep, each a task of a job array."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpifl.cli.sweep import GridRun, grid
from mpifl.common import InputError
from mpifl.run.job import Job


@dataclass(frozen=True)
class ArrayTask:
    """A run of a batch job.

    Attributes:
        number: The task's number in the array; None if there is no array.
        run: The run folder.
        overrides: Keys of the job to change.
    """

    number: int | None
    run: Path
    overrides: tuple[str, ...]


def tasks_left(
    job_file: Path, overrides: Sequence[str], out: Path, settings: Sequence[str] = ()
) -> list[ArrayTask]:
    """Return the runs of a sweep that are not done.

    Args:
        overrides: Keys with their values, as `mpifl sweep --set` takes them.
        settings: Keys whose values go together, as `mpifl sweep --setting` takes them.
        out: The folder of the runs.

    Raises:
        InputError: all are done, or a key, a value or a run folder is wrong.
    """
    tasks = grid(job_file, overrides, out, settings)
    left = [ArrayTask(task.number, task.run, task.settings) for task in tasks if task.state != "done"]
    if not left:
        raise InputError(f"{out}: all {len(tasks)} runs are done; look at them by mpifl compare {out}")
    if len(tasks) == 1:
        what = "no key has several values; give them, such as --set seed=1,2,3, or leave --sweep out"
        raise InputError(f"--sweep: {what}")
    return left


def check_not_done(job: Job, run: Path) -> None:
    """See that a single run has something left to train, as the runs of a sweep are seen to."""
    if GridRun(0, run.name, run, (), job).state == "done":
        more = f"more rounds, such as --set rounds={2 * job.rounds}"
        raise InputError(f"{run}: is done; look at it by mpifl report {run}, or give {more}")


def told_to(tasks: Sequence[ArrayTask], train: Sequence[str]) -> str:
    """Return the lines of a script that set the run folder and the command of its run, or of its task's."""

    def told(task: ArrayTask) -> str:
        words = [word for override in task.overrides for word in ("--set", override)]
        return f'run={shlex.quote(str(task.run))}\ntrain=({shlex.join([*train, *words])} --out "$run")\n'

    if tasks[0].number is None:
        return told(tasks[0])
    cases = "".join(f"{task.number})\n{told(task)};;\n" for task in tasks)
    return f"case $SLURM_ARRAY_TASK_ID in\n{cases}esac\n"
