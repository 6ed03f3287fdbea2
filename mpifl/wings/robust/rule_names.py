"""The rules of `[aggregation] rule` by name, for commands that list them."""

from __future__ import annotations

from typing import Any

from mpifl.sums import WeightedMean
from mpifl.wings.robust.column_rules import COLUMN_RULES
from mpifl.wings.robust.weight_rules import WEIGHT_RULES

RULES: dict[str, Any] = {"mean": WeightedMean, **COLUMN_RULES, **WEIGHT_RULES}
"""The mean, rules of columns, and rules by weights."""
