"""Batches: every example once an epoch, seen as the features say, whatever block they are gathered in."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from unit.builders import CPU, arrays, same_bits, stream

from mpifl.data.batches import batches as module
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Features, Split

INTEGERS = Features(shape=(2,), dtype="int16")


def numbered(n, features=INTEGERS):
    """Return batches whose example k is [k, -k] with label k."""
    k = np.arange(n)
    return Batches(Split(np.stack([k, -k], 1).astype(features.dtype), k), features, CPU)


def labels(epoch):
    return [y.tolist() for _, y in epoch]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 5))
def test_an_epoch_is_a_permutation_in_batches_of_the_size_the_last_smaller(n, size, seed):
    epoch = list(numbered(n).shuffled(size, stream(seed)))
    assert [len(y) for _, y in epoch] == [size] * (n // size) + ([n % size] if n % size else [])
    assert sorted(itertools.chain(*labels(epoch))) == list(range(n))
    assert all(torch.equal(x, torch.stack([y, -y], 1)) for x, y in epoch)


def test_another_generator_draws_another_order_and_the_next_epoch_too():
    one = stream()
    first, second = labels(numbered(40).shuffled(10, one)), labels(numbered(40).shuffled(10, one))
    assert first == labels(numbered(40).shuffled(10, stream()))
    assert first != second
    assert first != labels(numbered(40).shuffled(10, stream(1)))


@given(st.integers(1, 50), st.integers(1, 20), st.integers(1, 300))
def test_the_size_of_a_block_changes_no_batch(n, size, block):
    whole = list(numbered(n).shuffled(size, stream()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        cut = list(numbered(n).shuffled(size, stream()))
    assert labels(whole) == labels(cut)
    assert all(torch.equal(one, other) for (one, _), (other, _) in zip(whole, cut, strict=True))


@pytest.mark.parametrize("size", ["full", 9, 100])
def test_a_full_batch_holds_everything_and_draws_nothing(size):
    generator = stream()
    before = generator.get_state()
    [(x, y)] = numbered(9).shuffled(size, generator)
    assert y.tolist() == list(range(9))
    assert x.shape == (9, 2)
    assert torch.equal(generator.get_state(), before)


@given(st.integers(0, 30), st.integers(1, 12))
def test_in_order_yields_every_example_once_as_they_lie(n, size):
    assert list(itertools.chain(*labels(numbered(n).in_order(size)))) == list(range(n))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_model_that_works_on_its_input_in_place_leaves_the_shard_as_it_is(dtype):
    mine = numbered(9, Features(shape=(2,), dtype=dtype))
    for _ in range(2):
        for x, y in [*mine.in_order(4), *mine.shuffled("full", stream()), *mine.shuffled(4, stream())]:
            assert x[:, 0].tolist() == y.tolist()
            x.mul_(0)
            y.add_(5)


def test_taken_examples_are_those_asked_for():
    x, y = numbered(9).take(torch.tensor([4, 0, 4]))
    assert y.tolist() == [4, 0, 4]
    assert x.tolist() == [[4, -4], [0, 0], [4, -4]]


SEEN = [
    (Features(shape=(4,), dtype="uint8", scale=1 / 255), torch.float32, lambda x: x * np.float32(1 / 255)),
    (Features(shape=(4,), dtype="uint8", scale=0.5, offset=-3.0), torch.float32, lambda x: x * 0.5 - 3),
    (Features(shape=(4,), dtype="uint8"), torch.int64, lambda x: x),
    (Features(shape=(4,), dtype="int32"), torch.int64, lambda x: x),
    (Features(shape=(4,), dtype="float64"), torch.float32, lambda x: x),
    (Features(shape=(4,), dtype="float16"), torch.float32, lambda x: x),
    (Features(shape=(4,), dtype="float32"), torch.float32, lambda x: x),
    (Features(shape=(4,), dtype="float32", scale=2.0, offset=1.0), torch.float32, lambda x: x * 2 + 1),
    (Features(shape=(4,), dtype="float64", scale=2.0), torch.float32, lambda x: x * 2),
]
WAYS = {
    "shuffled": lambda batches: batches.shuffled(5, stream()),
    "full": lambda batches: batches.shuffled("full", stream()),
    "in order": lambda batches: batches.in_order(5),
    "taken": lambda batches: [batches.take(torch.arange(12))],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("features", "dtype", "seen"), SEEN, ids=[f"{f.dtype} * {f.scale}" for f, *_ in SEEN]
)
def test_a_model_sees_the_features_scaled_shifted_and_in_its_dtype_every_time(way, features, dtype, seen):
    x, _ = arrays(12, features=features)
    held = x.copy()
    batches = Batches(Split(held, np.arange(12)), features, CPU)
    for _ in range(2):  # a second pass must find the shard as it was
        got = [(xs, y) for xs, y in WAYS[way](batches)]
        order = torch.cat([y for _, y in got])
        found = torch.cat([xs for xs, _ in got])
        assert found.dtype == dtype
        expected = torch.from_numpy(seen(x.astype(np.float64 if dtype == torch.float32 else np.int64)))[order]
        assert torch.allclose(found.double(), expected.double(), rtol=1e-6, atol=1e-6)
    assert held.tobytes() == x.tobytes()


@pytest.mark.parametrize("size", ["full", 4, 100])
def test_what_is_gathered_beside_stays_with_its_examples(size):
    beside = [torch.arange(9.0), torch.arange(18).view(9, 2)]
    epoch = list(numbered(9).shuffled(size, stream(), beside))
    assert all(torch.equal(a, y.float()) and torch.equal(b[:, 0], 2 * y) for _, y, a, b in epoch)
    assert labels((x, y) for x, y, *_ in epoch) == labels(numbered(9).shuffled(size, stream()))


def test_labels_of_any_shape_stay_with_their_examples():
    y = np.arange(12).reshape(6, 2)
    batches = Batches(
        Split(np.arange(6, dtype="int32").reshape(6, 1), y), Features(shape=(1,), dtype="int32"), CPU
    )
    assert len(batches) == 6
    assert all(torch.equal(2 * x, y[:, :1]) for x, y in batches.shuffled(4, stream()))


def test_batches_are_functions_of_the_generator_alone():
    torch.manual_seed(0)
    one = torch.cat([x for x, _ in numbered(20).shuffled(3, stream())])
    torch.manual_seed(1)
    assert same_bits(torch.cat([x for x, _ in numbered(20).shuffled(3, stream())]), one)
