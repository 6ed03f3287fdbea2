"""Turns, sizes, shifts and brightness of images against scipy's, with masks that move alike."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from unit.builders import same_bits, stream

from mpifl.common.errors import InputError
from mpifl.data.batches import Warp, load_warp
from mpifl.data.features import Features
from mpifl.data.targets import Targets

IMAGES = Features(shape=(2, 9, 12), dtype="float32")
MASKS = Targets(dtype="uint8", shape=(9, 12), ignore=255)
HOW = Warp(rotation=40.0, zoom=(0.7, 1.4), shift=0.2)


def batch(n=8):
    masks = torch.randint(0, 5, (n, 9, 12), generator=stream())
    return {"x": torch.rand(n, 2, 9, 12, generator=stream()), "y": masks}


def by_scipy(image, drawn, **how):
    """Return an image [height, width] turned about its centre, enlarged and moved."""
    turn, size, across, down = (float(one) for one in drawn[:4])
    angle, scale = (
        math.radians(HOW.rotation) * (2 * turn - 1),
        HOW.zoom[0] + (HOW.zoom[1] - HOW.zoom[0]) * size,
    )
    back = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) / scale
    centre = (np.array(image.shape) - 1) / 2
    moved = HOW.shift * (2 * np.array([down, across]) - 1) * image.shape
    return ndimage.affine_transform(
        image, back, centre - back @ (centre + moved), mode="grid-constant", **how
    )


def test_images_and_masks_are_moved_as_scipy_moves_them():
    given, drawn = batch(), torch.rand(6, 8, generator=stream()).T
    made = load_warp("rotation", HOW, IMAGES, MASKS)(given, stream())
    for row in range(8):
        for channel in range(2):
            wanted = by_scipy(given["x"][row, channel].double().numpy(), drawn[row], order=1)
            assert made["x"][row, channel].numpy() == pytest.approx(wanted, abs=1e-5)
        wanted = by_scipy(given["y"][row].numpy(), drawn[row], order=0, cval=255)
        assert (made["y"][row].numpy() == wanted).mean() > 0.98, "but for pixels between two"
    assert (made["y"] == 255).any()
    assert made["y"].dtype == torch.int64


def test_values_are_scaled_by_draws_of_each_image_and_nothing_else_moves():
    given, drawn = batch(), torch.rand(6, 8, generator=stream())
    light, wide = 1 + 0.3 * (2 * drawn[4] - 1), 1 + 0.5 * (2 * drawn[5] - 1)
    made = load_warp("brightness", Warp(brightness=0.3, contrast=0.5), IMAGES, MASKS)(given, stream())
    lit = given["x"] * light.view(-1, 1, 1, 1)
    mean = lit.mean((1, 2, 3), keepdim=True)
    assert torch.allclose(made["x"], mean + (lit - mean) * wide.view(-1, 1, 1, 1))
    assert torch.equal(made["y"], given["y"])
    change = load_warp("rotation", HOW, IMAGES, None)
    own = stream()
    first, state = change(given, own)["x"], torch.get_rng_state()
    assert same_bits(change(given, stream())["x"], first)
    assert not torch.equal(change(given, own)["x"], first), "the stream goes on"
    assert torch.equal(torch.get_rng_state(), state), "and no global one is drawn from"


def test_maps_of_values_move_and_what_is_no_image_is_refused():
    x = batch()["x"]
    maps = Targets(dtype="float32", shape=(2, 9, 12))
    made = load_warp("zoom", Warp(zoom=(2.0, 2.0)), IMAGES, maps)({"x": x, "y": x.clone()}, stream())
    assert set(made["y"].flatten().tolist()) <= set(x.flatten().tolist())
    with pytest.raises(
        InputError, match=r"^\[data\] zoom: moves images .* has the shape \[9\]; use a function"
    ):
        load_warp("zoom", HOW, Features(shape=(9,), dtype="float32"), None)
