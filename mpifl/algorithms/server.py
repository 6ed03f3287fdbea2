"""The server: the state of the training, and what it can do without silos."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.data.batches import Batches
from mpifl.learning.tasks import CLASSIFICATION, Task, tensor_of
from mpifl.silo import ALONE, Lanes, Score, evaluate
from mpifl.silo.parameters import FlatModel, Objective
from mpifl.silo.steps import (
    EVALUATION_BATCH,
    EvaluationBatch,
    LocalRun,
    LocalTraining,
    Loss,
    Training,
    Trains,
    train,
)


def scored_here(server: Server, w: Tensor) -> Score:
    """Score the model w, shape [shared], on the test set, on this rank."""
    assert server.test is not None
    server.load(w)
    how = server.task, server.own_objective, server.evaluation_batch, server.lanes
    return evaluate(server.model, server.model.trained, server.test, *how)


@dataclass
class Server:
    """The server's models, data and state on rank 0.

    Attributes:
        models: The architectures; the first is the job's. They have initial weights until others are loaded.
        seed: The job's seed.
        state: All that the training has learned: tensors on the host and numbers by name. `w` has shape [P].
        round: The number of rounds done.
        test: The global test set, or None.
        public: Examples that belong to no silo, or None.
        own_objective: The objective whose mean is the reported loss, or None for the task's loss.
        task: The task: the loss, and the metrics that score a model.
        evaluation_batch: Examples that are scored at a time.
        lanes: How many batches of the test set are scored at once.
        scored_by: Scores a model on the test set; by default on this rank.
        trains: Carries out the server's own trainings.
    """

    models: Sequence[FlatModel]
    seed: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    round: int = 0
    test: Batches | None = None
    public: Batches | None = None
    own_objective: Objective | None = None
    task: Task = CLASSIFICATION
    evaluation_batch: EvaluationBatch = EVALUATION_BATCH
    lanes: Lanes = ALONE
    scored_by: Callable[[Server, Tensor], Score] = scored_here
    trains: Trains = train

    @property
    def model(self) -> FlatModel:
        """The job's model."""
        return self.models[0]

    @property
    def judges(self) -> bool:
        """Whether the server can score a model: it has a test set, and no part of the model is personal."""
        own = len(self.model.personal) or len(self.model.personal_statistics)
        return self.test is not None and not own

    def begun(self, begin: Callable[[Server], None]) -> dict[str, Any]:
        """Return a training's first state: `begin` fills it, and running statistics are added.

        The models must have their initial weights. Afterwards the server's own state is empty. The returned
        state is on the host, whatever the models' device.
        """
        self.state = {}
        begin(self)
        if len(self.model.statistics):
            self.state["statistics"] = self.model.statistics.read()
        found, self.state = self.state, {}
        return {name: one.cpu() if isinstance(one, Tensor) else one for name, one in found.items()}

    def evaluate(self, w: Tensor) -> Score | None:
        """Score the model w, shape [shared], on the test set; None without a test set, or if a part of the
        model is personal."""
        if self.test is None or not self.judges:
            return None
        return self.scored_by(self, w)

    @property
    def shared_state(self) -> dict[str, Tensor]:
        """The entries of the state that make the shared model: w, and running statistics if there are any."""
        return {name: self.state[name] for name in ("w", "statistics") if name in self.state}

    @contextlib.contextmanager
    def holding(self, entries: Mapping[str, Any]) -> Iterator[FlatModel]:
        """Let these entries of the state stand in for the present ones until the context ends.

        Yields:
            The model with w and running statistics of this state.
        """
        state = self.state
        self.state = {**state, **entries}
        try:
            yield self.load(self.state["w"])
        finally:
            self.state = state

    @torch.no_grad()
    def public_logits(self) -> int:
        """Return the number of logits that a model has for all public examples."""
        assert self.public is not None
        one, _ = next(self.public.in_order(1))
        return len(self.public) * int(tensor_of(self.model.module.eval()(one)).numel())

    def train(
        self,
        w: Tensor,
        settings: LocalTraining,
        objective: Objective,
        beside: Sequence[Tensor],
        architecture: int = 0,
    ) -> LocalRun:
        """Train a model from w, shape [P], on the public examples; see `Training`.

        Running statistics start from the server's, and become the server's after training. Arguments and
        results are on the host.
        """
        assert self.public is not None
        model = self.models[architecture] if architecture else self.load(w)
        if architecture:
            model.put_back()
        start, *others = (one.to(model.device) for one in (w, *beside))
        with rng.scope(self.seed, "public", architecture, self.round, device=model.device) as order:
            given = model, self.public, start, settings, Loss(objective), order
            run = self.trains(Training(*given, beside=others, round=self.round))
        learned = model.learned()
        if "statistics" in self.state:
            self.state["statistics"] = learned.cpu()
        return replace(run, delta=run.delta.cpu(), ended=run.end.cpu())

    def load(self, w: Tensor) -> FlatModel:
        """Load w, shape [shared], the server's running statistics and initial personal parts into the model;
        return it."""
        self.model.shared.copy_(w)
        own, statistics = self.model.initial_personal
        self.model.personal.copy_(own)
        self.model.put_back(self.state.get("statistics"))
        self.model.personal_statistics.write(statistics)
        return self.model
