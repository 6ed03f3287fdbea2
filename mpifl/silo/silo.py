"""A silo as an algorithm sees it: its examples, its state, and a model that is lent to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mpifl.common import InputError, choices
from mpifl.data import Inputs
from mpifl.data.batches import Batches, Change, Examples
from mpifl.data.shards import Shard, held_out
from mpifl.learning.tasks import CLASSIFICATION, Task
from mpifl.silo.answering import placed
from mpifl.silo.parameters import Allocate, FlatModel, Lent, Objective
from mpifl.silo.scoring import Score, as_fits, evaluate, logits, mean_loss, outputs
from mpifl.silo.steps import (
    EVALUATION_BATCH,
    OPTIMIZERS,
    Batch,
    Constant,
    Correction,
    Counted,
    Enough,
    EvaluationBatch,
    LocalRun,
    LocalTraining,
    Loss,
    Method,
    Proximal,
    Training,
    Trains,
    training_loop,
)

OPTIMIZER = "optimizer"
"""The prefix of the names of a kept optimizer's state, in a silo's state."""
RESIDUAL = "unsent "
"""The prefix of a vector's name in a silo's state, for the part that compression has left out so far."""


class Silo(Lent):
    """One silo with examples during one request.

    Attributes:
        id: The silo's number in the federation.
        round: The round of the request, counted from 0.
        examples: n_k, the number of the silo's training examples.
        state: What the silo kept in earlier rounds: tensors and numbers by name. Change it with `keep` only.
        weight: The weight of an update, unless the update sets its own; by default n_k.
        reweighed: Whether silos are drawn by n_k and their updates count equally.
        objective: The algorithm's objective, which training minimises; by default the task's.
        own_objective: The algorithm's own objective, or None if it is the task's loss. An evaluation reports
            this loss.
        task: The task: the loss, and the metrics of an evaluation.
        public: The federation's public examples, or None.
        model: The lent model; its content is lost when the work is done.
        kept: What the silo gave to `keep` during this request.
        learned_statistics: The running statistics after the last training, or None.
        received: What transforms store about the message until the update leaves.
        work: The name of the client method of the request, or "".
        seen: How many examples its trainings have seen, once in each epoch.
        losses: The mean losses of every so many steps of its trainings, one after another.
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
        evaluation_batch: EvaluationBatch = EVALUATION_BATCH,
        augment: Change | None = None,
        losses_every: int = 0,
        trains: Trains = training_loop.train,
    ) -> None:
        super().__init__(id, models, round, seed, allocate)
        self.work = work
        self.state = placed(state, self.model.device)
        self.public = public
        self.reweighed = reweighed
        self.task = task
        self.objective = objective or task.objective
        self.own_objective = own_objective
        self._evaluation_batch = evaluation_batch
        self._augment = augment
        self._trains = trains
        self._losses_every = losses_every
        self.seen = 0
        self.losses: list[float] = []
        self.kept: dict[str, Any] = {}
        self._splits = {
            name: Batches(split, features, self.model.device) for name, split in shard.splits.items()
        }
        self.examples = len(self._splits["train"])
        self.weight = float(self.examples) if weight is None else weight

    @property
    def beginning(self) -> tuple[Tensor, Tensor]:
        """The initial parameters w_0, shape [P], and running statistics of the whole training."""
        assert self.model.initial is not None, "an algorithm says by `recalls` that it asks for these"
        return self.model.initial

    def residual(self, name: str) -> Tensor | float:
        """Return the part of a vector that compression has left out of this silo's updates so far; the next
        update sends it."""
        owed: Tensor | float = self.state.get(RESIDUAL + name, 0.0)
        return owed

    def relabel(self, act: Callable[[Tensor], Tensor]) -> None:
        """Replace the targets of the training examples by `act(targets)` during this request."""
        self._splits["train"] = self._splits["train"].relabelled(act)

    def forget_optimizer(self) -> None:
        """Reset the optimizer in this request, and ignore its kept state."""
        self.state = {name: v for name, v in self.state.items() if not name.startswith(OPTIMIZER)}

    def rewrite(self, act: Callable[[Any, Any], None]) -> None:
        """Train during this request on a copy of the training examples, which `act(x, y)` changes in
        place."""
        self._splits["train"] = self._splits["train"].rewritten(act)

    def train_locally(
        self,
        w: Tensor,
        settings: LocalTraining,
        objective: Objective | None = None,
        correct: Correction | None = None,
        beside: Sequence[Tensor] = (),
        statistics: Tensor | None = None,
        enough: Enough | None = None,
    ) -> LocalRun:
        """Train from w, shape [P], on the silo's training examples; see `Training`.

        Args:
            w: The parameters to start from.
            settings: The settings; this method applies the round's decay and the silo's own share of work.
            objective: The objective to minimise; by default the algorithm's.
            correct: Changes each gradient before the step that takes it.
            beside: Further tensors that the objective gets after x and y, with one entry for each example.
            statistics: The running statistics to start from; by default the server's.
            enough: Tells whether the training may end before the settings end it.
        """
        if isinstance(correct, Constant | Proximal):
            correct.check(len(self.model.trained))
        self._begin_pass(statistics)
        settings = settings.at_round(self.round).of_silo(self.id, self.stream("stragglers"))
        with self.randomness("train") as order:
            asked = Training(
                model=self.model,
                data=self._augmented(),
                start=w,
                settings=settings,
                loss=self._loss(objective),
                order=order,
                correct=correct,
                beside=beside,
                round=self.round,
                kept=self._kept_optimizer(settings),
                allocate=self._allocate,
                method=self._method(settings),
                enough=enough,
                losses_every=self._losses_every,
            )
            run = self._trains(asked)
        self._note(run, settings)
        return run

    def _note(self, run: LocalRun, settings: LocalTraining) -> None:
        """Note what a training has learned, and how many examples it saw."""
        self.seen += run.examples
        self.losses += run.losses
        if settings.keep_optimizer_state and run.optimizer is not None:
            state = {f"{OPTIMIZER} {i}": vector for i, vector in enumerate(run.optimizer.state)}
            self.keep(**state, **{f"{OPTIMIZER} steps": run.optimizer.steps})
        self.learned_statistics = self._learned()

    def _augmented(self) -> Batches:
        """Return the training examples with the job's augmentation, which draws anew each time."""
        examples = self._splits["train"]
        return examples if self._augment is None else examples.changed(self._augment, self.stream("augment"))

    def _loss(self, objective: Objective | None) -> Loss:
        """Return an objective in the forms that it has; by default the silo's objective."""
        if objective or self.own_objective:
            return Loss(objective or self.objective)
        of_outputs = self.task.mean_loss if self.task.sees_outputs_alone else None
        weighted = None if self.task.why_no_mean() else self.task.weighted_objective
        return Loss(self.objective, self._counted, of_outputs, self.task.loss_by_formula, weighted)

    @property
    def _divided(self) -> Counted | None:
        """The objective as a sum and its divisor, or None if the divisor is the number of examples."""
        return self._counted if self.own_objective is None and self.task.why_no_mean() else None

    def _all_examples(self) -> Iterator[Batch]:
        """Yield all training examples in batches, never in a batch of one, which BatchNorm refuses."""
        examples = self._splits["train"]
        size = examples.bounded(EVALUATION_BATCH)
        while size > 2 and len(examples) % size == 1:
            size -= 1
        return examples.in_order(size)

    def _counted(self, module: Any, x: Any, y: Any) -> tuple[Tensor, Tensor | int]:
        """Return the task's loss on a batch as a sum, and its divisor."""
        return self.task.loss(self.task.outputs(module, x), y)

    def _method(self, settings: LocalTraining) -> Method | None:
        """Return how a training with these settings draws batches and takes steps; None means the usual
        way."""
        return None

    def _kept_optimizer(self, settings: LocalTraining) -> tuple[list[Tensor], int] | None:
        """Return the optimizer's state after the silo's last round, and its number of steps. None: start
        anew."""
        if not settings.keep_optimizer_state or f"{OPTIMIZER} steps" not in self.state:
            return None
        vectors = (f"{OPTIMIZER} {i}" for i in range(OPTIMIZERS[settings.optimizer].vectors(settings)))
        return [self.state[name] for name in vectors], int(self.state[f"{OPTIMIZER} steps"])

    def gradient(self, w: Tensor, batch: Batch | None = None, *, track: bool = False) -> LocalRun:
        """Compute the mean gradient at w, shape [P], of a batch or of all training examples. The run's
        `delta` holds it.

        Args:
            track: Let this pass update running statistics (BatchNorm's), as training does.
        """
        self._begin_pass()
        with self.randomness("gradient"):
            batches = iter([batch]) if batch is not None else self._all_examples()
            run = training_loop.gradient(self.model, batches, w, self.objective, self._divided)
        self.seen += run.examples
        if track:
            self.learned_statistics = self._learned()
        return run

    @torch.no_grad()
    def public_logits(self, w: Tensor, statistics: Tensor | None = None) -> Tensor:
        """Return the logits of the model w on the public examples, shape [n, classes, ...].

        Args:
            w: The parameters, shape [P].
            statistics: The running statistics of w; by default the server's.
        """
        assert self.public is not None
        self._begin_pass(statistics)
        return logits(self.model, w, self.public)

    @torch.no_grad()
    def features(self, w: Tensor, statistics: Tensor | None = None) -> Tensor:
        """Return the features of the training examples in the model w, shape [n, d, ...].

        Args:
            w: The parameters, shape [P].
            statistics: The running statistics to start from; by default the server's.
        """
        self._begin_pass(statistics)
        self.model.trained.copy_(w)
        module: Any = self.model.module.eval()
        return torch.cat([module.features(x) for x, _ in self._splits["train"].in_order(EVALUATION_BATCH)])

    def evaluate(self, w: Tensor, split: str = "train", statistics: Tensor | None = None) -> Score:
        """Score the model w, shape [P], on one of the silo's splits; see `train_locally` for `statistics`."""
        self._begin_pass(statistics)
        found, size = self._examples(split), self._evaluation_batch
        return evaluate(self.model, w, found, self.task, self.own_objective, size)

    def loss(self, w: Tensor) -> float:
        """Return the mean of the objective at w, shape [P], over the training examples."""
        self._begin_pass()
        return mean_loss(self.model, w, self._splits["train"], self.objective, counted=self._divided)

    def frequencies(self) -> Tensor:
        """Return, for each feature as models see it, the share of training examples where it is not 0; shape
        [features]."""
        counts = sum((x != 0).sum(0) for x, _ in self._splits["train"].in_order(EVALUATION_BATCH))
        return torch.as_tensor(counts).reshape(-1).double() / self.examples

    @property
    def importance(self) -> float:
        """The silo's weight in the objective divided by the weight of its updates.

        So `mean.weight / cohort.weight` times the mean of importance * v_k is the sum of p_k v_k over the
        silos that answered.
        """
        return float(self.examples) if self.reweighed else 1.0

    def split(self, name: str) -> Examples:
        """Return a split's examples as a torch `Dataset`; InputError if the silo has no such split."""
        return Examples(self._examples(name))

    def predict(self, split: str) -> Tensor:
        """Return the module's outputs for a split's examples, shape [n, ...], on the CPU; see `module`.

        `silo.task.predict` turns them into probabilities.
        """
        found = functools.partial(outputs, self.module, self.task, self._examples(split))
        return as_fits(self.model, self._evaluation_batch, found)

    def _examples(self, split: str) -> Batches:
        if split not in self._splits:
            raise InputError(f"split '{split}': this silo has none; {choices(split, self._splits, 'use')}")
        return self._splits[split]

    def has(self, split: str) -> bool:
        """Return whether the silo has examples of a split."""
        return split in self._splits and len(self._splits[split]) > 0

    @property
    def held_out(self) -> str | None:
        """The split that judges a model: `test` if the silo has it, else `valid`, else None."""
        return held_out({name: len(split) for name, split in self._splits.items()})
