"""The sampler of patches: around what is to be found as often as asked, drawn from the silo's stream."""

import numpy as np
import pytest
import torch
from torch import nn
from unit.builders import make_silo

from mpifl import InputError
from mpifl.data.shards.shards import Features, Shard, Split
from mpifl.silo.parameters.flat_model import FlatModel
from scripts.examples.patch_loop import Patches

VOLUMES = Features(shape=(1, 9, 8, 7), dtype="uint8")


def silo(**more):
    """A silo with 4 volumes, each with one voxel to be found; a feature is the number of its place."""
    x = np.arange(9 * 8 * 7).reshape(1, 9, 8, 7).astype("u1")
    y = np.zeros((4, 9, 8, 7), "u1")
    y[:, 8, 0, 3] = 1
    shard = Shard(None, {"train": Split(np.stack([x] * 4), y)})
    return make_silo(FlatModel(nn.Linear(1, 1)), shard=shard, features=VOLUMES, **more)


@pytest.mark.parametrize(("foreground", "least", "most"), [(0.0, 0, 25), (0.5, 90, 140), (1.0, 200, 200)])
def test_patches_lie_around_what_is_to_be_found_as_often_as_asked(foreground, least, most):
    found = list(Patches(silo(), [3, 3, 2], foreground, 200))
    assert {(x.shape, y.shape) for x, y in found} == {((1, 3, 3, 2), (3, 3, 2))}
    assert least <= sum(int(y.sum()) for _, y in found) <= most


def test_every_corner_is_drawn_and_streams_are_of_silo_and_round():
    def drawn(**more):
        return [int(x[0, 0, 0, 0]) for x, _ in Patches(silo(**more), [8, 7, 6], 0.0, 100)]

    assert set(drawn()) == {a * 56 + b * 7 + c for a in (0, 1) for b in (0, 1) for c in (0, 1)}
    assert drawn() == drawn()
    assert drawn() != drawn(round=1)
    assert drawn() != drawn(id=1)


@pytest.mark.parametrize("sides", [[10, 1, 1], [3, 3]])
def test_a_patch_that_does_not_fit_is_one_line(sides):
    with pytest.raises(
        InputError, match=r"^\[algorithm\] patch = \[.*\]: volumes have \[9, 8, 7\]; use no more"
    ):
        Patches(silo(), sides, 0.5, 1)


def test_x_and_y_are_of_the_same_place():
    for x, y in Patches(silo(), [3, 3, 2], 1.0, 20):
        assert torch.equal(x[0][y.bool()], torch.tensor([(8 * 56 + 3) % 256]))
