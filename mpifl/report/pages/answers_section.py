"""How a model answers, on a run's page: ROC, precision over recall, calibration, confusion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from mpifl.common import LARGEST_FILE, InputError, read_whole
from mpifl.common.pages import Figure, Grid, Said, charts, there
from mpifl.learning.metrics import AnswerColumn, ToldAnswers, base_rate, calibration, precision_recall, roc
from mpifl.report.judging import NAMES, why_none
from mpifl.report.runs import Summary

TEST, SILOS = "test set", "all silos together"
OF_SILOS = ("s1", "s3", "s4", "s5")
"""Looks of single silos that are few; more have one look together."""
SHADES = 5
KINDS: Sequence[tuple[str, str, str, Callable[[AnswerColumn], list[tuple[float, float]]]]] = (
    ("ROC curve", "false positive rate", "true positive rate", roc),
    ("Precision-recall curve", "recall", "precision", precision_recall),
    ("Calibration", "predicted probability", "observed frequency", calibration),
)
"""The charts: title, what lies along and beside, and where the points of a column lie."""
NO_PLOTS = (
    "the task {} has no such plots: ROC, calibration and confusion are of binary, of classification of up to"
    " 20 classes, and of multilabel with the metric auroc; mpifl compare {} --plot FILE draws the rounds"
)
"""What is said of a task and a run of it where nobody can count answers."""


class Answered(NamedTuple):
    """The answers that are known: of whose rows, of which silos, and why of no more."""

    rows: Mapping[str, ToldAnswers]
    silos: Mapping[str, ToldAnswers]
    withheld: str = ""


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
    if (why := why_none(summary.job)).startswith("withheld"):
        return Answered({name: of for name, of in rows.items() if name == TEST}, {}, why)
    return Answered(rows, silos)


def _scores(file: Path, summary: Summary) -> dict[str, ToldAnswers]:
    """Return the answers in a file: of the test set `test`, of a silo `silo NAME`, of all silos ``."""
    run = summary.run
    made = f"mpifl evaluate {run} --silos --json {file}"
    try:
        content = from_json(read_whole(file, LARGEST_FILE), allow_inf_nan=False)
        parts = {f"silo {name}": one.get("answers", {}) for name, one in content.get("silos", {}).items()}
        parts |= {"": content["answers"]} if parts else {"test": content["test"].get("answers", {})}
        found = {name: ToldAnswers.model_validate(one) for name, one in parts.items()}
        of = Path(content["run"]).absolute().name
    except OSError as error:
        raise InputError(f"--scores {file}: cannot be read ({error.strerror}); write it by {made}") from None
    except (ValueError, ValidationError, LookupError, TypeError, AttributeError):
        raise InputError(f"--scores {file}: holds no answers; write it by {made}") from None
    if content.get("model") == "last.safetensors":
        raise InputError(
            f"--scores {file}: is of the last round's model, not of the run's; write it by {made}"
        )
    if "data" in content:
        raise InputError(f"--scores {file}: is of other shards, {content['data']}; write it by {made}")
    if of != run.absolute().name:
        raise InputError(f"--scores {file}: is of the run {of}, not of {run}; write it by {made}")
    if not any(parts.values()):
        kind = summary.job.get("task", {}).get("name", "classification")
        raise InputError(f"--scores {file}: holds no answers; {NO_PLOTS.format(kind, run)}")
    return found


def _charts(found: Answered, classes: Sequence[str]) -> list[Figure | None]:
    """Draw the charts: a line for each class, or for all silos together and for each silo."""
    drawn, by = _columns(found, classes), _of_class(found)
    areas = [(name, of.intervals["auroc"]) for name, of in found.rows.items() if "auroc" in of.intervals]
    ends = ", ".join(f"{name} {low:.2%} to {high:.2%}" for name, (low, high) in areas)
    rates = [rate for _, look, column in drawn if look != "each" and (rate := base_rate(column)) is not None]
    behind = [("chance", 0.0, 1.0), ("chance", rates[-1], rates[-1]) if rates and not by else None,
              ("perfect calibration", 0.0, 1.0)]  # fmt: skip
    drawn_charts = list[Figure | None]()
    for (title, along, beside, points), level in zip(KINDS, behind, strict=True):
        lines = [charts.Line(name, of, look, "") for name, look, column in drawn if (of := points(column))]
        said = f"{beside[:1].upper()}{beside[1:]} over {along}{by}."
        said += f" AUROC, 95% interval: {ends}." if ends and points is roc else ""
        if level and lines:
            lines = [charts.Line(level[0], [(0.0, level[1]), (1.0, level[2])], "target", ""), *lines]
        write = "{:.3g}".format
        drawn_charts.append(charts.lines(title, lines, write=write, along=along, note=said, high=280))
    return drawn_charts


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
    shown = there([*_charts(found, classes), _confusion(found, classes)])
    if found.withheld and shown:
        shown.append(Figure("Predictions at the silos", "", [Said(f"{found.withheld.capitalize()}.")]))
    return shown


def _confusion_of(found: Answered) -> tuple[str, list[list[int]]]:
    """Return whose rows are told by class and by what was answered, and how many of each; of none nothing."""
    each = ((name, of.confusion) for name, of in found.rows.items() if of.confusion)
    return next(each, ("", []))


def _confusion(found: Answered, classes: Sequence[str]) -> Figure | None:
    rows, counts = _confusion_of(found)
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
