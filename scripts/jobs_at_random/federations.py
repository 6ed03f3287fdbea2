"""Small federations of every kind of data: 2 to 13 silos of 3 to 60 examples, and a crowd."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from data_prep.cli import app as data_prep

Arrays = dict[str, np.ndarray]
SCHEME = {"columns": ["vertical", "--silos", "3", "--label-silo", "1"]}
"""How a kind is cut, where its rows do not say so themselves."""
CROWD = 110
"""Silos of the kind `crowd`, for what asks for a hundred."""


def _classes(draw: np.random.Generator, n: int, classes: int, shape: tuple[int, ...] = (6,)) -> Arrays:
    y = draw.integers(0, classes, n)
    y[:classes] = range(classes)
    return {"x": (draw.normal(size=(n, *shape)) + 0.5 * (y / classes).reshape(-1, *[1] * len(shape))), "y": y}


def _table(draw: np.random.Generator, n: int) -> Arrays:
    return _classes(draw, n, 3)


def _binary(draw: np.random.Generator, n: int) -> Arrays:
    return _classes(draw, n, 2)


def _images(draw: np.random.Generator, n: int) -> Arrays:
    made = _classes(draw, n, 3, (1, 8, 8))
    return {**made, "x": (made["x"] * 40 + 100).clip(0, 255).astype(np.uint8)}


def _labels(draw: np.random.Generator, n: int) -> Arrays:
    x = draw.normal(size=(n, 6))
    return {"x": x, "y": x[:, :3] > 0.3}


def _values(draw: np.random.Generator, n: int) -> Arrays:
    x = draw.normal(size=(n, 6))
    return {"x": x, "y": x[:, :2] ** 2 + 0.1 * draw.normal(size=(n, 2))}


def _survival(draw: np.random.Generator, n: int) -> Arrays:
    x = draw.normal(size=(n, 6))
    time = draw.exponential(np.exp(-x[:, 0]))
    return {"x": x, "y": np.stack([time, draw.random(n) < 0.7], 1)}


def _masks(draw: np.random.Generator, n: int) -> Arrays:
    x = draw.normal(size=(n, 1, 8, 8))
    return {"x": x, "y": (x[:, 0] > 0.5).astype(np.uint8)}


def _tokens(draw: np.random.Generator, n: int) -> Arrays:
    x = draw.integers(0, 7, (n, 9))
    return {"x": x[:, :-1], "y": x[:, 1:]}


KINDS: dict[str, tuple[Callable[[np.random.Generator, int], Arrays], tuple[str, ...]]] = {
    "table": (_table, ()),
    "binary": (_binary, ()),
    "images": (_images, ("scale=1/255",)),
    "labels": (_labels, ()),
    "values": (_values, ()),
    "survival": (_survival, ()),
    "masks": (_masks, ("targets=classes",)),
    "tokens": (_tokens, ("targets=classes",)),
    "columns": (_binary, ()),
    "public": (_table, ()),
    "crowd": (_table, ()),
}
"""What makes the rows of each kind, and the options that say what they are."""


def make(kind: str, number: int, folder: Path) -> Path:
    """Return the shard folder of the federation of a kind and number, which is made where it is missing."""
    out = folder / f"{kind}-{number}"
    if out.exists():
        return out
    draw = Random(f"{kind} {number}")
    silos = draw.randint(2, 13)
    least = 15 if kind == "public" else 3  # so that public examples are not all of a silo's
    equal = draw.randint(least, 60)
    sizes = [draw.randint(least, 60) for _ in range(silos)]
    sizes = [equal] * silos if number % 2 else sizes  # equal silos tie wherever sizes are compared
    sizes = [3] * CROWD if kind == "crowd" else sizes
    rows = _rows(kind, number, sizes, draw)
    np.savez(folder / f"{kind}-{number}.npz", **rows)
    options = [word for option in KINDS[kind][1] for word in ("--option", option)]
    scheme = SCHEME.get(kind, ["natural"])
    held = ["--valid", "0.2"] if draw.random() < 0.5 else []
    public = kind == "public" or (draw.random() < 0.3 and kind not in ("columns", "crowd"))
    held += ["--public", "0.1"] if public else []
    asked = ["partition", "npz", "--data", str(folder / f"{kind}-{number}.npz"), "--out", str(out)]
    with contextlib.redirect_stdout(io.StringIO()):
        data_prep([*asked, "--scheme", *scheme, *held, *options, "--seed", "7"], standalone_mode=False)
    return out


def _rows(kind: str, number: int, sizes: list[int], draw: Random) -> Arrays:
    """Return the arrays of a federation, with a test set of the server or of silos, or neither."""
    randomness = np.random.default_rng([number, len(kind)])
    made = KINDS[kind][0](randomness, sum(sizes))
    typed = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in made.items()}
    if kind == "columns":
        return typed
    typed["silo"] = np.repeat(np.arange(len(sizes)), sizes)
    tests = draw.choice(["server", "silos", "none"])
    if tests == "silos":
        within = np.concatenate([np.arange(size) for size in sizes])
        typed["held_out"] = within % 4 == 3
    elif tests == "server":
        more = KINDS[kind][0](randomness, 25)
        typed |= {f"{k}_test": v.astype(typed[k].dtype) for k, v in more.items()}
    return typed
