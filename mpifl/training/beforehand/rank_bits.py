"""A digest of trial steps on each rank. Ranks with different digests compute different bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mpifl.common import ranks_named, rng
from mpifl.common.machine import processor
from mpifl.data import Features, Inputs
from mpifl.learning.models import build, examples
from mpifl.learning.tasks import CLASSIFICATION, Task
from mpifl.silo.parameters import FlatModel
from mpifl.training.beforehand.model_copies import copied

STEPS, RATE = 2, 0.01
ROWS = 32
"""Rows of a step. Products of fewer rows use kernels that training batches seldom use."""
MOST = 1 << 24
"""The most numbers in a step. A larger model gets fewer rows, at least two."""
PROCESSOR, BITS = "processor", "bits"
"""Entries of what a rank reports of itself: its processor, and the digest of what it computes; "" if
unknown."""


PLAIN = Features(shape=(64,), dtype="float32")
"""The features of a perceptron that stands for models that differ between ranks."""


def about_bits(model: FlatModel, task: Task, features: Inputs) -> dict[str, str]:
    """Return a rank's processor and digest for a model. A GPU has no entry, since its name suffices."""
    if model.device.type != "cpu":
        return {}
    return {PROCESSOR: processor(), BITS: bits_of(model.module, task, features)}


def about_plain(device: torch.device) -> dict[str, str]:
    """Return the entries of `about_bits` for a perceptron, if ranks train different models."""
    module = build("mlp", {"hidden": [128]}, PLAIN, 64, seed=0)
    return about_bits(FlatModel(module, device), CLASSIFICATION, PLAIN)


def bits_of(module: nn.Module, task: Task, features: Inputs) -> str:
    """Return the start of the sha256 of all results of two steps of a model on fixed rows.

    Each step minimises a function of the outputs, so it needs no targets. Steps are taken on a copy.

    Returns:
        16 hexadecimal digits; "" for a model that cannot take such steps, which is not compared.
    """
    try:
        with rng.inside(0, "two steps", device=torch.device("cpu")):  # dropout
            return _digest(_stepped(copied(module), task, _rows(module, features)))
    except Exception:  # the user's code may raise anything; training reports real errors
        return ""


def differing(about: Mapping[int, Mapping[str, str]]) -> str:
    """Return a line on ranks that compute other bits than the rest; "" if there are none.

    Args:
        about: What each rank reports of itself.
    """
    groups: dict[str, list[int]] = {}
    for rank, told in sorted(about.items()):
        if told.get(BITS):
            groups.setdefault(told[BITS], []).append(rank)
    if len(groups) < 2:
        return ""
    named = (f"{ranks_named(ranks)} on {about[ranks[0]].get(PROCESSOR, '?')}" for ranks in groups.values())
    what = "ranks compute other bits of the same two steps"
    return f"{what}: {', '.join(named)}; use one kind of processor, or kernels = 'avx2' and device = 'cpu'"


def moved(before: Sequence[Mapping[str, str]], now: Sequence[Mapping[str, str]]) -> str:
    """Return a line if a resumed training computes other bits than before; else ""."""
    then, here = (
        {told[BITS]: told.get(PROCESSOR, "?") for told in all_ if told.get(BITS)} for all_ in (before, now)
    )
    if not (then and here) or here.keys() <= then.keys():
        return ""
    what = f"this run was begun on {' and '.join(sorted(set(then.values())))}"
    new = sorted({name for bits, name in here.items() if bits not in then})
    return f"{what}, and continues on {' and '.join(new)}, which computes other bits"


def _rows(module: nn.Module, features: Inputs) -> Any:
    """Return rows with the same numbers on every processor: floats from -1 to 1, whole numbers 0."""
    two = examples(features)
    size = max(
        sum(one.numel() for one in _tensors(two)) // 2, sum(p.numel() for p in module.parameters()) // ROWS
    )
    count = max(min(ROWS, MOST // max(size, 1)), 2)
    draw = np.random.default_rng(0)

    def filled(zeros: Tensor) -> Tensor:
        shape = (count, *zeros.shape[1:])
        if not zeros.is_floating_point():
            return zeros[:1].expand(shape).contiguous()
        return torch.from_numpy(draw.random(shape, np.float32) * 2 - 1)

    return {name: filled(one) for name, one in two.items()} if isinstance(two, dict) else filled(two)


def _stepped(module: nn.Module, task: Task, x: Any) -> Iterator[Tensor]:
    """Take the steps; yield the outputs before each step, and the parameters and buffers at the end."""
    module.train()
    trained = [one for one in module.parameters() if one.requires_grad]
    for _ in range(STEPS):
        outputs = [one.flatten(1) for one in _tensors(task.outputs(module, x)) if one.is_floating_point()]
        yield from outputs
        loss = sum(one.log_softmax(1).square().mean() + one.square().mean() for one in outputs)
        assert isinstance(loss, Tensor)
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        with torch.no_grad():
            for one, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    one.sub_(gradient, alpha=RATE)
    yield from (*trained, *module.buffers())


def _tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    parts = found.values() if isinstance(found, Mapping) else found if isinstance(found, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _digest(tensors: Iterator[Tensor]) -> str:
    digest = hashlib.sha256()
    for one in tensors:
        digest.update(one.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
