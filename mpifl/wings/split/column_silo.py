"""A silo that has some columns of rows that all silos have: it holds the bottom of a split network."""

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
from mpifl.silo import Answering, placed
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import EVALUATION_BATCH, EvaluationBatch, LocalTraining, steps_of
from mpifl.wings.split.network_part import NetworkPart, begun, load, order


@dataclass(frozen=True)
class Bottom:
    """A silo's bottom as it is built: its model, its first state, and what it is given.

    Attributes:
        features: What the silo's columns of one row are.
        holds_labels: Whether the silo's site has the labels, and so the top.
    """

    model: FlatModel
    first: Mapping[str, Any]
    features: Features
    holds_labels: bool

    @classmethod
    def of(cls, model: FlatModel, local: LocalTraining, features: Features, *, holds_labels: bool) -> Bottom:
        """Return a bottom that has learned nothing yet."""
        return cls(model, begun(model, local), features, holds_labels)


class ColumnSilo(Answering):
    """One silo during one request.

    Args:
        id: Its number in the federation.
        shard: Its columns.
        bottom: Its part of the network.
        state: What it kept in rounds before.
        round: The round that is asked.
        seed: The job's.
        evaluation_batch: Rows that are scored at a time.

    Attributes:
        model: The bottom; what is in it is gone when the work is done.
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
        """What was kept of the bottom, its first state where that is nothing."""
        return self.state if "w" in self.state else self._first

    def part(self, local: LocalTraining, times: int = 1) -> NetworkPart:
        """Return its bottom, to be trained in this round with so many steps a batch."""
        steps = steps_of(local.at_round(self.round), len(self._splits["train"])) * times
        part = NetworkPart(self.model, local, self.round, steps, self.bottom_state)
        self.model.module.train()
        return part

    def batches(self, local: LocalTraining) -> Iterator[Tensor]:
        """Yield its columns of each batch of the round, shape [rows, ...]; all silos have the same rows."""
        train = self._splits["train"]
        return (train.inputs(rows) for rows in order(local, len(train), self._seed, self.round))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the bottom makes of its columns of some rows, shape [rows, width].

        What draws from torch's global stream (dropout) draws one derived for this pass.
        """
        self._passes += 1
        index = (self.id, self.round, self._passes)
        where = noted(lambda: f"round {self.round + 1}, step {self._passes}")
        with where, rng.inside(self._seed, "bottom", *index, device=self.model.device):
            made: Tensor = self.model.module(x)
        return made

    @torch.no_grad()
    def lines(self, split: str) -> Iterator[Tensor]:
        """Yield what the bottom makes of a split's rows in their order, so many at a time."""
        load(self.model, self.bottom_state)
        self.model.module.eval()
        held = self._splits[split]
        for rows in in_order(len(held), self._size):
            yield self.model.module(held.inputs(rows))


def in_order(examples: int, size: EvaluationBatch) -> tuple[Tensor, ...]:
    """Return the rows of a split in their order, so many at a time: the same at all silos."""
    return torch.split(torch.arange(examples), EVALUATION_BATCH if size == "auto" else size)
