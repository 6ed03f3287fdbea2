"""The context of a worker: what all silos of a run have in common."""

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
    """Accept every silo: without a privacy budget each can take part."""


def _nothing() -> None:
    """Do nothing: this site has no ledger."""


@dataclass(frozen=True)
class WorkerContext:
    """The paths, models, settings and functions that all silos of a run have in common.

    Attributes:
        open: Opens a silo's shard and checks that the task can learn its targets.
        averaging: How updates are averaged.
        personal: The folder for silos' own models if they stay at the site; by default the run folder.
        seal: Encrypts silos' states at the site, for a run folder that others may read.
        check: Checks before the first round that a silo, whose shard is open, can take part.
        sync: Writes the site's ledger to disk before an answer leaves.
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
    losses_every: int = 0
    silo: Callable[..., Silo] = Silo
    check: Callable[[int, Shard], object] = _takes_part
    averaging: Averaging = field(default_factory=Averaging)
    tells: type[Telling] = Telling
    """Decides how much the server learns about a silo's fault."""
    seal: Seal | None = None
    personal: Path | None = None
    sync: Callable[[], None] = _nothing

    def lend(self, id: int, shard: Shard, **given: Any) -> Silo:
        """Return a silo with the models that all silos of the rank share.

        Args:
            id: The silo's number.
            shard: The silo's examples.
            **given: Further arguments of the silo or of this request.
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
            losses_every=self.losses_every,
            **given,
        )
