"""What algorithms have in common whose server takes exact sums over the rows of all silos."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor

from mpifl.algorithms import Algorithm, Cohort, Server
from mpifl.common import RoundLost
from mpifl.data.shards import AnySpec
from mpifl.learning.tasks import Task
from mpifl.silo import Score
from mpifl.wire import Mean, Scalar, Update

EXACT = "sends exact sums over all examples, to which no noise is added"


class WholeSums(Algorithm):
    """An algorithm whose silos send sums over their rows, which add up without rounding.

    So all bits are those of one silo with all rows. No silo trains.
    """

    needs_mean: ClassVar[str] = "the server needs sums over all examples"
    unlike_fedavg: ClassVar[str] = "is a sum over all examples"
    ways: ClassVar[tuple[str, ...]] = ("newton",)
    ignores: ClassVar[frozenset[str]] = frozenset({"cohort.weights"})
    not_clipped = "sums over examples have no bound that keeps what they say"
    not_augmented = "takes the examples as they are"
    not_private = f"{EXACT}; use 'dptable' for noised counts, histograms and means"
    not_noised = not_private
    not_clocked = "takes no steps over batches, and speeds are of such; use fedavg"

    def for_federation(self, spec: AnySpec) -> Algorithm:
        """Return the algorithm with a task whose targets may be all alike at a silo."""
        found = super().for_federation(spec)
        return found.model_copy(update={"task": found.task.of_all_silos()})

    def work(self, name: str) -> Callable[..., Update]:
        """Return a client method. One that adds up gets its message on the host, where sums are made."""
        act = super().work(name)
        if self.purpose(name) == "evaluation":
            return act
        return lambda silo, **message: act(silo, **{key: _on_host(value) for key, value in message.items()})

    @abstractmethod
    def told(self, server: Server) -> dict[str, Any]:
        """Return the result for a round's record; {} before there is one."""

    def of_all(self, cohort: Cohort, mean: Mean, name: str) -> Tensor:
        """Return a sum over all silos.

        Raises:
            RoundLost: not all have answered.
        """
        self.check_all(cohort, mean)
        return mean[name]

    def check_all(self, cohort: Cohort, mean: Mean) -> None:
        """Check that all silos have answered.

        Raises:
            RoundLost: not all have.
        """
        if len(mean) < cohort.population:
            who = type(self).__name__.lower()
            raise RoundLost(f"{len(mean)} of {cohort.population} silos answered; {who} takes sums over all")


class OneTable(WholeSums):
    """An algorithm that makes a table of all rows in one round.

    The table lies in `server.state["table"]`, as JSON in a room of fixed size. No model is trained.
    """

    own_step: ClassVar[str] = "server takes no step"
    no_model: ClassVar[str] = "makes a table of the rows; mpifl stats RUN shows it"
    scored_at_silos: ClassVar[bool] = False

    def told(self, server: Server) -> dict[str, Any]:
        """Return the table for a round's record."""
        found: dict[str, Any] = json.loads(server.state["table"].numpy().tobytes())
        return found

    def score(self, server: Server, everyone: Cohort, split: str) -> Score | None:
        """Return None: there is no model to score."""
        return None


class ReleasedTable(OneTable):
    """A table that is exact, and withholds what is of few rows."""

    least: PositiveInt = 5
    """The least number of rows that a count in the table is of; smaller ones are withheld."""
    by_silo: bool = False
    """Tell each silo's figures, too."""

    @property
    def tells_extremes(self) -> bool:
        """Whether the smallest and the largest number of a column may be told."""
        return False


def in_room(told: dict[str, Any], room: int) -> Tensor:
    """Return a table as bytes, with blanks behind it: a checkpoint's size must not depend on it."""
    content = json.dumps(told).encode().ljust(room)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def kind_of(task: Task) -> str:
    """Return a task's name; "" for a task of the user's own."""
    return str(getattr(task, "kind", ""))


def given_of(task: Task) -> dict[str, Any]:
    """Return the keys of `[task]` that a job gives, but for a loss that the task has by itself."""
    given = task.model_dump(by_alias=True, exclude_defaults=True)
    if given.get("loss") in [*getattr(task, "losses", ())][:1]:
        del given["loss"]
    return given


def _on_host(value: Tensor | Scalar) -> Tensor | Scalar:
    return value.cpu() if isinstance(value, Tensor) else value
