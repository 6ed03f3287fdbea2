"""Runs side by side as files for other programs: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.report.runs.compared_columns import metrics_of
from mpifl.report.runs.runs import Summary
from mpifl.report.runs.seeds import Group, groups, settings, shown, varying
from mpifl.report.runs.standings import COLUMNS, of_runs, of_settings, standings_of

LeftOut = Mapping[Path, str]
"""Why runs cannot be read."""


def as_csv(summaries: Sequence[Summary], target: float | None) -> str:
    """Return a line for every run: its state, settings in which the runs differ, its figures in full."""
    keys = varying(summaries)
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    names = list(dict.fromkeys(name for summary in summaries for name in summary.figures(target)))
    setting = of_runs(summaries)
    writer.writerow(["run", "finished", "remarks", *keys, *names, *COLUMNS])
    for summary in summaries:
        job = settings(summary.job)
        state = [summary.run, str(summary.finished).lower(), "; ".join(summary.remarks)]
        own = [shown(job[key]) if key in job else "" for key in keys]
        values = map(summary.figures(target).get, names)
        told = ["" if value is None else repr(value) for value in values]
        standing = setting.get(summary.run) or [None] * len(COLUMNS)
        writer.writerow([*state, *own, *told, *("" if value is None else value for value in standing)])
    return content.getvalue()


def as_json(summaries: Sequence[Summary], left_out: LeftOut, target: float | None) -> str:
    """Return the runs, the means over seeds and what was left out, as one JSON object."""
    keys = varying(summaries)
    found: dict[str, Any] = {
        "_".join(["target", *(metric.name for metric in metrics_of(summaries))]): target,
        "runs": [_run_as_json(summary, keys, target) for summary in summaries],
        "settings": of_settings(standings_of(summaries)),
        "over_seeds": [_group_as_json(group, target) for group in groups(summaries) if len(group.runs) > 1],
        "left_out": [{"run": str(run), "reason": reason} for run, reason in left_out.items()],
    }
    return json.dumps(found, indent=1, default=str, allow_nan=False) + "\n"


def _run_as_json(summary: Summary, keys: Sequence[str], target: float | None) -> dict[str, Any]:
    return {
        "run": str(summary.run),
        "finished": summary.finished,
        "remarks": list(summary.remarks),
        "settings": _plain({key: value for key, value in settings(summary.job).items() if key in keys}),
        **summary.figures(target),
        "worst_silo": summary.worst_silo,
    }


def _plain(value: Any) -> Any:
    """Return what JSON has words for: times and numbers that are not finite become text."""
    return json.loads(json.dumps(value, default=str), parse_constant=str)


def _group_as_json(group: Group, target: float | None) -> dict[str, Any]:
    spread = group.spread(target)
    return {
        "name": group.name,
        "runs": [str(run.run) for run in group.runs],
        "seeds": _plain([run.job["seed"] for run in group.runs]),
        "mean": {name: each[0] for name, each in spread.items() if each},
        "std": {name: each[1] for name, each in spread.items() if each},
    }
