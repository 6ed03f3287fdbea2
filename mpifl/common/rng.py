"""Random streams derived from their purpose, never stored and never global.

A stream is named by (seed, purpose, silo, round). Other work, its place and its order cannot change it. So a
run gives the same bits on any number of ranks and after any restart, on processors of one kind.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mpifl.common.global_streams import seeded

STATE_WORDS = 624
"""The words of 32 bits in the state of PyTorch's CPU generator."""

if TYPE_CHECKING:  # data_prep derives numpy streams without paying for torch
    import torch


def derive(seed: int, purpose: str, *indices: int) -> int:
    """Return a hash of a seed, a purpose and indices (silo, round, ...), an integer in [0, 2^63)."""
    name = ":".join([str(seed), purpose, *map(str, indices)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def turn(silo: int, round: int, nth: int) -> tuple[int, ...]:
    """Return the indices of a silo's stream in a round; the first of several trainings adds no number."""
    return (silo, round, nth) if nth else (silo, round)


def numpy_stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the numpy generator of a derived stream."""
    return np.random.Generator(np.random.PCG64(derive(seed, purpose, *indices)))


@contextlib.contextmanager
def scope(seed: int, purpose: str, *indices: int, device: torch.device) -> Iterator[torch.Generator]:
    """Lend a derived torch stream; meanwhile the global streams are derived ones, too, by `inside`."""
    with inside(seed, purpose, *indices, device=device):
        yield torch_stream(seed, purpose, *indices)


@contextlib.contextmanager
def inside(seed: int, purpose: str, *indices: int, device: torch.device) -> Iterator[None]:
    """Make the global streams derived ones for the context: torch's (for dropout), numpy's and Python's."""
    import torch

    drawn = [torch.default_generator]  # torch.manual_seed would seed every backend, which takes 0.1 ms a silo
    if device.type != "cpu":
        drawn.append(getattr(torch, device.type).default_generators[device.index])
    states = [one.get_state() for one in drawn]
    derived = derive(seed, purpose + " inside the model", *indices)
    try:
        for one in drawn:
            one.manual_seed(derived)
        with seeded(derived):
            yield
    finally:
        for one, state in zip(drawn, states, strict=True):
            one.set_state(state)


def fill(generator: torch.Generator, words: torch.Tensor) -> None:
    """Set the state of a CPU generator.

    The generator is a Mersenne Twister (Matsumoto & Nishimura 1998). PyTorch stores each of its words in 8
    bytes, after three other numbers of 8 bytes.

    Args:
        generator: A generator of PyTorch that was just seeded, so that it uses the words from the first on.
        words: The words of the state, int32, shape [STATE_WORDS].
    """
    import torch

    state = generator.get_state().clone()
    state.view(torch.int64)[3 : 3 + STATE_WORDS] = words.to(torch.int64) & 0xFFFFFFFF
    generator.set_state(state)


def torch_stream(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """Return the torch CPU generator of a derived stream."""
    import torch

    return torch.Generator().manual_seed(derive(seed, purpose, *indices))
