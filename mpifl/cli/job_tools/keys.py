"""The job file's JSON schema and its keys as rows, from the pydantic models and the docs of their fields."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpifl.algorithms import ALGORITHMS, OPTIMIZERS, Algorithm
from mpifl.cli.job_tools.inventory import summary
from mpifl.cli.job_tools.stacked_names import print_stacked
from mpifl.common import InputError, did_you_mean
from mpifl.learning.models import MODELS
from mpifl.learning.tasks import TASKS
from mpifl.run.job import Job
from mpifl.run.job.tables import SELECTIONS
from mpifl.wings.robust import RULES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMED: dict[str, Mapping[str, type[BaseModel]]] = {
    "task": TASKS,
    "algorithm": ALGORITHMS,
    "server_optimizer": OPTIMIZERS,
}
"""Tables whose keys depend on their name."""
OPEN: dict[tuple[str, str], Iterable[str]] = {
    ("Model", "name"): MODELS,
    ("AggregationSettings", "rule"): RULES,
    ("CohortTable", "select"): SELECTIONS,
}
"""Keys that take a built-in name or the user's own."""
PLUGIN = {"type": "string", "pattern": ":"}
"""The schema of the user's own code: package.module:name."""
LEAST_WIDTH = 120
"""The least width of a terminal, in columns, for keys as a table."""
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


def schema() -> Schema:
    """Return the JSON schema of a job file, draft 2020-12. The user's own models and algorithms may have any
    keys."""
    made = _described(Job)
    for table, registry in NAMED.items():
        made["properties"][table] |= _one_of(made, table, registry)
    for (table, key), names in OPEN.items():
        made["$defs"][table]["properties"][key] |= {"anyOf": [{"enum": [*names]}, PLUGIN]}
    return {"$schema": DIALECT, "title": "a job of mpifl", **{k: v for k, v in made.items() if k != "title"}}


@functools.cache
def tables() -> dict[str, list[JobKey]]:
    """Return the keys of a job by table; "" holds the keys above all tables."""
    whole = schema()
    found: dict[str, list[JobKey]] = {"": []}
    for name, entry in whole["properties"].items():
        if name in NAMED:
            names = f"{', '.join(NAMED[name])} or package.module:Class"
            first = JobKey("name", names, json.dumps(entry["default"]["name"]), entry["description"])
            found[name] = [first, *_own_keys(name, whole)]
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


def schema_text() -> str:
    """Return the JSON schema of a job file as the text of a file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def meanings(kind: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each field of a pydantic model: the string below it, in the class or in a base
    class."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, BaseModel) and base.__module__.partition(".")[0] != "pydantic":
            found |= _strings_below(base)
    return found


@functools.cache
def _strings_below(kind: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    return {
        ast.unparse(node.target): " ".join(str(below.value.value).split())
        for node, below in itertools.pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _described(kind: type[BaseModel]) -> Schema:
    """Return a pydantic model's schema with the meaning of each key of each table."""
    made = kind.model_json_schema(by_alias=True)
    kinds = [one for f in kind.model_fields.values() for one in (f.annotation, *get_args(f.annotation))]
    inner = [one for one in kinds if isinstance(one, type)]
    for of in [kind, *(one for one in inner if issubclass(one, BaseModel))]:
        said = meanings(of)
        table = made if of is kind else made["$defs"][of.__name__]
        for name, field in of.model_fields.items():
            entry = table["properties"][field.alias or name]
            entry.pop("title", None)
            entry["description"] = said.get(name, "")
    return made


def _one_of(whole: Schema, table: str, registry: Mapping[str, type[BaseModel]]) -> Schema:
    """Add a definition for each entry of the registry. Return the schema of a table that names one of them,
    or the user's own."""
    for name, kind in registry.items():
        own = _described(kind)
        keys = {key: entry for key, entry in own["properties"].items() if key not in Algorithm.model_fields}
        named = ["name"] if table == "algorithm" or name != "sgd" else []
        whole["$defs"][f"{table}.{name}"] = {
            "type": "object",
            "description": summary(kind),
            "properties": {"name": {"const": name}, **keys},
            "required": [*named, *own.get("required", [])],
            "additionalProperties": False,
        }
    own_code = {"type": "object", "properties": {"name": PLUGIN}, "required": ["name"]}
    return {"anyOf": [*({"$ref": f"#/$defs/{table}.{name}"} for name in registry), own_code]}


def _table_of(entry: Schema) -> str:
    """Return the name of a table's definition; "" if a key is not a table."""
    kinds = [one["$ref"] for one in [entry, *entry.get("anyOf", ())] if "$ref" in one]
    return kinds[0].rpartition("/")[2] if kinds else ""


def _own_keys(table: str, whole: Schema) -> list[JobKey]:
    """Return the keys besides `name`, each once with all names that have it in the same form."""
    owners: dict[JobKey, list[str]] = {}
    for name in NAMED[table]:
        for row in _rows(whole["$defs"][f"{table}.{name}"])[1:]:
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
