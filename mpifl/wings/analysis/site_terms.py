"""What a site allows a table of its rows to tell: `stats.toml` in its folder."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from mpifl.common import InputError, hint_of, tables
from mpifl.wings.site import KEY_FILE, VARIABLE

FILE = "stats.toml"


class SiteTerms(BaseModel):
    """The terms of a site.

    Attributes:
        least: The least number of rows that a count in a result is of.
        extremes: Whether the smallest and the largest number of a column may be told.
        by_silo: Whether the figures of single silos may be told.
        times: Whether sums over rows may be told to the server by the time of events.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    least: PositiveInt = 1
    extremes: bool = False
    by_silo: bool = True
    times: bool = False


def check_terms(
    least: int | None = None, *, extremes: bool = False, by_silo: bool = False, times: bool = False
) -> None:
    """Check the keys of a job against the terms of this rank's site, if it has a folder with an identity or
    with terms.

    Args:
        least: The least number of rows that a count is of; None where no counts are told.

    Raises:
        InputError: the job tells more than the site allows, or the file is wrong.
    """
    named = os.environ.get(VARIABLE)
    folder = Path(named or "").expanduser()
    path = folder / FILE
    if not named or not any(os.path.lexists(one) for one in (path, folder / KEY_FILE)):
        return
    terms = _read(path) if os.path.lexists(path) else SiteTerms()
    if least is not None and least < terms.least:
        what = f"is less than least = {terms.least} of this site's {path}"
        raise InputError(f"[algorithm] least = {least}: {what}; use {terms.least} or more")
    for said, key, asked in (
        ("extremes = true", "extremes", extremes),
        ("by_silo = true", "by_silo", by_silo),
        ("strata = 'none'", "times", times),
    ):
        if asked and not getattr(terms, key):
            what = f"needs {key} = true in this site's {path}"
            raise InputError(f"[algorithm] {said}: {what}; leave it out, or ask the site")


def _read(path: Path) -> SiteTerms:
    try:
        return SiteTerms.model_validate(tables(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        takes = "it takes least (a whole number), extremes, by_silo and times (true or false)"
        if first["type"] == "extra_forbidden":
            raise InputError(f"{path}: has no key '{key}'; {hint_of(SiteTerms, first)}{takes}") from None
        raise InputError(f"{path}: {key} = {str(first['input'])[:80]!r}: {first['msg']}; {takes}") from None
    except (OSError, ValueError) as error:
        what = str(getattr(error, "strerror", None) or error)[:200]
        raise InputError(f"{path}: cannot be read ({what}); correct it") from None
