"""Who is in the data: counts, means, quartiles and histograms of all silos' rows, from exact sums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import PrivateAttr
from torch import Tensor

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.silo import Silo
from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.column_moments import SUMS, MeanDeviation, moments_of, moments_of_silo, power_sums
from mpifl.wings.analysis.column_summaries import BINS, Measured, Summaries, ranks_of
from mpifl.wings.analysis.federation_columns import OWN_SPLITS, FederationColumns
from mpifl.wings.analysis.number_cells import CELLS, MOST_VALUES, Search, counted, keys_of
from mpifl.wings.analysis.whole_sums import ReleasedTable, in_room
from mpifl.wire import MOST_SCALARS, Update, summed

BEYOND = 2.0**129
"""An edge above all numbers, in place of those that a histogram lacks."""
NOT_TOLD = MeanDeviation(0.0, -1.0)
"""What a silo sends of a column of which it tells nothing."""
ROOM, ROOM_OF_SILO = 4096, 128
"""Bytes of a column's part of the table, without names, and of a silo's part of that."""


class TableOne(ReleasedTable):
    """The first table of a paper: who is in the data, by variable (Pollard et al. 2018, "tableone").

    Silos send counts, and sums of slices of numbers. These add up without error, so all bits are those of one
    silo with all rows. The result withholds what is of few rows. No model is trained.
    """

    extremes: bool = False
    """Tell the smallest and the largest number of a column. Each may be of one row."""
    by_silo: bool = False
    """Tell each silo's means and shares, too, and how far silos part."""

    _columns: FederationColumns = PrivateAttr()
    _silos: tuple[str, ...] = PrivateAttr(())
    _rows: tuple[int, ...] = PrivateAttr(())
    _whose: dict[str, int | None] = PrivateAttr({})
    """How many groups the rows are of, and how many rows the shards have left out, where they know it."""

    @property
    def tells_extremes(self) -> bool:
        """Whether the smallest and the largest number of a column may be told."""
        return self.extremes

    def for_federation(self, spec: AnySpec) -> TableOne:
        """Return the algorithm with the columns of the federation.

        Raises:
            InputError: it cannot describe such examples.
        """
        found = super().for_federation(spec)
        assert isinstance(found, TableOne)
        assert isinstance(spec, FederationSpec)
        found._columns = FederationColumns.of(spec, "tableone")
        if self.by_silo and 2 * len(found._columns.names) > MOST_SCALARS:
            what = f"tells two numbers of each column, and a silo tells up to {MOST_SCALARS:,}; leave it out"
            raise InputError(f"[algorithm] by_silo = true: {what}")
        found._silos = tuple(entry.name for entry in spec.silos)
        found._rows = tuple(sum(entry.examples.get(of, 0) for of in OWN_SPLITS) for entry in spec.silos)
        found._whose = self._told_of_rows(spec, sum(found._rows))
        return found

    def _told_of_rows(self, spec: FederationSpec, rows: int) -> dict[str, int | None]:
        """Return of how many groups the rows are, and how many were left out; None for a withheld count."""
        groups = [entry.groups for entry in spec.silos if entry.groups is not None]
        many = sum(sum(one.get(of, 0) for of in OWN_SPLITS) for one in groups)
        known = len(groups) == len(spec.silos) > 0 and (rows == many or rows - many >= self.least)
        dropped = spec.source.get("dropped")
        lost = dropped.get("rows") if isinstance(dropped, Mapping) else None
        found: dict[str, int | None] = {"groups": many} if known else {}
        if isinstance(lost, int) and lost > 0:
            found["left_out"] = lost if lost >= self.least else None
        return found

    def begin(self, server: Server) -> None:
        """Leave the model as it is, and make room for the table."""
        super().begin(server)
        names = json.dumps([*self._columns.names, *self._silos])
        silos = ROOM_OF_SILO * len(self._silos) if self.by_silo else 0
        server.state["table"] = in_room({}, len(self._columns.names) * (ROOM + silos) + 2 * len(names))

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the sums."""
        p = len(self._columns.names)
        cells = CELLS * MOST_VALUES * p
        return {"first": CELLS * p, "cells": cells, "sums": 2 * SUMS * p, "bins": BINS * p}

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for all sums, and make the table."""
        p = len(self._columns.names)
        search = Search(p, lambda count: ranks_of(count, self.extremes))
        search.take(self.of_all(cohort, cohort.mean(self.count), "first"))
        tops = torch.tensor(search.tops, dtype=torch.float64)
        mean = cohort.mean(self.count_second, tops=tops, cut_0=search.cut[0])
        sums = exact.whole_numbers(self.of_all(cohort, mean, "sums"), SUMS, p)
        search.take(self.of_all(cohort, mean, "cells"))
        for work in (self.count_third, self.count_fourth):  # a round asks for each work once
            cut = {f"cut_{nth}": chosen for nth, chosen in enumerate(search.cut)}
            search.take(self.of_all(cohort, cohort.mean(work, **cut), "cells"))
        moments = map(moments_of, sums.T.tolist(), search.tops, search.counts)
        measured = [*map(Measured, search.counts, search.columns, moments)]
        table = self._table(cohort, measured)
        server.state["table"] = in_room({"table": table}, len(server.state["table"]))
        return {"variables": float(len(table["variables"]))}

    def _table(self, cohort: Cohort, measured: Sequence[Measured]) -> dict[str, Any]:
        """Ask for histograms and for silos' figures; return the table."""
        rows, units = sum(self._rows), [self._columns.unit(nth) for nth in range(len(measured))]
        edges = [one.edges(unit) for one, unit in zip(measured, units, strict=True)]
        stored = [[*map(unit.stored, of)] for unit, of in zip(units, edges, strict=True)]
        filled = [[*of, *[BEYOND] * (BINS - 1 - len(of))] for of in stored]
        flat = torch.tensor(filled, dtype=torch.float64).reshape(-1)
        bins = self.of_all(cohort, cohort.mean(self.fill, edges=flat), "bins")
        histograms = dict(enumerate(zip(edges, bins.long().reshape(-1, BINS).tolist(), strict=True)))
        summaries = Summaries(self._columns, measured, histograms, rows, self.least, self.extremes)
        variables = summaries.table()
        told = {"rows": rows, **self._whose, "least": self.least, "variables": variables}
        if not self.by_silo:
            return told
        summaries.with_silos(variables, self._of_silos(cohort, measured), self._rows)
        return told | {"silos": [*self._silos], "silo_rows": [*self._rows]}

    def _of_silos(self, cohort: Cohort, measured: Sequence[Measured]) -> dict[int, list[MeanDeviation]]:
        """Return the moments of all silos, by column: of those columns of which all silos tell theirs."""
        few = torch.tensor([one.found.whole for one in measured], dtype=torch.float64)
        mean, found = cohort.mean(self.describe, few=few), dict[int, list[MeanDeviation]]()
        self.check_all(cohort, mean)
        for nth in range(len(measured)):
            means, deviations = (mean.of_silos(f"{key}_{nth}") for key in MeanDeviation._fields)
            if len(means) == len(deviations) == cohort.population and min(deviations.values()) >= 0:
                found[nth] = [*map(MeanDeviation, means.values(), deviations.values())]
        return found

    def count(self, silo: Silo) -> Update:
        """Send how many numbers of each column have each first digit.

        Raises:
            InputError: a number is missing or infinite, or there are too many of them.
        """
        for first, block in self._columns.of_silo(silo):
            if not (finite := block.isfinite()).all():
                name = self._columns.names[first + int(finite.all(0).long().argmin())]
                what = "has a number that is missing or infinite; fill it in, or leave the row out"
                raise InputError(f"column '{name}' {what}")
        counts = self._counts(silo)
        if (most := int(counts.reshape(-1, CELLS).sum(1).max())) > exact.MOST_ROWS:
            what = f"{most:,} numbers in a column, and exact sums take {exact.MOST_ROWS:,} of a silo"
            raise InputError(f"{what}; cut it into more silos")
        return silo.update(first=summed(counts))

    def count_second(self, silo: Silo, tops: Tensor, cut_0: Tensor) -> Update:
        """Send the counts of the second digit, and the sums of numbers and of their squares."""
        sums = torch.zeros(SUMS, len(self._columns.names), dtype=torch.int64)
        for first, block in self._columns.of_silo(silo):
            part = slice(first, first + block.shape[1])
            sums[:, part] += power_sums(block, tops[part])
        return silo.update(cells=summed(self._counts(silo, cut_0)), sums=summed(exact.packed(sums)))

    def count_third(self, silo: Silo, cut_0: Tensor, cut_1: Tensor) -> Update:
        """Send the counts of the third digit."""
        return silo.update(cells=summed(self._counts(silo, cut_0, cut_1)))

    def count_fourth(self, silo: Silo, cut_0: Tensor, cut_1: Tensor, cut_2: Tensor) -> Update:
        """Send the counts of the last digit."""
        return silo.update(cells=summed(self._counts(silo, cut_0, cut_1, cut_2)))

    def fill(self, silo: Silo, edges: Tensor) -> Update:
        """Send how many numbers lie between edges; there are BINS - 1 for each column, flat."""
        edges = edges.reshape(-1, BINS - 1)
        counts = torch.zeros(len(edges), BINS, dtype=torch.int64)
        for first, block in self._columns.of_silo(silo):
            part = slice(first, first + block.shape[1])
            places = torch.searchsorted(edges[part], block.T.double().contiguous(), right=True)
            counts[part].scatter_add_(1, places, torch.ones_like(places))
        return silo.update(bins=summed(counts.reshape(-1)))

    def describe(self, silo: Silo, few: Tensor) -> Update:
        """Send the silo's own means and deviations, but for those that would be of few rows.

        Args:
            few: 1 for each column with few different numbers, else 0.
        """
        columns: list[list[Tensor]] = [[] for _ in self._columns.names]
        for first, block in self._columns.of_silo(silo):
            for nth, column in enumerate(block.T, first):
                columns[nth].append(column)
        rows = sum(len(silo.split(name)) for name in filter(silo.has, OWN_SPLITS))
        told = dict[str, Any]()
        for nth, parts in enumerate(columns):
            column = torch.cat(parts)
            least = self.least * len(column) // rows
            own = moments_of_silo(column, least, counted=bool(few[nth])) or NOT_TOLD
            told |= {f"{key}_{nth}": value for key, value in own._asdict().items()}
        return silo.update(**told)

    def _counts(self, silo: Silo, *cut: Tensor) -> Tensor:
        """Return how many of the silo's numbers lie in each cell."""
        p, blocks = len(self._columns.names), self._columns.of_silo(silo)
        return torch.as_tensor(sum(counted(keys_of(block), first, p, cut) for first, block in blocks))
