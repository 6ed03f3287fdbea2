"""Updates of silos and their mean, as an algorithm and its silos see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mpifl.common import InputError, RoundLost
from mpifl.wire.messages import Combination, Figure, Scalar


@dataclass(frozen=True)
class Uniform:
    """A vector that is averaged with equal weights, whatever the weight of its update."""

    vector: torch.Tensor


def uniform(vector: torch.Tensor) -> Uniform:
    """Mark a vector of an update to be averaged with equal weights, `1/|S|` in papers."""
    return Uniform(vector)


@dataclass(frozen=True)
class Summed(Uniform):
    """A vector that is summed over silos without weights, in float64."""


def summed(vector: torch.Tensor) -> Summed:
    """Mark a vector of an update, shape [n], to be summed over the silos.

    The sum is float64. Whole numbers below 2^32 add up without any error, over up to 2^20 silos. For other
    numbers `mpifl.sums.exact` gives the error.
    """
    return Summed(vector.double())


def combination(value: torch.Tensor | Uniform) -> Combination:
    """Return how a vector of an update is combined over silos."""
    if isinstance(value, Summed):
        return "summed"
    return "uniform" if isinstance(value, Uniform) else "weighted"


def unmarked(value: torch.Tensor | Uniform) -> torch.Tensor:
    """Return the vector without its mark."""
    return value.vector if isinstance(value, Uniform) else value


def wrong_length(name: str, found: int, expected: int) -> str:
    """Return the message that a vector of an update has another length than the server expects."""
    return (
        f"'{name}' has {found} elements, the server expects {expected}; "
        "an algorithm declares others by `lengths`"
    )


def wrong_vectors(found: Mapping[str, Combination], expected: Mapping[str, Combination]) -> str:
    """Return how the vectors of an update differ from the expected ones; "" if they do not."""
    if others := sorted(found.keys() ^ expected.keys()):
        how = "sent" if others[0] in found else "did not send"
        return f"it {how} '{others[0]}', other than most silos"
    if wrong := sorted(name for name, how in found.items() if how != expected[name]):
        what = f"'{wrong[0]}' is {found[wrong[0]]}"
        return f"{what}, and {expected[wrong[0]]} by most silos"
    return ""


def wrong_weight(found: float, expected: float) -> str:
    """Return the message that an update has another weight than the server expects."""
    return (
        f"its weight is {found:.12g}, the server expects {expected:.12g}; "
        "an algorithm declares others by `weight`"
    )


@dataclass
class Update:
    """The result of a client method: a weight, named flat vectors and named scalars."""

    weight: float
    vectors: dict[str, torch.Tensor | Uniform] = field(default_factory=dict)
    scalars: dict[str, Scalar | None] = field(default_factory=dict)
    """None, NaN and Inf: this silo has no such number and is left out of the number's mean."""
    payloads: dict[str, torch.Tensor] = field(default_factory=dict)
    """A codec's payloads, uint8, by vector; the vector itself holds the decoded payload."""
    noise: dict[str, float] = field(default_factory=dict)
    """The standard deviation of the noise that the sum of weight * vector over all silos gets, by vector. The
    ranks of the sum each add a share of the noise."""
    open: frozenset[str] = frozenset()
    """Names of scalars that the server learns of this silo alone, even if sums are masked."""


class Numbers(dict[str, float]):
    """The combined numbers of a mean, by name. Asking for one that is not there is an error that says why.

    A copy by `copy` says the same; one by `dict` does not.

    Args:
        why: Who asks for a number that is not there, what withholds it and what to do, with `{name}` for it.
    """

    def __init__(self, numbers: Mapping[str, float], why: str = "") -> None:
        super().__init__(numbers)
        self._why = why

    def __missing__(self, name: str) -> float:
        there = ", ".join(map(repr, sorted(self))) or "none"
        plain = "the algorithm goes by the number '{name}', which no silo that counts sent"
        raise InputError(f"{(self._why or plain).format(name=name)}; numbers that came: {there}")

    def pop(self, name: str, *otherwise: Any) -> Any:
        """Remove a number and return it."""
        return super().pop(name, *otherwise) if name in self or otherwise else self[name]

    def copy(self) -> Numbers:
        """Return a copy."""
        return Numbers(self, self._why)


@dataclass
class Mean:
    """The cohort's answer: averaged vectors by name, averaged scalars, and every silo's own scalars.

    `len(mean)` is the number of silos that answered. `weight` is the sum of their updates' weights. A scalar
    that is not there is an error that says why (`Numbers`).
    """

    vectors: dict[str, torch.Tensor]
    scalars: dict[str, float]
    silos: Mapping[int, dict[str, Scalar]]
    faults: dict[int, str] = field(default_factory=dict)
    weight: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.scalars, Numbers):
            self.scalars = Numbers(self.scalars)

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return the combined vector of a name.

        Raises:
            RoundLost: no silo sent a vector of this name.
        """
        if name not in self.vectors:
            there = ", ".join(map(repr, sorted(self.vectors))) or "none"
            if self.silos and not self.faults:
                why = f"your round asks for '{name}', and silos sent {there}"
                raise RoundLost(why, in_vain=True)
            raise RoundLost(f"no silo that counts sent '{name}'; vectors that came: {there}")
        return self.vectors[name]

    def __len__(self) -> int:
        return len(self.silos)

    def of_silos(self, name: str) -> dict[int, float]:
        """Return a scalar of every silo that sent it, by silo; {} if sums are masked."""
        return {k: float(scalars[name]) for k, scalars in sorted(self.silos.items()) if name in scalars}

    def each(self, name: str) -> Iterator[float]:
        """Yield a scalar of every silo that sent it, in the order of the silos' ids."""
        return (float(scalars[name]) for _, scalars in sorted(self.silos.items()) if name in scalars)


@dataclass(frozen=True)
class Replica:
    """The server's state after a round, which every rank keeps in case the server dies.

    Attributes:
        round: Rounds done.
        figures: The figures of the last round.
        state: The state as a safetensors file, uint8, shape [n].
    """

    round: int
    figures: dict[str, Figure]
    state: Tensor
