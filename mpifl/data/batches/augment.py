"""Augmentation, drawn anew for each training batch: flips and crops of images, or the user's own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from mpifl.common import InputError, load_plugin
from mpifl.data import Aims, Features, Inputs, Targets, rows

PADDING = 4
"""Pixels on each side of an image before a crop, as usual for CIFAR (He et al. 2016, section 4.2)."""
Change: TypeAlias = Callable[[dict[str, Any], torch.Generator], dict[str, Any]]
"""(a batch as {"x": ..., "y": ...}, random generator) -> a batch."""
_Move: TypeAlias = Callable[[Tensor, int], Tensor]
"""(images [n, channels, height, width], the value outside them) -> images."""


def flip(images: Tensor, generator: torch.Generator) -> _Move:
    """Return a move that mirrors some images from left to right; each image is drawn with probability 1/2."""
    chosen = (torch.rand(len(images), generator=generator) < 0.5).to(images.device).view(-1, 1, 1, 1)
    return lambda moved, outside: torch.where(chosen, moved.flip(-1), moved)


def crop(images: Tensor, generator: torch.Generator) -> _Move:
    """Return a move that pads each image by 4 pixels on each side and crops it to its size at a drawn
    place."""
    n, _, height, width = images.shape
    top, left = torch.randint(0, 2 * PADDING + 1, (2, n, 1), generator=generator).to(images.device)
    place = torch.arange(n, device=images.device).view(-1, 1, 1)
    across = (left + torch.arange(width, device=images.device)).unsqueeze(1)
    down = (top + torch.arange(height, device=images.device)).unsqueeze(2)

    def move(moved: Tensor, outside: int) -> Tensor:
        padded = F.pad(moved, (PADDING,) * 4, value=outside)
        return padded.movedim(1, -1)[place, down, across].movedim(-1, 1).contiguous()

    return move


CHANGES: dict[str, tuple[Callable[[Tensor, torch.Generator], _Move], ...]] = {
    "flip": (flip,),
    "crop": (crop,),
    "flip-crop": (flip, crop),
}


def load_change(name: str, features: Inputs, targets: Aims | None) -> Change:
    """Return the augmentation of a federation's batches: a named one, or the user's own
    `package.module:function`.

    Raises:
        InputError: there is no such augmentation, or the examples are not images.
    """
    if name not in CHANGES:
        return _own(name, load_plugin(name, "[data] augment", CHANGES))
    _, outside = check_images(f"[data] augment = '{name}'", features, targets)
    return functools.partial(_moved, CHANGES[name], outside)


def check_images(where: str, features: Inputs, targets: Aims | None) -> tuple[Features, int | None]:
    """See that examples are images, with one target or a mask each.

    Returns:
        The format of an image, and the class of a mask's pixels outside of it; None if targets are no masks.

    Raises:
        InputError: they are something else; the line begins with `where`.
    """
    own = "use a function of your own, 'module:function'"
    if not isinstance(features, Features) or len(features.shape) != 3:
        found = list(features.shape) if isinstance(features, Features) else f"arrays {', '.join(features)}"
        what = f"moves images [channels, height, width], and an example has the shape {found}"
        raise InputError(f"{where}: {what}; {own}")
    if targets is None or (isinstance(targets, Targets) and len(targets.shape) < 2):
        return features, None
    if not (isinstance(targets, Targets) and targets.shape[-2:] == features.shape[-2:]):
        found = (
            f"shape {list(targets.shape)}" if isinstance(targets, Targets) else f"names {', '.join(targets)}"
        )
        what = f"moves masks of {list(features.shape[-2:])} pixels alike, and targets have the {found}"
        raise InputError(f"{where}: {what}; {own}")
    return features, 0 if targets.ignore is None else targets.ignore


def _moved(
    kinds: tuple[Callable[[Tensor, torch.Generator], _Move], ...],
    outside: int | None,
    batch: Mapping[str, Any],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Move the images of a batch, and its masks in the same way.

    Args:
        kinds: The kinds of moves, one after another.
        outside: The class of mask pixels outside the image, where targets are masks; image pixels there are
            0.
        batch: x of shape [n, channels, height, width], and y.
        generator: The random generator.
    """
    x, y = batch["x"], batch["y"]
    for kind in kinds:
        move = kind(x, generator)
        x = move(x, 0)
        if outside is not None:
            layers = math.prod(y.shape[1:-2])
            y = move(y.reshape(len(y), layers, *y.shape[-2:]), outside).reshape(y.shape)
    return {"x": x, "y": y}


def _own(name: str, function: Any) -> Change:
    """Return a user's function with a check that it returns batches."""
    if isinstance(function, type) or not callable(function):
        what = "is a class" if isinstance(function, type) else "cannot be called"
        to_do = "name a function of a batch {'x': ..., 'y': ...} and a generator that returns a batch"
        raise InputError(f"[data] augment = '{name}': {what}; {to_do}")

    def change(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
        found = function(batch, generator)
        if not isinstance(found, Mapping) or found.keys() != {"x", "y"}:
            keys = ", ".join(found) if isinstance(found, Mapping) else type(found).__name__
            raise InputError(f"[data] augment = '{name}': returned {keys}; return x and y by name")
        if not rows(found["x"]) == rows(found["y"]) == rows(batch["y"]):
            counts = f"{rows(batch['y'])} examples came to {rows(found['x'])} and {rows(found['y'])} targets"
            raise InputError(f"[data] augment = '{name}': {counts}; return as many of each")
        return dict(found)

    return change
