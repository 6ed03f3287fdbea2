"""How a model answers: ROC, precision over recall, calibration, confusion, on a run's page and as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from mpifl.common import LARGEST_FILE, InputError, read_whole
from mpifl.common.pages import Figure, Grid, Said, charts, there
from mpifl.learning.metrics import (
    AnswerColumn,
    MetricInfo,
    ToldAnswers,
    base_rate,
    calibration,
    precision_recall,
    roc,
)
from mpifl.report.judging import NAMES, counts_in, weights_told, why_none
from mpifl.report.pictures import AnswerChart, Confusion, Reach, draw_answers
from mpifl.report.runs import Held, Summary, chance

TEST, SILOS = "test set", "all silos together"
OF_SILOS = ("s1", "s3", "s4", "s5")
"""Looks of single silos that are few; more have one look together."""
SHADES = 5
KINDS: Sequence[tuple[str, str, str, str, Callable[[AnswerColumn], list[tuple[float, float]]]]] = (
    ("roc", "ROC curve", "false positive rate", "true positive rate", roc),
    ("precision-recall", "Precision-recall curve", "recall", "precision", precision_recall),
)
"""The charts by threshold: file, title, what lies along and beside, and where the points of a column lie."""
OTHER_BINS = "The metric calibration_error has bins of equal width instead."
DRAWN = ("binary", "classification")
TO_SCORE = "the run tells no answers; give --scores FILE of {} --json FILE"
NOT_DRAWN = "{} holds no answers of the task {} that could be drawn: ROC, calibration and confusion are out"
OF_TEST = (
    "such a run is drawn on the server's test set alone; give --scores FILE of mpifl evaluate {} --json FILE"
)
NO_PLOTS = (
    "the task {} has no such plots: ROC, calibration and confusion are of binary, of classification of up to"
    " 20 classes, and of multilabel with the metric auroc; mpifl compare {} --plot FILE draws the rounds"
)
"""What is said of a task and a run of it where nobody can count answers."""


class Answered(NamedTuple):
    """The answers that are known: of whose rows, of which silos, why of no more, and what to do; what weights
    of the loss mean for them, and what speaks against their intervals. `counts` says of how many examples
    each silo's metric is, `missing` what is not drawn."""

    rows: Mapping[str, ToldAnswers]
    silos: Mapping[str, ToldAnswers]
    withheld: str = ""
    hint: str = ""
    weighed: str = ""
    doubt: str = ""
    counts: Mapping[str, tuple[int, int]] = {}
    missing: Sequence[str] = ()

    def reaching(self, held: Mapping[str, Held], metric: MetricInfo) -> dict[str, Held]:
        """Return what silos hold, with the interval of a metric that their answers tell."""
        told = {name: of.intervals.get(metric.name) for name, of in self.silos.items()}
        each = {name: self.counts.get(name, (None, None)) for name in held}
        known = {name: count for name, (count, rows) in each.items() if rows == held[name].out}
        return {name: replace(of, reach=told.get(name), counted=known.get(name)) for name, of in held.items()}

    def doubts(self, counts: bool) -> list[str]:
        """Return what speaks against the intervals of a page: of answers, or of a metric that `counts`."""
        shown = counts or any(of.intervals for of in self.rows.values())
        return [*([self.doubt] if self.doubt and shown else []), *self.missing]


def answered(summary: Summary, files: Sequence[Path] = ()) -> Answered:
    """Return what a run tells of its model's answers, and what `mpifl evaluate --json` has found.

    Raises:
        InputError: a file is not one of these, or of another run.
    """
    told = {"test": TEST, "silos": SILOS}
    rows = {name: summary.answers[key] for key, name in told.items() if key in summary.answers}
    silos, counts, missing = dict[str, ToldAnswers](), dict[str, tuple[int, int]](), list[str]()
    for file in files:
        found, content = _scores(file, summary)
        counts |= counts_in(content, summary.metric)
        if not any(of.columns or of.confusion or of.intervals for of in found.values()):
            missing.append(NOT_DRAWN.format(file, _kind(summary)))
        rows |= {TEST: found["test"]} if "test" in found else {}
        rows |= {SILOS: found[""]} if "" in found else {}
        silos |= {NAMES[name[5:]]: of for name, of in found.items() if name.startswith("silo ")}
    rows = {name: of for name, of in rows.items() if of.columns or of.confusion}
    weighed = weights_told(summary.job.get("task", {}).get("weights"))
    if (why := why_none(summary.job)).startswith("withheld"):
        hint = OF_TEST.format(summary.run)
        return Answered({name: of for name, of in rows.items() if name == TEST}, {}, why, hint, weighed)
    kind = _kind(summary)
    drawn = kind in DRAWN or ":" in kind
    hint = TO_SCORE.format(_scoring(summary)) if drawn else NO_PLOTS.format(kind, summary.run)
    return Answered(rows, silos, hint=hint, weighed=weighed, counts=counts, missing=missing)


def _kind(summary: Summary) -> str:
    """Return the name of the task of a run."""
    return str(summary.job.get("task", {}).get("name", "classification"))


def _scoring(summary: Summary) -> str:
    """Return the command that scores the model on single silos; on the server's test set where rounds have
    scored it there alone."""
    keys = {key for record in (*summary.records, summary.at_end) for key in record}
    at_silos = any(key.startswith(f"{summary.metric.silo}_") for key in keys)
    alone = summary.metric.test in keys and not at_silos
    return f"mpifl evaluate {summary.run}{'' if alone else ' --silos'}"


def _scores(file: Path, summary: Summary) -> tuple[dict[str, ToldAnswers], dict[str, Any]]:
    """Return the answers in a file, of the test set `test`, of a silo `silo NAME`, of all silos ``, and all
    of the file."""
    run = summary.run
    free = (one for one in (file, run / file.name) if not os.path.lexists(one))
    made = f"make one by {_scoring(summary)} --json {next(free, 'OTHER.json')}"  # and write over none
    try:
        content = from_json(read_whole(file, LARGEST_FILE), allow_inf_nan=False)
        parts = {f"silo {name}": one.get("answers", {}) for name, one in content.get("silos", {}).items()}
        parts |= {"": content["answers"]} if parts else {"test": content["test"].get("answers", {})}
        found = {name: ToldAnswers.model_validate(one) for name, one in parts.items()}
        of = Path(content["run"]).absolute().name
    except OSError as error:
        raise InputError(f"--scores {file}: cannot be read ({error.strerror}); {made}") from None
    except (ValueError, ValidationError, LookupError, TypeError, AttributeError):
        kind = _kind(summary)
        none = kind not in (*DRAWN, "multilabel") and ":" not in kind
        to_do = NO_PLOTS.format(kind, run) if none else made
        raise InputError(f"--scores {file}: holds no answers; {to_do}") from None
    if content.get("model") == "last.safetensors":
        raise InputError(f"--scores {file}: is of the last round's model, not of the run's; {made}")
    if "data" in content:
        raise InputError(f"--scores {file}: is of other shards, {content['data']}; {made}")
    if of != run.absolute().name:
        raise InputError(f"--scores {file}: is of the run {of}, not of {run}; {made}")
    return found, content


def answer_charts(found: Answered, classes: Sequence[str]) -> list[AnswerChart]:
    """Return the charts: a line for each class, or for all silos together and for each silo."""
    drawn, by = _columns(found, classes), _of_class(found)
    rates = [rate for one in drawn if one.look != "each" and (rate := base_rate(one.column)) is not None]
    behind = [("chance", 0.0, 1.0), ("chance", rates[-1], rates[-1]) if rates and not by else None]
    charted = []
    for (file, title, along, beside, points), level in zip(KINDS, behind, strict=True):
        lines = [
            charts.Line(one.name, of, one.look, one.words(file))
            for one in drawn
            if (of := points(one.column))
        ]
        said = f"{beside[:1].upper()}{beside[1:]} over {along}{by}."
        said += (
            " In parentheses: 95% interval (DeLong)." if any(")" in (one.last or "") for one in lines) else ""
        )
        if level and lines:
            lines = [charts.Line(level[0], [(0.0, level[1]), (1.0, level[2])], "target", ""), *lines]
        doubt = found.doubt if "(DeLong)" in said else ""
        said += f" {doubt[:1].upper()}{doubt[1:]}." if doubt else ""
        if lines:
            charted.append(AnswerChart(file, title, along, beside, said, lines, below=doubt))
    return charted + _calibration(drawn, by, found)


def _calibration(drawn: Sequence[AnswerLine], by: str, found: Answered) -> list[AnswerChart]:
    """Return the chart of observed frequencies, with 95 % intervals of lines that are of no single silo."""
    bins = [(one, calibration(one.column)) for one in drawn]
    if not any(of for _, of in bins):
        return []
    told = [(one.name, of) for one, of in bins if one.whole and of]
    reaches = [Reach(name, p, *chance.interval(share, many)) for name, of in told for p, share, many in of]
    points = [point for _, of in bins for p, share, _ in of for point in (p, share)]
    levels = charts.ticks(min(points), max(*points, *(one.high for one in reaches)))
    ends = max(levels[0], 0.0), min(levels[-1], 1.0)
    below = ""
    if told:
        name, of = told[-1]
        many = sorted(many for *_, many in of)
        below = f"{'each line' if by else name}: {len(of)} bins of " + " to ".join(
            f"{one:,}" for one in sorted({many[0], many[-1]})
        )
        below += " rows, with 95% intervals (Wilson)" + f"; {found.doubt}" * bool(found.doubt)
    said = f"Observed frequency over predicted probability{by}. Each line has bins of about as many rows."
    told_of = [f"{below[:1].upper()}{below[1:]}.", OTHER_BINS, f"{found.weighed.capitalize()}."]
    said = " ".join([said, *(one for one in told_of if one != ".")])
    lines = [charts.Line("perfect calibration", [(end, end) for end in ends], "target", "")]
    lines += [
        charts.Line(one.name, [(p, share) for p, share, _ in of], one.look, "") for one, of in bins if of
    ]
    along, beside = "predicted probability", "observed frequency"
    return [AnswerChart("calibration", "Calibration", along, beside, said, lines, ends=ends, below=below,
                        reaches=reaches)]  # fmt: skip


def _of_class(found: Answered) -> str:
    """Say whose the lines are where each is of a class."""
    rows, first = next(iter(found.rows.items()), ("", ToldAnswers()))
    return f", each class against all others, on {rows}" if len(first.columns) > 1 else ""


class AnswerLine(NamedTuple):
    """A line of charts: its name, its look, its counts, of which answers, and as which of their columns."""

    name: str
    look: str
    column: AnswerColumn
    told: ToldAnswers
    nth: int = 0
    whole: bool = True
    """Whether it is of no single silo, and has a look of its own."""

    def words(self, file: str) -> str:
        """Say what the area under its curve is, as far as that is told."""
        areas = self.told.areas if file == "roc" else self.told.precisions
        area = areas[self.nth] if self.nth < len(areas) else None
        if area is None or not self.name:
            return ""
        ends = self.told.intervals.get("auroc") if file == "roc" and len(self.told.columns) == 1 else None
        reach = f" ({100 * ends[0]:.2f} to {ends[1]:.2%})" if ends else ""
        return f"{'AUROC' if file == 'roc' else 'average precision'} {area:.2%}{reach}"


def _columns(found: Answered, classes: Sequence[str]) -> list[AnswerLine]:
    """Return the lines, the most important last."""
    first = next(iter(found.rows.values()), ToldAnswers())
    if (many := len(first.columns)) > 1:
        few = many <= len(charts.COLOURS)
        looks = charts.COLOURS if few else ("each",) * many
        each = zip(_named(classes, many), looks, first.columns, strict=False)
        return [AnswerLine(*one, first, nth, few) for nth, one in enumerate(each)]
    silos = [(name, of) for name, of in found.silos.items() if len(of.columns) == 1]
    few = len(silos) <= len(OF_SILOS)
    lines = [
        AnswerLine(f"silo {name}", OF_SILOS[nth], of.columns[0], of, whole=False)
        if few else
        AnswerLine("" if nth else "each silo", "each", of.columns[0], ToldAnswers(), whole=False)
        for nth, (name, of) in enumerate(silos)
    ]  # fmt: skip
    of_silos = "mean" if TEST in found.rows else "test"
    together = [
        AnswerLine(name, "test" if name == TEST else of_silos, of.columns[0], of)
        for name, of in found.rows.items()
        if of.columns
    ]
    return lines + together[::-1]


def _named(classes: Sequence[str], many: int) -> list[str]:
    usual = ["no", "yes"] if many == 2 else [str(nth) for nth in range(many)]
    return [*classes] if len(classes) == many else usual


def answers_section(found: Answered, classes: Sequence[str]) -> list[Figure]:
    """Return the charts on a page, and the confusion matrix."""
    drawn = [
        charts.lines(one.title, one.lines, _band(one), "{:.3g}".format, along=one.along, note=one.note,
                     high=280, covers=one.ends or ())
        for one in answer_charts(found, classes)
    ]  # fmt: skip
    shown = there([*drawn, _confusion(found, classes)])
    if found.withheld and shown:
        shown.append(Figure("Predictions at the silos", "", [Said(f"{found.withheld.capitalize()}.")]))
    return shown


def _band(chart: AnswerChart) -> charts.Band | None:
    """Return the intervals of the most important line; none of classes."""
    if not chart.reaches or (name := chart.reaches[-1].line) not in (TEST, SILOS):
        return None
    return charts.Band(f"95% interval of {name}", [one[1:] for one in chart.reaches if one.line == name])


def confusion_of(found: Answered) -> tuple[str, list[list[int]]]:
    """Return whose rows are told by class and by what was answered, and how many of each; of none nothing."""
    each = ((name, of.confusion) for name, of in found.rows.items() if of.confusion)
    return next(each, ("", []))


def _confusion(found: Answered, classes: Sequence[str]) -> Figure | None:
    rows, counts = confusion_of(found)
    if not counts or {len(row) for row in counts} != {len(counts)}:
        return None
    names = _named(classes, len(counts))
    cells = [
        (name, [(f"{count:,}", min(SHADES * count // max(sum(row), 1), SHADES - 1), right == nth, "")
                for nth, count in enumerate(row)])
        for right, (name, row) in enumerate(zip(names, counts, strict=True))
    ]  # fmt: skip
    matrix = Confusion(counts, names, rows, found.rows[rows].threshold)
    note = f"Examples: {rows}. Rows are true classes, columns are predicted ones. "
    note += f"{matrix.by} Correct predictions are framed."
    return Figure("Confusion matrix", note, [Grid("true / predicted", names, cells)], wide=len(counts) > 8)


def plot_answers(found: Answered, classes: Sequence[str], folder: Path) -> None:
    """Draw the charts and the confusion matrix by matplotlib, each as PDF and SVG.

    Raises:
        InputError: nothing is known of answers, matplotlib is not there, or a file cannot be written.
    """
    charted, (rows, counts) = answer_charts(found, classes), confusion_of(found)
    if not charted and not counts:
        raise InputError(f"--plots {folder}: {'; '.join(filter(None, (found.withheld, found.hint)))}")
    above = found.rows[rows].threshold if counts else 0.5
    draw_answers(charted, Confusion(counts, _named(classes, len(counts)), rows, above), folder)
