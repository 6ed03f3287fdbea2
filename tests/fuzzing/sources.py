"""Data sets to partition, in every form that is read: arrays,
tables, images, text, downloads of publishers."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import sys
import zipfile
from pathlib import Path
from random import Random

import h5py
import nibabel
import numpy as np
import pydicom
from PIL import Image

from data_prep.sources.source_registry import find_source
from fuzzing.mutations import harmed_bytes, harmed_toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = (
    *("npz", "npy", "hdf5", "mnist", "cifar10", "csv", "parquet", "parquet of Arrow"),
    *("images", "images of masks", "text", "jsonl", "jsonl of words", "leaf"),
    *("dicom", "nifti of masks"),
)
"""A folder each; of two words, the source is the first."""
TABLES = ("csv", "parquet", "parquet of Arrow")
OPTIONS = {
    "dicom": ("label=Modality",),
    "nifti of masks": ("masks=../masks",),
    "images of masks": ("masks=../masks", "ignore=255"),
    "jsonl of words": ("tokenizer=.", "length=4"),
}
"""Paths in them are relative to what is read."""
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
SURVIVAL = b"""
label = { kind = "survival", time = "weight", event = "event", missing = "drop" }
missing = ["?"]
[features]
age = "numeric"
seen = { kind = "date", since = "2000-01-01", missing = "constant", constant = "2001-01-01" }
"""
ROWS = b"ill,age,hospital,sex,weight,event,seen\n" + b"".join(
    b"%s,%d,%s,%s,%d,%d,2001-02-%02d\n" % (label, 40 + i, place, sex, 60 + i, i % 2, i + 1)
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
    for name in (
        *NAMES,
        "images/a",
        "images/b",
        "images of masks/in",
        "images of masks/masks",
        "nifti of masks/in",
        "nifti of masks/masks",
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
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
        pixels, exif = draw.integers(0, 256, (6, 5, 3), dtype=np.uint8), Image.Exif()
        exif[0x0112] = 1 + number  # upright, or turned without another shape
        Image.fromarray(pixels).save(
            folder / f"images/{'ab'[number % 2]}/{number}.{('png', 'png', 'jpg', 'tif')[number]}", exif=exif
        )
        Image.fromarray(pixels).save(folder / f"images of masks/in/{number}.png")
        Image.fromarray(pixels[..., 0] % 3).save(folder / f"images of masks/masks/{number}.png")
    _make_lines(folder)
    _make_scans(folder, draw)
    user_data = {name: {"x": [[1.5, 2, 3]] * 3, "y": [0, 1, 1]} for name in ("u", "v")}
    users = {"users": ["u", "v"], "num_samples": [3, 3], "user_data": user_data}
    (folder / "leaf/own.json").write_text(json.dumps(users))
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
        images = draw.integers(0, 256, (2, 3072), dtype=np.uint8)
        labelled = np.concatenate([np.array([[1], [9]], np.uint8), images], axis=1)
        (folder / "cifar10" / f"{name}.bin").write_bytes(labelled.tobytes())


def _make_scans(folder: Path, draw: np.random.Generator) -> None:
    shutil.copy(Path(pydicom.__file__).parent / "data/test_files/CT_small.dcm", folder / "dicom/1.dcm")
    for number in range(3):
        name = f"{number}.nii{'.gz' if number else ''}"
        for kind, voxels in (("in", draw.random((4, 3, 2))), ("masks", draw.integers(0, 3, (4, 3, 2)))):
            image = nibabel.Nifti1Image(voxels.astype("f4" if kind == "in" else "u1"), np.eye(4))
            nibabel.save(image, folder / "nifti of masks" / kind / name)


def _make_lines(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"to": 0, "be": 1, "or": 2, "not": 3, "?": 4}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "jsonl of words/tokenizer.json"))
    for name in ("jsonl", "jsonl of words"):
        lines = '{"text": "to be or not"}\n{"prompt": "to be or", "completion": "not to be"}\n'
        (folder / name / "own.jsonl").write_text(lines * 3)


def _make_tables(folder: Path) -> None:
    import pyarrow
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    (folder / "csv/own.csv").write_bytes(ROWS)
    table = pyarrow.csv.read_csv(folder / "csv/own.csv")
    pyarrow.parquet.write_table(table, folder / "parquet/own.parquet")
    pyarrow.feather.write_feather(table, folder / "parquet of Arrow/own.feather")
    for kind in TABLES:
        (folder / kind / "own.toml").write_bytes(SPEC)


def sources(draw: Random, valid: Path, folder: Path) -> tuple[str, Path]:
    """Harm one file of a data set; a gzipped one sometimes inside."""
    name = draw.choice(NAMES)
    made = Path(shutil.copytree(valid / "sources" / name, folder / name))
    if name in TABLES and draw.random() < 0.5:
        (made / "own.toml").write_bytes(SURVIVAL)
    path = draw.choice(sorted(path for path in made.rglob("*") if path.is_file()))
    content = path.read_bytes()
    if path.suffix == ".toml":
        path.write_bytes(harmed_toml(draw, content, tomllib.loads(content.decode())))
    elif path.suffix == ".gz" and draw.random() < 0.7:
        path.write_bytes(gzip.compress(harmed_bytes(draw, gzip.decompress(content))))
    else:
        path.write_bytes(harmed_bytes(draw, content))
    files = [path for path in made.iterdir() if path.suffix != ".toml"]
    files.sort(key=lambda path: path.suffix == ".json")  # a tokenizer is no data
    named = ("npz", "hdf5", *TABLES, "text", "jsonl", "jsonl of words", "leaf")
    return name, made / "in" if name.endswith("of masks") else files[0] if name in named else made


def read_source(given: tuple[str, Path]) -> None:
    """Read a data set and all of its rows, as `partition` would."""
    name, path = given
    folder = path.parent if path.is_file() else path
    options = [word.replace("=.", f"={folder}/.") for word in OPTIONS.get(name, ())]
    data = find_source(name.partition(" ")[0], options)(path, 0)
    for x, y in ((data.x, data.y), *([data.test] if data.test else ())):
        for start in range(0, min(len(y), 1000), 100):
            np.asarray(x[start : start + 100])
    data.features.model_dump_json()
