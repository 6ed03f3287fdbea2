"""A split as torch's DataLoader reads it: the examples of batches, also in forked workers."""

import copy

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from unit.builders import CPU, arrays, batches, same_bits
from unit.data.test_named_arrays import INPUTS, open_first, write

from mpifl.common.errors import InputError
from mpifl.data.batches.batches import Batches
from mpifl.data.batches.torch_dataset import Examples
from mpifl.data.shards.shards import Features, Split

VOLUMES = Features(shape=(1, 6, 6, 6), dtype="uint8", scale=0.5, offset=1.0)
FORK = {"num_workers": 2, "multiprocessing_context": "fork"}


def volumes(n, features=VOLUMES):
    draw = np.random.default_rng(0)
    x = draw.integers(0, 255, (n, *features.shape)).astype(features.dtype)
    return Batches(Split(x, draw.integers(0, 3, (n, 6, 6, 6)).astype("u1")), features, CPU)


@pytest.mark.parametrize("more", [{}, FORK], ids=["here", "workers"])
def test_a_loader_gives_the_batches_of_mpifl(more):
    own = batches(10)
    found = list(DataLoader(Examples(own), batch_size=4, **more))
    for (x, y), (wanted_x, wanted_y) in zip(found, own.in_order(4), strict=True):
        assert same_bits(x, wanted_x)
        assert same_bits(y, wanted_y)


def test_named_arrays_come_as_dicts(tmp_path):
    write(tmp_path)
    own = Batches(open_first(tmp_path)["train"], INPUTS, CPU)
    [(x, y)] = DataLoader(Examples(own), batch_size=12)
    [(wanted_x, wanted_y)] = own.in_order(12)
    for found, wanted in ((x, wanted_x), (y, wanted_y)):
        assert {name: same_bits(found[name], wanted[name]) for name in wanted} == dict.fromkeys(wanted, True)


def test_it_ends_where_the_examples_do():
    assert len(list(Examples(batches(5)))) == len(Examples(batches(5))) == 5
    x, _ = Examples(batches(5))[-1]
    assert x.shape == (4,)


def test_a_cut_is_the_part_of_the_example():
    own = volumes(3)
    box = (slice(1, 4), slice(0, 2), slice(5, 6))
    (x, y), (whole_x, whole_y) = Examples(own).cut(2, box), Examples(own)[2]
    assert same_bits(x, whole_x[:, 1:4, 0:2, 5:6].contiguous())
    assert same_bits(y, whole_y[1:4, 0:2, 5:6].contiguous())


def test_what_it_gives_may_be_written_to():
    features = Features(shape=(1, 6, 6, 6), dtype="float32")
    examples = Examples(volumes(2, features))
    for x in (examples[0][0], examples.cut(0, (slice(0, 6),) * 3)[0]):
        before = examples.x.clone()
        x.zero_()
        assert same_bits(examples.x, before)


def test_targets_without_places_stay_whole():
    x, y = arrays(3)
    examples = Examples(Batches(Split(x, y), Features(shape=(4,), dtype="float32"), CPU))
    assert int(examples.cut(1, (slice(1, 3),))[1]) == y[1]
    assert torch.equal(examples.cut(1, (slice(1, 3),))[0], torch.from_numpy(x[1, 1:3]))


def test_it_is_not_copied_to_another_process():
    with pytest.raises(InputError, match="multiprocessing_context='fork', or num_workers=0"):
        copy.copy(Examples(batches(3)))
    loader = DataLoader(Examples(batches(3)), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(InputError, match="only forked workers share"):
        next(iter(loader))
