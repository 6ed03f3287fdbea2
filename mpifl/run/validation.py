"""Tables of a job file as models, with errors that name the key and what would do."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from mpifl.common import InputError, Table, load_plugin


def plugged(
    base: type, registry: Mapping[str, Any], table: Table, source: str, key: str, shared: Mapping[str, Any], usual: str
) -> Any:
    """Make what a table of a job names, from a registry or a plug-in, of the table's other keys.

    Args:
        base: The class that it must be of.
        registry: The built-in ones by name.
        table: The table.
        source: Where it comes from, for the error.
        key: The table's name.
        shared: Fields that come from tables of their own.
        usual: The name where the table has none.

    Raises:
        InputError: there is no such thing, or a key is not one of its.
    """
    name = table.get("name", usual or None)
    if not isinstance(name, str):
        raise InputError(f"{source}: [{key}] needs name, one of {', '.join(registry)}")
    try:
        kind = registry.get(name) or load_plugin(name, f"[{key}] name", registry)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise InputError(f"{source}: [{key}] name = '{name}': is no mpifl {base.__name__}; name a subclass of it")
    own = {k: v for k, v in table.items() if k != "name"}
    if taken := sorted(set(own) & set(shared)):
        raise InputError(f"{source}: [{key}] has no key '{taken[0]}'; it is a table of its own, [{taken[0]}]")
    return validated(kind, own, source, key, title=name, shared=shared)


def validated(
    kind: Any, table: Table, source: str, where: str, title: str = "", shared: Mapping[str, Any] | None = None
) -> Any:
    """Return a model of a table's keys, and of fields that are there already (`shared`).

    Raises:
        InputError: a key is wrong; one line names it, what was given and what would do.
    """
    try:
        if shared:
            return kind.model_validate({**table, **shared})
        return kind.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        raise InputError(f"{source}: {_explained(error, kind, where, title, shared or {})}") from None


def _explained(error: ValidationError, kind: Any, where: str, title: str, shared: Mapping[str, Any]) -> str:
    """Say in one line what is wrong with the first key that is."""
    errors = error.errors()
    fields, path = _walk(kind, errors[0]["loc"])
    same = [e for e in errors if _walk(kind, e["loc"])[1] == path]  # a union answers once for each of its members
    more = f" (and {len(errors) - len(same)} more)" if len(errors) > len(same) else ""
    table = where or ".".join(path[:-1])
    first, key = errors[0], path[-1] if path else ""
    takes = [name for name in fields if name not in shared]
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, takes, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        reason = f"has no key '{key}'; {hint}{title or table or 'a job'} takes {', '.join(takes) or 'none'}"
    elif first["type"] == "missing":
        reason = f"needs the key '{key}'"
    elif first["type"] == "value_error":
        table, reason = where or ".".join(path), str(first["msg"]).removeprefix("Value error, ")
    else:
        what = " or ".join(dict.fromkeys(str(e["msg"]).replace("Input should", "should") for e in same))
        reason = f"{key} = {json.dumps(first['input'], default=str)}: {what}"
    return f"[{table}] {reason}{more}" if table else reason + more


def _walk(kind: Any, loc: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Follow an error's location through nested tables; return the last table's keys and the path of the key."""
    path: list[str] = []
    fields: dict[str, Any] = {}
    for part in map(str, loc):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        path.append(part)
        inner = fields[part].annotation if part in fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        kind = inner
    return list(fields), path
