"""Dates of a table: as ISO 8601 writes them, or in the order that a spec states."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from datetime import date

import numpy as np

CLOCK = r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d{1,9})?))?"
ZONE = r"(Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)"
ISO = "%Y-%m-%d"
PARTS = {"%Y": r"(?P<year>\d{4})", "%m": r"(?P<month>\d{1,2})", "%d": r"(?P<day>\d{1,2})"}
"""The parts of a day, as `strptime` calls them."""
FORM = re.compile(r"(%[Ymd])([./ -]?)(%[Ymd])\2(%[Ymd])")
"""A way to write a day: each part once, with one mark between."""
LIKELY = (
    *("%d.%m.%Y", "%m.%d.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%Y/%m/%d", "%Y.%m.%d"),
)
"""Ways other than that of ISO 8601 by which values are taken for dates where no spec states one."""


def is_form(form: str) -> bool:
    """Tell whether a text says how a day is written: year, month and day once each, with one mark between."""
    return (found := FORM.fullmatch(form)) is not None and {found[1], found[3], found[4]} == {*PARTS}


def no_form(form: str) -> str:
    """Say that a text does not say how a day is written."""
    if "%y" in form and is_form(form.replace("%y", "%Y")):
        return f"'{form}' has a year of two digits, whose century nobody knows; write years with four, for %Y"
    return f"'{form}' is no order of a date; it has %d, %m and %Y once each, as '%d.%m.%Y'"


SHORT = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2}(?:[T ].*)?", re.ASCII)
"""A day whose year has two digits."""
CENTURY = "a date whose year has two digits, and nobody knows its century; write years with four"


def unlike(text: str, form: str | None) -> str:
    """Say why a text is no date of a form, with what would do."""
    if _pattern(form or ISO).fullmatch(text):
        return "and there is no such day; correct it, or list it in 'missing' of the spec"
    if SHORT.fullmatch(text):
        return CENTURY
    known = f"{example(form)} or {example(form)} 23:59"
    return f"not a date as {known}; correct it, or list it in 'missing' of the spec"


def example(form: str | None) -> str:
    """Return the last day of 2000 in a form; in that of ISO 8601 where none is stated."""
    return date(2000, 12, 31).strftime(form or ISO)


@functools.lru_cache(maxsize=64)
def _pattern(form: str) -> re.Pattern[str]:
    """Return what a date of a form looks like, perhaps with a time of day, and this with its zone."""
    one, mark, *others = FORM.fullmatch(form).groups()  # type: ignore[union-attr]
    day = re.escape(mark).join(PARTS[part] for part in (one, *others))
    whole = day if mark and form != ISO else day.replace("{1,2}", "{2}")
    return re.compile(rf"{whole}(?:[T ]{CLOCK}{ZONE}?)?", re.ASCII)


def days_of(text: str, since: date, form: str | None = None) -> float:
    """Return the days from a date to that of a text, its time of day as a part of one; NaN if it is none.

    A time with its zone is that of UTC.

    Args:
        text: A date, perhaps with its time of day.
        since: The day that is 0.
        form: How the day is written, one that `is_form`; as ISO 8601 has it where it is not stated.
    """
    if not (found := _pattern(form or ISO).fullmatch(text)):
        return np.nan
    try:
        day = date(*(int(found[part]) for part in ("year", "month", "day")))
    except ValueError:
        return np.nan
    *clock, zone = found.groups()[3:]
    hours, minutes, seconds = (float(part or 0) for part in clock)
    return (day - since).days + (hours * 3600 + minutes * 60 + seconds - _ahead(zone)) / 86400


def forms_of(texts: Iterable[str], among: Iterable[str] = (ISO, *LIKELY)) -> tuple[str, ...]:
    """Return by which forms all texts are dates."""
    found = tuple(among)
    for text in texts:
        if not (found := tuple(form for form in found if not np.isnan(days_of(text, date.min, form)))):
            return ()
    return found


def first_unformed(texts: Sequence[str], among: tuple[str, ...]) -> int:
    """Return the place of the first text that is a date by none of the forms that fit all before it.

    Args:
        texts: Texts that are not all dates by one form.
        among: The forms that are looked for.
    """
    for at, text in enumerate(texts):
        if not (among := forms_of([text], among)):
            return at
    raise AssertionError("all are dates by one form")


def likeliest(forms: Sequence[str]) -> tuple[str, ...]:
    """Return the forms that values may have; with points the day stands first where it can."""
    return tuple(form for form in forms if form != "%m.%d.%Y" or "%d.%m.%Y" not in forms)


def is_zoned(text: str, form: str | None = None) -> bool:
    """Tell whether a text is a time of another zone than UTC."""
    found = _pattern(form or ISO).fullmatch(text)
    return found is not None and _ahead(found.groups()[-1]) != 0


def _ahead(zone: str | None) -> int:
    """Return the seconds by which a zone, as Z or +01:00, is ahead of UTC."""
    if zone in (None, "Z"):
        return 0
    return int(f"{zone[0]}1") * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
