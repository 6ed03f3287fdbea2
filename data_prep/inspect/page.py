"""A page of one shard folder, or of two side by side: one HTML file, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.inspect import advice, figures
from data_prep.inspect.overview import chosen_rows, compared, grouped, totals
from data_prep.inspect.style import STYLE
from data_prep.inspect.summary import Measure, Summary
from mpifl.common import InputError, write_atomic
from mpifl.data.shards import FederationSpec

MOST_ROWS = 200
MOST_TARGETS = 24
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Most(NamedTuple):
    """What has the full height, or the darkest colour, on the whole page."""

    examples: int
    share: float


class Part(NamedTuple):
    """One folder on a page: its name, what was cut and how, what is held, how much silos differ, figures."""

    name: str
    title: str
    held: str
    measures: Sequence[Measure]
    drawn: str


Differences = Sequence[tuple[str, str, str, str]]
"""What, of the first folder, of the second, by how much they differ."""


def write_page(text: str, path: Path) -> None:
    """Write a page; raise InputError for another ending than .html,
    or a folder that cannot be written to."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--page: {path} ends in '{path.suffix}'; it must be .html")
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise InputError(f"--page: {path} cannot be written ({error.strerror}); name another") from None


def page(summaries: Sequence[Summary]) -> str:
    """Return the page of one folder or two."""
    most = Most(max(int(one.sizes.max()) for one in summaries), max(one.darkest for one in summaries))
    parts = [
        Part(one.spec.name, one.title, _held(one.spec), one.measures, _folder(one, most)) for one in summaries
    ]
    return document(parts, compared(*summaries) if len(summaries) == 2 else [])


def _held(spec: FederationSpec) -> str:
    """Say what a folder holds, and of how many groups."""
    return ". ".join(filter(None, (totals(spec), grouped(spec))))


def document(parts: Sequence[Part], differences: Differences) -> str:
    """Return a page of one part, or of two and their differences."""
    body = _one(parts[0]) if len(parts) == 1 else _two(parts[0], parts[1], differences)
    title = escape(" and ".join(part.name for part in parts))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _one(part: Part) -> str:
    return f"<main>{_head(part)}{_cards(part.measures)}{part.drawn}</main>"


def _two(first: Part, second: Part, differences: Differences) -> str:
    columns = "".join(
        f"<section>{_head(part, letter)}{part.drawn}</section>"
        for letter, part in (("A", first), ("B", second))
    )
    title = f"<h1>{escape(first.name)} <small>and</small> {escape(second.name)}</h1>"
    return f'<main class="wide">{title}{_comparison(differences)}<div class="two">{columns}</div></main>'


def _head(part: Part, letter: str = "") -> str:
    name = escape(part.name)
    title = f"<h2><b>{letter}</b> {name}</h2>" if letter else f"<h1>{name}</h1>"
    return f'<header>{title}<p>{escape(part.title)}</p><p class="soft">{escape(part.held)}</p></header>'


def _cards(measures: Sequence[Measure]) -> str:
    return '<div class="cards">' + "".join(map(_card, measures)) + "</div>"


def _card(measure: Measure) -> str:
    share = min(max(measure.value, 0) / measure.most, 1)
    value = f'<p class="value">{measure.value:.3f} <small>{measure.unit}</small></p>'
    gauge = f'<div class="gauge"><i style="width:{share:.1%}"></i></div>'
    return (
        f'<div class="card"><h3>{measure.name}</h3>{value}{gauge}<p>{measure.text}; {measure.ends}</p></div>'
    )


def _comparison(differences: Differences) -> str:
    rows = "".join(
        f"<tr><th>{escape(name)}</th>" + "".join(f"<td>{escape(value)}</td>" for value in values) + "</tr>"
        for name, *values in differences
    )
    heading = "<tr><th></th><th>A</th><th>B</th><th>B − A</th></tr>"
    return (
        '<div class="scroll"><table '
        f'class="compared"><thead>{heading}</thead><tbody>{rows}</tbody></table></div>'
    )


PLAIN = ("target", "targets")
"""Names of targets that have none of their own."""


def _folder(summary: Summary, most: Most) -> str:
    """Return the figures of one folder and the table of its silos."""
    found = [("Training examples", figures.sizes(summary.sizes, most.examples))]
    if summary.labelled:
        found.append(("Labels", figures.labels(summary, most.share) + figures.legend(most.share)))
    for name, of_silo in summary.drawn_targets().items():
        title = "Targets" if name in PLAIN else f"Target {escape(name)}"
        found.append((f"{title}: mean ± deviation", figures.moments(of_silo, escape(name))))
    if summary.moments:
        drawing = figures.moments(summary.moments, "features")
        found.append(("Features: mean ± deviation, as a model sees them", drawing))
        if figures.is_table(summary):
            found.append(("Features, one by one", figures.shifts(summary)))
        if figures.is_image(summary):
            found.append(("Mean image of a silo", figures.faces(summary)))
    return advice.section(summary) + drawn(found) + _silos(summary, most)


def drawn(found: Sequence[tuple[str, str]]) -> str:
    """Return figures below their titles."""
    return "".join(f'<section class="figure"><h3>{title}</h3>{figure}</section>' for title, figure in found)


def silo_table(heading: str, rows: Sequence[str], left_out: int) -> str:
    """Return the table of the silos, shut where it is long."""
    note = f'<p class="soft">{left_out:,} silos in the middle are left out.</p>' if left_out else ""
    table = f"<table><thead><tr>{heading}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    opened = " open" if len(rows) <= 30 else ""
    return f'<details{opened}><summary>Every silo</summary><div class="scroll">{table}</div>{note}</details>'


def sized(number: int, most: int) -> str:
    """Return a cell with a number on a bar."""
    length = 100 * number / most
    return f'<td class="size"><i style="width:{length:.1f}%"></i><span>{number:,}</span></td>'


def _silos(summary: Summary, most: Most) -> str:
    rows = chosen_rows(len(summary.sizes), everything=False, most=MOST_ROWS)
    moments = "<th>mean</th><th>deviation</th>" if summary.moments else ""
    labels = '<th class="left">labels</th><th>seen</th><th>divergence</th>' if summary.labelled else ""
    targets = "".join(f"<th>{escape(name)}</th>" for name in summary.target_names(MOST_TARGETS))
    groups = "<th>groups</th>" * any(entry.groups for entry in summary.spec.silos)
    heading = f"<th>silo</th><th>examples</th>{groups}{labels}{moments}{targets}"
    body = [_silo(summary, silo, most) for silo in rows]
    return silo_table(heading, body, len(summary.sizes) - len(rows))


def _silo(summary: Summary, silo: int, most: Most) -> str:
    size, of_label = int(summary.sizes[silo]), summary.counts[silo]
    cells = [f"<th>{escape(summary.spec.silos[silo].name)}</th>", sized(size, most.examples)]
    if any(entry.groups for entry in summary.spec.silos):
        owned = summary.spec.silos[silo].groups
        cells.append(f"<td>{sum(owned.values()):,}</td>" if owned else "<td></td>")
    if summary.labelled:
        cells += [
            f"<td>{figures.strip(summary.shares[silo], most.share)}</td>",
            f"<td>{np.count_nonzero(of_label)}/{len(of_label)}</td>",
            f"<td>{summary.divergences[silo]:.3f}</td>",
        ]
    if summary.moments:
        cells += [f"<td>{figure:.4g}</td>" for figure in summary.moments[silo].overall()]
    cells += [f"<td>{figure}</td>" for figure in summary.target_figures(silo, MOST_TARGETS)]
    return "<tr>" + "".join(cells) + "</tr>"
