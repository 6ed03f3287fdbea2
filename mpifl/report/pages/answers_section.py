"""How a model answers: ROC, precision over recall, calibration, confusion, on a run's page and as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from mpifl.common import LARGEST_FILE, InputError, read_whole
from mpifl.common.pages import Figure, Grid, Said, charts, there
from mpifl.learning.metrics import AnswerColumn, ToldAnswers, base_rate, calibration, precision_recall, roc
from mpifl.report.judging import NAMES, weights_told, why_none
from mpifl.report.pictures import line_look, put_legend, pyplot_of, saying_once
from mpifl.report.runs import Summary

TEST, SILOS = "test set", "all silos together"
OF_SILOS = ("s1", "s3", "s4", "s5")
"""Looks of single silos that are few; more have one look together."""
SHADES = 5
FORMATS = (".pdf", ".svg")
FAINT = {"target": ("grey", "--"), "each": ("#b0b8c0", "-")}
"""The colour and the style of lines that stand behind the others."""
KINDS: Sequence[tuple[str, str, str, str, Callable[[AnswerColumn], list[tuple[float, float]]]]] = (
    ("roc", "ROC curve", "false positive rate", "true positive rate", roc),
    ("precision-recall", "Precision-recall curve", "recall", "precision", precision_recall),
    ("calibration", "Calibration", "predicted probability", "observed frequency", calibration),
)
"""The charts: file, title, what lies along and beside, and where the points of a column lie."""
DRAWN = ("binary", "classification")
TO_SCORE = "the run tells no answers; give --scores FILE of {} --json FILE"
OF_TEST = (
    "such a run is drawn on the server's test set alone; give --scores FILE of mpifl evaluate {} --json FILE"
)
NO_PLOTS = (
    "the task {} has no such plots: ROC, calibration and confusion are of binary, of classification of up to"
    " 20 classes, and of multilabel with the metric auroc; mpifl compare {} --plot FILE draws the rounds"
)
"""What is said of a task and a run of it where nobody can count answers."""


class Answered(NamedTuple):
    """The answers that are known: of whose rows, of which silos, why of no more, and what to do; and what
    weights of the loss mean for them."""

    rows: Mapping[str, ToldAnswers]
    silos: Mapping[str, ToldAnswers]
    withheld: str = ""
    hint: str = ""
    weighed: str = ""


class AnswerChart(NamedTuple):
    """A chart of answers: its file, its title, what lies along and beside, and its lines."""

    file: str
    title: str
    along: str
    beside: str
    note: str
    lines: Sequence[charts.Line]


def answered(summary: Summary, files: Sequence[Path] = ()) -> Answered:
    """Return what a run tells of its model's answers, and what `mpifl evaluate --json` has found.

    Raises:
        InputError: a file is not one of these, or of another run.
    """
    told = {"test": TEST, "silos": SILOS}
    rows = {name: summary.answers[key] for key, name in told.items() if key in summary.answers}
    silos: dict[str, ToldAnswers] = {}
    for file in files:
        found = _scores(file, summary)
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
    return Answered(rows, silos, hint=hint, weighed=weighed)


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


def _scores(file: Path, summary: Summary) -> dict[str, ToldAnswers]:
    """Return the answers in a file: of the test set `test`, of a silo `silo NAME`, of all silos ``."""
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
        raise InputError(f"--scores {file}: holds no answers; {made}") from None
    if content.get("model") == "last.safetensors":
        raise InputError(f"--scores {file}: is of the last round's model, not of the run's; {made}")
    if "data" in content:
        raise InputError(f"--scores {file}: is of other shards, {content['data']}; {made}")
    if of != run.absolute().name:
        raise InputError(f"--scores {file}: is of the run {of}, not of {run}; {made}")
    if not any(parts.values()):
        raise InputError(f"--scores {file}: holds no answers; {NO_PLOTS.format(_kind(summary), run)}")
    return found


def answer_charts(found: Answered, classes: Sequence[str]) -> list[AnswerChart]:
    """Return the charts: a line for each class, or for all silos together and for each silo."""
    drawn, by = _columns(found, classes), _of_class(found)
    areas = [(name, of.intervals["auroc"]) for name, of in found.rows.items() if "auroc" in of.intervals]
    ends = ", ".join(f"{name} {low:.2%} to {high:.2%}" for name, (low, high) in areas)
    rates = [rate for _, look, column in drawn if look != "each" and (rate := base_rate(column)) is not None]
    behind = [("chance", 0.0, 1.0), ("chance", rates[-1], rates[-1]) if rates and not by else None,
              ("perfect calibration", 0.0, 1.0)]  # fmt: skip
    charted = []
    for (file, title, along, beside, points), level in zip(KINDS, behind, strict=True):
        lines = [charts.Line(name, of, look, "") for name, look, column in drawn if (of := points(column))]
        said = f"{beside[:1].upper()}{beside[1:]} over {along}{by}."
        said += f" AUROC, 95% interval: {ends}." if ends and file == "roc" else ""
        said += f" {found.weighed.capitalize()}." if found.weighed and file == "calibration" else ""
        if level and lines:
            lines = [charts.Line(level[0], [(0.0, level[1]), (1.0, level[2])], "target", ""), *lines]
        if lines:
            charted.append(AnswerChart(file, title, along, beside, said, lines))
    return charted


def _of_class(found: Answered) -> str:
    """Say whose the lines are where each is of a class."""
    rows, first = next(iter(found.rows.items()), ("", ToldAnswers()))
    return f", each class against all others, on {rows}" if len(first.columns) > 1 else ""


def _columns(found: Answered, classes: Sequence[str]) -> list[tuple[str, str, AnswerColumn]]:
    """Return the name, the look and the counts of each line, the most important last."""
    first = next(iter(found.rows.values()), ToldAnswers()).columns
    if len(first) > 1:
        looks = charts.COLOURS if len(first) <= len(charts.COLOURS) else ("each",) * len(first)
        names = _named(classes, len(first))
        return list(zip(names, looks, first, strict=False))
    silos = [(name, of.columns[0]) for name, of in found.silos.items() if len(of.columns) == 1]
    few = len(silos) <= len(OF_SILOS)
    lines = [(f"silo {name}" if few else "" if nth else "each silo", OF_SILOS[nth] if few else "each", column)
             for nth, (name, column) in enumerate(silos)]  # fmt: skip
    of_silos = "mean" if TEST in found.rows else "test"
    together = [
        (name, "test" if name == TEST else of_silos, of.columns[0])
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
        charts.lines(one.title, one.lines, write="{:.3g}".format, along=one.along, note=one.note, high=280)
        for one in answer_charts(found, classes)
    ]
    shown = there([*drawn, _confusion(found, classes)])
    if found.withheld and shown:
        shown.append(Figure("Predictions at the silos", "", [Said(f"{found.withheld.capitalize()}.")]))
    return shown


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
        (
            name,
            [
                (f"{count:,}", min(SHADES * count // max(sum(row), 1), SHADES - 1), right == nth, "")
                for nth, count in enumerate(row)
            ],
        )
        for right, (name, row) in enumerate(zip(names, counts, strict=True))
    ]
    note = f"Examples: {rows}. Rows are true classes, columns are predicted ones. "
    note += "Correct predictions are framed."
    return Figure("Confusion matrix", note, [Grid("true / predicted", names, cells)], wide=len(counts) > 8)


def draw_answers(found: Answered, classes: Sequence[str], folder: Path) -> None:
    """Draw the charts and the confusion matrix by matplotlib, each as PDF and SVG.

    Raises:
        InputError: nothing is known of answers, matplotlib is not there, or a file cannot be written.
    """
    pyplot = pyplot_of("--plots")
    charted, (rows, counts) = answer_charts(found, classes), confusion_of(found)
    if not charted and not counts:
        raise InputError(f"--plots {folder}: {'; '.join(filter(None, (found.withheld, found.hint)))}")
    for one in charted:
        figure, axes = pyplot.subplots(figsize=(4, 4), layout="constrained")
        named: dict[str, Any] = {}
        for nth, line in enumerate(one.lines):
            colour, style = FAINT.get(line.look) or line_look(nth)
            (drawn,) = axes.plot(*zip(*line.points, strict=True), style, color=colour, linewidth=1.3)
            named |= {line.name: drawn} if line.name else {}
        axes.set(xlabel=one.along, ylabel=one.beside, xlim=(0, 1), ylim=(0, 1.01))
        put_legend(figure, named, grows=True)
        _save(figure, folder, one.file)
    if counts:
        names = _named(classes, len(counts))
        side = max(4.0, 0.45 * len(counts) + 0.08 * max(map(len, names)) + 0.8)
        figure, axes = pyplot.subplots(figsize=(side, side), layout="constrained")
        _matrix(axes, counts, names, rows)
        _save(figure, folder, "confusion")
    pyplot.close("all")


def _matrix(axes: Any, counts: Sequence[Sequence[int]], names: Sequence[str], rows: str) -> None:
    axes.imshow(
        [[count / max(sum(row), 1) for count in row] for row in counts], cmap="Blues", vmin=0, vmax=1.4
    )
    for y, row in enumerate(counts):
        for x, count in enumerate(row):
            axes.text(x, y, f"{count:,}", ha="center", va="center", fontsize=9)
    ticks = [name.replace("$", r"\$") for name in names]
    axes.set_xticks(range(len(names)), ticks, rotation=45 if max(map(len, names)) > 4 else 0)
    axes.set_yticks(range(len(names)), ticks)
    axes.set(xlabel="predicted", ylabel=f"true class, {rows}")


def _save(figure: Any, folder: Path, name: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for nth, ending in enumerate(FORMATS):
            with saying_once("--plots", folder, tells=not nth):
                figure.savefig(folder / f"{name}{ending}")
    except OSError as error:
        raise InputError(f"--plots {folder}: cannot be written ({error.strerror})") from None
