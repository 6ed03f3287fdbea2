"""Random streams derived from what they are for, never stored and never global.

A stream is named by (seed, purpose, silo, round). Who else runs, where and in what order cannot touch it. So
a run gives the same bits on any number of ranks and after any restart, on processors of one kind.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mpifl.common.global_streams import seeded

STATE_WORDS = 624
"""Of 32 bits each: the state of PyTorch's CPU generator."""

if TYPE_CHECKING:  # data_prep derives numpy streams without paying for torch
    import torch


def derive(seed: int, purpose: str, *indices: int) -> int:
    """Hash a seed, a purpose and indices (silo, round, ...) to an integer in [0, 2^63)."""
    name = ":".join([str(seed), purpose, *map(str, indices)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


def turn(silo: int, round: int, nth: int) -> tuple[int, ...]:
    """Return by what a silo's stream is named in a round: the first of several trainings has no number."""
    return (silo, round, nth) if nth else (silo, round)


def numpy_stream(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the numpy generator of a derived stream."""
    return np.random.Generator(np.random.PCG64(derive(seed, purpose, *indices)))


@contextlib.contextmanager
def scope(seed: int, purpose: str, *indices: int, device: torch.device) -> Iterator[torch.Generator]:
    """Lend a derived torch stream; meanwhile the global ones are derived as well, as `inside` has it."""
    with inside(seed, purpose, *indices, device=device):
        yield torch_stream(seed, purpose, *indices)


@contextlib.contextmanager
def inside(seed: int, purpose: str, *indices: int, device: torch.device) -> Iterator[None]:
    """Have the global streams be derived ones: torch's, which dropout draws from, numpy's and Python's."""
    import torch

    drawn = [torch.default_generator]  # torch.manual_seed seeds every backend, at 0.1 ms a silo
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
    """Have a CPU generator go on from a state of its own.

    It is a Mersenne Twister (Matsumoto & Nishimura 1998). PyTorch keeps its words as 8 bytes each, behind a
    seed, two counts and a place.

    Args:
        generator: PyTorch's, just seeded, so that the words are used from the first on.
        words: int32 of shape [STATE_WORDS].
    """
    import torch

    state = generator.get_state().clone()
    state.view(torch.int64)[3 : 3 + STATE_WORDS] = words.to(torch.int64) & 0xFFFFFFFF
    generator.set_state(state)


def torch_stream(seed: int, purpose: str, *indices: int) -> torch.Generator:
    """Return the torch CPU generator of a derived stream."""
    import torch

    return torch.Generator().manual_seed(derive(seed, purpose, *indices))
