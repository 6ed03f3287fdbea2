"""One part of a split network: a model, the optimizer that steps it, and what both keep from round to
round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import OPTIMIZERS, LocalTraining, steps_of

OPTIMIZER = "optimizer"
"""What the names of an optimizer's state begin with, in a state."""


class NetworkPart:
    """One part of a split network in one round.

    Args:
        model: The part; what is in it is gone afterwards.
        local: The job's `[local]`. The optimizer goes on over all rounds.
        round: The round, counted from 0.
        steps: How many steps it takes in a round.
        state: What was kept of it; where that is nothing, the part is as the model was built.
    """

    def __init__(
        self, model: FlatModel, local: LocalTraining, round: int, steps: int, state: Mapping[str, Any]
    ) -> None:
        self.model, at_round = model, local.at_round(round)
        self._found: tuple[Tensor, ...] = ()
        made = OPTIMIZERS[local.optimizer]
        self._optimizer = made(at_round, model.trained)
        self._schedule, self._taken = at_round.schedule_of(round, steps), 0
        vectors = [state[f"{OPTIMIZER} {i}"] for i in range(made.vectors(local))]
        self._optimizer.resume(vectors, int(state[f"{OPTIMIZER} steps"]))
        load(model, state)

    def learn(self, outputs: Tensor, gradient: Tensor | None = None) -> None:
        """Take one step; see `gradients`."""
        self.gradients(outputs, gradient)
        self.step()

    def gradients(
        self, outputs: Tensor, gradient: Tensor | None = None, inputs: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """Take the gradients of a step that is still to be taken, and return those for the inputs.

        Args:
            outputs: What the model made.
            gradient: Of what is minimised, for the outputs; none where these are what is minimised.
            inputs: What the outputs were made of.
        """
        leaves = [*self.model.parameters, *inputs]
        found = torch.autograd.grad(outputs, leaves, gradient, allow_unused=True, materialize_grads=True)
        count = len(self.model.parameters)
        self._found = found[:count]
        return found[count:]

    def step(self) -> None:
        """Take the step."""
        if self._found:
            gradient, lr = self.model.flatten(self._found), self._schedule.lr(self._taken)
            self._optimizer.step(self.model.trained, gradient, lr)
            self._taken += 1

    def kept(self) -> dict[str, Tensor | int]:
        """Return what is to be kept of it."""
        found: dict[str, Tensor | int] = {"w": self.model.trained}
        found |= {f"{OPTIMIZER} {i}": vector for i, vector in enumerate(self._optimizer.state)}
        return {**found, f"{OPTIMIZER} steps": self._optimizer.steps, **_statistics_of(self.model)}


def begun(model: FlatModel, local: LocalTraining) -> dict[str, Tensor | int]:
    """Return the state of a part that has learned nothing yet."""
    vectors = range(OPTIMIZERS[local.optimizer].vectors(local))
    moments = {f"{OPTIMIZER} {i}": torch.zeros_like(model.trained) for i in vectors}
    return {"w": model.trained.clone(), **moments, f"{OPTIMIZER} steps": 0, **_statistics_of(model)}


def load(model: FlatModel, state: Mapping[str, Any]) -> None:
    """Put what was kept of a part into its model."""
    model.trained.copy_(state["w"])
    model.put_back(state.get("statistics"))


def _statistics_of(model: FlatModel) -> dict[str, Tensor]:
    learned = model.learned()
    return {"statistics": learned} if len(learned) else {}


def order(local: LocalTraining, examples: int, seed: int, round: int) -> Iterator[Tensor]:
    """Yield the rows of each batch of a round, shape [n]: the same at all who know the seed."""
    local = local.at_round(round)
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    stream, left = rng.torch_stream(seed, "rows", round), steps_of(local, examples)
    whole = examples // size * size if local.drop_last else examples
    while left:
        rows = torch.randperm(examples, generator=stream) if size < examples else torch.arange(examples)
        for batch in torch.split(rows[:whole], size)[:left]:
            yield batch
            left -= 1
