"""Data sets to partition, in every form that is read: arrays,
tables, images, text, downloads of publishers."""

from __future__ import annotations

import gzip
import pickle
import shutil
import struct
import zipfile
from pathlib import Path
from random import Random

import h5py
import numpy as np
from PIL import Image

from data_prep.sources.registry import find_source
from fuzzing.mutations import harmed_bytes, harmed_toml

SPEC = b"""
label = "ill"
classes = ["no", "yes"]
silo = "hospital"
missing = ["?"]
[features]
age = "numeric"
sex = { kind = "categorical", levels = ["f", "m"], encoding = "ordinal" }
weight = { kind = "numeric", missing = "mean" }
"""
TABLE = {
    "label": "ill",
    "classes": ["no", "yes"],
    "silo": "hospital",
    "missing": ["?"],
    "features": {
        "age": "numeric",
        "sex": {"kind": "categorical", "levels": ["f", "m"], "encoding": "ordinal"},
        "weight": {"kind": "numeric", "missing": "mean"},
    },
}
ROWS = b"ill,age,hospital,sex,weight\n" + b"".join(
    b"%s,%d,%s,%s,%d\n" % (label, 40 + i, place, sex, 60 + i)
    for i, (label, place, sex) in enumerate([(b"no", b"north", b"f"), (b"yes", b"south", b"m")] * 6)
)
PLAY = "".join(
    f"{name}:\nTo be, or not to be, that is the {name} question.\n\n" for name in ("ROMEO", "JULIET") * 20
)


def make_sources(folder: Path) -> None:
    """Make a folder with a small data set for each source, named as the source."""
    draw = np.random.default_rng(0)
    arrays = {
        "x": draw.normal(size=(12, 3)).astype("float32"),
        "y": np.arange(12) % 3,
        "silo": np.arange(12) % 2,
    }
    for name in ("npz", "npy", "hdf5", "mnist", "cifar10", "csv", "parquet", "images/a", "images/b", "text"):
        (folder / name).mkdir(parents=True)
    np.savez_compressed(folder / "npz/own.npz", **arrays)
    with h5py.File(folder / "hdf5/own.h5", "w") as file:
        for name, array in arrays.items():
            np.save(folder / f"npy/{name}.npy", array)
            file.create_dataset(
                name, data=array, **({"chunks": (4, 3), "compression": "gzip"} if name == "x" else {})
            )
    _make_downloads(folder, draw)
    _make_tables(folder)
    for number in range(4):
        pixels = draw.integers(0, 256, (6, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(
            folder / f"images/{'ab'[number % 2]}/{number}.{'png' if number < 2 else 'jpg'}"
        )
    with zipfile.ZipFile(folder / "text/play.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("play.txt", PLAY)


def _make_downloads(folder: Path, draw: np.random.Generator) -> None:
    for part in ("train", "t10k"):
        images, labels = draw.integers(0, 256, 8 * 16, dtype=np.uint8), np.arange(8, dtype=np.uint8)
        content = struct.pack(">4B3I", 0, 0, 8, 3, 8, 4, 4) + images.tobytes()
        (folder / f"mnist/{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
        (folder / f"mnist/{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">4BI", 0, 0, 8, 1, 8) + labels.tobytes()
        )
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        batch = {
            b"data": draw.integers(0, 256, (2, 3072), dtype=np.uint8),
            b"labels": [1, 9],
            b"batch_label": b"x",
        }
        (folder / "cifar10" / name).write_bytes(pickle.dumps(batch, protocol=2))


def _make_tables(folder: Path) -> None:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    (folder / "csv/own.csv").write_bytes(ROWS)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "csv/own.csv"), folder / "parquet/own.parquet")
    for kind in ("csv", "parquet"):
        (folder / kind / "own.toml").write_bytes(SPEC)


def sources(draw: Random, valid: Path, folder: Path) -> tuple[str, Path]:
    """Harm one file of a data set; a gzipped one sometimes inside."""
    name = draw.choice(("npz", "npy", "hdf5", "mnist", "cifar10", "csv", "parquet", "images", "text"))
    made = Path(shutil.copytree(valid / "sources" / name, folder / name))
    path = draw.choice(sorted(path for path in made.rglob("*") if path.is_file()))
    content = path.read_bytes()
    if path.suffix == ".toml":
        path.write_bytes(harmed_toml(draw, content, TABLE))
    elif path.suffix == ".gz" and draw.random() < 0.7:
        path.write_bytes(gzip.compress(harmed_bytes(draw, gzip.decompress(content))))
    else:
        path.write_bytes(harmed_bytes(draw, content))
    files = [path for path in made.iterdir() if path.suffix != ".toml"]
    return name, files[0] if name in ("npz", "hdf5", "csv", "parquet", "text") else made


def read_source(given: tuple[str, Path]) -> None:
    """Read a data set and all of its rows, as `partition` would."""
    name, path = given
    data = find_source(name)(path, 0)
    for x, y in ((data.x, data.y), *([data.test] if data.test else ())):
        for start in range(0, min(len(y), 1000), 100):
            np.asarray(x[start : start + 100])
    data.features.model_dump_json()
