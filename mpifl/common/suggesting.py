"""Suggestions: which known name a user may have meant by an unknown one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from mpifl.common.errors import InputError

_QUOTED = re.compile(r"'([^']*)'")
_NUMBERS = re.compile(r"[-+.\w]+(?:,\s*[-+.\w]+)+")
_ALSO = {"sensitivity": "recall", "tpr": "recall", "ppv": "precision", "auc": "auroc", "rocauc": "auroc"}
"""Words of other fields and programs for what has another name here, without what does not count."""
_LEAST = 3
"""The least letters of a prefix that may stand for a whole name."""


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return "did you mean 'NAME'? ", or "" if no name is close.

    Capitals, blanks, hyphens and underscores do not count.
    """
    names = {plain(name): name for name in reversed([*known])}
    word = plain(str(given)[:100])
    word = plain(_ALSO[word]) if word not in names and _ALSO.get(word) in names else word
    close = [word] if word in names else difflib.get_close_matches(word, names, n=1)
    begun = [name for name in names if name.startswith(word)] if len(word) >= _LEAST else []
    found = close or (begun if len(begun) == 1 else [])
    return f"did you mean '{names[found[0]]}'? " if found and names[found[0]] != given else ""


def choices(given: object, known: Iterable[str], verb: str = "there are") -> str:
    """Return a suggestion and all known names: "did you mean 'NAME'? there are NAME, OTHER"."""
    known = list(known)
    return f"{did_you_mean(given, known)}{verb} {', '.join(known) or 'none'}"


def suggested(given: object, known: Iterable[str]) -> str:
    """Return a suggestion for the end of a line: "; did you mean 'NAME'?", or "" if no name is close."""
    return closed(did_you_mean(given, known))


def check_there(path: Path, option: str = "") -> None:
    """See that a file or folder, which an option names, is there; else say what beside it may be meant.

    Raises:
        InputError: it is not there.
    """
    if not path.exists():
        near: list[str] = []
        with suppress(OSError):
            near = [one.name for one in path.parent.iterdir()]
        beside = f"{path.parent}/".removeprefix("./")
        hint = suggested(path.name, near).replace("'", f"'{beside}", 1)
        raise InputError(f"{option} {path}: is not there{hint}".lstrip())


def closed(hint: str) -> str:
    """Return a suggestion in the form for the end of a line."""
    return f"; {hint.rstrip()}" if hint else ""


def plain(name: str) -> str:
    """Return a name in lower case without blanks, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", name).casefold()


def hint_of(kind: Any, error: Mapping[str, Any]) -> str:
    """Return the suggestion of `did_you_mean` for a key or choice that pydantic refuses; else "".

    Args:
        kind: The model, a pydantic class.
        error: One of the errors of a ValidationError.
    """
    if error["type"] == "extra_forbidden":
        return did_you_mean(error["loc"][-1], keys_at(kind, error["loc"])[0])
    if error["type"] in ("literal_error", "enum"):
        return did_you_mean(error["input"], _QUOTED.findall(error["ctx"]["expected"]))
    if isinstance(given := error.get("input"), str) and _NUMBERS.fullmatch(given):
        return "several values are for `mpifl sweep` and `mpifl submit --sweep` "
    fields, path = _followed(kind, error["loc"])
    if given == "none" and path[-1:] and path[-1] in fields and fields[path[-1]].get_default() is None:
        return "for none leave the key out of the file, and do not set it "
    return ""


def by_weight(errors: Iterable[Any]) -> list[Any]:
    """Return pydantic's errors, unknown keys first: a misspelled key also counts as a missing key."""
    return sorted(errors, key=lambda error: error["type"] != "extra_forbidden")


def keys_at(kind: Any, loc: Sequence[int | str]) -> tuple[list[str], list[str]]:
    """Follow an error's location through nested tables; return the last table's keys and the key's path."""
    fields, path = _followed(kind, loc)
    return list(fields), path


def _followed(kind: Any, loc: Sequence[int | str]) -> tuple[dict[str, Any], list[str]]:
    """Return the last table's fields by their keys, and the key's path."""
    path: list[str] = []
    fields: dict[str, Any] = {}
    for part in map(str, loc):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        path.append(part)
        inner = _table_in(fields[part].annotation) if part in fields else None
        if inner is None:
            break
        kind = inner
    return fields, path


def _table_in(annotation: Any) -> Any:
    """Return the model in an annotation of a nested table, which may be optional; None if there is none."""
    kinds = (annotation, *get_args(annotation))
    return next((one for one in kinds if isinstance(one, type) and hasattr(one, "model_fields")), None)
