"""Shards that HDF5 itself writes and that no reader should believe:
links, layouts, shapes, dtypes, filters, bombs."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

Harm = Callable[[Random, h5py.File, str], None]
"""(draw, file, name of a data set in it)."""
SHAPES = (
    (),
    (0,),
    (1,),
    (2**40,),
    (2**60,),
    (2**31, 2**31),
    (20, 2, 2),
    (20, 2, 3),
    (2**62, 2, 2),
    (24, 2, 0),
    (1,) * 32,
)
DTYPES: tuple[Any, ...] = (
    *("float16", ">f4", ">i8", "complex64", "bool", "uint64", "S5", "V7", "longdouble"),
    *([("a", "i4"), ("b", "f8")], np.dtype(("f4", (3,))), h5py.string_dtype(), h5py.vlen_dtype("i4")),
    *(h5py.ref_dtype, h5py.regionref_dtype, h5py.enum_dtype({"a": 1, "b": 2}), h5py.string_dtype("ascii", 3)),
)
ATTRIBUTES: tuple[Any, ...] = (
    *("", "x", "a" * 5000, b"\xff", -1, 0, 1, 2, 2**63, 0.5, float("nan"), float("inf"), True, 1j),
    *([1, 2], [], [[1]], ["a", "b"], h5py.Empty("f4"), h5py.Empty("S3"), "1", "é", "\x1b[2J"),
)
OUTSIDE = (
    "/etc/passwd",
    "/dev/zero",
    "/dev/stdin",
    "silo_0001.h5",
    "silo_0000.h5",
    "nowhere.h5",
    ".",
    "/proc/self/mem",
)
NAMES = ("train/x", "train/y", "train/id", "valid/x", "valid/y", "train/x.offsets", "valid/y.offsets")
MIB = 1 << 20


def harm(draw: Random, path: Path) -> None:
    """Do 1 or 2 structural harms to a shard file."""
    with h5py.File(path, "r+", locking=False) as file:
        for _ in range(draw.choice((1, 1, 2))):
            names = [name for name in NAMES if name in file]
            with contextlib.suppress(Exception):  # the second may not go with the first
                draw.choice(HARMS)(draw, file, draw.choice(names or ["train/x"]))


def make(file: h5py.File, name: str, *given: Any, **more: Any) -> h5py.Dataset:
    """Put another data set in the place of one."""
    if name in file:
        del file[name]
    return file.create_dataset(name, *given, **more)


def soft_link(draw: Random, file: h5py.File, name: str) -> None:
    file.pop(name, None)
    file[name] = h5py.SoftLink(
        draw.choice((f"/{name}", "/train/y", "/valid/x", "/nowhere", "/", "/train", "train/../x"))
    )


def external_link(draw: Random, file: h5py.File, name: str) -> None:
    name = draw.choice((name, "train"))
    file.pop(name, None)
    file[name] = h5py.ExternalLink(
        draw.choice(OUTSIDE), draw.choice(("/", f"/{name}", "/train/x", "nowhere"))
    )


def hard_cycle(draw: Random, file: h5py.File, name: str) -> None:
    file.pop(name, None)
    file[name] = draw.choice((file["/"], file["train"]))


def external_storage(draw: Random, file: h5py.File, name: str) -> None:
    shape, dtype = file[name].shape, file[name].dtype
    size = draw.choice((1, 8 * int(np.prod(shape)), h5py.h5f.UNLIMITED))
    other = Path(file.filename).with_name("other.bin")  # HDF5 may write to it
    other.write_bytes(b"secret " * 100)
    make(
        file,
        name,
        shape,
        dtype,
        external=[(draw.choice((str(other), "other.bin", "/dev/zero")), draw.choice((0, 5, 2**50)), size)],
    )


def virtual(draw: Random, file: h5py.File, name: str) -> None:
    shape, dtype = file[name].shape, file[name].dtype
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(draw.choice(OUTSIDE), draw.choice((name, "train/x")), shape=shape)
    file.pop(name, None)
    file.create_virtual_dataset(name, layout, fillvalue=draw.choice((None, 0)))


def shape(draw: Random, file: h5py.File, name: str) -> None:
    shape, dtype = draw.choice(SHAPES), file[name].dtype
    chunks = tuple(min(n, 4) or 1 for n in shape) if shape and draw.random() < 0.7 else None
    if chunks is None and np.prod([float(n) for n in shape]) > MIB:
        return _unallocated(file, name, shape, dtype)
    make(file, name, shape, dtype, chunks=chunks, maxshape=(None,) * len(shape) if chunks else None)


def _unallocated(file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Make a contiguous data set that has no place in the file."""
    late = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    late.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
    if int(np.prod([float(n) for n in shape])) * dtype.itemsize < 2**62:
        make(file, name, shape, dtype, dcpl=late)


def rows(draw: Random, file: h5py.File, name: str) -> None:
    """Claim many rows, of which none takes room: a bomb that is read whole."""
    old = file[name]
    shape, dtype = (draw.choice((2**20, 2**24, 2**28, 2**33, 2**45)), *old.shape[1:]), old.dtype
    if draw.random() < 0.3:
        return _unallocated(file, name, shape, dtype)
    make(file, name, shape, dtype, chunks=(2**16, *shape[1:]), compression=draw.choice((None, "gzip")))


def bomb(draw: Random, file: h5py.File, name: str) -> None:
    """Claim many rows whose chunks are all zeros, packed a thousand times."""
    old, chunk = file[name], 2**18
    shape = (chunk * draw.choice((1, 16, 64)), *old.shape[1:])
    made = make(file, name, shape, old.dtype, chunks=(chunk, *shape[1:]), compression="gzip")
    packed = zlib.compress(bytes(chunk * int(np.prod(shape[1:])) * made.dtype.itemsize))
    for at in range(0, shape[0], chunk):
        made.id.write_direct_chunk((at,) + (0,) * (len(shape) - 1), packed)


def garbage_chunk(draw: Random, file: h5py.File, name: str) -> None:
    old = file[name]
    shape, dtype, filters = (
        old.shape,
        old.dtype,
        draw.choice(({"compression": "gzip"}, {"shuffle": True}, {"fletcher32": True})),
    )
    made = make(file, name, shape, dtype, chunks=shape, **filters)
    packed = bytes(draw.choice((0, 1, 255, draw.randrange(256))) for _ in range(draw.choice((1, 9, 64))))
    made.id.write_direct_chunk(
        (0,) * len(shape), draw.choice((packed, zlib.compress(packed), zlib.compress(bytes(50 * MIB))))
    )


def filters(draw: Random, file: h5py.File, name: str) -> None:
    """Pass the data through filters, known and unknown ones."""
    content = file[name][...]
    if draw.random() < 0.5:
        more = draw.choice(
            ({"compression": "lzf"}, {"scaleoffset": 2}, {"fletcher32": True, "shuffle": True})
        )
        make(file, name, data=content, chunks=content.shape, **more)
        return
    laid_out = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    laid_out.set_chunk(content.shape)
    for _ in range(draw.choice((1, 1, 30))):
        laid_out.set_filter(draw.choice((1, 2, 3)), h5py.h5z.FLAG_OPTIONAL, (draw.choice((0, 9)),))
    make(file, name, content.shape, content.dtype, dcpl=laid_out)


def dtype(draw: Random, file: h5py.File, name: str) -> None:
    made = make(file, name, file[name].shape, draw.choice(DTYPES), chunks=draw.choice((None, True)))
    if draw.random() < 0.3 and made.dtype.kind in "fiub":
        made[...] = 1


def nulls(draw: Random, file: h5py.File, name: str) -> None:
    make(file, name, data=h5py.Empty(draw.choice(("f4", "i8", "S1"))))


def other_object(draw: Random, file: h5py.File, name: str) -> None:
    """Put a group, a named type or a single value where something else belongs."""
    name = draw.choice((name, "train", "valid"))
    file.pop(name, None)
    if draw.random() < 0.3:
        file.create_group(name)
    else:
        file[name] = draw.choice((np.dtype("f4"), 3, "text", [1, 2, 3]))


def attribute(draw: Random, file: h5py.File, name: str) -> None:
    key = draw.choice(("format", "format_version", "silo", "classes", "layout", "name"))
    if draw.random() < 0.2:
        file.attrs.pop(key, None)
    else:
        file.attrs[key] = draw.choice(ATTRIBUTES)


def labels(draw: Random, file: h5py.File, name: str) -> None:
    """Write labels, or features, that nobody has."""
    content = file[name]
    evil = (2**63 - 1, -(2**63), -1, 3) if content.dtype.kind == "i" else (float("nan"), float("inf"), 1e38)
    content[draw.randrange(len(content))] = draw.choice(evil)


def offsets(draw: Random, file: h5py.File, name: str) -> None:
    """Have examples of unequal lengths begin anywhere."""
    content = file[name if name.endswith(".offsets") else "train/x.offsets"]
    evil = (2**63 - 1, -(2**63), 2**62, -1, 0, 1, content[-1], content[-1] + 1)
    content[draw.randrange(-1, len(content) - 1)] = draw.choice(evil)


def compact(draw: Random, file: h5py.File, name: str) -> None:
    content = file[name][...]
    laid_out = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    laid_out.set_layout(h5py.h5d.COMPACT)
    make(file, name, content.shape, content.dtype, dcpl=laid_out)[...] = content


def more_groups(draw: Random, file: h5py.File, name: str) -> None:
    """Add splits, known ones and deep ones."""
    file.create_dataset(draw.choice(("public/x", "test2/x", "/".join("g" * 200) + "/x")), data=[1.0])


def missing(draw: Random, file: h5py.File, name: str) -> None:
    file.pop(draw.choice((name, name.partition("/")[0])), None)


HARMS: tuple[Harm, ...] = (
    *(
        soft_link,
        external_link,
        hard_cycle,
        external_storage,
        virtual,
        shape,
        rows,
        bomb,
        garbage_chunk,
        filters,
    ),
    *(dtype, nulls, other_object, attribute, labels, offsets, compact, more_groups, missing),
)


def rows_of(path: Path, split: str) -> int:
    """Return how many rows a shard claims to have in a split."""
    with h5py.File(path, "r", locking=False) as file:
        ragged = f"{split}/x.offsets" in file
        return int(file[f"{split}/x.offsets"].shape[0] - 1 if ragged else file[f"{split}/x"].shape[0])
