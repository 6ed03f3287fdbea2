"""A plugin of pytest: it notes each test's outcome in a file as it comes, and runs none that has one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.gpu_day.reporting import Noted

noted = Noted(Path(os.environ["GPU_DAY_OUTCOMES"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what an earlier process has noted."""
    items[:] = [item for item in items if _short(item.nodeid) not in noted.figures]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note that a test began: one that ends the process has no other outcome."""
    noted.add(_short(nodeid), "began")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended."""
    if report.failed:
        noted.add(_short(report.nodeid), f"failed: {_last_line(report)}")
    elif report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        noted.add(_short(report.nodeid), f"skipped: {why}")
    elif report.when == "call":
        noted.add(_short(report.nodeid), "passed")


def _short(nodeid: str) -> str:
    return nodeid.rpartition("::")[2]


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(getattr(crash, "message", report.longreprtext)).strip()[:400].replace("\n", " | ")
