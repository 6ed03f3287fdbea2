"""How fast codecs write and read: GB/s of float32, the best of five, and how many bytes they make of it.

Usage: python scripts/bench/codecs.py [ELEMENTS]
"""

import sys
import time

import torch

from mpifl.wings.compression.codecs import QSGD, Cast, TopK

CODECS = [Cast("float16"), Cast("bfloat16"), *(QSGD(bits) for bits in (8, 4, 3, 2)), TopK(0.1), TopK(0.01)]


def best(act, *given):
    """Return the seconds of the fastest of five calls."""
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        act(*given)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main():
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else 11_000_000
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    vector = torch.randn(elements, generator=draw)
    for codec in CODECS:
        payload = codec.encode(vector, draw)
        writing, reading = best(codec.encode, vector, draw), best(codec.decode, payload, elements)
        gigabytes, share = 4e-9 * elements, len(payload) / (4 * elements)
        print(f"{codec!s:45} {gigabytes / writing:6.2f} {gigabytes / reading:6.2f} GB/s  {share:7.2%}")


main()
