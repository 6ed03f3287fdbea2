"""Looking for a mistake: one variable has all trainings take the plainest steps, and errors tell all."""

from __future__ import annotations

import os

DEBUGGING = "MPIFL_DEBUG"
"""Environment variable: "1" has steps be PyTorch's own, and shows the tracebacks of what a rank is told."""


def debugging() -> bool:
    """Return whether the variable is set; "" and "0" are as good as not."""
    return os.environ.get(DEBUGGING, "") not in ("", "0")
