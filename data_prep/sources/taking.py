"""How a user's own arrays were taken where they may mean two things, in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from data_prep.sources.aims import Wanted

MOST_NAMED = 6
"""Arrays in a line."""


def taken(
    arrays: Mapping[str, Any], x: Any, y: Any, wanted: Wanted, unread: Iterable[str]
) -> dict[str, Any] | None:
    """Return how arrays were taken, as `done` of a data set has it; None where they mean one thing.

    Args:
        arrays: As they are given, texts among them.
        x: Features.
        y: Targets.
        wanted: What the user says of them.
        unread: The names of arrays that are there, too, and are not read.
    """
    whose = [name for name in ("y", "y_test", "silo", wanted.group) if name]
    lines = {f"texts of {name}": _blanks(name, arrays.get(name)) for name in whose}
    if left := sorted(unread):
        more = ", ..." * (len(left) > MOST_NAMED)
        uses = "--group NAME, --order NAME and --option id=NAME use one, x_NAME is a named input"
        lines["arrays"] = f"arrays that are not read: {', '.join(left[:MOST_NAMED])}{more}; {uses}"
    pixels = x.dtype == np.uint8 and len(x.shape) > 2  # rows of bytes are tokens
    if x.dtype.kind in "iu" and not wanted.scale and (pixels or x.dtype != np.uint8):
        what = f"x is {x.dtype.name} without a scale, which a model takes for tokens"
        to_do = (
            "pixels, say --option scale=1/255" if pixels else "measurements, say --option scale=1, or another"
        )
        lines["features"] = f"{what}; if they are {to_do}"
    if isinstance(y, np.ndarray) and y.dtype.kind == "f" and not wanted.kind and np.isin(y, (0, 1)).all():
        what = f"y is {y.dtype.name} and holds only 0 and 1, which are learned as values"
        lines["targets"] = f"{what}; say --option targets=labels, or store integers for classes"
    notes = {kind: line for kind, line in lines.items() if line}
    return {"notes": notes} if notes else None


def _blanks(name: str, array: Any) -> str:
    """Say which texts differ by blanks at their ends alone, and are taken for one; "" if none do."""
    if getattr(array, "dtype", np.dtype(bool)).kind not in "USO":
        return ""
    found: dict[str, set[str]] = {}
    for one in np.asarray(array).ravel().tolist():
        text = one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
        found.setdefault(text.strip(), set()).add(text)
    several = [sorted(one) for one in found.values() if len(one) > 1]
    if not several:
        return ""
    shown = " and ".join(f"'{text}'" for text in several[0][:2])
    return f"{name} has {len(several):,} texts with and without blanks at their ends, taken for one: {shown}"
