"""How an algorithm asks silos: for the mean of their updates, or line by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from mpifl.wire import Mean, Scalar

Work: TypeAlias = Any
"""A bound method (silo, **message) -> Update of the algorithm: its silo's half. In a dialogue it is a
generator."""


class Conversation(Protocol):
    """A dialogue with silos, line by line, as an algorithm leads it at the server.

    Attributes:
        silos: Their ids, ascending.
    """

    silos: list[int]

    def hear(self, rows: int, silos: Sequence[int] | None = None) -> list[Tensor]:
        """Return the next line of each silo, float32 of shape [rows, width], in the order of the silos."""

    def say(self, answers: Sequence[Tensor] | None = None, silos: Sequence[int] | None = None) -> None:
        """Answer each silo's line by a tensor of the line's shape; without answers, have them go on."""


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

    def dialogue(
        self,
        part: Work,
        talk: Callable[[Conversation], None],
        widths: Mapping[int, int],
        /,
        **message: Tensor | Scalar,
    ) -> Mean:
        """Have `part` of every silo talk with `talk`, which runs at the server; return the mean of the
        updates.

        `part` is a generator: it yields a line, float32 of shape [rows, width], and is sent the answer, None
        where it is only to go on. It returns an update without vectors.

        Args:
            part: The silo's half.
            talk: The server's half, given the `Conversation`.
            widths: How many numbers a line of each silo has for each row.
            **message: What each silo's half is given.

        Raises:
            RoundLost: a silo stopped, or its line is wrong; nothing has changed then.
        """
