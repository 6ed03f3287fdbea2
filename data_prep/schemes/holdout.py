"""The validation and test examples that a silo keeps back for itself."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from data_prep.model import Dataset
from mpifl.common import InputError, numpy_stream


@dataclass(frozen=True)
class Shares:
    """The shares of a silo's examples that are held out: each in [0,
    1), `valid` and `test` together below 1."""

    valid: float = 0.0
    test: float = 0.0
    public: float = 0.0
    """Of all training examples, before they are cut: belongs to no silo, all may see it."""

    def __post_init__(self) -> None:
        for name, share in vars(self).items():
            if not 0 <= share < 1:
                raise InputError(
                    f"--{name}: {share} given; it must be at least 0 and below 1, for instance 0.1"
                )
        if Fraction(str(self.valid)) + Fraction(str(self.test)) >= 1:
            raise InputError(
                f"--valid, --test: {self.valid} and {self.test} leave nothing to train on; lower them"
            )

    def set_public_aside(self, data: Dataset, seed: int, *, natural: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the examples that stay private and of those that become public, each in
        order.

        What the source holds for testing stays private.

        Raises:
            InputError: silos are `natural`, and one of them would have nothing left to train on.
        """
        everything = np.arange(len(data))
        train = everything if data.held is None else everything[~data.held]
        if not (public := int(Fraction(str(self.public)) * len(train))):
            return everything, np.arange(0)
        order = numpy_stream(seed, "public").permutation(len(train))
        if natural and data.silo is not None:
            self._check_left(data, data.silo[train], order[public:])
        chosen = np.sort(train[order[:public]])
        return np.delete(everything, chosen), chosen

    def _check_left(self, data: Dataset, silo: np.ndarray, private: np.ndarray) -> None:
        """See that each of the silos [n] of all training examples
        still occurs among those that stay private."""
        if len(lost := np.setdiff1d(silo, silo[private])):
            name = (data.silo_names or {}).get(int(lost[0]), str(lost[0]))
            taken = f"takes all {np.count_nonzero(silo == lost[0])} training examples of silo '{name}'"
            raise InputError(
                f"--public: {self.public} {taken}; lower it, or take a scheme other than natural"
            )

    def split(
        self, part: np.ndarray, seed: int, silo: int, held: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Split the indices of a silo's examples; at least one is left to train on, and no split is empty.

        A share is rounded down to whole examples: as a fraction, for 0.29 * 100 is 28.999999999999996.

        Args:
            part: The indices.
            seed: The federation's seed.
            silo: The silo.
            held: For every example of the source, whether it is for testing; then no share may be.
        """
        if held is not None and held.any():
            return self._split_rest(part[~held[part]], part[held[part]], seed, silo)
        valid, test = (int(Fraction(str(share)) * len(part)) for share in (self.valid, self.test))
        if valid + test == 0:
            return {"train": part}
        shuffled = numpy_stream(seed, "hold out", silo).permutation(part)
        held_out, train = shuffled[: valid + test], shuffled[valid + test :]
        splits = {"train": train, "valid": held_out[:valid], "test": held_out[valid:]}
        return {name: indices for name, indices in splits.items() if len(indices)}

    def _split_rest(self, rest: np.ndarray, test: np.ndarray, seed: int, silo: int) -> dict[str, np.ndarray]:
        """Split what the source does not hold for testing."""
        if self.test:
            raise InputError(
                f"--test: {self.test} given, but the source itself says what is for testing; leave it out"
            )
        if not len(rest):
            raise InputError(
                f"--scheme: all {len(test)} examples of silo {silo} are for testing; ask for fewer silos"
            )
        splits = self.split(rest, seed, silo)
        return {**splits, "test": test} if len(test) else splits
