"""Folders of images: decoded as they are, when they are asked for, and one line for what is no image."""

import os
import struct
import sys
import zlib

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.pictures import form_of
from data_prep.sources.reading import digest_of
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation

Image = pytest.importorskip("PIL.Image")


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def drawn(height=6, width=5, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def write(folder, counts, **shape):
    """Write PNG images, and return them by their class and name."""
    images = {}
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for at in range(count):
            pixels = drawn(seed=100 * number + at, **shape)
            Image.fromarray(pixels).save(folder / name / f"{at:03}.png")
            images[name, at] = pixels
    return images


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_back_bit_for_bit(tmp_path, channels):
    images = write(tmp_path / "in", {"dog": 4, "cat": 7}, channels=channels)
    (tmp_path / "in" / ".hidden").mkdir()
    (tmp_path / "in" / "cat" / ".DS_Store").write_text("")
    dataset = find_source("images")(tmp_path / "in", 0)
    assert (dataset.class_names, dataset.y.tolist()) == (("cat", "dog"), [0] * 7 + [1] * 4)
    assert (dataset.x.shape, dataset.x.dtype, dataset.scale) == ((11, channels, 6, 5), np.uint8, 1 / 255)
    ordered = [images["cat", at] for at in range(7)] + [images["dog", at] for at in range(4)]
    expected = np.stack(ordered).reshape(11, 6, 5, channels).transpose(0, 3, 1, 2)
    assert np.array_equal(dataset.x[:], expected)
    at = np.array([10, 0, 3, 3])
    assert np.array_equal(dataset.x[at], expected[at])
    assert np.array_equal(dataset.x[2:9:3], expected[2:9:3])


def test_a_train_and_a_test_folder_make_the_servers_test_set(tmp_path):
    write(tmp_path / "in" / "train", {"a": 3, "b": 2})
    images = write(tmp_path / "in" / "test", {"a": 1, "b": 2})
    assert (
        command(
            "partition",
            "images",
            "--data",
            tmp_path / "in",
            "--out",
            tmp_path / "out",
            "--scheme",
            "iid",
            "--silos",
            "2",
        )
        == 0
    )
    spec = read_federation(tmp_path / "out")
    test = open_shard(tmp_path / "out", spec.test, spec)["test"]
    assert test.y.tolist() == [0, 1, 1]
    assert np.array_equal(test.x[2], images["b", 1].transpose(2, 0, 1))
    assert sum(entry.examples["train"] for entry in spec.silos) == 5


def test_images_are_decoded_when_they_are_asked_for(tmp_path, monkeypatch):
    write(tmp_path / "in", {"a": 5, "b": 5})
    dataset, seen = find_source("images")(tmp_path / "in", 0), []
    decode = dataset.x._decode
    monkeypatch.setattr(dataset.x, "_decode", lambda path: seen.append(path.name) or decode(path))
    dataset.x[np.array([1, 8])]
    assert seen == ["001.png", "003.png"]


def test_size_and_grey_bring_all_to_one_shape(tmp_path):
    for name, shape in (("a", {"height": 8, "width": 4}), ("b", {"height": 3, "width": 9, "channels": 1})):
        write(tmp_path / "in", {name: 2}, **shape)
    dataset = find_source("images", ["size=10x7"])(tmp_path / "in", 0)
    assert dataset.x[:].shape == dataset.x.shape == (4, 3, 7, 10)
    grey = find_source("images", ["size=10x7", "grey=yes"])(tmp_path / "in", 0)
    assert grey.x[:].shape == (4, 1, 7, 10)
    weights = np.array([0.299, 0.587, 0.114])[:, None, None]
    assert np.abs((dataset.x[:] * weights).sum(axis=1) - grey.x[:, ...][:, 0]).max() <= 2


def test_colour_in_some_images_is_told_since_it_gives_all_three_channels(tmp_path):
    for name, channels in (("a", 1), ("b", 3)):
        write(tmp_path / "in", {name: 2}, channels=channels)
    dataset = find_source("images")(tmp_path / "in", 0)
    told = "2 of 4 images are in colour, b/000.png the first, so all have 3 channels; --grey makes all grey"
    assert (dataset.x.shape[1], dataset.done["notes"]["colours"]) == (3, told)
    for folder, words in ((tmp_path / "in", ["grey=true"]), (tmp_path / "one", [])):
        if words == []:
            write(folder, {"a": 2, "b": 2}, channels=3)
        assert find_source("images", words)(folder, 0).done is None


def test_jpegs_are_read(tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    smooth = np.broadcast_to(np.linspace(0, 255, 16).astype(np.uint8)[:, None, None], (16, 16, 3))
    Image.fromarray(np.ascontiguousarray(smooth)).save(
        tmp_path / "in" / "a" / "x.JPG", format="JPEG", quality=95
    )
    dataset = find_source("images")(tmp_path / "in", 0)
    assert np.abs(dataset.x[:][0].transpose(1, 2, 0).astype(int) - smooth).max() < 12


def test_the_digest_changes_with_a_name_and_a_pixel(tmp_path):
    write(tmp_path / "in", {"a": 2, "b": 2})
    digests = [find_source("images")(tmp_path / "in", 0).files]
    (tmp_path / "in" / "a" / "000.png").rename(tmp_path / "in" / "a" / "zzz.png")
    digests.append(find_source("images")(tmp_path / "in", 0).files)
    Image.fromarray(drawn(seed=99)).save(tmp_path / "in" / "b" / "001.png")
    digests.append(find_source("images")(tmp_path / "in", 0).files)
    assert len({str(digest) for digest in digests}) == 3


def deep(path):
    Image.fromarray(np.zeros((6, 5), np.uint16)).save(path)


FAULTS = {
    "empty class": (lambda folder: (folder / "empty").mkdir(), [], "empty: an empty class"),
    "a text file": (
        lambda folder: (folder / "a" / "notes.txt").write_text("x"),
        [],
        "notes.txt: is not an image",
    ),
    "a folder in a class": (
        lambda folder: (folder / "a" / "more.png").mkdir(),
        [],
        "more.png: is not an image",
    ),
    "no PNG in a .png": (
        lambda folder: (folder / "a" / "x.png").write_text("<html>"),
        [],
        "x.png: is not a PNG, JPEG or TIFF",
    ),
    "another format": (
        lambda folder: Image.fromarray(drawn()).save(folder / "a" / "x.png", format="GIF"),
        [],
        "x.png: is not a PNG, JPEG or TIFF",
    ),
    "another size": (
        lambda folder: Image.fromarray(drawn(9, 9)).save(folder / "b" / "x.png"),
        [],
        "x.png: 9x9 pixels, 000.png has 5x6; add --size WIDTHxHEIGHT",
    ),
    "16 bits": (
        lambda folder: deep(folder / "a" / "x.png"),
        [],
        "x.png: pixels are uint16, 000.png has uint8",
    ),
    "size of one number": (lambda folder: None, ["size=32"], "size=32 given; it must be WIDTHxHEIGHT"),
    "size of 0": (lambda folder: None, ["size=0x9"], "size=0x9 given"),
    "grey of what": (lambda folder: None, ["grey=maybe"], "grey=maybe given; it must be true or false"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_folder_is_named(tmp_path, fault):
    harm, options, said = FAULTS[fault]
    write(tmp_path / "in", {"a": 2, "b": 2})
    harm(tmp_path / "in")
    with pytest.raises(InputError, match=r".") as error:
        find_source("images", options)(tmp_path / "in", 0)
    assert said in str(error.value)


def test_a_class_of_the_test_folder_that_train_lacks_is_unknown(tmp_path):
    write(tmp_path / "in" / "train", {"a": 1})
    write(tmp_path / "in" / "test", {"a": 1, "z": 1})
    with pytest.raises(InputError, match="z: a class that train lacks; there are a"):
        find_source("images")(tmp_path / "in", 0)


def test_a_folder_without_classes_is_named(tmp_path):
    with pytest.raises(InputError, match="has no folders in it"):
        find_source("images")(tmp_path, 0)
    with pytest.raises(InputError, match="nowhere: is not there"):
        find_source("images")(tmp_path / "nowhere", 0)


def test_an_image_that_is_cut_short_ends_the_command_with_one_line(tmp_path, capsys):
    write(tmp_path / "in", {"a": 3, "b": 3}, height=60, width=60)
    path = tmp_path / "in" / "b" / "001.png"
    path.write_bytes(path.read_bytes()[:-3000])
    assert (
        command(
            "partition",
            "images",
            "--data",
            tmp_path / "in",
            "--out",
            tmp_path / "out",
            "--scheme",
            "iid",
            "--silos",
            "2",
        )
        == 2
    )
    err = capsys.readouterr().err
    assert f"{path}: the image is damaged or cut short" in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"needs Pillow; pip install 'mpifl\[images\]'"):
        find_source("images")(tmp_path, 0)


def test_colours_of_16_bits_are_refused(tmp_path):
    rows = b"".join(b"\0" + bytes(12) for _ in range(2))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows))]
    chunks = [struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts]
    (tmp_path / "deep.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    with pytest.raises(InputError, match=r"deep\.png: has more than 8 bits a pixel"):
        form_of(tmp_path / "deep.png")


def test_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / os.fsdecode(b"cat\xff")
    path.write_bytes(b"x")
    with pytest.raises(InputError, match=r"cat.*: the name is not UTF-8; rename it"):
        digest_of(tmp_path, [path])


def tagged(orientation):
    """Return EXIF data that say how an image is stored."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def upright(pixels, orientation):
    """Bring pixels [height, width, ...] upright: TIFF 6.0, p. 36, says where row 0 and column 0 are seen."""
    rows, columns = pixels[::-1], pixels[:, ::-1]
    return {
        1: pixels,
        2: columns,
        3: pixels[::-1, ::-1],
        4: rows,
        5: pixels.swapaxes(0, 1),
        6: rows.swapaxes(0, 1),
        7: pixels[::-1, ::-1].swapaxes(0, 1),
        8: columns.swapaxes(0, 1),
    }[orientation]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_as_its_exif_data_say(tmp_path, orientation):
    folder, pixels = tmp_path / "in" / "a", drawn()
    folder.mkdir(parents=True)
    Image.fromarray(pixels).save(folder / "0.png", exif=tagged(orientation))
    (data,) = (find_source("images")(tmp_path / "in", 0),)
    expected = upright(pixels, orientation).transpose(2, 0, 1)
    assert data.x.shape == (1, *expected.shape)
    assert np.array_equal(data.x[:][0], expected)


def test_a_jpeg_and_one_that_is_resized_are_turned(tmp_path):
    (folder := tmp_path / "in" / "a").mkdir(parents=True)
    smooth = np.broadcast_to(np.linspace(0, 255, 16).astype(np.uint8)[:, None, None], (16, 8, 3)).copy()
    Image.fromarray(smooth).save(folder / "0.jpg", exif=tagged(8), quality=95)
    data = find_source("images")(tmp_path / "in", 0)
    assert data.x.shape == (1, 3, 8, 16)
    assert np.abs(data.x[:][0].transpose(1, 2, 0).astype(int) - upright(smooth, 8)).max() < 12
    small = find_source("images", ["size=8x4"])(tmp_path / "in", 0).x[:][0]
    assert (np.diff(small.mean(axis=(0, 1))) > 0).all()  # it grows from left to right as it is seen


XMP = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>'


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("kind", ["exif", "xmp"])
def test_a_png_is_turned_wherever_it_says_so(tmp_path, kind, behind):
    """Some programs write what an image is behind its pixels."""
    (folder := tmp_path / "in" / "a").mkdir(parents=True)
    pixels = drawn()
    Image.fromarray(pixels).save(folder / "0.png")
    content = (folder / "0.png").read_bytes()
    said = {
        "exif": chunk(b"eXIf", tagged(6).tobytes().removeprefix(b"Exif\0\0")),
        "xmp": chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP.encode()),
    }[kind]
    at = content.index(b"IEND" if behind else b"IDAT") - 4
    (folder / "0.png").write_bytes(content[:at] + said + content[at:])
    assert np.array_equal(
        find_source("images")(tmp_path / "in", 0).x[:][0], upright(pixels, 6).transpose(2, 0, 1)
    )


def test_pixels_are_read_for_their_shape_only_where_more_is_said_behind(tmp_path, monkeypatch):
    write(tmp_path / "in", {"a": 2})
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", lambda _: pytest.fail("pixels are read"))
    assert find_source("images")(tmp_path / "in", 0).x.shape == (2, 3, 6, 5)


@pytest.mark.parametrize(
    ("orientation", "said"),
    [(9, "0.png: EXIF orientation 9, there are 1 to 8"), (0, "")],
)
def test_an_orientation_that_is_none_is_refused(tmp_path, orientation, said):
    (folder := tmp_path / "in" / "a").mkdir(parents=True)
    Image.fromarray(drawn()).save(folder / "0.png", exif=tagged(orientation))
    if not said:  # of cameras that do not know
        assert find_source("images")(tmp_path / "in", 0).x.shape == (1, 3, 6, 5)
        return
    with pytest.raises(InputError, match=said):
        find_source("images")(tmp_path / "in", 0)


def test_damaged_exif_data_are_refused(tmp_path):
    (folder := tmp_path / "in" / "a").mkdir(parents=True)
    Image.fromarray(drawn()).save(folder / "0.png", exif=b"MM\0*\0\0\0")
    with pytest.raises(InputError, match=r"0\.png: its EXIF data are damaged, or it is cut short"):
        find_source("images")(tmp_path / "in", 0)


CLEAR, INK = 0, 255
DRAWN = np.array([[CLEAR, INK, 128, CLEAR]] * 3, np.uint8)


def transparent(kind):
    """Return black ink on nothing, in a mode; half transparent in the third column but for palettes."""
    black, rgba = np.zeros_like(DRAWN), np.zeros((*DRAWN.shape, 4), np.uint8)
    if kind == "RGBA":
        rgba[..., 3] = DRAWN
        return Image.fromarray(rgba)
    if kind == "LA":
        return Image.merge("LA", (Image.fromarray(black), Image.fromarray(DRAWN)))
    indexed = Image.fromarray((DRAWN != CLEAR).astype(np.uint8)).convert("P")
    indexed.putpalette([7, 8, 9, 0, 0, 0])
    return indexed


@pytest.mark.parametrize("kind", ["RGBA", "LA", "P"])
@pytest.mark.parametrize(("ground", "under"), [("white", 255), ("black", 0), ("#808080", 128)])
def test_what_is_transparent_lies_on_a_ground(tmp_path, capsys, kind, ground, under):
    for name in "ab":
        (tmp_path / "in" / name).mkdir(parents=True)
        for at in range(2):
            more = {"transparency": 0} if kind == "P" else {}
            transparent(kind).save(tmp_path / "in" / name / f"{at}.png", **more)
    words = ["partition", "images", "--data", tmp_path / "in", "--out", tmp_path / "o", "--scheme", "iid"]
    words += ["--silos", 2, *(["--option", f"ground={ground}"] if ground != "white" else [])]
    with pytest.raises(SystemExit, match="0"):
        main([str(word) for word in words])
    told = f"4 images may be transparent, and lie on {ground}; --option ground=COLOUR takes another"
    assert told in capsys.readouterr().err
    x = find_source("images", [f"ground={ground}"])(tmp_path / "in", 0).x[:][0, 0]
    assert x[0].tolist() == [under, 0, 0 if kind == "P" else round(under * 127 / 255), under]


def test_a_ground_that_is_no_colour_is_refused(tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"ground=pink given; it must be white, black or a colour as #ffffff"
    ):
        find_source("images", ["ground=pink"])(tmp_path / "in", 0)


BESIDE = {
    "an image beside classes": ({"a": 2, "b": 2}, "c.png", "c.png: lies beside a, b, and would not be read"),
    "an image beside those of train": ({"train/a": 2, "test/a": 2}, "train/c.JPG", "c.JPG: lies beside a,"),
    "a third split": (
        {"train/a": 2, "test/a": 2, "val/a": 2},
        None,
        "val: lies beside train, test, and would",
    ),
    "an image beside splits": ({"train/a": 2, "test/a": 2}, "c.tif", "c.tif: lies beside train, test, and"),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_an_image_that_no_class_has_is_not_left_out_without_a_word(tmp_path, beside):
    counts, path, said = BESIDE[beside]
    write(tmp_path / "in", counts)
    (tmp_path / "in" / "readme.txt").write_text("")
    if path:
        find_source("images")(tmp_path / "in", 0)
        Image.fromarray(drawn()).save(tmp_path / "in" / path)
    with pytest.raises(InputError) as error:
        find_source("images")(tmp_path / "in", 0)
    assert said in str(error.value)
    assert "put it into one of them, or move it elsewhere" in str(error.value)
