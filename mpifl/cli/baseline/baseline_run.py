"""The command `baseline`: trains what is to be compared, and says whether federation helped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mpifl.cli.baseline.baseline_figures import Baseline, Scored, compare_models
from mpifl.cli.baseline.baseline_words import (
    cells,
    heads,
    judged,
    of_chance,
    record,
    remarks,
    table,
    verdict,
    warnings_of,
)
from mpifl.cli.baseline.planned_runs import lent_shards, plan_of, plan_of_late, prepare
from mpifl.cli.sweep import INTERRUPTED, run_each, validate_all
from mpifl.common import InputError, cannot_be_written, write_atomic
from mpifl.common.pages import Cell, Figure, Fold, Table, charts, render, write_page
from mpifl.report.observers import wide_console

LOOKS = {"better": "best", "worse": "worst"}
INTERVAL = "difference and interval"
POOLED = " 'pooled' is a model trained on the rows of all silos in one place, to compare with."


def baseline_command(
    job: Path, settings: Sequence[str], out: Path, ranks: int, resume: bool, late: Path | None = None
) -> int:
    """Carry out `mpifl baseline` and return its exit code.

    Args:
        job: The job file.
        settings: Keys and values of it.
        out: The folder of the runs and of the figures.
        ranks: MPI ranks of the federated training; the others take one.
        resume: Continue with the runs that are there, also where all are done.
        late: Shards of silos that came later: these alone are trained, and scored beside the federated model.

    Raises:
        InputError: there can be no such comparison, or a file cannot be read or written.
    """
    plan = plan_of(job, settings, out) if late is None else plan_of_late(job, settings, out, late)
    validate_all([plan.federated], job)
    prepare(plan, resume or not (out / "baseline.json").exists())  # one that was stopped goes on
    screen = wide_console()
    for name, why in plan.left_out.items():
        screen.print(f"silo {name} left out: {why}", soft_wrap=True)
    codes = run_each(plan.runs, job, ranks, lent=partial(lent_shards, plan), first_counts=True)
    if INTERRUPTED in codes:
        return INTERRUPTED
    if plan.federated.state != "done":
        return codes[0] or 1
    if not any(task.state == "done" for task in plan.alone.values()):
        raise InputError(f"{out}: no training of a silo alone came to its end; their log.txt say why")
    screen.print("The models are compared on the test rows; with few rows this may take a minute.")
    found = compare_models(plan)
    screen.print(table(found))
    for line in (*remarks(found), of_chance(found), verdict(found)):
        screen.print(line, soft_wrap=True)
    name = "baseline" if late is None else "late"
    files = {"json": out / f"{name}.json", "page": out / f"{name}.html"}
    try:
        write_atomic(files["json"], (json.dumps(record(found), indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise cannot_be_written(out, error) from None
    write_page("--out", files["page"], page(found, f"{plan.job.name}: is it worth it?"))
    for kind, path in files.items():
        print(f"{kind}: {path}")
    return next((code for code in codes if code), 0)


def page(found: Baseline, title: str) -> str:
    """Return the page."""
    most = charts.ticks(0.0, max((abs(end) for one in (*found.silos, found.whole) if (of := one.difference)
                                  for end in (of.low, of.high)), default=1.0))[-1]  # fmt: skip
    rows = [_row(one, found, most) for one in (*found.silos, found.whole)]
    end = f"{100 * most if found.metric.share else most:g}"
    axis = [f"−{end}", "0", f"+{end}"]
    drawn = Table(["silo", *heads(found), INTERVAL], rows, axes={INTERVAL: axis})
    unit = ", in points" if found.metric.share else ""
    note = f"{found.metric.label} on the same test rows; difference: federated − alone{unit}; {found.test}."
    note += POOLED * (found.whole.pooled is not None)
    figure = Figure("Each silo alone, the federated model, and all pooled", note, [drawn], wide=True)
    reasons = [["all", one] for one in found.remarks]
    reasons += [[name, said] for name, said in warnings_of(found).items()]
    reasons += [[name, f"left out: {why}"] for name, why in found.left_out.items()]
    folds = [Fold(f"Remarks ({len(reasons)})", [Table.of(["silo", "reason"], reasons)], opened=True)]
    return render(
        "compare.html",
        title=title,
        every=None,
        broad=True,
        words=f"{len(found.silos):,} silos, {sum(one.rows for one in found.silos):,} test rows",
        verdict=[verdict(found), of_chance(found)],
        figures=[figure],
        folds=folds if reasons else [],
    )


def _row(one: Scored, found: Baseline, most: float) -> list[Cell]:
    texts, look = cells(one, found), LOOKS.get(judged(one, found.metric), "")
    row = [Cell(one.name), *(Cell(text) for text in texts[:-1]), Cell(texts[-1], look=look)]
    if (difference := one.difference) is None:
        return [*row, Cell("–")]
    low, by, high = (50 + 50 * value / most for value in (difference.low, difference.by, difference.high))
    return [*row, Cell(texts[-3], dots=[by], span=(low, high), zero=50)]
