"""The commands of `python -m data_prep`, installed as `data-prep`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from data_prep.commands import (
    Group,
    Keep,
    Order,
    Stratify,
    TestLast,
    app as site_commands,
    as_typed,
    check_order,
    only,
    sites,
    with_scheme_options,
    with_source_options,
    words_of,
)
from data_prep.cut import WriteOptions, partition as cut_into_silos
from data_prep.dataset import changes_of, codes_told, doubts, ids_told, odd_told, of_tokens, units_told
from data_prep.inspect import counted, held
from data_prep.schemes import SCHEMES, Shares, find_scheme
from data_prep.sources import SOURCES, kept_words
from data_prep.write import COMPRESSIONS, default_jobs
from mpifl.common import CommandLine, InputError, one_line
from mpifl.data.shards import FederationSpec, VerticalSpec

app = CommandLine(
    help="Partition a data set over silos, and see what every silo holds.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
    context_settings={"obj": {"data": "of several sites' tables `data-prep sites` makes shards"}},
)
app.add_typer(site_commands)
app.command()(sites)


Source = Annotated[str, typer.Argument(help=f"{', '.join(SOURCES)}, or MODULE:FUNCTION.", show_default=False)]
Out = Annotated[Path, typer.Option(help="The folder to make; it must not exist, or be empty.")]
Scheme = Annotated[str, typer.Option(help=f"{', '.join(SCHEMES)}, or MODULE:FUNCTION.")]
_DATA = "The source's file or folder; $MPIFL_DATA/SOURCE. Tables of several sites: data-prep sites."
Data = Annotated[Path | None, typer.Option(help=_DATA)]
Silos = Annotated[int | None, typer.Option(help="How many silos; natural has its own number, or fewer.")]
Seed = Annotated[int, typer.Option(help="What all randomness is derived from.")]
Valid = Annotated[float, typer.Option(help="The share of a silo's examples it keeps for validation.")]
Test = Annotated[float, typer.Option(help="The share of a silo's examples it keeps for testing.")]
_PUBLIC = "The share of all training examples that belongs to no silo, for algorithms that ask."
Public = Annotated[float, typer.Option(help=_PUBLIC)]
Name = Annotated[str | None, typer.Option(help="The federation's name; SOURCE-SCHEME.")]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(help="An option of the source, KEY=VALUE; many."),
]
Fetch = Annotated[bool, typer.Option("--fetch", help="Download a known set into --data first.")]
Jobs = Annotated[int | None, typer.Option(help="How many threads write; the cores, at most 4; vertical 1.")]
Compression = Annotated[str, typer.Option(help=f"{', '.join(COMPRESSIONS)}; only none maps into memory.")]
Resume = Annotated[bool, typer.Option(help="Keep what is done if interrupted, and continue from there.")]


@app.command()
@only
@with_source_options
@with_scheme_options
def partition(
    source: Source,
    out: Out,
    scheme: Scheme,
    data: Data = None,
    silos: Silos = None,
    seed: Seed = 0,
    valid: Valid = 0.0,
    test: Test = 0.0,
    public: Public = 0.0,
    group: Group = None,
    stratify: Stratify = True,
    order: Order = None,
    test_last: TestLast = 0.0,
    keep: Keep = None,
    name: Name = None,
    option: SourceOptions = None,
    fetch: Fetch = False,
    jobs: Jobs = None,
    compression: Compression = "none",
    resume: Resume = False,
    **options: Any,
) -> None:
    """Cut a data set into silos: one HDF5 shard each, and the federation.json that describes them."""
    if fetch:
        from data_prep.sources import fetch as download

        data = download(source, data)
    manner = WriteOptions(default_jobs() if jobs is None else jobs, compression, resume)
    check_order(order, test_last, cut_by=find_scheme(scheme).takes_order)
    words = kept_words(source, group, order, words_of(source, option, options), keep=keep)
    more: dict[str, Any] = {"name": name, "source_options": words, "manner": manner, "keep": keep}
    more |= {"options": options, "shares": Shares(valid, test, public, test_last, stratify)}
    if find_scheme(scheme).layout == "vertical":
        from data_prep.cut import partition_columns

        columns = partition_columns(source, data, out, scheme, silos, seed, **more)
        typer.echo(f"{out}: {held(columns)}")
        _warn(columns)
    else:
        made = cut_into_silos(source, data, out, scheme, silos, seed, **more)
        typer.echo(_summary(made, out))
        looks = (units_told, codes_told, odd_told, ids_told)
        _warn(made, [line for look in looks for line in look(out, made)])


@app.command()
def statistics(
    source: Annotated[str, typer.Argument(help="csv or parquet.", show_default=False)],
    data: Annotated[Path, typer.Option(help="The table.")],
    out: Annotated[Path, typer.Option(help="The JSON file to write.")],
    spec: Annotated[
        Path | None, typer.Option(help="What its columns mean; the table's name with .toml.")
    ] = None,
) -> None:
    """Write a table's counts, sums and sums of squares, which silos may share to standardise alike."""
    from data_prep.sources import write_statistics

    dropped = write_statistics(source, data, spec, out)
    typer.echo(f"Written to {out}")
    for told in changes_of({"dropped": dropped}).values():
        typer.echo(f"warning: {one_line(told)}", err=True)


@app.command()
def inspect(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="A folder of shards, or two to compare.")
    ],
    page: Annotated[
        Path | None, typer.Option(help="Also write a page of it, FILE.html, whole in itself.")
    ] = None,
    features: Annotated[
        bool, typer.Option(help="Also read the shards: what do their features look like?")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print every silo, however many.")] = False,
) -> None:
    """Show what every silo holds and how much the silos differ;
    without --features opens federation.json alone."""
    from data_prep.inspect import inspect as look

    look(folders, page, features=features, everything=everything)


def _summary(spec: FederationSpec, out: Path) -> str:
    sizes = [sum(entry.examples.values()) for entry in spec.silos]
    least, most = sizes.index(min(sizes)), sizes.index(max(sizes))
    server = f", {sum(spec.test.examples.values()):,} test examples of the server" if spec.test else ""
    largest = f"silo {most} the largest with {sizes[most]:,}"
    extremes = f"silo {least} is the smallest with {sizes[least]:,}, {largest}"
    if sizes[least] == sizes[most]:
        extremes = f"every silo has {sizes[least]:,}"
    examples = "sequences" if of_tokens(spec) else "examples"
    return f"{out}: {counted(spec)}, {sum(sizes):,} {examples}{server}; {extremes}"


def _warn(spec: FederationSpec | VerticalSpec, more: Sequence[str] = ()) -> None:
    for told in [*(doubt.what for doubt in doubts(spec, spelled=True)), *more]:
        typer.echo(f"warning: {one_line(told)}", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; wrong input ends as one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _exit)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        _check_words(words)
        app(args=arguments)
    except InputError as error:
        print("error:", as_typed(one_line(error), words), file=sys.stderr)
        sys.exit(2)


def _check_words(words: Sequence[str]) -> None:
    """Refuse what is no UTF-8, since names of files and silos stand in `federation.json`."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = word.encode("utf-8", "replace").decode()
            raise InputError(f"'{shown}' given, which is not UTF-8; rename it") from None


def _exit(number: int, _: object) -> None:
    """Turn a signal into an exit, so that what is half-written is removed on the way out."""
    sys.exit(128 + number)
