"""Image files: of one shape, decoded as they are needed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep.sources.orientation import DAMAGED, SIDEWAYS, orientation_of, turned
from data_prep.sources.reading import held_in
from mpifl.common import InputError
from mpifl.common.machine import floors

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = (".png", ".jpg", ".jpeg")
GREY = ("1", "L", "LA")
MOST_PIXELS = 1 << 26
"""Pixels of an image: 200 MB in memory."""
Shape = tuple[int, int, int]
"""Channels, height and width of an image."""
Colour = tuple[int, int, int]
"""Red, green and blue, each from 0 to 255."""
GROUNDS: dict[str, Colour] = {"white": (255, 255, 255), "black": (0, 0, 0)}
"""What lies under transparent pixels, by name."""


class ImageRows:
    """Images brought to one shape, uint8 [n, channels, height, width], decoded when they are asked for."""

    dtype = np.dtype(np.uint8)

    def __init__(self, paths: Sequence[Path], shape: Shape, resize: bool, ground: Colour) -> None:
        self.paths, self.shape, self._resize = paths, (len(paths), *shape), resize
        self._ground = ground

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, at: Any) -> np.ndarray:
        examples = np.arange(len(self.paths))[at]
        out = np.empty((len(examples), *self.shape[1:]), np.uint8)
        for row, example in enumerate(examples):
            out[row] = self._decode(self.paths[example])
        return out

    def _decode(self, path: Path) -> np.ndarray:
        """Decode an image to [channels, height, width]."""
        channels, height, width = self.shape[1:]
        with opened(path) as stored:
            try:
                image = _laid(stored, self._ground).convert("L" if channels == 1 else "RGB")
            except DAMAGED as error:
                raise InputError(
                    f"{path}: the image is damaged or cut short ({error}); replace or remove it"
                ) from None
            image = turned(image, orientation_of(path, stored))
        if self._resize:
            image = image.resize((width, height), pillow().Resampling.BILINEAR)
        return np.moveaxis(np.asarray(image).reshape(height, width, channels), 2, 0)


def inside(folder: Path, named: Path) -> list[Path]:
    """List what a folder holds, by name, and what is hidden left out; no link may lead out of the one that is
    named."""
    held_in(named, folder)
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                found.append(
                    held_in(named, folder / entry.name) if entry.is_symlink() else folder / entry.name
                )
    return sorted(found)


def is_split(folder: Path) -> bool:
    """Tell whether a folder has one for training and one for testing; either alone is like any other."""
    return (folder / "train").is_dir() and (folder / "test").is_dir()


def parsed_ground(ground: str) -> Colour:
    """Return the colour of a name, or of #rrggbb."""
    if ground in GROUNDS:
        return GROUNDS[ground]
    try:
        red, green, blue = bytes.fromhex(ground.removeprefix("#"))
    except ValueError:
        told = f"--option: ground={ground} given; it must be {', '.join(GROUNDS)} or a colour as #ffffff"
        raise InputError(told) from None
    return red, green, blue


def laid(paths: Sequence[Path], ground: str) -> dict[str, Any] | None:
    """Return how many images may be transparent, by their headers, and on what they lie; None without any."""
    count = 0
    for path in paths:
        if path.suffix.lower() == ".png":
            with opened(path) as image:
                count += _may_be_transparent(image)
    return {"images": count, "on": ground} if count else None


def _laid(image: Image.Image, ground: Colour) -> Image.Image:
    """Return an image with its transparent pixels on a ground; another as it is."""
    if not _may_be_transparent(image):
        return image
    under = pillow().new("RGBA", image.size, (*ground, 255))
    under.alpha_composite(image.convert("RGBA"))
    return under  # type: ignore[no-any-return]


def _may_be_transparent(image: Image.Image) -> bool:
    return image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info


def common_shape(paths: Sequence[Path], size: tuple[int, int] | None, grey: bool) -> Shape:
    """Return the shape all images are brought to; looks at every image's header."""
    shapes = [shape_of(path) for path in paths]
    channels = 1 if grey else max(shape[0] for shape in shapes)
    if size is None:
        for path, (_, height, width) in zip(paths, shapes, strict=True):
            if (height, width) != shapes[0][1:]:
                other = f"{paths[0].name} has {shapes[0][2]}x{shapes[0][1]}"
                raise InputError(f"{path}: {width}x{height} pixels, {other}; add --option size=WIDTHxHEIGHT")
    return channels, *(size or shapes[0][1:])


def shape_of(path: Path) -> Shape:
    """Return an image's shape by its header, turned as its EXIF data say.

    Raises:
        InputError: it is too large, or has more than 8 bits a pixel.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a size that is refused below
        image_file = opened(path)
    with image_file as image:
        if image.width * image.height > MOST_PIXELS:
            found = f"{image.width:,}x{image.height:,} pixels given"
            raise InputError(f"{path}: {found}; an image has at most {MOST_PIXELS:,} pixels, make it smaller")
        if image.mode.startswith(("I", "F")) or _is_deep(path):
            raise InputError(
                f"{path}: has more than 8 bits a pixel; convert it to 8, or store arrays (npy, hdf5)"
            )
        sideways = orientation_of(path, image) in SIDEWAYS
        height, width = (image.width, image.height) if sideways else (image.height, image.width)
        return 1 if image.mode in GREY else 3, height, width


def is_turned(path: Path) -> bool:
    """Tell whether an image is stored otherwise than it is seen."""
    with opened(path) as image:
        return orientation_of(path, image) != 1


def _is_deep(path: Path) -> bool:
    """Tell whether a PNG has 16 bits a channel, by its header; of colours Pillow would drop 8 of them."""
    with path.open("rb") as file:
        start = file.read(25)
    return start[:4] == b"\x89PNG" and start[24:] == b"\x10"


def parsed_size(size: str) -> tuple[int, int]:
    """Return (height, width) of WIDTHxHEIGHT."""
    width, _, height = size.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(
            f"--option: size={size} given; it must be WIDTHxHEIGHT in pixels, for instance 64x64"
        )
    if len(size) > 20 or int(width) * int(height) > MOST_PIXELS:
        raise InputError(f"--option: size={size[:40]} given; it must be at most {MOST_PIXELS:,} pixels")
    return int(height), int(width)


def opened(path: Path) -> Image.Image:
    """Open an image; its pixels are not read yet."""
    library = pillow()
    try:
        return library.open(path, formats=("PNG", "JPEG"))  # type: ignore[no-any-return]
    except library.DecompressionBombError:
        raise InputError(f"{path}: an image has at most {MOST_PIXELS:,} pixels; make it smaller") from None
    except DAMAGED:
        raise InputError(
            f"{path}: is no PNG or JPEG image, or cannot be read; replace or remove it"
        ) from None


def pillow() -> Any:
    """Return the library that decodes images; raise InputError where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("SOURCE: 'images' needs Pillow; pip install 'mpifl[images]'") from None
    floors.hold("images")
    return Image
