"""How an algorithm asks silos: for the mean of their updates, or in a dialogue."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from mpifl.common import InputError, RoundLost
from mpifl.wire import Mean, Scalar

Work: TypeAlias = Any
"""A client method: a bound method (silo, **message) -> Update of the algorithm. In a dialogue it is a
generator."""
EVALUATIONS: dict[str, str | None] = {"evaluate": None, "evaluate_valid": "valid", "evaluate_test": "test"}
"""The client methods that score a model, and the split that they use; None is the silo's held-out split."""


class Lead(Protocol):
    """The server's part of a dialogue with silos.

    Attributes:
        homes: The rank of each silo; the caller sets it.
        heard: The bytes of each silo's messages.
        said: The bytes of the answers to each silo.
        error: Why the dialogue did not finish; None if it did.
    """

    homes: Mapping[int, int]
    heard: Counter[int]
    said: Counter[int]
    error: InputError | RoundLost | None

    def begin(self, rows: int) -> int:
        """Begin, with at most this many rows in a message; return the most bytes of a message."""


class Cohort(Protocol):
    """The silos of a round, as an algorithm sees them.

    Attributes:
        silos: The silos' ids.
        population: The number of silos in the federation.
        weight: The weight of all silos in the objective: n if silo k's weight is n_k, else the number of
            silos.
    """

    silos: list[int]
    population: int
    weight: float

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Run the client method `work` at every silo of the cohort with this message; return the weighted
        mean of the updates.

        Raises:
            RoundLost: too few silos answered.
        """

    def of(self, silos: Sequence[int]) -> Cohort:
        """Return a cohort of these silos, for a further request in the same attempt at the round."""

    def dialogue(self, part: Work, lead: Lead, /, **message: Tensor | Scalar) -> Mean:
        """Run a dialogue between `part` at every silo and the server; return the mean of the updates.

        `part` is a generator. It yields messages, float32 of shape [rows, width], and gets an answer to each;
        None only means to continue. It returns an update without vectors.

        Args:
            part: The client method.
            lead: The server's part of the dialogue.
            **message: The arguments of each client method.

        Raises:
            RoundLost: a silo stopped, or its message is wrong; then nothing has changed.
        """


def usual_weight(weights: str, examples: Mapping[str, int]) -> float:
    """Return the weight of a silo's update by `[cohort] weights`: n_k for "examples", 1 for "uniform"."""
    return float(examples["train"]) if weights == "examples" else 1.0


@functools.cache
def is_work(kind: type[Any], base: type[Any], name: str) -> bool:
    """Return whether a kind of algorithm has a public method of that name that `base` lacks or that scores,
    and whose first parameter is `silo`."""
    own = name in EVALUATIONS or name not in dir(base)
    method = getattr(kind, name, None) if own and not name.startswith("_") else None
    return inspect.isfunction(method) and list(inspect.signature(method).parameters)[1:2] == ["silo"]
