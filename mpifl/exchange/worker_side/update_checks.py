"""Checks of the update that a client method returns, before it is added to other silos' updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, Unlike
from mpifl.silo import Silo
from mpifl.transforms import common_name, length_name
from mpifl.wire import (
    Compute,
    Header,
    Scalar,
    Update,
    combination,
    unmarked,
    wrong_length,
    wrong_vectors,
    wrong_weight,
)


def as_update(update: Any, algorithm: Algorithm, work: str) -> Update:
    """Return the result of a client method if it is an update.

    Raises:
        InputError: it is not.
    """
    if not isinstance(update, Update):
        what = "None" if update is None else f"a {type(update).__name__}"
        raise InputError(
            f"{type(algorithm).__name__}.{work} returned {what}; have it return silo.update(...)"
        )
    return update


def check_update(update: Update, request: Compute, silo: Silo) -> None:
    """Check that an update is as the server expects it.

    Raises:
        InputError: it is not; Unlike if its vectors differ from those of most silos.
    """
    if request.parameters is None:
        return
    if update.weight != silo.weight:
        raise InputError(f"its update was refused: {wrong_weight(update.weight, silo.weight)}")
    how = {common_name(name, silo.id): combination(value) for name, value in update.vectors.items()}
    if request.sent is not None and (why := wrong_vectors(how, request.sent)):
        raise Unlike(f"its update was refused: {why}")
    for name, value in update.vectors.items():
        found = unmarked(value).numel()
        expected = request.lengths.get(length_name(name), request.parameters)
        if found != expected:
            raise InputError(f"its update was refused: {wrong_length(name, found, expected)}")


def header_of_end(silo: Silo, update: Update) -> Header:
    """Return the header of the update with which a client method has ended a dialogue.

    Raises:
        InputError: the update has vectors.
    """
    if update.vectors:
        what = f"a dialogue ended with the vector '{min(update.vectors)}'"
        raise InputError(f"{what}; have lines hold vectors, and the update numbers")
    keeps, scalars = bool(silo.kept or silo.state), defined(update.scalars)
    return Header(silo=silo.id, weight=update.weight, scalars=scalars, keeps=keeps)


def defined(scalars: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """Return the scalars that a silo has, without None, NaN and Inf; JSON has no NaN and Inf."""
    there = ((name, value) for name, value in scalars.items() if value is not None)
    return {name: value for name, value in there if not isinstance(value, float) or math.isfinite(value)}


def reason_of(error: ValueError) -> str:
    """Return one line that says what is wrong with an update."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    if first["loc"][0] == "scalars":  # a value may have several types, and pydantic would name only the first
        return f"{first['loc'][1]} = {first['input']}: is not a number, true or false, or text"
    return f"{first['loc'][-1]} = {first['input']}: {first['msg']}"
