"""A silo with some columns of the rows that all silos share. It holds a bottom of the split network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.common import noted, rng
from mpifl.data import Features
from mpifl.data.batches import Batches
from mpifl.data.shards import Shard
from mpifl.learning.tasks import tensor_of
from mpifl.silo import Answering, placed
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import EVALUATION_BATCH, EvaluationBatch, LocalTraining, steps_of
from mpifl.wings.split.network_part import NetworkPart, begun, load, order


@dataclass(frozen=True)
class Bottom:
    """A silo's bottom: its model, its first state, and its inputs.

    Attributes:
        first: Its state before training.
        features: The shape and dtype of the silo's columns of one row.
        holds_labels: Whether the silo's site has the labels, and so the top.
    """

    model: FlatModel
    first: Mapping[str, Any]
    features: Features
    holds_labels: bool

    @classmethod
    def of(cls, model: FlatModel, local: LocalTraining, features: Features, *, holds_labels: bool) -> Bottom:
        """Return a bottom before any training."""
        return cls(model, begun(model, local), features, holds_labels)


class ColumnSilo(Answering):
    """One silo during one request.

    Args:
        id: Its number in the federation.
        shard: Its columns.
        bottom: Its part of the network.
        state: What it kept in earlier rounds.
        round: The round of the request.
        seed: The job's seed.
        evaluation_batch: How many rows are scored at a time.

    Attributes:
        model: The bottom; its parameters are lost when the request is done.
        holds_labels: Whether its site has the labels, and so the top.
    """

    def __init__(
        self,
        id: int,
        shard: Shard,
        bottom: Bottom,
        *,
        state: Mapping[str, Any],
        round: int = 0,
        seed: int = 0,
        evaluation_batch: EvaluationBatch = EVALUATION_BATCH,
    ) -> None:
        super().__init__(id, round, seed)
        self.model = bottom.model
        self.state, self.kept, self.weight = placed(state, self.model.device), {}, 1.0
        self.holds_labels = bottom.holds_labels
        self._first, self._size = bottom.first, evaluation_batch
        self._splits = {
            name: Batches(split, bottom.features, self.model.device) for name, split in shard.splits.items()
        }
        self._passes = 0

    @property
    def bottom_state(self) -> Mapping[str, Any]:
        """The kept state of the bottom, or its first state if nothing was kept."""
        return self.state if "w" in self.state else self._first

    def part(self, local: LocalTraining, times: int = 1) -> NetworkPart:
        """Return its bottom, ready to train in this round with `times` steps a batch."""
        steps = steps_of(local.at_round(self.round), len(self._splits["train"])) * times
        part = NetworkPart(self.model, local, self.round, steps, self.bottom_state)
        self.model.module.train()
        return part

    def batches(self, local: LocalTraining) -> Iterator[Tensor]:
        """Yield its columns of each batch of the round, shape [rows, ...]; all silos use the same rows."""
        train = self._splits["train"]
        return (train.inputs(rows) for rows in order(local, len(train), self._seed, self.round))

    def forward(self, x: Tensor) -> Tensor:
        """Return the bottom's activations for its columns of some rows, shape [rows, width].

        During the pass torch's global stream, which dropout draws from, has a seed derived for this pass.
        """
        self._passes += 1
        index = (self.id, self.round, self._passes)
        where = noted(lambda: f"round {self.round + 1}, step {self._passes}")
        with where, rng.inside(self._seed, "bottom", *index, device=self.model.device):
            made: Tensor = tensor_of(self.model.module(x))
        return made

    @torch.no_grad()
    def lines(self, split: str) -> Iterator[Tensor]:
        """Yield the bottom's activations for a split's rows, in order, `evaluation_batch` rows at a time."""
        load(self.model, self.bottom_state)
        self.model.module.eval()
        held = self._splits[split]
        for rows in in_order(len(held), self._size):
            yield tensor_of(self.model.module(held.inputs(rows)))


def in_order(examples: int, size: EvaluationBatch) -> tuple[Tensor, ...]:
    """Return the rows of a split in order, `size` rows at a time. All silos get the same chunks."""
    return torch.split(torch.arange(examples), EVALUATION_BATCH if size == "auto" else size)
