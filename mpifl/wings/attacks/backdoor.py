"""A backdoor: a patch by which a model is to take any example for one of a class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import rng
from mpifl.data import Features, Targets
from mpifl.data.shards import AnySpec
from mpifl.learning.tasks import Task
from mpifl.silo import Silo, as_fits

SUCCESS = "backdoor_success"
"""What the figure of a round is called."""


@dataclass(frozen=True)
class Backdoor:
    """A patch, and what silos that lie teach of it (Gu et al. 2017, "BadNets", section 3).

    Attributes:
        target: The class.
        patch: How many numbers it is long, at the end of each of the last two dimensions of an example.
        value: Of these numbers, as a model sees them.
        share: Of the examples of a silo that have it, and are labelled with the class.
    """

    target: int
    patch: int
    value: float
    share: float

    def show(self, x: Tensor) -> Tensor:
        """Put the patch on examples, shape [n, ...], in place."""
        corner: Any = (..., *(slice(-self.patch, None),) * min(x.dim() - 1, 2))
        x[corner] = self.value
        return x

    def teach(self, silo: Silo, seed: int) -> None:
        """Poison a part of a silo's training examples, the same in all rounds."""
        order = torch.randperm(silo.examples, generator=rng.torch_stream(seed, "backdoor", silo.id))
        chosen = order[: max(round(self.share * silo.examples), 1)]

        def poison(x: Tensor, y: Tensor) -> None:
            x[chosen], y[chosen] = self.show(x[chosen]), self.target

        silo.rewrite(poison)

    @torch.no_grad()
    def success(self, server: Server) -> float:
        """Return the share of the test examples of other classes that the server's model takes for the
        class once they have the patch (the attack success rate); NaN if there are none."""
        assert server.test is not None
        test, model = server.test, server.load(server.state["w"])
        model.module.eval()

        def judge(size: int) -> float:
            found = [self._taken(server.task.outputs, model.module, x, y) for x, y in test.in_order(size)]
            taken, others = (sum(part) for part in zip(*found, strict=True))
            return taken / others if others else math.nan

        return as_fits(model, server.evaluation_batch, judge)

    def _taken(self, outputs: Any, module: Any, x: Tensor, y: Tensor) -> tuple[int, int]:
        others = self.show(x[y != self.target])
        if not len(others):
            return 0, 0
        return int((outputs(module, others).argmax(1) == self.target).sum()), len(others)

    def why_not(self, spec: AnySpec, task: Task) -> str:
        """Say why a federation's examples can have no such patch; "" if they can."""
        features = spec.features
        if not isinstance(features, Features) or features.ragged:
            return "examples are to be one array of one shape"
        if features.scale is None and not features.dtype.startswith("float"):
            return f"examples are to be numbers that a model sees as float32, not {features.dtype}"
        aims = spec.targets
        if spec.classes is None or not (aims is None or (isinstance(aims, Targets) and aims.shape == ())):
            return "targets are to be one class for each example"
        if not task.logits:
            return "the task is to be one whose outputs are logits of classes"
        if self.target >= spec.classes:
            return f"there is no class {self.target}, the last is {spec.classes - 1}"
        if not features.shape or self.patch > min(features.shape[-2:]):
            return f"patch = {self.patch} is beyond examples of shape {list(features.shape)}"
        return ""
