"""What pages are made of: the document, what folds, tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mpifl.common import InputError, write_atomic
from mpifl.report.pages.page_style import STYLE

SORT = """
for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, nth) => row.cells[nth].dataset.value ?? row.cells[nth].textContent;
  const order = (nth, up) => {
    heads.forEach((head, at) => head.ariaSort = at === nth ? (up ? "ascending" : "descending") : "none");
    const compared = (a, b) => {
      const [one, other] = [value(a, nth), value(b, nth)];
      if (one === "" || other === "") return (one === "") - (other === "");
      const words = isNaN(one) || isNaN(other);
      const by = words ? one.localeCompare(other, undefined, {numeric: true}) : one - other;
      return up ? by : -by;
    };
    body.append(...[...body.rows].sort(compared));
  };
  heads.forEach((head, nth) => {
    head.tabIndex = 0;
    head.onclick = () => order(nth, head.ariaSort !== "ascending");
    head.onkeydown = (event) => { if (event.key === "Enter") head.onclick(); };
  });
}
"""
"""Sorts a table by the column whose heading is chosen; the only program of a page."""
ALLOWED = base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{ALLOWED}'"


def check_page(option: str, path: Path) -> None:
    """See that the file that an option names may be a page.

    Raises:
        InputError: its name does not end so.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} {path}: ends in '{path.suffix}'; it must be .html")


def write_page(option: str, path: Path, content: str) -> None:
    """Write a page to the file that an option names, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    try:
        write_atomic(path, content.encode())
    except OSError as error:
        raise InputError(
            f"{option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def document(title: str, body: str, every: float | None = None) -> str:
    """Return a whole page; one of a run that goes on loads itself anew after so many seconds."""
    anew = "" if every is None else f'<meta http-equiv="refresh" content="{every:g}">'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">{anew}'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main>"
        f"{f'<script>{SORT}</script>' if SORTED in body else ''}</body></html>\n"
    )


SORTED = '<table class="sort">'


@dataclass(frozen=True)
class Cell:
    """A cell of a table that can be sorted: its text, what it is sorted by, its look, where it leads."""

    text: str
    value: float | str | None = None
    look: str = ""
    link: str = ""

    def markup(self, kind: str) -> str:
        """Return it as an element."""
        by = "" if self.value is None else f' data-value="{escape(str(self.value))}"'
        look = f' class="{self.look}"' if self.look else ""
        text = escape(self.text)
        inner = f'<a href="{escape(self.link)}">{text}</a>' if self.link else text
        return f"<{kind}{look}{by}>{inner}</{kind}>"


def sortable(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table whose headings sort it; without programs it stays as it is."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{row[0].markup('th')}{''.join(cell.markup('td') for cell in row[1:])}</tr>" for row in rows
    )
    return f'<div class="scroll">{SORTED}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def loads_itself(every: float) -> str:
    """Say that a page does."""
    return f"The run is going on; this page loads itself anew every {every:g} seconds until it ends."


def folded(title: str, body: str, opened: bool = False) -> str:
    """Return a part of the page that folds."""
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{body}</details>"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], text: int | None = None) -> str:
    """Return a table; the column `text`, or one that is called reason, holds sentences."""
    text = headings.index("reason") if "reason" in headings else text

    def cell(nth: int, content: str, kind: str = "td") -> str:
        return f"<{kind}{' class=text' if nth == text else ''}>{escape(content)}</{kind}>"

    head = "".join(cell(nth, heading, "th") for nth, heading in enumerate(headings))
    body = "".join(
        f"<tr>{cell(0, row[0], 'th')}{''.join(cell(nth, c) for nth, c in enumerate(row[1:], 1))}</tr>"
        for row in rows
    )
    thead = f"<thead><tr>{head}</tr></thead>" if headings else ""
    return f'<div class="scroll"><table>{thead}<tbody>{body}</tbody></table></div>'
