"""Heat maps as PNG images of a pixel a cell, for pages that hold everything they show."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

RED, BLUE = (200, 80, 50), (33, 113, 181)
BLUES = ((*BLUE, 0), (*BLUE, 255))
DIVERGING = ((*RED, 255), (*RED, 128), (116, 96, 116, 0), (*BLUE, 128), (*BLUE, 255))
"""Nothing is clear, and shows the ground of a page, be it light or dark."""
WORST_TO_BEST = ((54, 107, 180), (110, 133, 150), (172, 168, 120), (253, 231, 55))
"""Told apart by brightness alone, and from a light and a dark ground."""
Colours = tuple[tuple[int, ...], ...]


def coloured(values: np.ndarray, colours: Colours) -> np.ndarray:
    """Return the colours, uint8 [..., 3 or 4], of values in [0, 1], between those given at even distances."""
    at = np.linspace(0, 1, len(colours))
    channels = [np.interp(values, at, [colour[i] for colour in colours]) for i in range(len(colours[0]))]
    return np.asarray(np.rint(np.stack(channels, axis=-1)), dtype=np.uint8)


def encoded(pixels: np.ndarray) -> bytes:
    """Return an image, uint8 [height, width, 3 or 4], as a PNG file (ISO/IEC 15948):
    unfiltered rows, one IDAT chunk. The fourth is how much is to be seen."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 6, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def address(pixels: np.ndarray) -> str:
    """Return an image as the address of an element that needs no file."""
    return "data:image/png;base64," + base64.b64encode(encoded(pixels)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
