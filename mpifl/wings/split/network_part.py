"""One part of a split network: a model, its optimizer, and what both keep from round to round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import OPTIMIZERS, LocalTraining, steps_of

OPTIMIZER = "optimizer"
"""The prefix of the optimizer's entries in a state."""


class NetworkPart:
    """One part of a split network in one round.

    Args:
        model: The part; its parameters are overwritten by those in `state`.
        local: The job's `[local]`. The optimizer's state goes on over all rounds.
        round: The round, counted from 0.
        steps: How many steps the part takes in a round.
        state: The state that `kept` returned last, or that `begun` made.
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
        """Compute the gradients and take one step; see `gradients`."""
        self.gradients(outputs, gradient)
        self.step()

    def gradients(
        self, outputs: Tensor, gradient: Tensor | None = None, inputs: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """Compute the gradients for the next `step`, and return the gradients for the inputs.

        Args:
            outputs: The model's outputs.
            gradient: The gradient of the loss for the outputs; None if the outputs are the loss.
            inputs: The tensors that the outputs were computed from.
        """
        leaves = [*self.model.parameters, *inputs]
        found = torch.autograd.grad(outputs, leaves, gradient, allow_unused=True, materialize_grads=True)
        count = len(self.model.parameters)
        self._found = found[:count]
        return found[count:]

    def step(self) -> None:
        """Take the step by the gradients that were computed last."""
        if self._found:
            gradient, lr = self.model.flatten(self._found), self._schedule.lr(self._taken)
            self._optimizer.step(self.model.trained, gradient, lr)
            self._taken += 1

    def kept(self) -> dict[str, Tensor | int]:
        """Return the state to keep for the next round."""
        found: dict[str, Tensor | int] = {"w": self.model.trained}
        found |= {f"{OPTIMIZER} {i}": vector for i, vector in enumerate(self._optimizer.state)}
        return {**found, f"{OPTIMIZER} steps": self._optimizer.steps, **_statistics_of(self.model)}


def begun(model: FlatModel, local: LocalTraining) -> dict[str, Tensor | int]:
    """Return the first state of a part, before any training."""
    vectors = range(OPTIMIZERS[local.optimizer].vectors(local))
    moments = {f"{OPTIMIZER} {i}": torch.zeros_like(model.trained) for i in vectors}
    return {"w": model.trained.clone(), **moments, f"{OPTIMIZER} steps": 0, **_statistics_of(model)}


def load(model: FlatModel, state: Mapping[str, Any]) -> None:
    """Put a part's kept state into its model."""
    model.trained.copy_(state["w"])
    model.put_back(state.get("statistics"))


def _statistics_of(model: FlatModel) -> dict[str, Tensor]:
    learned = model.learned()
    return {"statistics": learned} if len(learned) else {}


def order(local: LocalTraining, examples: int, seed: int, round: int) -> Iterator[Tensor]:
    """Yield the rows of each batch of a round, shape [n]. Parties that know the seed get the same rows."""
    local = local.at_round(round)
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    stream, left = rng.torch_stream(seed, "rows", round), steps_of(local, examples)
    whole = examples // size * size if local.drop_last else examples
    while left:
        rows = torch.randperm(examples, generator=stream) if size < examples else torch.arange(examples)
        for batch in torch.split(rows[:whole], size)[:left]:
            yield batch
            left -= 1
