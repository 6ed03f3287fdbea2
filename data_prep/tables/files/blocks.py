"""Rows of a CSV table that are read at once: where they end, and whether Arrow reads them as Python does."""

from __future__ import annotations

import csv
from typing import NamedTuple

import numpy as np

from data_prep.tables.files import lines as limits
from data_prep.tables.files.lines import Lines

FEED, RETURN, QUOTE = b'\n\r"'
LOOK = 1 << 21
"""Bytes that are looked through for rows at first."""
BLANKS = tuple(bytes([code]) for code in b" \t\v\f\x1c\x1d\x1e\x1f")
"""The blanks of ASCII that end no line."""


class RowBlock(NamedTuple):
    """Whole rows of a table: how many there are, the bytes of the longest, and the lines they stand in."""

    content: bytes
    rows: int
    longest: int
    lines: int

    @property
    def blank(self) -> bool:
        """Tell whether there may be blanks in it."""
        return not self.content.isascii() or any(one in self.content for one in BLANKS)


def next_block(text: Lines, delimiter: int) -> RowBlock | None:
    """Return the next piece of a table, which is not taken yet; None if Python alone tells what it is.

    A piece has as many rows as Python's reader takes for one, so that sums over pieces have the same bits.
    """
    look = LOOK
    while True:
        left = np.frombuffer(text.held, np.uint8)[text.start :]
        view, ended = left[:look], text.ended and look >= len(left)
        feeds, ends, regular = _row_ends(view, delimiter, ended)
        wide = ends[: limits.ROWS] >= limits.MOST_PIECE
        rows = int(np.argmax(wide)) + 1 if wide.any() else min(len(ends), limits.ROWS)
        if rows == limits.ROWS or wide.any() or ended:
            break
        tail = len(view) - (int(ends[-1]) if rows else 0)
        if regular < len(view) or tail >= limits.MOST_ROW:
            return None
        if look < len(left):
            look *= 2
        else:
            text.more()
    size = int(ends[rows - 1]) + 1 if rows else 0
    longest = int(np.diff(ends[:rows], prepend=-1).max(initial=0))
    if not rows or regular < size or longest >= limits.MOST_ROW:
        return None
    content = text.held[text.start : text.start + size]
    if not _is_plain(content, wide=bool(wide.any())) or not _has_short_fields(
        view[:size], longest, delimiter
    ):
        return None
    return RowBlock(content, rows, longest, int(np.searchsorted(feeds, size)))


def _row_ends(view: np.ndarray, delimiter: int, ended: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Return all line feeds, int64 [k], the last byte of each row that is not blank, int64 [m], and how far
    marks are regular."""
    feeds = ends = np.flatnonzero(view == FEED)
    regular = len(view)
    if ended and len(view) and view[-1] != FEED:
        ends = np.append(ends, len(view) - 1)
    if len(quotes := np.flatnonzero(view == QUOTE)):
        ends = ends[np.searchsorted(quotes, ends, side="right") % 2 == 0]
        regular = _regular(view, quotes, delimiter)
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1] + 1])
    blank = (view[starts] == FEED) | ((view[starts] == RETURN) & (ends - starts == 1))
    return feeds, ends[~blank], regular


def _regular(view: np.ndarray, quotes: np.ndarray, delimiter: int) -> int:
    """Return where the first quotation mark stands that neither opens nor ends a whole field nor is doubled.

    Each second one of the others begins a field, or follows one at once; the next ends it, or is followed.
    """
    opens, closes = quotes[::2], quotes[1::2]
    before, after = view[np.maximum(opens - 1, 0)], view[np.minimum(closes + 1, len(view) - 1)]
    begun = (opens == 0) | np.isin(before, [delimiter, FEED, QUOTE])
    done = (closes + 1 == len(view)) | np.isin(after, [delimiter, FEED, RETURN, QUOTE])
    return min(int(opens[~begun].min(initial=len(view))), int(closes[~done].min(initial=len(view))))


def _is_plain(content: bytes, wide: bool) -> bool:
    """Tell whether lines end in a common way, and all is text; characters of a wide piece must be bytes."""
    if b"\0" in content or (b"\r" in content and content.count(b"\r") != content.count(b"\r\n")):
        return False
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return not wide


def _has_short_fields(view: np.ndarray, longest: int, delimiter: int) -> bool:
    """Tell whether no field has more characters than Python's reader takes."""
    if longest <= (most := csv.field_size_limit()):
        return True
    ends = np.flatnonzero((view == delimiter) | (view == FEED))
    return bool(np.diff(ends, prepend=-1, append=len(view)).max() <= most)
