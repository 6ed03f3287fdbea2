"""A table of a job against its model: the model, or one line that says what is wrong with the first key."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from mpifl.common import InputError, Table


def validated(
    kind: Any, table: Table, source: str, where: str, title: str = "", shared: Mapping[str, Any] | None = None
) -> Any:
    """Return a table as its model.

    Args:
        kind: The model, a pydantic class.
        table: The table's keys and values.
        source: Where it comes from, for the error.
        where: The table's name in the job, for the error.
        title: What takes the keys, for the error; by default the table.
        shared: Tables that the model takes whole, which are validated already.

    Raises:
        InputError: with one line that names the first key that is wrong.
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
    # a union answers once for each of its members
    same = [e for e in errors if _walk(kind, e["loc"])[1] == path]
    more = f" (and {len(errors) - len(same)} more)" if len(errors) > len(same) else ""
    table = where or ".".join(path[:-1])
    first, key = errors[0], path[-1] if path else ""
    if first["type"] == "extra_forbidden":
        takes = [name for name in fields if name not in shared]
        reason = _no_such_key(key, title or table or "a job", takes)
    elif first["type"] == "missing":
        reason = f"needs the key '{key}'"
    elif first["type"] == "value_error":
        table, reason = where or ".".join(path), str(first["msg"]).removeprefix("Value error, ")
    else:
        what = " or ".join(dict.fromkeys(str(e["msg"]).replace("Input should", "should") for e in same))
        reason = f"{key} = {json.dumps(first['input'], default=str)}: {what}"
    return f"[{table}] {reason}{more}" if table else reason + more


def _no_such_key(key: str, of: str, takes: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, takes, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"has no key '{key}'; {hint}{of} takes {', '.join(takes) or 'none'}"


def _table_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a nested table, which may be left out."""
    kinds = (annotation, *get_args(annotation))
    return next((one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _walk(kind: Any, loc: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Follow an error's location through nested tables; return the last one's keys and the key's path."""
    path: list[str] = []
    fields: dict[str, Any] = {}
    for part in map(str, loc):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        path.append(part)
        inner = _table_in(fields[part].annotation) if part in fields else None
        if inner is None:
            break
        kind = inner
    return list(fields), path
