"""Images with masks: the class of every pixel, as it was drawn, and one line for what does not fit."""

import hashlib

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.drawn_masks import look_at_masks
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation

Image = pytest.importorskip("PIL.Image")
DRAW = np.random.default_rng(0)
IMAGES = {f"scan{n}": DRAW.integers(0, 256, (6, 5, 3), np.uint8) for n in range(12)}
MASKS = {name: DRAW.choice(np.array([0, 1, 2, 255], np.uint8), (6, 5)) for name in IMAGES}


def run(*words, ends=0):
    """Run a command as typed; it must end so."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def palette(mask):
    indexed = Image.frombytes("P", mask.shape[::-1], mask.tobytes())
    indexed.putpalette(list(np.random.default_rng(1).integers(0, 256, 768)))
    return indexed


def deep(mask):
    return Image.fromarray(mask.astype(np.uint16))  # a PNG with 16 bits, as some programs write


def write(folder, names=tuple(IMAGES), part=".", drawn=Image.fromarray):
    """Write images and their masks; return the options that name them."""
    for kind in ("in", "masks"):
        (folder / kind / part).mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.fromarray(IMAGES[name]).save(folder / "in" / part / f"{name}.png")
        drawn(MASKS[name]).save(folder / "masks" / part / f"{name}.png")
    return [f"masks={folder / 'masks'}", "ignore=255"]


def cut(folder, out, options, *more, ends=0):
    words = [word for option in options for word in ("--option", option)]
    run("partition", "images", "--data", folder / "in", "--out", folder / out, *words, *more, ends=ends)
    return folder / out


@pytest.mark.parametrize("drawn", [Image.fromarray, palette, deep])
def test_masks_come_back_bit_for_bit(tmp_path, capsys, drawn):
    options = write(tmp_path, drawn=drawn)
    folder = cut(tmp_path, "out", options, "--scheme", "iid", "--silos", 2)
    spec = read_federation(folder)
    aim = spec.targets
    assert (spec.classes, aim.dtype, aim.shape, aim.ignore) == (3, "uint8", (6, 5), 255)
    stored = {}
    for entry in spec.silos:
        train = open_shard(folder, entry, spec)["train"]
        stored |= {x.tobytes(): y for x, y in zip(train.x, train.y, strict=True)}
    assert len(stored) == 12
    for name, pixels in IMAGES.items():
        assert np.array_equal(stored[pixels.transpose(2, 0, 1).tobytes()], MASKS[name])
    run("check", folder)
    capsys.readouterr()
    run("inspect", folder)
    assert "uint8 3x6x5, 3 classes" in capsys.readouterr().out


def test_the_bits_are_the_same_for_any_jobs(tmp_path):
    options = write(tmp_path)
    ones, threes = (
        cut(tmp_path, f"jobs{jobs}", options, "--scheme", "iid", "--silos", 3, "--valid", 0.3, "--jobs", jobs)
        for jobs in (1, 3)
    )
    for path in ones.iterdir():
        digests = [hashlib.sha256((folder / path.name).read_bytes()).digest() for folder in (ones, threes)]
        assert digests[0] == digests[1]


def test_train_and_test_folders_make_the_servers_test_set(tmp_path):
    names = list(IMAGES)
    write(tmp_path, names[:8], "train")
    options = write(tmp_path, names[8:], "test")
    dataset = find_source("images", options)(tmp_path / "in", 0)
    assert np.array_equal(dataset.y, np.stack([MASKS[name] for name in sorted(names[:8])]))
    assert np.array_equal(dataset.test[1], np.stack([MASKS[name] for name in sorted(names[8:])]))
    assert dataset.test[0].shape == (4, 3, 6, 5)
    write(tmp_path, names[:1], "val")
    with pytest.raises(InputError, match="val: lies beside train, test, and would not be read"):
        find_source("images", options)(tmp_path / "in", 0)


def test_resizing_makes_no_new_classes(tmp_path):
    dataset = find_source("images", [*write(tmp_path), "size=13x9", "grey=true"])(tmp_path / "in", 0)
    assert (dataset.x.shape, dataset.y.shape) == ((12, 1, 9, 13), (12, 9, 13))
    assert set(np.unique(dataset.y)) == {0, 1, 2, 255}


def test_resized_masks_are_counted(tmp_path, capsys):
    options = write(tmp_path)
    cut(tmp_path, "same", options, "--scheme", "iid", "--silos", 2, "--size", "5x6")
    assert "resized" not in capsys.readouterr().err
    folder = cut(tmp_path, "other", options, "--scheme", "iid", "--silos", 2, "--size", "10x6")
    said = "12 of 12 masks are resized to 10x6: Dice and other scores are of masks of this size, and not"
    assert f"warning: {said}" in " ".join(capsys.readouterr().err.split())
    run("inspect", folder)
    assert said in " ".join(capsys.readouterr().out.split())


def test_black_and_white_masks_are_0_and_1(tmp_path):
    options = write(tmp_path, drawn=lambda mask: Image.fromarray(mask > 0))[:1]
    dataset = find_source("images", options)(tmp_path / "in", 0)
    assert dataset.classes == 2
    assert np.array_equal(dataset.y[0], MASKS["scan0"] > 0)


def test_the_digest_changes_with_a_pixel_of_a_mask(tmp_path):
    options = write(tmp_path)
    before = find_source("images", options)(tmp_path / "in", 0).files
    Image.fromarray(MASKS["scan4"]).save(tmp_path / "masks" / "scan3.png")
    after = find_source("images", options)(tmp_path / "in", 0).files
    assert before.keys() == after.keys() == {"in/**", "masks=masks/**"}
    assert [key for key in before if before[key] != after[key]] == ["masks=masks/**"]


def other_size(folder):
    Image.fromarray(np.zeros((6, 6), np.uint8)).save(folder / "masks" / "scan2.png")


def cut_short(folder):
    path = folder / "masks" / "scan2.png"
    Image.fromarray(DRAW.integers(0, 3, (6, 5), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:45])


FAULTS = {
    "another size": (other_size, "masks/scan2.png: 6x6 pixels, its image scan2.png has 5x6; make them alike"),
    "no mask": (
        lambda folder: (folder / "masks/scan2.png").unlink(),
        "in/scan2.png: has no mask; put scan2",
    ),
    "no image": (
        lambda folder: (folder / "in/scan2.png").unlink(),
        "masks/scan2.png: a mask without its",
    ),
    "a colour mask": (
        lambda folder: Image.fromarray(IMAGES["scan2"]).save(folder / "masks/scan2.png"),
        "masks/scan2.png: a mask of PNG in mode RGB",
    ),
    "a JPEG of that name": (
        lambda folder: Image.fromarray(MASKS["scan2"]).save(folder / "masks/scan2.png", format="JPEG"),
        "masks/scan2.png: a mask of JPEG in mode L",
    ),
    "a JPEG": (
        lambda folder: (folder / "masks/scan2.png").rename(folder / "masks/scan2.jpg"),
        "masks/scan2.jpg: is not one of .png",
    ),
    "16 bits": (
        lambda folder: deep(np.full((6, 5), 65535)).save(folder / "masks/scan2.png"),
        "masks/scan2.png: has pixels of 65,535 in 16 bits; class numbers end at 255; divide by 257",
    ),
    "cut short": (cut_short, "masks/scan2.png: the mask is damaged or cut short"),
    "no PNG": (lambda folder: (folder / "masks/scan2.png").write_text("x"), "scan2.png: is not a PNG, JPEG"),
    "the same name": (
        lambda folder: Image.fromarray(IMAGES["scan2"]).save(folder / "in/scan2.jpg"),
        "in/scan2.png: scan2.jpg has the same name",
    ),
    "a folder": (
        lambda folder: (folder / "in" / "more").mkdir(),
        "files; of SITE/images and SITE/masks, data-prep import makes each site's shard; --group parent",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_ends_the_command_with_one_line(tmp_path, capsys, fault):
    harm, said = FAULTS[fault]
    options = write(tmp_path)
    harm(tmp_path)
    cut(tmp_path, "out", options, "--scheme", "iid", "--silos", 2, ends=2)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["masks=nowhere"], "nowhere: is not there"),
        (["ignore=255"], "ignore=255 given; it goes with masks=DIR"),
        (["masks=masks", "ignore=none"], "ignore=none given; it must be a whole number"),
        (["masks=masks", "ignore=1"], "ignore 1 of "),
        (["masks=masks", "ignore=-100"], "ignore -100 does not fit uint8"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path, monkeypatch, options, said):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        find_source("images", options)(tmp_path / "in", 0)
    assert said in str(error.value)


def test_an_image_and_its_mask_are_turned_each_as_it_says(tmp_path):
    """A mask that was drawn on the upright image fits; one of the sensor's size must say so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    options = write(tmp_path, ["scan0"])
    Image.fromarray(IMAGES["scan0"]).save(tmp_path / "in" / "scan0.png", exif=exif)
    mask = tmp_path / "masks" / "scan0.png"
    with pytest.raises(InputError, match=r"scan0\.png: 5x6 pixels, its image scan0\.png has 6x5, turned as"):
        find_source("images", options)(tmp_path / "in", 0)
    Image.fromarray(MASKS["scan0"]).save(mask, exif=exif)
    both = find_source("images", options)(tmp_path / "in", 0)
    assert np.array_equal(both.y[0], np.rot90(MASKS["scan0"], -1))
    Image.fromarray(np.rot90(MASKS["scan0"], -1).copy()).save(mask)
    drawn = find_source("images", options)(tmp_path / "in", 0)
    assert np.array_equal(drawn.y, both.y)
    assert np.array_equal(drawn.x[:][0], np.rot90(IMAGES["scan0"], -1).transpose(2, 0, 1))
    assert drawn.x.shape[2:] == drawn.y.shape[1:] == (5, 6)


HALVES = np.repeat(np.array([[0, 255]], np.uint8), 6, axis=0).repeat([2, 3], axis=1)


def test_masks_of_0_and_255_are_two_classes_where_that_is_said(tmp_path, capsys):
    (masks, _), drawn = write(tmp_path), lambda _: Image.fromarray(HALVES)
    write(tmp_path, drawn=drawn)
    cut(tmp_path, "asked", [masks], "--scheme", "iid", "--silos", 2, ends=2)
    said = "masks hold only 0 and 255, which would be 256 classes; say --option values=0,255, or ignore=255"
    assert said in capsys.readouterr().err
    three = np.where(HALVES > 0, 255, np.arange(6)[:, None] // 5 * 128).astype(np.uint8)
    Image.fromarray(three).save(tmp_path / "masks/scan3.png")
    with pytest.raises(
        InputError, match=r"only 0, 128 and 255, which would be 256 classes; say .*=0,128,255"
    ):
        find_source("images", [masks])(tmp_path / "in", 0)
    assert find_source("images", [masks, "values=0,128,255"])(tmp_path / "in", 0).classes == 3
    Image.fromarray(np.where(HALVES > 0, 90, 0).astype(np.uint8)).save(tmp_path / "masks/scan3.png")
    with pytest.raises(InputError, match=r"masks/scan3\.png: masks hold only 0 and 90, .* ignore=90 if 90"):
        find_source("images", [masks, "ignore=255"])(tmp_path / "in", 0)
    Image.fromarray(HALVES).save(tmp_path / "masks/scan3.png")
    data = find_source("images", [masks, "values=0,255"])(tmp_path / "in", 0)
    assert (data.classes, np.unique(data.y).tolist()) == (2, [0, 1])
    data = find_source("images", [masks, "values=255,0"])(tmp_path / "in", 0)
    assert np.array_equal(data.y[0], HALVES == 0)
    assert data.done["notes"] == {"masks": "values=255,0: pixels of 255 are class 0, the background"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["values=0,255"], "has pixels of 1, which --option values does not name; add it"),
        (["values=0,1/1"], "each once, as 0,255, or 0,1/255 where two are one class"),
        (["values=0,1,2"], "has pixels of 255, which --option values does not name"),
        (["values=0,1,2", "ignore=255"], None),
        (["values=0,256"], "it must be numbers of pixels from 0 to 255, each once"),
        (["values=0,0"], "it must be numbers of pixels from 0 to 255, each once"),
        (["values=0,255", "ignore=255"], "ignore=255 is one of them, or of their classes"),
        (["values=5,255", "ignore=1"], "ignore=1 is one of them, or of their classes"),
    ],
)
def test_pixels_are_those_that_are_named(tmp_path, options, said):
    masks, _ = write(tmp_path)
    if said is None:
        assert find_source("images", [masks, *options])(tmp_path / "in", 0).classes == 3
        return
    with pytest.raises(InputError) as refusal:
        find_source("images", [masks, *options])(tmp_path / "in", 0)
    assert said in str(refusal.value)


def test_mixed_and_smoothed_masks_are_told_apart_from_classes(tmp_path):
    """A mask of one bit among those of 0 and 255, and edges between: what is offered has two classes."""
    names, levels = list(IMAGES)[:3], np.linspace(0, 255, 60).astype(np.uint8).reshape(6, 10)
    masks, _ = write(tmp_path, names, drawn=lambda _: Image.fromarray(HALVES))
    Image.fromarray(HALVES > 0).save(tmp_path / "masks/scan1.png")
    with pytest.raises(InputError) as refusal:
        find_source("images", [masks])(tmp_path / "in", 0)
    told = (
        "of 0 and 1 (scan1.png) and of 0 and 255 are mixed; say --option values=0,1/255, or write all alike"
    )
    assert told in str(refusal.value)
    with pytest.raises(InputError, match=r"pixels of 1 beside 255: .* mixed; say --option values=0,1/255"):
        find_source("images", [masks, "values=0,255"])(tmp_path / "in", 0)
    data = find_source("images", [masks, "values=0,1/255"])(tmp_path / "in", 0)
    assert data.classes == 2
    assert all(np.array_equal(one, HALVES > 0) for one in data.y)
    seen = look_at_masks(tmp_path / "in", tmp_path / "masks")
    assert seen.values == "0,1/255"
    Image.fromarray(levels[:, :5]).save(tmp_path / "masks/scan1.png")
    for options in ([], ["values=0,255"]):
        with pytest.raises(InputError, match=r"if edges were smoothed, threshold the masks.*point\(lambda"):
            find_source("images", [masks, *options])(tmp_path / "in", 0)
    big = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for path in ((tmp_path / part / f"{name}.png") for part in ("in", "masks") for name in names):
        Image.fromarray(big).save(path)
    with pytest.raises(InputError, match=r"256 grey levels.*threshold"):
        find_source("images", [masks])(tmp_path / "in", 0)


RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 128, 0)


def coloured(path, colours, drawn):
    indexed = Image.frombytes("P", drawn.shape[::-1], drawn.tobytes())
    indexed.putpalette([part for colour in colours for part in colour])
    indexed.save(path)


def test_a_palette_in_another_order_has_the_same_classes_and_is_told(tmp_path, capsys):
    masks, _ = write(tmp_path, names=("scan0", "scan1"))
    drawn = np.array([[0, 1, 2, 1, 0]] * 6, np.uint8)
    coloured(tmp_path / "masks/scan0.png", (RED, BLUE, GREEN), drawn)
    coloured(tmp_path / "masks/scan1.png", (BLUE, GREEN, RED), drawn)
    data = find_source("images", [masks])(tmp_path / "in", 0)
    assert [mask[0].tolist() for mask in data.y] == [[0, 1, 2, 1, 0], [1, 2, 0, 2, 1]]
    folder = cut(tmp_path, "out", [masks], "--scheme", "iid", "--silos", 2)
    said = "1 of 2 masks have another palette order than scan0.png, and are taken by their colours: 30 pixels"
    assert capsys.readouterr().err.count(said) == 1
    assert read_federation(folder).source["notes"]["masks"].startswith(said)
    run("check", folder, "--json")
    run("inspect", folder)
    assert " ".join(capsys.readouterr().out.split()).count(said) == 2
    data = find_source("images", [masks, "colours=false"])(tmp_path / "in", 0)
    assert ([mask[0].tolist() for mask in data.y], data.told) == ([[0, 1, 2, 1, 0]] * 2, {})
    coloured(tmp_path / "masks/scan1.png", (BLUE, (1, 2, 3), RED), drawn)
    with pytest.raises(
        InputError, match=r"scan1\.png: has pixels of the colour #010203, which the palette of .*scan0"
    ):
        find_source("images", [masks])(tmp_path / "in", 0)
