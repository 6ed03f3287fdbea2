"""The debug mode: with one environment variable trainings take the plainest steps, and errors tell all."""

from __future__ import annotations

import os

DEBUGGING = "MPIFL_DEBUG"
"""Environment variable: "1" makes steps PyTorch's own, and shows tracebacks of errors in relayed records."""


def debugging() -> bool:
    """Return whether the variable is set; "" and "0" count as not set."""
    return os.environ.get(DEBUGGING, "") not in ("", "0")
