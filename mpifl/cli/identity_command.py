"""The commands `identity`: make, show and check a site's key and its entry in `sites.toml`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mpifl.cli import ending
from mpifl.common import CommandLine, InputError, one_line

app = CommandLine(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make, show and check by what other sites know this one.",
)


@app.command()
def make(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="What all sites call this one; its host by default."),
    ] = None,
) -> None:
    """Make this site's key in the folder that MPIFL_SITE names; an existing key is kept."""
    from mpifl.wings.site import make_identity

    made = make_identity(_folder(), name if name is not None else socket.gethostname())
    typer.echo(f"site {made.name!r} has a key; give all sites what `mpifl identity show` prints")


@app.command()
def show(
    silos: Annotated[
        list[str], typer.Option("--silos", metavar="NAME", help="A silo of this site; for more, again.")
    ] = [],  # noqa: B006
) -> None:
    """Print this site's entry for the sites.toml of every site."""
    from mpifl.wings.site import identity_of

    folder = _folder()
    identity = identity_of(folder)
    if identity is None:
        raise InputError(f"{folder}: has no identity.key; make it by `mpifl identity make`")
    typer.echo(identity.listing(silos), nl=False)
    if not silos:
        typer.echo("fill in silos: the names that federation.json has for this site's", err=True)


@app.command()
def check(
    shards: Annotated[
        Path | None, typer.Argument(metavar="[SHARDS]", help="A shard folder, whose silos all need a site.")
    ] = None,
) -> None:
    """Check that this site's key, its sites.toml and a federation's silos fit; each problem is one line."""
    folder = _folder()
    found = list(_problems(folder, shards))
    for problem in found:
        typer.echo(f"error: {one_line(problem)}", err=True)
    if found:
        raise typer.Exit(ending.WRONG)
    typer.echo(f"{folder}: the key and the list of sites fit" + (f", and {shards}" if shards else ""))


def _problems(folder: Path, shards: Path | None) -> Iterator[str]:
    from mpifl.wings.site import identity_of, problems_of, sites_of

    try:
        identity, sites = identity_of(folder), sites_of(folder)
        silos = _silos(shards) if shards else []
    except InputError as error:
        yield str(error)
        return
    if sites is None:
        wanted = "write there what `mpifl identity show` prints at each site"
        yield f"{folder / 'sites.toml'}: is not there; {wanted}"
    else:
        yield from problems_of(identity, sites, silos)


def _silos(shards: Path) -> list[str]:
    """Return the names of a federation's silos."""
    from mpifl.data.shards import read_any

    return [entry.name for entry in read_any(shards).silos]


def _folder() -> Path:
    from mpifl.wings.site import site_folder

    return site_folder("mpifl identity", "this site's key and its list of sites")
