"""What a wing adds to a training: one capability, at the places where the core asks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.run.job import Job
from mpifl.silo.steps import Trains
from mpifl.sums import Aggregator, MakesAggregator
from mpifl.training.draw_cohort import Coins
from mpifl.transforms import Transform
from mpifl.wire import Request, Transport


class Wing:
    """One capability in one training, on one rank. By itself it adds nothing.

    A rank makes it once, before anything else of the training. Rank 0 has made another before, for `check`,
    `plan` and `told`.
    """

    name: str = ""
    """By which a job and the registry call it; its folder's."""
    of_rank: ClassVar[bool] = False
    """Whether a rank asks for it by itself, so that others may be without."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """See at rank 0, before any rank builds, that the job asks for nothing that the shards forbid.

        Raises:
            InputError: it does.
        """

    def plan(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Work out at rank 0, before any rank builds, what takes seconds and follows from job and shards.

        Raises:
            InputError: nothing follows.
        """

    def assembled(
        self, spec: AnySpec, run: Path, transport: Transport, changed: Changed
    ) -> tuple[Server, Federation] | None:
        """Return what this rank needs of the training, where that is put together otherwise than in the core.

        Args:
            spec: The federation.
            run: The run folder.
            transport: The world.
            changed: Has the wings change what the silos of this rank have in common.

        Raises:
            InputError: the job does not go with what is here.
        """
        return None

    def alignments(self, spec: AnySpec, transport: Transport) -> dict[int, str]:
        """Return, for silos of this rank that have one, the tag of the alignment that their file carries."""
        return {}

    def transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return what changes messages: before the core's transforms to silos, after them on the way back."""
        return []

    def last_transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return what changes messages behind the core's transforms to silos, and before them on the way
        back. The first wing's come last."""
        return []

    def aggregated(self, rule: MakesAggregator | None, algorithm: Algorithm) -> MakesAggregator | None:
        """Return what combines updates in place of what the wings before this one have; None is the mean."""
        return rule

    def told(self, spec: AnySpec, run: Path) -> str:
        """Return, at rank 0, what it tells this wing on every rank.

        Raises:
            InputError: what is in the run folder does not allow it.
        """
        return ""

    def context(
        self,
        context: WorkerContext,
        placed: Mapping[int, Sequence[int]],
        transport: Transport,
        told: str,
    ) -> WorkerContext:
        """Return what the silos of this rank have in common, as the wing changes it.

        Args:
            context: It, as the wings before this one have left it.
            placed: The silos of each worker.
            transport: The world.
            told: What rank 0 has told; nothing in it is to be believed that can be checked.

        Raises:
            InputError: the wing cannot do its work on this rank.
        """
        return context

    def trains(
        self, trains: Trains, context: WorkerContext, device: torch.device, transport: Transport
    ) -> Trains:
        """Return what trains the silos of this rank, given what does by the wings before this one.

        Raises:
            InputError: this rank cannot take part.
        """
        return trains

    def worker(self, kind: type[Worker]) -> type[Worker]:
        """Return what hosts the silos of this rank, given what does by the wings before this one."""
        return kind

    def about(self) -> dict[str, str]:
        """Return what a rank says of itself beside what each rank says."""
        return {}

    def aggregators(self, context: WorkerContext, transport: Transport) -> Mapping[type[Request], Aggregator]:
        """Return what answers, at every rank, the requests of kinds that are the wing's own."""
        return {}

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Take part at the server, once its ranks can be asked; where a worker takes its place, there.

        Args:
            server: The state of the training.
            exchange: Reaches the silos.
            note: Tells the user something; of one thing once where `once` names it.
        """

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Say what the user is to know of the run before its first round."""
        return []

    def coins(self, silos: int, run: Path) -> Coins | None:
        """Return, at the server, what draws the silos of a round in secret, if the wing does."""
        return None

    def spent(self, server: Server, note: Callable[..., None]) -> dict[str, Any]:
        """Return what the training has spent so far, at the end of a round; say so where that ends it."""
        return {}

    def environment(self) -> dict[str, Any]:
        """Return, at the server, what stands of the wing in the run folder's `environment.json`."""
        return {}

    def figures(self, server: Server) -> dict[str, float]:
        """Return what is measured of the model beside the metrics, where the server scores it."""
        return {}


Changed: TypeAlias = Callable[[WorkerContext, Mapping[int, Sequence[int]]], WorkerContext]
"""Returns what the silos of a rank have in common as the wings change it, given the silos of each worker."""
WingsOf: TypeAlias = Callable[[Job], Sequence[Wing]]
"""What makes the wings that a job asks for, in the order in which they act."""


_Key = TypeVar("_Key", bound=Hashable)
_Of = TypeVar("_Of")


def told_once(
    told: Collection[_Key], wings: Sequence[Wing], tell: Callable[[Wing], Mapping[_Key, _Of]], what: str
) -> dict[_Key, _Of]:
    """Return what wings tell, each key by one of them.

    Args:
        told: The keys that the core has told.
        wings: Those that are asked.
        tell: Asks a wing.
        what: What a key is, for the error.

    Raises:
        InputError: a wing tells a key that is told already.
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
    """Return what one of the wings gives, None if none does.

    Raises:
        InputError: two do.
    """
    given = [(wing.name, found) for wing in wings if (found := ask(wing)) is not None]
    if len(given) > 1:
        first, second = given[0][0], given[1][0]
        raise InputError(f"the wings '{first}' and '{second}' both give {what}; ask for one of them")
    return given[0][1] if given else None


def core_alone(job: Job) -> Sequence[Wing]:
    """Return no wing.

    Raises:
        InputError: the job asks for one.
    """
    for name, key in job.wings.items():
        raise InputError(f"{key}: is the work of the wing '{name}', which is not here")
    return []
