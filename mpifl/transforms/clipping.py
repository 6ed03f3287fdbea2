"""Clipping: one factor scales all vectors of an update, so that a silo moves the model at most by a bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import InputError
from mpifl.silo import Silo
from mpifl.sums import peak_of
from mpifl.transforms.transform import Transform
from mpifl.wire import Mean, Purpose, Summed, Uniform, Update, unmarked

CLIPPED = "clipped"
"""The scalar that says whether a silo's update was clipped; in the mean, the share of clipped updates."""


@dataclass(frozen=True)
class Clipping(Transform):
    """Multiplies all float vectors of a training's update by min(1, C / ||update||_2), before any codec.

    The norm is the joint norm of these vectors, in float64 (McMahan et al. 2018, "Learning differentially
    private recurrent language models": flat clipping). Running statistics travel beside the update and are
    not clipped: they include counts of batches, so their norm would mean nothing.

    Attributes:
        bound: C.
    """

    bound: float

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Clip the update, and add the scalar `CLIPPED`.

        Raises:
            InputError: the algorithm has a scalar of this name.
        """
        vectors = {name: v for name, v in update.vectors.items() if not isinstance(v, Summed)}
        floats = {name: v for name, v in vectors.items() if unmarked(v).is_floating_point()}
        if purpose != "training" or not floats:
            return update
        if CLIPPED in update.scalars:
            why = "has the name of what [aggregation] clip reports; use another"
            raise InputError(f"its scalar '{CLIPPED}' {why}")
        norm = norm_of(unmarked(value) for value in floats.values())
        clipped = self.bound < norm < math.inf  # the checks of the sum refuse NaN and Inf
        if clipped:
            update.vectors |= {name: _scaled(value, self.bound / norm) for name, value in floats.items()}
        update.scalars[CLIPPED] = float(clipped)
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Report the share of clipped updates; each update counts equally."""
        if purpose == "training" and (told := list(mean.each(CLIPPED))):
            mean.scalars[CLIPPED] = sum(map(bool, told)) / len(told)  # a rank may send any number
        return mean


def norm_of(vectors: Iterable[Tensor]) -> float:
    """Return the joint L2 norm of vectors, in float64; NaN or Inf if they hold NaN or Inf."""
    return math.hypot(*map(_norm, vectors))


def _norm(vector: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    peak = peak_of(vector.flatten()) if math.isinf(norm) else math.inf
    if math.isinf(peak):
        return norm
    # squares of the scaled vector do not overflow
    return peak * float(torch.linalg.vector_norm(vector / peak, dtype=torch.float64))


def _scaled(value: Tensor | Uniform, factor: float) -> Tensor | Uniform:
    """Return a new vector: the client method may have returned a vector that it was sent."""
    return Uniform(value.vector * factor) if isinstance(value, Uniform) else value * factor
