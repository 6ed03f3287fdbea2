"""What run folders come to: tables, curves, a page."""

from __future__ import annotations

from mpifl.report.compare import Output, compare_runs, show_run
from mpifl.report.evaluate import evaluate_run
from mpifl.report.page import write_report
from mpifl.report.runs import Summary, read_run

__all__ = ["Output", "Summary", "compare_runs", "evaluate_run", "read_run", "show_run", "write_report"]
