"""Put on PYTHONPATH, this makes mpifl add up plain float32, whose bits depend on the ranks.

python scripts/bench/round_overhead.py --job J2 --exact-vs-plain PYTHONPATH=$PWD/scripts/bench/plain
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))

import torch

from mpifl.sums import kernels
from mpifl.sums.local_sums import LocalSums
from mpifl.sums.mean import WeightedMean


def add(total, vector, weight, anchor, *, fresh):
    """Add weight * vector as it is."""
    if fresh:
        torch.mul(vector, weight, out=total)
    else:
        total.add_(vector, alpha=weight)


def mean(out, windows, scale):
    """Add up the parts, sums and summands alike, as they are."""
    first = True
    for window in windows:
        for vector, weight in zip(window.vectors, window.weights, strict=True):
            factor = scale * (weight or 1.0)
            if first:
                torch.mul(vector, factor, out=out)
            else:
                out.add_(vector, alpha=factor)
            first = False


def part(self, transport, piece, window, rank):
    """Return a rank's sum or summand; both are float32."""
    if rank != transport.rank:
        return transport.read(rank, window.parts[rank], piece.length, torch.float32)
    return self._here.own(piece.name, window.number, alone=rank in window.weights)


kernels.add, kernels.mean = add, mean
WeightedMean._part = part
LocalSums._empty = lambda self, length: self._memory.empty(length, torch.float32)
