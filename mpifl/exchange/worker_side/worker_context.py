"""What all silos of a run have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpifl.algorithms import Algorithm
from mpifl.data.batches import Batches, Change
from mpifl.data.shards import AnySpec, Shard
from mpifl.exchange import Telling
from mpifl.run.folder import Seal
from mpifl.silo import Silo
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import EVALUATION_BATCH, EvaluationBatch
from mpifl.sums import Averaging, MakesAggregator
from mpifl.transforms import Transform


def _takes_part(silo: int, shard: Shard) -> None:
    """See nothing against it: a silo that spends no budget takes part."""


def _nothing() -> None:
    """Note nothing: a site without a ledger."""


@dataclass(frozen=True)
class WorkerContext:
    """What all silos of a run have in common: where things lie, and what is done.

    Attributes:
        open: Opens a silo's shard, whose targets the task can learn.
        averaging: How updates are averaged.
        personal: Where silos' own models go, if they stay at the site; else into the run folder.
        seal: By which the site seals what its silos keep, if the run folder may be another's.
        check: Sees, before the first round, that a silo whose shard was opened can take part.
        sync: Has on the disk, before an answer leaves, what the site notes of its answers.
    """

    open: Callable[[int], Shard]
    run: Path
    spec: AnySpec
    algorithm: Algorithm
    transforms: Sequence[Transform]
    seed: int
    weights: str
    models: Sequence[FlatModel]
    public: Batches | None = None
    select: str = "uniform"
    rule: MakesAggregator | None = None
    evaluation_batch: EvaluationBatch = EVALUATION_BATCH
    augment: Change | None = None
    silo: Callable[..., Silo] = Silo
    check: Callable[[int, Shard], object] = _takes_part
    averaging: Averaging = field(default_factory=Averaging)
    tells: type[Telling] = Telling
    """What makes of a silo's fault what the server is told of it."""
    seal: Seal | None = None
    personal: Path | None = None
    sync: Callable[[], None] = _nothing

    def lend(self, id: int, shard: Shard, **given: Any) -> Silo:
        """Return a silo with the models that all silos of the rank are lent.

        Args:
            id: Its number.
            shard: Its examples.
            **given: What else is its own, or this request's.
        """
        return self.silo(
            id,
            shard,
            self.spec.features,
            self.models,
            seed=self.seed,
            task=self.algorithm.task,
            objective=self.algorithm.objective,
            own_objective=self.algorithm.own_objective,
            reweighed=(self.select, self.weights) == ("examples", "uniform"),
            public=self.public,
            evaluation_batch=self.evaluation_batch,
            augment=self.augment,
            **given,
        )
