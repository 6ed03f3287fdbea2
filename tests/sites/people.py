"""Unix users of one machine, each in folders that no other may read, and the commands that they type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, launcher

USERS = {"bern": 2101, "north": 2102, "south": 2103, "west": 2104, "copier": 2105}
COORDINATOR = "bern"
PATIENCE = 300


class People:
    """A coordinator and sites, each in a folder of mode 0700, and a copier that reads none of these.

    Letters lie beside: the copier may read what a party writes there, and the party what the copier brings.

    Args:
        base: A folder that all may enter.
        shards: The shards of all.
        sites: The silos of each site.
        python: A Python that other users can start.
    """

    def __init__(self, base: Path, shards: Path, sites: Mapping[str, Sequence[str]], python: Path) -> None:
        self.base, self.sites, self._python = base, sites, python
        self._pairs: list[Path] = []
        spec = json.loads((shards / "federation.json").read_text())
        for name in (COORDINATOR, *sites):
            home = base / name
            for room in ("site", "shards", "tmp"):
                (home / room).mkdir(parents=True)
            files = [one["file"] for one in spec["silos"] if one["name"] in sites.get(name, ())]
            files += [spec["public"]["file"], *([spec["test"]["file"]] if name == COORDINATOR else [])]
            for file in ("federation.json", *files):
                shutil.copy(shards / file, home / "shards")
            _own(home, USERS[name])
            (base / f"link-{name}").mkdir()
            os.chown(base / f"link-{name}", USERS[name], USERS["copier"])
            (base / f"link-{name}").chmod(0o750)

    def environment(self, name: str) -> dict[str, str]:
        """Return what the commands of a user see."""
        home = self.base / name
        own = self._python.parent
        return {
            "PATH": f"{own}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(own.parent / "base" / "lib"),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "MPIFL_SITE": str(home / "site"),
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def command(self, *words: object) -> list[str]:
        """Return a command of mpifl."""
        return [str(self._python), "-m", "mpifl", *map(str, words)]

    def start(self, name: str, *words: object, ranks: int = 1) -> subprocess.Popen[bytes]:
        """Start a command of a user, as at a terminal of its own."""
        mpi = [word for word in launcher() if word != "--allow-run-as-root"]
        command = [*([*mpi, "-n", str(ranks)] if ranks > 1 else []), *self.command(*words)]
        shared = {"OMPI_MCA_btl_sm_backing_directory": str(self.base / name / "tmp")}
        return self._popen(name, command, self.base / name, shared)

    def _popen(
        self, name: str, command: Sequence[str], cwd: Path, more: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        who = {"user": USERS[name], "group": USERS[name], "extra_groups": []}
        with (self.base / f"said-{name}").open("w") as out:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            env = self.environment(name) | more
            return subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True, **pipes, **who)

    def said(self, name: str, *words: object) -> str:
        """Return what a command of a user prints."""
        return self.end(name, self.start(name, *words))

    def end(self, name: str, process: subprocess.Popen[bytes], seconds: float = PATIENCE) -> str:
        """Wait until a command has ended well, and return what it printed."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, "\n".join(
            f"{one.name}: {one.read_text()[-1500:]}" for one in self.base.glob("said-*")
        )
        return (self.base / f"said-{name}").read_text()

    def link(self, name: str) -> Path:
        return self.base / f"link-{name}"

    def agree(self, job: Path, shards: Path) -> None:
        """Make keys, the invitation and the consents, by the commands of each."""
        for name in (COORDINATOR, *self.sites):
            self.said(name, "identity", "make", name)
        entries = {name: self._entry(name) for name in self.sites}
        home, uid = self.base / COORDINATOR, USERS[COORDINATOR]
        (home / "sites.toml").write_text("".join(entries.values()))
        (home / "job.toml").write_text(job.read_text().replace(str(shards), str(home / "shards")))
        _own(home, uid)
        where = ("--sites", "sites.toml", "--link", self.link(COORDINATOR), "--out", "run")
        told = self.said(COORDINATOR, "sites", "init", "job.toml", *where)
        key = told.partition("Your key: ")[2].split(";")[0]
        for name, entry in entries.items():
            self._join_folders(name, entry.partition('key = "')[2][:16])
            self.said(name, "consent", self.link(name), "--coordinator", key, "--yes")

    def _entry(self, name: str) -> str:
        words = (word for silo in self.sites[name] for word in ("--silos", silo))
        return self.said(name, "sites", "entry", *words)

    def _join_folders(self, name: str, folder: str) -> None:
        """Make the folders of the letters of a site, at the site and at the coordinator."""
        at = {whose: self.link(whose) / folder for whose in (COORDINATOR, name)}
        for whose, writes in ((COORDINATOR, "down"), (name, "up")):
            for side in ("", "down", "up"):
                (at[whose] / side).mkdir()
                own, group = USERS[whose], USERS["copier"]
                own, group = (group, own) if side not in ("", writes) else (own, group)
                os.chown(at[whose] / side, own, group)
                (at[whose] / side).chmod(0o750)
        self._pairs += [at[COORDINATOR] / "down", at[name] / "down", at[name] / "up", at[COORDINATOR] / "up"]
        shutil.copy(self.link(COORDINATOR) / "invitation.toml", self.link(name))

    @contextmanager
    def copying(self, seed: int) -> Iterator[None]:
        """Have the worst copier carry letters while the context lasts, as a user of its own."""
        command = [str(self._python), "-m", "links.worst_copier", str(seed), *map(str, self._pairs)]
        copier = self._popen("copier", command, self.base, {"HOME": "/"})
        try:
            yield
            assert copier.poll() is None, (self.base / "said-copier").read_text()
        finally:
            copier.kill()
            copier.wait()

    def no_one_reads_what_is_anothers(self) -> None:
        """Assert that private folders belong to their users, with all that was written into them."""
        for name in (COORDINATOR, *self.sites):
            home = self.base / name
            assert home.stat().st_mode & 0o777 == 0o700
            assert {path.lstat().st_uid for path in (home, *home.rglob("*"))} == {USERS[name]}
            site = home / "site"
            private = (site, *site.glob("runs/*"), *site.glob("*.*"))
            assert not any(path.stat().st_mode & 0o077 for path in private)


def _own(folder: Path, uid: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid)
        path.chmod(0o700 if path.is_dir() else 0o600)


@pytest.fixture(scope="session")
def users_python() -> Iterator[Path]:
    """A Python with what mpifl needs that other users can start: this one, or an environment around a copy
    of its interpreter."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be several users")
    at = Path(tempfile.mkdtemp())
    at.chmod(0o755)
    try:
        found = Path(sys.executable)
        if not _others_can_start(found):
            found = _environment(at)
        if not _others_can_start(found):
            pytest.skip(f"other users can neither start {sys.executable} nor use {sys.prefix}")
        yield found
    finally:
        shutil.rmtree(at)


def _environment(at: Path) -> Path:
    """Make an environment with the packages and programs of this one, and return its Python."""
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__")
    base = at / "base"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(Path(sys.base_prefix) / "lib" / version, base / "lib" / version, ignore=left_out)
    for library in (Path(sys.base_prefix) / "lib").glob("libpython*.so*"):
        shutil.copy(library, base / "lib")
    (base / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), base / "bin" / version)
    (at / "bin").mkdir()
    (at / "lib").symlink_to(Path(sys.prefix) / "lib")
    for program in (Path(sys.prefix) / "bin").iterdir():
        if not program.name.startswith("python"):
            (at / "bin" / program.name).symlink_to(program)
    (at / "bin" / "python").symlink_to(base / "bin" / version)
    (at / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    return at / "bin" / "python"


def _others_can_start(python: Path) -> bool:
    try:
        asked = [str(python), "-c", "import torch, mpi4py.MPI"]
        library = {"LD_LIBRARY_PATH": str(python.parents[1] / "base" / "lib"), "HOME": "/"}
        user = {"user": USERS["copier"], "group": USERS["copier"], "extra_groups": []}
        return not subprocess.run(asked, env=library, capture_output=True, cwd="/", **user).returncode
    except OSError:
        return False
