"""The validation and test examples that a silo keeps back for itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from data_prep.dataset import Dataset
from data_prep.schemes.stratify import drawn
from data_prep.schemes.whole import Units, units_of
from mpifl.common import InputError, numpy_stream

SHARES = ("valid", "test", "public", "test_last")


@dataclass(frozen=True)
class Shares:
    """The shares of a silo's examples that are held out: each in [0, 1), `valid` and a test share together
    below 1.

    Attributes:
        valid: Drawn for validation.
        test: Drawn for testing.
        public: Of all training examples, before they are cut: belongs to no silo, all may see it.
        test_last: Those for testing are the last ones by the data's order, in place of drawn.
        stratify: Whether each class has its part of what is drawn, where an example has one class.
    """

    valid: float = 0.0
    test: float = 0.0
    public: float = 0.0
    test_last: float = 0.0
    stratify: bool = True

    def __post_init__(self) -> None:
        for name in SHARES:
            if not 0 <= (share := getattr(self, name)) < 1:
                given = f"--{name.replace('_', '-')}: {share} given"
                raise InputError(f"{given}; it must be at least 0 and below 1, for instance 0.1")
        if self.test and self.test_last:
            raise InputError(f"--test-last: {self.test_last} given, and --test {self.test}; use one of them")
        tested = ("test_last", self.test_last) if self.test_last else ("test", self.test)
        if Fraction(str(self.valid)) + Fraction(str(tested[1])) >= 1:
            both = f"--valid, --{tested[0].replace('_', '-')}: {self.valid} and {tested[1]}"
            raise InputError(f"{both} leave nothing to train on; lower them")

    def told(self, data: Dataset) -> dict[str, Any]:
        """Return what `federation.json` says of how a data set was held out and kept together."""
        told = {name: share for name in SHARES if (share := getattr(self, name))}
        if (self.valid or self.test) and self._labels(data, np.arange(0)) is not None:
            told["stratify"] = True
        if self.test_last and data.order:
            told["order"] = data.order.name
        return told | ({"group": data.groups.name} if data.groups else {})

    def set_public_aside(self, data: Dataset, seed: int, *, natural: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the examples that stay private and of those that become public, each in
        order.

        What the source holds for testing stays private, and groups stay whole.

        Raises:
            InputError: silos are `natural`, and one of them would have nothing left to train on; or no group
                is small enough.
        """
        everything = np.arange(len(data))
        train = everything if data.held is None else everything[~data.held]
        if not (public := int(Fraction(str(self.public)) * len(train))):
            return everything, np.arange(0)
        units = units_of(train, data.groups, None)
        order = numpy_stream(seed, "public").permutation(len(units.sizes))
        (taken,) = drawn(order, units.sizes, units.classes, [public])
        _check_taken("public", self.public, public, taken, units, data.where)
        chosen = np.sort(units.rows(taken))
        if natural and data.silo is not None:
            self._check_left(data, data.silo[train], np.flatnonzero(~np.isin(train, chosen)))
        return np.delete(everything, chosen), chosen

    def _check_left(self, data: Dataset, silo: np.ndarray, private: np.ndarray) -> None:
        """See that each of the silos [n] of all training examples
        still occurs among those that stay private."""
        if len(lost := np.setdiff1d(silo, silo[private])):
            name = (data.silo_names or {}).get(int(lost[0]), str(lost[0]))
            taken = f"takes all {np.count_nonzero(silo == lost[0])} training examples of silo '{name}'"
            raise InputError(f"--public: {self.public} {taken}; lower it, or use a scheme other than natural")

    def split(
        self, part: np.ndarray, seed: int, silo: int, data: Dataset | None = None, name: str | None = None
    ) -> dict[str, np.ndarray]:
        """Split the indices of a silo's examples; at least one is left to train on, and no split is empty.

        A share is rounded down to whole examples: as a fraction, for 0.29 * 100 is 28.999999999999996. Each
        class has its part of what is drawn, and groups stay whole (`drawn`).

        Args:
            part: The indices.
            seed: The federation's seed.
            data: What the indices are of; None for examples of which nothing is known.
            name: What the silo is called. The draw follows it, for further silos may change the number. It
                follows the number of a silo called by that, and of data drawn `by_rows`.

        Raises:
            InputError: the source itself holds some out, and a share is given; the order is not known, or
                does not tell where the last ones begin; no group is small enough.
        """
        if data is not None and data.held is not None and data.held.any():
            held = data.held[part]
            rest, test = part[~held], part[held]
            self._check_rest(rest, test, silo)
            splits = self.split(rest, seed, silo, replace(data, held=None), name)
            return {**splits, "test": test} if len(test) else splits
        last = self._last(part, silo, data) if self.test_last else part[:0]
        rest = part[~np.isin(part, last)] if len(last) else part
        valid, test = (int(Fraction(str(share)) * len(part)) for share in (self.valid, self.test))
        groups, labels = (data.groups, self._labels(data, rest)) if data is not None else (None, None)
        units = units_of(rest, groups, labels)
        if valid + test == 0 and not (groups and self.valid + self.test):
            return {"train": rest, "test": last} if len(last) else {"train": part}
        by = silo if name in (None, f"silo {silo}") or (data and data.by_rows) else name
        order = numpy_stream(seed, f"hold out:{by}").permutation(len(units.sizes))
        taken = drawn(order, units.sizes, units.classes, [valid, test], units.held)
        for name, total, own in zip(("valid", "test"), (valid, test), taken, strict=True):
            if groups:
                _check_taken(name, getattr(self, name), total, own, units, f"silo {silo}")
        train = order[~np.isin(order, np.concatenate(taken))]
        splits = dict(zip(("train", "valid", "test"), map(units.rows, (train, *taken)), strict=True))
        splits = {**splits, "test": last} if len(last) else splits
        return {name: indices for name, indices in splits.items() if len(indices)}

    def _labels(self, data: Dataset, part: np.ndarray) -> np.ndarray | None:
        """Return the class numbers that some examples are stratified by; None where they are not."""
        wanted = self.stratify and data.single and not data.by_rows
        return np.asarray(data.y[part]) if wanted else None

    def _last(self, part: np.ndarray, silo: int, data: Dataset | None) -> np.ndarray:
        """Return the last of some examples, in their order; a group is as late as the last of its rows."""
        if data is None or data.order is None:
            raise InputError(
                f"--test-last: {self.test_last} given; say --order COLUMN, by which they are last"
            )
        total, units = int(Fraction(str(self.test_last)) * len(part)), units_of(part, data.groups, None)
        rows, starts = units.rows(np.arange(len(units.sizes))), np.cumsum(units.sizes) - units.sizes
        when = np.maximum.reduceat(data.order.of[rows], starts)
        latest = np.argsort(-when, kind="stable")
        count = int(np.searchsorted(np.cumsum(units.sizes[latest]), total, side="right"))
        if 0 < count < len(latest) and when[latest[count - 1]] == when[latest[count]]:
            ties = np.count_nonzero(when == when[latest[count]])
            what = f"{ties:,} of silo {silo} have the same {data.order.name} where the last {self.test_last}"
            raise InputError(f"--test-last: {what} begin; use another share, or an order without such ties")
        if data.groups:
            _check_taken("test-last", self.test_last, total, latest[:count], units, f"silo {silo}")
        rows = units.rows(latest[:count])
        return rows[np.argsort(data.order.of[rows], kind="stable")]

    def _check_rest(self, rest: np.ndarray, test: np.ndarray, silo: int) -> None:
        """Refuse a test share beside what the source holds for testing, and a silo of nothing else."""
        for name, share in (("test", self.test), ("test-last", self.test_last)):
            if share:
                itself = "the source itself says what is for testing"
                raise InputError(f"--{name}: {share} given, but {itself}; leave it out")
        if not len(rest):
            raise InputError(
                f"--scheme: all {len(test)} examples of silo {silo} are for testing; ask for fewer silos"
            )


def _check_taken(name: str, share: float, total: int, taken: np.ndarray, units: Units, where: str) -> None:
    """Refuse a share that no group is small enough for."""
    if share and not len(taken):
        rows, least = int(units.sizes.sum()), int(units.sizes.min())
        of = "its one group" if len(units.sizes) == 1 else "of its groups that are left the smallest"
        what = f"{share} of the {rows} examples of {where} are {total}, and {of} has {least} or more"
        raise InputError(f"--{name}: {what}; use a larger share, fewer silos, or leave it out")
