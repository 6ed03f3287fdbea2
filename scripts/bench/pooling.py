"""What a gradient of the papers' CNNs costs beside that of the layers as the papers name them: ReLU,
PyTorch's pooling.

One process, one thread; the processor's time is counted, in turns, so that others on the machine matter
little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import torch
from common import CLASSES, PIXELS, save
from torch import nn
from torch.nn import functional as F

from jobs.papers.lenet import lenet
from mpifl.learning.models.image_models import cnn
from mpifl.learning.models.pooling_layers import MaxPool2x2

CASES: dict[str, tuple[Callable[..., nn.Module], int]] = {"lenet": (lenet, 64), "cnn": (cnn, 10)}
"""By name: the model, and how many images a gradient takes."""
WARMUP = 3


def as_named(module: nn.Module) -> nn.Module:
    """Put ReLU before PyTorch's pooling, in place of ours before ReLU; the weights stay."""
    for inner in module.modules():
        if isinstance(inner, nn.Sequential):
            for place in range(len(inner)):
                if isinstance(inner[place], MaxPool2x2):
                    inner[place], inner[place + 1] = nn.ReLU(), nn.MaxPool2d(2)
    return module


def gradient(module: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the gradient of a batch's mean loss, by parameter."""
    return torch.autograd.grad(F.cross_entropy(module(images), labels), list(module.parameters()))


def measure(name: str, repeats: int, passes: int = 10) -> dict[str, list[float]]:
    """Return the milliseconds of a gradient of each side, repeat by repeat.

    Raises:
        AssertionError: the sides' gradients differ.
    """
    factory, size = CASES[name]
    draw = torch.Generator().manual_seed(0)
    batch = torch.rand(size, *PIXELS.shape, generator=draw), torch.randint(CLASSES, (size,), generator=draw)
    ours, theirs = factory(PIXELS.shape, CLASSES), as_named(factory(PIXELS.shape, CLASSES))
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(gradient(ours, *batch), gradient(theirs, *batch))
    sides = {
        "mpifl": partial(gradient, ours, *batch),
        "as the paper names it": partial(gradient, theirs, *batch),
    }
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(WARMUP + repeats):
        for side, once in sides.items():
            began = time.process_time()
            for _ in range(passes):
                once()
            taken[side].append(1e3 * (time.process_time() - began) / passes)
    return {side: values[WARMUP:] for side, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=30, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="two repeats: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    repeats = 2 if options.quick else options.repeats
    if repeats < 2:
        parser.error("--repeats must be at least 2")
    torch.set_num_threads(1)
    rows = {}
    for name, (_, size) in CASES.items():
        ours, theirs = measure(name, repeats).values()
        low, ratio, high = quantiles((a / b for a, b in zip(ours, theirs, strict=True)), n=4)
        best = min(ours) / min(theirs)
        rows[name] = {"ms": median(ours), "ratio": ratio, "low": low, "high": high, "ratio_of_best": best}
        spread = f"{low:.2f} to {high:.2f}; of the best {best:.2f}"
        print(f"{name}, B = {size}: {median(ours):.2f} ms, {ratio:.2f} of PyTorch's ({spread})")
    save(options.json, rows)


if __name__ == "__main__":
    main()
