"""DICOM: values as pydicom gives them, slices by their positions, patients whole, one line for faults."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError
from mpifl.data.shards import open_shard, read_federation

pydicom = pytest.importorskip("pydicom")
SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
DRAW = np.random.default_rng(0)


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def write(path, pixels, patient="p1", series="1.2", at=0.0, **tags):
    """Write a slice as a scanner does."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    made = pydicom.Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID = CTImageStorage
    made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID = generate_uid(entropy_srcs=[str(path)])
    made.PatientID, made.StudyInstanceUID, made.SeriesInstanceUID = patient, "1.1", series
    made.Modality, made.BodyPartExamined, made.InstitutionName = "CT", "CHEST", "north"
    made.Rows, made.Columns = pixels.shape
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit = 16, 12, 11
    made.PixelRepresentation = int(pixels.dtype.kind == "i")
    made.RescaleSlope, made.RescaleIntercept = "2", "-1024"
    made.ImagePositionPatient, made.ImageOrientationPatient = [0, 0, at], [1, 0, 0, 0, 1, 0]
    for name, value in tags.items():
        setattr(made, name, value) if value is not None else delattr(made, name)
    made.PixelData = pixels.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save_as(path, enforce_file_format=True)


def scans(folder, patients=4, slices=3):
    """Write a series of each patient, whose files are named against the order of the slices."""
    volumes = DRAW.integers(0, 4096, (patients, slices, 5, 6)).astype(np.uint16)
    for number, volume in enumerate(volumes):
        own = {"BodyPartExamined": "HEAD" if number % 2 else "CHEST"}
        own["InstitutionName"] = "south" if number > 1 else "north"
        for at, pixels in enumerate(volume):
            path = folder / f"p{number}" / f"{9 - at}.dcm"
            write(path, pixels, f"p{number}", f"1.2.{number}", at=2.5 * at, **own)
    return volumes.astype(np.float32) * 2 - 1024


def read(folder, *options):
    return find_source("dicom", options)(folder, 0)


def test_slices_are_rescaled_in_the_order_of_their_positions_and_patients_stay_whole(tmp_path):
    volumes = scans(tmp_path / "in")
    data = read(tmp_path / "in", "label=BodyPartExamined", "silo=InstitutionName")
    assert (data.x.shape, data.x.dtype, data.class_names) == ((12, 1, 5, 6), np.float32, ("CHEST", "HEAD"))
    assert np.array_equal(data.x[:], volumes.reshape(12, 1, 5, 6))
    assert (data.groups.name, data.groups.of.tolist()) == ("PatientID", [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3)
    assert (data.silo_names, data.silo.tolist()) == ({0: "north", 1: "south"}, [0] * 6 + [1] * 6)
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1] * 2


def test_a_series_is_an_example_and_two_runs_give_the_same_bytes(tmp_path):
    volumes = scans(tmp_path / "in")
    (tmp_path / "labels.csv").write_text("PatientID,grade\np0,low\np1,high\np2,low\np3,high\n")
    words = ["partition", "dicom", "--data", tmp_path / "in", "--scheme", "iid", "--silos", 2]
    words += ["--option", "example=series", "--option", f"labels={tmp_path / 'labels.csv'}"]
    for out in ("one", "two"):
        assert run(*words, "--out", tmp_path / out) == 0
    spec, again = (read_federation(tmp_path / out) for out in ("one", "two"))
    assert [one.sha256 for one in spec.silos] == [one.sha256 for one in again.silos]
    assert (spec.features.shape, spec.class_names) == ((1, 3, 5, 6), ["high", "low"])
    trains = [open_shard(tmp_path / "one", one, spec)["train"] for one in spec.silos]
    stored = {x.tobytes(): y for train in trains for x, y in zip(train.x, train.y, strict=True)}
    assert stored == {volume.tobytes(): 1 - number % 2 for number, volume in enumerate(volumes)}


@pytest.mark.parametrize(
    "name", ["CT_small.dcm", "MR_small.dcm", "MR_small_bigendian.dcm", "MR_small_RLE.dcm"]
)
def test_values_are_those_of_pydicom(tmp_path, name):
    shutil.copy(SAMPLES / name, tmp_path / name)
    dataset = pydicom.dcmread(tmp_path / name)
    wanted = pydicom.pixels.apply_modality_lut(dataset.pixel_array, dataset).astype(np.float32)
    assert np.array_equal(read(tmp_path, "label=Modality").x[:][0, 0], wanted)


def test_frames_of_a_file_are_slices_and_colours_are_channels(tmp_path):
    shutil.copy(SAMPLES / "SC_rgb_rle_2frame.dcm", tmp_path / "two.dcm")
    dataset = pydicom.dcmread(tmp_path / "two.dcm")
    dataset.PatientID = "x"
    dataset.save_as(tmp_path / "two.dcm")
    found = read(tmp_path, "label=Modality").x[:]
    assert np.array_equal(found, dataset.pixel_array.transpose(0, 3, 1, 2))
    whole = read(tmp_path, "label=Modality", "example=series").x[:]
    assert np.array_equal(whole[0], dataset.pixel_array.transpose(3, 0, 1, 2))


def of_a_person(name, path):
    if not (SAMPLES / name).exists():
        pytest.skip(f"this pydicom carries no {name}")
    dataset = pydicom.dcmread(SAMPLES / name)
    dataset.PatientID = "x"
    path.parent.mkdir(exist_ok=True)
    dataset.save_as(path)
    return dataset


def test_a_palette_says_the_colours_from_0_to_255(tmp_path):
    dataset = of_a_person("examples_palette.dcm", tmp_path / "in" / "a.dcm")
    words = [dataset[f"{colour}PaletteColorLookupTableData"].value for colour in ("Red", "Green", "Blue")]
    tables = np.stack([np.frombuffer(word, "<u2") for word in words])
    assert int(dataset.RedPaletteColorLookupTableDescriptor[1]) == 0
    found = read(tmp_path / "in", "label=Modality").x[:]
    assert found.shape == (1, 3, 350, 800)
    assert found.max() <= 255
    assert np.array_equal(found[0], (tables[:, dataset.pixel_array] / np.float32(257)).astype(np.float32))


def test_doses_are_in_their_unit(tmp_path):
    dataset = of_a_person("rtdose.dcm", tmp_path / "in" / "a.dcm")
    found = read(tmp_path / "in", "label=Modality").x[:]
    assert np.array_equal(found[:, 0], (dataset.pixel_array * 1e-6).astype(np.float32))


def enhanced(path, frames, places, *, of_all=()):
    """Write an enhanced image: each frame says where it lies and how it is scaled, or all do."""
    of_one = ("RescaleSlope", "RescaleIntercept", "ImagePositionPatient", "ImageOrientationPatient")
    write(path, frames[0], NumberOfFrames=len(frames), InstanceNumber=1, **dict.fromkeys(of_one))
    dataset, groups = pydicom.dcmread(path), [pydicom.Dataset() for _ in frames]
    shared = pydicom.Dataset()
    for number, (place, own) in enumerate(zip(places, groups, strict=True)):
        said = {"PlanePosition": {"ImagePositionPatient": [0, 0, place]},
                "PlaneOrientation": {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0]},
                "PixelValueTransformation": {"RescaleSlope": "2", "RescaleIntercept": str(-number),
                                             "RescaleType": "US"}}  # fmt: skip
        for name, tags in said.items():
            item = pydicom.Dataset()
            for key, value in tags.items():
                setattr(item, key, value)
            setattr(shared if name in of_all else own, f"{name}Sequence", [item])
    dataset.PerFrameFunctionalGroupsSequence, dataset.SharedFunctionalGroupsSequence = groups, [shared]
    dataset.PixelData = frames.tobytes()
    dataset.save_as(path)


@pytest.mark.parametrize("of_all", [(), ("PlaneOrientation", "PixelValueTransformation")])
def test_frames_of_an_enhanced_image_are_slices_by_their_positions(tmp_path, of_all):
    frames = DRAW.integers(0, 4096, (4, 5, 6)).astype(np.uint16)
    enhanced(tmp_path / "a.dcm", frames, [5.0, 0.0, 7.5, 2.5], of_all=of_all)
    wanted = frames.astype(np.float32) * 2 - np.array([3] * 4 if of_all else range(4)).reshape(4, 1, 1)
    wanted = wanted[[1, 3, 0, 2]]
    assert np.array_equal(read(tmp_path, "label=Modality").x[:][:, 0], wanted)
    rows = read(tmp_path, "label=Modality").x
    assert np.array_equal(rows[np.array([2, 0])][:, 0], wanted[[2, 0]])
    assert np.array_equal(read(tmp_path, "label=Modality", "example=series").x[:][0, 0], wanted)


def test_frames_of_an_enhanced_image_at_one_place_make_no_volume(tmp_path):
    enhanced(tmp_path / "a.dcm", DRAW.integers(0, 4096, (2, 5, 6)).astype(np.uint16), [5.0, 5.0])
    assert len(read(tmp_path, "label=Modality").x) == 2
    with pytest.raises(InputError, match=r"a\.dcm lies at the same place of its series"):
        read(tmp_path, "label=Modality", "example=series")


@pytest.mark.parametrize("signed", [False, True])
def test_the_lowest_number_is_white_where_the_file_says_so(tmp_path, signed):
    pixels = np.array([[0, 1], [2047, 5]], np.int16 if signed else np.uint16)
    write(tmp_path / "a.dcm", pixels, PhotometricInterpretation="MONOCHROME1", RescaleSlope="1")
    inverted = (-1 if signed else 4095) - pixels.astype(int)
    assert np.array_equal(read(tmp_path, "label=Modality").x[:][0, 0], inverted - 1024)


def test_a_series_without_positions_is_by_its_numbers(tmp_path):
    for at in range(3):
        pixels = np.full((2, 2), at, np.uint16)
        write(tmp_path / f"{9 - at}.dcm", pixels, ImagePositionPatient=None, InstanceNumber=at + 1)
    found = read(tmp_path, "label=Modality", "example=series").x[:]
    assert found[0, 0, :, 0, 0].tolist() == [-1024, -1022, -1020]


def plain(path, **tags):
    write(path, np.ones((2, 2), np.uint16), **tags)


FAULTS = {
    "no DICOM": (
        lambda folder: (folder / "x.dcm").write_text("x"),
        [],
        "x.dcm: is not a DICOM file, or is damaged",
    ),
    "no pixels": (
        lambda folder: shutil.copy(SAMPLES / "rtplan.dcm", folder / "x.dcm"),
        [],
        "x.dcm: has no pixel data (modality RTPLAN); remove it from the folder",
    ),
    "no patient": (lambda folder: plain(folder / "x.dcm", patient=""), [], "x.dcm: has no PatientID"),
    "another size": (
        lambda folder: write(folder / "x.dcm", np.ones((3, 2), np.uint16), series="1.3"),
        [],
        "x.dcm: an example of shape [1, 3, 2], a.dcm [1, 2, 2]",
    ),
    "no place": (
        lambda folder: plain(folder / "x.dcm", ImagePositionPatient=None),
        ["example=series"],
        "x.dcm: some images of its series have a position, and some only a number",
    ),
    "the same place": (
        lambda folder: plain(folder / "x.dcm"),
        ["example=series"],
        "x.dcm: a.dcm lies at the same place of its series",
    ),
    "other colours": (
        lambda folder: plain(folder / "x.dcm", PhotometricInterpretation="HSV"),
        [],
        "x.dcm: pixels are HSV of 1; grey and RGB are read",
    ),
    "segments": (
        lambda folder: shutil.copy(SAMPLES / "liver_1frame.dcm", folder / "x.dcm"),
        [],
        "x.dcm: holds segments, not an image (modality SEG); remove it from the folder",
    ),
    "no such example": (lambda folder: None, ["example=scan"], "example=scan given; there are slice, series"),
    "labels twice": (
        lambda folder: None,
        ["labels=x.csv"],
        "give label=KEYWORD or labels=FILE, and not",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_one_line(tmp_path, fault):
    harm, options, said = FAULTS[fault]
    plain(tmp_path / "a.dcm")
    harm(tmp_path)
    with pytest.raises(InputError) as error:
        read(tmp_path, "label=Modality", *options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_pixels_that_are_cut_short_end_the_command_with_one_line_and_leave_nothing(tmp_path, capsys):
    scans(tmp_path / "in")
    path = tmp_path / "in" / "p2" / "8.dcm"
    path.write_bytes(path.read_bytes()[:-30])
    words = ["partition", "dicom", "--data", tmp_path / "in", "--scheme", "iid", "--silos", 2]
    assert run(*words, "--option", "label=Modality", "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert f"{path}: its pixels cannot be read" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


LABELS = {
    "no such name": ("PatientID,grade\nq,low\n", "has no line for PatientID 'p1'; write its label"),
    "twice": ("PatientID,grade\np1,low\np1,high\n", "line 3: 'p1' is there twice"),
    "no label": ("PatientID,grade\np1,\n", "line 2: 'p1' lacks its name or its label"),
    "columns": ("PatientID,grade,age\n", "line 1: 3 columns; a table of labels has two"),
    "empty": ("PatientID,grade\n", "has no labels"),
}


@pytest.mark.parametrize("fault", LABELS)
def test_a_bad_table_of_labels_is_named(tmp_path, fault):
    content, said = LABELS[fault]
    plain(tmp_path / "in" / "a.dcm")
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(InputError) as error:
        read(tmp_path / "in", f"labels={tmp_path / 'labels.csv'}")
    assert said in str(error.value)


@pytest.mark.parametrize(("name", "source"), [("pydicom", "dicom"), ("nibabel", "nifti")])
def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch, name, source):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"'{source}' needs {name}; pip install 'mpifl\[medical\]'"):
        find_source(source)(tmp_path, 0)
