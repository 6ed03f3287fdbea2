"""Which silos rounds left out, and why; and which are suspected of wrong updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mpifl.common import Names
from mpifl.report.judging import suspects
from mpifl.report.runs import Summary

LATE = "later than [clock] deadline"


def missed(records: Sequence[Mapping[str, object]]) -> list[tuple[str, list[int], str]]:
    """Return the silos that were left out, those of most rounds first: which rounds, and the last reason."""
    rounds: dict[str, list[int]] = defaultdict(list)
    reasons: dict[str, str] = {}
    for record in records:
        faults, late = record.get("faults"), record.get("late")
        out = dict.fromkeys(late if isinstance(late, list) else (), LATE)
        for silo, reason in (out | (faults if isinstance(faults, dict) else {})).items():
            rounds[silo].append(int(str(record["round"])))
            reasons[silo] = str(reason)
    return [
        (silo, rounds[silo], reasons[silo]) for silo in sorted(rounds, key=lambda silo: -len(rounds[silo]))
    ]


def together(records: Sequence[Mapping[str, object]]) -> list[tuple[list[str], list[int], str]]:
    """Return the silos that were left out, those of the same rounds and reason as one."""
    found: dict[tuple[str, str], tuple[list[str], list[int], str]] = {}
    for silo, at, reason in missed(records):
        found.setdefault((str(at), reason), ([], at, reason))[0].append(silo)
    return list(found.values())


def suspected(summary: Summary, names: Names) -> list[str]:
    """Return the names of the silos that are suspected after the last round."""
    rule = summary.job.get("aggregation", {}).get("rule")
    return [names[silo] for silo in suspects(summary.records, rule)]
