"""How an algorithm asks silos: for the mean of their updates, or line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from mpifl.common import InputError, RoundLost
from mpifl.wire import Mean, Scalar

Work: TypeAlias = Any
"""A bound method (silo, **message) -> Update of the algorithm: its silo's half. In a dialogue it is a
generator."""


class Lead(Protocol):
    """Leads a dialogue with silos at the server.

    Attributes:
        homes: The rank of each silo; it is told these.
        heard: Bytes of each silo's lines.
        said: Bytes of the answers to each silo.
        error: Why the dialogue did not come to its end; None if it did.
    """

    homes: Mapping[int, int]
    heard: Counter[int]
    said: Counter[int]
    error: InputError | RoundLost | None

    def begin(self, rows: int) -> int:
        """Begin with lines of so many rows at most; return their bytes at most."""


class Cohort(Protocol):
    """The silos of a round, as an algorithm sees them.

    Attributes:
        silos: Their ids.
        population: How many silos the federation has in all.
        weight: What all of them weigh in the objective: n where it weighs silo k by n_k, else their number.
    """

    silos: list[int]
    population: int
    weight: float

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Run `work` at every silo of the cohort with this message; return the weighted mean of the updates.

        Raises:
            RoundLost: too few silos answered.
        """

    def of(self, silos: Sequence[int]) -> Cohort:
        """Return the cohort of these silos, for a question of the same attempt at the round."""

    def dialogue(
        self,
        part: Work,
        lead: Lead,
        /,
        **message: Tensor | Scalar,
    ) -> Mean:
        """Have `part` of every silo talk with the server line by line; return the mean of the updates.

        `part` is a generator: it yields a line, float32 of shape [rows, width], and is sent the answer, None
        where it is only to go on. It returns an update without vectors.

        Args:
            part: The silo's half.
            lead: The server's half.
            **message: What each silo's half is given.

        Raises:
            RoundLost: a silo stopped, or its line is wrong; nothing has changed then.
        """
