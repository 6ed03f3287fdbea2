"""TIFF, images of 16 bits, and silos by folders."""

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError
from mpifl.data.shards import open_shard, read_federation

Image = pytest.importorskip("PIL.Image")
DRAW = np.random.default_rng(0)
DEEP = [DRAW.integers(0, 1 << 16, (6, 5), np.uint16) for _ in range(8)]
COLOURS = [DRAW.integers(0, 256, (6, 5, 3), np.uint8) for _ in range(8)]


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def write(folder, images, ending="tif", **how):
    """Write images by turns into two class folders; return them in the order in which they are read."""
    for at, pixels in enumerate(images):
        path = folder / "ab"[at % 2] / f"{at:03}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, **how)
    return np.stack([*images[::2], *images[1::2]])


def read(folder, *options):
    return find_source("images", options)(folder, 0)


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_deflate", "packbits"])
def test_tiff_is_read_bit_for_bit(tmp_path, compression):
    wanted = write(tmp_path, COLOURS, compression=compression)
    data = read(tmp_path)
    assert (data.x.dtype, data.scale) == (np.uint8, 1 / 255)
    assert np.array_equal(data.x[:], wanted.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("ending", ["tif", "png"])
def test_16_bits_keep_their_numbers(tmp_path, ending):
    wanted = write(tmp_path, DEEP, ending)
    data = read(tmp_path)
    assert (data.x.dtype, data.x.shape, data.scale) == (np.int32, (8, 1, 6, 5), 1 / 65535)
    assert np.array_equal(data.x[:][:, 0], wanted)
    assert read(tmp_path, "scale=1/4095").scale == 1 / 4095


def signed(path, pixels):
    """Write a TIFF file of signed numbers of 16 bits, by hand: Pillow writes none."""
    height, width = pixels.shape
    tags = [(256, 3, width), (257, 3, height), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, 8)]
    tags += [(277, 3, 1), (278, 3, height), (279, 4, pixels.nbytes), (339, 3, 2)]
    body = pixels.astype("<i2").tobytes()
    start = (8 + len(body)).to_bytes(4, "little")
    entries = b"".join(
        tag.to_bytes(2, "little") + kind.to_bytes(2, "little") + b"\1\0\0\0" + value.to_bytes(4, "little")
        for tag, kind, value in tags
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"II*\0" + start + body + len(tags).to_bytes(2, "little") + entries + bytes(4))


def test_signed_16_bits_keep_their_numbers(tmp_path):
    pixels = DEEP[0].view(np.int16)
    signed(tmp_path / "a" / "x.tif", pixels)
    data = read(tmp_path)
    assert (data.x.dtype, data.scale) == (np.int16, 1 / 32767)
    assert np.array_equal(data.x[:][0, 0], pixels)


def test_0_is_black_also_where_the_file_says_that_it_is_white(tmp_path):
    for depth, images in (("8", [one.astype(np.uint8) for one in DEEP]), ("16", DEEP)):
        wanted = write(tmp_path / depth, images)
        for path in (tmp_path / depth).rglob("*.tif"):
            content = bytearray(path.read_bytes())
            at = content.find(b"\x06\x01\x03\x00\x01\x00\x00\x00\x01")  # photometric: black is 0
            content[at + 8] = 0
            path.write_bytes(content)
        found = read(tmp_path / depth).x[:][:, 0]
        assert np.array_equal(found, np.iinfo(images[0].dtype).max - wanted.astype(int))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    "images", [COLOURS, DEEP, [one.astype(np.uint8) for one in DEEP]], ids=["colours", "16 bits", "grey"]
)
def test_tiff_is_turned_once(tmp_path, orientation, images):
    write(tmp_path / "png", images[:1], "png")
    upright = read(tmp_path / "png").x[:]
    write(tmp_path / "tif", images[:1], tiffinfo={274: orientation})
    turned = read(tmp_path / "tif")
    ways = {
        1: lambda x: x,
        2: lambda x: x[..., ::-1],
        3: lambda x: x[..., ::-1, ::-1],
        4: lambda x: x[..., ::-1, :],
        5: lambda x: x.swapaxes(2, 3),
        6: lambda x: x[..., ::-1, :].swapaxes(2, 3),
        7: lambda x: x[..., ::-1, ::-1].swapaxes(2, 3),
        8: lambda x: x[..., ::-1].swapaxes(2, 3),
    }
    wanted = ways[orientation](upright)
    assert turned.x.shape == wanted.shape
    assert np.array_equal(turned.x[:], wanted)


def test_16_bits_are_resized_as_numbers(tmp_path):
    write(tmp_path, [np.full((6, 5), 1000 * at, np.uint16) for at in range(4)])
    data = read(tmp_path, "size=3x9")
    assert data.x.shape == (4, 1, 9, 3)
    assert [np.unique(one).tolist() for one in data.x[:]] == [[0], [2000], [1000], [3000]]


def pages(folder):
    several = [Image.fromarray(one) for one in COLOURS[:3]]
    several[0].save(folder / "a" / "x.tif", save_all=True, append_images=several[1:])


FAULTS = {
    "several pages": (pages, "x.tif: has 3 pages; store each as a file, or all as arrays"),
    "no TIFF": (lambda folder: (folder / "a" / "x.tif").write_text("x"), "x.tif: is not a PNG, JPEG or TIFF"),
    "another depth": (
        lambda folder: Image.fromarray(DEEP[0]).save(folder / "a" / "x.tif"),
        "x.tif: pixels are uint16, 000.tif has uint8; make them alike: 8 bits times 257 are 16",
    ),
    "32 bits": (
        lambda folder: Image.fromarray(DEEP[0].astype(np.int32)).save(folder / "a" / "x.tif"),
        "x.tif: has more than 8 bits a pixel",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_tiff_is_named(tmp_path, fault):
    harm, said = FAULTS[fault]
    write(tmp_path, COLOURS[:4])
    harm(tmp_path)
    with pytest.raises(InputError) as error:
        read(tmp_path)
    assert said in str(error.value)


def hospitals(folder):
    """Write images of two hospitals, of which one lacks a class; return them by hospital."""
    for name, classes in (("south", "ab"), ("north", "b")):
        for number, label in enumerate(classes):
            (folder / name / label).mkdir(parents=True)
            for at in range(2):
                Image.fromarray(COLOURS[2 * number + at]).save(folder / name / label / f"{at}.png")


def test_the_folder_above_the_classes_names_the_silo(tmp_path):
    hospitals(tmp_path / "in")
    words = ["partition", "images", "--data", tmp_path / "in", "--scheme", "natural"]
    words += ["--option", "silo=parent"]
    assert run(*words, "--out", tmp_path / "out") == 0
    assert run(*words, "--out", tmp_path / "again") == 0
    spec, again = (read_federation(tmp_path / name) for name in ("out", "again"))
    assert [(entry.name, entry.labels) for entry in spec.silos] == [("north", [0, 2]), ("south", [2, 2])]
    assert spec.class_names == ["a", "b"]
    assert [one.sha256 for one in spec.silos] == [one.sha256 for one in again.silos]
    train = open_shard(tmp_path / "out", spec.silos[1], spec)["train"]
    assert np.array_equal(train.x, np.stack(COLOURS[:4]).transpose(0, 3, 1, 2))


def test_masks_have_silos_of_the_same_names(tmp_path):
    for kind in ("in", "masks"):
        for name in ("south", "north"):
            (tmp_path / kind / name).mkdir(parents=True)
            for at in range(2):
                pixels = COLOURS[at] if kind == "in" else COLOURS[at][..., 0] % 3
                Image.fromarray(pixels).save(tmp_path / kind / name / f"{at}.png")
    options = ["silo=parent", f"masks={tmp_path / 'masks'}"]
    data = read(tmp_path / "in", *options)
    assert (data.silo.tolist(), data.silo_names) == ([0, 0, 1, 1], {0: "north", 1: "south"})
    assert np.array_equal(data.y[2:], np.stack(COLOURS[:2])[..., 0] % 3)
    (tmp_path / "masks" / "west").mkdir()
    with pytest.raises(InputError, match="west: masks of a silo that "):
        read(tmp_path / "in", *options)


def test_what_is_no_folder_of_silos_is_named(tmp_path):
    hospitals(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"notes\.txt: silo=parent takes a folder for each silo there"):
        read(tmp_path, "silo=parent")
    with pytest.raises(InputError, match="silo=ward given; images know silo=parent"):
        read(tmp_path, "silo=ward")
