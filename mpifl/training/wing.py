"""The base class of wings: the places where a capability may change a training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.run.job import Job
from mpifl.silo.steps import Trains
from mpifl.sums import Aggregator, MakesAggregator
from mpifl.training.draw_cohort import Coins
from mpifl.transforms import Transform
from mpifl.wire import Request, Transport


@dataclass(frozen=True)
class ModelFacts:
    """What notes say of a model.

    Attributes:
        shared: How many parameters silos send.
        statistics: Whether it has running statistics that are averaged.
        judged: Whether the server can score it on a test set.
    """

    shared: int
    statistics: bool
    judged: bool


class Wing:
    """One capability in one training, on one rank. The base class adds nothing.

    A rank makes each wing once, before the rest of the training. Rank 0 makes another one before that, for
    `check`, `plan` and `told`.
    """

    name: str = ""
    """The wing's name in a job and in the registry; also the name of its folder."""
    of_rank: ClassVar[bool] = False
    """Whether each rank decides for itself to use the wing, so that other ranks may not have it."""

    at_server: ClassVar[bool] = False
    """Whether the server's rank hosts silos, too."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check at rank 0, before any rank builds, that the job and the shards allow the wing's work.

        Raises:
            InputError: they do not.
        """

    def plan(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Compute at rank 0, before any rank builds, results that take seconds and depend on job and shards
        only.

        Raises:
            InputError: there is no result.
        """

    def assembled(
        self, spec: AnySpec, run: Path, transport: Transport, changed: Changed
    ) -> tuple[Server, Federation] | None:
        """Return the whole training on this rank, if the wing builds it instead of the core; else None.

        Args:
            run: The run folder.
            changed: Lets the wings change this rank's context.

        Raises:
            InputError: the job does not fit this rank's data.
        """
        return None

    def placed(self, spec: FederationSpec, transport: Transport) -> Mapping[int, Sequence[int]] | None:
        """Return the silos of each worker, if the wing places them; None leaves it to the core."""
        return None

    def alignments(self, spec: AnySpec, transport: Transport) -> dict[int, str]:
        """Return the tag of the alignment in each silo's file, for silos of this rank that have one."""
        return {}

    def transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return transforms that act before the core's on messages to silos, and after them on updates."""
        return []

    def last_transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return transforms that act after the core's on messages to silos, and before them on updates. The
        first wing's transforms come last."""
        return []

    def aggregated(self, rule: MakesAggregator | None, algorithm: Algorithm) -> MakesAggregator | None:
        """Return the rule that combines updates, given the rule of the wings before this one; None is the
        mean."""
        return rule

    def told(self, spec: AnySpec, run: Path) -> str:
        """Return, at rank 0, the text for this wing on every rank.

        Raises:
            InputError: the content of the run folder does not allow it.
        """
        return ""

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Return this rank's context with the wing's changes.

        Args:
            context: The context after the wings before this one.
            placed: The silos of each worker.
            told: The text from rank 0. The wing must check all of it that can be checked.

        Raises:
            InputError: the wing cannot do its work on this rank.
        """
        return context

    def trains(
        self, trains: Trains, context: WorkerContext, device: torch.device, transport: Transport
    ) -> Trains:
        """Return the function that trains this rank's silos, given the function of the wings before this one.

        Raises:
            InputError: this rank cannot take part.
        """
        return trains

    def worker(self, kind: type[Worker]) -> type[Worker]:
        """Return the class of this rank's worker, given the class of the wings before this one."""
        return kind

    def about(self) -> dict[str, str]:
        """Return further entries of what a rank reports of itself."""
        return {}

    def aggregators(self, context: WorkerContext, transport: Transport) -> Mapping[type[Request], Aggregator]:
        """Return the aggregators that answer the wing's own kinds of requests, at every rank."""
        return {}

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Start the wing at the server, when requests are possible; also at a worker that replaces a dead
        server.

        Args:
            server: The state of the training.
            exchange: Sends requests to the silos.
            note: Notes something for the user; with `once`, at most once for that key.
        """

    def notes_of_job(self, silos: int, model: Callable[[], ModelFacts]) -> list[str]:
        """Return notes for the user before the first round that need no ranks; `mpifl check` tells them, too.

        Args:
            silos: How many silos there are.
            model: Returns the facts of the model, which is built for them.
        """
        return []

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Return further notes for the user before the first round."""
        return []

    def coins(self, silos: int, run: Path) -> Coins | None:
        """Return, at the server, the secret draw of a round's silos, if the wing has one."""
        return None

    def spent(self, server: Server) -> dict[str, Any]:
        """Return what the training has spent so far (such as a privacy budget), at the end of a round."""
        return {}

    def environment(self) -> dict[str, Any]:
        """Return, at the server, the wing's entries in the run folder's `environment.json`."""
        return {}

    def figures(self, server: Server) -> dict[str, float]:
        """Return further figures of the model beside the metrics, when the server scores it."""
        return {}

    def end(self) -> None:
        """End what the wing has started at the server; the training is over, whatever its end."""


Changed: TypeAlias = Callable[[WorkerContext, Mapping[int, Sequence[int]]], WorkerContext]
"""(context, the silos of each worker) -> the context with the wings' changes."""
WingsOf: TypeAlias = Callable[[Job], Sequence[Wing]]
"""Makes the wings that a job asks for, in the order in which they act."""


_Key = TypeVar("_Key", bound=Hashable)
_Of = TypeVar("_Of")


def told_once(
    told: Collection[_Key], wings: Sequence[Wing], tell: Callable[[Wing], Mapping[_Key, _Of]], what: str
) -> dict[_Key, _Of]:
    """Return the entries of all wings; each key may come from one wing only.

    Args:
        told: The core's keys.
        tell: Returns a wing's entries.
        what: What a key is, for the error message.

    Raises:
        InputError: a wing gives a key that the core or another wing has given.
    """
    found: dict[_Key, _Of] = {}
    for wing in wings:
        more = tell(wing)
        if twice := [key for key in more if key in told or key in found]:
            name = getattr(twice[0], "__name__", twice[0])
            raise InputError(f"the wing '{wing.name}' tells {what} '{name}', which is told already")
        found |= more
    return found


def of_one(wings: Sequence[Wing], ask: Callable[[Wing], _Of | None], what: str) -> _Of | None:
    """Return the result of the one wing that gives a result, or None.

    Raises:
        InputError: two wings give a result.
    """
    given = [(wing.name, found) for wing in wings if (found := ask(wing)) is not None]
    if len(given) > 1:
        first, second = given[0][0], given[1][0]
        raise InputError(f"the wings '{first}' and '{second}' both give {what}; ask for one of them")
    return given[0][1] if given else None


def core_alone(job: Job) -> Sequence[Wing]:
    """Return no wings.

    Raises:
        InputError: the job asks for a wing.
    """
    for name, key in job.wings.items():
        raise InputError(f"{key}: is the work of the wing '{name}', which is not here")
    return []
