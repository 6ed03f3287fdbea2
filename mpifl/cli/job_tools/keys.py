"""The keys of the job file as rows, from its JSON schema beside the package's jobs, without heavy imports."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mpifl.cli.job_tools.shipped import jobs_folder
from mpifl.common import InputError, did_you_mean
from mpifl.report.observers import wide_console

PLUGIN = {"type": "string", "pattern": ":"}
"""The schema of the user's own code: package.module:name."""
LEAST_WIDTH = 120
"""The least width of a terminal, in columns, for keys as a table."""
INDENT = 4
"""Blanks before lines that stand below a name."""
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}

Schema = dict[str, Any]


@dataclass(frozen=True)
class JobKey:
    """A key of the job file: its possible values, its default, and its meaning."""

    name: str
    values: str
    default: str
    meaning: str
    of: str = ""
    """The names that it belongs to, in a table whose keys depend on its name."""


def schema_text() -> str:
    """Return the JSON schema of a job file as the text of a file."""
    return (jobs_folder() / "job.schema.json").read_text("utf-8")


@functools.cache
def tables() -> dict[str, list[JobKey]]:
    """Return the keys of a job by table; "" holds the keys above all tables."""
    whole = json.loads(schema_text())
    found: dict[str, list[JobKey]] = {"": []}
    for name, entry in whole["properties"].items():
        if own := _own_tables(name, whole):
            names = f"{', '.join(own)} or package.module:Class"
            first = JobKey("name", names, json.dumps(entry["default"]["name"]), entry["description"])
            found[name] = [first, *_own_keys(own)]
        elif table := _table_of(entry):
            found[name] = _rows(whole["$defs"][table])
        else:
            found[""].append(_row(name, entry, whole["required"]))
    return found


def show_keys(table: str | None) -> None:
    """Print the keys of one table of the job file, or of all.

    Raises:
        InputError: there is no such table.
    """
    everything = tables()
    if table is not None and table not in everything:
        named = [name for name in everything if name]
        hint = did_you_mean(table, named)
        raise InputError(f"mpifl keys {table}: no such table; {hint}there are {', '.join(named)}")
    console = Console(highlight=False)
    for name in [table] if table is not None else everything:
        _show(console, f"[{name}]" if name else "above all tables", everything[name])


def _show(console: Console, title: str, rows: list[JobKey]) -> None:
    if console.width >= LEAST_WIDTH:
        console.print(_drawn(title, rows), "")
        return
    console.print(Text(title, "bold underline"))
    print_stacked(console, ((row.name, _told(row)) for row in rows))
    console.print()


def _told(row: JobKey) -> list[str]:
    """Return the facts of a key, line by line."""
    usual = "required" if row.default == "required" else f"default {row.default}" if row.default else ""
    return [row.of and f"of {row.of}", "; ".join(filter(None, [row.values, usual])), row.meaning]


def _table_of(entry: Schema) -> str:
    """Return the name of a table's definition; "" if a key is not a table."""
    kinds = [one["$ref"] for one in [entry, *entry.get("anyOf", ())] if "$ref" in one]
    return kinds[0].rpartition("/")[2] if kinds else ""


def _own_tables(table: str, whole: Schema) -> dict[str, Schema]:
    """Return the definitions of a table whose keys depend on its name, by name; none for another table."""
    defined = whole["$defs"].items()
    return {name.partition(".")[2]: one for name, one in defined if name.startswith(f"{table}.")}


def _own_keys(own: Mapping[str, Schema]) -> list[JobKey]:
    """Return the keys besides `name`, each once with all names that have it in the same form."""
    owners: dict[JobKey, list[str]] = {}
    for name, table in own.items():
        for row in _rows(table)[1:]:
            owners.setdefault(row, []).append(name)
    return [replace(row, of=", ".join(names)) for row, names in owners.items()]


def _rows(table: Schema) -> list[JobKey]:
    return [_row(name, entry, table.get("required", ())) for name, entry in table["properties"].items()]


def _row(name: str, entry: Schema, required: Any) -> JobKey:
    default = entry.get("default")
    usual = "required" if name in required else "" if default is None else json.dumps(default)
    return JobKey(name, _values(entry), usual, entry.get("description", ""))


def _values(entry: Schema) -> str:
    """Return a text on the values that a key may have."""
    if "anyOf" in entry:
        return " or ".join(dict.fromkeys(_values(one) for one in entry["anyOf"] if one.get("type") != "null"))
    if "enum" in entry or "const" in entry:
        return ", ".join(json.dumps(one) for one in entry.get("enum", [entry.get("const")]))
    if entry == PLUGIN:
        return "package.module:name"
    if entry.get("type") == "array" and "anyOf" in entry["items"]:
        return f"list of {_values(entry['items'])}"
    if entry.get("type") == "array":
        first, *more = _values(entry["items"]).split(" ", 1)
        return " ".join(["list of", f"{first}s", *more])
    bounds = [f"{words} {entry[bound]:g}" for bound, words in BOUNDS.items() if bound in entry]
    kind = {"boolean": "true, false", "object": "table"}.get(entry.get("type", ""), entry.get("type", "any"))
    return f"{kind} {' and '.join(bounds)}".strip()


def _drawn(title: str, rows: list[JobKey]) -> Table:
    of = any(row.of for row in rows)
    drawn = Table(title=Text(title), title_justify="left")
    for column in ["key", *(["of"] if of else []), "values", "default", "meaning"]:
        drawn.add_column(column)
    for row in rows:
        cells = [row.name, *([row.of] if of else []), row.values, row.default, row.meaning]
        drawn.add_row(*map(Text, cells))
    return drawn


def console_of_names() -> Console:
    """Return a console with the width of COLUMNS if that is set, else of `wide_console`."""
    return Console(markup=False, emoji=False, highlight=False) if "COLUMNS" in os.environ else wide_console()


def print_stacked(console: Console, entries: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print each name, with its lines indented below."""
    for name, lines in entries:
        console.print(Text(name, "bold"))
        for line in filter(None, lines):
            console.print(Padding(Text(line), (0, 0, 0, INDENT)))
