"""What commands that train do on each rank: join the others, train, and tell of a signal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mpifl.cli import ending
from mpifl.common import InputError, Table
from mpifl.common.machine import imports, tuning

if TYPE_CHECKING:
    from mpifl.training import loop
    from mpifl.wire import Transport


def joined(ranks: int | None, survive: bool) -> Transport:
    """Return the world of the launcher's ranks; import all modules of a training first."""
    with imports.gc_frozen():
        from mpifl.data.hdf5 import start_parser

        start_parser()  # it imports h5py while this process imports torch and joins the other ranks
        from mpifl.training import loop  # noqa: F401
        from mpifl.wire.launching import survivable, world

    transport = world()
    if survive and transport.size > 1 and not survivable():
        what = "the launcher ends all ranks when one dies; start it with mpirun --with-ft ulfm"
        raise InputError(f"--survive: {what}")
    if ranks not in (None, transport.size):
        started = f"the launcher has started {transport.size}"
        raise InputError(f"--ranks {ranks}: {started}; leave --ranks out, or the launcher")
    return transport


def trained(
    transport: Transport,
    job: Path | Table,
    run: Path,
    overrides: tuple[str, ...],
    *,
    resume: bool,
    force: bool = False,
) -> loop.End:
    """Train a job on this rank; return how it ended."""
    from mpifl.training import loop as training
    from mpifl.wings import OVER_SITES, wings_at

    ending.speak_if(lambda: transport.is_server)
    if transport.rank in transport.workers and not (run / OVER_SITES).exists():  # sites train then
        tuning.keep_all_memory()
    with tuning.subnormals_as_zero(), ending.interrupted():
        return training.train(job, run, overrides, resume, transport, force, wings_of=wings_at(run))


def check_ended(end: loop.End, again: str) -> None:
    """Exit if a signal has stopped a training, and say by which command it continues."""
    if end.name != "FINISHED":
        written = end.name == "SAVED"
        saved = "with a checkpoint written" if written else "and no checkpoint could be written"
        typer.echo(f"stopped by a signal {saved}; continue with: {again}")
        raise typer.Exit(ending.INTERRUPTED)
