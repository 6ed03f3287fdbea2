"""Scoring several batches at once, on the cores of ranks that wait meanwhile.

Each lane scores one batch at a time, with as many torch threads as without lanes. Results come in the order
of the batches. So no figure depends on the number of lanes.
"""

from __future__ import annotations

import copy
import itertools
import os
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

Given = TypeVar("Given")
Made = TypeVar("Made")
MOST = 8
"""The largest number of lanes. Each lane holds a model's activations for a batch."""


@dataclass(frozen=True)
class Lanes:
    """The number of batches that are scored at once, and their cores.

    Attributes:
        count: The number of lanes.
        cores: The cores that lanes may use; an empty set means the cores of the process.
    """

    count: int = 1
    cores: frozenset[int] = frozenset()

    def each(
        self, module: nn.Module, act: Callable[[nn.Module, Given], Made], batches: Iterable[Given]
    ) -> Iterator[Made]:
        """Yield `act(module, batch)` for each batch, in order; no gradients are computed."""
        modules = _twins(module, min(self.count, MOST)) if self.count > 1 else [module]
        if len(modules) == 1:
            return (act(module, batch) for batch in batches)
        return self._abreast(modules, act, batches)

    def _abreast(
        self, modules: list[nn.Module], act: Callable[[nn.Module, Given], Made], batches: Iterable[Given]
    ) -> Iterator[Made]:
        idle: queue.SimpleQueue[nn.Module] = queue.SimpleQueue()
        for module in modules:
            idle.put(module)

        def one(batch: Given) -> Made:
            module = idle.get()
            try:
                with torch.no_grad():
                    return act(module, batch)
            finally:
                idle.put(module)

        waiting: deque[Future[Made]] = deque()
        with ThreadPoolExecutor(len(modules), initializer=self._settle) as pool:
            for batch in batches:
                waiting.append(pool.submit(one, batch))
                if len(waiting) > len(modules):
                    yield waiting.popleft().result()
            for future in waiting:
                yield future.result()

    def _settle(self) -> None:
        """Let a new thread use the cores of the lanes."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)


ALONE = Lanes()


def _twins(module: nn.Module, count: int) -> list[nn.Module]:
    """Return a module and copies of it that share its tensors. A forward pass may write attributes of its
    module, so each lane has its own copy. If the module cannot be copied, return it alone."""
    tensors = list(itertools.chain(module.parameters(), module.buffers()))
    try:
        more = [copy.deepcopy(module, {id(tensor): tensor for tensor in tensors}) for _ in range(count - 1)]
    except Exception:  # a user's module may raise anything
        return [module]
    return [module, *more]
