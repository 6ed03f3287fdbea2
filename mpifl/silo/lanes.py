"""Batches that are scored at once, on the cores of ranks that wait meanwhile.

Each batch is one lane's, and torch takes as many threads for it as without lanes. Results come in the order
of the batches. So no figure depends on how many lanes there are.
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
"""Lanes: each holds what a model makes of a batch."""


@dataclass(frozen=True)
class Lanes:
    """How many batches are scored at once, and where.

    Attributes:
        count: How many.
        cores: Those that lanes may use; none means those of the process.
    """

    count: int = 1
    cores: frozenset[int] = frozenset()

    def each(
        self, module: nn.Module, act: Callable[[nn.Module, Given], Made], batches: Iterable[Given]
    ) -> Iterator[Made]:
        """Yield what `act` makes of each batch by a module, in order; no gradients are taken."""
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
        """Let the thread that begins use the cores of the lanes."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)


ALONE = Lanes()


def _twins(module: nn.Module, count: int) -> list[nn.Module]:
    """Return a module, and others with its very tensors, whose forward passes do not meet: one of the user's
    may leave something in itself. Of one that cannot be copied there is one alone."""
    tensors = list(itertools.chain(module.parameters(), module.buffers()))
    try:
        more = [copy.deepcopy(module, {id(tensor): tensor for tensor in tensors}) for _ in range(count - 1)]
    except Exception:  # whatever a module of the user's says to that
        return [module]
    return [module, *more]
