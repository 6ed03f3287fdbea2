"""A run that continues as one picture of a terminal: curves, silos, ranks and the time left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mpifl.common import Names
from mpifl.common.pages import charts
from mpifl.report.judging import NAMES, ranked, scores, why_none
from mpifl.report.observers import figures_of
from mpifl.report.runs import Record, Summary, headline, units
from mpifl.report.terminal.braille import canvas
from mpifl.report.terminal.following import Look, State
from mpifl.run.folder import number

COLOURS = {
    State.AWAITED: "yellow",
    State.GOING: "cyan",
    State.FINISHED: "green",
    State.LOST: "red",
    State.STOPPED: "yellow",
}
QUIET = 60.0
"""Seconds without a sign of life from which on that is said."""
NARROW, BESIDE = 60, 8
"""Columns below which curves stand one below the other; columns of the figures beside one."""
LEAST, MOST, TABLES = 5, 14, 7
"""Rows of a curve; rows kept free for the tables below."""
BAR, SEVENTH = 16, 7
"""Characters of a bar: so many at most, and no more than this part of the terminal."""

Line = tuple[str, str, str]
"""What a curve is called, its figure, its colour."""


def frame(look: Look, width: int, height: int, plain: bool = False) -> RenderableType:
    """Return the picture of a run.

    Args:
        width: Columns of the terminal.
        height: Rows of it.
        plain: Whether it writes no more than ASCII: it has no curves then.
    """
    top: list[RenderableType] = [_title(look), _state(look), _progress(look, width)]
    if (summary := look.summary) is None:
        return Group(*top)
    names = Names(look.environment.get("silos", ()))
    figures = figures_of(summary.of_model, names, summary.metric, summary.by_valid)
    words = f"{summary.model_words}: " if summary.model_words else ""
    top.append(Text(f"{words}{figures}", "bold", overflow="fold"))
    told = [remark for remark in summary.remarks if not remark.startswith("unfinished")]
    top += [Text(one, "yellow") for one in (summary.stopped, *told) if one]
    free = height - len(top) - 1
    if not plain:
        curves = _curves(summary, width, free - TABLES, free - TABLES - _rows_below(summary))
        free -= sum(curve.height or 0 for row in curves for curve in row[:1])
        top += [_side_by_side(row, 0) for row in curves]
    return Group(*top, _tables(look, summary, max(free - 2, 1), width))


def _title(look: Look) -> Text:
    name = NAMES[str(look.job.get("name", look.run.name))] if look.job else look.run.name
    return Text.assemble(
        (name, "bold"), "  ", (" · ".join(headline(look.job)), "dim"), overflow="ellipsis", no_wrap=True
    )


def _state(look: Look) -> Text:
    text = Text.assemble(
        (f"{look.run} {look.state.value}", COLOURS[look.state]), overflow="ellipsis", no_wrap=True
    )
    host = look.holder.get("host")
    if look.state is State.GOING and host is not None:
        text.append(f" on {NAMES[str(host)]} since {NAMES[str(look.holder.get('since', '?'))]}", "dim")
    if look.state is State.GOING and look.silent > max(QUIET, 3 * (look.pace or 0)):
        text.append(f"; nothing was written for {units.seconds(look.silent)}", "yellow")
    if look.state is State.STOPPED:
        text.append("; no training runs in it: continue with --resume", "yellow")
    return text


def _progress(look: Look, width: int) -> RenderableType:
    if look.planned is None:
        return Text(f"round {look.rounds}")
    words = f"round {look.rounds:,} of {look.planned:,}"
    if look.pace is not None:
        words += f"  {units.seconds(look.pace)} a round"
    if look.left is not None and look.state is State.GOING:
        words += f"  {units.seconds(look.left)} left at most"
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(look.planned, 1), completed=look.rounds, width=max(10, min(30, width // 4)))
    grid.add_row(bar, Text(words))
    return grid


def _curves(summary: Summary, width: int, most: int, wanted: int) -> list[list[Panel]]:
    """Return the curves as rows of boxes, as high as wanted, or as fits into `most` rows; none may fit."""
    metric, abreast = summary.metric, 1 if width < NARROW else 2
    scored: list[Line] = [("test", metric.test, "cyan"), ("silos' worst", f"{metric.silo}_worst", "red")]
    if not any(metric.test in record for record in summary.records):
        scored[0] = ("silos", summary.together, "cyan")
    losses: list[Line] = [("training", "train_loss", "yellow"), ("test", "test_loss", "cyan")]
    boxes = 2 if abreast == 2 or most < 2 * (LEAST + 2) else 1
    size = width // abreast, min(MOST, max(LEAST, wanted // (3 - boxes) - 2))
    if most < LEAST + 2:
        return []
    title = f"{metric.name}, validation rows" if summary.by_valid else metric.name
    first = _curve(summary, title, scored, size, metric.write_briefly)
    second = _curve(summary, "loss", losses, size, "{:.3g}".format, log=True)
    return [[first, second]] if abreast == 2 else [[first], [second]] if boxes == 1 else [[first]]


def _curve(
    summary: Summary,
    title: str,
    lines: Sequence[Line],
    size: tuple[int, int],
    write: charts.Write,
    log: bool = False,
) -> Panel:
    """Draw figures over rounds in a box of so many columns and rows, the first on top of the others."""
    records, (width, rows) = summary.records, size
    found = [
        ([(r["round"], number(r, key)) for r in records if key in r], colour) for _, key, colour in lines
    ]
    values = [value for points, _ in found for _, value in points if value is not None]
    if not values or width < 2 * BESIDE:
        return _box(Text("nothing yet", "dim"), Text(title, "bold"), size)
    y, levels = charts.levelled(values, log)
    x = charts.Scale(records[0]["round"], max(summary.rounds, records[0]["round"] + 1))
    drawn = []
    for points, colour in found:
        at = [None if value is None else (x(round), y(value)) for round, value in points]
        drawn.append((canvas(at, width - BESIDE - 4, rows), colour))
    beside = {round((1 - y(level)) * (rows - 1)): write(level) for level in levels if 0 <= y(level) <= 1}
    told = Text(f"{title}  ", "bold")
    for (name, _, colour), (points, _) in zip(lines, found, strict=True):
        told.append(f"{name} " if points else "", colour)
    return _box(_body(drawn, beside), told, size, f"round {x.low:,} to {x.high:,}")


def _box(body: Text, title: Text, size: tuple[int, int], below: str = "") -> Panel:
    width, rows = size
    return Panel(body, title=title, title_align="left", subtitle=below or None, subtitle_align="right",
                 border_style="dim", width=width, height=rows + 2)  # fmt: skip


def _body(drawn: Sequence[tuple[Sequence[str], str]], beside: Mapping[int, str]) -> Text:
    """Lay curves over each other, the first on top, behind what stands beside their rows."""
    body = Text(no_wrap=True)
    for row in range(len(drawn[0][0])):
        body.append("\n" if row else "")
        body.append(f"{beside.get(row, '')[: BESIDE - 1]:>{BESIDE - 1}} ", "dim")
        for column in range(len(drawn[0][0][0])):
            there = ((lines[row][column], colour) for lines, colour in drawn if lines[row][column] != " ")
            body.append(*next(there, (" ", "")))
    return body


def _rows_below(summary: Summary) -> int:
    """Return how many more rows the tables would like to have."""
    ranks = summary.records[-1].get("rank_seconds") or {}
    return max(max(len(scores(summary)), len(ranks)) - TABLES + 3, 0)


def _tables(look: Look, summary: Summary, rows: int, width: int) -> RenderableType:
    names, bar = Names(look.environment.get("silos", ())), min(BAR, width // SEVENTH)
    found = [_silos(summary, names, rows, bar)]
    if width >= NARROW and summary.records[-1].get("rank_seconds"):
        found.append(_ranks(look, summary.records[-1], rows, bar))
    return _side_by_side(found, 4)


def _side_by_side(parts: Sequence[RenderableType], apart: int) -> Table:
    grid = Table.grid(padding=(0, apart))
    grid.add_row(*parts)
    return grid


def _silos(summary: Summary, names: Names, rows: int, length: int) -> RenderableType:
    """Return a table of the silos, the worst first, or a line that says why there is none."""
    metric, found = summary.metric, ranked(scores(summary), summary.metric)
    if not found:
        return Text(f"silos' {metric.name}: {why_none(summary.job)}", "dim")
    values = [value for _, value in found if value is not None]
    most = 1.0 if metric.share else max(map(abs, values), default=0.0) or 1.0
    colours = {metric.best(values, default=None): "green", metric.worst(values, default=None): "red"}
    shown = found if len(found) <= rows - 1 else [*found[: max(rows - 3, 1)], found[-1]]
    table = _grid("worst first", ", ".join(filter(None, [metric.name, summary.silo_rows])))
    for name, value in shown:
        colour = colours.get(value, "") if value is not None else "dim"
        bar = "" if value is None else "━" * round(length * min(abs(value) / most, 1))
        told = "-" if value is None else metric.write(value)
        table.add_row(Text(name, colour), Text(told, colour, justify="right"), Text(bar, colour or "cyan"))
    if more := len(found) - len(shown):
        table.add_row(Text(f"and {more:,} between", "dim"))
    if faults := summary.records[-1].get("faults"):
        table.add_row(Text(f"left out: {len(faults):,}", "yellow"), Text(names[next(iter(faults))], "yellow"))
    return table


def _grid(*headings: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_row(*(Text(heading, "dim") for heading in headings))
    return table


def _ranks(look: Look, last: Record, rows: int, length: int) -> RenderableType:
    """Return a table of the workers: how long each trained in the last round, beside the slowest."""
    told, about, most = last["rank_seconds"], look.environment.get("ranks") or {}, max(rows - 2, 1)
    slowest = max((number(parts, "training") or 0.0) for parts in told.values()) or 1.0
    table = _grid("rank", "training")
    for rank, parts in sorted(told.items(), key=lambda item: int(item[0]))[:most]:
        seconds = number(parts, "training") or 0.0
        bar = Text("━" * round(length * seconds / slowest), "cyan")
        bar.append("━" * (length - len(bar)), "dim")
        table.add_row(Text(f"{rank} {_where(about.get(rank, {}))}"), bar, Text(units.seconds(seconds), "dim"))
    if len(told) > most:
        table.add_row(Text(f"and {len(told) - most} more", "dim"))
    if isinstance(lost := last.get("ranks_lost"), list) and lost:
        table.add_row(Text(f"lost: {', '.join(map(str, lost))}", "red"))
    return table


def _where(about: Mapping[str, object]) -> str:
    return " ".join(NAMES[str(about[key])] for key in ("host", "device") if about.get(key))
