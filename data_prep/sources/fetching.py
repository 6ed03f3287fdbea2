"""Download a known data set from its publisher: checked, and there whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.sources.known import KNOWN, Remote
from data_prep.sources.reading import known_folder
from mpifl.common import InputError, choices, write_atomic

ATTEMPTS = 5
TIMEOUT = 30.0  # seconds without a byte
PIECE = 1 << 18


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
    """Download files into a folder; those that are there are checked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for remote in files:
            path = folder / remote.name
            if not path.exists():
                print(f"fetching {remote.url}, {remote.size / 1e6:.1f} MB", file=sys.stderr)
                _download(remote, path)
            elif problem := _problem(path, remote):
                raise InputError(f"--fetch: {path} is there, but {problem}; remove it, or name another")
            if remote.members:
                _unpack(path, remote.members)
    except OSError as error:
        raise InputError(
            f"--fetch: {folder} cannot be written ({error.strerror or error}); name another"
        ) from None


class _Broken(Exception):
    """The network, not the disk, refused: another attempt may do."""


def _download(remote: Remote, path: Path) -> None:
    """Download into a file aside, and rename it when it is right; a broken connection is begun again a few
    times."""
    aside = path.with_name(f".{path.name}.part")
    aside.unlink(missing_ok=True)
    reason = ""
    try:
        for attempt in range(ATTEMPTS):
            with open(aside, "wb", opener=_not_through_a_link) as file:
                try:
                    for piece in _pieces(remote):
                        file.write(piece)
                except _Broken as broken:
                    reason = str(broken)
                    time.sleep(0.1 * 2**attempt)
                    continue
            if problem := _problem(aside, remote):
                raise InputError(f"--fetch: {remote.url}: {problem}; get {path.name} elsewhere")
            os.replace(aside, path)
            return
    finally:
        aside.unlink(missing_ok=True)
    raise InputError(f"--fetch: {remote.url}: {reason} in {ATTEMPTS} attempts; try again later")


def _pieces(remote: Remote) -> Iterator[bytes]:
    """Yield what a publisher sends, at most a byte more than is promised.

    Raises:
        InputError: it refuses.
        _Broken: the connection does not hold, or the publisher is in trouble.
    """
    there = 0
    try:
        with urllib.request.urlopen(remote.url, timeout=TIMEOUT) as answer:
            while there <= remote.size and (piece := answer.read(min(PIECE, remote.size + 1 - there))):
                there += len(piece)
                yield piece
    except urllib.error.HTTPError as error:
        if error.code < 500 and error.code not in (408, 429):
            said = f"{error.code} {error.reason}"
            raise InputError(f"--fetch: {remote.url}: {said}; get the file elsewhere") from None
        raise _Broken(f"{error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError, as timeouts are
        raise _Broken(str(getattr(error, "reason", None) or error or type(error).__name__)) from None
    if there < remote.size:
        raise _Broken(f"{there:,} of {remote.size:,} bytes")


def _not_through_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


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
