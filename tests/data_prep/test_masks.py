"""Images with masks: the class of every pixel, as it was drawn, and one line for what does not fit."""

import hashlib

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.drawn_masks import images_in, layout_seen, look_at_masks
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


def write(folder, names=tuple(IMAGES), part=".", drawn=Image.fromarray, ending="png"):
    """Write images and their masks; return the options that name them."""
    for kind in ("in", "masks"):
        (folder / kind / part).mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.fromarray(IMAGES[name]).save(folder / "in" / part / f"{name}.png")
        drawn(MASKS[name]).save(folder / "masks" / part / f"{name}.{ending}")
    return [f"masks={folder / 'masks'}", "ignore=255"]


def cut(folder, out, options, *more, ends=0):
    words = [word for option in options for word in ("--option", option)]
    run("partition", "images", "--data", folder / "in", "--out", folder / out, *words, *more, ends=ends)
    return folder / out


@pytest.mark.parametrize(
    ("drawn", "ending"),
    [
        (Image.fromarray, "png"),
        (palette, "png"),
        (deep, "png"),
        (Image.fromarray, "TIF"),
        (palette, "tiff"),
        (deep, "tif"),
    ],
)
def test_masks_come_back_bit_for_bit(tmp_path, capsys, drawn, ending):
    options = write(tmp_path, drawn=drawn, ending=ending)
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


def as_tiff(folder, pixels, **more):
    (folder / "masks" / "scan2.png").unlink()
    Image.fromarray(pixels).save(folder / "masks" / "scan2.tif", **more)


FAULTS = {
    "a TIFF where 0 is white": (
        lambda folder: as_tiff(folder, MASKS["scan2"], tiffinfo={262: 0}),
        "masks/scan2.tif: 0 stands for white in this TIFF mask, and class numbers would be turned",
    ),
    "a TIFF of fractions": (
        lambda folder: as_tiff(folder, MASKS["scan2"].astype(np.float32)),
        "masks/scan2.tif: has more than 8 bits a pixel; 8 bits",
    ),
    "a TIFF below 0": (
        lambda folder: as_tiff(folder, np.full((6, 5), 65535, np.uint16), tiffinfo={339: 2}),
        "masks/scan2.tif: has pixels of -1; class numbers begin at 0",
    ),
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
        "files; of SITE/images and SITE/masks name the folder above by --data and by --masks, and say --silo",
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
    mask.unlink()
    Image.fromarray(MASKS["scan0"]).save(mask.with_suffix(".tif"), exif=exif)
    drawn = find_source("images", options)(tmp_path / "in", 0)
    assert np.array_equal(drawn.y, both.y)
    assert np.array_equal(drawn.x[:][0], np.rot90(IMAGES["scan0"], -1).transpose(2, 0, 1))
    assert drawn.x.shape[2:] == drawn.y.shape[1:] == (5, 6)


HALVES = np.repeat(np.array([[0, 255]], np.uint8), 6, axis=0).repeat([2, 3], axis=1)


def test_masks_of_0_and_255_are_two_classes_where_that_is_said(tmp_path, capsys):
    (masks, _), drawn = write(tmp_path), lambda _: Image.fromarray(HALVES)
    write(tmp_path, drawn=drawn)
    cut(tmp_path, "asked", [masks], "--scheme", "iid", "--silos", 2, ends=2)
    said = "masks hold only 0 and 255, which would be 256 classes; say --values 0,255, or ignore=255"
    assert said in capsys.readouterr().err
    three = np.where(HALVES > 0, 255, np.arange(6)[:, None] // 5 * 128).astype(np.uint8)
    Image.fromarray(three).save(tmp_path / "masks/scan3.png")
    with pytest.raises(
        InputError, match=r"only 0, 128 and 255, which would be 256 classes; say --values 0,128,255"
    ):
        find_source("images", [masks])(tmp_path / "in", 0)
    assert find_source("images", [masks, "values=0,128,255"])(tmp_path / "in", 0).classes == 3
    Image.fromarray(np.where(HALVES > 0, 90, 0).astype(np.uint8)).save(tmp_path / "masks/scan3.png")
    with pytest.raises(InputError, match=r"masks/scan3\.png: masks hold only 0 and 90, .* ignore=90 if 90"):
        find_source("images", [masks, "ignore=255"])(tmp_path / "in", 0)
    Image.fromarray(HALVES).save(tmp_path / "masks/scan3.png")
    with pytest.raises(InputError, match=r"png: masks hold 0 and 255; say --values 0,255"):
        find_source("images", [masks, "values=0,1"])(tmp_path / "in", 0)
    data = find_source("images", [masks, "values=0,255"])(tmp_path / "in", 0)
    assert (data.classes, np.unique(data.y).tolist()) == (2, [0, 1])
    data = find_source("images", [masks, "values=255,0"])(tmp_path / "in", 0)
    assert np.array_equal(data.y[0], HALVES == 0)
    assert data.done["notes"] == {"masks": "values=255,0: pixels of 255 are class 0, the background"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["values=0,255"], "has pixels of 1, which --values does not name; add it"),
        (["values=0,1/1"], "each once, as 0,255, or 0,1/255 where two are one class"),
        (["values=0,1,2"], "has pixels of 255, which --values does not name"),
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
    told = "of 0 and 1 (scan1.png) and of 0 and 255 are mixed; say --values 0,1/255, or write all alike"
    assert told in str(refusal.value)
    with pytest.raises(InputError, match=r"pixels of 1 beside 255: .* mixed; say --values 0,1/255"):
        find_source("images", [masks, "values=0,255"])(tmp_path / "in", 0)
    with pytest.raises(InputError, match=r"pixels of 255 beside 1: .* mixed; say --values 0,1/255"):
        find_source("images", [masks, "values=0,1"])(tmp_path / "in", 0)
    data = find_source("images", [masks, "values=0,1/255"])(tmp_path / "in", 0)
    assert data.classes == 2
    assert all(np.array_equal(one, HALVES > 0) for one in data.y)
    seen = look_at_masks(tmp_path / "in", tmp_path / "masks")
    assert seen.values == "0,1/255"
    for mask in (tmp_path / "masks").glob("*.png"):
        Image.fromarray(HALVES > 0).save(mask)
    with pytest.raises(InputError, match=r"png: masks hold 0 and 1; say --values 0,1$"):
        find_source("images", [masks, "values=0,255"])(tmp_path / "in", 0)
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


LAYOUTS = {  # where an image and its mask lie; what is named, by --data and by --masks, and what else
    "of each site": ("{site}/img/{name}.png", "{site}/seg/{name}.png", "", "", True),
    "other names": ("{site}/scans/{name}.png", "{site}/Masks/{name}_seg.png", "", "", True),
    "beside": ("{site}/{name}.png", "{site}/{name}_mask.png", "", "", True),
    "in a folder below": ("{site}/{name}.png", "{site}/masks/{name}.png", "", "", True),
    "in one folder": ("{name}.png", "{name}-label.tif", "", "", False),
    "in two": ("images/{name}.png", "masks/{name}_mask.png", "images", "masks", False),
    "in two, of any name": ("images/{name}.png", "lesions/{name}.png", "images", "lesions", False),
    "of each site, of any name": ("{site}/mri/{name}.png", "{site}/drawn/{name}.png", "", "", True),
    "in two, of sites, of any name": ("mri/{site}/{name}.png", "roi/{site}/{name}.png", "mri", "roi", True),
    "in a folder below, of any name": ("{site}/{name}.png", "{site}/roi/{name}.png", "", "", True),
    "in two, of sites": ("images/{site}/{name}.png", "gt/{site}/{name}.png", "images", "gt", True),
}


def laid_out(folder, layout):
    """Write images and masks; return the words of a partition."""
    of_image, of_mask, images, masks, by_silo = LAYOUTS[layout]
    for number, name in enumerate(IMAGES):
        of = {"site": "ab"[number % 2], "name": name}
        for form, pixels in ((of_image, IMAGES), (of_mask, MASKS)):
            path = folder / form.format(**of)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[name]).save(path)
    given = ["--data", folder / images, "--masks", folder / masks]
    return [*given, *(["--silo", "parent", "--scheme", "natural"] if by_silo else ["--scheme", "iid"])]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks_are_found_by_the_names_of_files_and_folders(tmp_path, layout, capsys):
    words, silos = laid_out(tmp_path / "all", layout), [] if LAYOUTS[layout][-1] else ["--silos", 2]
    run("partition", "images", *words, *silos, "--ignore", 255, "--out", tmp_path / "out")
    spec, found = read_federation(tmp_path / "out"), {}
    for entry in spec.silos:
        train = open_shard(tmp_path / "out", entry, spec)["train"]
        found |= {x.tobytes(): y for x, y in zip(train.x, train.y, strict=True)}
    assert len(found) == 12
    for name, pixels in IMAGES.items():
        assert np.array_equal(found[np.ascontiguousarray(pixels.transpose(2, 0, 1)).tobytes()], MASKS[name])
    assert [entry.name for entry in spec.silos] == (
        ["a", "b"] if LAYOUTS[layout][-1] else ["silo 0", "silo 1"]
    )
    if (depth := LAYOUTS[layout][0].count("/")) == 0 or layout.startswith("in a folder below"):
        return
    capsys.readouterr()  # without --masks they would be images of a class
    by_silo = ["--silo", "parent"] * (depth > 1)
    run("partition", "images", "--data", tmp_path / "all", *by_silo, "--scheme", "iid", "--out", "x", ends=2)
    error = capsys.readouterr().err
    assert "looks like the mask of an image by name or pixels, as 12 of 24 files do; say --data" in error
    assert f"--masks {words[3]}" in error


def test_masks_that_are_lacking_or_two_beside_an_image_are_named(tmp_path, capsys):
    words = [*laid_out(tmp_path / "all", "in one folder"), "--silos", 2, "--out", tmp_path / "out"]
    mask, second = tmp_path / "all/scan3-label.tif", tmp_path / "all/scan3_mask.png"
    palette(MASKS["scan3"]).save(second)
    run("partition", "images", *words, ends=2)
    assert "scan3_mask.png: scan3-label.tif is a mask of scan3.png, too; an image" in capsys.readouterr().err
    mask.unlink()
    second.unlink()
    run("partition", "images", *words, ends=2)
    assert "scan3.png: has no mask; put scan3_mask.png or .tif into" in capsys.readouterr().err
    for path in mask.parent.glob("*-label*"):
        path.unlink()
    run("partition", "images", *words, ends=2)
    assert "all: has no masks by their names; a mask of X.png is X_mask.png" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "colour"),
    [
        (("with_mask/1", "no_mask/1", "with_mask/2", "no_mask/2"), False),
        (("mask/1", "bare/1", "mask/2", "bare/2"), True),  # masks have one number a pixel
        (("label/1", "label/2", "other/3", "other/4"), False),
        (("a/1_mask", "a/2_mask", "b/3", "b/4"), False),
        (("zero/1", "one/1", "zero/2", "one/2"), False),  # both have few levels, as digits in black and white
        (("cat/1", "dog/1", "cat/2", "dog/2"), False),
        (("cat/1", "plan/2", "cat/3", "plan/4"), False),  # of other names
    ],
)
def test_classes_that_are_called_as_masks_are_classes(tmp_path, names, colour):
    noise = np.random.default_rng(0)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pixels = IMAGES["scan1"] if colour else MASKS["scan1"]
        pixels = noise.integers(0, 256, (9, 9), np.uint8) if name.startswith(("cat", "dog")) else pixels
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    assert layout_seen(tmp_path) is None
    assert len(images_in(tmp_path)) == 4
