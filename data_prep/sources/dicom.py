"""DICOM images below a folder, in the unit of the scanner: slices, or whole series."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import dataset_of, with_options
from data_prep.sources.medical import MOST_NUMBERS, Labels, files_below, library, said
from data_prep.sources.reading import digest_of, needed
from mpifl.common import InputError, choices
from mpifl.data.shards import Provenance, ids_of

EXAMPLES = ("slice", "series")
GREY, COLOUR = ("MONOCHROME1", "MONOCHROME2"), ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PALETTE = "PALETTE COLOR"
CLOSE = 1e-3
"""Millimetres. Slices that are closer than this lie at one place."""


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
        raise InputError("--option: give label=KEYWORD or labels=FILE, and not both")
    paths = files_below(folder, ("DICOMDIR",))
    files = {f"{folder.name}/**": digest_of(folder, paths)}
    table = Labels(Path(labels), files) if labels else None
    owner, key = wanted.group or "PatientID", table.key if table else label
    asked = sorted({owner, silo, "" if key == "file" else key} - {""})
    images = [image for path in paths for image in _images(path, asked)]
    series = [_in_order(list(own), example) for _, own in groupby(sorted(images, key=_place), key=_place)]
    stacks = series if example == "series" else [[one] for own in series for one in own]
    rows = DicomRows(stacks, whole=example == "series")
    first = [stack[0] for stack in stacks]
    named = [str(one.path.relative_to(folder)) if key == "file" else one.said[key] for one in first]
    arrays: dict[str, Any] = {"x": rows, "y": table.targets(named, wanted) if table else np.array(named)}
    arrays[owner] = np.array([one.said[owner] for one in first])
    arrays |= {"silo": np.array([one.said[silo] for one in first])} if silo else {}
    made = dataset_of(folder, arrays, files, wanted._replace(group=owner))
    return replace(
        made, given=Provenance(ids=ids_of(one.path.relative_to(folder).as_posix() for one in first))
    )


@dataclass(frozen=True)
class DicomHeader:
    """What the header of a file says of one of its frames.

    Attributes:
        frame: The frame's number in it.
        position: "position", and where it lies along its normal in millimetres; or "number", and its number;
            None if it says neither.
        apart: Whether the position is the frame's own, and not that of all frames of the file.
        shape: Channels, height and width.
        kind: Its photometric interpretation.
        said: What its attributes say that were asked for.
    """

    path: Path
    frame: int
    series: str
    position: tuple[str, float] | None
    apart: bool
    shape: tuple[int, int, int]
    kind: str
    said: dict[str, str]


class DicomRows:
    """Images as examples, decoded when they are asked for; the slices of one lie behind each other."""

    dtype = np.dtype(np.float32)

    def __init__(self, stacks: list[list[DicomHeader]], *, whole: bool) -> None:
        shapes = [_shape(stack, whole=whole) for stack in stacks]
        for stack, shape in zip(stacks, shapes, strict=True):
            if shape != shapes[0]:
                other = f"{stacks[0][0].path.name} {list(shapes[0])}"
                told = "make them alike, or write a function of your own (module:function)"
                raise InputError(f"{stack[0].path}: an example of shape {list(shape)}, {other}; {told}")
        self._stacks, self.shape = stacks, (len(stacks), *shapes[0])

    def __len__(self) -> int:
        return len(self._stacks)

    def __getitem__(self, at: Any) -> np.ndarray:
        chosen = np.arange(len(self._stacks))[at]
        depth = max(map(len, self._stacks), default=0)
        out = np.empty((len(chosen), depth, *self._stacks[0][0].shape), np.float32)
        asked = [
            (image, out[row, place])
            for row, number in enumerate(chosen)
            for place, image in enumerate(self._stacks[number])
        ]
        for path, own in groupby(asked, key=lambda one: one[0].path):  # a file of many frames is read once
            _decode(path, own)
        found: np.ndarray = out.swapaxes(1, 2).reshape(len(chosen), *self.shape[1:])
        return found


def _shape(stack: list[DicomHeader], *, whole: bool) -> tuple[int, ...]:
    for image in stack:
        if image.shape != stack[0].shape:
            other = f"{stack[0].path.name} of its series {list(stack[0].shape)}"
            raise InputError(f"{image.path}: {list(image.shape)}, {other}; part the series")
    depth, (channels, *plane) = len(stack), stack[0].shape
    if channels * depth * plane[0] * plane[1] > MOST_NUMBERS:
        raise InputError(f"{stack[0].path}: an example has at most {MOST_NUMBERS:,} numbers; use slices")
    return (channels, depth, *plane) if whole else (channels, *plane)


def _images(path: Path, asked: list[str]) -> list[DicomHeader]:
    """Read a file's header: what it says of each of its frames."""
    pydicom = library("pydicom", "dicom")
    try:
        header = pydicom.dcmread(path, stop_before_pixels=True)
        kind = str(header.get("PhotometricInterpretation", ""))
        size = [int(header.get(name, 0) or 0) for name in ("Rows", "Columns")]
        channels, frames = (int(header.get(name, 1) or 1) for name in ("SamplesPerPixel", "NumberOfFrames"))
        asked_of = {name: str(header.get(name, "")).strip() for name in asked}
        series, modality = str(header.get("SeriesInstanceUID", path.parent)), header.get("Modality", "none")
        places = [_position(header, frame) for frame in range(frames)]
    except Exception as error:  # pydicom's own, and whatever its readers of values raise
        raise InputError(f"{path}: is not a DICOM file, or is damaged ({said(error)}); remove it") from None
    if not (kind and min(size) > 0 and frames > 0) or "SegmentSequence" in header:
        what = "holds segments, not an image" if "SegmentSequence" in header else "has no pixel data"
        raise InputError(f"{path}: {what} (modality {modality}); remove it from the folder")
    if kind not in (*GREY, PALETTE, *COLOUR) or channels != (3 if kind in COLOUR else 1):
        raise InputError(f"{path}: pixels are {kind} of {channels}; grey and RGB are read, convert it")
    for name, value in asked_of.items():
        if not value:
            raise InputError(f"{path}: has no {name}; name another attribute, or write it there")
    owner = "\0".join([str(header.get("PatientID", "")), str(header.get("StudyInstanceUID", "")), series])
    shape = (1 if kind in GREY else 3, size[0], size[1])
    return [
        DicomHeader(path, frame, owner, place, apart=apart, shape=shape, kind=kind, said=asked_of)
        for frame, (place, apart) in enumerate(places)
    ]


def _position(header: Any, frame: int) -> tuple[tuple[str, float] | None, bool]:
    """Return where a frame lies along the normal of its plane in millimetres, or else its file's number, and
    whether that is the frame's own."""
    placed = _of_frame(header, frame, "PlanePositionSequence")
    plane = _of_frame(header, frame, "PlaneOrientationSequence").get("ImageOrientationPatient")
    at = placed.get("ImagePositionPatient")
    if at and plane and len(at) == 3 and len(plane) == 6:
        axes = np.array(plane, np.float64).reshape(2, 3)
        return ("position", float(np.cross(*axes) @ np.array(at, np.float64))), placed is not header
    number = header.get("InstanceNumber")
    return None if number is None or str(number) == "" else ("number", float(number)), False


def _of_frame(header: Any, frame: int, name: str) -> Any:
    """Return what an enhanced image says of a frame in a sequence of that name, or of all its frames; others
    say it in the header itself."""
    for groups, at in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        if name in (found := header[groups][at] if groups in header else {}):
            return found[name][0]
    return header


def _place(image: DicomHeader) -> str:
    return image.series


def _in_order(own: list[DicomHeader], example: str) -> list[DicomHeader]:
    """Sort the images of a series by their positions, or if one has none by the paths of files."""
    places = [image.position for image in own]
    kinds = {place and place[0] for place in places}
    known = len(kinds) == 1 and None not in kinds
    ordered = sorted(own, key=lambda one: ((one.position or ("", 0.0))[1] if known else 0.0, str(one.path)))
    if example == "series" and len(own) > 1:
        if not known:
            odd = next((one.path for one in own if one.position is None), own[0].path)
            told = "some images of its series have a position, and some only a number"
            raise InputError(f"{odd}: {told}; use example=slice")
        for image, after in pairwise(ordered):
            shared = image.path == after.path and not image.apart
            if (
                image.position
                and after.position
                and after.position[1] - image.position[1] < CLOSE
                and not shared
            ):
                both = f"{image.path.name} lies at the same place of its series"
                raise InputError(f"{after.path}: {both}; split the series, or use example=slice")
    return ordered


def _decode(path: Path, asked: Iterable[tuple[DicomHeader, np.ndarray]]) -> None:
    """Decode frames of a file, each into float32 [channels, height, width]."""
    pydicom = library("pydicom", "dicom")
    try:
        dataset = pydicom.dcmread(path)
        for image, out in asked:
            pixels = pydicom.pixels.pixel_array(dataset, index=image.frame)
            values = np.asarray(_values(pixels, dataset, image), np.float32)
            out[...] = np.moveaxis(values.reshape(*out.shape[1:], -1), 2, 0)
    except Exception as error:  # pydicom's own, and whatever its decoders raise
        told = "write it again, or install the decoder that this names"
        raise InputError(f"{path}: its pixels cannot be read ({said(error)}); {told}") from None


def _values(pixels: np.ndarray, dataset: Any, image: DicomHeader) -> Any:
    """Return what pixels mean, in the unit of the scanner; the colours of a palette from 0 to 255."""
    apply = library("pydicom", "dicom").pixels
    if image.kind == PALETTE:
        colours = apply.apply_color_lut(pixels, dataset)[..., :3]
        return colours if colours.dtype == np.uint8 else colours / np.float32(257)
    if image.kind == "MONOCHROME1":
        bits = int(dataset.BitsStored)
        lowest = -(1 << bits - 1) if dataset.PixelRepresentation else 0
        pixels = 2 * lowest + (1 << bits) - 1 - pixels.astype(np.int64)
    if "DoseGridScaling" in dataset:
        return pixels * float(dataset.DoseGridScaling)
    return apply.apply_modality_lut(
        pixels, _of_frame(dataset, image.frame, "PixelValueTransformationSequence")
    )
