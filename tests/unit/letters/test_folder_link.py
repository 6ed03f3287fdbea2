"""A folder that others write to: whatever lies there, plain files of the other side are read, and no more."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from links.two_ends import COORDINATOR, TwoEnds, ask, records, vectors

from mpifl.common import InputError
from mpifl.wings.sites.letters import FolderLink, NotThere, folder_link

NAME = "000007-ask.msg"


@pytest.fixture
def ends(tmp_path) -> TwoEnds:
    made = TwoEnds(tmp_path)
    made.coordinator.dispatch(7, ask(), vectors())
    return made


def test_other_names_are_ignored_on_either_side(ends):
    for side in (ends.up, ends.down):
        side.mkdir(exist_ok=True)
        for name in (
            *(
                "²²²²²².msg",
                "000008-ask (conflict copy 2).msg",
                "000008-ASK.msg",
                "000008-foo.msg",
                "8-ask.msg",
            ),
            *(
                ".000008-ask.msg",
                "000008-ask.msg.tmp",
                "٠٠٠٠٠٨-ask.msg",
                "000008-ask.msg\n",
                "000008-ask-x.part",
            ),
        ):
            (side / name).write_bytes(b"x")
        (side / os.fsdecode(b"\xff.msg")).write_bytes(b"x")
    assert ends.site.newest("ask").n == 7
    ends.coordinator.forget(99)
    assert len([*ends.down.iterdir()]) == 11
    assert TwoEnds(ends.folder).site.newest("ask") is None


def test_pipes_links_folders_and_endless_files_are_not_read(ends, tmp_path):
    (whole := ends.down / NAME).rename(tmp_path / "elsewhere")
    os.mkfifo(ends.down / "000011-ask.msg")
    (ends.down / "000012-ask.msg").symlink_to(tmp_path / "elsewhere")
    (ends.down / "000013-ask.msg").symlink_to("/dev/zero")
    (ends.down / "000014-ask.msg").mkdir()
    with (ends.down / "000015-ask.msg").open("wb") as file:
        file.truncate(3 << 30)  # a sparse file
    with (ends.down / "000016-ask.msg").open("wb") as file:
        file.write(b"MPIFLS01\xff\xff\xff\xff")
        file.truncate(10 << 30)
    assert sorted(TwoEnds(tmp_path).site._link.names())[-2:] == ["000015-ask.msg", "000016-ask.msg"]
    assert ends.site.newest("ask") is None
    for n in range(11, 15):
        with pytest.raises(NotThere):
            ends.site._link.get(f"{n:06d}-ask.msg", 0, 10)
    (tmp_path / "elsewhere").rename(whole)
    assert TwoEnds(tmp_path).site.newest("ask").n == 7


def test_a_planted_link_leads_to_no_file_of_the_user(ends, tmp_path):
    own = tmp_path / "thesis.tex"
    own.write_text("mine")
    names = [path.name for path in ends.down.iterdir()]
    for name in names:
        (ends.down / name).unlink()
        (ends.down / name).symlink_to(own)
        (ends.down / f".{name}.partial").symlink_to(own)
    ends.coordinator.newest("answer")
    assert own.read_text() == "mine"
    assert ends.site.newest("ask").n == 7
    assert not [path for path in ends.down.iterdir() if path.is_symlink()]


@pytest.mark.parametrize("place", ["up", "site"])
@pytest.mark.parametrize("planted", ["file", "link"])
def test_what_lies_in_the_place_of_a_folder_is_told_and_waited_for(tmp_path, place, planted):
    """Whoever holds the folder ended a party by it; nothing is written through a link."""
    ends, mine = TwoEnds(tmp_path), tmp_path / "mine"
    mine.mkdir()
    ends.up.parent.mkdir()
    at = ends.up if place == "up" else ends.up.parent
    if place == "site":
        at.rmdir()
    at.write_text("") if planted == "file" else at.symlink_to(mine)
    ends.site.dispatch(7, records()["answer"], vectors())
    assert ends.site.newest("ask") is None
    told = "it or its parent is no folder; remove what lies there, and letters go on"
    assert ends.lines == [f"{ends.up}: {told}"]
    assert [*mine.iterdir()] == []
    at.unlink()
    ends.site.newest("ask")
    assert ends.coordinator.newest("answer").n == 7


@pytest.mark.parametrize("name", ["000007-answer.msg", ".000007-answer.msg.partial"])
def test_a_folder_in_the_place_of_a_letter_is_told_and_waited_for(tmp_path, name):
    """It ended the party by "cannot be written (Is a directory)"."""
    ends = TwoEnds(tmp_path)
    (ends.up / name / "full").mkdir(parents=True)
    ends.site.dispatch(7, records()["answer"], vectors())
    assert ends.site.newest("ask") is None
    what = "a folder lies in its place; remove it, and letters go on"
    assert ends.lines == [f"{ends.up / '000007-answer.msg'}: {what}"]
    shutil.rmtree(ends.up / name)
    ends.site.newest("ask")
    assert ends.coordinator.newest("answer").n == 7


def test_a_full_link_is_told_and_waited_for(tmp_path, monkeypatch):
    """It ended the party; the folder of a synchroniser is full for minutes, and sites wait for hours."""
    ends, write, room = TwoEnds(tmp_path), folder_link.write_cached, [False]

    def full(file, content):
        if not room[0] and ends.up in Path(f"/proc/self/fd/{file}").readlink().parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, content)

    monkeypatch.setattr(folder_link, "write_cached", full)
    ends.site.dispatch(7, records()["answer"], vectors())
    assert ends.site.newest("ask") is None
    assert [*ends.up.iterdir()] == []
    assert len(ends.lines) == 1
    assert "cannot be written (No space left on device); make room, and letters go on" in ends.lines[0]
    room[0] = True
    ends.site.newest("ask")
    assert ends.coordinator.newest("answer").n == 7


def test_a_link_that_is_read_only_for_a_while_is_told_and_waited_for():
    """It ended the site, whose answer was made."""
    base = Path(tempfile.mkdtemp())
    try:
        with ordinary_user(base):
            ends = TwoEnds(base)
            ends.site.dispatch(6, records()["answer"], vectors())
            for folder in (ends.up, ends.up.parent):
                folder.chmod(0o500)
            ends.site.dispatch(7, records()["answer"], vectors())
            assert [ends.site.newest("ask") for _ in range(3)] == [None] * 3
            line = "cannot be written (Permission denied); let this user write there, and letters go on"
            assert [line in one for one in ends.lines] == [True]
            assert ends.coordinator.newest("answer").n == 6
            ends.up.chmod(0o700)
            ends.site.newest("ask")
            assert ends.coordinator.newest("answer").n == 7
            (ends.folder / "outbox-graz-bern-abab" / "000007-answer.msg").chmod(0)
            with pytest.raises(InputError, match=r"cannot be written \(Permission denied\)"):
                TwoEnds(base).site.put_again(7, "answer")
    finally:
        shutil.rmtree(base)


@contextmanager
def ordinary_user(folder):
    """Have no rights but those of a user whose folder it is: root may write anywhere."""
    if root := os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0) if root else None


def test_a_file_of_a_file_system_without_rename_is_written_at_once(tmp_path, monkeypatch):
    ends = TwoEnds(tmp_path)

    def refused(*given, **more):
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(folder_link.os, "rename", refused)
    sealed = ends.coordinator.dispatch(7, ask(), vectors())
    assert sorted(path.name for path in ends.down.iterdir()) == sorted(sealed.files)
    assert ends.site.newest("ask").n == 7


@pytest.mark.parametrize("gone", ["partial", "letter", "folder", "always"])
def test_what_vanishes_while_it_is_written_is_written_again(tmp_path, monkeypatch, gone):
    """It ended the coordinator with "cannot be written (No such file or directory)"."""
    ends, rename, times = TwoEnds(tmp_path), os.rename, [0]

    def renamed(aside, name, **at):
        times[0] += 1
        if times[0] > 2 and gone != "always":
            return rename(aside, name, **at)
        if gone == "letter":
            rename(aside, name, **at)
            (ends.down / name).unlink()
            return None
        (ends.down / aside).unlink()
        if gone == "folder":
            shutil.rmtree(ends.down.parent)
        return rename(aside, name, **at)

    monkeypatch.setattr(folder_link.os, "rename", renamed)
    if gone == "always":
        with pytest.raises(InputError, match=r"cannot be written \(No such file"):
            ends.coordinator.dispatch(7, ask(), vectors())
        assert times[0] < 100
        return
    ends.coordinator.dispatch(7, ask(), vectors())
    ends.coordinator.newest("answer")
    assert ends.site.newest("ask").n == 7


def test_what_is_there_is_not_written_again_and_what_differs_is(ends):
    before = {path: path.stat().st_ino for path in ends.down.iterdir()}
    for mailbox in (ends.coordinator, TwoEnds(ends.folder).coordinator):
        assert mailbox.put_again(7, "ask")
        assert {path: path.stat().st_ino for path in ends.down.iterdir()} == before
    whole = (ends.down / NAME).read_bytes()
    for later, harmed in enumerate((b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), whole + b"x"), 1):
        (ends.down / NAME).write_bytes(harmed)
        os.utime(ends.down / NAME, (later, later))  # a clock of files may stand still for 10 ms
        ends.coordinator.newest("answer")
        assert (ends.down / NAME).read_bytes() == whole


def test_what_a_power_failure_leaves_on_the_link_is_written_whole_at_the_next_start(ends):
    """A link is not flushed: blocks may be zero, cut or away, whatever the names and sizes say."""
    files = {path: path.read_bytes() for path in ends.down.iterdir()}
    assert len(files) > 1
    for harm in (lambda whole: bytes(len(whole)), lambda whole: whole[: len(whole) // 2], lambda whole: b""):
        for path, whole in files.items():
            path.write_bytes(harm(whole))
        again = TwoEnds(ends.folder)
        assert again.site.newest("ask", after=6) is None
        assert again.coordinator.put_again(7, "ask")
        assert {path: path.read_bytes() for path in ends.down.iterdir()} == files
        assert again.site.newest("ask", after=6).n == 7


@pytest.fixture
def ready(tmp_path):
    """A coordinator that has sealed an ask of one piece."""
    ends = TwoEnds(tmp_path)
    return ends, ends.coordinator.seal(8, ask(), vectors())


def test_a_piece_lies_aside_until_its_letter_is_put_and_is_not_written_twice(ready):
    ends, sealed = ready
    (aside,) = ends.down.iterdir()
    assert aside.name == f".{sealed.parts[0]}.partial"
    assert ends.site._link.names() == {}
    sealed = ends.coordinator.seal(8, ask(), vectors())  # in the place of the one before
    (aside,) = ends.down.iterdir()
    assert aside.name == f".{sealed.parts[0]}.partial"
    inode = aside.stat().st_ino
    ends.coordinator.put(sealed)
    assert (ends.down / sealed.parts[0]).stat().st_ino == inode
    assert sorted(path.name for path in ends.down.iterdir()) == sorted(sealed.files)
    assert ends.site.newest("ask").n == 8


def test_no_byte_of_a_site_is_on_the_link_before_it_is_noted(tmp_path):
    ends, noted = TwoEnds(tmp_path), list[str]()

    def note(sealed, about):
        assert [*ends.up.iterdir()] == []
        if noted:
            raise InputError("sent.jsonl: cannot be written")
        noted.append(sealed.sha256)

    ends.site._leaves = note
    ends.up.mkdir(parents=True, exist_ok=True)
    sealed = ends.site.seal(7, records()["answer"], vectors())
    ends.site.put(sealed)
    assert noted == [sealed.sha256]
    assert ends.coordinator.newest("answer").n == 7
    for path in ends.up.iterdir():
        path.unlink()
    with pytest.raises(InputError):
        ends.site.put(ends.site.seal(9, records()["answer"], vectors()))
    assert [*ends.up.iterdir()] == []


@pytest.mark.parametrize("how", ["changed", "away", "another file"])
def test_a_piece_that_someone_harms_before_it_is_put_comes_from_the_private_folder(ready, how):
    ends, sealed = ready
    (aside,) = ends.down.iterdir()
    whole = aside.read_bytes()
    if how == "changed":
        os.utime(aside, ns=(1, 1))  # clocks of file systems are coarse
        aside.write_bytes(bytes(len(whole)))
    else:
        aside.unlink()
    if how == "another file":
        aside.write_bytes(bytes(len(whole)))
    ends.coordinator.put(sealed)
    assert (ends.down / sealed.parts[0]).read_bytes() == whole
    assert ends.site.newest("ask").n == 8


def test_partial_files_of_a_killed_writer_are_removed_at_the_start(ends):
    left = ends.down / f".{NAME}.partial"
    left.write_bytes(b"half")
    foreign = ends.down / ".notes.partial"
    foreign.write_bytes(b"")
    TwoEnds(ends.folder)
    assert foreign.exists()
    assert not left.exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    missing = FolderLink(tmp_path / "away", COORDINATOR.public, "down")
    with pytest.raises(InputError, match=r"away/.*: cannot be written \(No such file or directory\)"):
        missing.put(NAME, Path(__file__))
    assert missing.names() == {}
