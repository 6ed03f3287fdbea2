"""Shards that somebody made to harm: they reach no other file,
and neither hang, nor kill, nor fill a rank."""

import hashlib
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import python, rank_environment
from unit.builders import arrays, write_folder

from mpifl.common.errors import InputError, ShardError
from mpifl.data.hdf5 import hdf5_process, hdf5_reading
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.data.shards.vertical_spec import is_vertical, read_vertical

X, Y = arrays(6)
NOTHING = (1 << 64) - 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_reading, "_known", {})
    monkeypatch.setattr(hdf5_reading, "MOST_KNOWN", 0)  # every file is parsed each time that it is opened
    write_folder(tmp_path / "shards", [6, 9], valid=2)
    return tmp_path / "shards"


def alter(folder, act=lambda path: None, **changes):
    """Change silo 0's file and have federation.json agree with what it is then; return its path."""
    path = folder / "silo_0000.h5"
    act(path)
    content = path.read_bytes()
    record = json.loads((folder / "federation.json").read_bytes())
    record["silos"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **changes}
    (folder / "federation.json").write_text(json.dumps(record))
    return path


def test_the_same_bytes_are_parsed_once(folder, monkeypatch):
    """Other bytes under that name are parsed, and all are held against their digest all the same."""
    monkeypatch.setattr(hdf5_reading, "MOST_KNOWN", 100)
    asked = []
    ask = hdf5_reading._parser.ask
    monkeypatch.setattr(hdf5_reading._parser, "ask", lambda *given: asked.append(given) or ask(*given))
    first = open_first(folder)
    again = open_first(folder)
    assert len(asked) == 1
    assert len(first["train"]) == len(again["train"]) == 6
    alter(folder, inside(lambda file, _: file["train/x"].__setitem__(0, 1)))
    open_first(folder)
    assert len(asked) == 2
    (folder / "silo_0000.h5").write_bytes(b"0" * (folder / "silo_0000.h5").stat().st_size)
    with pytest.raises(ShardError, match="sha256"):
        open_first(folder)


def inside(change):
    def act(path):
        with h5py.File(path, "r+") as file:
            change(file, path.parent)

    return act


def open_first(folder):
    spec = read_federation(folder)
    return open_shard(folder, spec.silos[0], spec)


def refusal(folder):
    """Return what is said of silo 0's shard, in one line behind its path."""
    with pytest.raises(ShardError) as refused:
        open_first(folder)
    message, path = str(refused.value), folder / "silo_0000.h5"
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


def put(file, name, made):
    del file[name]
    file[name] = made


def virtual(file, folder):
    layout = h5py.VirtualLayout((6, 4), "f4")
    layout[:] = h5py.VirtualSource(folder / "silo_0001.h5", "train/x", (9, 4))[:6]
    del file["train/x"]
    file.create_virtual_dataset("train/x", layout)


def external(file, folder):
    (folder / "secret").write_bytes(bytes(96))
    del file["train/x"]
    file.create_dataset("train/x", (6, 4), "f4", external=[(folder / "secret", 0, 96)])


REACHING = {
    "a soft link": (lambda f, d: put(f, "train/x", h5py.SoftLink("/valid/x")), "train/x is a soft link"),
    "a soft link for a group": (
        lambda f, d: put(f, "train", h5py.SoftLink("/valid")),
        "train is a soft link",
    ),
    "a dangling link": (lambda f, d: put(f, "train/x", h5py.SoftLink("/nowhere")), "train/x is a soft link"),
    "an external link": (
        lambda f, d: put(f, "train/y", h5py.ExternalLink(d / "silo_0001.h5", "train/y")),
        "train/y is an external link",
    ),
    "another silo's data": (
        lambda f, d: put(f, "train", h5py.ExternalLink("silo_0001.h5", "train")),
        "train is an external link",
    ),
    "a virtual data set": (virtual, "train/x is a virtual data set"),
    "external storage": (external, "train/x has external storage"),
}


@pytest.mark.parametrize("kind", REACHING)
def test_a_shard_that_reaches_for_other_data_is_refused_by_name(folder, kind):
    change, reason = REACHING[kind]
    alter(folder, inside(change))
    assert f"not a readable HDF5 shard ({reason}" in refusal(folder)


def test_a_shard_that_is_a_link_or_no_file_is_refused(folder, tmp_path):
    path = folder / "silo_0000.h5"
    path.rename(tmp_path / "elsewhere.h5")
    path.symlink_to(tmp_path / "elsewhere.h5")
    assert "is a link; put the file itself there" in refusal(folder)
    path.unlink()
    os.mkfifo(path)  # to open it for reading would wait for a writer
    assert "is not a file" in refusal(folder)
    path.unlink()
    os.link(tmp_path / "elsewhere.h5", path)
    (tmp_path / "linked").symlink_to(folder)
    assert len(open_first(tmp_path / "linked")["train"]) == 6


@pytest.mark.parametrize(
    "file",
    ["../silo_0000.h5", "/etc/passwd", "sub/silo.h5", "", ".", "..", "a\0b", "a\nb", "ä" * 128, "\u202eabc"],
)
def test_a_file_is_named_by_its_bare_name(folder, file):
    alter(folder, file=file)
    with pytest.raises(
        ShardError, match=r"federation.json: silos.0.file: a shard is a file of the folder itself"
    ):
        read_federation(folder)


def test_two_entries_of_one_file_are_refused(folder):
    alter(folder, file="silo_0001.h5")
    with pytest.raises(
        ShardError, match=r"federation.json: two entries have the file silo_0001.h5; write it"
    ):
        read_federation(folder)


def greedy(path):
    """Have the list of free space among the names of a group continue with its own beginning:
    HDF5 takes all memory."""
    content = bytearray(path.read_bytes())
    at = content.find(b"HEAP") + 16
    free, data = struct.unpack("<QQ", content[at : at + 16])
    content[data + free : data + free + 8] = struct.pack("<Q", free)
    path.write_bytes(content)


def endless(path):
    """Have the text of an attribute reach into the free space behind it: HDF5 looks for its end for ever."""
    content = bytearray(path.read_bytes())
    at = content.find(b"GCOL") + 16
    second = at + 16 + len("mpifl-shard") // 8 * 8 + 8
    assert content[second] == 2
    content[second + 8] = (content[second + 8] + 7) // 8 * 8 + 8
    path.write_bytes(content)


def parser_of():
    """The process that parses for this one."""
    return hdf5_reading._parser._process


def processor_seconds():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def test_a_file_in_which_hdf5_comes_to_no_end_is_refused_in_time_and_at_once_from_then_on(folder):
    alter(folder, endless)
    hdf5_reading._parser.end()
    began = processor_seconds()
    said = refusal(folder)
    hdf5_reading._parser.end()  # its time counts from then on
    assert processor_seconds() - began < 6
    if h5py.version.hdf5_version_tuple[:2] == (2, 0):  # another may see what is wrong
        assert (
            said
            == "not a readable HDF5 shard (HDF5 does not finish reading it); partition again or restore it"
        )
        assert processor_seconds() - began > 2
    began = processor_seconds()
    assert refusal(folder) == said
    hdf5_reading._parser.end()
    assert processor_seconds() - began < 1.5
    spec = read_federation(folder)
    assert len(open_shard(folder, spec.silos[1], spec)["train"]) == 9
    write_folder(folder, [6, 9], valid=2)
    assert len(open_first(folder)["train"]) == 6


def test_a_file_for_which_hdf5_takes_all_memory_is_refused(folder):
    alter(folder, greedy)
    hdf5_reading._parser.end()
    before = children_peak()
    assert "not a readable HDF5 shard (" in refusal(folder)
    hdf5_reading._parser.end()
    # other tests of this process have had larger children, and each begins as large as the process is
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert children_peak() <= max(before, own, 500_000)


def test_a_parser_that_stops_is_given_up(folder, monkeypatch):
    open_first(folder)
    monkeypatch.setattr(hdf5_process, "SILENCE_SECONDS", 0.3)
    os.kill(parser_of().pid, signal.SIGSTOP)
    assert "does not finish" in refusal(folder)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL"])
def test_a_file_that_the_parser_dies_of_is_refused_and_the_next_one_opened(
    folder, monkeypatch, tmp_path, name
):
    program = hdf5_process.PROGRAM.read_text()
    deadly = f"        os.kill(os.getpid(), signal.{name})\n        for answer"
    assert program.count("        for answer") == 1
    (tmp_path / "parser.py").write_text(program.replace("        for answer", deadly))
    hdf5_reading._parser.end()
    with monkeypatch.context() as patched:
        patched.setattr(hdf5_process, "PROGRAM", tmp_path / "parser.py")
        assert f"not a readable HDF5 shard (HDF5 crashes on it: {name})" in refusal(folder)
    hdf5_reading._parser.end()
    if name == "SIGSEGV":
        assert "crashes on it" in refusal(folder)  # remembered
    else:  # by the system, which had no memory left, or by somebody: not the file's fault
        assert len(open_first(folder)["train"]) == 6
    spec = read_federation(folder)
    assert len(open_shard(folder, spec.silos[1], spec)["train"]) == 9


def test_what_one_file_does_to_the_parser_stays_with_that_file(folder):
    open_first(folder)
    pid = parser_of().pid
    alter(folder, greedy)
    assert "not a readable" in refusal(folder)
    write_folder(folder, [6, 9], valid=2)  # what follows opens it with HDF5 in this very process
    alter(folder, inside(lambda file, _: put(file, "train/x", h5py.SoftLink("/valid/x"))))
    assert "not a readable" in refusal(folder)
    write_folder(folder, [6, 9], valid=2)
    assert len(open_first(folder)["train"]) == 6
    assert parser_of().pid == pid


def test_a_parser_that_died_between_two_files_is_replaced(folder):
    open_first(folder)
    gone = parser_of()
    gone.kill()
    gone.wait(180)
    assert len(open_first(folder)["train"]) == 6
    assert parser_of().pid != gone.pid


def test_signals_for_the_rank_are_not_for_the_parser(folder):
    open_first(folder)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        parser_of().send_signal(number)
    pid = parser_of().pid
    assert len(open_first(folder)["train"]) == 6
    assert parser_of().pid == pid
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc")
def test_the_parser_has_no_secrets_no_files_no_threads_and_no_other_modules(folder, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "secret")
    hdf5_reading._parser.end()
    open_first(folder)
    proc = Path(f"/proc/{parser_of().pid}")
    assert b"secret" not in (proc / "environ").read_bytes()
    assert sorted(int(path.name) for path in (proc / "fd").iterdir()) == [0, 1, 2]
    assert len(list((proc / "task").iterdir())) == 1  # or it could not fork
    mapped = (proc / "maps").read_text()
    assert "h5py" in mapped
    assert "torch" not in mapped
    assert "mpi4py" not in mapped


ORPHAN = """
import sys
from pathlib import Path
from mpifl.data.hdf5 import hdf5_reading
from mpifl.data.shards import open_shard, read_federation
spec = read_federation(Path(sys.argv[1]))
hdf5_reading._parser.start()
print(hdf5_reading._parser._process.pid, flush=True)
open_shard(Path(sys.argv[1]), spec.silos[0], spec)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc")
@pytest.mark.parametrize("hangs", [False, True])
def test_a_parser_ends_with_its_rank_even_if_it_hangs(folder, tmp_path, hangs):
    if hangs:
        alter(folder, endless)
    (tmp_path / "orphan.py").write_text(ORPHAN)
    command = [*python(), str(tmp_path / "orphan.py"), str(folder)]
    with subprocess.Popen(
        command, env=rank_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        pid = int(rank.stdout.readline())
        time.sleep(1)
        rank.kill()
    deadline = time.monotonic() + 180
    while (
        Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_parser_that_cannot_start_is_told(folder, monkeypatch):
    hdf5_reading._parser.end()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
        with pytest.raises(
            InputError, match=r"the program that parses HDF5 did not start \(ModuleNotFoundError: .*h5py"
        ):
            open_first(folder)
    assert len(open_first(folder)["train"]) == 6


def test_a_forked_process_has_a_parser_of_its_own(folder):
    open_first(folder)
    first = parser_of().pid
    if not (pid := os.fork()):
        try:
            good = len(open_first(folder)["train"]) == 6 and parser_of().pid != first
            hdf5_reading._parser.end()
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(open_first(folder)["train"]) == 6
    assert parser_of().pid == first


def children_peak():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def bomb(shape, label=(), **layout):
    """Declare data that are nowhere in the file."""

    def change(file, _):
        del file["train/x"], file["train/y"]
        file.create_dataset("train/x", (*shape, 4), "f4", chunks=(1 << 18, 4), compression="gzip", **layout)
        file.create_dataset("train/y", (*shape, *label), "i8", chunks=(1 << 18, *label), compression="gzip")

    return inside(change)


@pytest.mark.parametrize("declared", [False, True])
def test_a_small_file_of_much_data_is_refused_before_memory_is_taken(folder, declared):
    n = 1 << 28
    says = {"examples": {"train": n, "valid": 2}, "labels": [n, 0, 0]} if declared else {}
    path = alter(folder, bomb((n,)), **says)
    before, children = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, children_peak()
    said = refusal(folder)
    if declared:
        assert f"train/x: {16 * n} bytes of data in a file of {path.stat().st_size}" in said
    else:
        assert f"train: {n} features and {n} labels, federation.json says 6" in said
    hdf5_reading._parser.end()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    # other tests of this process have had larger children, and a child begins as large as its parent
    assert children_peak() <= max(children + 50_000, 400_000)


def test_labels_are_as_many_for_an_example_as_federation_json_counts(folder):
    def change(file, _):
        del file["train/y"]
        file.create_dataset("train/y", (6, 1 << 20), "i8", chunks=(6, 1 << 16), compression="gzip")

    alter(folder, inside(change))
    assert "train: labels of shape [6, 1048576], federation.json counts 6 of 6 examples" in refusal(folder)


def test_a_filter_that_nobody_has_is_told(folder):
    def change(file, _):
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((6, 4))
        made.set_filter(300, h5py.h5z.FLAG_OPTIONAL, (1,))
        del file["train/x"]
        file.create_dataset("train/x", data=X, dcpl=made, chunks=(6, 4))

    alter(folder, inside(change))
    assert refusal(folder) == "compressed with a filter that HDF5 lacks; pip install 'mpifl[compression]'"


@pytest.mark.parametrize(("offset", "whole"), [(-96, True), (-92, False), (1 << 62, False)])
def test_a_data_set_that_ends_behind_the_file_is_refused(folder, offset, whole):
    path = folder / "silo_0000.h5"
    size = path.stat().st_size
    assert size % 4 == 0
    facts = {
        "shape": [6, 4],
        "dtype": "<f4",
        "offset": (offset + size) % (1 << 63),
        "chunk": 1,
        "readable": True,
    }
    with path.open("rb") as file:
        stamp = hdf5_reading.stamp_of(path.stat())
        answer = hdf5_reading.Opened(path, file, stamp, {"attributes": {}, "sets": {"train/x": facts}})
        if whole:
            assert answer.array("train/x").shape == (6, 4)
        else:
            with pytest.raises(ShardError, match="train/x ends behind the end of the file"):
                answer.array("train/x")


def shifted(path):
    """Have the features begin one byte later."""
    with h5py.File(path, "r+") as file:
        del file["train/x"]
        file.create_dataset("odd", data=np.zeros(3, np.int8))
        file.create_dataset("train/x", data=X)
    content = path.read_bytes()
    with h5py.File(path) as file:
        begin = file["train/x"].id.get_offset()
    moved = bytearray(content + bytes(1) + X.tobytes())
    assert moved.count(struct.pack("<Q", begin)) == 1
    moved[40:48] = struct.pack("<Q", len(moved))  # where the file ends
    path.write_bytes(bytes(moved).replace(struct.pack("<Q", begin), struct.pack("<Q", len(content) + 1)))


def test_numbers_that_lie_askew_are_copied(folder):
    alter(folder, shifted)
    x = open_first(folder)["train"].x
    assert x.tobytes() == X.tobytes()
    assert x.ctypes.data % 4 == 0


TOP = (
    '{"name":"a","features":{"shape":[4],"dtype":"float32"},"classes":3,"seed":0,'
    '"scheme":{},"source":{},"silos":[%s]}'
)
ENTRY = (
    '{"silo":0,"name":"a","file":"a.h5","examples":{"train":1},"labels":[%s],"bytes":1,"sha256":"'
    + "0" * 64
    + '"}'
)
GOOD = TOP % (ENTRY % "1,0,0")
MUCH = 1 << 21

DESCRIPTIONS = {
    "deep": ("[" * 5000 + "]" * 5000, "the file: Invalid JSON: recursion limit exceeded"),
    "deep inside": (GOOD.replace("{}", "[" * 900 + "]" * 900), "recursion limit exceeded"),
    "too large": ("[" + " " * (33 << 20) + "]", "the file: more than 32 MiB"),
    "too many parts": ("[" + "[]," * (1 << 20) + "[]]", "lists and tables, 1048576 at most"),
    "no table": ("3", "the file: Input should be a valid dictionary"),
    "a version of any length": (
        GOOD.replace('{"name', f'{{"format_version":"{"x" * MUCH}","name', 1),
        "format version",
    ),
    "few label counts": (
        TOP % (ENTRY % "1,0"),
        "labels: 2 label counts for 3 classes; write it with data_prep",
    ),
    "many label counts": (TOP % (ENTRY % "1,0,0,0"), "labels: 4 label counts for 3 classes"),
    "10^19 classes": (GOOD.replace('"classes":3', '"classes":10000000000000000000'), "classes: "),
    "10^9 classes": (GOOD.replace('"classes":3', '"classes":1000000000'), "classes: "),
    "a number of 5000 digits": (GOOD.replace('"classes":3', f'"classes":{"9" * 5000}'), "federation.json: "),
    "10^19 features": (GOOD.replace("[4]", "[10000000000000000000]"), "features.shape.0: "),
    "10^12 features": (
        GOOD.replace("[4]", "[1000000,1000000]"),
        "features.shape: an example has 268435456 numbers",
    ),
    "40 dimensions": (GOOD.replace("[4]", f"[{'1,' * 39}1]"), "31 dimensions at most"),
    "10^19 examples": (GOOD.replace('"train":1', '"train":10000000000000000000'), "silos.0.examples.train: "),
    "no number": (GOOD.replace('"float32"', '"float32","scale":NaN'), "the file: Invalid JSON"),
    "infinity": (GOOD.replace('"float32"', '"float32","scale":1e999'), "features.scale: "),
    "NUL in a name": (GOOD.replace('"name":"a"', r'"name":"a\u0000"', 1), "name: "),
    "half a letter": (GOOD.replace('"name":"a"', r'"name":"\ud800"', 1), "the file: Invalid JSON"),
    "not UTF-8": (GOOD.replace('"name":"a"', '"name":"\udcff"', 1), "the file: Invalid JSON"),
    "a key that is not a text": (GOOD.replace('"seed"', r'"\u001b[31m":1,"seed"', 1), "?: Extra inputs"),
    "wrong counts without end": (TOP % (ENTRY % ('"a",' * MUCH + "1")), "silos.0.labels.0: "),
    "keys without end": (
        GOOD.replace('"seed"', ",".join(f'"{i:x}":1' for i in range(1 << 18)) + ',"seed"'),
        "0: Extra",
    ),
    "keys of a silo without end": (
        TOP % (ENTRY % "1,0,0").replace('"silo"', ",".join(f'"{i:x}":1' for i in range(1 << 18)) + ',"silo"'),
        "silos.0.0: Extra inputs",
    ),
    "splits without end": (
        GOOD.replace('"train"', ",".join(f'"{i:x}":"a"' for i in range(1 << 18)) + ',"train"'),
        "silos.0.examples: more splits than there are kinds of",
    ),
    "wrong silos without end": (TOP % ("{}," * (1 << 19) + "{}"), "silos.0.silo: Field required"),
    "dimensions without end": (GOOD.replace("[4]", f"[{'1,' * MUCH}1]"), "31 dimensions at most"),
    "wrong dimensions without end": (GOOD.replace("[4]", f"[{'0,' * MUCH}1]"), "features.shape.0: "),
    "wrong names without end": (
        GOOD.replace('"seed"', f'"class_names":[{"1," * MUCH}1],"seed"'),
        "class_names.0: ",
    ),
}


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_a_hostile_description_is_refused_in_little_time_and_memory(tmp_path, kind):
    text, reason = DESCRIPTIONS[kind]
    path = tmp_path / "federation.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (read_federation, read_vertical):
        with pytest.raises(ShardError) as refused:
            read(tmp_path)
        message = str(refused.value)
        assert message.startswith(f"{path}: ")
        assert message.isprintable()
        assert len(message) < 1000
        if read is read_federation:
            assert reason in message
    assert not is_vertical(tmp_path)
    assert time.process_time() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


def test_the_description_that_the_others_are_made_of_is_a_good_one(tmp_path):
    (tmp_path / "federation.json").write_text(GOOD)
    assert read_federation(tmp_path).silos[0].labels == [1, 0, 0]
