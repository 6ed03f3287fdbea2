"""Links where output goes: what they lead to is never written."""

import os
import struct
from pathlib import Path

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.fetching import fetch_files
from data_prep.sources.known import Remote
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.common.files import write_atomic


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.fixture
def kept(tmp_path):
    """Return a file that must stay as it is."""
    (tmp_path / "kept").write_text("kept")
    yield tmp_path / "kept"
    assert (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "nothing").exists()


def linked(path, target):
    path.symlink_to(target)
    return path


def cut(folder, *more):
    np.savez(folder / "in.npz", x=np.zeros((8, 2)), y=np.arange(8) % 2)
    words = ("partition", "npz", "--data", folder / "in.npz", "--scheme", "iid", "--silos", 2, *more)
    return command(*words)


def test_a_link_where_a_page_or_statistics_go_is_replaced(tmp_path, kept):
    assert cut(tmp_path, "--out", tmp_path / "f") == 0
    assert command("inspect", tmp_path / "f", "--page", linked(tmp_path / "p.html", kept)) == 0
    assert not (tmp_path / "p.html").is_symlink()
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    (tmp_path / "t.toml").write_text('label = "y"\n[features]\nx = "numeric"\n')
    words = ("statistics", "csv", "--data", tmp_path / "t.csv", "--out")
    assert command(*words, linked(tmp_path / "s.json", kept)) == 0
    assert not (tmp_path / "s.json").is_symlink()


def test_a_link_where_a_file_is_written_aside_is_not_followed(tmp_path, kept):
    linked(tmp_path / f".a.{os.getpid()}.partial", kept)
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


@pytest.mark.parametrize("target", ["kept", "nothing"])
def test_a_link_where_a_spec_goes_is_refused(tmp_path, kept, target, capsys):
    linked(tmp_path / "agreed.json", tmp_path / target)
    assert command("spec", tmp_path / "agreed.json", "--shape", "2", "--classes", 2) == 2
    assert "agreed.json: is there already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["silo_0000.h5", "silo_0000.json"])
def test_a_link_to_nothing_where_a_sites_files_go_is_refused(tmp_path, kept, name, capsys):
    assert cut(tmp_path, "--out", tmp_path / "f") == 0
    (tmp_path / "site").mkdir()
    linked(tmp_path / "site" / name, tmp_path / "nothing")
    words = ("import", "npz", "--data", tmp_path / "in.npz", "--spec", tmp_path / "f", "--silo", 0)
    assert command(*words, "--out", tmp_path / "site") == 2
    assert f"--silo 0: is taken, by {tmp_path / 'site' / name}" in capsys.readouterr().err


def test_a_link_to_nothing_where_a_federation_goes_is_refused(tmp_path, kept, capsys):
    assert cut(tmp_path, "--out", linked(tmp_path / "f", tmp_path / "nothing")) == 2
    assert "--out: " in capsys.readouterr().err


@pytest.mark.parametrize("link", [".f.resume", ".f.resume/resume.jsonl"])
def test_a_link_where_an_interrupted_partition_is_kept_is_refused(tmp_path, kept, link, capsys):
    (tmp_path / "other").mkdir()
    if "/" in link:
        (tmp_path / ".f.resume").mkdir()
    linked(tmp_path / link, kept if "/" in link else tmp_path / "other")
    assert cut(tmp_path, "--out", tmp_path / "f", "--resume") == 2
    assert ".f.resume" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    assert not list((tmp_path / "other").iterdir())


def test_a_link_where_a_download_goes_is_not_followed(tmp_path, kept):
    (tmp_path / "from").write_bytes(b"content")
    remote = Remote((tmp_path / "from").as_uri(), 7, "sha256:" + "0" * 64)
    (tmp_path / "in").mkdir()
    linked(tmp_path / "in" / ".from.part", kept)
    with pytest.raises(InputError, match="--fetch: "):
        fetch_files([remote], tmp_path / "in")


def test_a_damaged_record_of_an_interrupted_partition_is_named(tmp_path, capsys):
    (tmp_path / ".f.resume").mkdir()
    for content in ("{]\n", "[" * 100_000 + "\n", "\xff\n", "3\n"):
        (tmp_path / ".f.resume" / "resume.jsonl").write_bytes(content.encode("latin1"))
        assert cut(tmp_path, "--out", tmp_path / "f", "--resume") == 2
        err = capsys.readouterr().err
        assert "resume.jsonl: line 1 is damaged; remove" in err
        assert err.count("\n") == 1


def interrupted(folder, monkeypatch):
    """Leave a partition half-done, with its files laid out."""

    def worn_out(*_):
        raise OSError(5, "worn out")

    with monkeypatch.context() as patch:
        patch.setattr("data_prep.write.making._fill", worn_out)
        assert cut(folder, "--out", folder / "f", "--resume") == 2
    return folder / ".f.resume"


def test_a_link_where_rows_go_is_not_followed(tmp_path, monkeypatch, capsys):
    raw = interrupted(tmp_path, monkeypatch) / "silo_0000.h5.raw"
    others = tmp_path / "others.h5"
    raw.rename(others)
    raw.symlink_to(others)
    before = others.read_bytes()
    assert cut(tmp_path, "--out", tmp_path / "f", "--resume") == 2
    assert "--out: " in capsys.readouterr().err
    assert others.read_bytes() == before


@pytest.mark.parametrize("name", ["silo_0000.h5.raw", "silo_0001.h5.part"])
def test_a_link_that_waits_for_a_shard_is_replaced(tmp_path, kept, name):
    (tmp_path / ".f.resume").mkdir()
    linked(tmp_path / ".f.resume" / name, kept)
    assert cut(tmp_path, "--out", tmp_path / "f", "--resume", "--compression", "gzip") == 0
    assert command("check", tmp_path / "f") == 0


def test_a_kept_folder_that_others_can_write_to_is_refused(tmp_path, monkeypatch, capsys):
    folder = interrupted(tmp_path, monkeypatch)
    folder.chmod(0o777)
    assert cut(tmp_path, "--out", tmp_path / "f", "--resume") == 2
    assert ".f.resume can be written by others; remove it" in capsys.readouterr().err
    folder.chmod(0o755)
    assert cut(tmp_path, "--out", tmp_path / "f", "--resume") == 0


def test_a_kept_folder_of_another_user_is_refused(tmp_path, monkeypatch, capsys):
    if os.geteuid():
        pytest.skip("only root gives folders away")
    folder = interrupted(tmp_path, monkeypatch)
    os.chown(folder, 4321, -1)
    assert cut(tmp_path, "--out", tmp_path / "f", "--resume") == 2
    assert ".f.resume belongs to another user; remove it" in capsys.readouterr().err


def test_a_process_of_the_same_number_elsewhere_keeps_its_work(tmp_path):
    """In two containers a process may have the same number."""
    assert cut(tmp_path, "--out", tmp_path / "f") == 0
    (tmp_path / "site").mkdir()
    theirs = [tmp_path / f".g.partial-{os.getpid()}", tmp_path / "site" / f".partial-{os.getpid()}"]
    for folder in theirs:
        folder.mkdir()
        (folder / "half.h5").write_text("theirs")
    assert cut(tmp_path, "--out", tmp_path / "g") == 0
    words = ("import", "npz", "--data", tmp_path / "in.npz", "--spec", tmp_path / "f", "--silo", 0)
    assert command(*words, "--out", tmp_path / "site") == 0
    assert [(folder / "half.h5").read_text() for folder in theirs] == ["theirs"] * 2


def test_a_folder_that_cannot_be_made_takes_no_other_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.write.folder.partial", lambda: "partial-taken")
    theirs = tmp_path / ".g.partial-taken"
    theirs.mkdir()
    assert cut(tmp_path, "--out", tmp_path / "g") == 2
    assert theirs.is_dir()


def leave(folder, inner):
    """Move a file of a folder out of it, and leave a link; return what is left."""
    (target := folder.parent / "elsewhere").mkdir(exist_ok=True)
    (folder / inner).rename(target / Path(inner).name)
    (folder / inner).symlink_to(target / Path(inner).name)
    return folder


OUT = {
    "images": ("images", "a/0.png"),
    "a class": ("images", "a"),
    "a part": ("split", "test"),
    "an image with a mask": ("scans", "0.png"),
    "npy": ("npy", "x.npy"),
    "mnist": ("mnist", "t10k-labels-idx1-ubyte"),
    "adult": ("adult", "adult.test"),
    "heart-disease": ("heart-disease", "processed.va.data"),
    "cifar10": ("cifar10", "cifar-10-batches-bin/data_batch_2.bin"),
    "cifar10's names": ("cifar10", "cifar-10-batches-bin/batches.meta.txt"),
    "tinyshakespeare": ("tinyshakespeare", "input.txt"),
}


def yard(folder):
    """Make folders that are read as the sources of their names, as far as links are looked at."""
    image = pytest.importorskip("PIL.Image").new("L", (4, 4), 1)
    for inner in ("images/a", "images/b", "split/train/a", "split/test/a", "scans", "masks"):
        (folder / inner).mkdir(parents=True)
        image.save(folder / inner / "0.png")
    for name, content in (("x", np.zeros((4, 2))), ("y", np.arange(4) % 2)):
        (folder / "npy").mkdir(exist_ok=True)
        np.save(folder / "npy" / f"{name}.npy", content)
    for name, files in FILES.items():
        for inner, content in files.items():
            (folder / name / inner).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / inner).write_bytes(content)


IDX = {
    3: struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(8),
    1: struct.pack(">4BI", 0, 0, 8, 1, 2) + bytes(2),
}
CIFAR = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
FILES = {
    "mnist": {
        f"{part}-{kind}-ubyte": IDX[axes]
        for part in ("train", "t10k")
        for kind, axes in (("images-idx3", 3), ("labels-idx1", 1))
    },
    "adult": {"adult.data": b"", "adult.test": b""},
    "heart-disease": {
        f"processed.{name}.data": b"63,1,1,145,233,1,2,150,0,2.3,3,0,6,0\n"
        for name in ("cleveland", "hungarian", "switzerland", "va")
    },
    "cifar10": {f"cifar-10-batches-bin/{name}": bytes(3073) for name in CIFAR}
    | {"cifar-10-batches-bin/batches.meta.txt": b"a b c d e f g h i j"},
    "tinyshakespeare": {"input.txt": b"A:\nto be\n"},
}


@pytest.mark.parametrize("what", OUT)
def test_a_link_that_leads_out_of_a_named_folder_is_refused(tmp_path, what):
    folder, inner = OUT[what]
    yard(tmp_path)
    data = leave(tmp_path / folder, inner)
    source, options = {"scans": ("images", [f"masks={tmp_path / 'masks'}"])}.get(
        folder, ({"split": "images"}.get(folder, folder), [])
    )
    with pytest.raises(InputError, match=f"{inner}: a link that leads out of {data}; put what it leads to"):
        find_source(source, options)(data, 0)


def test_a_mask_that_lies_elsewhere_is_refused(tmp_path):
    yard(tmp_path)
    masks = leave(tmp_path / "masks", "0.png")
    with pytest.raises(InputError, match=r"masks/0\.png: a link that leads out of"):
        find_source("images", [f"masks={masks}"])(tmp_path / "scans", 0)


def test_links_within_a_folder_and_to_it_are_followed(tmp_path):
    yard(tmp_path)
    (tmp_path / "images/b/1.png").symlink_to(tmp_path / "images/a/0.png")
    (tmp_path / "images/c").symlink_to("a")
    linked(tmp_path / "named", tmp_path / "images")
    data = find_source("images")(tmp_path / "named", 0)
    assert (data.class_names, data.y.tolist()) == (("a", "b", "c"), [0, 1, 1, 2])
    assert data.x[:].min() == 1


def test_rows_of_another_hdf5_file_are_refused(tmp_path):
    for name in ("other", "in"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["y"] = np.arange(4) % 2
            file["stored"] = np.zeros((4, 2))
    for source, said in (("other.h5", "x lies in another file"), (".", None)):
        layout = h5py.VirtualLayout((4, 2), "f8")
        layout[:] = h5py.VirtualSource(source, "stored", (4, 2))
        with h5py.File(tmp_path / "in.h5", "r+") as file:
            file.pop("x", None)
            file.create_virtual_dataset("x", layout)
        if said:
            with pytest.raises(InputError, match=said):
                find_source("hdf5")(tmp_path / "in.h5", 0)
        else:
            assert find_source("hdf5")(tmp_path / "in.h5", 0).x[:].shape == (4, 2)
