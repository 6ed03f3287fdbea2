"""The commands of `python -m data_prep`, installed as `data-prep`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from data_prep.holdout import Shares
from data_prep.overview import counted, show
from data_prep.partition import partition as cut_into_silos
from data_prep.schemes import SCHEMES
from data_prep.sources import SOURCES
from mpifl.errors import InputError
from mpifl.shards import FederationSpec, read_federation

app = typer.Typer(
    help="Partition a data set over silos, and see what every silo holds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


@app.command()
def partition(
    source: Annotated[str, typer.Argument(help=f"{', '.join(SOURCES)}.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder to make; it must not exist, or be empty.")],
    scheme: Annotated[str, typer.Option(help=f"{', '.join(SCHEMES)}.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The source's folder, or npz's file; the default is $MPIFL_DATA/SOURCE. None for digits."),
    ] = None,
    silos: Annotated[int | None, typer.Option(help="How many silos; natural has its own number.")] = None,
    seed: Annotated[int, typer.Option(help="What all randomness is derived from.")] = 0,
    alpha: Annotated[float | None, typer.Option(help="dirichlet: the smaller, the more skewed; 0.5.")] = None,
    shards_per_silo: Annotated[int | None, typer.Option(help="shards: how many each silo is dealt; 2.")] = None,
    min_examples: Annotated[
        int | None,
        typer.Option(help="The fewest a silo may hold; 1, with dirichlet 10."),
    ] = None,
    valid: Annotated[float, typer.Option(help="The share of a silo's examples it keeps for validation.")] = 0.0,
    test: Annotated[float, typer.Option(help="The share of a silo's examples it keeps for testing.")] = 0.0,
    public: Annotated[
        float, typer.Option(help="The share of all training examples that belongs to no silo, for algorithms that ask.")
    ] = 0.0,
    name: Annotated[str | None, typer.Option(help="The federation's name; SOURCE-SCHEME.")] = None,
) -> None:
    """Cut a data set into silos: one HDF5 shard each, and the federation.json that describes them."""
    options = {"alpha": alpha, "shards_per_silo": shards_per_silo, "min_examples": min_examples}
    shares = Shares(valid, test, public)
    spec = cut_into_silos(source, data, out, scheme, silos, seed, options=options, shares=shares, name=name)
    typer.echo(_summary(spec, out))


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that 'partition' made.")],
    plot: Annotated[Path | None, typer.Option(help="Also draw it, to FILE.png, .pdf or .svg.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Print every silo, however many.")] = False,
) -> None:
    """Show what every silo holds and how much the silos differ; opens federation.json alone."""
    from rich.console import Console

    spec = read_federation(folder)
    show(spec, Console(width=None if sys.stdout.isatty() else 120), everything=everything)
    if plot is not None:
        from data_prep.plot import draw

        draw(spec, plot)
        typer.echo(f"Drawn to {plot}")


def _summary(spec: FederationSpec, out: Path) -> str:
    sizes = [sum(entry.examples.values()) for entry in spec.silos]
    least, most = sizes.index(min(sizes)), sizes.index(max(sizes))
    server = f", {sum(spec.test.examples.values()):,} test examples of the server" if spec.test else ""
    extremes = f"silo {least} is the smallest with {sizes[least]:,}, silo {most} the largest with {sizes[most]:,}"
    if sizes[least] == sizes[most]:
        extremes = f"every silo has {sizes[least]:,}"
    return f"{out}: {counted(spec)}, {sum(sizes):,} examples{server}; {extremes}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; wrong input ends as one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _exit)
    try:
        app(args=arguments)
    except InputError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)


def _exit(number: int, _: object) -> None:
    """Turn a signal into an exit, so that what is half-written is removed on the way out."""
    sys.exit(128 + number)
