"""What a site keeps for itself: its secret, its own budget, and a ledger of all that was asked of its data.

They lie in the folder that `MPIFL_SITE` names, which others cannot look into. A line of the ledger is on the
disk before its answer leaves, and no line is ever changed.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpifl.common import InputError, read_toml
from mpifl.privacy.accountant import Steps

VARIABLE = "MPIFL_SITE"
SECRET_BYTES = 32


class Entry(BaseModel):
    """A line of the ledger: a question that was answered, and what that cost.

    Attributes:
        question: The digest of all that the answer follows from, but the secret.
        answer: The digest of the answer.
        silo: The name of the silo.
        shard: The sha256 of its shard.
        job: The job's name.
        run: A digest of the job.
        round: Rounds done before it.
        taken: The steps: (noise, rate, count) each.
        total: Steps of the silo in this run, these included.
        left: How many more questions like it the budget allows; None without a budget.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    question: str
    answer: str
    silo: str
    shard: str
    job: str = ""
    run: str = ""
    round: int = 0
    taken: list[tuple[float, float, int]]
    total: int = 0
    left: int | None = None

    @property
    def steps(self) -> list[Steps]:
        """What was taken."""
        return [Steps(*one) for one in self.taken]


class Budget(BaseModel):
    """`budget.toml`: what the site itself allows, whatever a job says."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)


class Site:
    """The site's folder, opened.

    Args:
        folder: Where it lies.
        named: What it is called in errors; by default by the variable that names it.

    Attributes:
        folder: Where it lies.
        secret: Bytes that nobody else knows.
        budget: The site's own, if it has one.
    """

    def __init__(self, folder: Path, named: str = "") -> None:
        self.folder = folder
        _own(folder, named or f"{VARIABLE}={folder}")
        self._ledger = folder / "ledger.jsonl"
        self.secret = _secret(folder / "key", self._ledger)
        own = folder / "budget.toml"
        self.budget = budget_of(own) if own.exists() else None
        self._known: list[Entry] = []
        self._answered: dict[str, Entry] = {}
        self._read = 0
        self._held: int | None = None
        """The open ledger, while it is locked."""

    def answered(self, question: str) -> Entry | None:
        """Return what the ledger says of a question."""
        self._catch_up()
        return self._answered.get(question)

    def entries(self, silo: str = "", shard: str = "") -> list[Entry]:
        """Return all lines of a silo, known by its name or its shard; without either all that there are."""
        self._catch_up()
        everything = not (silo or shard)

        def of_silo(one: Entry) -> bool:
            return one.shard == shard or (one.silo == silo and bool(silo))

        return [one for one in self._known if everything or of_silo(one)]

    def record(self, make: Callable[[], Entry]) -> None:
        """Write a line, and return when it is on the disk.

        Args:
            make: Makes the line of what the ledger holds, while no other process can write there.

        Raises:
            InputError: it cannot be written.
        """
        try:
            with self._locked() as file:
                self._take_in(file)
                entry = make()
                os.ftruncate(file, self._read)  # what a crash has torn: its answer never left
                os.lseek(file, 0, os.SEEK_END)
                line = entry.model_dump_json().encode() + b"\n"
                if os.write(file, line) != len(line):
                    raise OSError("the disk is full")
                os.fsync(file)
                self._take_in(file)
        except OSError as error:
            why = f"{error.strerror or error}"
            raise InputError(f"{self._ledger}: cannot be written ({why}); nothing is answered") from None

    def _catch_up(self) -> None:
        if self._ledger.exists():
            with self._locked() as file:
                self._take_in(file)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lend the ledger to one process at a time."""
        if self._held is not None:
            yield self._held
            return
        new = not self._ledger.exists()
        file = os.open(self._ledger, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if new:
                _fsync_folder(self.folder)
            self._held = file
            yield file
        finally:
            self._held = None
            os.close(file)

    def _take_in(self, file: int) -> None:
        """Read the whole lines that came since."""
        size = os.fstat(file).st_size
        if size < self._read:
            raise InputError(
                f"{self._ledger}: is shorter than it was; lines of a ledger are never taken away"
            )
        fresh = os.pread(file, size - self._read, self._read)
        for line in fresh[: fresh.rfind(b"\n") + 1].splitlines(keepends=True):
            self._read += len(line)
            try:
                entry = Entry.model_validate_json(line)
            except ValidationError:
                nth = len(self._known) + 1
                what = f"line {nth} is none of a ledger; put back a copy that is whole"
                raise InputError(f"{self._ledger}: {what}") from None
            self._known.append(entry)
            self._answered[entry.question] = entry


def open_site() -> Site:
    """Open the folder that MPIFL_SITE names; it is made if it is not there.

    Raises:
        InputError: the variable is not set, or the folder is not the user's own.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        what = f"{VARIABLE} names no folder for this site's secret and its ledger"
        raise InputError(f"[privacy]: {what}; set it, such as {VARIABLE}=$HOME/mpifl-site, and keep it")
    return Site(Path(named).expanduser())


def budget_of(path: Path) -> Budget:
    """Read a site's own budget.

    Raises:
        InputError: it is none.
    """
    try:
        return Budget.model_validate(read_toml(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {key}: {first['msg']}; it takes epsilon and delta") from None


def site_of_worker(protected: bool) -> Site | None:
    """Return this worker's site where a job is protected; see that a site with a budget has no other.

    Raises:
        InputError: the site allows only jobs that keep to its budget.
    """
    if protected:
        return open_site()
    named = os.environ.get(VARIABLE)
    if named and (Path(named).expanduser() / "budget.toml").exists():
        what = f"{named} has a budget.toml, and the job has no [privacy] with noise at the silos"
        raise InputError(f"{what}; give it one, or start this site without {VARIABLE}")
    return None


def _own(folder: Path, named: str) -> None:
    """See that a folder is there and nobody else's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise InputError(f"{named}: {error.strerror or error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InputError(f"{named}: is no folder of yours; name one that is")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise InputError(f"{named}: has mode {mode}, others may look in; chmod 700 {folder}")


def _secret(path: Path, ledger: Path) -> bytes:
    """Return the site's secret; it is made once, and whole when it is there."""
    if not path.exists():
        if ledger.exists():
            what = "has a ledger and no key, so its noise cannot be drawn again"
            raise InputError(f"{path.parent}: {what}; put the key back, or begin with an empty folder")
        draft = path.with_name(f"key.{os.urandom(8).hex()}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, os.urandom(SECRET_BYTES))
            os.fsync(file)
        finally:
            os.close(file)
        try:
            os.link(draft, path)  # which fails where another rank was first
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        _fsync_folder(path.parent)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise InputError(f"{path}: has {len(secret)} bytes, not {SECRET_BYTES}; put the right one back")
    return secret


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
