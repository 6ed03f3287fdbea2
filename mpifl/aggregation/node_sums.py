"""The sum of one node's parts, made in the first of them:
each worker makes a share, and the leader sees that it was made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

ALIGNED = 1 << 10  # elements to a multiple of which a vector is cut among the workers of a node


def add_to_first(parts: Iterable[Sequence[Tensor]], where: slice) -> None:
    """Add a slice of all parts of a window to the first of them."""
    for first, *others in parts:
        for other in others:
            first[where].add_(other[where])


class Probes:
    """A few elements of a rank's own sums from before its node's shares were added to them.

    There is one at the start of each stretch of `ALIGNED` elements, so at least one in each share. A share
    that was said to be made and was not leaves its probes as they were.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, int], Tensor] = {}

    def take(self, sums: Iterable[tuple[str, int, Tensor]]) -> None:
        """Remember the probes of these sums (name, window, sum), and forget those of before."""
        self._before = {(name, window): total[::ALIGNED].clone() for name, window, total in sums}

    def show(self, name: str, window: int, vectors: Sequence[Tensor]) -> bool:
        """Whether the sum in the first of these vectors shows that all shares were made.

        Sums are exact: each probe must be the sum of what it was and of the other vectors' elements. A first
        vector that is another rank's has no probes; nothing is known of it.
        """
        expected = self._before.get((name, window))
        if expected is None or not vectors:
            return True
        for other in vectors[1:]:
            expected = expected + other[::ALIGNED]
        return bool(expected.equal(vectors[0][::ALIGNED]))
