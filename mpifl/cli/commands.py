"""The commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mpifl import __version__
from mpifl.cli import (
    align_command as of_align,
    completing,
    demo as of_demo,
    ending,
    job_commands,
    listing,
    look_commands,
    model_commands,
    new_command as of_new,
    privacy_command as of_privacy,
    sites_commands,
)
from mpifl.cli.command_options import Elsewhere, JobFile, Out, Ranks, Set, write_text
from mpifl.cli.slurm import slurm_options as slurm
from mpifl.cli.texts import text_commands
from mpifl.common import CommandLine, InputError
from mpifl.common.machine import imports, runnable, signals, tuning

app = CommandLine(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Federated learning over MPI.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None: ...


@app.command()
def train(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the latest checkpoint in RUN.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Resume even if device, shards, local or cohort have changed.")
    ] = False,
    ranks: Ranks = None,
    survive: Annotated[bool, typer.Option("--survive", help="Continue when ranks die (Open MPI 5).")] = False,
    elsewhere: Elsewhere = False,
) -> None:
    """Train a model over the silos of a shard folder, on the ranks that --ranks or mpirun starts."""
    from mpifl.wire.launching import launcher

    signals.install()
    run = out or Path("runs") / job.stem
    starts = ranks is not None and ranks > 1
    if not launcher.launched():  # a launched rank may be on another machine, and rank 0's files count
        job_commands.check_first(job, set_, run, resume, force, starts=starts, elsewhere=elsewhere)
    if ranks is not None and starts and not launcher.launched():
        raise typer.Exit(ending.code_of_launched(lambda: launcher.launch(ranks, survive), run))
    from mpifl.cli.job_tools import check_ended, joined, trained

    transport = joined(ranks, survive)
    end = trained(transport, job, run, tuple(set_), resume=resume, force=force)
    if not transport.is_server:
        return
    check_ended(end, _again(job, set_, run, ranks, survive))
    from mpifl.report.runs import show_run

    show_run(run)


def _again(job: Path, set_: list[str], run: Path, ranks: int | None, survive: bool) -> str:
    """Return the command that continues a training."""
    changes = [word for key in set_ for word in ("--set", key)]
    command = ["mpifl", "train", str(job), *changes, "--out", str(run)]
    command += (["--ranks", str(ranks)] if ranks else []) + (["--survive"] if survive else [])
    return runnable(f"{shlex.join(command)} --resume")


app.command()(sites_commands.consent)
app.command()(sites_commands.join)
app.command()(sites_commands.withdraw)
app.command()(job_commands.check)
app.command()(job_commands.submit)
app.command()(job_commands.plan)
app.command()(model_commands.evaluate)
app.command()(model_commands.predict)
app.command()(text_commands.generate)
app.command()(text_commands.export)
app.command()(model_commands.convert)
app.command()(model_commands.baseline)


app.command()(look_commands.watch)
app.command()(look_commands.report)
app.command()(look_commands.compare)
app.command()(look_commands.bill)
app.command()(look_commands.coefficients)
app.command()(look_commands.stats)
app.command()(look_commands.survival)


@app.command()
def sweep(
    job: JobFile,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=A,B", help="Values of a key: local.lr=0.03,0.1")
    ] = None,
    setting: slurm.Together = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The runs; runs/NAME-sweep by default.")
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, help="MPI ranks of each run.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the commands, run nothing.")] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Show each task's number, state and run folder.")
    ] = False,
    task: Annotated[
        int | None, typer.Option(metavar="I", help="Run this task alone, for a job array.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Continue with runs that too few silos answered, too.")
    ] = False,
) -> None:
    """Train a job over a grid of settings, one run after another. Finished runs are skipped, cut ones go
    on."""
    from mpifl.cli.sweep import sweep_command

    what = "dry-run" if dry_run else "list" if list_ else "run"
    raise typer.Exit(
        sweep_command(job, set_ or (), out, ranks, what, task, retry=retry, settings=setting or ())
    )


@app.command()
def doctor(
    target: Annotated[
        Path | None, typer.Argument(metavar="[SHARDS|JOB.toml]", help="What is to be trained.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder to try; runs/NAME of a job.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all findings.")] = None,
    ranks: Ranks = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="After which it ends, whatever hangs.")
    ] = 60,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the job's local steps on all nodes, and no more.")
    ] = False,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measure some rounds of the job, and no more.")
    ] = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Look for problems that would hurt a training here, on all ranks that --ranks or mpirun starts. Exit
    code 1: there are some."""
    from mpifl.wire.launching import launcher

    if (compile or profile) and (out or json):
        raise InputError(
            f"--{'compile' if compile else 'profile'}: takes a job alone; leave --out and --json out"
        )
    if set_ and not profile:
        raise InputError("--set: changes a job that --profile FILE measures; give that, too, or leave it out")
    if compile and profile:
        raise InputError("--profile: --compile is given, too; give one after the other")
    if ranks is not None and ranks > 1 and not launcher.launched():
        raise typer.Exit(abs(launcher.launch(ranks)))
    if profile:
        with imports.gc_frozen():
            from mpifl.cli.plan import measure

        return measure(target, profile, tuple(set_))
    with imports.gc_frozen():
        from mpifl.cli.doctor import compile_steps, examine

    if compile:
        return compile_steps(target)
    raise typer.Exit(examine(target, out, json, timeout, ending.rank() == "0"))


@app.command()
def selftest() -> None:
    """Try this installation in two minutes: its files, MPI, the same bits on 1 and 3 ranks, after a kill, and
    without C. Exit code 1: something is wrong."""
    from mpifl.cli.doctor import try_installation

    if not try_installation(typer.echo):
        raise typer.Exit(1)


@app.command()
def keys(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", help="local, cohort, ...; all by default.", autocompletion=completing.tables
        ),
    ] = None,
) -> None:
    """Print the keys of the job file: values, default and meaning."""
    from mpifl.cli.job_tools import show_keys

    show_keys(table)


@app.command()
def schema(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there; by default print it.")
    ] = None,
) -> None:
    """Print the JSON schema of the job file, which editors use to complete its keys."""
    from mpifl.cli.job_tools import schema_text

    if out is None:
        typer.echo(schema_text(), nl=False)
    else:
        write_text("--out", out, schema_text())


app.command("list")(listing.list_names)
app.command()(listing.examples)
app.command()(of_new.new)
app.command()(of_demo.demo)
app.command()(of_align.align)
app.command()(of_privacy.privacy)
app.add_typer(sites_commands.app, name="identity")
app.add_typer(sites_commands.sites, name="sites")


def main() -> None:
    """Run a command and exit with its code."""
    tuning.keep_memory()
    ending.leave(ending.run(app))
