"""The command `list`: the names that a job and `data-prep` may use."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpifl.cli import completing
from mpifl.common import InputError, choices

if TYPE_CHECKING:
    from mpifl.cli.job_tools import Item, Kind


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="algorithms, models, ...; without one: the kinds.",
            autocompletion=completing.listed,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """List the names that a job may use, one line each: algorithms, models, tasks, metrics, schemes, rules
    ..."""
    kinds = _kinds()
    if kind is None:
        _show_kinds(kinds, as_json)
    elif kind not in kinds:
        raise InputError(f"mpifl list {kind}: no such kind; {choices(kind, kinds)}")
    else:
        _show(kinds[kind], as_json)


def examples(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The example to copy.", autocompletion=completing.examples),
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Where to; by default a folder of its name.")
    ] = None,
) -> None:
    """List the examples that come with mpifl, or copy one with all its files."""
    from mpifl.cli import job_tools

    if name is None:
        _print(["example", "shows"], [list(pair) for pair in job_tools.examples().items()])
        typer.echo("mpifl examples NAME copies one into a folder of its name")
        return
    copied = job_tools.copy_example(name, folder := folder or Path(name))
    typer.echo(f"{folder}: {', '.join(path.name for path in copied)}")
    typer.echo(f"README.md says what it needs; then: bash {shlex.quote(str(folder / 'run.sh'))}")


def _kinds() -> dict[str, Kind]:
    """Return the kinds of names for a job and for `data-prep partition`, from a file: the registries would
    import torch."""
    from mpifl.cli.job_tools import Item, Kind, jobs, jobs_folder

    def listed(entries: list[dict[str, Any]]) -> list[Item]:
        plain = (
            {key: tuple(of) if isinstance(of, list) else of for key, of in one.items()} for one in entries
        )
        return [Item(**dict[str, Any](one)) for one in plain]

    names = json.loads((jobs_folder() / "names.json").read_text("utf-8"))
    found = {
        name: Kind(one["where"], partial(listed, one["items"]), one["own"]) for name, one in names.items()
    }
    where = f"mpifl train NAME; their files lie in {jobs_folder()}"
    return {**found, "jobs": Kind(where, lambda: list(starmap(Item, jobs().items())))}


def kind_names() -> list[str]:
    """Return the kinds that `list` takes, without heavy imports."""
    return list(_kinds())


def _show_kinds(kinds: dict[str, Kind], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({name: kind.where for name, kind in kinds.items()}, indent=2))
        return
    _print(["kind", "named by"], [[name, kind.where] for name, kind in kinds.items()])
    typer.echo("mpifl list KIND lists one of them")


def _show(kind: Kind, as_json: bool) -> None:
    items = kind.items()
    if as_json:
        typer.echo(json.dumps([_plain(item) for item in items], indent=2, ensure_ascii=False))
        return
    columns = {"name": "name", "what": "what", "of": "of", "better": "better", "options": "keys"}
    rows = [[_cell(item, field) for field in columns.values()] for item in items]
    filled = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    _print([list(columns)[i] for i in filled], [[row[i] for i in filled] for row in rows])
    typer.echo(f"named by {kind.where}" + (f"; or {kind.own}" if kind.own else ""))


def _cell(item: Item, field: str) -> str:
    value = getattr(item, field)
    return value if isinstance(value, str) else ", ".join(value)


def _plain(item: Item) -> dict[str, Any]:
    """Return an item's fields that are not empty."""
    return {field: value for field, value in asdict(item).items() if value}


def _print(headings: list[str], rows: list[list[str]]) -> None:
    """Print a table without rules, so that each name is one line for tools such as grep; if it does not fit,
    print names stacked."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from mpifl.cli.job_tools import console_of_names, print_stacked

    console = console_of_names()
    table = Table(*headings, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(Text, row))
    unlimited = console.options.update(max_width=1000)
    if Measurement.get(console, unlimited, table).maximum <= console.width:
        console.print(table)
    else:
        of_each = ((row[0], _labelled(headings[1:], row[1:])) for row in rows)
        print_stacked(console, of_each)


def _labelled(headings: list[str], cells: list[str]) -> list[str]:
    """Return the cells of a row, line by line; the name's description needs no heading."""
    named = zip(headings, cells, strict=True)
    return [cell if heading == "what" else f"{heading}: {cell}" for heading, cell in named if cell]
