"""Parts of a page that several sections have: what folds, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


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
