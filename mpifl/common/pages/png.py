"""Heat maps as PNG images of a pixel a cell, for pages that hold everything they show."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

BLUES = ((247, 250, 253), (198, 219, 239), (107, 174, 214), (33, 113, 181), (8, 48, 107))
DIVERGING = ((178, 58, 32), (239, 168, 130), (248, 248, 248), (130, 178, 217), (22, 84, 148))
WORST_TO_BEST = ((0, 34, 78), (87, 93, 109), (165, 156, 116), (253, 231, 55))
"""Told apart by brightness alone."""
Colours = tuple[tuple[int, int, int], ...]


def coloured(values: np.ndarray, colours: Colours) -> np.ndarray:
    """Return the colours, uint8 [..., 3], of values in [0, 1], between those given at even distances."""
    at = np.linspace(0, 1, len(colours))
    channels = [np.interp(values, at, [colour[i] for colour in colours]) for i in range(3)]
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
