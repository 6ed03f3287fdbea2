"""The task of survival: the time of an event that not every example has had yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from mpifl.data import check_times
from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import RISKS
from mpifl.learning.tasks.federation_view import TaskFacts
from mpifl.learning.tasks.losses import Summed, cox
from mpifl.learning.tasks.named import PackageTask

NO_EVENT = "all rows are censored: no event is 1"


class Survival(PackageTask):
    """Cox regression (Cox 1972) on the risk sets of a batch, judged by concordance.

    Outputs are logarithms of hazard ratios, shape [n, 1] or [n]. Targets have the shape [n, 2], or are named
    `time` and `event`. `event` is 1 if the event was at that time, 0 if nothing later is known.
    """

    kind = "survival"
    losses: ClassVar[dict[str, Any]] = {"cox": cox}
    catalogue = RISKS
    takes = "values of shape [2], the time and the event (0 or 1), or arrays of these names"
    usual = ("c_index",)

    _of_all: bool = PrivateAttr(default=False)

    def of_all_silos(self) -> Survival:
        """Return the task for sums over all silos: a silo's rows may all be censored."""
        told = self.model_copy()
        told._of_all = True
        return told

    @property
    def places(self) -> tuple[int, ...]:
        """A target has no dimensions: each example has one risk."""
        return ()

    def loss(self, outputs: Tensor, y: Tensor | Mapping[str, Tensor]) -> Summed:
        """Return the negative log partial likelihood of a batch, and its number of events."""
        pairs = times_and_events(y)
        return super().loss(outputs.reshape(len(pairs)), pairs)

    def why_no_mean(self) -> str:
        """Return the reason: the loss compares examples."""
        own = self.criterion not in self.losses.values()
        what = "compares each example with all that are at risk; use a loss of single examples"
        return "" if own else what

    def scored(self, outputs: Tensor, y: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return risks, shape [n], and targets, shape [n, 2]."""
        return self.predict(outputs).reshape(-1), times_and_events(y)

    def width(self, spec: AnySpec) -> int:
        """Return 1: the risk."""
        return 1

    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""
        return facts.names == ("event", "time") or (facts.classes is None and facts.shape == (2,))

    def check_targets(self, split: str, y: Any) -> None:
        """Check that no time is negative, that float32 keeps times apart, that each event is 0 or 1, and that
        a silo that trains has one."""
        time, event = (y["time"], y["event"]) if isinstance(y, Mapping) else y.T
        for name, values, bad, what in (
            ("time", time, time < 0, "is negative"),
            ("event", event, (event != 0) & (event != 1), "is neither 0 nor 1"),
        ):
            if bad.any():
                row = int(bad.argmax())
                raise ValueError(f"{name} = {values[row]:g} in row {row} {what}")
        check_times(np.asarray(time))
        if split == "train" and not self._of_all and not event.any():
            raise ValueError(f"{NO_EVENT}, and nothing can be learned of them")


def times_and_events(y: Tensor | Mapping[str, Tensor]) -> Tensor:
    """Return targets of survival as one tensor, shape [n, 2]: times, and events as 0 or 1."""
    if isinstance(y, Tensor):
        return y
    return torch.stack([y["time"], y["event"].to(y["time"])], 1)
