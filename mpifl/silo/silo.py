"""A silo as an algorithm sees it: its examples, its state,
and a model that it is lent for the time of its work."""

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
    Correction,
    Counted,
    Enough,
    EvaluationBatch,
    LocalRun,
    LocalTraining,
    Loss,
    Method,
    Training,
    Trains,
    training_loop,
)

OPTIMIZER = "optimizer"
"""What the names of a kept optimizer's state begin with, in a silo's state."""
RESIDUAL = "unsent "
"""Before a vector's name, in a silo's state: what payloads have left out so far."""


class Silo(Lent):
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
        evaluation_batch: EvaluationBatch = EVALUATION_BATCH,
        augment: Change | None = None,
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
        self.kept: dict[str, Any] = {}
        self._splits = {
            name: Batches(split, features, self.model.device) for name, split in shard.splits.items()
        }
        self.examples = len(self._splits["train"])
        self.weight = float(self.examples) if weight is None else weight

    @property
    def beginning(self) -> tuple[Tensor, Tensor]:
        """The parameters w_0, shape [P], and running statistics that the training begins with."""
        assert self.model.initial is not None, "an algorithm says by `recalls` that it asks for these"
        return self.model.initial

    def residual(self, name: str) -> Tensor | float:
        """Return what compression has left out of a vector of this silo's updates,
        and will send with the next."""
        owed: Tensor | float = self.state.get(RESIDUAL + name, 0.0)
        return owed

    def relabel(self, act: Callable[[Tensor], Tensor]) -> None:
        """Train, during this request, on what `act` makes of the targets of the training examples."""
        self._splits["train"] = self._splits["train"].relabelled(act)

    def forget_optimizer(self) -> None:
        """Have its optimizer begin anew in this request, whatever it kept."""
        self.state = {name: v for name, v in self.state.items() if not name.startswith(OPTIMIZER)}

    def rewrite(self, act: Callable[[Any, Any], None]) -> None:
        """Train, during this request, on a copy of the training examples that `act(x, y)` changes in
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
            w: Where to start.
            settings: How to train; the round's decay and the silo's own share of work are applied here.
            objective: What to minimise, if not the algorithm's objective.
            correct: Changes each gradient before the step that takes it.
            beside: Tensors that the objective is given beside x and y, an entry an example.
            statistics: Running statistics to start from, where not the server's.
            enough: Ends it before the settings do.
        """
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
            )
            run = self._trains(asked)
        if settings.keep_optimizer and run.optimizer is not None:
            state = {f"{OPTIMIZER} {i}": vector for i, vector in enumerate(run.optimizer.state)}
            self.keep(**state, **{f"{OPTIMIZER} steps": run.optimizer.steps})
        self.learned_statistics = self._learned()
        return run

    def _augmented(self) -> Batches:
        """Return the training examples as the job's augmentation changes them, which draws anew each time."""
        examples = self._splits["train"]
        return examples if self._augment is None else examples.changed(self._augment, self.stream("augment"))

    def _loss(self, objective: Objective | None) -> Loss:
        """Return an objective, by default the silo's, in the forms that it has."""
        if objective or self.own_objective:
            return Loss(objective or self.objective)
        of_outputs = self.task.mean_loss if self.task.sees_outputs_alone else None
        weighted = None if self.task.why_no_mean() else self.task.weighted_objective
        return Loss(self.objective, self._counted, of_outputs, weighted)

    @property
    def _divided(self) -> Counted | None:
        """The objective as a sum and what it is divided by, where these are not the examples."""
        return self._counted if self.own_objective is None and self.task.why_no_mean() else None

    def _all_examples(self) -> Iterator[Batch]:
        """Yield all training examples, some at a time; never one alone, which BatchNorm refuses."""
        examples = self._splits["train"]
        size = examples.bounded(EVALUATION_BATCH)
        while size > 2 and len(examples) % size == 1:
            size -= 1
        return examples.in_order(size)

    def _counted(self, module: Any, x: Any, y: Any) -> tuple[Tensor, Tensor | int]:
        """Return the task's loss on a batch as a sum, and what it is to be divided by."""
        return self.task.loss(self.task.outputs(module, x), y)

    def _method(self, settings: LocalTraining) -> Method | None:
        """Return how a training by these settings draws batches and takes steps; None is the usual way."""
        return None

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
        with self.randomness("gradient"):
            batches = iter([batch]) if batch is not None else self._all_examples()
            run = training_loop.gradient(self.model, batches, w, self.objective, self._divided)
        if track:
            self.learned_statistics = self._learned()
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
        found, size = self._examples(split), self._evaluation_batch
        return evaluate(self.model, w, found, self.task, self.own_objective, size)

    def loss(self, w: Tensor) -> float:
        """Return the mean of the objective at w, shape [P], over the training examples."""
        self._begin_pass()
        return mean_loss(self.model, w, self._splits["train"], self.objective, counted=self._divided)

    def frequencies(self) -> Tensor:
        """Return the share of training examples in which each feature,
        as models see it, is not 0, shape [features]."""
        counts = sum((x != 0).sum(0) for x, _ in self._splits["train"].in_order(EVALUATION_BATCH))
        return torch.as_tensor(counts).reshape(-1).double() / self.examples

    @property
    def importance(self) -> float:
        """How many times more the silo weighs in the objective than its updates do.

        `mean.weight / cohort.weight` times the mean of importance times v_k so is sum_k p_k v_k over who
        answered.
        """
        return float(self.examples) if self.reweighed else 1.0

    def split(self, name: str) -> Examples:
        """Return a split's examples as a torch `Dataset`; InputError where the silo has no such split."""
        return Examples(self._examples(name))

    def predict(self, split: str) -> Tensor:
        """Return the outputs of the module for a split's examples, shape [n, ...], on the CPU; see `module`.

        `silo.task.predict` makes probabilities of them.
        """
        found = functools.partial(outputs, self.module, self.task, self._examples(split))
        return as_fits(self.model, self._evaluation_batch, found)

    def _examples(self, split: str) -> Batches:
        if split not in self._splits:
            raise InputError(f"split '{split}': this silo has none; {choices(split, self._splits, 'take')}")
        return self._splits[split]

    def has(self, split: str) -> bool:
        """Return whether the silo has examples of a split."""
        return split in self._splits and len(self._splits[split]) > 0

    @property
    def held_out(self) -> str | None:
        """The split to judge a model by: `test` if the silo has one, else `valid`, else none."""
        return held_out({name: len(split) for name, split in self._splits.items()})
