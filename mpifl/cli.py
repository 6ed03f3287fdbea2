"""The commands. What is wrong with a job is one line and exit code 2;
a fault of the program ends every rank."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import stat
import sys
import termios
import time
import traceback
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from mpifl import __version__
from mpifl.common import InputError, RoundLost, imports, one_line, signals, tuning, written_after

WRONG, TOO_FEW, CUT_OFF, INTERRUPTED = 2, 3, 4, 75
"""Exit codes: the job, a shard or an argument is wrong; too few silos answered; the launcher ended early;
stopped by a signal. The last two: resume me."""

_UsageError: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]  # click's, or typer's copy of it
_speaks: list[Callable[[], bool]] = [lambda: _rank() == "0"]
"""Whether this rank tells the user; the last holds: another may become the server."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key: local.lr=0.05")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder; runs/NAME by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the latest checkpoint in RUN.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Resume even if device, shards, local or cohort have changed.")
    ] = False,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Start so many ranks, without mpirun.")
    ] = None,
    survive: Annotated[bool, typer.Option("--survive", help="Go on when ranks die (Open MPI 5).")] = False,
) -> None:
    """Train a model over the silos of a shard folder, on the ranks that --ranks or mpirun starts."""
    from mpifl.wire import launcher

    signals.install()
    run = out or Path("runs") / job.stem
    if ranks is not None and ranks > 1 and not launcher.launched():
        raise typer.Exit(_launched(launcher.launch(ranks, survive), run))
    with imports.gc_frozen():
        from mpifl.data import start_parser

        start_parser()  # it has to import h5py, while this process imports torch and joins the others
        from mpifl.training import loop as training
        from mpifl.wire import survivable, world

    transport = world()
    if survive and transport.size > 1 and not survivable():
        raise InputError(
            "--survive: the launcher ends all ranks when one dies; start it with mpirun --with-ft ulfm"
        )
    if ranks not in (None, transport.size):
        started = f"the launcher has started {transport.size}"
        raise InputError(f"--ranks {ranks}: {started}; leave --ranks out, or the launcher")
    _speaks[1:] = [lambda: transport.is_server]
    with tuning.subnormals_as_zero():
        end = training.train(job, run, tuple(set_), resume, transport, force)
    if not transport.is_server:
        return
    if end is not training.End.FINISHED:
        again = [
            "mpifl",
            "train",
            str(job),
            *(word for key in set_ for word in ("--set", key)),
            "--out",
            str(run),
        ]
        again += (["--ranks", str(ranks)] if ranks else []) + (["--survive"] if survive else [])
        saved = (
            "with a checkpoint written" if end is training.End.SAVED else "and no checkpoint could be written"
        )
        typer.echo(f"stopped by a signal {saved}; go on with: {shlex.join(again)} --resume")
        raise typer.Exit(INTERRUPTED)
    from mpifl.report import show_run

    show_run(run)


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key: local.lr=0.05")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder; runs/NAME by default.")
    ] = None,
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="As of train, for the first start alone.")] = False,
) -> None:
    """Train as a SLURM job that queues itself again until it is done."""
    from mpifl.tools import SlurmOptions, submit_job

    wishes = SlurmOptions(nodes, ranks, gpus_per_node, cpus_per_task, time, partition, account, launcher)
    submit_job(job, out or Path("runs") / job.stem, tuple(set_), wishes, dry_run, force)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    trust: Annotated[
        list[str], typer.Option(metavar="MODULE:NAME", help="Import this code, if the run's job names it.")
    ] = [],  # noqa: B006
) -> None:
    """Score the model of a finished run on its shard folder's test set."""
    with imports.gc_frozen():
        from mpifl.report import evaluate_run

    evaluate_run(run, trust)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            "--target-accuracy",
            help="Report rounds, seconds and bytes to it; by default the jobs' own.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw curves: PNG, SVG or PDF.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a line for every run.")] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures.")] = None,
) -> None:
    """Compare runs by main metric, loss, rounds, bytes and seconds;
    what differs by seed alone also by its mean."""
    from mpifl.report import Output, compare_runs

    compare_runs(runs, target, Output(plot, csv, json))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; the run may still be going on.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; RUN/report.html by default.")
    ] = None,
) -> None:
    """Write a run's page: one HTML file that opens anywhere."""
    from mpifl.report import write_report

    typer.echo(f"report: {write_report(run, out)}")


@app.command()
def sweep(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=A,B", help="Values of a key: local.lr=0.03,0.1")
    ],
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
        bool, typer.Option("--retry", help="Go on with runs that too few silos answered, too.")
    ] = False,
) -> None:
    """Train a job over a grid of settings, one run after another;
    what is done is skipped, what was cut goes on."""
    from mpifl.tools.sweep import sweep_command

    what = "dry-run" if dry_run else "list" if list_ else "run"
    raise typer.Exit(sweep_command(job, set_, out, ranks, what, task, retry))


@app.command()
def doctor(
    target: Annotated[
        Path | None, typer.Argument(metavar="[SHARDS|JOB.toml]", help="What is to be trained.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run folder to try; runs/NAME of a job.")
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all findings.")] = None,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Start so many ranks, without mpirun.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="After which it ends, whatever hangs.")
    ] = 60,
) -> None:
    """Look for what would hurt a training here,
    on all ranks that --ranks or mpirun starts; exit code 1 if there is."""
    from mpifl.wire import launcher

    if ranks is not None and ranks > 1 and not launcher.launched():
        raise typer.Exit(abs(launcher.launch(ranks)))
    with imports.gc_frozen():
        from mpifl.tools.doctor import examine

    raise typer.Exit(examine(target, out, json, timeout, _rank() == "0"))


@app.command()
def keys(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="local, cohort, ...; all by default.")
    ] = None,
) -> None:
    """Print the keys of the job file: values, default and meaning."""
    from mpifl.tools import show_keys

    show_keys(table)


@app.command()
def schema() -> None:
    """Print the JSON schema of the job file, by which editors complete its keys."""
    from mpifl.tools import show_schema

    show_schema()


def _launched(code: int, run: Path) -> int:
    """Return the exit code of a training, given its launcher's, and say how to go on where the ranks could
    not.

    The launcher's is not to be trusted where ranks may outlive each other: it is 0 when a node is lost, too.
    """
    if code < 0:
        _say("stopped by a signal before the training began; run the same command again")
        return INTERRUPTED
    whole = written_after(run / "model.safetensors", run / "job.toml")  # since the run folder was last taken
    if (code == 0 and not whole) or code > 128:
        _say(f"error: {run}: ranks died, and the training ended with them; go on with --resume")
        return code or CUT_OFF
    return code


def main() -> None:
    """Run a command and exit with its code."""
    tuning.keep_memory()
    code = _run()
    if "mpi4py.MPI" in sys.modules:
        from mpifl.wire import leave

        leave(code)
    sys.exit(code)


def _run() -> int:
    try:
        return int(app(standalone_mode=False) or 0)
    except (InputError, RoundLost) as error:
        _end_with(f"error: {one_line(error)}")
        return WRONG if isinstance(error, InputError) else TOO_FEW
    except _UsageError as error:
        if _rank() == "0":
            error.show()  # type: ignore[attr-defined]
        return WRONG
    except typer.Abort:
        return 130
    except Exception:
        _end_all()
        return 1


def _say(line: str) -> None:
    if _speaks[-1]():
        print(line, file=sys.stderr, flush=True)


def _end_with(line: str) -> None:
    if _speaks[-1]():
        from mpifl.wire import last_word

        last_word(line)


def _rank() -> str:
    # the last is 0 in a batch script, too
    names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), "0")


def _end_all() -> None:
    """Print this rank's traceback and take the other ranks, which may be waiting for this one, along."""
    print(f"rank {_rank()} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    if "mpi4py.MPI" in sys.modules:
        from mpifl.wire import abort_world

        _await_reader(2, 1)
        abort_world(1)


def _await_reader(descriptor: int, seconds: float) -> None:
    """Wait until what was written into a pipe has been read:
    a launcher's word on the abort would stand amid it."""
    unread, deadline = array("i", [1]), time.monotonic() + seconds
    with contextlib.suppress(OSError):  # closed, or a system that cannot tell
        while unread[0] and stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < deadline:
            fcntl.ioctl(descriptor, termios.FIONREAD, unread)
            time.sleep(0.001)
