"""What exchanges cost: bytes between the server and the silos, and where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mpifl.aggregation import updates_of
from mpifl.wire import DTYPES, Header, Reply, Request

RANKS_SHOWN = 64
"""Workers whose seconds are kept one by one."""


@dataclass
class Ledger:
    """What exchanges have cost since it was last emptied;
    bytes are those between the server and the silos."""

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
    """Why silos were left out."""
    lost: list[str] = field(default_factory=list)
    """Why attempts at the round came to nothing."""

    def lose(self, why: str) -> None:
        """Add an attempt that came to nothing: what it cost was spent,
        whom it missed may be there next time."""
        self.lost.append(why)
        self.faults.clear()

    def add(
        self,
        request: Request,
        headers: Sequence[Reply],
        accepted: Collection[int],
        seconds: Mapping[int, float],
        all_in_all: float,
    ) -> None:
        """Add an exchange.

        Args:
            request: What was asked.
            headers: What each silo answered.
            accepted: The silos whose updates count, and travelled.
            seconds: How long each worker was at its silos' work.
            all_in_all: Seconds from the request to the mean.
        """
        # What differs with the ranks, or with a stop and its resumption, is not counted.
        counted_alike = request.model_copy(update={"serial": 0, "direct": False, "assignment": {}})
        down = len(counted_alike.encode()) + sum(v.length * DTYPES[v.dtype].itemsize for v in request.vectors)
        counted = set(accepted)
        self.bytes_sent += len(request.cohort) * down
        up = {header.silo: len(header.encode()) for header in headers}
        up |= {
            header.silo: up[header.silo] + _size(header)
            for header in updates_of(headers)
            if header.silo in counted
        }
        self.bytes_received += sum(up.values())
        self.bytes_of_silo.update({silo: down + up.get(silo, 0) for silo in request.cohort})
        self.faults.update({header.silo: header.fault for header in headers if header.fault is not None})
        slowest = max(seconds.values(), default=0.0)
        for rank in sorted(seconds)[:RANKS_SHOWN]:
            spent = self.rank_seconds.setdefault(rank, {"training": 0.0, "waiting": 0.0})
            spent["training"] += seconds[rank]
            spent["waiting"] += slowest - seconds[rank]
        self.seconds_training += slowest
        self.seconds_waiting += slowest - sum(seconds.values()) / max(len(seconds), 1)
        self.seconds_communication += all_in_all - slowest


def _size(header: Header) -> int:
    """Return how many bytes a silo's vectors are on a wire: as float32, or as a codec wrote them."""
    return sum(
        4 * vector.length if vector.bytes is None else vector.bytes for vector in header.vectors.values()
    )
