"""Streams are functions of their names and of nothing else."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from unit import builders  # noqa: F401 - its settings of hypothesis

from mpifl.common import global_streams as others, rng

indices = st.lists(st.integers(0, 10_000), max_size=3)
names = st.tuples(st.integers(0, 2**63), st.sampled_from(["train", "cohort", "initial weights"]), indices)


@pytest.mark.parametrize(
    ("name", "value"),
    [((0, "train", 3, 7), 3374917914238173229), ((7, "initial weights"), 8365264044323041317)],
)
def test_derived_seeds_are_what_they_always_were(name, value):
    assert rng.derive(*name) == value


@given(names, names)
def test_two_names_share_a_seed_only_if_they_are_the_same(one, other):
    seeds = [rng.derive(seed, purpose, *more) for seed, purpose, more in (one, other)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert (seeds[0] == seeds[1]) == (one == other)


def test_neighbouring_silos_and_rounds_do_not_share_a_stream():
    assert rng.derive(0, "train", 1, 11) != rng.derive(0, "train", 11, 1) != rng.derive(0, "train", 111)


def test_numpys_and_pythons_global_streams_are_derived_and_put_back():
    def drawn(*name):
        with rng.inside(*name, device=torch.device("cpu")):
            return np.random.rand(), np.random.normal(), random.random()  # noqa: NPY002

    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    np.random.rand()  # noqa: NPY002
    before = others.places()
    one = drawn(1, "train", 0)
    assert others.places() == before
    drawn(1, "train", 1)
    assert drawn(1, "train", 0) == one != drawn(1, "train", 1)
    with pytest.raises(KeyError), others.seeded(1), others.seeded(2):
        raise KeyError
    assert others.places() == before


def test_a_scope_lends_a_stream_and_derives_what_is_global_in_it_and_puts_that_back():
    before = torch.get_rng_state()

    def drawn(*name):
        with rng.scope(*name, device=torch.device("cpu")) as generator:
            return torch.rand(2, generator=generator).tolist(), torch.rand(2).tolist()

    lent, inside = drawn(5, "train", 2, 3)
    assert lent == torch.rand(2, generator=rng.torch_stream(5, "train", 2, 3)).tolist() != inside
    for other in [(6, "train", 2, 3), (5, "test", 2, 3), (5, "train", 1, 3), (5, "train", 2, 4)]:
        assert not set(drawn(*other)[0] + drawn(*other)[1]) & set(lent + inside)
    assert drawn(5, "train", 2, 3) == (lent, inside)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RuntimeError), rng.scope(5, "train", device=torch.device("cpu")):
        raise RuntimeError
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("draw", [
    lambda *name: rng.numpy_stream(*name).integers(0, 2**62, 4).tolist(),
    lambda *name: torch.randint(0, 2**62, (4,), generator=rng.torch_stream(*name)).tolist(),
], ids=["numpy", "torch"])  # fmt: skip
def test_a_stream_ignores_and_leaves_alone_what_is_global(draw):
    torch.manual_seed(1)
    first = draw(5, "train", 2, 3)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    torch.rand(3)
    assert draw(5, "train", 2, 3) == first
    torch.set_rng_state(before)
    draw(5, "train", 2, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == numpy_before  # noqa: NPY002
    others = [(6, "train", 2, 3), (5, "test", 2, 3), (5, "train", 1, 3), (5, "train", 2, 4)]
    assert all(draw(*other) != first for other in others)


def test_a_state_of_ones_own_is_that_of_a_mersenne_twister():
    """NumPy's, given the same words; PyTorch's float has the low 24 bits of each number."""
    words = np.random.default_rng(3).integers(0, 2**32, rng.STATE_WORDS, dtype=np.uint32)
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    generator = torch.Generator().manual_seed(1)
    rng.fill(generator, torch.from_numpy(words.view(np.int32)))
    expected = (twister.random_raw(1000) & 0xFFFFFF).astype(np.float32) * np.float32(2**-24)
    assert torch.rand(1000, generator=generator).numpy().tolist() == expected.tolist()
