"""A model that a silo is lent: which weights are in it, and what a loop of the user's own makes of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from mpifl.common import InputError, rng
from mpifl.silo import Answering
from mpifl.silo.parameters.flat_model import Allocate, FlatModel


class Lent(Answering):
    """What one silo has of a lent model during one request, and its random streams."""

    def __init__(
        self, id: int, models: Sequence[FlatModel], round: int, seed: int, allocate: Allocate
    ) -> None:
        super().__init__(id, round, seed)
        self.model = models[0]
        self.learned_statistics: Tensor | None = None
        self.received: dict[str, Tensor] = {}
        self._models = models
        self._allocate = allocate
        self._filled = False
        self._start: Tensor | None = None

    def take(self, architecture: int) -> FlatModel:
        """Have the model of another of the algorithm's architectures lent,
        0 being the job's `[model]`; return it."""
        self.model, self._filled, self._start = self._models[architecture], False, None
        return self.model

    @contextlib.contextmanager
    def loaded(self, w: Tensor, statistics: Tensor | None = None) -> Iterator[nn.Module]:
        """Lend the module with w, shape [P], in it, in training mode, for a training loop of one's own.

        Meanwhile, what draws from torch's global stream (dropout, a DataLoader without a generator) draws a
        derived one.

        Args:
            w: Where to start; `delta` says what came of it.
            statistics: Running statistics to start from, where not the server's.

        Raises:
            InputError: w has another length than the model's parameters.
        """
        if w.shape != self.model.trained.shape:
            found, wanted = list(w.shape), list(self.model.trained.shape)
            raise InputError(f"silo.loaded: w has shape {found}, the model's parameters have {wanted}")
        self._begin_pass(statistics)
        self.model.trained.copy_(w)
        self._start = w
        with self.randomness("loop"):
            yield self.module.train()

    def delta(self) -> Tensor:
        """Return how the parameters have changed since `loaded`, shape [P].

        Running statistics that the loop has changed go to the server beside the update.

        Raises:
            InputError: nothing was loaded, or something else has used the model since.
        """
        if self._start is None:
            to_do = "train within `with silo.loaded(w) as module:`, and ask before the model is used again"
            raise InputError(f"silo.delta: the model holds nothing of a loop of one's own; {to_do}")
        self.model.reclaim()
        self.learned_statistics = self._learned()
        return self.model.delta(self._start, self._allocate)

    @property
    def module(self) -> nn.Module:
        """The lent module, with the weights that it was given last; InputError before it was given any."""
        if not self._filled:
            to_do = "load weights by `with silo.loaded(w) as module:` first"
            raise InputError(f"silo.module: holds nothing of this silo yet; {to_do}")
        return self.model.module

    @functools.cached_property
    def generator(self) -> torch.Generator:
        """The random stream of this round that a loop of one's own draws from, on the CPU."""
        return self.stream("loop")

    def randomness(self, purpose: str) -> AbstractContextManager[torch.Generator]:
        """Lend the stream of a purpose;
        what draws from torch's global stream (dropout) draws a derived one."""
        of = rng.turn(self.id, self.round, self.turn)
        return rng.scope(self._seed, purpose, *of, device=self.model.device)

    def _learned(self) -> Tensor:
        """Return the running statistics as training has left them."""
        return self.model.learned()

    def _begin_pass(self, statistics: Tensor | None = None) -> None:
        """Start from given running statistics or the server's, and from all other buffers as the model is
        built, whatever an earlier pass has left in it."""
        self.model.put_back(self.received.get("statistics") if statistics is None else statistics)
        self._filled, self._start = True, None
