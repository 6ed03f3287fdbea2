"""The command `demo`: trains a model from scratch, by the commands that a user would type."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from mpifl.common import InputError
from mpifl.common.machine import floors, runnable

SHARDS = "shards/digits"
CUT = f"digits --out {SHARDS} --silos 4 --scheme dirichlet --alpha 0.5 --seed 7 --test 0.2"


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where all of it goes.")] = Path("mpifl-demo"),
    ranks: Annotated[int, typer.Option(min=1, help="A server and a worker for each silo are 5.")] = 5,
) -> None:
    """Shard handwritten digits over 4 silos, train on 5 ranks, draw the curve; a minute or less."""
    from mpifl.cli.job_tools import jobs_folder

    if importlib.util.find_spec("sklearn") is None:
        raise InputError("mpifl demo: the digits come with scikit-learn; pip install 'mpifl[digits]'")
    floors.hold("digits")
    job = jobs_folder() / "demo.toml"
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
        run = _new_run(out)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror})") from None
    typer.echo(f"$ cd {shlex.quote(str(out))}")
    _partition(out)
    typer.echo(f"\n2. Training: {ranks} MPI ranks, a server and workers with a silo each")
    _run(out, "mpifl", "train", str(job), "--out", str(run), "--ranks", str(ranks))
    _conclude(out, run)


def _partition(out: Path) -> None:
    described = out / SHARDS / "federation.json"
    if described.is_file():
        typer.echo(f"\n1. The silos' shards are there already: {out / SHARDS}")
        return
    typer.echo("\n1. Partitioning the digits over 4 silos with unequal classes")
    _run(
        out, "data_prep", "partition", *shlex.split(CUT), unless=described
    )  # another demo may have been faster


def _conclude(out: Path, run: Path) -> None:
    typer.echo("\n3. Results")
    typer.echo(f"The model: {out / run / 'model.safetensors'}")
    if importlib.util.find_spec("matplotlib") is not None:
        _run(out, "mpifl", "compare", str(run), "--plot", str(run / "curve.png"), quiet=True)
        typer.echo(f"The curve: {out / run / 'curve.png'}")
    page = shlex.join(["mpifl", "report", str(out / run)])
    typer.echo(f"A page of it: {runnable(page)}")
    typer.echo(f"A job for your own data: {runnable('mpifl new')}")


def _new_run(out: Path) -> Path:
    """Make a run folder that no other demo has; return it relative to the demo's folder."""
    run = Path("runs", time.strftime("demo-%Y%m%d-%H%M%S"))
    try:
        (out / run).mkdir()
    except FileExistsError:
        run = run.with_name(f"{run.name}-{os.getpid()}")
        (out / run).mkdir()
    return run


def _run(out: Path, module: str, *words: str, quiet: bool = False, unless: Path | None = None) -> None:
    """Run a command in the demo's folder and show it as a user types it; exit with its code if it fails.

    Args:
        out: The demo's folder.
        module: The program.
        words: Its arguments.
        quiet: Whether to hide the command and its output.
        unless: If this file exists, a failure is ignored.
    """
    if not quiet:
        typer.echo(f"$ {runnable(shlex.join([module.replace('_', '-'), *words]))}")
    sys.stdout.flush()
    output = subprocess.DEVNULL if quiet else None
    code = subprocess.run([sys.executable, "-m", module, *words], cwd=out, stdout=output).returncode
    if code and not (unless is not None and unless.is_file()):
        raise typer.Exit(abs(code))
