"""Run the tests that need a GPU. One that ends its process is noted, and another process runs the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from scripts.gpu_day.reporting import Noted, arguments, not_here
from scripts.gpu_day.steps import ROOT

TESTS = "tests/device/test_hardware.py"
BEGAN = "began"
MOST = 40
"""So many processes are tried."""
PYTEST_ENDED = (0, 1, 5)
"""Pytest's exit codes when it came to its end: all well, some failed, none was left."""


def main() -> None:
    given = arguments(__doc__)
    if find_spec("pytest") is None:
        not_here("pytest is not installed")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "scripts.gpu_day.outcomes", TESTS]
    if find_spec("xdist"):
        words += ["-n", "0"]
    for _ in range(MOST):
        told = {**os.environ, "GPU_DAY_OUTCOMES": str(given.json.resolve())}
        ended = subprocess.run(words, cwd=ROOT, env=told, check=False)
        noted = Noted(given.json)
        if ended.returncode in PYTEST_ENDED:
            break
        for name in [name for name, outcome in noted.figures.items() if outcome == BEGAN]:
            noted.add(name, f"ended its process ({ended.returncode})")
    outcomes = [str(outcome) for outcome in Noted(Path(given.json)).figures.values()]
    sys.exit(0 if all(outcome.startswith(("passed", "skipped")) for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
