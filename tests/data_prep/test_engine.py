"""How shards are written: the same bytes whatever the threads,
the reading and the interruptions; little memory."""

import importlib.util
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import ranks, with_usual
from hypothesis import given, settings, strategies as st

from data_prep.cli import main
from data_prep.cut import partitioning
from data_prep.dataset.dataset import Dataset
from data_prep.dataset.rows import mapping_of
from data_prep.schemes.holdout import Shares
from data_prep.write import layout, ledger, writing
from data_prep.write.layout import Section, passes
from data_prep.write.ledger import Ledger, digest_of
from data_prep.write.making import make_shards
from data_prep.write.writing import NewShard, Writer
from mpifl.common.errors import InputError, ShardError
from mpifl.data.shards.shards import (
    Features,
    FederationSpec,
    ShardEntry,
    new_shard,
    open_shard,
    read_federation,
)

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Swept:
    """Rows that may only be read in slices between multiples of a step, as those of a compressed file."""

    sequential = True

    def __init__(self, rows, step=1):
        self.rows, self.step, self.shape, self.dtype, self.read = rows, step, rows.shape, rows.dtype, []

    def __getitem__(self, at):
        assert isinstance(at, slice)
        assert at.start % self.step == 0
        assert at.stop % self.step == 0 or at.stop == self.shape[0]
        self.read.append((at.start, at.stop))
        return self.rows[at]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(layout, "PIECE", 100)
    monkeypatch.setattr(layout, "BUCKET", 64)
    monkeypatch.setattr(layout, "chunk_rows", lambda shape, dtype: 1)


def example(n, seed=0, length=None):
    rng = np.random.default_rng(seed)
    shape = (n,) if length is None else (n, length)
    return rng.integers(0, 256, (n, 3, 2)).astype(np.uint8), rng.integers(0, 4, shape)


def cut(n, silos, seed, times=1):
    """Draw which examples every silo holds, each example `times` in all."""
    rng = np.random.default_rng(seed)
    return np.array_split(np.concatenate([rng.permutation(n) for _ in range(times)]), silos)


def made(folder, x, y, parts, jobs=2, alter=None, keep=None, resumed=False):
    """Write shards of some rows and return them as they open, with the entries."""
    folder.mkdir(exist_ok=True)
    features = Features(shape=x.shape[1:], dtype="uint8")
    shards = [NewShard(f"s{k}", [Section(f"{k}.h5", "train", k, x, y, ids)]) for k, ids in enumerate(parts)]
    writer = Writer(folder, features, 4, alter=alter, resumed=resumed)
    book = Ledger(keep, {})
    try:
        entries = make_shards(writer, shards, jobs, book)
    finally:
        book.close()
    spec = FederationSpec(name="n", features=features, classes=4, seed=0, scheme={}, source={}, silos=entries)
    return [open_shard(folder, entry, spec)["train"] for entry in entries], entries


@given(
    n=st.integers(9, 120),
    silos=st.integers(1, 9),
    step=st.integers(1, 9),
    times=st.integers(1, 2),
    length=st.sampled_from([None, 3]),
    seed=st.integers(0, 99),
)
@settings(max_examples=12, deadline=None)
def test_every_row_lands_in_its_place_however_it_is_read(
    tmp_path_factory, n, silos, step, times, length, seed
):
    tmp_path, patch = tmp_path_factory.mktemp("made"), pytest.MonkeyPatch()
    for name, value in (("PIECE", 50), ("BUCKET", 40), ("chunk_rows", lambda shape, dtype: 1)):
        patch.setattr(layout, name, value)
    (x, y), parts = example(n, seed, length), cut(n, silos, seed, times)
    swept = Swept(x, step)
    gathered, entries = made(tmp_path / "a", x, y, parts)
    swept_in, same = made(tmp_path / "b", swept, y, parts)
    _, aside = made(tmp_path / "c", Swept(x, step), y, parts, resumed=True)
    patch.undo()
    for one, two, ids in zip(gathered, swept_in, parts, strict=True):
        assert one.x.tobytes() == two.x.tobytes() == x[ids].tobytes()
        assert one.y.tobytes() == two.y.tobytes() == y[ids].tobytes()
    assert entries == same == aside
    assert sorted(swept.read) == [(at, min(at + len_, n)) for at, len_ in spans(swept.read)]


def spans(read):
    """Return the starts and lengths of what was read; no two may overlap."""
    read = sorted(read)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(read))
    return [(start, end - start) for start, end in read]


@pytest.mark.parametrize("resumed", [False, True])
def test_rows_are_put_into_order_in_place_unless_a_run_may_be_resumed(
    tmp_path, small_pieces, monkeypatch, resumed
):
    finish = Writer.finish

    def twice(writer, shard, offsets):
        raw = tmp_path / f"{shard.file}.raw"
        before = raw.stat().st_ino
        entry = finish(writer, shard, offsets)
        assert raw.exists() == resumed
        assert ((tmp_path / shard.file).stat().st_ino == before) == (not resumed)
        if resumed:  # interrupted before it was settled
            assert finish(writer, shard, offsets) == entry
        return entry

    monkeypatch.setattr(Writer, "finish", twice)
    (x, y), parts = example(90), cut(90, 3, 1)
    splits, _ = made(tmp_path, Swept(x), y, parts, resumed=resumed)
    for split, ids in zip(splits, parts, strict=True):
        assert split.x.tobytes() == x[ids].tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.h5", "1.h5", "2.h5"]


def test_a_file_that_is_cut_short_is_not_read_as_rows_of_another(tmp_path):
    (tmp_path / "a").write_bytes(bytes(10))
    assert writing._read_at(tmp_path / "a", 2, range(1, 4), (2,), np.dtype("u1")).shape == (3, 2)
    with pytest.raises(OSError, match="a is cut short"):
        writing._read_at(tmp_path / "a", 3, range(1, 4), (2,), np.dtype("u1"))


def test_nothing_is_read_twice_and_only_what_is_needed(tmp_path, small_pieces):
    x, y = example(100)
    swept = Swept(x, 5)
    made(tmp_path, swept, y, [np.arange(60, 80)])
    assert {at for start, end in swept.read for at in range(start, end)} >= set(range(60, 80))
    assert all(end > 60 and start < 80 for start, end in swept.read)


def test_what_is_altered_depends_on_the_example_and_its_silo_alone(tmp_path, small_pieces):
    (x, y), parts = example(90), cut(90, 4, 1)

    def alter(silo, rows, labels, ids):
        return (rows + silo + ids[:, None, None]).astype(np.uint8), (labels + silo) % 4

    for name, rows, jobs in (("a", x, 1), ("b", Swept(x, 7), 3)):
        splits, _ = made(tmp_path / name, rows, y, parts, jobs, alter)
        for silo, (split, ids) in enumerate(zip(splits, parts, strict=True)):
            assert np.array_equal(split.x, (x[ids] + silo + ids[:, None, None]).astype(np.uint8))
            assert np.array_equal(split.y, (y[ids] + silo) % 4)


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda silo, x, y, ids: (x, y + 9), "labels from"),
        (lambda silo, x, y, ids: (x[:, :1], y), "features of shape"),
        (lambda silo, x, y, ids: (x.astype("f4"), y), "features of dtype"),
    ],
)
def test_an_effect_that_breaks_the_format_is_refused(tmp_path, alter, said):
    x, y = example(20)
    with pytest.raises(ShardError, match=said):
        made(tmp_path, x, y, [np.arange(20)], alter=alter)


def test_rows_of_a_mapped_file_are_known_as_such(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert mapping_of(Swept(np.asarray(mapped)[1:])) is not None
    assert mapping_of(np.zeros(3)) is None


def write_h5(path, rows, width, chunks=None):
    """Write examples that begin with their own number, and are zeros otherwise."""
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (rows, width), "uint8", chunks=chunks)
        for at in range(0, rows, 4096):
            block = np.zeros((min(4096, rows - at), width), np.uint8)
            block[:, :8] = np.arange(at, at + len(block))[:, None].view(np.uint8)
            x[at : at + 4096] = block
        file["y"] = np.arange(rows) % 10


MEASURE = """
import sys, data_prep.cli as cli, data_prep.write.layout as layout
import data_prep.cut.partitioning, h5py, hdf5plugin, rich.progress  # what is loaded does not grow
layout.PIECE, layout.BUCKET, layout.SMALL = 1 << 20, 1 << 21, 1 << 22
def memory(what):
    return int(open('/proc/self/status').read().split(what)[1].split()[0])
before = memory("VmRSS:")
try: cli.main(sys.argv[1:])
finally: print(memory("VmHWM:") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("chunks", [None, (64, 2048)], ids=["contiguous", "chunked"])
def test_memory_does_not_grow_with_the_source(tmp_path, chunks):
    rows = 40_000  # 82 MB, in pieces of 1 MB
    write_h5(tmp_path / "in.h5", rows, 2048, chunks)
    words = [
        "partition",
        "hdf5",
        "--data",
        "in.h5",
        "--out",
        "out",
        "--scheme",
        "iid",
        "--silos",
        "5",
        "--jobs",
        "2",
    ]
    run = [sys.executable, "-c", MEASURE, *words]
    out = subprocess.check_output(run, env=ENVIRONMENT, text=True, cwd=tmp_path)
    assert int(out.split()[-1]) < 40_000
    spec = read_federation(tmp_path / "out")
    seen = np.zeros(rows, int)
    for entry in spec.silos:
        split = open_shard(tmp_path / "out", entry, spec, checksum=False)["train"]
        ids = np.ascontiguousarray(split.x[:, :8]).view(np.int64).ravel()
        assert np.array_equal(split.y, ids % 10)
        seen[ids] += 1
    assert (seen == 1).all()


READ = """
import sys
from pathlib import Path
from mpifl.data.shards import open_shard, read_federation
def memory():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return int(next(line for line in lines if line.startswith("Rss")).split()[1])
folder = Path(sys.argv[1])
spec = read_federation(folder)
before = memory()
split = open_shard(folder, spec.silos[0], spec, checksum=False)["train"]
opened = memory()
total = sum(int(split.x[at].sum()) for at in range(0, len(split) // 100))
print(opened - before, memory() - before, split.x.nbytes // 1000)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="/proc")
def test_opening_a_contiguous_shard_copies_nothing(tmp_path):
    n, features = 110_000, Features(shape=(2048,), dtype="uint8")
    common = {"features": features, "classes": 1}
    path = tmp_path / "a.h5"
    with new_shard(path, {"train": (n,)}, silo=0, name="a", **common):
        pass  # all zeros: the disk holds nothing of it, but memory would
    facts = {"silo": 0, "name": "a", "file": "a.h5", "bytes": path.stat().st_size, "sha256": "0" * 64}
    entry = ShardEntry(examples={"train": n}, labels=[n], **facts)
    FederationSpec(name="n", silos=[entry], seed=0, scheme={}, source={}, **common).write(tmp_path)
    out = subprocess.check_output([sys.executable, "-c", READ, tmp_path], env=ENVIRONMENT, text=True)
    opened, read, whole = map(int, out.split())
    assert whole > 220_000
    assert opened < 12_000
    assert read < 0.1 * whole


@pytest.fixture
def npz(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "in.npz"
    test = {"x_test": np.ones((9, 40), "f4"), "y_test": [1] * 9}
    np.savez(path, x=rng.random((600, 40)).astype("f4"), y=rng.integers(0, 5, 600), **test)
    return path


def words(npz, out, *more):
    usual = {"scheme": "dirichlet", "silos": 6, "valid": 0.2, "data": npz, "out": out}
    return ["partition", "npz", *with_usual(more, **usual)]


def test_the_bytes_do_not_depend_on_the_threads(tmp_path, npz, monkeypatch):
    assert command(*words(npz, tmp_path / "a", "--jobs", 1, "--public", 0.1)) == 0
    monkeypatch.setattr(layout, "PIECE", 1000)
    assert command(*words(npz, tmp_path / "b", "--jobs", 5, "--public", 0.1)) == 0
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert "public.h5" in content(tmp_path / "a")


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_compressed_shards_hold_the_same_and_are_smaller(tmp_path, compression):
    if compression != "gzip":
        pytest.importorskip("hdf5plugin")
    x = np.repeat(np.arange(3000, dtype="i4"), 50).reshape(3000, 50) // 7
    np.savez(tmp_path / "in.npz", x=x, y=np.arange(3000) % 3)
    common = [
        "partition",
        "npz",
        "--data",
        tmp_path / "in.npz",
        "--scheme",
        "iid",
        "--silos",
        2,
        "--valid",
        0.1,
    ]
    assert command(*common, "--out", tmp_path / "plain") == 0
    assert command(*common, "--out", tmp_path / "small", "--compression", compression) == 0
    plain, small = (read_federation(tmp_path / name) for name in ("plain", "small"))
    for one, two in zip(plain.silos, small.silos, strict=True):
        assert two.bytes < 0.5 * one.bytes
        assert (one.labels, one.examples) == (two.labels, two.examples)
        first, second = open_shard(tmp_path / "plain", one, plain), open_shard(tmp_path / "small", two, small)
        for split in one.examples:
            assert first[split].x.tobytes() == second[split].x.tobytes()
            assert first[split].y.tobytes() == second[split].y.tobytes()


def test_a_compression_that_is_not_installed_is_told(tmp_path, npz, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    assert command(*words(npz, tmp_path / "out", "--compression", "zstd")) == 2
    assert "zstd needs hdf5plugin; pip install 'mpifl[compression]'" in capsys.readouterr().err
    assert command(*words(npz, tmp_path / "out", "--compression", "rar")) == 2
    assert "'rar' is unknown; there are none, gzip, lz4, zstd" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [npz]


def interrupted(monkeypatch, method, after):
    """Have a step of writing stop the program when it was done that often."""
    whole, count = getattr(Writer, method), []

    def act(*args):
        count.append(1)
        if len(count) > after:
            raise SystemExit(143)
        return whole(*args)

    monkeypatch.setattr(Writer, method, act)


@pytest.mark.parametrize(
    ("method", "after"), [("lay_out", 3), ("fill", 0), ("fill", 7), ("finish", 0), ("finish", 4)]
)
@pytest.mark.parametrize("swept", [False, True])
def test_an_interrupted_partition_is_taken_up_again(tmp_path, npz, monkeypatch, method, after, swept):
    monkeypatch.setattr(layout, "PIECE", 8000)
    if swept:
        monkeypatch.setattr(layout, "sequential", lambda rows: True)
        monkeypatch.setattr(layout, "BUCKET", 3000)
    assert command(*words(npz, tmp_path / "whole")) == 0
    with monkeypatch.context() as patch:
        interrupted(patch, method, after)
        assert command(*words(npz, tmp_path / "out", "--resume", "--jobs", 1)) == 143
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.resume", "in.npz", "whole"]
    done = []
    for name in ("fill", "finish"):
        before = getattr(Writer, name)
        monkeypatch.setattr(Writer, name, lambda *args, b=before, n=name: done.append(n) or b(*args))
    assert command(*words(npz, tmp_path / "out", "--resume")) == 0
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    if method == "finish":
        assert done == ["finish"] * (7 - after)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npz", "out", "whole"]


KILLED = """
import os, signal, sys
from data_prep.cli import main
from data_prep.write.writing import Writer
finish, done = Writer.finish, []
def finish_or_die(*given):
    done.append(1)
    if len(done) > 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return finish(*given)
Writer.finish = finish_or_die
main(sys.argv[1:])
"""


def test_a_killed_partition_is_taken_up_again(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "in.npz", x=rng.integers(0, 9, (400, 8)), y=np.zeros(400, int))
    line = ["partition", "npz", "--data", "in.npz", "--scheme", "iid", "--silos", "20", "--resume"]
    (tmp_path / "killed.py").write_text(KILLED)
    assert ranks(1, "killed.py", *line, "--out", "out", cwd=tmp_path).returncode == -signal.SIGKILL
    assert len([*(tmp_path / ".out.resume").glob("silo_*.h5")]) > 1
    with (tmp_path / ".out.resume" / ledger.FILE).open("a") as file:
        file.write('{"entries": [{"si')  # as if it had been killed in the middle of a line
    assert not (tmp_path / "out").exists()
    monkeypatch.chdir(tmp_path)
    assert command(*line, "--out", "out") == 0
    assert command(*line[:-1], "--out", "whole") == 0
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_resuming_with_other_arguments_is_refused(tmp_path, npz, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted(patch, "finish", 2)
        assert command(*words(npz, tmp_path / "out", "--resume")) == 143
    capsys.readouterr()
    assert command(*words(npz, tmp_path / "out", "--resume", "--seed", 9)) == 2
    assert "was begun with seed 0, now it is 9; repeat the first arguments" in capsys.readouterr().err
    assert command(*words(npz, tmp_path / "out", "--resume")) == 0
    capsys.readouterr()
    assert command(*words(npz, tmp_path / "out", "--resume")) == 0  # finished: nothing to do
    assert "6 silos, 600 examples" in capsys.readouterr().out
    assert command(*words(npz, tmp_path / "out", "--resume", "--seed", 9)) == 2
    assert "exists, made with other arguments" in capsys.readouterr().err
    assert command(*words(npz, tmp_path / "out")) == 2
    assert f"{tmp_path / 'out'} exists" in capsys.readouterr().err


def test_resuming_with_another_compression_is_refused(tmp_path, capsys):
    npz = tmp_path / "in.npz"
    np.savez(npz, x=np.random.default_rng(0).random((120, 40)), y=np.arange(120) % 5)
    packed = ["gzip", *(["lz4", "zstd"] if importlib.util.find_spec("hdf5plugin") else [])]
    for first, then in itertools.pairwise(["none", *packed, "none"]):
        out = tmp_path / first
        assert command(*words(npz, out, "--resume", "--compression", first)) == 0
        before = content(out)
        assert command(*words(npz, out, "--resume", "--compression", first)) == 0
        capsys.readouterr()
        assert command(*words(npz, out, "--resume", "--compression", then)) == 2
        said = f"exists, made with --compression {first}, now it is {then}; remove it or name another"
        assert said in capsys.readouterr().err
        assert content(out) == before
    out = tmp_path / "none"
    (out / "silo_0000.h5").write_bytes(b"no shard")
    assert command(*words(npz, out, "--resume")) == 2
    assert "silo_0000.h5: cannot be read" in capsys.readouterr().err


def test_what_a_partition_is_includes_the_labels():
    x, y = example(20)
    section = Section("a.h5", "train", 0, x, y, np.arange(0, 20, 2))
    assert digest_of([section]) == digest_of([replace(section, labels=y.copy())])
    held, others = y.copy(), y.copy()
    held[4], others[5] = held[4] + 1, others[5] + 1
    assert digest_of([section]) != digest_of([replace(section, labels=held)])
    assert digest_of([section]) == digest_of([replace(section, labels=others)])


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    first = Ledger(tmp_path, {"seed": 1})
    with pytest.raises(InputError, match="being written by another run"):
        Ledger(tmp_path, {"seed": 1})
    first.close()
    Ledger(tmp_path, {"seed": 1}).close()


def test_pieces_are_recorded_once_they_reached_the_disk(tmp_path, monkeypatch):
    book, synced = Ledger(tmp_path, {}), []
    book.note_piece("a", lambda: synced.append(1))
    assert (synced, Ledger.__name__ in (tmp_path / ledger.FILE).read_text()) == ([], False)
    monkeypatch.setattr(ledger, "EVERY", 0.0)
    book.note_piece("b", lambda: synced.append(1))
    book.close()
    assert synced == [1]
    assert json.loads((tmp_path / ledger.FILE).read_text().splitlines()[-1]) == {
        "pieces": ["a", "b"],
        "entries": [],
    }


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path, npz, capsys, monkeypatch):
    usage = __import__("shutil").disk_usage(tmp_path)
    monkeypatch.setattr("data_prep.write.folder.shutil.disk_usage", lambda _: usage._replace(free=100_000))
    assert command(*words(npz, tmp_path / "out")) == 2
    err = capsys.readouterr().err
    assert "the disk has 0.0001 GB left; name another, or make room" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [npz]


PACKED, COLUMNS = ["--compression", "gzip"], ["--scheme", "vertical"]


@pytest.mark.parametrize("more", [[], ["--resume"], PACKED, COLUMNS, [*COLUMNS, *PACKED]])
@pytest.mark.parametrize("limit", [0, 1000, 15_000])
def test_a_disk_that_fills_up_in_the_middle_leaves_nothing(tmp_path, npz, capsys, limit, more):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        code = command(*words(npz, tmp_path / "out", *more))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().err
    assert code == 2, said
    assert "/out cannot be written (File too large); name another, or make room" in said
    assert said.count("\n") == 1
    kept = [tmp_path / ".out.resume"] if more == ["--resume"] else []
    assert sorted(tmp_path.iterdir()) == [*kept, npz]
    if kept:
        assert command(*words(npz, tmp_path / "out", *more)) == 0
        assert command(*words(npz, tmp_path / "whole")) == 0
        assert content(tmp_path / "out") == content(tmp_path / "whole")


def source_of(data):
    return lambda name, options=(): lambda path, seed: data


def test_what_the_source_holds_for_testing_is_the_test_split(tmp_path, monkeypatch, capsys):
    x, y = example(40)
    silo, held = np.arange(40) % 3, np.arange(40) % 5 == 0
    names = {0: "Hamlet", 1: "Ophelia", 2: "Yorick"}
    data = Dataset(
        "plays", x, y, 4, {}, silo=silo, held=held, silo_names=names, class_names=("a", "b", "c", "d")
    )
    monkeypatch.setattr(partitioning, "find_source", source_of(data))
    common = ["partition", "npz", "--scheme", "natural"]
    assert command(*common, "--out", tmp_path / "out", "--valid", 0.25) == 0
    spec = read_federation(tmp_path / "out")
    assert [entry.name for entry in spec.silos] == ["Hamlet", "Ophelia", "Yorick"]
    assert spec.class_names == ["a", "b", "c", "d"]
    for k, entry in enumerate(spec.silos):
        shard = open_shard(tmp_path / "out", entry, spec)
        mine = (silo == k) & held
        assert shard["test"].x.tobytes() == x[mine].tobytes()
        assert len(shard["valid"]) == ((silo == k) & ~held).sum() // 4
    assert command(*common, "--out", tmp_path / "more", "--test", 0.1) == 2
    assert "--test: 0.1 given, but the source itself says what is for testing" in capsys.readouterr().err


def test_a_silo_of_held_examples_alone_is_refused():
    data = Dataset("drawn", np.ones((5, 1)), np.zeros(5, int), 2, {}, held=np.arange(5) % 2 == 1)
    with pytest.raises(InputError, match="all 2 examples of silo 7 are for testing"):
        Shares().split(np.array([1, 3]), 0, 7, data)


def test_sections_are_grouped_by_what_they_are_read_from():
    x, y = example(10)
    other = Swept(x)
    sections = [Section("a", "train", 0, rows, y, np.arange(5)) for rows in (x, other, x)]
    assert [type(one).__name__ for one in passes(sections)] == ["Gathering", "SweptReading"]
