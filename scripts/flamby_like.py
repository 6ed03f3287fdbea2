"""Make data of the input shapes and client sizes of six of FLamby's data sets (du Terrail et al. 2022).

python -m scripts.flamby_like ixi --out data/flamby/ixi writes x.npy, y.npy, silo.npy and held_out.npy, as
`data_prep partition npy` takes them, and prints that command. Nothing is real: each set has a signal that its
model can learn, and centres that differ in how they measure it. Shapes, centres and sizes are those of the
README of each data set in FLamby's repository, commit edacf54; what is different stands below.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpifl.common import numpy_stream

Draw = np.random.Generator
Example = tuple[np.ndarray, np.ndarray]

LEAST = 8
"""The fewest voxels, tiles or features along a side, at any scale."""
FEWEST = (6, 3)
"""The fewest examples that a centre trains on and holds out, whatever share is asked for."""


@dataclass(frozen=True)
class Set:
    """A data set to be made.

    Attributes:
        make: Makes an example: its shape, its stream, its centre from 0 (the first) to 1 (the last).
        shape: Of an example's features at scale 1.
        target: dtype of the targets, whose shape `make` decides.
        scale: What a laptop trains on within a minute.
        centres: What they are called, and how many examples each trains on and holds out.
        fixed: Leading axes that no scale changes.
        dtype: Of the features; uint8 is seen as x / 255.
    """

    make: Callable[[tuple[int, ...], Draw, float], Example]
    shape: tuple[int, ...]
    target: str
    scale: float
    centres: dict[str, tuple[int, int]]
    fixed: int = 1
    dtype: str = "float32"

    def shape_at(self, scale: float) -> tuple[int, ...]:
        """Return the shape with sides times `scale`, multiples of `LEAST` where there is a third axis."""
        sides = self.shape[self.fixed :]
        step = LEAST if len(self.shape) > 2 else 1
        scaled = (max(LEAST, step * round(side * scale / step)) for side in sides)
        return (*self.shape[: self.fixed], *(sides if scale == 1 else scaled))


FREQUENCIES = 1 / np.array([5.5813, 2.0472, 7.0204, 26.1194, 9.5369, 101.0707, 92.5224, 38.3443])
"""Of ISIC 2019's classes: FLamby's weights of the loss are their inverses."""
TUMOUR_TILES = 0.05
"""The share of a slide's tiles that show a tumour, where there is one."""


def patient(shape: tuple[int, ...], draw: Draw, centre: float) -> Example:
    """Return 39 features of a patient, and (time, event): proportional hazards that centres scale.

    FLamby stores (event, time), and 14 % are events; here about 45 % are, so that small centres have some.
    """
    x = np.where(
        np.arange(shape[0]) % 3 == 0, draw.normal(centre, 1, shape), draw.random(shape) < 0.2 + 0.3 * centre
    )
    effects = np.cos(np.arange(shape[0])) * 0.4
    event = draw.exponential() / np.exp(x @ effects + centre)
    lost = draw.exponential() * 0.7 / np.exp(centre)
    return x, np.array([min(event, lost), event <= lost])


def lesion(shape: tuple[int, ...], draw: Draw, centre: float) -> Example:
    """Return an image of a spot on skin: its class is three traits, red, ringed and dark-cored."""
    kind = draw.choice(8, p=FREQUENCIES / FREQUENCIES.sum())
    red, ringed, dark = (bool(kind >> trait & 1) for trait in range(3))
    radius = _distance(shape[1:], draw, 0.1, (0.5, 0.7))
    skin = np.array([0.85, 0.65, 0.55]) - 0.25 * centre
    spot = np.array([0.6, 0.25, 0.2] if red else [0.4, 0.3, 0.2])
    shade = np.where(radius < 0.4, 0.4, 1) if dark else np.ones_like(radius)
    shade = shade * (1 - 0.4 * (np.sin(12 * radius) > 0)) if ringed else shade
    image = np.where(radius < 1, spot[:, None, None] * shade, skin[:, None, None])
    image = image * draw.uniform(0.9, 1.1) + draw.normal(0, 0.03, shape)
    return np.clip(255 * image, 0, 255).astype(np.uint8), np.array(kind)


def slide(shape: tuple[int, ...], draw: Draw, centre: float) -> Example:
    """Return features of a slide's tiles, as of a ResNet's last layer, and whether some show a tumour."""
    ill = draw.random() < 0.4
    tiles = draw.normal(0, 1, shape).astype(np.float32)
    direction = np.sin(np.arange(shape[1])) + np.cos(7 * np.arange(shape[1]))
    shown = draw.random(shape[0]) < TUMOUR_TILES * ill
    tiles += 0.5 * shown[:, None] * direction.astype(np.float32)
    return np.maximum(tiles * (1 + 0.3 * centre) + 0.3 * centre, 0), np.array(ill)


def head(shape: tuple[int, ...], draw: Draw, centre: float) -> Example:
    """Return a volume with a skull around a brain, and the brain's mask."""
    radius = _distance(shape[1:], draw, 0.15, (0.55, 0.75))
    brain = radius < 1
    volume = 0.6 * brain + 0.9 * ((radius > 1.15) & (radius < 1.35))
    volume += _waves(shape[1:], draw, 0.15) + draw.normal(0, 0.1 + 0.15 * centre, shape[1:])
    return _measured(volume, draw, centre), brain


def chest(shape: tuple[int, ...], draw: Draw, centre: float) -> Example:
    """Return a patch of a lung with vessels, in four of five patches a nodule, and its mask.

    FLamby draws two patches from each scan at each pass, the same share of them with a nodule; here a scan
    is one patch.
    """
    nodule = (_distance(shape[1:], draw, 0.4, (0.25, 0.45)) < 1) & (draw.random() < 0.8)
    volume = 0.15 + 0.7 * nodule
    for _ in range(3):
        volume = np.maximum(volume, 0.8 * (_distance(shape[1:], draw, 0.8, (0.06, 0.1), long=True) < 1))
    volume += _waves(shape[1:], draw, 0.05) + draw.normal(0, 0.1 + 0.1 * centre, shape[1:])
    return _measured(volume, draw, centre), nodule


def abdomen(shape: tuple[int, ...], draw: Draw, centre: float) -> Example:
    """Return a volume with a kidney (1), a tumour (2) at its side and a bright organ that is neither."""
    kidney = _distance(shape[1:], draw, 0.3, (0.35, 0.5)) < 1
    tumour = _distance(shape[1:], draw, 0.1, (0.2, 0.3), around=draw.permutation(np.argwhere(kidney))[:1]) < 1
    other = _distance(shape[1:], draw, 0.9, (0.2, 0.35)) < 1
    mask = np.where(tumour, 2, kidney)
    volume = np.where(mask, np.choose(mask, [0, 0.6, 0.25]), 1.0 * other)
    volume += _waves(shape[1:], draw, 0.1) + draw.normal(0, 0.08 + 0.1 * centre, shape[1:])
    return _measured(volume, draw, centre), mask


def _distance(
    sides: tuple[int, ...],
    draw: Draw,
    away: float,
    radii: tuple[float, float],
    *,
    long: bool = False,
    around: np.ndarray | None = None,
) -> np.ndarray:
    """Return how far each place lies from an ellipsoid's centre, 1 at its surface; sides run from -1 to 1.

    Its centre lies up to `away` from the middle, or `around` a place. A `long` one is a tube along an axis.
    """
    middle = draw.uniform(-away, away, len(sides)) if around is None else 2 * around[0] / np.array(sides) - 1
    radius = draw.uniform(*radii, len(sides))
    if long:
        radius[draw.integers(len(sides))] = 4
    square = np.zeros(sides)
    for axis, side in enumerate(sides):
        along = (np.linspace(-1, 1, side) - middle[axis]) / radius[axis]
        square = square + np.expand_dims(along**2, [other for other in range(len(sides)) if other != axis])
    return np.sqrt(square)


def _waves(sides: tuple[int, ...], draw: Draw, height: float) -> np.ndarray:
    """Return a smooth field: what texture and an uneven coil do to a volume."""
    grid = np.meshgrid(*(np.linspace(0, 1, side) for side in sides), indexing="ij")
    turns, start = draw.uniform(-9, 9, len(sides)), draw.uniform(0, 6)
    return height * np.sin(sum(turn * axis for turn, axis in zip(turns, grid, strict=True)) + start)


def _measured(volume: np.ndarray, draw: Draw, centre: float) -> np.ndarray:
    """Return a volume, with a channel, as a centre's machine shows it: its gain and its zero."""
    return (volume * (1 + 0.6 * centre) * draw.uniform(0.9, 1.1) - 0.3 * centre)[None]


SETS = {
    "tcga-brca": Set(patient, (39,), "float32", 1.0, {
        "northeast": (248, 63), "south": (156, 40), "west": (164, 42),
        "midwest": (129, 33), "europe": (129, 33), "canada": (40, 11),
    }),
    "isic2019": Set(lesion, (3, 224, 224), "int64", 0.125, {
        "bcn": (9930, 2483), "molemax": (3163, 791), "modern": (2691, 672),
        "rosendahl": (1807, 452), "msk": (655, 164), "dias": (351, 88),
    }, dtype="uint8"),
    "camelyon16": Set(slide, (10_000, 2048), "int64", 0.02, {"rumc": (169, 74), "umcu": (101, 55)}, fixed=0),
    "ixi": Set(head, (1, 48, 60, 48), "uint8", 0.375, {"guys": (249, 62), "hh": (145, 36), "iop": (59, 15)}),
    "lidc-idri": Set(chest, (1, 128, 128, 128), "uint8", 0.125, {
        "ge": (530, 131), "philips": (59, 15), "siemens": (164, 41), "toshiba": (55, 14),
    }),
    "kits19": Set(abdomen, (1, 64, 192, 192), "uint8", 0.125, {
        "site0": (9, 3), "site1": (11, 3), "site2": (9, 3),
        "site3": (9, 3), "site4": (12, 4), "site5": (24, 6),
    }),
}  # fmt: skip
"""KiTS19's sizes are those of its metadata/thresholded_sites.csv, its shape the patch of its benchmark.py."""


def write(name: str, folder: Path, scale: float, share: float, seed: int) -> Set:
    """Write the arrays of a set, example by example; what is held out stands at the end of its centre."""
    data = SETS[name]
    sizes = [tuple(max(min(least, n), round(n * share)) for least, n in zip(FEWEST, pair, strict=True))
             for pair in data.centres.values()]  # fmt: skip
    shape = data.shape_at(scale)
    silo = np.repeat(np.arange(len(sizes)), [sum(size) for size in sizes])
    held_out = np.concatenate([np.arange(sum(size)) >= size[0] for size in sizes])
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {len(silo)} examples of shape {list(shape)}, {_gigabytes(data, shape, len(silo)):.2f} GB")
    x = y = None
    for row, centre in enumerate(silo):
        draw = numpy_stream(seed, name, int(centre), row)
        features, target = data.make(shape, draw, centre / (len(sizes) - 1))
        if x is None or y is None:
            x, y = (
                np.lib.format.open_memmap(folder / f"{letter}.npy", "w+", dtype, (len(silo), *array.shape))
                for letter, dtype, array in (("x", data.dtype, features), ("y", data.target, target))
            )
        x[row], y[row] = features, target
    np.save(folder / "silo.npy", silo)
    np.save(folder / "held_out.npy", held_out)
    return data


def _gigabytes(data: Set, shape: tuple[int, ...], examples: int) -> float:
    return float(np.prod(shape)) * np.dtype(data.dtype).itemsize * examples / 1e9


def partition(name: str, folder: Path, out: str) -> list[str]:
    """Return the words after `python -m data_prep` that cut the arrays of a set into its centres."""
    data = SETS[name]
    words = ["partition", "npy", "--data", str(folder), "--out", out, "--scheme", "natural"]
    options = [f"silo_names={','.join(data.centres)}", *(["scale=1/255"] if data.dtype == "uint8" else [])]
    return [*words, *(word for option in options for word in ("--option", option))]


def main(given: list[str] | None = None) -> None:
    """Make a set and print the command that cuts it."""
    parser = argparse.ArgumentParser(prog="python -m scripts.flamby_like", description=__doc__)
    parser.add_argument("name", choices=SETS, metavar="SET", help=", ".join(SETS))
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--scale", type=float, help="of the sides: 1 is FLamby's; the default suits a laptop")
    parser.add_argument("--share", type=float, default=1.0, help="of each centre's examples: 1 is FLamby's")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(given)
    for option in ("scale", "share"):
        if (number := getattr(args, option)) is not None and not 0 < number <= 1:
            parser.error(f"--{option}: {number} given; it must be above 0 and at most 1")
    write(args.name, args.out, args.scale or SETS[args.name].scale, args.share, args.seed)
    print("python -m data_prep", *partition(args.name, args.out, f"shards/flamby/{args.name}"))


if __name__ == "__main__":
    main()
