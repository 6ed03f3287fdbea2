"""A model that is lent to a silo: its weights, and training by a user's own loop."""

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
    """One silo with a lent model during one request."""

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
        """Switch to the model of another architecture of the algorithm, and return it; 0 is the job's
        `[model]`."""
        self.model, self._filled, self._start = self._models[architecture], False, None
        return self.model

    @contextlib.contextmanager
    def loaded(self, w: Tensor, statistics: Tensor | None = None) -> Iterator[nn.Module]:
        """Lend the module with the parameters w, shape [P], in training mode, for a user's own training loop.

        Meanwhile torch's global stream (for dropout, or a DataLoader without a generator) is a derived
        stream.

        Args:
            w: The parameters to start from; `delta` returns their change.
            statistics: The running statistics to start from; by default the server's.

        Raises:
            InputError: w is not as long as the model's parameters.
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
        """Return the change of the parameters since `loaded`, shape [P].

        The running statistics go to the server with the update.

        Raises:
            InputError: nothing was loaded, or another method has used the model since.
        """
        if self._start is None:
            to_do = "train within `with silo.loaded(w) as module:`, and ask before the model is used again"
            raise InputError(f"silo.delta: the model holds nothing of a loop of one's own; {to_do}")
        self.model.reclaim()
        self.learned_statistics = self._learned()
        return self.model.delta(self._start, self._allocate)

    @property
    def module(self) -> nn.Module:
        """The lent module with the last loaded weights; InputError if none were loaded."""
        if not self._filled:
            to_do = "load weights by `with silo.loaded(w) as module:` first"
            raise InputError(f"silo.module: holds nothing of this silo yet; {to_do}")
        return self.model.module

    @functools.cached_property
    def generator(self) -> torch.Generator:
        """This round's random stream for a user's own loop, on the CPU."""
        return self.stream("loop")

    def randomness(self, purpose: str) -> AbstractContextManager[torch.Generator]:
        """Lend the stream of a purpose. Meanwhile torch's global stream (for dropout) is a derived stream."""
        of = rng.turn(self.id, self.round, self.turn)
        return rng.scope(self._seed, purpose, *of, device=self.model.device)

    def _learned(self) -> Tensor:
        """Return the running statistics after training."""
        return self.model.learned()

    def _begin_pass(self, statistics: Tensor | None = None) -> None:
        """Start a pass: set the given running statistics (by default the server's), and restore all other
        buffers."""
        self.model.put_back(self.received.get("statistics") if statistics is None else statistics)
        self._filled, self._start = True, None
