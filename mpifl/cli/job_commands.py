"""The commands that look at a job before its ranks start: `check`, `plan` and `submit`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from mpifl.cli import ending, sites_commands
from mpifl.cli.command_options import DryRun, Elsewhere, JobFile, Measured, Out, Set, write_text
from mpifl.cli.slurm import slurm_options as slurm
from mpifl.common import InputError


def check(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="The run in RUN is to continue.")] = False,
    force: Annotated[bool, typer.Option("--force", help="As of train, with --resume.")] = False,
    elsewhere: Elsewhere = False,
) -> None:
    """Check a job before it is trained: keys, model, shards, weights, budgets and the run folder.

    It needs no MPI, and writes nothing. Each problem is a line, and the exit code is then 2. An MPI launcher
    that is there is tried, and a warning tells if it starts nothing.
    """
    from mpifl.cli.job_tools import summary_of, whole
    from mpifl.wire.launching import check_launch, launcher

    run = out or Path("runs") / job.stem
    found = whole(job, set_, run, resume, force, elsewhere, tries=True)
    notes = [*found.notes, *found.at_start]
    if _has_launcher() and not launcher.launched():
        try:
            check_launch(1, "warning")
        except InputError as error:
            notes.append(str(error))
    for note in notes:
        typer.echo(note, err=True)
    for problem in found.problems:
        typer.echo(f"error: {problem}", err=True)
    if found.problems:
        raise typer.Exit(ending.WRONG)
    lines = "line" if len(notes) == 1 else f"{len(notes)} lines"
    verdict = f"no error, but read the {lines} above" if notes else "nothing is wrong"
    typer.echo(f"{job}: {verdict}: {summary_of(found)}, run folder {run}")


def _has_launcher() -> bool:
    """Tell whether there is an MPI library with a launcher, which a login node may lack."""
    from mpifl.wire.launching import own_launcher

    with suppress(InputError):
        return bool(own_launcher())
    return False


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


def plan(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    profile: Measured = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Of the profile's worlds that of so many.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="The same by nodes.")] = None,
    like: Annotated[Path | None, typer.Option(metavar="RUN", help="Tell costs to the target by it.")] = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")] = None,
) -> None:
    """Print what a job will move and keep, without MPI and without training: bytes, checkpoints, epsilon.
    With --profile also time and memory."""
    from mpifl.cli.plan import planned, show_plan, until_target

    figures = planned(job, tuple(set_), profile, ranks, nodes)
    if like is not None:
        figures["to_target"] = until_target(job, tuple(set_), like, figures)
    show_plan(figures)
    if out is not None:
        write_text("--json", out, json.dumps(figures, indent=2) + "\n")


def submit(
    job: JobFile,
    words: slurm.Words = [],  # noqa: B006
    set_: Set = [],  # noqa: B006
    out: Out = None,
    nodes: slurm.Nodes = None,
    ranks: slurm.Tasks = None,
    gpus_per_node: slurm.Gpus = 0,
    cpus_per_task: slurm.Cpus = None,
    time: slurm.Time = None,
    partition: Annotated[str | None, typer.Option()] = None,
    account: Annotated[str | None, typer.Option()] = None,
    mem: slurm.Mem = None,
    qos: Annotated[str | None, typer.Option()] = None,
    constraint: slurm.Constraint = None,
    gres: slurm.Gres = None,
    exclusive: slurm.Exclusive = False,
    mail_type: slurm.MailType = None,
    dependency: slurm.Dependency = None,
    launcher: slurm.Launcher = "auto",
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="As of train, for the first start alone.")] = False,
    elsewhere: Elsewhere = False,
    sweep: slurm.Sweep = False,
    setting: slurm.Together = None,
    at_once: slurm.AtOnce = None,
    plan: slurm.ByPlan = None,
    join: slurm.Join = False,
    shards: slurm.Shards = None,
) -> None:
    """Train, or join a run over sites, as a SLURM job that queues itself again until it is done."""
    from mpifl.cli.slurm import SlurmOptions, submit_job

    ranks, nodes, time, mem = _by_plan(plan, job, set_, (ranks, nodes, time, mem), sweep=sweep)
    asked = {"mem": mem, "qos": qos, "constraint": constraint, "gres": gres, "exclusive": exclusive or None}
    asked |= {"mail-type": mail_type, "dependency": dependency}
    wishes = SlurmOptions(
        *(nodes or 1, ranks, gpus_per_node, cpus_per_task, time, partition, account),
        *(launcher, elsewhere, sweep, at_once, tuple(setting or ()), asked, tuple(words)),
    )
    if join or shards:
        fits = join and not (set_ or force or plan)
        return sites_commands.submit_joining(job, shards, out, wishes, fits, dry_run=dry_run)
    usual = f"{job.stem}-sweep" if sweep else job.stem
    submit_job(job, out or Path("runs") / usual, tuple(set_), wishes, dry_run, force)


Asked = tuple[int | None, int | None, str | None, str | None]
"""Ranks, nodes, --time and --mem; None leaves one to the plan."""


def _by_plan(plan: Path | None, job: Path, overrides: list[str], given: Asked, *, sweep: bool) -> Asked:
    """Return what SLURM is asked for: what is given, and else what a plan says, if there is one.

    Raises:
        InputError: the plan does not fit the job, or what is given.
    """
    if plan is None:
        return given
    from mpifl.cli.plan import asked_by

    if sweep:
        raise InputError("--plan: is of one job, and a sweep's runs differ; give --time and --mem for all")
    ranks, nodes, time, mem = given
    found = asked_by(plan, job, overrides, ranks, nodes)
    return found["ranks"], found["nodes"], time or found["sbatch"]["time"], mem or found["sbatch"]["mem"]
