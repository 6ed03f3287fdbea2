"""A run as one HTML file: no script, nothing fetched, readable offline and on a phone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from mpifl.common import LARGEST_FILE, InputError, Names, read_whole, write_atomic
from mpifl.report import charts, units
from mpifl.report.data import data
from mpifl.report.runs import Summary, read_run
from mpifl.report.style import STYLE
from mpifl.run import number, read_environment
from mpifl.tracking import HELD_OUT

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MOST_ROWS = 200
LAST_DAY = 253_370_000_000
"""Seconds since 1970 that a calendar knows."""
PARTS = ("training", "waiting", "communication", "evaluation", "checkpoint")
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
    """Write a run's page and return where it is.

    Args:
        run: The run folder; the run may still be going on.
        out: The file; report.html in the run folder by default.

    Raises:
        InputError: the run cannot be read or the file not be written.
    """
    path = out or run / "report.html"
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {path}: ends in '{path.suffix}'; it must be .html")
    content = page(read_run(run))
    try:
        write_atomic(path, content.encode())
    except OSError as error:
        raise InputError(f"--out {path}: cannot be written ({error.strerror}); name another file") from None
    return path


def page(summary: Summary) -> str:
    """Return the page of a run."""
    environment = read_environment(summary.run)
    # by round or in sum: none may be missing
    every = [*_costs(summary), _time(summary), _ranks(summary, environment)]
    figures = "".join([*_reached(summary), *([] if summary.missing else every), data(summary, environment)])
    body = _head(summary, environment) + _cards(summary) + f'<div class="grid">{figures}</div>'
    body += _faults(summary.records, Names(environment.get("silos", ()))) + _rounds(summary)
    body += _job(summary.run) + _environment(environment)
    title = escape(f"{summary.job.get('name', summary.run.name)}: {summary.run.absolute().name}")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _head(summary: Summary, environment: dict[str, Any]) -> str:
    job = summary.job
    what = [job.get("algorithm", {}).get("name"), job.get("model", {}).get("name"), job.get("shards")]
    words = [str(word) for word in what if word] + ([f"seed {job['seed']}"] if "seed" in job else [])
    ended = number(summary.records[-1], "time") or 0.0
    when = f"{datetime.fromtimestamp(ended):%Y-%m-%d %H:%M}" if 0 < ended < LAST_DAY else ""
    ranks = len(environment.get("ranks") or {})
    words += [f"{ranks} rank{'s' if ranks > 1 else ''}"] if ranks else []
    state = f"finished {when}" if summary.finished else f"last round {when}"
    said = "".join(f'<p class="bad">{escape(remark)}</p>' for remark in summary.remarks)
    return (
        f"<header><h1>{escape(str(job.get('name', summary.run.name)))}</h1><p>{escape(' · '.join(words))}</p>"
        f'<p class="soft">{escape(str(summary.run))}, {state}</p>{said}</header>'
    )


def _cards(summary: Summary) -> str:
    figures = summary.figures(summary.target)
    metric, write = summary.metric, summary.metric.write
    last, best, worst = (
        figures[name] for name in (metric.test, f"best_{metric.name}", f"{metric.silo}_worst")
    )
    said = "" if best is None else f"test {metric.name}; the best was {write(best)}"
    cards = [] if last is None else [(write(last), said)]
    if figures["test_loss"] is not None:
        cards.append((f"{figures['test_loss']:.4f}", "test loss"))
    if worst is not None:
        cards.append((write(worst), f"worst silo; the mean is {write(figures[f'{metric.silo}_mean'] or 0)}"))
    cards.append((f"{summary.rounds:,}", f"rounds, of {summary.job.get('rounds', summary.rounds):,} at most"))
    drawn = "".join(_card(*card) for card in cards + ([] if summary.missing else _sums(summary, figures)))
    return f'<div class="cards">{drawn}</div>'


def _card(value: str, what: str) -> str:
    return f'<div class="card"><p class="value">{escape(value)}</p><p>{escape(what)}</p></div>'


def _sums(summary: Summary, figures: dict[str, float | None]) -> list[tuple[str, str]]:
    """Return the cards of what is summed up over the rounds."""
    cards, target = [], summary.target
    if target is not None:
        round = summary.reached(target)
        until = (figures["seconds_to_target"] or 0, figures["bytes_to_target"] or 0)
        cost = f"{units.seconds(until[0])}, {units.size(until[1])}"
        on = "" if summary.judged_by in (None, summary.metric.test) else f" on {HELD_OUT}"
        wanted = summary.metric.write_briefly(target) + on
        cards.append(
            (f"{round:,}", f"rounds to {wanted}: {cost}") if round else ("–", f"{wanted} was not reached")
        )
    sent, received = figures["bytes_sent"] or 0, figures["bytes_received"] or 0
    scoring, saving = (summary.total(f"seconds_{part}") for part in ("evaluation", "checkpoint"))
    beside = f"; scoring took {units.seconds(scoring)} more, checkpoints {units.seconds(saving)}"
    not_counted = beside if scoring or saving else ", scoring and checkpoints not counted"
    cards.append((units.seconds(figures["seconds"] or 0), f"in rounds{not_counted}"))
    cards.append((units.size(sent + received), f"between server and silos; {units.size(sent)} sent"))
    return cards


def _line(summary: Summary, name: str, figure: str, colour: str) -> charts.Line:
    points = [(float(r["round"]), number(r, figure)) for r in summary.records if figure in r]
    return charts.Line(name, points, colour)


def _reached(summary: Summary) -> list[str]:
    """Draw what the model reached: the main metric, losses, and how far the silos lie apart."""
    metric, target = summary.metric, summary.target
    name, silo, write = metric.name, metric.silo, metric.write_briefly
    silos = [
        (float(r["round"]), min(worst, best), max(worst, best))
        for r in summary.records
        if (worst := number(r, f"{silo}_worst")) is not None
        and (best := number(r, f"{silo}_best")) is not None
    ]
    losses = [_line(summary, "test", "test_loss", "one"), _line(summary, "training", "train_loss", "two")]
    apart = [
        _line(summary, "silos’ mean", f"{silo}_mean", "one"),
        _line(summary, "mean by examples", f"{silo}_weighted", "three"),
        _line(summary, "worst tenth", f"{silo}_worst10", "two"),
    ]
    dashes = f"The dashes are the target, {write(target)}." if target is not None else ""
    elsewhere = summary.judged_by == f"{silo}_weighted"
    band = charts.Band("from the worst silo to the best", silos, "one")
    note = "On what each silo holds out, every silo counting alike."
    return [
        charts.lines(
            f"Test {name}", [_line(summary, "test", metric.test, "one")], write=write, target=target,
            note=dashes,
        ),
        charts.lines("Loss", losses, write="{:.3g}".format, log=True),
        charts.lines(
            f"{name[:1].upper()}{name[1:]} over the silos", apart, band, write=write,
            target=target if elsewhere else None,
            note=f"{note} By examples: on all of it together. {dashes}" if elsewhere else note,
        ),
    ]  # fmt: skip


def _costs(summary: Summary) -> list[str]:
    """Draw what each round cost: seconds and bytes."""
    records = summary.records
    rounds = [int(r["round"]) for r in records]
    of = {name: [number(r, name) or 0.0 for r in records] for name in
          ("seconds", "seconds_training", "seconds_communication", "seconds_evaluation", "seconds_checkpoint",
           "bytes_sent", "bytes_received")}  # fmt: skip
    together = zip(of["seconds"], of["seconds_training"], of["seconds_communication"], strict=True)
    rest = [max(whole - training - talking, 0.0) for whole, training, talking in together]
    time = [
        ("training, slowest rank", of["seconds_training"], "one"),
        ("communication", of["seconds_communication"], "three"),
        ("the server’s own", rest, "rest"),
        ("scoring", of["seconds_evaluation"], "four"),
        ("the checkpoint before it", of["seconds_checkpoint"], "five"),
    ]
    time = [stack for stack in time if any(stack[1])]
    traffic = [("sent to silos", of["bytes_sent"], "one"), ("received", of["bytes_received"], "two")]
    return [
        charts.bars("Time of each round", rounds, time, units.seconds, beside=units.clock),
        charts.bars("Bytes of each round", rounds, traffic, units.size, "Between the server and the silos."),
    ]


def _time(summary: Summary) -> str:
    """Draw where the time of a worker went, in the rounds and between them."""
    training, waiting, talking, scoring, saving = (summary.total(f"seconds_{part}") for part in PARTS)
    rounds = summary.total("seconds")
    if not training:
        return ""
    whole = rounds + scoring + saving
    parts = [training - waiting, waiting, talking, scoring, saving, max(rounds - training - talking, 0.0)]
    named = zip([*PARTS[:3], "scoring", "checkpoints", "server"], parts, strict=True)
    share = " · ".join(f"{name} {part / whole:.0%}" for name, part in named if part)
    names = [
        "training",
        "waiting for the slowest",
        "communication",
        "scoring",
        "checkpoints",
        "waiting for the server",
    ]
    note = f"Of the mean worker, over all rounds: {share}."
    return charts.split("Where time went", [("a worker", parts, units.seconds(whole))], names, note)


def _ranks(summary: Summary, environment: dict[str, Any]) -> str:
    """Draw where each rank's time went in the rounds,
    if they tell of `rank_seconds`, {rank: {training, waiting}}."""
    sums: dict[str, Counter[str]] = {}
    told = [record for record in summary.records if record.get("rank_seconds")]
    for record in told:
        for rank, parts in record["rank_seconds"].items():
            sums.setdefault(rank, Counter()).update({name: number(parts, name) or 0.0 for name in PARTS[:2]})
    if not sums:
        return ""
    whole, training, talking = (
        sum(number(record, name) or 0.0 for record in told)
        for name in ("seconds", "seconds_training", "seconds_communication")
    )
    alike = [talking, max(whole - training - talking, 0.0)]
    about = environment.get("ranks") or {}
    rows = [] if "0" in sums else [("rank 0, the server", [0.0, training, *alike], "")]
    for rank in sorted(sums, key=int):
        where = about.get(rank, {})
        behind = f"{where.get('host', '')} {where.get('device', '')}".strip()
        rows.append((f"rank {rank}", [sums[rank]["training"], sums[rank]["waiting"], *alike], behind))
    names = ["training", "waiting for the slowest", "communication", "the server’s own work"]
    note = (
        "In the rounds. Communication: from request to mean, "
        "without the slowest rank’s training; the same for all."
    )
    return charts.split("Where time went on each rank", rows, names, note)


def _faults(records: Sequence[dict[str, Any]], names: Names) -> str:
    """List the silos that were left out of rounds, with their last reason."""
    counts: Counter[str] = Counter()
    reasons: dict[str, tuple[int, str]] = {}
    for record in records:
        for silo, reason in (record.get("faults") or {}).items():
            counts[silo] += 1
            reasons[silo] = (record["round"], str(reason))
    if not counts:
        return ""
    rows = [
        [names[silo], str(n), str(reasons[silo][0]), reasons[silo][1]]
        for silo, n in counts.most_common(MOST_ROWS)
    ]
    return _folded(
        f"Silos left out of rounds ({len(counts)})", _table(["silo", "rounds", "last", "reason"], rows), True
    )


def _rounds(summary: Summary) -> str:
    records, metric = summary.records, summary.metric
    tested = (f"test {metric.name}", metric.test, metric.write)
    table = (tested, *LOSSES, ("worst silo", f"{metric.silo}_worst", metric.write), *COSTS)
    columns = [column for column in table if any(number(r, column[1]) is not None for r in records)]
    step = -(-len(records) // MOST_ROWS)
    chosen = [r for nth, r in enumerate(records) if nth % step == 0 or nth == len(records) - 1]
    rows = [
        [
            str(r["round"]),
            *("" if (value := number(r, name)) is None else write(value) for _, name, write in columns),
        ]
        for r in chosen
    ]
    title = "Every round" if step == 1 else f"Every {step}th round"
    return _folded(title, _table(["round", *(heading for heading, _, _ in columns)], rows))


def _job(run: Path) -> str:
    try:
        text = read_whole(run / "job.toml", LARGEST_FILE).decode(errors="replace")
    except OSError:
        return ""
    return _folded("The job", f"<pre>{escape(text.strip())}</pre>")


def _environment(environment: dict[str, Any]) -> str:
    if not environment:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in (environment.get("versions") or {}).items())
    facts = [("versions", versions)] + [
        (name, environment.get(name)) for name in ("mpi", "platform", "directory")
    ]
    given = environment.get("command")
    command = " ".join(map(str, given)) if isinstance(given, list) else ""
    facts += [("command", command), ("resumed after round", environment.get("resumed_after_round") or "")]
    facts += [("changed by --force", "; ".join(map(str, environment.get("changes", ()))))]
    rows = [[name, str(value)] for name, value in facts if value]
    ranks = environment.get("ranks") or {}
    names = list(dict.fromkeys(name for about in ranks.values() for name in about))
    placed = [
        [rank, *(str(about.get(name, "")) for name in names)]
        for rank, about in list(ranks.items())[:MOST_ROWS]
    ]
    body = _table([], rows, text=1) + (_table(["rank", *names], placed) if placed else "")
    return _folded("The environment", body)


def _folded(title: str, body: str, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{body}</details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], text: int | None = None) -> str:
    """Return a table; the column `text`, or one that is called reason, holds sentences."""
    text = headings.index("reason") if "reason" in headings else text

    def cell(nth: int, content: str, kind: str = "td") -> str:
        return f"<{kind}{' class=text' if nth == text else ''}>{escape(content)}</{kind}>"

    head = "".join(cell(nth, heading, "th") for nth, heading in enumerate(headings))
    lines = (
        cell(0, row[0], "th") + "".join(cell(nth, c) for nth, c in enumerate(row[1:], 1)) for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    thead = f"<thead><tr>{head}</tr></thead>" if headings else ""
    return f'<div class="scroll"><table>{thead}<tbody>{body}</tbody></table></div>'
