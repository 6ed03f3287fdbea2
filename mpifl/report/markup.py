"""What pages are made of: the document, what folds, tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mpifl.report.style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, body: str, every: float | None = None) -> str:
    """Return a whole page; one of a run that goes on loads itself anew after so many seconds."""
    anew = "" if every is None else f'<meta http-equiv="refresh" content="{every:g}">'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">{anew}'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


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
