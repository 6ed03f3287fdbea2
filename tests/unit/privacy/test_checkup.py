"""What is found in a site's folder, and that nothing is made or changed there."""

from __future__ import annotations

import os

import pytest

from mpifl.cli.doctor.site_check import checkup, mark_of
from mpifl.wings.privacy import open_site
from mpifl.wings.site import make_identity

LINE = '{"question": "q", "answer": "a", "silo": "s", "shard": "d", "taken": []}\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    open_site()
    return tmp_path / "site"


def files(folder):
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in folder.iterdir()}


def test_a_folder_that_is_whole_has_nothing_to_tell_and_stays_as_it_is(folder):
    (folder / "ledger.jsonl").write_text(LINE)
    (folder / "budget.toml").write_text("epsilon = 1.0\ndelta = 1e-5\n")
    sites = make_identity(folder, "north").listing(["a"])
    (folder / "sites.toml").write_text(sites)
    before = files(folder)
    assert checkup(folder, ["a"]) == []
    assert files(folder) == before
    assert checkup(folder.parent / "none") == [
        ("note", f"{folder.parent / 'none'}: is not there; the first training that needs it makes it")
    ]
    assert not (folder.parent / "none").exists()


def test_a_mark_tells_sites_apart_and_nothing_of_the_key(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "other"))
    open_site()
    assert mark_of(folder) != mark_of(tmp_path / "other")
    assert mark_of(folder) not in (folder / "key").read_bytes().hex()
    (folder / "key").rename(tmp_path / "moved")
    assert mark_of(folder) == ""


def mode(name, bits):
    return lambda folder: (folder / name).chmod(bits)


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def without_key(folder):
    (folder / "ledger.jsonl").write_text(LINE)
    (folder / "key").unlink()


def listed_otherwise(folder):
    (folder / "sites.toml").write_text(make_identity(folder.parent, "north").listing(["a"]))
    make_identity(folder, "north")


WRONG = {
    "open folder": (
        lambda folder: folder.chmod(0o750),
        "bad",
        "has mode 0750, others may look in",
    ),
    "open key": (mode("key", 0o644), "warning", "key: has mode 0644, not 0600; chmod 600"),
    "short key": (text("key", "short"), "bad", "key: has 5 bytes, not 32; put the right one back"),
    "no key": (
        without_key,
        "bad",
        "has ledger.jsonl and no key, by which it has drawn noise and sealed states",
    ),
    "ledger": (
        text("ledger.jsonl", LINE + "{}\n"),
        "bad",
        "line 2 is not a line of a ledger; put back a copy",
    ),
    "torn": (text("ledger.jsonl", LINE + LINE[:9]), "note", "ledger.jsonl: its last line is torn"),
    "released": (text("released.jsonl", "no\n"), "bad", "released.jsonl: line 1 is not a line of a ledger"),
    "budget": (text("budget.toml", "epsilon = -1\n"), "bad", "budget.toml: epsilon"),
    "no toml": (text("budget.toml", "="), "bad", "budget.toml"),
    "sites": (text("sites.toml", "[[site]]\n"), "bad", "sites.toml: site.1.name: is missing"),
    "no identity": (
        text("sites.toml", f'[[site]]\nname = "n"\nsilos = ["a"]\nkey = "{"0" * 64}"\n'),
        "warning",
        "identity.key: is not there; make this site's key by `mpifl identity make`",
    ),
    "another key": (listed_otherwise, "warning", "put in what `mpifl identity show` prints"),
    "link": (lambda f: (f / "ledger.jsonl").symlink_to(f / "key"), "bad", "ledger.jsonl: cannot be read"),
}


@pytest.mark.parametrize(("harm", "state", "line"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_in_a_line(folder, harm, state, line):
    harm(folder)
    (found,) = checkup(folder, ["a"])
    assert found[0] == state
    assert line in found[1]


def test_an_identity_that_others_may_read_is_bad_and_an_unknown_silo_is_named(folder):
    (folder / "sites.toml").write_text(make_identity(folder, "north").listing(["a"]))
    ((state, said),) = checkup(folder, ["b"])
    assert (state, said.partition(": ")[2]) == (
        "warning",
        "no site has the silo 'b'; add it to the silos of its site",
    )
    (folder / "identity.key").chmod(0o640)
    ((state, said),) = checkup(folder, ["a"])
    assert (state, "has mode 0640, others may read it; chmod 600" in said) == ("bad", True)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_said(folder):
    (folder / "ledger.jsonl").write_text(LINE)
    (folder / "ledger.jsonl").chmod(0)
    assert checkup(folder) == [("bad", f"{folder / 'ledger.jsonl'}: cannot be read (Permission denied)")]
