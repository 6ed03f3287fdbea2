"""How images are turned: cameras store what the sensor sees, and in EXIF data which side is up."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from mpifl.common import InputError

if TYPE_CHECKING:
    from PIL import Image

TAG = 0x0112
"""Orientation among the tags of EXIF (TIFF 6.0, p. 36)."""
UPRIGHT = (0, 1)
"""Values of what is not turned; 0 is of cameras that do not know."""
ACTS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What Pillow calls the act that brings each upright."""
SIDEWAYS = (5, 6, 7, 8)
"""Those whose height and width change places."""
SAYING = (b"eXIf", b"iTXt", b"tEXt", b"zTXt")
"""Chunks of a PNG file that may say it."""
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


def orientation_of(path: Path, image: Image.Image) -> int:
    """Return how an image is stored, by its EXIF or XMP data: upright (1) or a key of `ACTS`.

    Its pixels are read only where a PNG file says something behind them.

    Raises:
        InputError: the data are damaged, or say what is no orientation.
    """
    from PIL import Image as Library

    try:
        if image.format == "PNG" and _says_more(path):
            image.load()
        found = Library.Image.getexif(image).get(TAG, 1)  # that of PNG always reads the pixels
    except DAMAGED as error:
        what = f"its EXIF data are damaged, or it is cut short ({error})"
        raise InputError(f"{path}: {what}; save the image again") from None
    if found in UPRIGHT:
        return 1
    if found not in ACTS:
        raise InputError(f"{path}: EXIF orientation {found}, there are 1 to 8; save the image again")
    return int(found)


def turned(image: Image.Image, orientation: int) -> Image.Image:
    """Return an image upright; nothing is resampled."""
    if orientation == 1:
        return image
    from PIL import Image as Library

    return image.transpose(Library.Transpose[ACTS[orientation]])


def _says_more(path: Path) -> bool:
    """Tell whether a PNG file says something of itself behind its pixels."""
    behind = False
    with path.open("rb") as file:
        file.seek(8)
        while len(head := file.read(8)) == 8:
            kind = head[4:]
            if behind and kind in SAYING:
                return True
            behind |= kind == b"IDAT"
            file.seek(int.from_bytes(head[:4], "big") + 4, 1)
    return False
