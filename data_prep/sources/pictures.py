"""Image files: of one shape and depth, decoded as they are needed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from data_prep.sources.orientation import DAMAGED, SIDEWAYS, orientation_of, turned
from data_prep.sources.scaling import scale_of
from mpifl.common import InputError
from mpifl.common.machine import floors
from mpifl.data.shards import Provenance, ids_of, record_of

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
GREY = ("1", "L", "LA")
MOST_PIXELS = 1 << 26
"""Pixels of an image: 200 MB in memory."""
BITS, WIDTH, HEIGHT, PHOTOMETRIC = 258, 256, 257, 262
"""Tags of TIFF (TIFF 6.0)."""
DEPTHS = {"uint8": ("uint8", 255), "uint16": ("int32", 65535), "int16": ("int16", 32767)}
"""What numbers of pixels are stored as, which shards have, and which of them is 1 to a model."""
ALIKE = "make them alike: 8 bits times 257 are 16 bits, or save all with 8"
Colour = tuple[int, int, int]
"""Red, green and blue, each from 0 to 255."""
GROUNDS: dict[str, Colour] = {"white": (255, 255, 255), "black": (0, 0, 0)}
"""What lies under transparent pixels, by name."""


class Form(NamedTuple):
    """What images are brought to.

    Attributes:
        channels: 1 of grey ones, or 3.
        height: In pixels.
        width: In pixels.
        depth: A key of `DEPTHS`.
    """

    channels: int
    height: int
    width: int
    depth: str = "uint8"

    @property
    def scale(self) -> float:
        """Return what a model multiplies pixels by."""
        return 1 / DEPTHS[self.depth][1]


class Manner(NamedTuple):
    """How images are read, as the user says it.

    Attributes:
        size: Height and width to which they are resized, if any.
        grey: Whether as grey ones.
        ground: What lies under transparent pixels.
        scale: What a model multiplies pixels by, if it is given.
    """

    size: tuple[int, int] | None
    grey: bool
    ground: str
    scale: str

    def rows(self, paths: Sequence[Path], form: Form) -> ImageRows:
        """Return images of a form."""
        return ImageRows(paths, form, self.size is not None, parsed_ground(self.ground))

    def told(self, paths: Sequence[Path], form: Form, **more: Any) -> dict[str, Any]:
        """Return what a data set of images says: their scale, those on a ground, their form, `more`."""
        facts = {"channels": form.channels, "depth": form.depth, "ground": self.ground, "grey": self.grey}
        size = {"size": [form.height, form.width], "resize": self.size is not None, **more}
        seen = {"scale": scale_of(self.scale) or form.scale, "laid": laid(paths, self.ground)}
        return seen | {"encoding": record_of("images", **facts, **size)}


class ImageRows:
    """Images brought to one form, [n, channels, height, width], decoded when they are asked for."""

    def __init__(self, paths: Sequence[Path], form: Form, resize: bool, ground: Colour) -> None:
        self.paths, self.shape, self._resize = paths, (len(paths), *form[:3]), resize
        self.dtype = np.dtype(DEPTHS[form.depth][0])
        self._ground, self._depth = ground, form.depth

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, at: Any) -> np.ndarray:
        examples = np.arange(len(self.paths))[at]
        out = np.empty((len(examples), *self.shape[1:]), self.dtype)
        for row, example in enumerate(examples):
            out[row] = self._decode(self.paths[example])
        return out

    def _decode(self, path: Path) -> np.ndarray:
        """Decode an image to [channels, height, width]."""
        channels, height, width = self.shape[1:]
        with opened(path) as stored:
            try:
                image = (
                    _laid(stored, self._ground).convert("L" if channels == 1 else "RGB")
                    if self._depth == "uint8"
                    else _deep(stored)
                )
            except DAMAGED as error:
                raise InputError(
                    f"{path}: the image is damaged or cut short ({error}); replace or remove it"
                ) from None
            image = turned(image, orientation_of(path, stored))  # as read: Pillow turns TIFF by itself
        if self._resize:
            image = image.resize((width, height), pillow().Resampling.BILINEAR)
        if self._depth != "uint8":
            pixels = np.rint(np.asarray(image)).astype(self.dtype)
        else:
            pixels = np.asarray(image)
        return np.moveaxis(pixels.reshape(height, width, channels), 2, 0)


def called(folder: Path, paths: Sequence[Path], of_test: Sequence[Path] = ()) -> dict[str, Any]:
    """Return what a data set of files says of their names: each one's path in the folder is its id."""
    own, others = (
        ids_of(path.relative_to(folder).as_posix() for path in several) for several in (paths, of_test)
    )
    return {"given": Provenance(ids=own), "given_of_test": Provenance(ids=others)}


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
        if path.suffix.lower() not in (".jpg", ".jpeg"):
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


def _deep(image: Image.Image) -> Image.Image:
    """Return a grey image of 16 bits in float32, which holds them all."""
    pixels = np.asarray(image).astype(np.float32)
    if image.format == "TIFF" and image.tag_v2.get(PHOTOMETRIC) == 0:  # type: ignore[attr-defined]
        pixels = DEPTHS["uint16"][1] - pixels  # 0 is white there, which Pillow turns round for 8 bits alone
    return pillow().fromarray(pixels)  # type: ignore[no-any-return]


def common_form(paths: Sequence[Path], size: tuple[int, int] | None, grey: bool) -> tuple[Form, str]:
    """Return the form all images are brought to, and a line where some alone are in colour; looks at every
    image's header."""
    forms = [form_of(path) for path in paths]
    channels = 1 if grey else max(form.channels for form in forms)
    for path, form in zip(paths, forms, strict=True):
        if size is None and form[1:3] != forms[0][1:3]:
            other = f"{paths[0].name} has {forms[0].width}x{forms[0].height}"
            raise InputError(f"{path}: {form.width}x{form.height} pixels, {other}; add --size WIDTHxHEIGHT")
    if told := told_depths(paths, forms):
        raise InputError(told)
    return Form(channels, *(size or forms[0][1:3]), forms[0].depth), "" if grey else _mixed(paths, forms)


def _mixed(paths: Sequence[Path], forms: Sequence[Form]) -> str:
    """Say how many images are in colour among grey ones; "" if all are alike."""
    coloured = [path for path, form in zip(paths, forms, strict=True) if form.channels > 1]
    if len(coloured) in (0, len(paths)):
        return ""
    first = f"{coloured[0].parent.name}/{coloured[0].name} the first"
    what = f"{len(coloured):,} of {len(paths):,} images are in colour, {first}, so all have 3 channels"
    return f"{what}; --grey makes all grey"


def told_depths(paths: Sequence[Path], forms: Sequence[Form]) -> str:
    """Say of the first image whose pixels are of another kind than those before it; "" if they are alike."""
    for path, form in zip(paths, forms, strict=True):
        if form.depth != forms[0].depth:
            return f"{path}: pixels are {form.depth}, {paths[0].name} has {forms[0].depth}; {ALIKE}"
    return ""


def form_of(path: Path) -> Form:
    """Return an image's form by its header, turned as its EXIF data say.

    Raises:
        InputError: it is too large, of several pages, or of more bits than can be kept.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a size that is refused below
        image_file = opened(path)
    with image_file as image:
        width, height = _stored_size(path, image)
        if width * height > MOST_PIXELS:
            found = f"{width:,}x{height:,} pixels given"
            raise InputError(f"{path}: {found}; an image has at most {MOST_PIXELS:,} pixels, make it smaller")
        depth = _depth_of(path, image)
        if orientation_of(path, image) in SIDEWAYS:
            width, height = height, width
        return Form(1 if depth != "uint8" or image.mode in GREY else 3, height, width, depth)


def _stored_size(path: Path, image: Image.Image) -> tuple[int, int]:
    """Return the width and height of an image as it lies in its file: of TIFF Pillow may say them turned."""
    if image.format != "TIFF":
        return image.size
    try:
        if (pages := image.n_frames) > 1:  # type: ignore[attr-defined]
            raise InputError(f"{path}: has {pages} pages; store each as a file, or all as arrays (npy, hdf5)")
        tags = image.tag_v2  # type: ignore[attr-defined]
        return int(tags[WIDTH]), int(tags[HEIGHT])
    except DAMAGED as error:
        raise InputError(f"{path}: its tags are damaged ({error}); save the image again") from None


def _depth_of(path: Path, image: Image.Image) -> str:
    """Return what an image's pixels are, a key of `DEPTHS`; refuse others."""
    tags = image.tag_v2 if image.format == "TIFF" else {}  # type: ignore[attr-defined]
    bits = tags.get(BITS, (8,))
    if image.mode.startswith("I;16") and "transparency" not in image.info:
        return "uint16"
    if image.mode == "I" and bits == (16,):
        return "int16"
    if image.mode.startswith(("I", "F")) or max(bits) > 8 or _is_deep(path):
        kept = "8 bits a pixel, or 16 of grey without transparency, are read"
        raise InputError(f"{path}: has more than 8 bits a pixel; {kept}; store arrays (npy, hdf5)")
    return "uint8"


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
        image: Image.Image = library.open(path, formats=("PNG", "JPEG", "TIFF"))
    except library.DecompressionBombError:
        raise InputError(f"{path}: an image has at most {MOST_PIXELS:,} pixels; make it smaller") from None
    except DAMAGED:
        raise InputError(
            f"{path}: is not a PNG, JPEG or TIFF image, or cannot be read; replace or remove it"
        ) from None
    if image.format == "TIFF":
        image.filename = ""  # type: ignore[attr-defined] # else Pillow maps the pixels, and turns others
    return image


def pillow() -> Any:
    """Return the library that decodes images; raise InputError where it is not installed."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("SOURCE: 'images' needs Pillow; pip install 'mpifl[images]'") from None
    floors.hold("images")
    return Image
