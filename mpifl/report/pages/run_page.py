"""A run as one HTML file: nothing fetched, readable offline and on a phone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from mpifl.common import LARGEST_FILE, Names, read_whole
from mpifl.common.pages import Block, Fold, Table, check_page, render, there, write_page
from mpifl.report.judging import section as silos_section
from mpifl.report.observers import HELD_OUT
from mpifl.report.pages import run_figures
from mpifl.report.pages.happened import happened, verdict
from mpifl.report.pages.trust_section import trust
from mpifl.report.runs import Summary, data, headline, read_run, units
from mpifl.run.folder import number, read_environment

MOST_ROWS = 200
OF_SILOS = "_silos"
"""What the names of tables of single silos' figures end with."""
ELSEWHERE = ("epsilon_silos",)
"""Such tables that another section shows."""
LAST_DAY = 253_370_000_000
"""Seconds since 1970 that a calendar knows."""
LOSSES = (
    ("test loss", "test_loss", "{:.4f}".format),
    ("training loss", "train_loss", "{:.4f}".format),
)
COSTS = (
    ("seconds", "seconds", "{:.3f}".format),
    ("sent", "bytes_sent", units.size),
    ("received", "bytes_received", units.size),
)


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write a run's page and return where it is: at `out`, by default report.html in the run folder.

    Raises:
        InputError: the run cannot be read or the file not be written.
    """
    path = place(run, out)
    write_page("--out", path, page(read_run(run)))
    return path


def place(run: Path, out: Path | None) -> Path:
    """Return where a run's page goes.

    Raises:
        InputError: its name does not end as a page's.
    """
    path = out or run / "report.html"
    check_page("--out", path)
    return path


def page(summary: Summary, every: float | None = None) -> str:
    """Return the page of a run.

    Args:
        summary: The run.
        every: The seconds after which the page loads itself anew, if it does.
    """
    environment = read_environment(summary.run)
    names = Names(environment.get("silos", ()))
    metric, losses, over_silos = run_figures.reached(summary)
    figures = [
        metric,
        happened(summary, names),
        over_silos,
        silos_section(summary),
        losses,
        run_figures.over_the_clock(summary),
    ]  # on a phone one below the other
    if not summary.missing:  # by round or in sum: none may be missing
        figures += [*run_figures.costs(summary), run_figures.time(summary)]
        figures.append(run_figures.ranks(summary, environment))
    figures.append(data(summary, environment))
    folds = [trust(summary, names), _of_silos(summary), _faults(summary.records, names), _rounds(summary)]
    return render(
        "report.html",
        title=title_of(summary.run, summary.job),
        name=str(summary.job.get("name", summary.run.name)),
        every=every,
        broad=False,
        head=_head(summary, environment, every),
        cards=_cards(summary),
        figures=there(figures),
        folds=there([*folds, _job(summary.run), _environment(environment)]),
    )


def loads_itself(every: float) -> str:
    """Say that a page does."""
    return f"The run is going on; this page loads itself anew every {every:g} seconds until it ends."


def title_of(run: Path, job: Mapping[str, Any]) -> str:
    """Return what a run's page is called."""
    return f"{job.get('name', run.name)}: {run.absolute().name}"


def _head(summary: Summary, environment: dict[str, Any], every: float | None) -> list[tuple[str, str]]:
    """Return what stands below the name: the look and the words of each paragraph."""
    job = summary.job
    words = headline(job)
    ended = number(summary.records[-1], "time") or 0.0
    when = f"{datetime.fromtimestamp(ended):%Y-%m-%d %H:%M}" if 0 < ended < LAST_DAY else ""
    ranks = len(environment.get("ranks") or {})
    words += [f"{ranks} rank{'s' if ranks > 1 else ''}"] if ranks else []
    state = f"finished {when}" if summary.finished else f"last round {when}"
    remarks = [remark for remark in summary.remarks if every is None or not remark.startswith("unfinished")]
    said = [("lead", one) for one in verdict(summary)] + [("bad", one) for one in remarks]
    said = [("", " · ".join(words)), ("soft", f"{summary.run}, {state}"), *said]
    return said + ([] if every is None else [("", loads_itself(every))])


def _cards(summary: Summary) -> list[tuple[str, str]]:
    """Return the figures that matter most, and what each is."""
    values = summary.figures(summary.target)
    metric, write = summary.metric, summary.metric.write
    last, best, worst = (values[key] for key in (metric.test, f"best_{metric.name}", f"{metric.silo}_worst"))
    said = "" if best is None else f"test {metric.name}; the best was {write(best)}"
    cards = [] if last is None else [(write(last), said)]
    if last is None and (together := summary.figure(summary.together)) is not None:
        pooled = summary.together == metric.pooled
        of = " on all that silos hold out" if pooled else ", the silos' mean by their examples"
        cards.append((write(together), metric.name + of))
    if (final := values[f"final_{metric.name}"]) is not None:
        cards.append((write(final), f"test {metric.name}, scored once, at the end"))
    if values["test_loss"] is not None:
        cards.append((f"{values['test_loss']:.4f}", "test loss"))
    if worst is not None:
        name = summary.worst_silo
        whose = f"worst silo ({name})" if name else "worst silo"
        cards.append((write(worst), f"{whose}; the mean is {write(values[f'{metric.silo}_mean'] or 0)}"))
    cards.append((f"{summary.rounds:,}", f"rounds, of {summary.job.get('rounds', summary.rounds):,} at most"))
    return cards + ([] if summary.missing else _sums(summary, values))


def _sums(summary: Summary, values: dict[str, float | None]) -> list[tuple[str, str]]:
    """Return the cards of what is summed up over the rounds."""
    cards = [] if summary.target is None else [_to_target(summary, summary.target, values)]
    sent, received = values["bytes_sent"] or 0, values["bytes_received"] or 0
    scoring, saving = (summary.total(f"seconds_{part}") for part in ("evaluation", "checkpoint"))
    beside = f"; scoring took {units.seconds(scoring)} more, checkpoints {units.seconds(saving)}"
    not_counted = beside if scoring or saving else ", scoring and checkpoints not counted"
    cards.append((units.seconds(values["seconds"] or 0), f"in rounds{not_counted}"))
    cards.append((units.size(sent + received), f"between server and silos; {units.size(sent)} sent"))
    return cards


def _to_target(summary: Summary, target: float, values: dict[str, float | None]) -> tuple[str, str]:
    on = "" if summary.judged_by in (None, summary.metric.test) else f" on {HELD_OUT}"
    wanted, round = summary.metric.write_briefly(target) + on, summary.reached(target)
    if not round:
        return "–", f"{wanted} was not reached"
    cost = [units.seconds(values["seconds_to_target"] or 0), units.size(values["bytes_to_target"] or 0)]
    if (clock := values.get("virtual_seconds_to_target")) is not None:
        cost.append(f"{units.seconds(clock)} of the virtual clock")
    return f"{round:,}", f"rounds to {wanted}: {', '.join(cost)}"


def _faults(records: Sequence[dict[str, Any]], names: Names) -> Block | None:
    """List the silos that were left out of rounds, with their last reason."""
    counts: Counter[str] = Counter()
    reasons: dict[str, tuple[int, str]] = {}
    for record in records:
        for silo, reason in (record.get("faults") or {}).items():
            counts[silo] += 1
            reasons[silo] = (record["round"], str(reason))
    if not counts:
        return None
    often = counts.most_common(MOST_ROWS)
    rows = [[names[silo], str(n), *map(str, reasons[silo])] for silo, n in often]
    table = Table.of(["silo", "rounds", "last", "reason"], rows)
    return Fold(f"Silos left out of rounds ({len(counts)})", [table], opened=True)


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
        [name, *(_written(told, name, "{:.4g}".format) for told in last.values())]
        for name in silos[:MOST_ROWS]
    ]
    heads = ["silo", *(key.removesuffix(OF_SILOS) for key in last)]
    return Fold(f"What was last told of each silo ({len(silos)})", [Table.of(heads, rows)], opened=True)


def _rounds(summary: Summary) -> Block:
    records, metric = summary.records, summary.metric
    tested = (f"test {metric.name}", metric.test, metric.write)
    table = (tested, *LOSSES, ("worst silo", f"{metric.silo}_worst", metric.write), *COSTS)
    columns = [column for column in table if any(number(r, column[1]) is not None for r in records)]
    step = -(-len(records) // MOST_ROWS)
    chosen = [r for nth, r in enumerate(records) if nth % step == 0 or nth == len(records) - 1]
    rows = [[str(r["round"]), *(_written(r, name, write) for _, name, write in columns)] for r in chosen]
    title = "Every round" if step == 1 else f"Every {step}th round"
    return Fold(title, [Table.of(["round", *(heading for heading, _, _ in columns)], rows)])


def _written(record: Mapping[str, Any], name: str, write: Callable[[float], str]) -> str:
    value = number(record, name)
    return "" if value is None else write(value)


def _job(run: Path) -> Block | None:
    try:
        text = read_whole(run / "job.toml", LARGEST_FILE).decode(errors="replace")
    except OSError:
        return None
    return Fold("The job", [], pre=text.strip())


def _environment(environment: dict[str, Any]) -> Block | None:
    if not environment:
        return None
    versions = ", ".join(f"{name} {version}" for name, version in (environment.get("versions") or {}).items())
    given = environment.get("command")
    facts: list[tuple[str, Any]] = [("versions", versions)]
    facts += [(name, environment.get(name)) for name in ("mpi", "platform", "directory")]
    facts += [("command", " ".join(map(str, given)) if isinstance(given, list) else "")]
    facts += [("resumed after round", environment.get("resumed_after_round"))]
    facts += [("changed by --force", "; ".join(map(str, environment.get("changes", ()))))]
    rows = [[name, str(value)] for name, value in facts if value]
    return Fold(
        "The environment", there([Table.of([], rows, text=1), _placed(environment.get("ranks") or {})])
    )


def _placed(ranks: Mapping[str, Mapping[str, Any]]) -> Table | None:
    """Return a table of the ranks and what each was given."""
    names = list(dict.fromkeys(name for about in ranks.values() for name in about))
    shown = list(ranks.items())[:MOST_ROWS]
    rows = [[rank, *(str(about.get(name, "")) for name in names)] for rank, about in shown]
    return Table.of(["rank", *names], rows) if rows else None
