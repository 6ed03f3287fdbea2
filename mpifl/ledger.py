"""What a round costs: bytes, seconds, and who was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mpifl.messages import DTYPES, Header, Report, Request, Verdict

RANKS_SHOWN = 64
"""Workers whose seconds are kept one by one."""


@dataclass
class Ledger:
    """What exchanges have cost since it was last emptied; bytes are those between the server and the silos."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_of_silo: Counter[int] = field(default_factory=Counter)
    """Of both, what each silo received and sent."""
    seconds_training: float = 0.0
    """Of the slowest rank."""
    seconds_waiting: float = 0.0
    """Mean over the workers of how long they waited for the slowest."""
    seconds_communication: float = 0.0
    rank_seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    """Of each worker, for at most `RANKS_SHOWN` of them: how long it trained and waited for the slowest."""
    faults: dict[int, str] = field(default_factory=dict)

    def enter(self, request: Request, verdict: Verdict, reports: Mapping[int, Report], workers: Sequence[int]) -> float:
        """Add one exchange of work; return how long the slowest worker took."""
        headers = [header for report in reports.values() for header in report.headers]
        down = len(request.encode()) + sum(v.length * DTYPES[v.dtype].itemsize for v in request.vectors)
        accepted = set(verdict.accepted)
        self.bytes_sent += len(request.cohort) * down
        up = {header.silo: len(header.encode()) for header in headers}
        up |= {header.silo: up[header.silo] + _size(header) for header in headers if header.silo in accepted}
        self.bytes_received += sum(up.values())
        self.bytes_of_silo.update({silo: down + up.get(silo, 0) for silo in request.cohort})
        self.faults.update({header.silo: header.fault for header in headers if header.fault is not None})
        works = [reports[rank].seconds for rank in workers]
        for rank, seconds in zip(workers[:RANKS_SHOWN], works, strict=False):
            spent = self.rank_seconds.setdefault(rank, {"training": 0.0, "waiting": 0.0})
            spent["training"] += seconds
            spent["waiting"] += max(works) - seconds
        self.seconds_training += max(works)
        self.seconds_waiting += max(works) - sum(works) / len(works)
        return max(works)


def _size(header: Header) -> int:
    """Return how many bytes a silo's vectors are on a wire: as float32, or as a codec wrote them."""
    return sum(4 * folded.length if folded.bytes is None else folded.bytes for folded in header.vectors.values())
