"""Download a known data set from its publisher: resumed where it stopped,
checked, and there whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from data_prep.sources.known import KNOWN, Remote
from data_prep.sources.reading import known_folder
from mpifl.common import InputError, choices, write_atomic

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ATTEMPTS = 5
TIMEOUT = 30.0  # seconds without a byte
PIECE = 1 << 18
# urllib's URLError is an OSError, as are timeouts and broken connections
AGAIN = (OSError, http.client.HTTPException)
Advance = Callable[[int], None]
"""Is told how many bytes of a file are there."""


def fetch(name: str, data: Path | None) -> Path:
    """Download a known set into the folder given, or `$MPIFL_DATA/<name>`, and return that; what is there
    stays.

    Raises:
        InputError: the set is not known, a download fails or does not match its checksum, or the disk is
            full.
    """
    if name not in KNOWN:
        raise InputError(f"--fetch: has no address for '{name}'; {choices(name, KNOWN, 'it knows')}")
    folder = known_folder(name, data, "that is to hold it")
    fetch_files(KNOWN[name], folder)
    return folder


def fetch_files(files: Sequence[Remote], folder: Path) -> None:
    """Download files into a folder, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    ]
    console = Console(stderr=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Progress(
            *columns, TimeRemainingColumn(), console=console, disable=not sys.stderr.isatty()
        ) as progress:
            for remote in files:
                task = progress.add_task(f"Fetching {remote.name}", total=remote.size)
                _fetch_one(remote, folder, partial(_advance, progress, task))
    except OSError as error:
        raise InputError(
            f"--fetch: {folder} cannot be written ({error.strerror or error}); name another"
        ) from None


def _advance(progress: Progress, task: TaskID, there: int) -> None:
    progress.update(task, completed=there)


def _fetch_one(remote: Remote, folder: Path, advance: Advance) -> None:
    path = folder / remote.name
    if not path.exists():
        _download(remote, path, advance)
    elif problem := _problem(path, remote):
        raise InputError(f"--fetch: {path} is there, but {problem}; remove it, or name another folder")
    advance(remote.size)
    if remote.members:
        _unpack(path, remote.members)


def _download(remote: Remote, path: Path, advance: Advance) -> None:
    """Download into a file aside, which stays to be resumed if that is interrupted,
    and rename it when it is right."""
    aside = path.with_name(f".{path.name}.part")
    resumed = aside.exists()
    _transfer(remote, aside, advance)
    problem = _problem(aside, remote)
    if problem and resumed:  # the part may have been of another file
        aside.unlink()
        _transfer(remote, aside, advance)
        problem = _problem(aside, remote)
    if problem:
        aside.unlink()
        raise InputError(f"--fetch: {remote.url}: {problem}; try again later, or get {path.name} elsewhere")
    os.replace(aside, path)


def _transfer(remote: Remote, aside: Path, advance: Advance) -> None:
    """Append to a file until it is as long as promised;
    a connection that breaks is taken up again a few times."""
    reason = "the connection ends too early"
    for attempt in range(ATTEMPTS):
        try:
            _append(remote, aside, advance)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 416, 429):
                raise InputError(
                    f"--fetch: {remote.url}: {error.code} {error.reason}; get the file elsewhere"
                ) from None
            if error.code == 416:
                aside.unlink(missing_ok=True)  # the server's file ends before the part does
            reason = f"{error.code} {error.reason}"
        except _Unwritable as error:
            raise error.cause from None
        except AGAIN as error:
            reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        if aside.exists() and aside.stat().st_size >= remote.size:
            return
        time.sleep(0.1 * 2**attempt)
    there = aside.stat().st_size if aside.exists() else 0
    what = f"{there:,} of {remote.size:,} bytes after {ATTEMPTS} attempts ({reason})"
    raise InputError(f"--fetch: {remote.url}: {what}; run it again to go on from there")


class _Unwritable(Exception):
    """The disk, not the network, refused: there is no use in another attempt."""

    def __init__(self, cause: OSError) -> None:
        self.cause = cause


def _append(remote: Remote, aside: Path, advance: Advance) -> None:
    """Ask once for what is missing, and add what comes; at most a byte more than is promised."""
    there = aside.stat().st_size if aside.exists() else 0
    if there >= remote.size:
        return
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={there}-"} if there else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != 206 or not _continues(answer.headers.get("Content-Range", ""), there):
            there = 0  # the server knows no ranges and sends the whole file
        with _opened(aside, "ab" if there else "wb") as file:
            while there <= remote.size and (piece := answer.read(min(PIECE, remote.size + 1 - there))):
                try:
                    file.write(piece)
                except OSError as error:
                    raise _Unwritable(error) from None
                advance(there := there + len(piece))


def _opened(path: Path, mode: Literal["ab", "wb"]) -> FileIO:
    try:
        return FileIO(path, mode, opener=_not_through_a_link)
    except OSError as error:
        raise _Unwritable(error) from None


def _not_through_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _continues(content_range: str, there: int) -> bool:
    return content_range.replace("=", " ").startswith(f"bytes {there}-")


def _problem(path: Path, remote: Remote) -> str:
    """Say what is wrong with a file, or nothing."""
    if (size := path.stat().st_size) != remote.size:
        return f"it is longer than {remote.size:,} bytes" if size > remote.size else f"it has {size:,} bytes"
    algorithm, _, wanted = remote.digest.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return "" if digest.hexdigest() == wanted else f"its {algorithm} is {digest.hexdigest()}, not {wanted}"


def _unpack(archive: Path, members: Sequence[str]) -> None:
    """Unpack the named regular files of a tar archive beside it,
    and nothing else, wherever it would put them."""
    missing = [name for name in members if not (archive.parent / name).is_file()]
    if not missing:
        return
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                if name in missing and (content := tar.extractfile(member)) is not None:
                    write_atomic(archive.parent / name, content.read())
                    missing.remove(name)
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"--fetch: {archive} is damaged ({error}); remove it, and fetch it again") from None
    if missing:
        raise InputError(f"--fetch: {archive} has no {missing[0]}; remove it, and fetch it again")
