"""Flips and crops against plain Python, masks that move alike, and functions of the user's."""

import sys
import types

import numpy as np
import pytest
import torch
from unit.builders import CPU, same_bits, stream

from mpifl.common.errors import InputError
from mpifl.data.batches.augment import PADDING, crop, flip, load_change
from mpifl.data.batches.batches import Batches
from mpifl.data.features import Features
from mpifl.data.shards.shards import Split
from mpifl.data.targets import Targets

IMAGES = Features(shape=(2, 5, 7), dtype="float32")
MASKS = Targets(dtype="uint8", shape=(5, 7), ignore=255)


def images(n=40):
    return torch.arange(1.0, n * 70 + 1).reshape(n, 2, 5, 7)


def test_a_flip_mirrors_about_half_of_the_images():
    x = images()
    moved = flip(x, stream())(x, 0)
    mirrored = [bool(torch.equal(found, one.flip(-1))) for found, one in zip(moved, x, strict=True)]
    assert all(torch.equal(f, o) for f, o, m in zip(moved, x, mirrored, strict=True) if not m)
    assert 10 < sum(mirrored) < 30


def test_a_crop_cuts_each_image_out_of_its_padded_self():
    x = images()
    moved = crop(x, stream())(x, 0)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, 40, 1), generator=stream()).squeeze(2).tolist()
    for i, one in enumerate(x):
        padded = torch.zeros(2, 5 + 2 * PADDING, 7 + 2 * PADDING)
        padded[:, PADDING : PADDING + 5, PADDING : PADDING + 7] = one
        assert torch.equal(moved[i], padded[:, top[i] : top[i] + 5, left[i] : left[i] + 7])
    assert {min(top), max(top)} == {min(left), max(left)} == {0, 2 * PADDING}


@pytest.mark.parametrize("name", ["flip", "crop", "flip-crop"])
def test_a_mask_moves_with_its_image_and_is_ignored_where_there_is_none(name):
    x, change = images(), load_change(name, IMAGES, MASKS)
    y = (x[:, 0] % 5).long()
    made = change({"x": x.clone(), "y": y.clone()}, stream())
    outside = made["x"][:, 0] == 0
    assert torch.equal(made["y"], torch.where(outside, 255, (made["x"][:, 0] % 5).long()))
    assert not torch.equal(made["y"], y)
    assert bool(outside.any()) == (name != "flip")


def test_maps_of_values_move_in_all_their_channels():
    x = images()
    change = load_change("flip-crop", IMAGES, Targets(dtype="float32", shape=(2, 5, 7)))
    made = change({"x": x, "y": x.clone()}, stream())
    assert same_bits(made["x"], made["y"])


@pytest.mark.parametrize("targets", [None, Targets(dtype="float32", shape=(3,))])
def test_targets_that_are_no_masks_stay(targets):
    x, y = images(), torch.rand(40, 3)
    made = load_change("flip-crop", IMAGES, targets)({"x": x, "y": y}, stream())
    assert made["y"] is y
    assert not torch.equal(made["x"], x)


def test_the_order_of_the_examples_is_that_without_changes_and_shards_stay():
    held, labels = images().numpy().copy(), np.arange(40)
    batches = Batches(Split(held, labels), IMAGES, CPU)
    changed = batches.changed(load_change("flip", IMAGES, None), stream(1))
    plain = list(batches.shuffled(12, stream(), [torch.arange(40)]))
    found = list(changed.shuffled(12, stream(), [torch.arange(40)]))
    assert [y.tolist() for _, y, _ in found] == [y.tolist() for _, y, _ in plain]
    assert all(torch.equal(y, beside) for _, y, beside in found)
    assert np.array_equal(held, images().numpy())
    again = list(batches.changed(load_change("flip", IMAGES, None), stream(1)).shuffled(12, stream()))
    assert all(same_bits(one[0], other[0]) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize(
    ("name", "features", "targets", "wrong"),
    [
        ("mirror", IMAGES, None, "unknown; use flip, crop, flip-crop or your own"),
        ("flip", Features(shape=(4,), dtype="float32"), None, r"has the shape \[4\]; use a function of"),
        ("flip", {"a": IMAGES, "b": IMAGES}, None, "the shape arrays a, b; use"),
        ("crop", IMAGES, Targets(dtype="uint8", shape=(7, 5)), r"\[5, 7\] .*have the shape \[7, 5\]"),
        ("crop", IMAGES, {"a": MASKS, "b": MASKS}, "targets have the names a, b"),
    ],
)
def test_what_is_no_image_is_refused(name, features, targets, wrong):
    with pytest.raises(InputError, match=wrong):
        load_change(name, features, targets)


@pytest.fixture
def own(monkeypatch):
    module = types.ModuleType("changes")
    monkeypatch.setitem(sys.modules, "changes", module)
    return module


def test_a_function_of_the_user_gets_the_batch_and_what_to_draw_from(own):
    def louder(batch, generator):
        return {"x": batch["x"] + torch.rand((), generator=generator), "y": batch["y"]}

    own.change = louder
    x, y = torch.zeros(3, 4), torch.arange(3)
    made = load_change("changes:change", Features(shape=(4,), dtype="float32"), None)(
        {"x": x, "y": y}, stream()
    )
    assert torch.equal(made["x"], x + torch.rand((), generator=stream()))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda batch, generator: (batch["x"], batch["y"]), "returned tuple; return x and y by name"),
        (lambda batch, generator: {"x": batch["x"]}, "returned x; return x and y"),
        (lambda batch, generator: {**batch, "x": batch["x"][:1]}, "3 examples came to 1 and 3 targets"),
    ],
)
def test_an_answer_that_is_no_batch_is_refused(own, change, wrong):
    own.change = change
    made = load_change("changes:change", IMAGES, None)
    with pytest.raises(InputError, match=wrong):
        made({"x": torch.zeros(3, 4), "y": torch.arange(3)}, stream())


def test_what_cannot_be_called_is_refused(own):
    own.change = 3
    with pytest.raises(InputError, match="cannot be called; name a function of a batch"):
        load_change("changes:change", IMAGES, None)
