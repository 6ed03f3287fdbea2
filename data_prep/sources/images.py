"""A folder of PNG or JPEG images for each class, decoded as they are needed."""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.reading import needed, unreadable
from mpifl.common import InputError

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = (".png", ".jpg", ".jpeg")
GREY = ("1", "L", "LA")
MOST_PIXELS = 1 << 26
"""Pixels of an image: 200 MB in memory."""
DAMAGED: tuple[type[Exception], ...] = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    MemoryError,
)
DAMAGED += (struct.error, zlib.error)
"""What Pillow raises for images that are none."""
Shape = tuple[int, int, int]
"""Channels, height and width of an image."""


def read_images(data: Path | None, seed: int, *, size: str = "", grey: bool = False) -> Dataset:
    """List the images of a folder's class folders, or of those in its `train` and `test`, and decode them
    when asked.

    Classes are the folders' names in their order. Images become uint8 [n, 3, height, width], or [n, 1,
    height, width] if all are grey or `grey` is given, with scale 1/255. `size` is WIDTHxHEIGHT, to which
    images are resized, bilinear; without it all must be of one size. `train` and `test` count as such only
    where both are there.
    """
    _pillow()
    wanted = _parse(size) if size else None
    folder = needed("images", data, "photographs (a folder that has a folder of images for each class)")
    split = (folder / "train").is_dir() and (folder / "test").is_dir()
    names = _class_names(folder / "train" if split else folder)
    paths, y = _listed(folder / "train" if split else folder, names)
    test_paths, test_y = _listed(folder / "test", names) if split else ([], np.empty(0, np.int64))
    shape = _common_shape([*paths, *test_paths], wanted, grey)
    files = {f"{folder.name}/**": _digest(folder, [*paths, *test_paths])}
    test = (ImageRows(test_paths, shape, bool(size)), test_y) if split else None
    x = ImageRows(paths, shape, bool(size))
    return Dataset(str(folder), x, y, len(names), files, scale=1 / 255, test=test, class_names=tuple(names))


class ImageRows:
    """Images brought to one shape, uint8 [n, channels, height, width], decoded when they are asked for."""

    dtype = np.dtype(np.uint8)

    def __init__(self, paths: Sequence[Path], shape: Shape, resize: bool) -> None:
        self.paths, self.shape, self._resize = paths, (len(paths), *shape), resize

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
        with _opened(path) as stored:
            try:
                image = stored.convert("L" if channels == 1 else "RGB")
            except DAMAGED as error:
                raise InputError(
                    f"{path}: the image is damaged or cut short ({error}); replace or remove it"
                ) from None
        if self._resize:
            image = image.resize((width, height), _pillow().Resampling.BILINEAR)
        return np.moveaxis(np.asarray(image).reshape(height, width, channels), 2, 0)


def _class_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(
            f"{folder}: is not a folder; --data must name one with a folder of images for each class"
        )
    names = [path.name for path in _inside(folder) if path.is_dir()]
    if not names:
        raise InputError(
            f"{folder}: has no folders in it; put the images of each class into a folder of its own"
        )
    return names


def _listed(folder: Path, names: Sequence[str]) -> tuple[list[Path], np.ndarray]:
    """Return all images, class by class and by name, and their labels [n];
    refuse other files and empty classes."""
    if unknown := sorted(set(_class_names(folder)) - set(names)):
        raise InputError(
            f"{folder / unknown[0]}: a class that train lacks; there are {', '.join(names)[:200]}"
        )
    classes = [_inside(folder / name) if (folder / name).is_dir() else [] for name in names]
    for name, found in zip(names, classes, strict=True):
        if not found:
            raise InputError(
                f"{folder / name}: an empty class; put images there, or remove the class everywhere"
            )
    paths = [path for found in classes for path in found]
    for path in paths:
        if path.suffix.lower() not in ENDINGS or not path.is_file():
            raise InputError(f"{path}: is no image; a class folder holds {', '.join(ENDINGS)} files alone")
    return paths, np.repeat(np.arange(len(names)), [len(found) for found in classes])


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _common_shape(paths: Sequence[Path], size: tuple[int, int] | None, grey: bool) -> Shape:
    """Return the shape all images are brought to; looks at every image's header."""
    shapes = [_shape(path) for path in paths]
    channels = 1 if grey else max(shape[0] for shape in shapes)
    if size is None:
        for path, (_, height, width) in zip(paths, shapes, strict=True):
            if (height, width) != shapes[0][1:]:
                other = f"{paths[0].name} has {shapes[0][2]}x{shapes[0][1]}"
                raise InputError(f"{path}: {width}x{height} pixels, {other}; add --option size=WIDTHxHEIGHT")
    return channels, *(size or shapes[0][1:])


def _shape(path: Path) -> Shape:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a size that is refused below
        opened = _opened(path)
    with opened as image:
        if image.width * image.height > MOST_PIXELS:
            found = f"{image.width:,}x{image.height:,} pixels given"
            raise InputError(f"{path}: {found}; an image has at most {MOST_PIXELS:,} pixels, make it smaller")
        if image.mode.startswith(("I", "F")):
            raise InputError(
                f"{path}: has more than 8 bits a pixel; convert it to 8, or store arrays (npy, hdf5)"
            )
        return 1 if image.mode in GREY else 3, image.height, image.width


def _parse(size: str) -> tuple[int, int]:
    """Return (height, width) of WIDTHxHEIGHT."""
    width, _, height = size.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(
            f"--option: size={size} given; it must be WIDTHxHEIGHT in pixels, for instance 64x64"
        )
    if len(size) > 20 or int(width) * int(height) > MOST_PIXELS:
        raise InputError(f"--option: size={size[:40]} given; it must be at most {MOST_PIXELS:,} pixels")
    return int(height), int(width)


def _digest(folder: Path, paths: Sequence[Path]) -> str:
    """Return one sha256 over the names and contents of all images."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise unreadable(path, error) from None
        digest.update(f"{path.relative_to(folder).as_posix()}\n{content}\n".encode())
    return digest.hexdigest()


def _opened(path: Path) -> Image.Image:
    """Open an image; its pixels are not read yet."""
    pillow = _pillow()
    try:
        return pillow.open(path, formats=("PNG", "JPEG"))  # type: ignore[no-any-return]
    except pillow.DecompressionBombError:
        raise InputError(f"{path}: an image has at most {MOST_PIXELS:,} pixels; make it smaller") from None
    except DAMAGED:
        raise InputError(
            f"{path}: is no PNG or JPEG image, or cannot be read; replace or remove it"
        ) from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise InputError("SOURCE: 'images' needs Pillow; pip install 'mpifl[images]'") from None
    return Image
