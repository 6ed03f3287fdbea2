"""The columns of a comparison: which figures, under which headings, and how they are written."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mpifl.common import InputError, suggested
from mpifl.common.machine import runnable
from mpifl.learning.metrics import (
    ACCURACY,
    CLASSES,
    LABELS,
    RISKS,
    TOKENS,
    VALUES,
    VOXELS,
    YES_OR_NO,
    MetricInfo,
)
from mpifl.report.runs.run_summary import TEST_ROWS, VALID_ROWS, Record, Summary
from mpifl.report.runs.units import size


@dataclass(frozen=True)
class ComparedColumn:
    """A column of the table: its heading, its figure, and how that is written."""

    heading: str
    figure: str
    decimals: int = 0
    scale: float = 1.0
    unit: str = ""
    write: Callable[[float], str] | None = None
    """How its figures are written, in place of decimals, a scale and a unit."""

    def show(self, value: float | None) -> str:
        """Write one figure."""
        return "-" if value is None else f"{self._figure(value)}{self.unit}"

    def show_spread(self, spread: tuple[float, float] | None) -> str:
        """Write a mean and a standard deviation."""
        if spread is None:
            return "-"
        if self.write is not None and not spread[1]:
            return self.write(spread[0])
        middle, deviation = map(self._figure, spread)
        return f"{middle} ± {deviation}{self.unit}"

    def _figure(self, value: float) -> str:
        if self.write is not None:
            return self.write(value)
        value *= self.scale
        return f"{value:,.{self.decimals}f}" if abs(value) < 1e9 else f"{value:.3g}"


TESTED = (("{}", "test_{}"), ("best{}", "best_{}"), ("test at the end{}", "final_{}"))
"""Headings and figures of the main metric on the test set;
a heading names the metric where runs have several."""
AT_SILOS = (
    ("silos' mean{}", "silo_{}_mean"),
    ("all examples{}", "silo_{}_pooled"),
    ("worst silo{}", "silo_{}_worst"),
    ("variance{}", "silo_{}_variance"),
)
BY_EXAMPLES = ("mean by examples{}", "silo_{}_weighted")
"""In place of all examples together, where a metric is not known of them."""
KEPT = ComparedColumn("model of round", "model_round", 0)
"""Of runs whose model is that of their best round."""
LOSS = ComparedColumn("loss", "test_loss", 4)
EPSILON = ComparedColumn("epsilon", "epsilon", 3)
COSTS = (
    ComparedColumn("seconds", "seconds", 1),
    ComparedColumn("virtual s", "virtual_seconds", 1),
    ComparedColumn("sent", "bytes_sent", write=size),
    ComparedColumn("received", "bytes_received", write=size),
)
NARROW = (
    "virtual_seconds",
    "bytes_received",
    "bytes_sent",
    "silo_{}_mean",
    "silo_{}_pooled",
    "silo_{}_weighted",
    "best_{}",
    "silo_{}_variance",
    "model_round",
    "test_loss",
)
"""What a narrow terminal does without, the first first."""
OFFERED = (CLASSES, LABELS, RISKS, TOKENS, VALUES, VOXELS, YES_OR_NO)
"""The metrics that a job of each task may name."""
TO_TARGET = (
    ComparedColumn("", "rounds_to_target", 0, 1, " rounds"),
    ComparedColumn("", "seconds_to_target", 1, 1, " s"),
    ComparedColumn("", "bytes_to_target", write=size),
    ComparedColumn("", "virtual_seconds_to_target", 1, 1, " virtual s"),
)


def columns_of(summaries: Sequence[Summary]) -> list[ComparedColumn]:
    """Return the columns for runs: those of each main metric among them, of the loss and of the costs."""
    metrics = metrics_of(summaries)

    def of(kinds: Sequence[tuple[str, str]]) -> list[ComparedColumn]:
        return [_column(*kind, metric, len(metrics) > 1) for metric in metrics for kind in kinds]

    apart = {summary.metric for summary in summaries if summary.together == summary.metric.weighted}
    by_examples = [_column(*BY_EXAMPLES, metric, len(metrics) > 1) for metric in metrics if metric in apart]
    single = all(len(summary.of_silos.get("silos") or ()) == 1 for summary in summaries)
    at_silos = AT_SILOS[1:2] if single else AT_SILOS  # which are all its figures, and no spread
    return [*of(TESTED), KEPT, EPSILON, LOSS, *of(at_silos), *by_examples, *COSTS]


def unequal_clocks(summaries: Sequence[Summary], target: float | None) -> list[str]:
    """Say where virtual times of runs differ, and where virtual seconds to the target stand."""
    clocks = [run.clock for run in summaries if run.clock is not None]
    if len({*clocks}) < 2:
        return []
    level = level_of(summaries, target)
    to_do = "give --target for the virtual seconds to it"
    if level is not None:
        to_do = f"see the virtual seconds in the column 'to {level}'"
    between = f"from {min(clocks):,.1f} to {max(clocks):,.1f} s"
    return [f"Virtual times differ, {between}: equal rounds are unequal times; {to_do}."]


def fitting(
    columns: Sequence[ComparedColumn],
    figures: Sequence[Mapping[str, float | None]],
    room: int,
    metrics: Sequence[MetricInfo],
) -> list[ComparedColumn]:
    """Return the columns for which there is room, without those that matter least.

    Args:
        columns: What is offered.
        figures: The figures of each row.
        room: Characters of a row, two of them between columns.
        metrics: The main metrics of the runs.
    """
    left = list(columns)
    for name in (name.format(metric.name) for name in NARROW for metric in metrics):
        widths = [
            max(len(word) for word in (*c.heading.split(), *(c.show(each.get(c.figure)) for each in figures)))
            for c in left
        ]
        if sum(widths) + 2 * len(widths) <= room:
            break
        left = [column for column in left if column.figure != name]
    return left


def metrics_of(summaries: Sequence[Summary]) -> list[MetricInfo]:
    """Return the main metrics of runs, each once."""
    return list(dict.fromkeys(summary.metric for summary in summaries))


def judged_as(summaries: Sequence[Summary], name: str | None) -> list[Summary]:
    """Return runs as they are judged by a metric of their rounds; by the main one without a name.

    Raises:
        InputError: a run has no such metric.
    """
    if name is None:
        return [*summaries]
    found = list[Summary]()
    for run in summaries:
        noted = list(dict.fromkeys([run.metric, *run.beside]))
        if (metric := next((one for one in noted if one.name == name), None)) is None:
            names = ", ".join(one.name for one in noted)
            hint = suggested(name, [one.name for one in noted])
            if any(name in table for table in OFFERED):
                words = ["mpifl", "evaluate", str(run.run), "--metric", name]
                hint = f"; {runnable(shlex.join(words))} scores its model by it"
            raise InputError(f"--metric {name}: {run.run} has no such metric; it has {names}{hint}")
        found.append(run if metric == run.metric else replace(run, metric=metric, beside=tuple(noted)))
    return found


def whose(summaries: Sequence[Summary]) -> str:
    """Say whose rows the figures of runs are of: the server's test set, or what silos hold out."""
    rounds = [(one, record) for one in summaries for record in one.records]
    tested = list(dict.fromkeys(one.metric.name for one, record in rounds if one.metric.test in record))
    ends = [(one.metric, final) for one in summaries if (final := one.records[-1].get("final"))]
    scored = {one.run: one for one, record in rounds if _at_silos(one, record) or _at_silos(one, one.at_end)}
    kinds = {one.silo_rows for one in scored.values()}
    said = [f"{', '.join(tested)} on the server's test set"] if tested else []
    if ends:
        by_server = any(metric.test in final for metric, final in ends)
        said.append(f"'test at the end' of {'the server' if by_server else 'a silo'}'s test rows")
    of = {"": "its held-out examples", TEST_ROWS: "its test rows at the end",
          VALID_ROWS: "its validation rows"}  # fmt: skip
    said += [f"a silo's figures are on {' or '.join(of[one] for one in of if one in kinds)}"] if kinds else []
    if kept := [summary for summary in summaries if summary.model_round]:
        same = "" if all(summary.by_valid for summary in kept) else ", which is chosen by the same rows"
        said.append(f"by the model of the best round where a run keeps it{same}")
    own = any(summary.own_models for summary in summaries)
    said += ["with a model of its own where the algorithm makes one"] if own else []
    return "; ".join(said) or "nothing was scored"


def _at_silos(run: Summary, record: Record) -> bool:
    return any(name.startswith(f"{run.metric.silo}_") for name in record)


def _column(heading: str, figure: str, metric: MetricInfo, several: bool) -> ComparedColumn:
    beside = f" {metric.name}" if several or metric.name != ACCURACY.name else ""
    named = metric.name if heading == "{}" else beside
    decimals, power = (2, 2 if "variance" in figure else 1) if metric.share else (4, 0)
    unit = "%" if metric.share and power == 1 else ""
    return ComparedColumn(heading.format(named), figure.format(metric.name), decimals, 100**power, unit)


def level_of(summaries: Sequence[Summary], target: float | None) -> str | None:
    """Write a target as a heading: a share in per cent where all of the runs are judged by one."""
    if target is None:
        return None
    return f"{100 * target:g}%" if all(metric.share for metric in metrics_of(summaries)) else f"{target:g}"
