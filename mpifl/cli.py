"""The commands. What is wrong with a job is one line and exit code 2; a fault of the program ends every rank."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from mpifl import __version__
from mpifl.errors import InputError, RoundLost

WRONG, TOO_FEW, INTERRUPTED = 2, 3, 75
"""Exit codes: the job, a shard or an argument is wrong; too few silos answered; stopped by a signal, resume me."""

_UsageError: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]  # click's, or typer's copy of it

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Federated learning over MPI."
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None: ...


@app.command()
def train(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    set_: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key: local.lr=0.05")] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="The run folder; runs/NAME by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the latest checkpoint in RUN.")] = False,
) -> None:
    """Train a model over the silos of a shard folder; start it with mpirun for more than one rank."""
    from mpifl import interrupts
    from mpifl import train as training
    from mpifl.transport import world

    transport = world()
    interrupts.install()
    run = out or Path("runs") / job.stem
    finished = training.train(job, run, tuple(set_), resume, transport)
    if not transport.is_server:
        return
    if not finished:
        typer.echo(f"stopped by a signal with a checkpoint written; go on with: mpifl train {job} --out {run} --resume")
        raise typer.Exit(INTERRUPTED)
    from mpifl.report import show_run

    show_run(run)


@app.command()
def submit(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file.")],
    set_: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key: local.lr=0.05")] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="The run folder; runs/NAME by default.")] = None,
    nodes: Annotated[int, typer.Option(min=1)] = 1,
    ranks: Annotated[
        int | None, typer.Option("--ranks", "--ntasks", min=1, help="By default a worker a silo, and the server.")
    ] = None,
    gpus_per_node: Annotated[int, typer.Option(min=0, help="A worker each.")] = 0,
    cpus_per_task: Annotated[int | None, typer.Option(min=1, help="The job's threads by default.")] = None,
    time: Annotated[str | None, typer.Option(help="As sbatch takes it: 30 (minutes), 2:00:00, 1-12.")] = None,
    partition: Annotated[str | None, typer.Option()] = None,
    account: Annotated[str | None, typer.Option()] = None,
    launcher: Annotated[str, typer.Option(help="auto, srun or mpirun.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")] = False,
) -> None:
    """Train as a SLURM job that queues itself again until it is done."""
    from mpifl.submit import Wishes, submit_job

    wishes = Wishes(nodes, ranks, gpus_per_node, cpus_per_task, time, partition, account, launcher)
    submit_job(job, out or Path("runs") / job.stem, tuple(set_), wishes, dry_run)


@app.command()
def evaluate(run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]) -> None:
    """Score the model of a finished run on its shard folder's test set."""
    from mpifl.report import evaluate_run

    evaluate_run(run)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    target_accuracy: Annotated[float | None, typer.Option(help="Report rounds, bytes and seconds to it.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curves into this PNG.")] = None,
) -> None:
    """Compare runs by accuracy, loss, rounds, bytes and seconds."""
    from mpifl.report import compare_runs

    compare_runs(runs, target_accuracy, plot)


def main() -> None:
    """Run a command and exit with its code."""
    os.environ.setdefault(
        "THP_MEM_ALLOC_ENABLE", "1"
    )  # large pages for torch: half of what large vectors cost is faults
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except InputError as error:
        _say(f"error: {error}")
        sys.exit(WRONG)
    except RoundLost as lost:
        _say(f"error: {lost}")
        sys.exit(TOO_FEW)
    except _UsageError as error:
        if _rank() == "0":
            error.show()  # type: ignore[attr-defined]
        sys.exit(WRONG)
    except typer.Abort:
        sys.exit(130)
    except Exception:
        _end_all()


def _say(line: str) -> None:
    if _rank() == "0":
        print(line, file=sys.stderr, flush=True)


def _rank() -> str:
    names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
    return next((os.environ[name] for name in names if name in os.environ), "0")


def _end_all() -> None:
    """Print this rank's traceback and take the other ranks, which may be waiting for this one, along."""
    print(f"rank {_rank()} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    if "mpi4py.MPI" in sys.modules:
        from mpifl.transport import abort_world

        abort_world(1)
    sys.exit(1)
