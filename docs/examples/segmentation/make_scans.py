"""Writes small scans with a nodule or two in each, and their masks: python make_scans.py FOLDER"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

COUNT, SIDE = 90, 48


def main() -> None:
    folder, draw = Path(sys.argv[1]), np.random.default_rng(3)
    for name in ("scans", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for number in range(COUNT):
        mask = np.zeros((SIDE, SIDE), np.uint8)
        for _ in range(draw.integers(1, 3)):
            y, x = draw.uniform(10, SIDE - 10, 2)
            height, width = draw.uniform(3, 8, 2)
            mask[((rows - y) / height) ** 2 + ((columns - x) / width) ** 2 < 1] = 1
        scan = 90 + 40 * mask + 15 * np.sin(columns / 5 + draw.uniform(0, 6)) + draw.normal(0, 18, mask.shape)
        Image.fromarray(scan.clip(0, 255).astype(np.uint8)).save(folder / f"scans/{number:03}.png")
        Image.fromarray(mask).save(folder / f"masks/{number:03}.png")


if __name__ == "__main__":
    main()
