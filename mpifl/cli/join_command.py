"""The command `join`: a site's ranks take part in a run whose letters come through a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mpifl.cli import ending
from mpifl.common.machine import imports, signals, tuning

_Link = Annotated[Path, typer.Argument(metavar="LINK", help="The folder with the invitation.")]
_Shards = Annotated[Path, typer.Option(metavar="DIR", help="The folder of this site's shards.")]


def join(
    link: _Link,
    shards: _Shards,
    device: Annotated[str, typer.Option(help="As of a job: auto, cpu, gpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of each rank.")] = 1,
) -> None:
    """Take part in a run over sites, on the ranks that mpirun starts. MPIFL_SITE names this site's folder.

    Exit code 0: the run has ended. 75: a signal came, and the same command goes on.
    """
    signals.install()
    with imports.gc_frozen():
        from mpifl.data.hdf5 import start_parser

        start_parser()
        from mpifl.wings import sites, wings_of
        from mpifl.wire.launching import world

    transport = world()
    ending.speak_if(lambda: transport.is_server)
    tuning.keep_all_memory()
    own: dict[str, Any] = {"device": device, "threads": threads}
    with tuning.subnormals_as_zero():
        ended = sites.join(link, shards, own, transport, wings_of)
    if not ended:
        typer.echo("stopped by a signal; the same command goes on")
        raise typer.Exit(ending.INTERRUPTED)
