"""Downloads from a server of this test's own: checked, whole or not at all."""

import hashlib
import http.server
import io
import os
import re
import tarfile
import threading

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources import fetching as module
from data_prep.sources.fetching import fetch_files
from data_prep.sources.known import KNOWN, Remote
from mpifl.common.errors import InputError

CONTENT = np.random.default_rng(0).integers(0, 256, 700_000, np.uint8).tobytes()


class Server(http.server.ThreadingHTTPServer):
    """Serves files by name, and misbehaves as told; counts how often it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked = {"set.bin": CONTENT}, 0
        self.stops, self.status = [], []

    def remote(self, name="set.bin", content=None, algorithm="sha256", **more):
        content = self.files[name] if content is None else content
        digest = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
        return Remote(f"http://127.0.0.1:{self.server_port}/{name}", len(content), digest, **more)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, content = self.server, self.server.files.get(self.path[1:])
        server.asked += 1
        if server.status or content is None:
            self.send_error(server.status.pop(0) if server.status else 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        stop = server.stops.pop(0) if server.stops else len(content)
        self.wfile.write(content[:stop])
        if stop < len(content):
            self.close_connection = True

    def log_message(self, *_):
        pass


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    monkeypatch.setattr(module, "PIECE", 1 << 14)
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_file_arrives_whole(tmp_path, server, algorithm):
    fetch_files([server.remote(algorithm=algorithm)], tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / "set.bin").read_bytes() == CONTENT
    assert names(tmp_path / "new" / "folder") == ["set.bin"]
    assert server.asked == 1


def test_what_is_there_and_right_is_not_asked_for(tmp_path, server):
    (tmp_path / "set.bin").write_bytes(CONTENT)
    fetch_files([server.remote()], tmp_path)
    assert server.asked == 0


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", CONTENT[:-9], b""])
def test_what_is_there_and_wrong_is_left_alone_and_named(tmp_path, server, content):
    (tmp_path / "set.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"set\.bin is there, but its? .*; remove it"):
        fetch_files([server.remote()], tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == content
    assert server.asked == 0


def test_a_server_that_stops_in_the_middle_is_asked_again(tmp_path, server):
    (tmp_path / ".set.bin.part").write_bytes(b"of an older version")
    server.stops = [300_000, 200_000]
    fetch_files([server.remote()], tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["set.bin"]
    assert server.asked == 3


WRONG = {
    "a changed byte": (CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), "its sha256 is"),
    "a longer file": (CONTENT + b"!", "it is longer than 700,000 bytes"),
    "a shorter file": (CONTENT[:-1], "699,999 of 700,000 bytes"),
    "a page": (b"<html>moved</html>", "18 of 700,000 bytes"),
    "nothing": (b"", "0 of 700,000 bytes"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_file_never_gets_its_name(tmp_path, server, fault):
    content, said = WRONG[fault]
    remote = server.remote()
    server.files["set.bin"] = content
    with pytest.raises(InputError, match=r".") as error:
        fetch_files([remote], tmp_path)
    assert said in str(error.value)
    assert remote.url in str(error.value)
    assert "set.bin" not in names(tmp_path)
    server.files["set.bin"] = CONTENT
    fetch_files([remote], tmp_path)  # and what it left, if anything, does not stand in the way
    assert names(tmp_path) == ["set.bin"]


def test_a_server_in_trouble_is_asked_again_and_one_that_refuses_is_not(tmp_path, server):
    server.status = [503, 429, 500]
    fetch_files([server.remote()], tmp_path)
    assert server.asked == 4
    with pytest.raises(InputError, match=r"other\.bin: 404 Not Found"):
        fetch_files([server.remote("other.bin", CONTENT)], tmp_path)
    assert server.asked == 5


def test_nobody_there(tmp_path, server):
    remote = Remote("http://127.0.0.1:9/set.bin", 10, "md5:0")
    with pytest.raises(InputError, match=r"refused.* in 5 attempts; try again later"):
        fetch_files([remote], tmp_path)
    assert names(tmp_path) == []


def test_a_full_disk_is_no_reason_to_ask_again(tmp_path, server, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "open", lambda path, mode, opener: Full(path, mode[0]), raising=False)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        fetch_files([server.remote()], tmp_path)
    assert server.asked == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path, server):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        fetch_files([server.remote()], tmp_path / "file" / "folder")


def archive(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def test_an_archive_gives_the_named_files_and_no_others(tmp_path, server):
    members = {
        "a/../../evil.bin": b"1",
        "inner/one.bin": b"one",
        "/abs/two.bin": b"two",
        "inner/three.bin": None,
    }
    server.files["set.tar.gz"] = archive(members)
    folder = tmp_path / "in"
    fetch_files([server.remote("set.tar.gz", members=("one.bin", "two.bin"))], folder)
    assert names(folder) == ["one.bin", "set.tar.gz", "two.bin"]
    assert names(tmp_path) == ["in"]
    assert ((folder / "one.bin").read_bytes(), (folder / "two.bin").read_bytes()) == (b"one", b"two")
    with pytest.raises(InputError, match=r"has no four\.bin; remove it"):
        fetch_files([server.remote("set.tar.gz", members=("four.bin",))], folder)
    (folder / "one.bin").unlink()
    fetch_files([server.remote("set.tar.gz", members=("one.bin",))], folder)
    assert (folder / "one.bin").read_bytes() == b"one"


def test_a_damaged_archive_is_named(tmp_path, server):
    server.files["set.tar.gz"] = archive({"one.bin": CONTENT})[:-5000]
    with pytest.raises(InputError, match=r"set\.tar\.gz is damaged"):
        fetch_files([server.remote("set.tar.gz", members=("one.bin",))], tmp_path)
    assert names(tmp_path) == ["set.tar.gz"]


def test_the_command_fetches_and_then_partitions(tmp_path, server, monkeypatch, capsys):
    x, y = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2
    for name, array in (("x.npy", x), ("y.npy", y)):
        stream = io.BytesIO()
        np.save(stream, array)
        server.files[name] = stream.getvalue()
    monkeypatch.setitem(KNOWN, "npy", [server.remote("x.npy"), server.remote("y.npy")])
    assert (
        command(
            "partition",
            "npy",
            "--fetch",
            "--data",
            tmp_path / "in",
            "--out",
            tmp_path / "out",
            "--scheme",
            "iid",
            "--silos",
            "4",
        )
        == 0
    )
    assert "4 silos, 20 examples" in capsys.readouterr().out
    assert command("partition", "npz", "--fetch", "--out", str(tmp_path / "o"), "--scheme", "iid") == 2
    assert "--fetch: has no address for 'npz'; did you mean 'npy'? it knows mnist" in capsys.readouterr().err


@pytest.mark.parametrize("name", KNOWN)
def test_the_table_of_known_sets_is_well_formed(name):
    for remote in KNOWN[name]:
        assert re.fullmatch(r"https?://[^ ]+/[\w.-]+", remote.url)
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", remote.digest)
        assert remote.size > 1000


DATA = os.environ.get("MPIFL_DATA", "no-data-folder")


@pytest.mark.parametrize("name", [name for name in KNOWN if not name.startswith("cifar")])
def test_the_real_files_are_those_of_the_table(name, monkeypatch):
    folder = module.Path(DATA) / name
    if not folder.is_dir():
        pytest.skip(f"set MPIFL_DATA to a folder that has {name}/")
    monkeypatch.setattr(module.urllib.request, "urlopen", lambda *_, **__: pytest.fail("asked the publisher"))
    fetch_files(KNOWN[name], folder)
