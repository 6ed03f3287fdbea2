"""The costs of exchanges: bytes between the server and the silos, and seconds of each phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mpifl.data.shards import ShardEntry, VerticalEntry
from mpifl.exchange.server_side.outcome import Outcome
from mpifl.sums import Combined, updates_of
from mpifl.wire import DTYPES, Header, Message, Reply, Request

RANKS_SHOWN = 64
"""Workers whose seconds are kept one by one."""
NUMBER = 8
"""Bytes of a number that is measured or learned."""
MORE_DIGITS = NUMBER - len("0.0")
"""What such a number takes beyond the 0.0 that stands for it in a record."""


@dataclass
class ExchangeCosts:
    """The costs of all exchanges since this ledger was begun; bytes are those between server and silos."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_of_silo: Counter[int] = field(default_factory=Counter)
    """Bytes that each silo received and sent, together."""
    examples_trained: int = 0
    """Examples that silos saw in training, once in each epoch; 0 where they do not tell."""
    seen_of_silo: Counter[int] = field(default_factory=Counter)
    """How many of them each silo saw."""
    step_losses: dict[int, list[float | None]] = field(default_factory=dict)
    """The mean losses of each silo's steps, where they are asked for."""
    seconds_training: float = 0.0
    """Seconds that the slowest rank trained."""
    seconds_waiting: float = 0.0
    """Seconds that workers waited for the slowest one, averaged over the workers."""
    seconds_communication: float = 0.0
    rank_seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    """Seconds that each worker trained and waited for the slowest; of at most `RANKS_SHOWN` workers."""
    parties: int = 0
    """The least number of ranks in any masked sum of the round; 0 without masks."""
    faults: dict[int, str] = field(default_factory=dict)
    """Why silos were left out."""
    weights: dict[int, float] = field(default_factory=dict)
    """The weight that a rule by weights gave each silo in the last training of the round."""
    outside: dict[int, float] = field(default_factory=dict)
    """The share of columns in which a rule of columns found each silo's value at an edge, in the same
    training."""
    means_over: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Numbers whose mean is not over all silos that count: over how many it is, and of how many."""
    lost: list[str] = field(default_factory=list)
    """Why attempts at the round were lost."""

    def lose(self, why: str) -> None:
        """Add a lost attempt: its costs stay, but its faults go, since its missing silos may be back."""
        self.lost.append(why)
        self.faults.clear()
        self.weights.clear()
        self.outside.clear()
        self.means_over.clear()
        self.forget_training()

    def forget_training(self) -> None:
        """Forget what was trained in an attempt that is made again: how far it came is chance."""
        self.examples_trained = 0
        self.seen_of_silo.clear()
        self.step_losses.clear()

    def speed(self, texts: Sequence[ShardEntry | VerticalEntry]) -> dict[str, float]:
        """Return how many examples silos saw in training, and in a second of the slowest rank; {} if unknown.

        Args:
            texts: The silos' shards, for tokens a second; none if examples are no texts.
        """
        if not self.examples_trained or not self.seconds_training:
            return {}
        rate = self.examples_trained / self.seconds_training
        found = {"examples_trained": self.examples_trained, "examples_per_second": rate}
        counts = [(one.silo, sum(one.labels or ()), one.examples.get("train")) for one in texts]
        means = {silo: tokens / rows for silo, tokens, rows in counts if silo is not None and rows}
        seen = sum(means.get(silo, 0.0) * many for silo, many in self.seen_of_silo.items())
        return found | ({"tokens_per_second": seen / self.seconds_training} if seen else {})

    def note(self, combined: Combined) -> None:
        """Note the other results of an aggregation: weights, shares at an edge, number of parties."""
        self.weights = combined.weights or self.weights
        self.outside = combined.outside or self.outside
        self.parties = min(combined.parties, self.parties or combined.parties)

    def note_means(self, outcome: Outcome) -> None:
        """Note the combined numbers that some of the silos that count do not have."""
        counted = [one for one in updates_of(outcome.replies) if one.weight]
        # a silo that has no vector where others have some takes no part: one that only begins to train
        counted = [one for one in counted if one.vectors] or counted
        named = Counter(name for one in counted for name in {*one.scalars, *one.sealed})
        for name in outcome.scalars:
            if named[name] < len(counted):
                now = named[name], len(counted)
                self.means_over[name] = min(now, self.means_over.get(name, now))

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
            headers: The reply of each silo.
            accepted: The silos whose updates count, and travelled.
            seconds: The seconds that each worker spent on its silos' work.
            all_in_all: Seconds from the request to the mean.
        """
        self._add_bytes(request, headers, set(accepted))
        self._add_seconds(seconds, all_in_all)
        self.faults.update({header.silo: header.fault for header in headers if header.fault is not None})

    def add_lines(self, heard: Mapping[int, int], said: Mapping[int, int]) -> None:
        """Add the messages of a dialogue.

        Args:
            heard: The bytes that each silo has sent.
            said: The bytes that each silo has received.
        """
        self.bytes_received += sum(heard.values())
        self.bytes_sent += sum(said.values())
        self.bytes_of_silo.update({silo: heard.get(silo, 0) + said.get(silo, 0) for silo in {*heard, *said}})

    def _add_bytes(self, request: Request, headers: Sequence[Reply], accepted: Collection[int]) -> None:
        down = size_of_request(request).whole
        up = {header.silo: size_of_reply(header, header.silo in accepted).whole for header in headers}
        for header in updates_of(headers):
            self.examples_trained += header.seen
            self.seen_of_silo[header.silo] += header.seen
            if header.losses and header.silo in accepted:
                self.step_losses.setdefault(header.silo, []).extend(header.losses)
        self.bytes_sent += len(request.cohort) * down
        self.bytes_received += sum(up.values())
        self.bytes_of_silo.update({silo: down + up.get(silo, 0) for silo in request.cohort})

    def _add_seconds(self, seconds: Mapping[int, float], all_in_all: float) -> None:
        slowest = max(seconds.values(), default=0.0)
        for rank in sorted(seconds)[:RANKS_SHOWN]:
            spent = self.rank_seconds.setdefault(rank, {"training": 0.0, "waiting": 0.0})
            spent["training"] += seconds[rank]
            spent["waiting"] += slowest - seconds[rank]
        self.seconds_training += slowest
        self.seconds_waiting += slowest - sum(seconds.values()) / max(len(seconds), 1)
        self.seconds_communication += all_in_all - slowest


class Size(NamedTuple):
    """The bytes of one message on a wire, by its two classes."""

    record: int
    vectors: int

    @property
    def whole(self) -> int:
        """Both together."""
        return self.record + self.vectors


def size_of_request(request: Request) -> Size:
    """Return how many bytes a request takes on a wire.

    Fields that depend on the ranks, or on whether a run was resumed, are not counted. A number with a
    fraction counts as its 8 bytes, whatever its digits: so the size does not depend on what was learned.
    """
    told: dict[str, Any] = {"serial": 0, "direct": False, "resting": None, "assignment": {}}
    measured = {k: v for k, v in getattr(request, "scalars", {}).items() if isinstance(v, float)}
    if measured:
        told["scalars"] = {**getattr(request, "scalars", {}), **dict.fromkeys(measured, 0.0)}
    vectors = sum(v.length * DTYPES[v.dtype].itemsize for v in request.vectors)
    return Size(_length(request, told) + len(measured) * MORE_DIGITS, vectors)


def size_of_reply(reply: Reply, accepted: bool) -> Size:
    """Return how many bytes a silo's reply takes on a wire; its vectors travel only if it is accepted.

    Vectors are float32, or a codec's payloads. As in requests, what is measured (times, losses, counts,
    windows) counts by its number of entries and not by its digits.
    """
    told: dict[str, Any] = {"seconds": 0.0}
    if not isinstance(reply, Header) or reply.fault is not None:
        return Size(_length(reply, told), 0)
    numbers = [name for name, value in reply.scalars.items() if not isinstance(value, str)]
    vectors = {name: one.model_copy(update={"window": None}) for name, one in reply.vectors.items()}
    told |= {"seen": 0, "losses": [], "vectors": vectors}
    told["scalars"] = {**reply.scalars, **dict.fromkeys(numbers, 0.0)}
    record = _length(reply, told) + len(numbers) * MORE_DIGITS + len(reply.losses) * NUMBER
    sizes = (4 * one.length if one.bytes is None else one.bytes for one in reply.vectors.values())
    return Size(record, sum(sizes) if accepted else 0)


def _length(record: Message, told: Mapping[str, Any]) -> int:
    """Return the bytes of a record in which some fields have other values."""
    return len(record.model_copy(update=dict(told)).encode())
