"""Validation of a job's tables: a table becomes its model, or one line says which key is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from mpifl.common import InputError, Table, by_weight, closed, did_you_mean, hint_of, keys_at
from mpifl.run.job.renamed import otherwise_called, renamed

NAMED = ("algorithm", "model", "server_optimizer", "task")
"""Tables of a job that have a name."""

FOLDER_NAME = r"^[\w.-]*[\w-][\w.-]*$"
_PATTERNS = {FOLDER_NAME: "should have letters, digits, '.', '_' and '-' alone, and not only dots"}
"""What patterns of keys ask for, in words."""


def validated(
    kind: Any, table: Table, source: str, where: str, title: str = "", shared: Mapping[str, Any] | None = None
) -> Any:
    """Return a table as its model.

    Args:
        kind: The model, a pydantic class.
        table: The table's keys and values.
        source: The source of the table, for the error.
        where: The name of the table in the job, for the error.
        title: The name of the class that takes the keys, for the error; by default the table.
        shared: Validated tables that the model takes as fields.

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
    """Return one line that says what is wrong with the first wrong key."""
    errors = by_weight(error.errors())
    fields, path = keys_at(kind, errors[0]["loc"])
    # pydantic gives one error for each member of a union
    same = [e for e in errors if keys_at(kind, e["loc"])[1] == path]
    more = f" (and {len(errors) - len(same)} more)" if len(errors) > len(same) else ""
    table = where or ".".join(path[:-1])
    first, key = errors[0], path[-1] if path else ""
    if first["type"] == "extra_forbidden":
        takes = [name for name in fields if name not in shared]
        meant = renamed(table, key) or otherwise_called(key, takes) or did_you_mean(key, takes)
        listed = f"{meant}{title or table or 'a job'} takes {', '.join(takes) or 'none'}"
        reason = f"has no key '{key}'; {meant.rstrip() if meant.startswith('did you mean') else listed}"
    elif first["type"] == "missing":
        reason = f"needs the key '{key}'"
    elif first["type"] == "value_error":
        table, reason = where or ".".join(path), str(first["msg"]).removeprefix("Value error, ")
    else:
        what = " or ".join(dict.fromkeys(map(_asked, same)))
        hint = closed(next(filter(None, (hint_of(kind, e) for e in same)), ""))
        if not table and key in NAMED and isinstance(first["input"], str):
            hint = f", such as {key}.name={first['input']}"
        reason = f"{key} = {json.dumps(first['input'], default=str)}: {what}{hint}"
    return f"[{table}] {reason}{more}" if table else reason + more


def _asked(error: Mapping[str, Any]) -> str:
    """Return what one of pydantic's errors asks for."""
    said = str(error["msg"]).replace("Input should", "should")
    return _PATTERNS.get(error.get("ctx", {}).get("pattern", ""), said)
