"""A run as one HTML file: nothing fetched, readable offline and on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mpifl.common import LARGEST_FILE, Names, read_whole
from mpifl.common.pages import Block, Fold, Table, check_page, render, there, write_page
from mpifl.learning.metrics import MetricInfo
from mpifl.report.findings import (
    NO_MODEL,
    cause,
    compared,
    falls,
    gains_over,
    lower_rate,
    model_told,
    next_figure,
    next_of_run,
    of_no_use,
    weak_answers,
)
from mpifl.report.judging import scores
from mpifl.report.observers import HELD_OUT, sites_of
from mpifl.report.pages import run_figures
from mpifl.report.pages.answers_section import SILOS, TEST, Answered, answered, answers_section, plot_answers
from mpifl.report.pages.happened import happened, minded, missed_since, verdict
from mpifl.report.pages.silos_section import silos
from mpifl.report.pages.trust_section import trust
from mpifl.report.pictures import coefficients
from mpifl.report.results import read_alone
from mpifl.report.runs import (
    PLAIN,
    Held,
    Summary,
    as_counted,
    chance,
    data,
    doubts,
    examples,
    fit_doubt,
    groups_told,
    headline,
    judging,
    read_run,
    read_tables,
    rows_left_out,
    rows_of_rounds,
    trained_on,
    trains_alone,
    units,
)
from mpifl.report.terminal import analysed
from mpifl.run.folder import number, read_environment, read_metrics, why_lost

MOST_ROWS = 200
OF_SILOS = "_silos"
"""What the names of tables of single silos' figures end with."""
NOT_YET = "Do not report these figures yet."
ELSEWHERE = ("epsilon_silos",)
"""Such tables that another section shows."""
LOSSES = (("test loss", "test_loss", PLAIN.write), ("training loss", "train_loss", PLAIN.write))
OF_RANKS = ("host", "device", "threads", "silos", "training", "waiting")
BYTES = ("bytes_sent", "bytes_received")
COSTS = (
    ("seconds", "seconds", "{:.3f}".format),
    ("sent", "bytes_sent", units.size),
    ("received", "bytes_received", units.size),
)


def write_report(
    run: Path,
    out: Path | None = None,
    alone: Path | None = None,
    scores: Sequence[Path] = (),
    plots: Path | None = None,
) -> Path:
    """Write a run's page and return where it is.

    Args:
        out: The page; by default report.html in the run folder.
        alone: A run of the same silos, each of which trained by itself, or the folder of a baseline.
        scores: Files of `mpifl evaluate --json` for this run.
        plots: A folder for the charts of answers as files.

    Raises:
        InputError: a run or a file cannot be read, `alone` is none to be held against, or a file cannot be
            written.
    """
    path = place(run, out)
    if (lost := why_lost(run)) and not read_metrics(run):
        diverged = "diverged" if chance.names_divergence(lost) else "lost"
        job, what = read_tables(run / "job.toml")[0], "No round was finished, so there is no usable model."
        why, what = (cause(job), NO_MODEL) if diverged == "diverged" else ("", what)
        head = [("bad", f"Warning: {lost}."), ("lead", f"{why}{what}")]
        steps = lower_rate(run, job) if diverged == "diverged" else []
        write_page("--out", path, bare_page(run, job, (diverged, "bad", str(run)), head, steps=steps))
        return path
    summary = read_run(run)
    found = answered(summary, scores)
    content = page(summary, alone=read_alone(alone) if alone else None, found=found)
    if plots is not None:
        spec = trained_on(summary, read_environment(run))
        plot_answers(found._replace(doubt=doubts(spec)), getattr(spec, "class_names", None) or (), plots)
    write_page("--out", path, content)
    return path


def place(run: Path, out: Path | None) -> Path:
    """Return where a run's page goes.

    Raises:
        InputError: its name does not end as a page's.
    """
    path = out or run / "report.html"
    check_page("--out", path)
    return path


def page(
    summary: Summary, every: float | None = None, alone: Summary | None = None, found: Answered | None = None
) -> str:
    """Return the page of a run.

    Args:
        every: The seconds after which the page loads itself anew, if it does.
        alone: A run of the same silos, each of which trained by itself.
        found: The answers of its model; by default those that it tells.

    Raises:
        InputError: `alone` is none to be held against.
    """
    environment = read_environment(summary.run)
    names, spec = Names(environment.get("silos", ())), trained_on(summary, environment)
    held = examples(summary, spec, names, environment)
    summary = replace(as_counted(summary, held), rows=rows_of_rounds(summary, spec))
    summary = replace(summary, rows_of_silos=sum(of.out for of in held.values()))
    found = (answered(summary) if found is None else found)._replace(doubt=doubts(spec))
    held = found.reaching(held, summary.metric)
    summary = replace(summary, remarks=(*summary.remarks, *found.doubts(chance.counts(summary.metric))))
    over = gains_over(alone, summary, held) if alone is not None else {}
    classes: Sequence[str] = getattr(spec, "class_names", None) or ()
    weak = weak_answers(found.rows.get(TEST) or found.rows.get(SILOS), classes)
    gain = [run_figures.one_seed(summary), *compared(summary, alone, over, held), weak, *rows_left_out(spec)]
    main = run_figures.curve(summary, names)
    drawn, fallen = silos(summary, names, held, main, over)
    steps = next_of_run(summary, names, held, fallen, going=bool(every), told=bool(over))
    figures = [*analysed(summary.records), main, happened(summary, names, fallen)]
    figures += [next_figure(steps, summary), *drawn]
    figures += [coefficients(summary.records, fit_doubt(spec)), *answers_section(found, classes)]
    figures += [run_figures.over_the_clock(summary), *run_figures.beside(summary), run_figures.time(summary)]
    told = groups_told(summary, environment, spec)
    folds = [trust(summary, names, told), _of_silos(summary), data(spec), _rounds(summary)]
    cards = _cards(summary, judging(summary, spec, held), held)
    return render(
        "report.html",
        title=title_of(summary.run, summary.job), name=str(summary.job.get("name", summary.run.name)),
        broad=alone is not None,  # its table of silos has two more columns
        every=every, state=_state(summary, every), steps=steps, figures=there(figures),
        head=_head(summary, environment, names, every, held, gain, spec=spec),
        cards=cards[-1:] if of_no_use(summary) else cards,  # its time
        folds=there([*folds, _job(summary.run), _environment(environment, run_figures.of_ranks(summary))]),
    )  # fmt: skip


def bare_page(
    run: Path,
    job: Mapping[str, Any],
    state: tuple[str, str, str],
    head: Sequence[tuple[str, str]],
    every: float | None = None,
    steps: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page of a run without a round."""
    name = str(job.get("name", run.name))
    return render("report.html", title=title_of(run, job), name=name, every=every, broad=False, state=state,
                  head=head, steps=steps, cards=[], figures=[], folds=[])  # fmt: skip


def loads_itself(every: float) -> str:
    """Say that a page does."""
    return f"The run is in progress. This page reloads every {every:g} seconds until the run ends."


def title_of(run: Path, job: Mapping[str, Any]) -> str:
    """Return what a run's page is called."""
    return f"{job.get('name', run.name)}: {run.absolute().name}"


def _state(summary: Summary, every: float | None) -> tuple[str, str, str]:
    """Return how a run has ended, the look of that, and when and where it was."""
    when = units.moment(number(summary.records[-1], "time"))
    when += ", " if when else ""
    if summary.diverged:
        word, look = "diverged", "bad"
    else:
        ended = ("stopped early" if summary.stopped else "finished", "good")
        word, look = ended if summary.finished else ("not finished", "warn")
        if any(remark.startswith(chance.NO_BETTER) for remark in summary.remarks):
            word, look = f"{word}, {chance.NO_BETTER}", "bad"
        elif any(chance.grown(summary, key) for key in chance.LOSSES):
            word, look = f"{word}, a loss grew", "warn"
    if every:
        word, look, when = "in progress", "warn", f"last round {when}" * bool(when)
    return word, look, f"{when}{summary.run}"


def _head(
    summary: Summary,
    environment: dict[str, Any],
    names: Names,
    every: float | None,
    held: Mapping[str, Held],
    gain: Sequence[str],
    spec: object,
) -> list[tuple[str, str]]:
    """Return the look and the words of what stands below the name; `spec` is of the shards, if known."""
    words = headline(summary.job)
    silos = len(getattr(spec, "silos", ())) or len(environment.get("silos") or scores(summary))
    sites, ranks = {name for r in summary.records for name in sites_of(r)}, environment.get("ranks") or ()
    for what, many in (("silo", silos), ("site", len(sites)), ("rank", len(ranks))):
        words += [f"{many:,} {what}{'s' * (many > 1)}"] if many else []
    words += [f"labels at {names.listed([spec.holder])}"] if hasattr(spec, "holder") else []
    planned = summary.job.get("rounds", summary.rounds)
    words += [f"{summary.rounds:,} of {planned:,} round{'s' * (planned > 1)}", model_told(summary)]
    remarks = [
        remark for remark in minded(summary, names, held) if not every or not remark.startswith("unfinished")
    ]
    lead = [*verdict(summary, names, held), chance.below_commonest(summary), *gain]
    said = [("lead", one) for one in lead if one] + [("bad", f"Warning: {one}.") for one in remarks]
    return [("", " · ".join(words)), *said, *([("bad", f"{NOT_YET} {loads_itself(every)}")] if every else [])]


def _cards(summary: Summary, rows: int, holds: Mapping[str, Held]) -> list[tuple[str, str, str]]:
    """Return four figures: what each is, its value, and what is beside it."""
    values, metric, write = summary.figures(summary.target), summary.metric, summary.metric.write
    main, final, best = summary.judged_by or metric.test, summary.final(), values[f"best_{metric.name}"]
    sure = run_figures.certain(summary, summary.main[0] if summary.main else main, metric.name, rows)
    of = f"; model of round {summary.model_round:,}" if summary.model_round else ""
    if final is not None:
        cards = [(f"test {metric.label}", write(final), "; ".join([*sure, f"scored once at the end{of}"]))]
    elif (last := summary.figure(main)) is not None:
        held = "on the silos' validation rows" if summary.by_valid else f"on {HELD_OUT}"
        near, most = (one if one is None else write(one, summary.target) for one in (last, best))
        held = held if most is None else f"best of all rounds: {most}"
        cards = [(metric.label, near or "", "; ".join([*sure[:1], held + of, *sure[1:]]))]
    elif summary.epsilon is not None:
        cards = [("epsilon", f"{summary.epsilon:.4g}", "")]
    else:
        cards = []
    if (worst := values[f"{metric.silo}_worst"]) is not None and run_figures.several_silos(summary):
        mean = write(values[f"{metric.silo}_mean"] or 0)
        who = f"silo {summary.worst_silo}; " if summary.worst_silo else ""
        who += _reach_of(worst, holds.get(summary.worst_silo or ""), metric)
        more = f"; {summary.silo_rows}" if summary.silo_rows else ""
        more += ", each silo with a model of its own" if summary.personal else ""
        cards.append(("worst silo", write(worst), f"{who}the mean over silos is {mean}{more}"))
    if summary.target is not None and not summary.missing:
        at, clock = values["rounds_to_target"], values.get("virtual_seconds_to_target")
        cost = [
            f"{units.seconds(values['seconds_to_target'] or 0)} for these rounds",
            units.size(values["bytes_to_target"] or 0),
        ]
        cost += [f"{units.seconds(clock)} on the virtual clock"] if clock is not None else []
        took = "; ".join(filter(None, [", ".join(cost), missed_since(summary)])) if at else "not reached"
        cards.append((f"rounds to {metric.write_briefly(summary.target)}", f"{at:,.0f}" if at else "–", took))
    if not summary.missing:
        parts = (("scoring", "seconds_evaluation"), ("checkpoints", "seconds_checkpoint"))
        spent = {what: whole for what, key in parts if (whole := summary.total(key))}
        carried = units.size(summary.total(*BYTES))
        told = [f"{units.seconds(sum(spent.values()))} more for {' and '.join(spent)}"] if spent else []
        told += [] if trains_alone(summary.job) else [f"{carried} between server and silos"]
        told += [f"training: {speed}"] if (speed := units.speed(summary.records)) else []
        cards.append(("time of rounds", units.seconds(summary.total("seconds")), "; ".join(told)))
    return cards


def _reach_of(value: float, of: Held | None, metric: MetricInfo) -> str:
    """Say what chance makes of a silo's score by its held-out rows; "" where that is not known."""
    if of is None or (found := of.interval(value, metric)) is None:
        return ""
    alike, rows = "rows of one class; " * (of.commonest == 1), f"{of.out:,} row{'s' * (of.out > 1)}"
    return f"{alike}95% interval {units.reach(found, metric)} on {rows}; "


def _of_silos(summary: Summary) -> Block | None:
    """List what rounds have told of single silos, each figure as it was last."""
    last: dict[str, dict[str, Any]] = {}
    for record in summary.records:
        for key, told in record.items():
            if key.endswith(OF_SILOS) and key not in ELSEWHERE and isinstance(told, Mapping):
                last.setdefault(key, {}).update(told)
    if not (silos := list(dict.fromkeys(name for told in last.values() for name in told))):
        return None
    rows = [
        [name, *(units.written(told, name, "{:.4g}".format) for told in last.values())]
        for name in silos[:MOST_ROWS]
    ]
    heads = ["silo", *(key.removesuffix(OF_SILOS) for key in last)]
    return Fold(f"Last values of each silo ({len(silos)})", [Table.of(heads, rows)], opened=True)


def _rounds(summary: Summary) -> Block:
    records, metric, of = summary.records, summary.metric, ", validation rows" * summary.by_valid
    main = summary.judged_by or metric.test
    head = f"test {metric.label}" if main == metric.test else f"{metric.label}, all silos{of}"
    worst = (f"worst silo{of}", f"{metric.silo}_worst" * run_figures.several_silos(summary), metric.write)
    table = ((head, main, partial(metric.write, target=summary.target)), *LOSSES, worst, *COSTS)
    columns = [column for column in table if any(number(r, column[1]) is not None for r in records)]
    step = -(-len(records) // MOST_ROWS)
    fell = {at for at, _ in falls(summary)}
    shown = {*range(0, len(records), step), len(records) - 1}
    chosen = [r for nth, r in enumerate(records) if nth in shown or r["round"] in fell]
    chosen[:0] = [{**summary.before, "round": 0}] if summary.before else []
    rows = [[str(r["round"]), *(units.written(r, name, write) for _, name, write in columns)] for r in chosen]
    title = "Every round" if step == 1 else f"One round in {step}"
    return Fold(title, [Table.of(["round", *(heading for heading, _, _ in columns)], rows)])


def _job(run: Path) -> Block | None:
    try:
        text = read_whole(run / "job.toml", LARGEST_FILE).decode(errors="replace")
    except OSError:
        return None
    return Fold("The job", [], pre=text.strip())


def _environment(environment: dict[str, Any], spent: Mapping[str, Mapping[str, str]]) -> Block | None:
    """Return where a run ran, and what each rank was given and did; environment.json has all."""
    if not environment:
        return None
    given, command = environment.get("ranks") or {}, environment.get("command")
    versions = ", ".join(f"{name} {version}" for name, version in (environment.get("versions") or {}).items())
    facts: list[tuple[str, Any]] = [("versions", versions)]
    facts += [(name, environment.get(name)) for name in ("mpi", "platform", "directory")]
    facts += [("command", " ".join(map(str, command)) if isinstance(command, list) else "")]
    facts += [("resumed after round", environment.get("resumed_after_round"))]
    facts += [("hosts of all starts", ", ".join(map(str, environment.get("hosts", ()))))]
    facts += [("changed by --force", "; ".join(map(str, environment.get("changes", ()))))]
    told = [Table.of([], [[name, str(value)] for name, value in facts if value], text=1)]
    ranks = {rank: {**given.get(rank, {}), **spent.get(rank, {})} for rank in {**given, **spent}}
    names = [name for name in OF_RANKS if any(name in of for of in ranks.values())]
    each = [[rank, *(str(of.get(name, "")) for name in names)] for rank, of in ranks.items()]
    return Fold("Where it ran", [*told, *([Table.of(["rank", *names], each[:MOST_ROWS])] if each else [])])
