"""A silo as an algorithm sees it: its examples, its state,
and a model that it is lent for the time of its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from mpifl.common import ShardError, rng
from mpifl.data import Batches, Inputs, Shard
from mpifl.silo import local
from mpifl.silo.flat import Allocate, FlatModel, Objective
from mpifl.silo.local import Batch, Correction, LocalRun, LocalTraining
from mpifl.silo.optimizers import OPTIMIZERS
from mpifl.silo.scoring import Score, evaluate, logits, mean_loss
from mpifl.silo.settings import EVALUATION_BATCH
from mpifl.tasks import CLASSIFICATION, Task
from mpifl.wire import Scalar, Uniform, Update

OPTIMIZER = "optimizer"
"""What the names of a kept optimizer's state begin with, in a silo's state."""
RESIDUAL = "unsent "
"""Before a vector's name, in a silo's state: what payloads have left out so far."""


class Silo:
    """One silo during one request.

    Attributes:
        id: Its number in the federation.
        round: The round that is asked, counted from 0.
        examples: n_k, how many training examples it holds.
        state: What it kept in rounds before, tensors and numbers by name; change it with `keep` only.
        weight: What an update weighs unless it says otherwise; n_k by default.
        reweighed: Whether silos weigh otherwise in the objective than their updates do: drawn by n_k, counted
            alike.
        objective: What training minimises: the algorithm's.
        own_objective: The same, None where it is the task's loss: the loss that an evaluation reports.
        task: What is learned: its loss, and the metrics of an evaluation.
        public: The federation's public examples, if there are any.
        model: The lent model; what is in it is gone when the work is done.
        kept: What `keep` was given during this request.
        learned_statistics: The running statistics after the last training, None if there was none.
        received: What transforms remember of the message until the update leaves.
        work: The name of the algorithm's half that is asked, if one is.
    """

    def __init__(
        self,
        id: int,
        shard: Shard,
        features: Inputs,
        models: Sequence[FlatModel],
        *,
        state: Mapping[str, Any],
        round: int = 0,
        work: str = "",
        seed: int = 0,
        task: Task = CLASSIFICATION,
        objective: Objective | None = None,
        own_objective: Objective | None = None,
        weight: float | None = None,
        reweighed: bool = False,
        public: Batches | None = None,
        allocate: Allocate = torch.empty,
        evaluation_batch: int = EVALUATION_BATCH,
    ) -> None:
        self.id = id
        self.round = round
        self.work = work
        self.state = state
        self.model = models[0]
        self.public = public
        self.reweighed = reweighed
        self.task = task
        self.objective = objective or task.objective
        self.own_objective = own_objective
        self._allocate = allocate
        self._evaluation_batch = evaluation_batch
        self._models = models
        self.kept: dict[str, Any] = {}
        self.learned_statistics: Tensor | None = None
        self.received: dict[str, Tensor] = {}
        self._seed = seed
        self._splits = {
            name: Batches(split, features, self.model.device) for name, split in shard.splits.items()
        }
        self.examples = len(self._splits["train"])
        self.weight = float(self.examples) if weight is None else weight

    def residual(self, name: str) -> Tensor | float:
        """Return what compression has left out of a vector of this silo's updates,
        and will send with the next."""
        owed: Tensor | float = self.state.get(RESIDUAL + name, 0.0)
        return owed

    def take(self, architecture: int) -> FlatModel:
        """Have the model of another of the algorithm's architectures lent,
        0 being the job's `[model]`; return it."""
        self.model = self._models[architecture]
        return self.model

    def train_locally(
        self,
        w: Tensor,
        settings: LocalTraining,
        objective: Objective | None = None,
        correct: Correction | None = None,
        beside: Sequence[Tensor] = (),
        statistics: Tensor | None = None,
    ) -> LocalRun:
        """Train from w, shape [P], on the silo's training examples; see `local.train`.

        Args:
            w: Where to start.
            settings: How to train; the round's decay and the silo's own share of work are applied here.
            objective: What to minimise, if not the algorithm's objective.
            correct: Changes each gradient before the step that takes it.
            beside: Tensors that the objective is given beside x and y, an entry an example.
            statistics: Running statistics to start from, where not the server's.
        """
        self._begin_pass(statistics)
        objective = objective or self.objective
        examples = self._splits["train"]
        settings = settings.at_round(self.round).of_silo(self.id, self.stream("stragglers"))
        with self.randomness("train") as order:
            more = (beside, self._allocate, self.round, self._kept_optimizer(settings), self._way(settings))
            run = local.train(self.model, examples, w, settings, order, objective, correct, *more)
        if settings.keep_optimizer and run.optimizer is not None:
            state = {f"{OPTIMIZER} {i}": vector for i, vector in enumerate(run.optimizer.state)}
            self.keep(**state, **{f"{OPTIMIZER} steps": run.optimizer.steps})
        self.learned_statistics = self.model.statistics.read()
        return run

    def _way(self, settings: LocalTraining) -> local.Way:
        """Return how a training by these settings draws batches and takes gradients."""
        return local.PLAIN

    def _kept_optimizer(self, settings: LocalTraining) -> tuple[list[Tensor], int] | None:
        """Return the optimizer's state that the silo's last round has left, and its steps, if they go on."""
        if not settings.keep_optimizer or f"{OPTIMIZER} steps" not in self.state:
            return None
        vectors = (f"{OPTIMIZER} {i}" for i in range(OPTIMIZERS[settings.optimizer].vectors(settings)))
        return [self.state[name] for name in vectors], int(self.state[f"{OPTIMIZER} steps"])

    def gradient(self, w: Tensor, batch: Batch | None = None, *, track: bool = False) -> LocalRun:
        """Take the mean gradient at w, shape [P], of a batch or of all training examples; the run's `delta`
        holds it.

        Args:
            track: Let running statistics (BatchNorm's) learn from this pass, as they do from training.
        """
        self._begin_pass()
        batches = iter([batch]) if batch is not None else self._splits["train"].in_order(EVALUATION_BATCH)
        with self.randomness("gradient"):
            run = local.gradient(self.model, batches, w, self.objective)
        if track:
            self.learned_statistics = self.model.statistics.read()
        return run

    @torch.no_grad()
    def public_logits(self, w: Tensor, statistics: Tensor | None = None) -> Tensor:
        """Return what the model w, shape [P], says of the public examples: logits, shape [n, classes, ...].

        Args:
            w: The parameters, shape [P].
            statistics: The running statistics that go with them, where not the server's.
        """
        assert self.public is not None
        self._begin_pass(statistics)
        return logits(self.model, w, self.public)

    @torch.no_grad()
    def features(self, w: Tensor, statistics: Tensor | None = None) -> Tensor:
        """Return the features, shape [n, d, ...], that the model w, shape [P], sees in the training examples.

        Args:
            w: The parameters, shape [P].
            statistics: Running statistics to start from, where not the server's.
        """
        self._begin_pass(statistics)
        self.model.trained.copy_(w)
        module: Any = self.model.module.eval()
        return torch.cat([module.features(x) for x, _ in self._splits["train"].in_order(EVALUATION_BATCH)])

    def evaluate(self, w: Tensor, split: str = "train", statistics: Tensor | None = None) -> Score:
        """Score the model w, shape [P], on one of the silo's splits; see `train_locally` for `statistics`."""
        self._begin_pass(statistics)
        found, size = self._splits[split], self._evaluation_batch
        return evaluate(self.model, w, found, self.task, self.own_objective, size)

    def loss(self, w: Tensor) -> float:
        """Return the mean of the objective at w, shape [P], over the training examples."""
        self._begin_pass()
        return mean_loss(self.model, w, self._splits["train"], self.objective)

    def frequencies(self) -> Tensor:
        """Return the share of training examples in which each feature,
        as models see it, is not 0, shape [features]."""
        counts = sum((x != 0).sum(0) for x, _ in self._splits["train"].in_order(EVALUATION_BATCH))
        return torch.as_tensor(counts).reshape(-1).double() / self.examples

    def keep(self, **values: Tensor | Scalar) -> None:
        """Keep copies of tensors and numbers for later rounds; they count only if this update does."""
        self.kept |= {name: v.clone() if isinstance(v, Tensor) else v for name, v in values.items()}

    def update(self, weight: float | None = None, **values: Tensor | Uniform | Scalar | None) -> Update:
        """Make this silo's answer: tensors are averaged over the cohort, numbers too, and reported for each
        silo.

        Args:
            weight: Its weight in the averages; by default what the algorithm's `weight` says.
            **values: Flat tensors, `uniform` tensors and numbers by name; None, NaN or Inf is a number that
                it has not.
        """
        vectors = {name: value for name, value in values.items() if isinstance(value, Tensor | Uniform)}
        scalars = {name: value for name, value in values.items() if not isinstance(value, Tensor | Uniform)}
        return Update(self.weight if weight is None else weight, vectors, scalars)

    @property
    def importance(self) -> float:
        """How many times more the silo weighs in the objective than its updates do.

        `mean.weight / cohort.weight` times the mean of importance times v_k so is sum_k p_k v_k over who
        answered.
        """
        return float(self.examples) if self.reweighed else 1.0

    def stream(self, purpose: str) -> torch.Generator:
        """Return the random stream that this silo has for a purpose in this round."""
        return rng.torch_stream(self._seed, purpose, self.id, self.round)

    def randomness(self, purpose: str) -> AbstractContextManager[torch.Generator]:
        """Lend the stream of a purpose;
        what draws from torch's global stream (dropout) draws a derived one."""
        return rng.scope(self._seed, purpose, self.id, self.round, device=self.model.device)

    def _begin_pass(self, statistics: Tensor | None = None) -> None:
        """Start from given running statistics or the server's,
        whatever an earlier pass has left in the model."""
        start = self.received.get("statistics") if statistics is None else statistics
        if start is not None:
            self.model.statistics.write(start)

    def has(self, split: str) -> bool:
        """Return whether the silo has examples of a split."""
        return split in self._splits and len(self._splits[split]) > 0

    @property
    def held_out(self) -> str | None:
        """The split to judge a model by: `test` if the silo has one, else `valid`, else none."""
        return held_out({name: len(split) for name, split in self._splits.items()})


def learnable(shard: Shard, task: Task) -> Shard:
    """Return a shard whose targets a task can learn.

    Raises:
        ShardError: it cannot; the line names the file, the split and the row.
    """
    for name, split in shard.splits.items():
        try:
            task.check_targets(name, split.y)
        except ValueError as wrong:
            raise ShardError(f"{shard.path}: {name}: {wrong}; mend the source and partition again") from None
    return shard


def held_out(examples: Mapping[str, int]) -> str | None:
    """Return the split to judge a model by, given how many examples each has:
    `test`, else `valid`, else none."""
    return next((name for name in ("test", "valid") if examples.get(name)), None)
