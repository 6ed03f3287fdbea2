"""Survival curves of all silos' rows and the log-rank test, from exact counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import PositiveFloat, PrivateAttr
from torch import nn

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec, open_shard
from mpifl.silo import Silo
from mpifl.wings.analysis import OWN_SPLITS, ReleasedTable, exact_products as exact, in_room, kind_of
from mpifl.wings.analysis.survival.log_rank import log_rank
from mpifl.wings.analysis.survival.row_groups import RowGroups
from mpifl.wings.analysis.survival.survival_curves import ToldCurve
from mpifl.wings.analysis.survival.time_grid import CELLS, STEPS, TimeGrid, pairs_of, step_counts
from mpifl.wire import Update, summed

WIDE = CELLS + 1
ROOM, ROOM_OF_SPAN = 1024, 160
"""Bytes of a group's part of the table, and of a span."""
KINDS = 2
"""A row has its event, or is censored."""


class KaplanMeier(ReleasedTable):
    """Survival curves (Kaplan and Meier 1958), Greenwood's intervals and the log-rank test between groups.

    Silos count events and censored rows in cells of time. Whole numbers add up without error, so all bits are
    those of one silo with all rows. Curves are told at the ends of spans of time that have `least` rows or
    more, and are exact there. No model is trained.
    """

    by_silo: bool = False
    """Silos are the groups: tell each one's curve."""
    by: str = ""
    """The column whose levels are the groups: a category, or a column of zeros and ones."""
    step: PositiveFloat | None = None
    """Times are rounded up to multiples of this. By default it is the least round number with 16,384 steps or
    fewer; days and months then stay as they are."""

    no_model: ClassVar[str] = "makes curves of the rows; mpifl survival RUN shows them"
    needs: ClassVar[str] = "takes times and events; use [task] name = 'survival'"

    _groups: RowGroups = PrivateAttr()
    _rows: int = PrivateAttr(0)

    def for_federation(self, spec: AnySpec) -> KaplanMeier:
        """Return the algorithm with the groups of the federation.

        Raises:
            InputError: it has none such.
        """
        found = super().for_federation(spec)
        assert isinstance(found, KaplanMeier)
        assert isinstance(spec, FederationSpec)
        found._groups = RowGroups.of(spec, self.by, self.by_silo)
        found._rows = sum(entry.examples.get(of, 0) for entry in spec.silos for of in OWN_SPLITS)
        return found

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that targets are times and events.

        Raises:
            InputError: they are not.
        """
        if kind_of(self.task) != "survival":
            raise InputError(f"[algorithm] name = 'kaplanmeier': {self.needs}")

    def check_groups(self, folder: Path, spec: FederationSpec) -> None:
        """Check that the first rows of each shard that lies here belong to groups, before a run is made.

        Raises:
            InputError: a row does not. Others are looked at in the round.
        """
        for entry in spec.silos if self._groups.columns else ():
            if not (folder / entry.file).exists():
                continue
            shard = open_shard(folder, entry, spec, checksum=False)
            for split in filter(entry.examples.get, OWN_SPLITS):
                x = torch.as_tensor(np.asarray(shard[split].arrays["x"][: exact.BLOCK]))
                try:
                    self._groups.of_rows(0, x, len(x))
                except InputError as error:
                    raise InputError(f"silo {entry.name}: {error}") from None

    def begin(self, server: Server) -> None:
        """Leave the model as it is, and make room for the table."""
        super().begin(server)
        groups = len(self._groups.names)
        spans = min(self._rows // self.least + groups, groups * WIDE)
        server.state["table"] = in_room({}, ROOM * (groups + 1) + ROOM_OF_SPAN * spans)

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the counts."""
        return {"steps": len(STEPS), "cells": len(self._groups.names) * KINDS * WIDE}

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the counts, and keep what may be told of them."""
        steps = self.of_all(cohort, cohort.mean(self.measure), "steps")
        grid = TimeGrid(self.step) if self.step else TimeGrid.reaching(steps)
        cells = self.of_all(cohort, cohort.mean(self.count, step=grid.step), "cells")
        counts = cells.numpy().reshape(-1, KINDS, WIDE)
        whole = counts.astype(int).tolist()
        curves = [ToldCurve.of(events, censored, self.least) for events, censored in whole]
        test = log_rank(counts) if all(one is not None for one in curves) else None
        kept = {"step": grid.step, "curves": curves, "log_rank": test}
        server.state["table"] = in_room(kept, len(server.state["table"]))
        return {"curves": float(sum(bool(one and one.spans) for one in curves))}

    def told(self, server: Server) -> dict[str, Any]:
        """Return the curves for a round's record."""
        if not (kept := super().told(server)):
            return {}
        grid = TimeGrid(kept["step"])
        curves = [one and ToldCurve.kept(*one) for one in kept["curves"]]
        both = zip(self._groups.names, curves, strict=True)
        groups = [_told_of(name, curve, grid) for name, curve in both if curve is None or curve.spans]
        test = kept["log_rank"] and dict(zip(("statistic", "degrees", "p"), kept["log_rank"], strict=True))
        by = "silo" if self.by_silo else self.by
        told = {"step": grid.step, "least": self.least, "by": by, "groups": groups}
        return {"survival": told | ({"log_rank": test} if test else {})}

    def measure(self, silo: Silo) -> Update:
        """Send how many times have each step as the least that reaches them."""
        splits = filter(silo.has, OWN_SPLITS)
        counts = (step_counts(pairs[:, 0]) for split in splits for _, pairs in pairs_of(silo, split))
        return silo.update(steps=summed(torch.as_tensor(sum(counts))))

    def count(self, silo: Silo, step: float) -> Update:
        """Send how many rows of each group have their event, or are censored, in each cell of time."""
        grid, found = TimeGrid(step), torch.zeros(len(self._groups.names) * KINDS * WIDE, dtype=torch.int64)
        for split in filter(silo.has, OWN_SPLITS):
            for x, pairs in pairs_of(silo, split):
                group = self._groups.of_rows(silo.id, x, len(pairs))
                places = (KINDS * group + (pairs[:, 1] == 0)) * WIDE + grid.cells(pairs[:, 0])
                found += torch.bincount(places, minlength=len(found))
        return silo.update(cells=summed(found))


def _told_of(name: str, curve: ToldCurve | None, grid: TimeGrid) -> dict[str, Any]:
    """Return what is told of a group."""
    if curve is None:
        return {"name": name, "withheld": True}
    events, censored = (sum(getattr(one, key) for one in curve.spans) for key in ("events", "censored"))
    told = {"name": name, "withheld": False, "rows": events + censored, "events": events}
    return told | {"censored": censored, **curve.medians(grid), "curve": curve.rows(grid)}
