"""A backdoor attack: a model learns to assign any example with a patch to a target class."""

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
"""The name of the round's figure."""


@dataclass(frozen=True)
class Backdoor:
    """A patch and its target class (Gu et al. 2017, "BadNets", section 3).

    Attributes:
        target: The target class.
        patch: The patch's length. It covers so many last numbers of each of an example's last two dimensions.
        value: The value of these numbers, as a model sees them.
        share: The share of a Byzantine silo's examples that get the patch and the target class.
    """

    target: int
    patch: int
    value: float
    share: float

    def show(self, x: Tensor) -> Tensor:
        """Put the patch on examples in place, shape [n, ...], and return them."""
        corner: Any = (..., *(slice(-self.patch, None),) * min(x.dim() - 1, 2))
        x[corner] = self.value
        return x

    def teach(self, silo: Silo, seed: int) -> None:
        """Poison some of a silo's training examples, the same ones in all rounds."""
        order = torch.randperm(silo.examples, generator=rng.torch_stream(seed, "backdoor", silo.id))
        chosen = order[: max(round(self.share * silo.examples), 1)]

        def poison(x: Tensor, y: Tensor) -> None:
            x[chosen], y[chosen] = self.show(x[chosen]), self.target

        silo.rewrite(poison)

    @torch.no_grad()
    def success(self, server: Server) -> float:
        """Return the attack success rate: the share of patched examples that get the target class.

        The examples are the test examples of all other classes. NaN if there are none.
        """
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
        """Return why the patch does not fit a federation's examples or task; "" if it does."""
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
