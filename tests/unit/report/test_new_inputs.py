"""New arrays, volumes and images without labels, and predicted masks as pictures."""

import contextlib
import io
import json
import shutil

import numpy as np
import pytest
from unit.report.test_patients import asked, command

import mpifl
from data_prep.schemes import Shares
from data_prep.site.site import Site, import_site
from mpifl.common import InputError
from mpifl.data.shards import read_federation
from mpifl.report.judging.mask_files import palette

Image = pytest.importorskip("PIL.Image")
nibabel = pytest.importorskip("nibabel")
DRAW = np.random.default_rng(0)


def trained(folder, **tables):
    """Train for a round on `folder/shards`; return the run folder."""
    job = {"name": "toy", "shards": str(folder / "shards"), "rounds": 1, "device": "cpu"}
    mpifl.train({**job, "local": {"batch_size": 4, "lr": 0.1}, **tables}, out=folder / "run")
    return folder / "run"


def cut(folder, source, data, *words):
    data_of = ("partition", source, "--data", folder / data, "--out", folder / "shards")
    command(*data_of, "--scheme", "iid", "--silos", 2, *words)


def predicted(run, *words, out="p.npz"):
    code, printed, said = asked("predict", run, *words, "--out", run.parent / out)
    assert (code, said) == (0, ""), said
    return dict(np.load(run.parent / out)), printed


def test_arrays_of_a_file_are_predicted_in_their_order(tmp_path):
    x = DRAW.random((20, 3))
    np.savez(tmp_path / "in.npz", x=x, y=np.arange(20) % 2)
    cut(tmp_path, "npz", "in.npz")
    run = trained(tmp_path, model={"name": "mlp", "hidden": [4]})
    before, _ = predicted(run, "--data", tmp_path / "shards")
    np.savez(tmp_path / "new.npz", x=x.astype(np.float32))
    found, _ = predicted(run, tmp_path / "new.npz", out="new.npz.npz")
    assert found["row"].tolist() == list(range(20))
    assert found["p_1"] == pytest.approx(before["p_1"], rel=1e-5)
    for arrays, said in (
        ({"x": x[:, :2]}, "x: examples have shape [2], the model takes [3]"),
        ({"x": x.astype(np.int64)}, "x: is int64, the model learned from float64; convert it"),
        ({"x_a": x}, "only the training has x; name arrays as there"),
        ({"y": x}, "has no array 'x'"),
    ):
        np.savez(tmp_path / "new.npz", **arrays)
        assert said in asked("predict", run, tmp_path / "new.npz", "--out", tmp_path / "p.csv")[2]


def test_arrays_of_unequal_lengths_are_padded_as_in_the_training(tmp_path):
    lengths = DRAW.integers(2, 9, 20)
    tokens = DRAW.integers(0, 5, lengths.sum()).astype(np.int16)
    arrays = {
        "x": tokens,
        "x.offsets": np.cumsum([0, *lengths]),
        "y": tokens,
        "y.offsets": np.cumsum([0, *lengths]),
    }
    np.savez(tmp_path / "in.npz", **arrays)
    cut(tmp_path, "npz", "in.npz", "--fill", 1, "--ignore", -100)
    model = {"name": "gpt", "width": 4, "layers": 1, "heads": 1}
    run = trained(tmp_path, model=model, task={"name": "language"})
    before, _ = predicted(run, "--data", tmp_path / "shards")
    found, _ = predicted(run, tmp_path / "in.npz", out="new.npz")
    assert found["p.offsets"].tolist() == before["p.offsets"].tolist()
    assert found["p"] == pytest.approx(before["p"], rel=1e-5)


@pytest.fixture
def volumes(tmp_path):
    """A U-Net after a round on the slices of four volumes."""
    for name in ("a", "b", "c", "d"):
        scan, mask = DRAW.normal(size=(8, 8, 3)), DRAW.integers(0, 3, (8, 8, 3)).astype(np.uint8)
        for part, voxels in (("in", scan.astype(np.float32)), ("masks", mask)):
            (tmp_path / part / "north").mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / part / "north" / f"{name}.nii.gz")
    masks = f"masks={tmp_path / 'masks'}"
    cut(tmp_path, "nifti", "in", "--option", "example=slice", "--option", masks, "--keep", "id")
    model = {"name": "unet", "width": 2, "depth": 1}
    return trained(tmp_path, model=model, task={"name": "segmentation"})


def test_volumes_are_predicted_by_slices_and_masks_are_pictures(volumes, tmp_path):
    words = "--data", tmp_path / "shards", "--masks", tmp_path / "m", "--overlay"
    before, printed = predicted(volumes, *words)
    of = "pixels of 0 are class 0, of 1 class 1, of 2 class 2"
    assert printed.endswith(f"masks: {tmp_path / 'm'}, 12 files; {of}\n")
    shutil.copy(tmp_path / "in/north/a.nii.gz", tmp_path / "in/north/a_seg.nii.gz")
    words = "--images", tmp_path / "in", "--masks", tmp_path / "n", "--overlay"
    found, told = predicted(volumes, *words, out="new.npz")
    assert "masks by names or pixels, and are left out: north/a_seg.nii.gz" in told
    assert found["p"] == pytest.approx(before["p"], rel=1e-4)
    assert found["id"][:2].tolist() == ["north/a.nii.gz:0", "north/a.nii.gz:1"]
    for row, name in enumerate(found["id"]):
        volume, slice = name.removeprefix("north/").split(".nii.gz:")
        mask = Image.open(tmp_path / "n" / "north" / f"{volume}_{slice}.png")
        assert np.array_equal(np.asarray(mask), found["p"][row].argmax(0))
        scan = np.asarray(nibabel.load(tmp_path / "in" / name.split(":")[0]).dataobj)[..., int(slice)]
        over = np.asarray(Image.open(tmp_path / "n" / "north" / f"{volume}_{slice}.overlay.png"))
        grey = 255 * (scan - scan.min()) / (scan.max() - scan.min())
        bare = np.asarray(mask) == 0
        assert np.abs(over[bare] - grey[bare][:, None]).max(initial=0) <= 0.51
        colours = np.array(mask.getpalette(), np.float64).reshape(-1, 3)[np.asarray(mask)]
        assert np.abs(over[~bare] - (0.55 * grey[..., None] + 0.45 * colours)[~bare]).max(initial=0) <= 0.51
    for row, name, silo in zip(before["row"], before["id"], before["silo"], strict=True):
        mask = Image.open(tmp_path / "m" / silo / "north" / f"{name[6]}-{row}.png")
        over = np.asarray(Image.open(tmp_path / "m" / silo / "north" / f"{name[6]}-{row}.overlay.png"))
        y = np.pad(before["y"][row], 1)
        beside = [y[1:-1, :-2], y[1:-1, 2:], y[:-2, 1:-1], y[2:, 1:-1]]
        y = y[1:-1, 1:-1]
        outline = (y > 0) & np.any([one != y for one in beside], axis=0)
        assert outline.any()
        assert np.array_equal(over[outline], 255 - palette()[y[outline]]), "unlike the predicted mask"
        assert np.array_equal(np.asarray(mask), before["p"][row].argmax(0))
    x = np.stack([np.asarray(nibabel.load(tmp_path / "in/north/a.nii.gz").dataobj)[..., 1].T] * 2)[:, None]
    np.savez(tmp_path / "x.npz", x=x.astype(np.float32))
    found, _ = predicted(volumes, tmp_path / "x.npz", "--masks", tmp_path / "o", "--overlay", out="o.npz")
    names = [f"{row}{over}.png" for row in (0, 1) for over in (".overlay", "")]
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == names
    assert np.array_equal(np.asarray(Image.open(tmp_path / "o/1.png")), found["p"][1].argmax(0))
    _, _, said = asked("predict", volumes, *words, "--out", tmp_path / "p.npz")
    assert said == f"--masks {tmp_path / 'n'}: is there and not empty; name another folder"


def test_masks_of_resized_images_have_the_images_sizes_and_no_name_is_repeated(tmp_path):
    sizes = {"north/a": (20, 16), "north/b": (8, 8), "south/a": (8, 12), "south/b": (8, 8)}
    for name, (width, height) in sizes.items():
        for part, pixels in (
            ("in", DRAW.integers(0, 256, (height, width))),
            ("masks", 255 * np.eye(height, width)),
        ):
            (tmp_path / part / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / part / f"{name}.png")
    cutting = "--masks", tmp_path / "masks", "--silo", "parent", "--size", "8x8", "--keep", "id"
    cutting = *cutting, "--option", "values=0,255"
    data = ("partition", "images", "--data", tmp_path / "in", "--out", tmp_path / "shards")
    command(*data, "--scheme", "natural", *cutting)
    of_partition = read_federation(tmp_path / "shards").source["encoding"]
    shutil.rmtree(tmp_path / "shards")
    imported(tmp_path, of_partition)
    run = trained(tmp_path, model={"name": "unet", "width": 2, "depth": 1}, task={"name": "segmentation"})
    _, printed = predicted(run, "--data", tmp_path / "shards", "--masks", tmp_path / "m")
    told = "note: masks of shards have the size of the training, 8x8; --images FOLDER in place of --data"
    assert told in printed
    shutil.copytree(tmp_path / "masks", tmp_path / "in/masks")
    shutil.copy(tmp_path / "masks/north/a.png", tmp_path / "in/north/a_mask.png")
    words = "predict", run, "--images", tmp_path / "in", "--out", tmp_path / "n.npz", "--overlay"
    code, printed, said = asked(*words, "--masks", tmp_path / "n")
    assert (code, said) == (0, "")
    assert "in: 5 of 9 files are masks by names or pixels, and are left out: masks/north/a.png," in printed
    shutil.rmtree(tmp_path / "in/masks")
    (tmp_path / "in/north/a_mask.png").unlink()
    assert "in: 2 of 4 images are resized to 8x8 for the model; --masks writes each mask in" in printed
    assert "masks of shards" not in printed
    for folder, of_model in (("m", True), ("n", False)):
        files = {
            path.relative_to(tmp_path / folder).as_posix() for path in (tmp_path / folder).rglob("*.png")
        }
        assert {name for name in files if "overlay" not in name} == {f"{name}.png" for name in sizes}
        for name, size in sizes.items():
            assert Image.open(tmp_path / folder / f"{name}.png").size == ((8, 8) if of_model else size)
    big = np.load(tmp_path / "n.npz")["p"][0].argmax(0).astype(np.uint8)
    big = Image.fromarray(big).resize(sizes["north/a"], Image.Resampling.NEAREST)
    mask = np.asarray(Image.open(tmp_path / "n/north/a.png"))
    assert np.array_equal(mask, 255 * np.asarray(big)), "in the values of the given masks"
    over, scan = (
        np.asarray(Image.open(tmp_path / one)) for one in ("n/north/a.overlay.png", "in/north/a.png")
    )
    grey = 255.0 * (scan - scan.min()) / (scan.max() - scan.min())
    assert np.abs(over[mask == 0] - grey[mask == 0][:, None]).max(initial=0) <= 0.51
    assert asked("evaluate", run, "--silos", "--split", "train", "--json", tmp_path / "s.json")[0] == 0
    assert "_examples" not in (tmp_path / "s.json").read_text(), "no mask is empty"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "masks/south/b.png")
    shutil.rmtree(tmp_path / "shards")
    command(*data, "--scheme", "natural", *cutting)
    words_of = "evaluate", run, "--data", tmp_path / "shards", "--split", "train"
    code, printed, said = asked(*words_of, "--json", tmp_path / "s.json")
    assert "note: 2 of 4 masks are resized to 8x8: Dice and other scores are of" in printed
    told = "dice: of 3 of 4 examples, those with a target that is not empty (south: 1 of 2)"
    assert told in " ".join(printed.split())
    scores = json.loads((tmp_path / "s.json").read_text())
    assert [scores["silos"][name].get("dice_examples") for name in ("north", "south")] == [None, 1]
    assert scores["pooled"]["dice_examples"] == 3
    shutil.rmtree(tmp_path / "shards")
    command(*data, "--scheme", "natural", *cutting, "--ground", "black")
    code, _, said = asked(*words_of)
    other = "was read otherwise than in training: ground is black, the model learned from white"
    assert (code, f"{other}; partition it with the training's options, or add --force" in said) == (1, True)
    Image.fromarray(np.full((8, 8), 4095, np.uint16)).save(tmp_path / "in/north/b.png")
    said = asked(*words, "--masks", tmp_path / "o")[2]
    assert "b.png: pixels are uint16, 4,095 the highest, the model learned from uint8; divide pixels" in said


def imported(folder, encoding):
    """Make `folder/shards` as two sites do that import, and show that it keeps how images became numbers."""
    form = "--shape", "1,8,8", "--dtype", "uint8", "--scale", "1/255", "--classes", 2
    aim = "--target-dtype", "uint8", "--target-shape", "8,8"
    command("spec", folder / "agreed.json", *form, *aim)
    command("spec", folder / "numbers.json", *form)
    masks = [f"masks={folder / 'masks/south'}", "values=0,255", "size=8x8"]
    to = folder / "in/south", folder / "numbers.json", folder / "no", Site(0), 0
    with pytest.raises(InputError, match=f"the sites agree by: data-prep spec {' '.join(aim)}"):
        import_site("images", *to, shares=Shares(0.0, 0.0, 0.0), source_options=masks)

    (site, _, *rest), deep = to, folder / "deep"
    for label in ("ill", "well"):
        (deep / label).mkdir(parents=True)
        Image.fromarray(np.full((8, 8), 4095, np.uint16)).save(deep / label / "a.png")
    for data, agreed, options, said in (
        (deep, "numbers.json", ["size=8x8"], "dtype int32, .* uint8; divide pixels as the sites agreed, and"),
        (site, "agreed.json", ["size=6x4"], r"features of shape .*; say --size 8x8$"),
    ):
        masked = [one for one in masks if data == site and not one.startswith("size")]
        given = {"shares": Shares(0.0, 0.0, 0.0), "source_options": masked + options}
        with pytest.raises(InputError, match=said):
            import_site("images", data, folder / agreed, *rest, **given)

    def bring(silo, name, out, *more):
        site = "--data", folder / "in" / name, "--masks", folder / "masks" / name, "--silo", silo
        site = *site, "--name", name
        agreed = "--spec", folder / "agreed.json", "--out", folder / out
        command("import", "images", *site, *agreed, "--size", "8x8", "--keep", "id", "--values", *more)

    for out, values, grounds, wanted in (
        ("ground", ("0,255", "0,255"), ("white", "black"), None),
        ("values", ("0,255", "0,1/255"), ("white", "white"), encoding),
        ("shards", ("0,255", "0,255"), ("white", "white"), encoding),
    ):
        for silo, name in enumerate(("north", "south")):
            bring(silo, name, out, values[silo], "--ground", grounds[silo])
        with contextlib.redirect_stderr(io.StringIO()) as warned:
            command("assemble", folder / out)
        what = "silo_0001.json: images were read with ground black, silo_0000.json has white; `mpifl predict"
        assert what in warned.getvalue() if wanted is None else not warned.getvalue()
        assert read_federation(folder / out).source.get("encoding") == wanted


def test_masks_of_what_has_none_are_refused(tmp_path):
    np.savez(tmp_path / "in.npz", x=DRAW.random((8, 3)).astype(np.float32), y=np.arange(8) % 2)
    cut(tmp_path, "npz", "in.npz")
    run = trained(tmp_path, model={"name": "logreg"})
    words = "predict", run, "--out", tmp_path / "p.csv", "--data", tmp_path / "shards"
    assert "not a mask of an image; leave it out" in asked(*words, "--masks", tmp_path / "m")[2]
    assert asked(*words, "--overlay")[2] == "--overlay: lies beside masks; give --masks DIR, too"
