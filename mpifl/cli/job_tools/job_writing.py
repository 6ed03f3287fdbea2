"""Writes a job file with a comment on each key, from the job's pydantic models."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from mpifl.cli.job_tools.inventory import KINDS
from mpifl.cli.job_tools.keys import tables
from mpifl.common import Table

WIDTH = 100
"""The width of a comment, in columns."""
SCHEMA = "job.schema.json"
"""The file beside a job that editors use to complete its keys."""
NAMED_BY = {"model": "models", "task": "tasks", "algorithm": "algorithms"}
"""The kind of names, for tables with a name."""


def commented(job: Table, head: str) -> str:
    """Return a job as the text of its file, with the meaning of each key above it.

    Args:
        job: Keys, and tables of keys.
        head: The lines of the first comment.
    """
    meanings = _meanings(job)
    lines = [f"#:schema ./{SCHEMA}", *(f"# {line}" for line in head.splitlines()), ""]
    tables_last = sorted(job.items(), key=lambda item: isinstance(item[1], Mapping))  # as TOML requires
    for name, value in tables_last:
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *_keys(value, meanings.get(name, {}))]
        else:
            lines += _keys({name: value}, meanings[""])
    return "\n".join([*lines, "", *_comment("All other keys, and what they mean: mpifl keys"), ""])


def _keys(table: Mapping[str, Any], meanings: Mapping[str, str]) -> Iterator[str]:
    for key, value in table.items():
        yield from _comment(meanings.get(key, ""))
        yield f"{key} = {_value(value)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _value(value: Any) -> str:
    """Return a value as TOML: as in JSON, except inline tables."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _meanings(job: Table) -> dict[str, dict[str, str]]:
    """Return the meanings of a job's keys, by table; for a name, the meaning of the named thing."""
    found: dict[str, dict[str, str]] = {}
    for table, rows in tables().items():
        own = job.get(table)
        name = own.get("name") if isinstance(own, Mapping) else None
        fitting = (row for row in rows if not row.of or name in row.of.split(", "))
        found[table] = {row.name: row.meaning for row in fitting}
        if name is not None and table in NAMED_BY:
            kind = NAMED_BY[table]
            what = {item.name: item.what for item in KINDS[kind].items()}
            found[table]["name"] = f"{what[name]} Others: mpifl list {kind}" if name in what else ""
    return found
