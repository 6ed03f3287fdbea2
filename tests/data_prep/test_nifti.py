"""NIfTI: volumes in RAS with the values of nibabel, masks and tables, a line for what is wrong."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError
from mpifl.data.shards import open_shard, read_federation

nibabel = pytest.importorskip("nibabel")
SAMPLES = Path(nibabel.__file__).parent / "tests" / "data"
DRAW = np.random.default_rng(0)
RAS, LPS = np.diag([2.0, 2, 2, 1]), np.diag([-2.0, -2, 2, 1])


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def save(path, voxels, affine=RAS, slope=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(voxels, affine)
    if slope:
        image.header.set_slope_inter(*slope)
    nibabel.save(image, path)


def read(folder, *options):
    return find_source("nifti", options)(folder, 0)


def scans(folder, masks=None):
    """Write four volumes of two hospitals, half of them stored the other way round; return them in RAS."""
    volumes = DRAW.integers(-900, 900, (4, 4, 3, 5)).astype(np.int16)
    drawn = DRAW.integers(0, 3, volumes.shape).astype(np.uint8)
    for at, (volume, mask) in enumerate(zip(volumes, drawn, strict=True)):
        turned, affine = (at % 2, LPS if at % 2 else RAS)
        for where, voxels in ((folder, volume), (masks, mask)):
            if where:
                path = where / ("north", "south")[at // 2] / f"{at}.nii{'.gz' if at > 1 else ''}"
                save(path, voxels[::-1, ::-1] if turned else voxels, affine)
    return volumes, drawn


def table(path):
    names = ("north/0.nii", "north/1.nii", "south/2.nii.gz", "south/3.nii.gz")
    lines = [f"{name},{label}" for name, label in zip(names, ("ill", "well") * 2, strict=True)]
    path.write_text("\n".join(["file,outcome", *lines]))
    return f"labels={path}"


def test_volumes_are_brought_to_ras_and_two_runs_give_the_same_bytes(tmp_path):
    volumes, _ = scans(tmp_path / "in")
    words = [
        "partition",
        "nifti",
        "--data",
        tmp_path / "in",
        "--scheme",
        "natural",
        "--option",
        "silo=parent",
    ]
    words += ["--option", table(tmp_path / "labels.csv")]
    for out in ("one", "two"):
        assert run(*words, "--out", tmp_path / out) == 0
    spec, again = (read_federation(tmp_path / out) for out in ("one", "two"))
    assert [one.sha256 for one in spec.silos] == [one.sha256 for one in again.silos]
    assert (spec.features.shape, spec.class_names) == ((1, 4, 3, 5), ["ill", "well"])
    assert [one.name for one in spec.silos] == ["north", "south"]
    for silo, entry in enumerate(spec.silos):
        train = open_shard(tmp_path / "one", entry, spec)["train"]
        assert np.array_equal(train.x[:, 0], volumes[2 * silo : 2 * silo + 2])
        assert train.y.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["anatomical.nii", "example_nifti2.nii.gz"])
def test_values_are_those_of_nibabel(tmp_path, name):
    shutil.copy(SAMPLES / name, tmp_path / name)
    image = nibabel.load(SAMPLES / name)
    if len(image.shape) > 3:
        save(tmp_path / name, np.asarray(image.dataobj)[..., 0], image.affine)
        image = nibabel.load(tmp_path / name)
    wanted = nibabel.as_closest_canonical(image).get_fdata().astype(np.float32)
    (tmp_path / "labels.csv").write_text(f"file,age\n{name},61.5\n")
    (tmp_path / "in").mkdir()
    shutil.move(tmp_path / name, tmp_path / "in" / name)
    data = read(tmp_path / "in", f"labels={tmp_path / 'labels.csv'}", "targets=values")
    assert np.array_equal(data.x[:][0, 0], wanted)
    assert (data.classes, data.y.tolist()) == (None, [61.5])


def test_voxels_are_scaled_as_the_header_says(tmp_path):
    save(tmp_path / "in" / "a.nii", np.arange(24, dtype=np.int16).reshape(2, 3, 4), slope=(0.5, 10))
    (tmp_path / "labels.csv").write_text("file,y\na.nii,1\n")
    wanted = nibabel.load(tmp_path / "in" / "a.nii").get_fdata().astype(np.float32)
    assert np.array_equal(read(tmp_path / "in", f"labels={tmp_path / 'labels.csv'}").x[:][0, 0], wanted)


def test_masks_are_classes_of_voxels_and_slices_of_a_volume_stay_together(tmp_path):
    volumes, drawn = scans(tmp_path / "in", tmp_path / "masks")
    data = read(tmp_path / "in", f"masks={tmp_path / 'masks'}")
    assert (data.classes, data.y.dtype) == (3, np.uint8)
    assert np.array_equal(data.y[:], drawn)
    slices = read(tmp_path / "in", f"masks={tmp_path / 'masks'}", "example=slice", "silo=parent")
    assert slices.x.shape == (20, 1, 4, 3)
    assert np.array_equal(slices.x[:][:, 0], np.moveaxis(volumes, 3, 1).reshape(20, 4, 3))
    assert np.array_equal(slices.y[:], np.moveaxis(drawn, 3, 1).reshape(20, 4, 3))
    assert slices.groups.of.tolist() == np.repeat(np.arange(4), 5).tolist()
    assert slices.silo.tolist() == [0] * 10 + [1] * 10


@pytest.mark.parametrize("group", ["", "K(\\d+)", "parent"])
@pytest.mark.parametrize("example", ["volume", "slice"])
def test_volumes_of_a_patient_are_seen_by_their_names_and_kept_together(tmp_path, group, example, capsys):
    for site, patient, side in itertools.product(("north", "south"), range(4), "ab"):
        of = f"p{patient}/K01{patient}0_{side}" if group == "parent" else f"K01{patient}0_{side}"
        save(tmp_path / "in" / site / f"{of}.nii.gz", A)
    names = sorted(path.relative_to(tmp_path / "in") for path in (tmp_path / "in").rglob("*.gz"))
    (tmp_path / "y.csv").write_text("\n".join(["file,y", *(f"{name},{name.stem[4]}" for name in names)]))
    words = ["--labels", tmp_path / "y.csv", "--example", example, "--silo", "parent", "--scheme", "natural"]
    words += ["--test", "0.25", *(["--group", group] if group else [])]
    assert run("partition", "nifti", "--data", tmp_path / "in", *words, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().err
    assert ("16 images have the names of others but for their ends (K0100_a.nii.gz" in said) is not bool(
        group
    )
    assert ("--group '(.+)_'" in said) is not bool(group)
    silos = read_federation(tmp_path / "out").silos
    assert [one.name for one in silos] == ["north", "south"]
    wanted = {"train": 3, "test": 1} if group else ({"train": 6, "test": 2} if example == "slice" else None)
    assert [one.groups for one in silos] == [wanted, wanted]


@pytest.mark.parametrize("by_silo", [False, True])
@pytest.mark.parametrize(
    ("image", "mask", "apart"),
    [
        ("{s}/K0{n}.nii.gz", "{s}/K0{n}_seg.nii.gz", False),
        ("{s}/img/K0{n}.nii.gz", "{s}/seg/K0{n}.nii.gz", False),
        ("{s}/K0{n}.nii.gz", "{s}/masks/K0{n}_mask.nii", False),
        ("imagesTr/{s}/K0{n}_0000.nii.gz", "labelsTr/{s}/K0{n}.nii.gz", True),
    ],
)
def test_masks_of_volumes_may_lie_among_them(tmp_path, image, mask, apart, by_silo):
    volumes, drawn = scans(tmp_path / "plain", tmp_path / "masks")
    for at, (volume, classes) in enumerate(zip(volumes, drawn, strict=True)):
        for form, voxels in ((image, volume), (mask, classes)):
            save(tmp_path / "in" / form.format(s="ab"[at // 2], n=at), voxels)
    where = ("imagesTr", "labelsTr") if apart else (".", ".")
    folder, masks = (tmp_path / "in" / one for one in where)
    data = read(folder, f"masks={masks}", *(["silo=parent"] if by_silo else []))
    assert np.array_equal(data.x[:][:, 0], volumes)
    assert np.array_equal(data.y[:], drawn)
    assert data.silo_names == ({0: "a", 1: "b"} if by_silo else None)
    if apart:
        with pytest.raises(InputError, match=r"say --data .*/imagesTr --masks .*/labelsTr"):
            read(tmp_path / "in", f"masks={tmp_path / 'in'}")
    else:
        (folder / mask.format(s="a", n=0)).unlink()
        with pytest.raises(InputError, match=r"K00.*: is missing; each volume has a mask"):
            read(folder, f"masks={masks}")


A = DRAW.random((3, 4, 5)).astype(np.float32)
FAULTS = {
    "no NIfTI": (
        lambda folder: (folder / "in/x.nii").write_text("x"),
        [],
        "x.nii: is not a NIfTI file, or is damaged",
    ),
    "another file": (
        lambda folder: (folder / "in/x.txt").write_text("x"),
        [],
        "x.txt: is not one of .nii, .nii.gz",
    ),
    "another size": (
        lambda folder: save(folder / "in/x.nii", A[:2]),
        [],
        "x.nii: [2, 4, 5] voxels, a.nii [3",
    ),
    "four axes": (
        lambda folder: save(folder / "in/x.nii", np.ones((3, 4, 5, 2), np.float32)),
        [],
        "x.nii: has the axes [3, 4, 5, 2]; three are read",
    ),
    "complex": (
        lambda folder: save(folder / "in/x.nii", A.astype(np.complex64)),
        [],
        "x.nii: voxels are complex64",
    ),
    "no mask": (
        lambda folder: save(folder / "in/x.nii", A),
        [],
        "masks/x.nii: is missing; each volume has a mask",
    ),
    "mask elsewhere": (
        lambda folder: save(folder / "masks/a.nii", np.ones(A.shape, np.uint8), LPS),
        [],
        "masks/a.nii: lies at another place than its volume",
    ),
    "no mask at all": (lambda folder: save(folder / "masks/a.nii", A), [], "masks/a.nii: is not a mask"),
    "neither": (lambda folder: None, ["masks="], "give labels=FILE or masks=DIR, and not both"),
    "silo": (lambda folder: None, ["silo=ward"], "silo=ward given; there are parent"),
    "group": (
        lambda folder: None,
        ["group=(\\d)", "silo=parent"],
        "--group '(\\d)' finds nothing in its name",
    ),
    "no group's folder": (
        lambda folder: None,
        ["group=parent", "silo=parent"],
        "a.nii: silo=parent takes a folder for each silo, and in it those of groups",
    ),
    "two masks": (
        lambda folder: save(folder / "masks" / "a_seg.nii", A),
        [],
        "a_seg.nii: a.nii is a mask of a.nii, too; a volume has one mask",
    ),
    "mask alone": (
        lambda folder: save(folder / "masks" / "x.nii", A),
        [],
        "in/x.nii: is missing; each volume",
    ),
    "no masks among images": (
        lambda folder: None,
        ["masks=in"],
        "in: has no masks by their names; a mask of",
    ),
    "empty silo": (
        lambda folder: (folder / "in" / "west").mkdir(),
        ["silo=parent"],
        "west: has no volumes, and would be a silo; remove it",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_one_line(tmp_path, fault):
    harm, options, said = FAULTS[fault]
    save(tmp_path / "in" / "a.nii", A)
    save(tmp_path / "masks" / "a.nii", np.ones(A.shape, np.uint8))
    harm(tmp_path)
    if fault in ("no NIfTI", "another size", "four axes", "complex"):
        save(tmp_path / "masks" / "x.nii", A)
    named = "in" if "masks=in" in options else "masks"
    options = [one for one in options if one != "masks=in"]
    with pytest.raises(InputError) as error:
        read(tmp_path / "in", *([] if "masks=" in options else [f"masks={tmp_path / named}"]), *options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_voxels_that_are_cut_short_end_with_one_line(tmp_path, ending):
    path = tmp_path / "in" / f"a.{ending}"
    save(path, DRAW.random((20, 20, 20)))
    path.write_bytes(path.read_bytes()[:-2000])
    (tmp_path / "labels.csv").write_text(f"file,y\n{path.name},1\n")
    with pytest.raises(InputError, match=r"a\.nii.*: cut short or damaged"):
        read(tmp_path / "in", f"labels={tmp_path / 'labels.csv'}").x[:]
