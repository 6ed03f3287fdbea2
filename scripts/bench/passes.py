"""The passes over memory that a round of a large model is made of, beside the machine's limit.

    python scripts/bench/passes.py --hidden 2943 2943 --silos 4 --workers 2

Bytes are those that a pass must read and write. The limit is the rate of a copy between two vectors of the
model's size, which other ranks can read, by one thread. What lies in the cache is faster. `--workers`
processes run at once, as ranks of a node do, and share the memory.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import CLASSES, PIXELS, save
from torch import Tensor, multiprocessing as mp, nn

from mpifl.common.machine import tuning
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.sums import kernels
from mpifl.sums.exact import anchor_of, is_finite, window_of
from mpifl.sums.kernels import Parts
from mpifl.wire.memory import Memory

BATCH, LR = 10, 0.1
HEAD = f"{'':34}{'MB':>8}{'ms':>9}{'GB/s':>8}{'of a copy':>11}"


def perceptron(hidden: list[int]) -> nn.Module:
    """Return a perceptron with layers of these widths."""
    widths = [PIXELS.shape[1] * PIXELS.shape[2], *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def passes(hidden: list[int], silos: int) -> Iterator[tuple[str, float, Callable[[], Any]]]:
    """Yield the passes of a silo's training of one step, of its worker's part of the mean and of the server:
    name, multiples of the model's bytes, and what does it."""
    model, memory = FlatModel(perceptron(hidden)), Memory(shared=True)
    size = len(model.trained)
    w, other = (memory.empty(size, torch.float32).uniform_(-1, 1) for _ in range(2))
    x, y = torch.rand(BATCH, *PIXELS.shape), torch.randint(CLASSES, (BATCH,))
    model.trained.copy_(w)
    deltas = [memory.empty(size, torch.float32).uniform_(-1e-2, 1e-2) for _ in range(silos)]
    share = slice(0, size // 2)
    window = window_of(600.0 * kernels.peak(deltas[0])) or 0
    parts = Parts([delta[share] for delta in deltas], [600.0] * silos, anchor_of(window, silos))
    found: list[Tensor] = []

    def forward_backward() -> None:
        found[:] = model.gradients(nn.functional.cross_entropy(model.module(x), y))

    yield "a copy (the limit)", 2, lambda: other.copy_(w)
    yield "w into the lent model", 2, lambda: model.trained.copy_(w)
    yield "forward and backward", 4, forward_backward
    yield "the step", 3, lambda: model.descend(found, LR)
    yield "delta", 3, lambda: model.delta(w, lambda length, dtype: deltas[0])
    yield "its largest magnitude", 1, lambda: kernels.peak(deltas[0])
    yield (
        f"half of the mean of {silos} silos",
        0.5 * (silos + 1),
        lambda: kernels.mean(other[share], [parts], 1e-3),
    )
    yield "whether the mean is finite", 1, lambda: is_finite(other)
    yield "w + mean, at the server", 3, lambda: w.add_(other)


def work(rank: int, hidden: list[int], silos: int, repeats: int, barrier: Any, found: Any) -> None:
    """Time each pass with the other processes, `repeats` times."""
    tuning.keep_memory()
    tuning.keep_all_memory()
    torch.set_num_threads(1)
    for name, times, act in passes(hidden, silos):
        seconds = []
        for _ in range(repeats + 2):
            barrier.wait()
            start = time.perf_counter()
            act()
            seconds.append(time.perf_counter() - start)
        if rank == 0:
            found[name] = times, median(seconds[2:])


def show(found: dict[str, tuple[float, float]], megabytes: float) -> None:
    """Print a line for each pass."""
    limit = next(times / seconds for times, seconds in found.values())
    print(HEAD)
    for name, (times, seconds) in found.items():
        rate = times * megabytes / seconds / 1e3
        print(
            f"{name:34}{times * megabytes:8.0f}{1e3 * seconds:9.2f}{rate:8.1f}{times / seconds / limit:11.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[2943, 2943], help="(%(default)s)")
    parser.add_argument("--silos", type=int, default=4, help="of the node in a round (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes at once (%(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="of each pass (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a small model: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    hidden, repeats = ([64], 2) if options.quick else (options.hidden, options.repeats)
    context = mp.get_context("spawn")
    with context.Manager() as manager:
        found, barrier = manager.dict(), context.Barrier(options.workers)
        given = hidden, options.silos, repeats, barrier, found
        mp.spawn(work, given, options.workers)
        result = dict(found)
    megabytes = sum(p.numel() for p in perceptron(hidden).parameters()) * 4 / 1e6
    show(result, megabytes)
    save(options.json, {"megabytes": megabytes, "passes": result})


if __name__ == "__main__":
    main()
