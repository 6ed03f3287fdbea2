"""The commands that look at a job before its ranks start: `check` and `submit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mpifl.cli import ending
from mpifl.cli.command_options import DryRun, Elsewhere, JobFile, Out, Set


def check(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="The run in RUN is to continue.")] = False,
    force: Annotated[bool, typer.Option("--force", help="As of train, with --resume.")] = False,
    elsewhere: Elsewhere = False,
) -> None:
    """Check a job before it is trained: keys, model, shards, weights, budgets and the run folder.

    It needs no MPI, and writes nothing. Each problem is a line, and the exit code is then 2.
    """
    from mpifl.cli.job_tools import summary_of, whole

    run = out or Path("runs") / job.stem
    found = whole(job, set_, run, resume, force, elsewhere, tries=True)
    for note in found.notes:
        typer.echo(note, err=True)
    for problem in found.problems:
        typer.echo(f"error: {problem}", err=True)
    if found.problems:
        raise typer.Exit(ending.WRONG)
    typer.echo(f"{job}: nothing is wrong: {summary_of(found)}, run folder {run}")


def check_first(
    job: Path, overrides: list[str], run: Path, resume: bool, force: bool, *, starts: bool, elsewhere: bool
) -> None:
    """Check a job before it is trained: as `check` does if ranks are started, else quickly.

    Raises:
        InputError: the training would be refused.
    """
    from mpifl.cli.job_tools import check_beforehand, check_whole

    if not starts:
        return check_beforehand(job, overrides, run, resume, force)
    for note in check_whole(job, overrides, run, resume, force, elsewhere).notes:
        typer.echo(note, err=True)


def submit(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    out: Out = None,
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", "--ntasks", min=1, help="By default a worker a silo, and the server."),
    ] = None,
    gpus_per_node: Annotated[int, typer.Option(min=0, help="A worker each.")] = 0,
    cpus_per_task: Annotated[int | None, typer.Option(min=1, help="The job's threads by default.")] = None,
    time: Annotated[str | None, typer.Option(help="As sbatch takes it: 30 (minutes), 2:00:00, 1-12.")] = None,
    partition: Annotated[str | None, typer.Option()] = None,
    account: Annotated[str | None, typer.Option()] = None,
    launcher: Annotated[str, typer.Option(help="auto, srun or mpirun.")] = "auto",
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="As of train, for the first start alone.")] = False,
    elsewhere: Elsewhere = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="--set KEY=A,B: each run of the grid is a task of a job array.")
    ] = False,
    at_once: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --sweep: so many tasks at a time.")
    ] = None,
) -> None:
    """Train as a SLURM job that queues itself again until it is done; with --sweep, as an array of them."""
    from mpifl.cli.job_tools import SlurmOptions, submit_job

    wishes = SlurmOptions(
        nodes=nodes,
        ranks=ranks,
        gpus_per_node=gpus_per_node,
        cpus_per_task=cpus_per_task,
        time=time,
        partition=partition,
        account=account,
        launcher=launcher,
        elsewhere=elsewhere,
        sweep=sweep,
        at_once=at_once,
    )
    usual = f"{job.stem}-sweep" if sweep else job.stem
    submit_job(job, out or Path("runs") / usual, tuple(set_), wishes, dry_run, force)
