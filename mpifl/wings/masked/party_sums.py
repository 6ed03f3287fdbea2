"""One rank's sums of whole numbers, in memory that no other rank reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mpifl.common import BeyondRange, InputError
from mpifl.sums import checked_peak, header_of, refuse_noise
from mpifl.wings.masked.fixed_plan import Question, SumPlan
from mpifl.wings.masked.fixed_point import DIGITS, LARGEST_NUMBER, add_to, digits_of, grid_of, numbers_of
from mpifl.wings.site import digest
from mpifl.wire import Combination, Compute, Request, Update, VectorHeader, combination, unmarked

if TYPE_CHECKING:
    from mpifl.wings.masked.masked_party import MaskedParty
    from mpifl.wings.masked.released_file import ReleasedFile

SENTINELS = 2
"""Elements behind each vector: the numbers of parties and silos in the sum. They come out wrong if masks do
not cancel or a part is missing."""
PER_SCALAR = 2 * DIGITS
"""Elements for a number: the digits of weight * value, and of weight."""
STATISTICS_RANGE = 2.0**24
"""The range of running statistics; it replaces the job's range."""


@dataclass(frozen=True)
class FixedSums:
    """The settings of a run's sums of whole numbers.

    Attributes:
        range: The largest magnitude of an element.
        largest_weight: Returns the largest weight of any silo's update, by the name of the client method.
        silos: How many silos there are. Grids are made for so many summands, even if fewer are asked. So a
            round that was released without a failed silo has the same grid when the others are asked again.
        masks: Whether sums are masked.
        masking: Masks this rank's sum; None without masks, and on ranks without silos.
        released: At the server, the released sums. A sum that is asked for again must be over the same silos.
        least: How many parties a number needs; the sum of fewer is not asked for.
        check_offer: At the server, raises ValueError if a rank's offer is not for exactly its hosted silos.
        digests: Whether digests of answers and the noise's size are noted, for a party that masks the sums of
            several ranks.
    """

    range: float
    largest_weight: Callable[[str], float]
    silos: int
    masks: bool = False
    masking: MaskedParty | None = None
    released: ReleasedFile | None = None
    least: int = 1
    check_offer: Callable[[Sequence[int], Any], None] | None = None
    digests: bool = False

    def reach(self, name: str) -> float:
        """Return the largest magnitude of an element of a vector."""
        return STATISTICS_RANGE if name == "statistics" else self.range

    def grid(self, name: str, how: Combination, request: Request) -> float:
        """Return the grid spacing of a vector: the value of the whole number 1 in its sum."""
        weight = (
            self.largest_weight(request.work) if how == "weighted" and isinstance(request, Compute) else 1.0
        )
        return grid_of(self.reach(name) * max(weight, 1.0), self.silos)


class PartySums:
    """The sums of weight * vector and of weight * number over the silos of one rank.

    Attributes:
        vectors: By name, int64: whole numbers, or digits for a vector marked `Summed`; then `SENTINELS`.
        numbers: By name, int64 of `PER_SCALAR` elements.
        silos: How many silos were added.
        noise: By a vector's name, the deviation of the noise on its sum over all parties, in grid units.
        answers: Digests of what each silo has added, if the sum is masked.
    """

    def __init__(self, how: FixedSums, request: Request) -> None:
        self._how, self._request = how, request
        self.vectors: dict[str, Tensor] = {}
        self.numbers: dict[str, Tensor] = {}
        self.silos = 0
        self.noise: dict[str, float] = {}
        self.answers: dict[int, str] = {}

    def add(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Add one silo's update and describe its vectors for the header.

        Raises:
            ValueError: a vector or a number cannot be added. After an error, nothing has been added.
        """
        vectors = {name: self._within(name, unmarked(v).cpu(), update) for name, v in update.vectors.items()}
        hows = {name: combination(value) for name, value in update.vectors.items()}
        numbers = _digits_of_numbers(update)
        for name, vector in vectors.items():
            self._check(name, vector, hows[name], update.weight)
        if wrong := [name for name, deviation in update.noise.items() if not 0 < deviation < math.inf]:
            raise ValueError(f"the noise of '{wrong[0]}' has the deviation {update.noise[wrong[0]]:g}")
        if self._how.masking is None and not self._how.digests:
            refuse_noise(update)
        fresh = {name: _empty(len(v), hows[name]) for name, v in vectors.items() if name not in self.vectors}
        self.vectors |= fresh
        for name, vector in vectors.items():
            self._add(self.vectors[name], vector, hows[name], update.weight, name)
        for name, digits in numbers.items():
            self.numbers[name] = self.numbers[name] + digits if name in self.numbers else digits
        if self._how.masking is not None or self._how.digests:
            self.answers[silo] = digest([update.weight], {**update.scalars, **vectors})
        for name, deviation in update.noise.items():
            grid = self._how.grid(name, hows[name], self._request)
            self.noise[name] = max(self.noise.get(name, 0.0), deviation / grid)
        self.silos += 1
        return {name: header_of(update, name, None) for name in vectors}

    def own(self, vectors: Sequence[str], scalars: Sequence[str]) -> list[Tensor]:
        """Return the sums in the order of masking: the vectors, then one tensor of all numbers."""
        tail = torch.zeros(len(scalars) * PER_SCALAR + SENTINELS, dtype=torch.int64)
        for nth, name in enumerate(scalars):
            if name in self.numbers:
                tail[nth * PER_SCALAR : (nth + 1) * PER_SCALAR] = self.numbers[name]
        tail[-SENTINELS:] = torch.tensor([1, self.silos])
        return [*(self.vectors[name] for name in vectors if name in self.vectors), tail]

    def question(
        self, message: str, plan: SumPlan, accepted: Sequence[int], rank: int, about: Sequence[str] = ()
    ) -> Question:
        """Return what these sums are to be used for.

        Args:
            message: The digest of the request (`message_of`).
            plan: The server's plan of the sum.
            accepted: The silos whose updates count.
            rank: The party's rank.
            about: What else must be the same at all parties.

        Raises:
            InputError: the server plans without this party, or with other vectors or numbers than it has.
        """
        assert isinstance(self._request, Compute)
        if rank not in plan.parties:
            raise InputError("the server plans the sum without this party")
        if sorted(one.name for one in plan.vectors) != sorted(self.vectors):
            raise InputError("the server plans to add up other vectors than this party has")
        if {*plan.parties[rank].scalars} != self.numbers.keys():
            raise InputError("the server tells of other numbers than this party has")
        return Question(
            request=self._request,
            message=message,
            plan=plan,
            accepted=accepted,
            grids=[self._how.grid(one.name, one.combined, self._request) for one in plan.vectors],
            noise=[self.noise.get(one.name, 0.0) for one in plan.vectors],
            rank=rank,
            answers=self.answers,
            about=about,
        )

    def _within(self, name: str, vector: Tensor, update: Update) -> Tensor:
        """Clamp a vector to the range if its sum gets noise: an error would reveal its size without noise.

        Clamping brings no two vectors farther apart. The next check refuses vectors that are not finite.
        """
        if name not in update.noise or not vector.isfinite().all():
            return vector
        reach = self._how.reach(name)
        limit = torch.tensor(reach, dtype=vector.dtype)
        if float(limit) > reach:  # rounded up
            limit = limit.nextafter(torch.zeros_like(limit))
        return vector.clamp(-limit, limit)

    def _check(self, name: str, vector: Tensor, how: Combination, weight: float) -> None:
        known = self.vectors.get(name)
        length = None if known is None else (len(known) - SENTINELS) // (DIGITS if how == "summed" else 1)
        peak = checked_peak(name, vector, weight if how == "weighted" else 1.0, length)
        if how == "summed" and not peak < LARGEST_NUMBER:
            raise BeyondRange(f"'{name}' is beyond the range of numbers that can be added up")
        if how != "summed" and peak > self._how.reach(name):
            to_do = "raise it, or use a lower [local] lr if training diverged"
            raise BeyondRange(
                f"'{name}' is beyond the range, [security] range = {self._how.range:g}; {to_do}"
            )

    def _add(self, into: Tensor, vector: Tensor, how: Combination, weight: float, name: str) -> None:
        if how == "summed":
            into[:-SENTINELS] += digits_of(vector.double()).flatten()
        else:
            grid = self._how.grid(name, how, self._request)
            add_to(into[:-SENTINELS], vector, (weight if how == "weighted" else 1.0) / grid)
        into[-1] += 1


def _empty(length: int, how: Combination) -> Tensor:
    found = torch.zeros(length * (DIGITS if how == "summed" else 1) + SENTINELS, dtype=torch.int64)
    found[-SENTINELS] = 1
    return found


def _digits_of_numbers(update: Update) -> dict[str, Tensor]:
    """Return, for each finite number of an update, the digits of weight * number and of the weight. Raise
    ValueError if a number is a text, or too large."""
    found = {}
    for name, value in update.scalars.items():
        if isinstance(value, str):
            raise ValueError(f"the scalar '{name}' is a text; send numbers")
        pair = torch.tensor([update.weight * float(value or 0), update.weight], dtype=torch.float64)
        if value is None or not math.isfinite(float(value)):
            continue
        if not bool((pair.abs() < LARGEST_NUMBER).all()):
            raise BeyondRange(f"the scalar '{name}' is beyond the range of numbers that can be added up")
        found[name] = digits_of(pair).flatten()
    return found


def averages_in(tail: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Return the averages of the numbers, from the sum over all parties; leave out those without weight."""
    numbers = numbers_of(tail[:-SENTINELS].view(-1, DIGITS)).view(-1, 2).tolist()
    return {name: total / weight for name, (total, weight) in zip(names, numbers, strict=True) if weight > 0}
