"""Groups of rows: the levels of a column, or the silos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.common import InputError, choices
from mpifl.data import Features
from mpifl.data.shards import FederationSpec

ALL = "all rows"
MOST_GROUPS = 20
TAKES = "takes a category, or a column of zeros and ones"


@dataclass(frozen=True)
class RowGroups:
    """The groups that rows belong to.

    Attributes:
        names: What they are called.
        by: The column that divides rows; "" if none does.
        columns: The place of the columns of zeros and ones for its levels; of a single column, its place.
        by_silo: Whether silos are the groups.
    """

    names: Sequence[str]
    by: str = ""
    columns: Sequence[int] = ()
    by_silo: bool = False

    @classmethod
    def of(cls, spec: FederationSpec, by: str, by_silo: bool) -> RowGroups:
        """Return the groups of a federation's rows.

        Raises:
            InputError: there is no such column, or there are too many groups.
        """
        found = cls([ALL])
        if by and by_silo:
            raise InputError(
                f"[algorithm] by = '{by}': by_silo = true makes silos the groups; use one of them"
            )
        if by_silo:
            found = cls([entry.name for entry in spec.silos], by_silo=True)
        elif by:
            found = cls._of_column(spec, by)
        if (many := len(found.names)) > MOST_GROUPS:
            key = "by_silo = true" if by_silo else f"by = '{by}'"
            raise InputError(
                f"[algorithm] {key}: {many} groups, and {MOST_GROUPS} are told at most; leave it out"
            )
        return found

    @classmethod
    def _of_column(cls, spec: FederationSpec, by: str) -> RowGroups:
        x = spec.features
        if not isinstance(x, Features) or x.ragged or len(x.shape) != 1:
            raise InputError(f"[algorithm] by = '{by}': these shards have no table of features; leave it out")
        names = [*(spec.feature_names or (f"x{nth}" for nth in range(x.shape[0])))]
        levels = {nth: name.partition("=")[2] for nth, name in enumerate(names) if name.startswith(f"{by}=")}
        if levels:
            return cls([f"{by} = {level}" for level in levels.values()], by, [*levels])
        if by in names:
            return cls([f"{by} = 0", f"{by} = 1"], by, [names.index(by)])
        there = dict.fromkeys(name.partition("=")[0] for name in names)
        raise InputError(f"[algorithm] by = '{by}': no column is called so; {choices(by, [*there], 'use')}")

    def of_rows(self, silo: int, x: Any, rows: int) -> Tensor:
        """Return the number of the group of each row, int64 of shape [n].

        Levels may be standardised: of zeros and ones, the ones lie above 0.

        Args:
            silo: The silo's number.
            x: The rows, shape [n, c]; not looked at unless a column divides them.
            rows: n.

        Raises:
            InputError: a row has no level, or two, or is neither zero nor one.
        """
        if not self.columns:
            return torch.full((rows,), silo if self.by_silo else 0)
        column = x[:, list(self.columns)]
        if len(self.columns) > 1:
            if ((ones := column > 0).sum(1) != 1).any():
                what = "a row has none of its levels, or several"
                raise InputError(f"column '{self.by}': {what}; by {TAKES}")
            return torch.as_tensor(ones.long().argmax(1))
        if ((column != 0) & (column != 1)).any():
            raise InputError(f"column '{self.by}': has other numbers than 0 and 1; by {TAKES}")
        return torch.as_tensor(column.reshape(-1).long())
