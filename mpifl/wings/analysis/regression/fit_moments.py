"""Mean and deviation of the columns of a regression, by which new rows are held against those of the fit."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from mpifl.wings.analysis.regression.score_sums import RowSums


def spread_of(sums: RowSums) -> Tensor:
    """Return the deviation of each column, shape [p], by the sums at coefficients of 0.

    There each row's weight in the information is the same, up to offsets and weights of its own. In a model
    of survival it is the deviation inside risk sets, in the mean over events.
    """
    whole = float(sums.information[0, 0]) or float(sums.events)
    return (sums.information.diag() / whole).clamp(min=0).sqrt()


def moments_told(
    state: Mapping[str, Any], names: Sequence[str], scaled: Collection[int], given: Mapping[int, float]
) -> dict[str, dict[str, list[float]]]:
    """Return `columns`, mean and deviation of each column of numbers by its name; {} where none has them.

    Args:
        state: The state of the server; that of a checkpoint of an older version has no `spread`.
        names: The columns, the intercept first.
        scaled: Columns that shards standardised, whose moments are theirs.
        given: Coefficients that are not fitted; a column of 0 is no part of the model.
    """
    if "spread" not in state:
        return {}
    both = [*zip(state["centre"].tolist(), state["spread"].tolist(), strict=True)]
    without = {0, *scaled, *(nth for nth, coefficient in given.items() if not coefficient)}
    told = (nth for nth, name in enumerate(names) if nth not in without and "=" not in name)
    found = {names[nth]: [*both[nth]] for nth in told if both[nth][1] and all(map(math.isfinite, both[nth]))}
    return {"columns": found} if found else {}
