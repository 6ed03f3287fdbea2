"""How durations, sizes and tables are written for people and for their papers."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from mpifl.common import one_line
from mpifl.common.pages import charts
from mpifl.learning.metrics import MetricInfo
from mpifl.run.folder import number

UNITS = ((1, 0.001, "ms"), (100, 1, "s"), (6000, 60, "min"), (math.inf, 3600, "h"))
"""Durations below so many seconds are marked in this unit, which has so many seconds."""
LAST_DAY = 253_370_000_000
"""Seconds since 1970 that a calendar knows."""
MOST_SPANS, MOST_GAPS = 6, 5
"""Spans of rounds that are written, and of rounds that are missing."""
POINTS = "points"
"""The unit of a difference of shares."""
LEAST = 0.001
"""The least p that is written in digits."""
MOST_NAMED = 5
"""Settings that a sentence names."""


def clock(most: float) -> charts.Levels:
    """Return durations up to `most` seconds, round in one unit, and how to write them in it."""
    unit, name = next((unit, name) for below, unit, name in UNITS if most < below)
    return [unit * level for level in charts.ticks(0, most / unit)], lambda level: f"{level / unit:g} {name}"


def axis(values: Sequence[float], metric: MetricInfo) -> tuple[charts.Scale, list[str]]:
    """Return the scale of values on one line, and what is written at its two ends, which are round."""
    values = two_points(values[0]) if metric.share and len({*values}) == 1 else values
    marks = charts.ticks(min(values, default=0.0), max(values, default=1.0), 3)
    ends = marks[0], marks[-1]
    return charts.Scale(*ends), [*map(metric.write_briefly, ends)]


def two_points(value: float) -> tuple[float, float]:
    """Return ends two points apart around a share, which an axis covers lest a small change look large."""
    low = min(max(value - 0.01, 0.0), 0.98)
    return low, low + 0.02


def seconds(value: float) -> str:
    """Write a duration as a person says it."""
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def moment(time: float | None) -> str:
    """Write a time since 1970 by the local clock; "" of none that a calendar knows."""
    return f"{datetime.fromtimestamp(time):%Y-%m-%d %H:%M}" if time and 0 < time < LAST_DAY else ""


BYTES = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))


def size(value: float) -> str:
    """Write a number of bytes as a person says it, in powers of 1000."""
    unit, factor = next(
        found for found in (("B", 1.0), *BYTES) if value < 1000 * found[1] or found is BYTES[-1]
    )
    return f"{value / factor:.3g} {unit}"


def sizes(values: Sequence[float | None]) -> tuple[str, list[str]]:
    """Write numbers of bytes for a column: its unit, that of the largest one, and each; "--" for none."""
    most = max((value for value in values if value is not None), default=0.0)
    unit, factor = next(found for found in BYTES if most < 1000 * found[1] or found is BYTES[-1])
    return unit, ["--" if value is None else f"{value / factor:,.1f}" for value in values]


def speed(records: Sequence[Mapping[str, Any]]) -> str:
    """Write how many examples silos trained on in a second, and tokens of texts; "" if rounds do not tell."""
    counted = [(number(r, "examples_trained"), number(r, "seconds_training"), r) for r in records]
    known = [(trained, spent, r) for trained, spent, r in counted if trained and spent]
    whole = sum(spent for _, spent, _ in known)
    if not whole:
        return ""
    tokens = sum((number(r, "tokens_per_second") or 0.0) * spent for _, spent, r in known) / whole
    examples = sum(trained for trained, _, _ in known) / whole
    return f"{tokens:,.0f} tokens a second" if tokens else f"{examples:,.0f} examples a second"


def shares(parts: Sequence[float]) -> list[int]:
    """Return what parts are of their sum, in whole per cents that add up to 100 (largest remainders)."""
    exact = [100 * part / sum(parts) for part in parts]
    most = sorted(range(len(parts)), key=lambda nth: math.floor(exact[nth]) - exact[nth])
    up = most[: 100 - sum(map(math.floor, exact))]
    return [math.floor(of) + (nth in up) for nth, of in enumerate(exact)]


def points(change: float, metric: MetricInfo) -> str:
    """Write a difference of a metric's values: of per cents in points."""
    return f"{_change(change, metric)} {POINTS}" if metric.share else _change(change, metric)


def between(low: float, high: float, metric: MetricInfo) -> str:
    """Write where a difference of a metric's values lies: `−0.31 to 2.05 points`."""
    return f"{_change(low, metric)} to {points(high, metric)}"


def reach(ends: Sequence[float], metric: MetricInfo) -> str:
    """Write the ends of an interval of a metric as its values: `59.60% to 98.21%`."""
    return " to ".join(map(metric.write, ends))


def _change(change: float, metric: MetricInfo) -> str:
    written = f"{100 * change:.2f}" if metric.share else metric.write(change)
    return written.replace("-", "−") if change < 0 else written


def probability(p: float) -> str:
    """Write a p as papers do."""
    return f"{p:.3f}" if p >= LEAST else f"< {LEAST}"


def spans(rounds: Sequence[int]) -> str:
    """Write rounds as `17-24, 31`; of very many the first."""
    found: list[list[int]] = []
    for at in rounds:
        if found and at == found[-1][1] + 1:
            found[-1][1] = at
        else:
            found.append([at, at])
    said = [str(one) if one == other else f"{one}-{other}" for one, other in found[:MOST_SPANS]]
    return ", ".join(said) + (", ..." if len(found) > MOST_SPANS else "")


def gaps(missing: Sequence[tuple[int, int]]) -> list[str]:
    """Say which rounds are missing, given as (first, last), if any."""
    if not missing:
        return []
    which = [f"{first} to {last}" if last > first else str(first) for first, last in missing[:MOST_GAPS]]
    which += ["..."] if len(missing) > MOST_GAPS else []
    return [f"rounds missing in metrics.jsonl: {', '.join(which)}; sums over the rounds are not shown"]


SPECIAL = {one: rf"\{one}" for one in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "−": "$-$", "–": "--",
}  # fmt: skip
"""Characters that mean something to LaTeX."""


def rounds_told(each: Sequence[float]) -> str:
    """Return rounds as LaTeX prints them: the mean ± sample deviation of several."""
    if len(each) < 2:
        return f"{each[0]:.0f}" if each else "--"
    return rf"${fmean(each):.0f} \pm {stdev(each):.0f}$"


def latex_spread(values: Sequence[float], metric: MetricInfo, bold: bool = False) -> str:
    """Return values of a metric as LaTeX prints them: mean ± sample deviation."""
    if not values:
        return "--"
    told = metric.write_spread(fmean(values), stdev(values) if len(values) > 1 else None)
    told = told.rstrip("%").replace("±", r"\pm")
    return rf"$\mathbf{{{told}}}$" if bold else f"${told}$"


def escaped(text: str) -> str:
    """Return a text as LaTeX prints it."""
    return "".join(SPECIAL.get(one, one) for one in text)


TABLE = r"""% {}
% Needs \usepackage{{booktabs}}.
\begin{{tabular}}{{l{}}}
\toprule
{}
\midrule
{}
\bottomrule
\end{{tabular}}
"""


def booktabs(heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]) -> str:
    """Return a table of cells that are LaTeX already; what is `said` of it stands above as a comment."""
    head, *lines = (" & ".join(row) + r" \\" for row in (heads, *rows))
    return TABLE.format(one_line(" ".join(said)), "r" * (len(heads) - 1), head, "\n".join(lines))


def as_latex(
    heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str], words: Sequence[str] = ()
) -> str:
    """Return a table of texts as LaTeX prints it (booktabs); a name that begins with blanks is indented, and
    one of the `words` is no number of its column."""
    head, *cells = (
        [rf"\multicolumn{{1}}{{c}}{{{one}}}" if one in words else _cell(one) for one in row]
        for row in (heads, *rows)
    )
    return booktabs(head, cells, [one if one.endswith(".") else f"{one}." for one in said])


def _cell(text: str) -> str:
    """Return a cell as LaTeX prints it: a number with a minus sign or a power of ten as mathematics."""
    number = re.fullmatch(r"(-?)(\d[\d.,]*)(?:e([+-]\d+))?", text)
    if number and (number[1] or number[3]):
        power = rf" \cdot 10^{{{int(number[3])}}}" if number[3] else ""
        return f"${number[1]}{number[2]}{power}$"
    return r"\quad " * text.startswith("  ") + escaped(text.strip())


def csv_table(heads: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, figures in full; None, and what a row lacks, is an empty cell."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        told = (str(of) if isinstance(of := row.get(head), Path) else of for head in heads)
        writer.writerow("" if value is None else shown(value) for value in told)
    return content.getvalue()


def written(record: Mapping[str, Any], name: str, write: Callable[[float], str]) -> str:
    """Write a figure of a record; "" of none."""
    value = number(record, name)
    return "" if value is None else write(value)


def shown(value: Any) -> str:
    """Return a setting as a person writes it."""
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them; of many the first, and how many more."""
    shown = [*names[:MOST_NAMED]]
    shown += [f"{len(names) - MOST_NAMED:,} more"] if len(names) > MOST_NAMED else []
    return " and ".join(shown) if len(shown) < 3 else f"{'; '.join(shown[:-1])}; and {shown[-1]}"


def beyond(worst: np.ndarray, end: float, metric: MetricInfo) -> str:
    """Say that colours end before the worst scores, and how bad these are; "" where colours reach them."""
    last = float(np.nanmin(worst) if metric.higher_is_better else np.nanmax(worst))
    worse = worst < end if metric.higher_is_better else worst > end
    if not (many := int(worse.sum())):
        return ""
    cells = "1 cell is" if many == 1 else f"{many:,} cells are"
    return f" Colours end at {metric.write(end)}: {cells} worse, up to {metric.write(last)}."
