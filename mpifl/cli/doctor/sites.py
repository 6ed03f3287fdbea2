"""Findings on the ranks' site folders, and on parties that can see each other's data."""

from __future__ import annotations

from collections.abc import Iterator

from mpifl.cli.doctor.alike_ranks import Conditions, grouped, named
from mpifl.cli.doctor.condition import Condition, Plan
from mpifl.cli.doctor.findings import Finding
from mpifl.cli.doctor.site_check import SiteCondition
from mpifl.wings.site import VARIABLE

WHAT = "site folder"


def of_sites(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    """Yield findings on the workers' MPIFL_SITE folders, and on parties that can see each other's data."""
    workers = conditions[1:] or conditions
    sites = {c.rank: c.site for c in workers if c.site}
    if not sites and not plan.needs_site:
        yield Finding(WHAT, "note", f"none named; [privacy] and [security] need {VARIABLE}")
        return
    yield from _missing([c.rank for c in workers if not c.site], plan.needs_site)
    yield from _problems(sites)
    yield from _shared([c for c in workers if c.site])
    for (user, host), alike in grouped(conditions, lambda c: (c.user, c.host)).items():
        if len(alike) > 1:
            found = f"{_ranks(alike)} run as {user} on {host}: not hidden from each other"
            yield Finding("same user", "note", found)


def _missing(without: list[int], needed: bool) -> Iterator[Finding]:
    if without:
        to_do = f"set it, such as {VARIABLE}=$HOME/mpifl-site"
        yield Finding(
            WHAT, "bad" if needed else "warning", f"{VARIABLE} is not set on {named(without)}", to_do
        )


def _problems(sites: dict[int, SiteCondition]) -> Iterator[Finding]:
    """Yield the problems in folders, once for all ranks that find the same."""
    seen = {(state, line): [rank for rank, site in sites.items() if (state, line) in site.problems]
            for site in sites.values() for state, line in site.problems}  # fmt: skip
    for (state, line), ranks in seen.items():
        yield Finding(WHAT, state, f"{named(ranks)}: {line}")
    if whole := [rank for rank, site in sites.items() if not site.problems]:
        yield Finding(WHAT, "ok", f"what lies there is whole on {named(whole)}")


def _shared(workers: Conditions) -> Iterator[Finding]:
    for alike in grouped(workers, _mark).values():
        folders = sorted({c.site.folder for c in alike if c.site})
        if len(folders) > 1:
            found = f"{_ranks(alike)} have one key in {' and '.join(folders)}: the same noise, two ledgers"
            yield Finding(WHAT, "warning", found, "give each site a folder of its own, or all of them one")
        elif len(alike) > 1:
            yield Finding(WHAT, "note", f"{_ranks(alike)} share {folders[0]}: they are one site")


def _mark(condition: Condition) -> str:
    site = condition.site
    return (site.mark or f"{condition.host} {site.folder}") if site else ""


def _ranks(alike: Conditions) -> str:
    return named([c.rank for c in alike])
