"""Whether the ranks can train silos together, as the job wants it."""

from __future__ import annotations

from collections.abc import Iterator

from mpifl.cli.doctor.alike_ranks import Conditions, named
from mpifl.cli.doctor.condition import Plan
from mpifl.cli.doctor.findings import Finding
from mpifl.wings.crews import why_no_crews

WHAT = "crews"


def of_crews(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    """Say which crews there would be, if any, and what they are for."""
    if plan.crew == 1:
        return
    size = len(conditions)
    if size == 1:
        yield Finding(WHAT, "note", f"one rank alone takes the parts of all {plan.crew} ranks of a silo")
        return
    if why := why_no_crews(size, plan.crew):
        yield Finding(WHAT, "bad", why)
        return
    crews = [conditions[first : first + plan.crew] for first in range(1, size, plan.crew)]
    for crew in crews:
        if len({c.node for c in crew}) > 1:
            found = f"{named([c.rank for c in crew])} would be a crew, and share no node's memory"
            yield Finding(WHAT, "bad", found, "have the launcher place them on one node")
            return
    found = f"{len(crews)} of {plan.crew} ranks; where a part takes less than about 1 ms, the waits win"
    yield Finding(WHAT, "ok", found)
