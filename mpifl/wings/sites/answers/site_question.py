"""A question to a site, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mpifl.wire import Compute, Finish, Report


@dataclass(frozen=True)
class CameBack:
    """What came back from a site.

    Attributes:
        report: The report of the site's silos.
        sums: The name and window of each sum, in the order of the vectors.
        vectors: The sums.
        states: The digest of what each silo keeps now.
        part: Under masks, what the site tells of its sum; None if it has none.
        singles: What was handed over of single silos' updates, by silo and vector.
    """

    report: Report
    sums: Sequence[tuple[str, int]]
    vectors: Sequence[Tensor]
    states: Mapping[int, str]
    part: Any = None
    singles: Mapping[tuple[int, str], Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteQuestion:
    """A question to sites.

    Attributes:
        vectors: The vectors of the request.
        base: For each asked site the digests of the states that its asked silos begin from.
        named: For each asked site the digests of states that it must keep.
        oldest: The round of the oldest checkpoint from which the coordinator may go on; 0: from the start.
        waiting: For each site the number of the question that it has missed, if a late sum may count in this
            round; None if none may.
    """

    request: Compute | Finish
    vectors: Mapping[str, Tensor]
    base: Mapping[str, Mapping[int, str]]
    named: Mapping[str, set[str]]
    oldest: int
    waiting: Mapping[str, int] | None = None

    def keep_from(self, site: str, places: Mapping[str, int], saved: Mapping[int, int]) -> int:
        """Return the oldest number whose states and answers a site keeps.

        Args:
            places: The number of the letter to which each state was answered first, by digest.
            saved: The last number before each checkpoint, by its round.
        """
        named = [places[digest] for digest in self.named[site] if digest in places]
        return min([saved.get(self.oldest, 0) + 1, *named])
