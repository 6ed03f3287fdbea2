"""The server's optimizers: a step along the cohort's mean delta, over one flat vector.

Moments are in the server's state beside w, so checkpoints hold them without special code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from mpifl.silo.steps import LARGEST

State = dict[str, Any]
Share = Annotated[float, Field(ge=0, lt=1)]


class ServerOptimizer(BaseModel, ABC):
    """The `[server_optimizer]` table of a job."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    moments: ClassVar[frozenset[str]] = frozenset()
    """Names of vectors as long as `w` that it keeps in the server's state."""

    lr: Annotated[float, Field(gt=0, le=LARGEST)] = 1.0
    """The learning rate of the server."""

    @abstractmethod
    def step(self, state: State, delta: Tensor) -> None:
        """Move `state["w"]`, shape [P], along `delta`, shape [P]."""


class ServerSGD(ServerOptimizer):
    """w += lr * delta: FedAvg at lr = 1. With momentum it is FedAvgM (Hsu,
    Qi & Brown 2019): v = beta v + delta."""

    moments: ClassVar[frozenset[str]] = frozenset({"velocity"})

    momentum: Share = 0.0
    """The momentum of FedAvgM; 0 is FedAvg."""
    nesterov: bool = False
    """Use Nesterov's momentum, as DiLoCo does (Douillard et al. 2023): the step is delta + momentum * v."""

    @model_validator(mode="after")
    def _has_momentum(self) -> ServerSGD:
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum above 0")
        return self

    def step(self, state: State, delta: Tensor) -> None:
        """Move `state["w"]` along `delta`; with momentum, `state["velocity"]` is kept."""
        if self.momentum:
            velocity = _moment(state, "velocity", delta).mul_(self.momentum).add_(delta)
            delta = delta.add(velocity, alpha=self.momentum) if self.nesterov else velocity
        state["w"].add_(delta, alpha=self.lr)


class _Adaptive(ServerOptimizer):
    """Reddi et al. 2021, Algorithm 2: m = beta1 m + (1 - beta1) delta, w += lr m / (sqrt(v) + tau), without
    bias correction.

    m starts at 0 and v at tau^2; the optimizers differ only in v.
    """

    moments: ClassVar[frozenset[str]] = frozenset({"m", "v"})

    lr: Annotated[float, Field(gt=0, le=LARGEST)] = 0.01
    """The learning rate of the server."""
    beta1: Share = 0.9
    """The decay of the first moment."""
    tau: Annotated[float, Field(gt=0, le=1e18)] = 1e-3  # its square must fit into float32
    """Added to the root of the second moment, which starts at tau^2; smaller values adapt more."""

    def step(self, state: State, delta: Tensor) -> None:
        """Move `state["w"]` along `delta`; `state["m"]` and `state["v"]` are kept."""
        m = _moment(state, "m", delta).mul_(self.beta1).add_(delta, alpha=1 - self.beta1)
        v = _moment(state, "v", delta, start=self.tau**2)
        self._second_moment(v, delta.square())
        state["w"].addcdiv_(m, v.sqrt().add_(self.tau), value=self.lr)

    @abstractmethod
    def _second_moment(self, v: Tensor, square: Tensor) -> None: ...


class Adagrad(_Adaptive):
    """FedAdagrad: v += delta^2."""

    beta1: Share = 0.0
    """The decay of the first moment."""

    def _second_moment(self, v: Tensor, square: Tensor) -> None:
        v.add_(square)


class ServerAdam(_Adaptive):
    """FedAdam: v = beta2 v + (1 - beta2) delta^2."""

    beta2: Share = 0.99
    """The decay of the second moment."""

    def _second_moment(self, v: Tensor, square: Tensor) -> None:
        v.mul_(self.beta2).add_(square, alpha=1 - self.beta2)


class Yogi(_Adaptive):
    """FedYogi: v -= (1 - beta2) delta^2 sign(v - delta^2)."""

    beta2: Share = 0.99
    """The decay of the second moment."""

    def _second_moment(self, v: Tensor, square: Tensor) -> None:
        v.addcmul_(square, torch.sign(v - square), value=self.beta2 - 1)


def _moment(state: State, name: str, like: Tensor, start: float = 0.0) -> Tensor:
    moment: Tensor = state.setdefault(name, torch.full_like(like, start))
    return moment


OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "sgd": ServerSGD,
    "adagrad": Adagrad,
    "adam": ServerAdam,
    "yogi": Yogi,
}
"""The server optimizers by their names in `[server_optimizer]`."""
