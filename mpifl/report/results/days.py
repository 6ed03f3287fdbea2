"""Dates of a table, which its sums have as days since one."""

from __future__ import annotations

from datetime import date, timedelta


def written(number: float, since: str = "") -> str:
    """Write a number; of a column of dates, the date so many days `since` a day such as 2020-01-01."""
    if since:
        try:
            return str(date.fromisoformat(since) + timedelta(days=round(number)))
        except (ValueError, OverflowError):  # no such day
            return f"{number:,.6g} days since {since}"
    return f"{number:,.6g}"
