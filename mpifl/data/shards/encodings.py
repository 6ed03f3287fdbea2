"""How examples became numbers: the record `encoding` of `source` in `federation.json`, by which new examples
become the same numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

MOST_SHOWN = 60
"""Characters of a value in a line."""
UNLIKE_READINGS = "unlike_readings"
"""Where `source` of a `federation.json` has what sites write in different ways in their tables."""
NOT_OF_NUMBERS = ("digest", "size", "resize", "values")
"""Keys of a record that do not say which numbers an example becomes."""


def record_of(kind: str, **facts: Any) -> dict[str, Any]:
    """Return the record of an encoding with its digest.

    Args:
        kind: `table`, `images`, `volumes`, `tokens` or `characters`.
        **facts: Of a table `spec`, its spec with all stated that was learned. Of images what they are
            brought to, and the `values` that stand for classes in masks. Of tokens the tokenizer's sha256, or
            `bytes`, and what ends a text.
    """
    record = {"kind": kind, **facts}
    told = json.dumps(_numbers_by(record), sort_keys=True)
    return {"kind": kind, "digest": hashlib.sha256(told.encode()).hexdigest(), **facts}


def encoding_of(source: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record in `source` of a `federation.json`; None if it has none of a known form."""
    record = source.get("encoding")
    if not isinstance(record, dict) or not all(
        isinstance(record.get(key), str) for key in ("kind", "digest")
    ):
        return None
    if record["kind"] == "table" and not isinstance(record.get("spec"), dict):
        return None
    return record


def unlike(given: Mapping[str, Any] | None, learned: Mapping[str, Any] | None) -> str | None:
    """Return how two encodings differ, for a message; None if they do not, or one is unknown."""
    if given is None or learned is None or given["digest"] == learned["digest"]:
        return None
    ours, theirs = _numbers_by(given), _numbers_by(learned)
    for name in dict.fromkeys([*theirs, *ours]):
        one, other = ours.get(name), theirs.get(name)
        if one != other and isinstance(one, dict) and isinstance(other, dict):
            key = next(key for key in dict.fromkeys([*other, *one]) if one.get(key) != other.get(key))
            return f"{name} has {key} {_shown(one.get(key))}, the model learned from {_shown(other.get(key))}"
        if one != other:
            return f"{name} is {_shown(one)}, the model learned from {_shown(other)}"
    return "it says other numbers"


def reading_of(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how the table of a record writes numbers and dates, where a spec says it; {} of other data.

    Such facts say nothing of the numbers that an example becomes: each site has its own.
    """
    if record is None or record["kind"] != "table":
        return {}
    spec, features = record["spec"], record["spec"].get("features")
    columns = features.items() if isinstance(features, dict) else ()
    told = {key: spec[key] for key in ("decimal", "thousands") if key in spec}
    return told | {
        f"{key} of {name}": one[key]
        for name, one in columns
        if isinstance(one, dict)
        for key in ("factor", "format")
        if key in one
    }


def unlike_readings(source: Mapping[str, Any]) -> list[str]:
    """Return what sites write in different ways in their tables, as `source` of a `federation.json` says."""
    told = source.get(UNLIKE_READINGS)
    return [one for one in told if isinstance(one, str)] if isinstance(told, list) else []


def shared_encoding(records: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return the one encoding of the examples of several sites; None where one is unknown, or they differ.

    Images of one form are alike, also where one site alone resized its own, or drew masks in other values.
    """
    first = dict(records[0] or {})
    if first.get("kind") != "images":
        return first if first and all(one == first for one in records) else None
    if any(one is None or unlike(one, first) for one in records):
        return None
    known = [one for one in records if one is not None]
    if any(one.get("values") != first.get("values") for one in known):
        first.pop("values", None)
    return first | {"resize": any(one.get("resize") for one in known)}


def differing_images(records: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Say of which sites images or volumes became other numbers than at the first one; "" if all are alike.

    Args:
        records: The encoding of each site, by the name of its file.
    """
    (path, first), *others = records.items()
    kind = next((one["kind"] for one in records.values() if one is not None), "")
    if kind not in ("images", "volumes"):
        return ""
    if missing := [name for name, one in records.items() if one is None]:
        return f"{missing[0]}: does not say how its {kind} became numbers, as other sites do"
    for name, one in others:
        ours, theirs = _numbers_by(one or {}), _numbers_by(first or {})
        for key in dict.fromkeys([*theirs, *ours]):
            if ours.get(key) != theirs.get(key):
                said = f"{_shown(ours.get(key))}, {path} has {_shown(theirs.get(key))}"
                return f"{name}: {kind} were read with {key} {said}"
    return ""


def _numbers_by(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a record decides which numbers an example becomes; where gaps are is not of it, nor are
    the values of masks."""
    if record.get("kind") != "table":
        return {key: value for key, value in record.items() if key not in NOT_OF_NUMBERS}
    features = record["spec"].get("features")
    return {name: _column(one) for name, one in features.items()} if isinstance(features, dict) else {}


def _column(told: Any) -> Any:
    if not isinstance(told, dict):
        return told
    kept = {key: told[key] for key in ("kind", "encoding", "since", "deviation") if key in told}
    if "deviation" in told:
        kept["mean"] = told.get("mean")
    if isinstance(levels := told.get("levels"), list):
        kept["levels"] = [one[0] if isinstance(one, list) and one else one for one in levels]
    return kept


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
