"""The command `baseline`: trains what is to be compared, and says whether federation helped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from mpifl.cli.baseline.baseline_figures import Baseline, Scored, compare_models
from mpifl.cli.baseline.baseline_words import (
    MOST_NAMED,
    as_csv,
    as_latex,
    cautions,
    cells,
    heads,
    of_all,
    of_chance,
    outcome,
    record,
    remarks,
    table,
    verdict,
    warnings_of,
)
from mpifl.cli.baseline.planned_runs import BaselinePlan, lent_shards, plan_of, plan_of_late, prepare
from mpifl.cli.baseline.which_figure import which_figures
from mpifl.cli.sweep import INTERRUPTED, run_each, validate_all
from mpifl.common import InputError, cannot_be_written, check_named, write_atomic, write_named
from mpifl.common.pages import Cell, Figure, Fold, Table, render, write_page
from mpifl.learning.metrics import ACCURACY
from mpifl.report.judging import fewest
from mpifl.report.observers import wide_console
from mpifl.report.pages import drawn_around_zero, write_report
from mpifl.report.runs import headline, read_run, read_tables, units
from mpifl.run.folder import number, read_metrics

LOOKS = {"better": "best", "worse": "worst"}
TITLE, AND_POOLED = (
    "Each silo alone, and the federated model",
    "Each silo alone, the federated model, and all pooled",
)
INTERVAL, GUESSED = "difference and interval", "most frequent class"
POOLED = " 'pooled' is a model trained on the rows of all silos in one place, to compare with."


def baseline_command(
    job: Path,
    settings: Sequence[str],
    out: Path,
    ranks: int,
    resume: bool,
    late: Path | None = None,
    tables: Mapping[str, Path | None] = MappingProxyType({}),
) -> int:
    """Carry out `mpifl baseline` and return its exit code.

    Args:
        job: The job file.
        settings: Keys and values of it.
        out: The folder of the runs and of the figures.
        ranks: MPI ranks of the federated training; the others take one.
        resume: Continue with the runs that are there, also where all are done.
        late: Shards of silos that came later: these alone are trained, and scored beside the federated model.
        tables: The files that `latex` and `csv` name for the table.

    Raises:
        InputError: there can be no such comparison, or a file cannot be read or written.
    """
    asked = {kind: path for kind, path in tables.items() if path is not None}
    plan = plan_of(job, settings, out) if late is None else plan_of_late(job, settings, out, late)
    validate_all([plan.federated], job)
    prepare(plan, resume or not (out / "baseline.json").exists())  # one that was stopped goes on
    check_named((f"--{kind}", path) for kind, path in asked.items())  # they may lie in `out`
    screen = wide_console()
    for line in beforehand(plan):
        screen.print(line, soft_wrap=True)
    codes = run_each(plan.runs, job, ranks, lent=partial(lent_shards, plan), first_counts=True)
    if INTERRUPTED in codes:
        return INTERRUPTED
    if plan.federated.state != "done":
        return codes[0] or 1
    if not any(task.state == "done" for task in plan.alone.values()):
        raise InputError(f"{out}: no training of a silo alone came to its end; their log.txt files say why")
    screen.print("The models are compared on the test rows; with few rows this may take a minute.")
    found = compare_models(plan)
    screen.print(table(found))
    for line in (*remarks(found), of_chance(found), *cautions(found), verdict(found)):
        screen.print(line, soft_wrap=True)
    _write(found, out / ("baseline" if late is None else "late"), plan, asked)
    return next((code for code in codes if code), 0)


def beforehand(plan: BaselinePlan) -> list[str]:
    """Say before a training which silos are left out, and which hold out too little to show a difference."""
    said = [f"silo {name} left out: {why}" for name, why in plan.left_out.items()]
    need, few = fewest(len(plan.alone)), list[str]()
    for silo in plan.alone:
        entry = plan.spec.silos[silo]
        kind, many = ("rows", entry.examples) if entry.groups is None else ("groups", entry.groups)
        if many["test"] < need:
            few.append(f"{plan.names[silo]} ({many['test']:,} {kind})")
    more = f" and {len(few) - MOST_NAMED:,} more" if len(few) > MOST_NAMED else ""
    what = f"warning: too little is held out to show a difference for one silo: {', '.join(few[:MOST_NAMED])}"
    return said + [f"{what}{more}; it takes {need}, so partition with a larger --test"] * bool(few)


def _write(found: Baseline, to: Path, plan: BaselinePlan, asked: Mapping[str, Path]) -> None:
    """Write the figures: JSON and page `to` a path without its ending, and the tables that are asked for."""
    files = {kind: to.with_name(f"{to.name}.{end}") for kind, end in (("json", "json"), ("page", "html"))}
    which = which_figures(found, read_run(plan.federated.run) if read_metrics(plan.federated.run) else None)
    told = {**record(found), "figures": which}
    try:
        write_atomic(files["json"], (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise cannot_be_written(to.parent, error) from None
    content = page(found, f"{plan.job.name}: is it worth it?", _about(plan), _links(plan, found), which)
    write_page("--out", files["page"], content)
    contents = {"latex": as_latex, "csv": as_csv}
    for kind, path in asked.items():
        write_named(f"--{kind}", path, contents[kind](found))
    for kind, path in {**files, **asked}.items():
        print(f"{kind}: {path}")


def page(
    found: Baseline,
    title: str,
    about: Sequence[str] = (),
    links: Mapping[str, str] = MappingProxyType({}),
    which: Sequence[str] = (),
) -> str:
    """Return the page.

    Args:
        found: The figures.
        title: Its heading.
        about: What the trainings were.
        links: By what a row is called: where its run lies, as seen from the page.
        which: Which figure is which.
    """
    scored = (*found.silos, found.whole)
    rows = [_row(one, found, links) for one in scored]
    unit = ", in points" if found.metric.share else ""
    note = f"{found.metric.label} on the same test rows; difference: federated − alone{unit}; {found.test}."
    note += POOLED * (found.whole.pooled is not None)
    note += (
        f" Rounds trained are of the silo alone, and of the federated model in the row {found.whole.name}."
    )
    note += f" The pooled model: {found.rounds['pooled']}." if "pooled" in found.rounds else ""
    heading = TITLE if found.whole.pooled is None else AND_POOLED
    figures = [_drawn(heading, note, ["silo", *_more(found), *heads(found)], rows, scored, found)]
    pooled = [other for one in scored if (other := one.over_pooled) is not None]
    if pooled:
        note = f"Difference: federated − pooled{unit}, on the same test rows, with the same test."
        named = ["silo", "pooled", "federated", *heads(found)[-4:]]
        rows = [[Cell(one.name), *_judged(cells(one, found)[-6:], one, found)] for one in pooled]
        figures.append(_drawn("Federated against pooled", note, named, rows, pooled, found))
    figures += [Figure("Which figure is which", " ".join(which), wide=True)] if which else []
    silos = f"{len(found.silos):,} silo{'s' * (len(found.silos) != 1)}"
    return render(
        "compare.html",
        title=title,
        every=None,
        broad=True,
        what=" · ".join([*about, f"{silos}, {sum(one.rows for one in found.silos):,} test rows"]),
        verdict=[verdict(found), *cautions(found), of_chance(found)],
        figures=figures,
        folds=_remarked(found),
    )


def _remarked(found: Baseline) -> list[Fold]:
    """Return what is to be said against figures, by silo."""
    reasons = [["all", one] for one in of_all(found)]
    reasons += [[name, said] for name, said in warnings_of(found).items()]
    reasons += [[name, f"left out: {why}"] for name, why in found.left_out.items()]
    folds = [Fold(f"Remarks ({len(reasons)})", [Table.of(["silo", "reason"], reasons)], opened=True)]
    return folds if reasons else []


def _drawn(
    title: str,
    note: str,
    named: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    scored: Sequence[Scored],
    found: Baseline,
) -> Figure:
    """Return a table of differences, each drawn with its interval behind its row."""
    told = [
        (cells(one, found)[-3], of.by, of.low, of.high) if (of := one.difference) else None for one in scored
    ]
    drawings, axis = drawn_around_zero(told, found.metric)
    whole = [[*row, drawing] for row, drawing in zip(rows, drawings, strict=True)]
    return Figure(title, note, [Table([*named, INTERVAL], whole, axes={INTERVAL: axis})], wide=True)


def _more(found: Baseline) -> list[str]:
    """Return the headings of what only the page has of a row: rounds, and what guessing gives."""
    guessed = found.metric.name == ACCURACY.name and any(one.guessing is not None for one in found.silos)
    return [*["rounds trained"] * bool(found.rounds), *[GUESSED] * guessed]


def _row(one: Scored, found: Baseline, links: Mapping[str, str]) -> list[Cell]:
    guess = "–" if one.guessing is None else found.metric.write(one.guessing)
    of = {"rounds trained": found.rounds.get(one.name, "–"), GUESSED: guess}
    name = Cell(one.name, link=links.get(one.name, ""))
    return [name, *(Cell(of[head]) for head in _more(found)), *_judged(cells(one, found), one, found)]


def _judged(texts: Sequence[str], one: Scored, found: Baseline) -> list[Cell]:
    """Return cells of a row, of which the last says what is seen."""
    look = f"text {LOOKS.get(texts[-1], '')}".strip()
    return [*map(Cell, texts[:-1]), Cell(outcome(one, found.metric), look=look)]


def _about(plan: BaselinePlan) -> list[str]:
    """Say what the trainings of a baseline were, and when the federated one ended, if its rounds tell."""
    run = plan.federated.run
    job, records = read_tables(run / "job.toml")[0], read_metrics(run)
    if not records:
        return headline(job)
    rounds = int(records[-1]["round"])
    told = [f"{rounds:,} round{'s' * (rounds > 1)}", units.moment(number(records[-1], "time"))]
    return [*headline(job), *filter(None, told)]


def _links(plan: BaselinePlan, found: Baseline) -> dict[str, str]:
    """Return where the runs lie by the rows of the table: of a silo that alone, of all rows the federated."""
    if plan.federated.state == "done" and read_metrics(plan.federated.run):
        write_report(plan.federated.run)
    told = {plan.names[silo]: f"{task.run.name}/" for silo, task in plan.alone.items()}
    return told | {found.whole.name: f"{plan.federated.run.name}/report.html"}
