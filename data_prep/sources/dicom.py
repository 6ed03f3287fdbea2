"""DICOM images below a folder, in the unit of the scanner: slices, or whole series."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import dataset_of, with_options
from data_prep.sources.medical import MOST_NUMBERS, Labels, files_below, library, said
from data_prep.sources.reading import digest_of, needed
from mpifl.common import InputError, choices

EXAMPLES = ("slice", "series")
GREY, COLOUR = ("MONOCHROME1", "MONOCHROME2"), ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
CLOSE = 1e-3
"""Millimetres; slices that lie no further apart lie at one place."""


@with_options
def read_dicom(
    data: Path | None,
    wanted: Wanted,
    *,
    example: str = "slice",
    labels: str = "",
    label: str = "",
    silo: str = "",
) -> Dataset:
    """Read the images of all files below a folder: float32 [n, channels, height, width], or where series are
    examples [n, channels, slices, height, width], with their rescale slope and intercept.

    Slices of a series are in the order of their positions, series in that of patients. A class is what an
    attribute says (`label=BodyPartExamined`), or a table (`labels=FILE`: an attribute or `file`, and the
    label). `silo` is an attribute, too. All images of a patient stay together; `--group` names another.
    """
    library("pydicom", "dicom")
    folder = needed("dicom", data, "scans, a folder of DICOM files")
    if example not in EXAMPLES:
        raise InputError(f"--option: example={example} given; {choices(example, EXAMPLES)}")
    if bool(label) == bool(labels):
        raise InputError("--option: say label=KEYWORD, or labels=FILE; one of them")
    paths = files_below(folder, ("DICOMDIR",))
    files = {f"{folder.name}/**": digest_of(folder, paths)}
    table = Labels(Path(labels), files) if labels else None
    owner, key = wanted.group or "PatientID", table.key if table else label
    asked = sorted({owner, silo, "" if key == "file" else key} - {""})
    images = [_image(folder, path, asked) for path in paths]
    series = [_in_order(list(own), example) for _, own in groupby(sorted(images, key=_place), key=_place)]
    stacks = series if example == "series" else [[one] for own in series for one in _frames(own)]
    rows = DicomRows(stacks, whole=example == "series")
    first = [stack[0] for stack in stacks]
    named = [str(one.path.relative_to(folder)) if key == "file" else one.said[key] for one in first]
    arrays: dict[str, Any] = {"x": rows, "y": table.targets(named, wanted) if table else np.array(named)}
    arrays[owner] = np.array([one.said[owner] for one in first])
    arrays |= {"silo": np.array([one.said[silo] for one in first])} if silo else {}
    return dataset_of(folder, arrays, files, wanted._replace(group=owner))


@dataclass(frozen=True)
class Image:
    """What the header of a file says.

    Attributes:
        path: The file.
        series: Its series.
        position: "position", and where it lies along its normal in millimetres; or "number", and its number;
            None if it says neither.
        shape: Channels, height and width.
        frames: How many images it has.
        frame: The one that is meant; all, if None.
        inverted: Whether the lowest number is white.
        said: What its attributes say that were asked for.
    """

    path: Path
    series: str
    position: tuple[str, float] | None
    shape: tuple[int, int, int]
    frames: int
    frame: int | None
    inverted: bool
    said: dict[str, str]


class DicomRows:
    """Images as examples, decoded when they are asked for; the slices of one lie behind each other."""

    dtype = np.dtype(np.float32)

    def __init__(self, stacks: list[list[Image]], *, whole: bool) -> None:
        shapes = [_shape(stack, whole=whole) for stack in stacks]
        for stack, shape in zip(stacks, shapes, strict=True):
            if shape != shapes[0]:
                other = f"{stacks[0][0].path.name} {list(shapes[0])}"
                told = "make them alike, or write a function of yours (module:function)"
                raise InputError(f"{stack[0].path}: an example of shape {list(shape)}, {other}; {told}")
        self._stacks, self.shape = stacks, (len(stacks), *shapes[0])

    def __len__(self) -> int:
        return len(self._stacks)

    def __getitem__(self, at: Any) -> np.ndarray:
        chosen = np.arange(len(self._stacks))[at]
        out = np.empty((len(chosen), *self.shape[1:]), np.float32)
        for row, number in enumerate(chosen):
            parts = [
                _pixels(image) for image in self._stacks[number]
            ]  # each [frames, channels, height, width]
            out[row] = np.concatenate(parts).swapaxes(0, 1).reshape(self.shape[1:])
        return out


def _shape(stack: list[Image], *, whole: bool) -> tuple[int, ...]:
    for image in stack:
        if image.shape != stack[0].shape:
            other = f"{stack[0].path.name} of its series {list(stack[0].shape)}"
            raise InputError(f"{image.path}: {list(image.shape)}, {other}; part the series")
    depth = sum(image.frames if image.frame is None else 1 for image in stack)
    channels, *plane = stack[0].shape
    if channels * depth * plane[0] * plane[1] > MOST_NUMBERS:
        raise InputError(f"{stack[0].path}: an example has at most {MOST_NUMBERS:,} numbers; take slices")
    return (channels, depth, *plane) if whole else (channels, *plane)


def _image(folder: Path, path: Path, asked: list[str]) -> Image:
    """Read a file's header."""
    pydicom = library("pydicom", "dicom")
    try:
        header = pydicom.dcmread(path, stop_before_pixels=True)
        kind = str(header.get("PhotometricInterpretation", ""))
        size = [int(header.get(name, 0) or 0) for name in ("Rows", "Columns")]
        channels, frames = (int(header.get(name, 1) or 1) for name in ("SamplesPerPixel", "NumberOfFrames"))
        asked_of = {name: str(header.get(name, "")).strip() for name in asked}
        series, modality = str(header.get("SeriesInstanceUID", path.parent)), header.get("Modality", "none")
        position = _position(header)
        enhanced = "PerFrameFunctionalGroupsSequence" in header
    except Exception as error:  # pydicom's own, and whatever its readers of values raise
        raise InputError(f"{path}: no DICOM file, or damaged ({said(error)}); take it out") from None
    if not (kind and min(size) > 0 and frames > 0):
        raise InputError(f"{path}: has no pixel data (modality {modality}); take it out of the folder")
    if enhanced:
        raise InputError(f"{path}: an enhanced multi-frame image; convert it to single frames")
    if kind not in (*GREY, *COLOUR) or channels != (1 if kind in GREY else 3):
        raise InputError(f"{path}: pixels are {kind} of {channels}; grey and RGB are read, convert it")
    for name, value in asked_of.items():
        if not value:
            raise InputError(f"{path}: says no {name}; name another attribute, or write it there")
    owner = "\0".join([str(header.get("PatientID", "")), str(header.get("StudyInstanceUID", "")), series])
    shape = (channels, size[0], size[1])
    inverted = kind == "MONOCHROME1"
    return Image(path, owner, position, shape, frames, None, inverted=inverted, said=asked_of)


def _position(header: Any) -> tuple[str, float] | None:
    """Return where an image lies along the normal of its plane in millimetres, or else its number."""
    at, plane = header.get("ImagePositionPatient"), header.get("ImageOrientationPatient")
    if at and plane and len(at) == 3 and len(plane) == 6:
        axes = np.array(plane, np.float64).reshape(2, 3)
        return "position", float(np.cross(*axes) @ np.array(at, np.float64))
    number = header.get("InstanceNumber")
    return None if number is None or str(number) == "" else ("number", float(number))


def _place(image: Image) -> str:
    return image.series


def _in_order(own: list[Image], example: str) -> list[Image]:
    """Return the images of a series by their positions, or where not all say one by the paths of files."""
    places = [image.position for image in own]
    kinds = {place and place[0] for place in places}
    known = len(kinds) == 1 and None not in kinds
    ordered = sorted(own, key=lambda one: ((one.position or ("", 0.0))[1] if known else 0.0, str(one.path)))
    if example == "series" and len(own) > 1:
        if not known:
            odd = next((one.path for one in own if one.position is None), own[0].path)
            told = "not all of its series say a position, or all a number"
            raise InputError(f"{odd}: {told}; take example=slice")
        for image, after in pairwise(ordered):
            if image.position and after.position and after.position[1] - image.position[1] < CLOSE:
                both = f"{image.path.name} lies at the same place of its series"
                raise InputError(f"{after.path}: {both}; part the series, or take example=slice")
    return ordered


def _frames(own: list[Image]) -> list[Image]:
    return [Image(**{**vars(image), "frame": frame}) for image in own for frame in range(image.frames)]


def _pixels(image: Image) -> np.ndarray:
    """Decode a file, float32 [frames, channels, height, width]."""
    pydicom = library("pydicom", "dicom")
    try:
        dataset = pydicom.dcmread(image.path)
        pixels = pydicom.pixels.pixel_array(dataset, index=image.frame)
        if image.inverted:
            bits = int(dataset.BitsStored)
            lowest = -(1 << bits - 1) if dataset.PixelRepresentation else 0
            pixels = 2 * lowest + (1 << bits) - 1 - pixels.astype(np.int64)
        values = pydicom.pixels.apply_modality_lut(pixels, dataset).astype(np.float32)
        channels, height, width = image.shape
        return np.moveaxis(values.reshape(-1, height, width, channels), 3, 1)
    except Exception as error:  # pydicom's own, and whatever its decoders raise
        told = "write it again, or install the decoder that this names"
        raise InputError(f"{image.path}: its pixels cannot be read ({said(error)}); {told}") from None
