"""Layers that write to buffers as they train, and models of them, of which no silo is to see another's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WIDTH = 64


class ActNorm(nn.Module):
    """Scaled by its first batch (Kingma & Dhariwal 2018), which a flag tells."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.ready:
            with torch.no_grad():
                self.scale.copy_(1 / (x.std(0) + 1))
                self.ready.fill_(True)
        return x * self.scale


class Observer(nn.Module):
    """The least and the largest so far, as quantisation has them; if `always`, of what is scored, too."""

    def __init__(self, dtype: torch.dtype = torch.float32, always: bool = False) -> None:
        super().__init__()
        self.always = always
        info = torch.finfo if dtype.is_floating_point else torch.iinfo
        edges = (torch.inf, -torch.inf) if dtype.is_floating_point else (info(dtype).max, info(dtype).min)
        self.register_buffer("low", torch.full((WIDTH,), edges[0], dtype=dtype))
        self.register_buffer("high", torch.full((WIDTH,), edges[1], dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        if self.training or self.always:
            seen = x.detach() if self.low.dtype.is_floating_point else x.detach() * 2.0**40
            seen = seen.to(self.low.dtype)
            torch.minimum(self.low, seen.amin(0), out=self.low)
            torch.maximum(self.high, seen.amax(0), out=self.high)
        span = (self.high.double() - self.low.double()).float()
        return x * torch.where(span.isfinite(), 1 / (1 + span.abs()), torch.ones(()))


class Mean(nn.Module):
    """An exponential mean that is taken off; it is written to in place, by .data, or replaced."""

    def __init__(self, kept: bool = True, how: str = "copy", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("mean", torch.zeros(WIDTH, dtype=dtype), persistent=kept)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            now = (0.9 * self.mean.double() + 0.1 * x.detach().double().mean(0)).to(self.mean.dtype)
            if self.how == "copy":
                self.mean.copy_(now)
            elif self.how == "data":
                self.mean.data.copy_(now)
            else:
                self.mean = now
        return x - self.mean.to(x.dtype)


class Cache(nn.Module):
    """Keeps what it has seen of the first batch, in the place of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.first is None:
            self.first = x.detach().mean(0)
        return x if self.first is None else x - 0.1 * self.first


class Drawing(nn.Module):
    """Adds noise of numpy's and Python's global generators."""

    def forward(self, x: Tensor) -> Tensor:
        noise = np.random.normal() + random.random() if self.training else 0.0  # noqa: NPY002
        return x + 0.01 * float(noise)


class Constants(nn.Module):
    """Keys, flags, masks and others that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("key", torch.tensor([2**61 + 1, -(2**62) - 3]))
        self.register_buffer("turn", torch.tensor([1 + 2j, 0.5 - 1j], dtype=torch.complex64))
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        self.register_buffer("small", torch.tensor([1.1, 2.2], dtype=torch.float16))
        self.register_buffer("brain", torch.tensor([1.1, 2.2], dtype=torch.bfloat16))
        self.register_buffer("wide", torch.tensor([0.1, 1e300], dtype=torch.float64))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("table", torch.arange(5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + self.key.sum() % 2 + self.turn.imag.sum()) + self.brain.float().sum()


class All(nn.Module):
    """A flag that a silo with a large value takes away."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calm", torch.ones(WIDTH, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calm &= x.detach().amax(0) < 0.9
        return x * torch.where(self.calm, 1.0, 0.5)


KINDS: dict[str, tuple[Any, dict[str, str]]] = {
    "flag": (ActNorm, {"*ready": "any"}),
    "extremes": (Observer, {"*low": "min", "*high": "max"}),
    "scratch": (lambda: Mean(kept=False), {"*mean": "reset"}),
    "replaced": (lambda: Mean(how="replace"), {}),
    "data": (lambda: Mean(how="data"), {}),
    "float64": (lambda: Mean(dtype=torch.float64), {}),
    "bfloat16": (lambda: Mean(dtype=torch.bfloat16), {}),
    "float16": (lambda: Mean(dtype=torch.float16, how="replace"), {}),
    "whole": (lambda: Observer(torch.int64), {"*low": "min", "*high": "max"}),
    "always": (lambda: Observer(always=True), {"*low": "min", "*high": "max"}),
    "cache": (Cache, {"*first": "reset"}),
    "drawing": (Drawing, {}),
    "constants": (Constants, {}),
    "all": (All, {"*calm": "all"}),
}
"""Layers, and the rules that a job needs for them."""


def layers(shape: Sequence[int], classes: int, kinds: Sequence[str]) -> nn.Module:
    """A classifier of digits with layers of some kinds before it."""
    made = [KINDS[kind][0]() for kind in kinds]
    return nn.Sequential(nn.Flatten(), *made, nn.Linear(WIDTH, classes))


def model(*kinds: str) -> dict[str, Any]:
    """A job's `[model]` with layers of some kinds."""
    rules = {
        f"{nth}.{name.lstrip('*')}": rule
        for nth, kind in enumerate(kinds, 1)
        for name, rule in KINDS[kind][1].items()
    }
    return {"name": "buffered:layers", "kinds": list(kinds), "buffers": rules}
