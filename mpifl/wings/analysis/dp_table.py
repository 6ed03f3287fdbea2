"""A table of the rows with differential privacy: noised counts, histograms, sums and means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, PrivateAttr, field_validator, model_validator

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError, did_you_mean
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.silo import Silo
from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.federation_columns import FederationColumns
from mpifl.wings.analysis.noised_figures import figures_of
from mpifl.wings.analysis.whole_sums import OneTable, in_room
from mpifl.wings.dpsgd import PrivateRows
from mpifl.wings.privacy import BinCounts, BoundedColumn, BoundedSum, LevelCounts, PowerSum, RowCount
from mpifl.wire import Update, summed

SQUARED = 10**6
"""A silo tells z^2 in units of 1 / SQUARED: whole numbers add up without error."""
ROOM = 1024
"""Bytes of a figure in the table, without names."""
_HISTOGRAM = "have no noise; read them off the noised histogram of [algorithm] bins"
UNTOLD: dict[str, str] = {
    **dict.fromkeys(("quantiles", "quartiles", "median"), f"exact quantiles {_HISTOGRAM}"),
    **dict.fromkeys(("extremes", "minimum", "maximum"), f"extremes are of single rows and {_HISTOGRAM}"),
    **dict.fromkeys(
        ("correlations", "regression", "coefficients"),
        "products of columns are not noised; use 'fedavg' with [privacy] for a model of the columns",
    ),
    **dict.fromkeys(
        ("survival", "curves"), "curves are not noised; give the time bounds, for its noised histogram"
    ),
    "by_silo": "adds up the silos' sums and tells none of them alone; leave it out",
    "least": "withholds no small counts, since noise protects them; leave it out",
}
"""What is refused by name, and what would do."""


class DPTable(OneTable):
    """A table of the rows with differential privacy of each row (Dwork & Roth 2014, "The algorithmic
    foundations of differential privacy", Appendix A).

    Counts, sums within stated bounds and histograms get whole-number noise at each silo, all as one Gaussian
    mechanism. No model is trained.
    """

    ways: ClassVar[tuple[str, ...]] = ("newton",)
    trainings: ClassVar[int] = 0
    not_private: ClassVar[str] = ""
    not_noised: ClassVar[str] = "hides rows and no silos; use [privacy] level = 'example'"

    bounds: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default={})
    """The columns of numbers, each with the bounds that numbers are clipped to, as `age = [18, 90]`. State
    them from what you know without the data."""
    categories: list[str] = Field(default=[])
    """The categories whose levels are counted; also the label of classes."""
    bins: Annotated[int, Field(ge=0, le=1000)] = 10
    """Bins of equal width in the histogram of each column with bounds; 0 for no histograms."""

    _columns: FederationColumns = PrivateAttr()
    _sums: tuple[BoundedSum, ...] = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _untold(cls, table: Any) -> Any:
        for key in table if isinstance(table, Mapping) else ():
            if key in UNTOLD and table[key] is not False:
                raise ValueError(f"{key}: 'dptable': {UNTOLD[key]}")
        return table

    @field_validator("bounds")
    @classmethod
    def _ordered(cls, bounds: dict[str, list[float]]) -> dict[str, list[float]]:
        for name, (lower, upper) in bounds.items():
            if not 1e-300 < upper - lower < float("inf"):
                raise ValueError(f"bounds.{name} = [{lower:g}, {upper:g}]: give a lower and a larger upper")
        return bounds

    def for_federation(self, spec: AnySpec) -> DPTable:
        """Return the algorithm with the columns of the federation.

        Raises:
            InputError: it cannot describe such examples, or has no such column.
        """
        found = super().for_federation(spec)
        assert isinstance(found, DPTable)
        assert isinstance(spec, FederationSpec)
        x, y, classes = spec.features, spec.targets, spec.classes or 0
        found._columns = FederationColumns.of(spec, "dptable")
        if len(getattr(x, "shape", ())) != 1 or len(getattr(y, "shape", ())) > (0 if classes else 1):
            what = "describes a table, with a number of each column and row; these shards have arrays"
            raise InputError(f"[algorithm] name = 'dptable': {what}")
        found._sums = (RowCount(), *found._of_categories(), *found._of_bounds())
        return found

    def _of_categories(self) -> Iterator[BoundedSum]:
        columns = self._columns
        for nth, name in enumerate(self.categories):
            if name not in columns.groups or name in self.categories[:nth]:
                listed = f"{did_you_mean(name, columns.groups)}name each of {_some(columns.groups)} once"
                raise InputError(f"[algorithm] categories: '{name}' is given twice or no category; {listed}")
            of, units = columns.groups[name], [columns.unit(one) for one in columns.groups[name]]
            yield LevelCounts(tuple(of), tuple((0.5 - unit.mean) / unit.deviation for unit in units))

    def _of_bounds(self) -> Iterator[BoundedSum]:
        names = self._columns.names
        for name, bounds in self.bounds.items():
            if name not in names:
                by = (
                    "a category, which 'categories' may name" if name in self._columns.groups else "no column"
                )
                listed = f"{did_you_mean(name, names)}there are {_some(names)}"
                raise InputError(f"[algorithm] bounds.{name}: is {by}; {listed}")
            of = self._bounded(name, names.index(name), *bounds)
            yield from (PowerSum(of, power) for power in range(3))
            if self.bins:
                yield BinCounts(of, self.bins)

    def _bounded(self, name: str, place: int, lower: float, upper: float) -> BoundedColumn:
        """Return a column with its bounds; refuse it where its numbers would depend on other rows."""
        unit, where = self._columns.unit(place), f"[algorithm] bounds.{name} = [{lower:g}, {upper:g}]"
        if place in self._columns.by_mean:
            what = "the gaps of this column get the mean of other rows, which noise does not hide"
            to_do = "cut the shards with missing = 'constant' or 'drop'"
            raise InputError(f"{where}: {what}; {to_do}")
        of = BoundedColumn(place, lower, upper, unit.mean, unit.deviation)
        if not unit.tells(lower, upper, float(of.step)):
            what = f"lie far from {unit.mean:g}, the mean by which the shards were standardised, so that"
            to_do = "widen the bounds, or cut the shards with standardise = 'none'"
            raise InputError(f"{where}: {what} float32 has too few digits of such numbers; {to_do}")
        return of

    @property
    def _size(self) -> int:
        return sum(one.size for one in self._sums)

    def begin(self, server: Server) -> None:
        """Leave the model as it is, and make room for the table."""
        super().begin(server)
        longest = max(len(json.dumps(name)) for name in (*self._columns.names, *self._columns.groups, ""))
        server.state["table"] = in_room({}, 2 * (self._size + 1) * (ROOM + longest))

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the length of the sums and of z^2, in words."""
        return {"figures": 2 * (self._size + 1)}

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the noised sums, and make the table."""
        words = self.of_all(cohort, cohort.mean(self.sum_rows), "figures")
        *numbers, squares = exact.whole_numbers(words, self._size + 1).tolist()
        figures = figures_of(self, numbers, squares / SQUARED, cohort.population)
        table = {"bins": self.bins, "figures": figures}
        server.state["table"] = in_room({"noised": table}, len(server.state["table"]))
        return {"noised_figures": float(len(figures))}

    def sum_rows(self, silo: Silo) -> Update:
        """Send the silo's sums with its noise, and the square of its noise multiplier.

        Raises:
            InputError: the job has no `[privacy]`.
        """
        if not isinstance(silo, PrivateRows):
            raise InputError(NO_NOISE)
        sums, noise = silo.noised_sums(self._sums, self._columns.classes)
        told = torch.cat([sums, torch.tensor([round(noise**2 * SQUARED)])])
        return silo.update(figures=summed(exact.packed(told)))

    @property
    def columns(self) -> FederationColumns:
        """The columns of the federation."""
        return self._columns

    @property
    def sums(self) -> Sequence[BoundedSum]:
        """The sums that silos tell."""
        return self._sums


NO_NOISE = (
    "[algorithm] name = 'dptable': has noise by [privacy], and the job has none; add it, or use 'tableone'"
)


def _some(names: Any) -> str:
    return ", ".join([*names][:8]) or "none"
