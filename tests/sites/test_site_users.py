"""Four Unix users, each with folders of its own that no other may read: the commands that they type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, launcher
from sites.driver import sha256
from sites.test_site_runs import SITES, in_one_world, job_of

USERS = {"bern": 2101, "north": 2102, "south": 2103, "west": 2104}
PATIENCE = 100
PYTHON = os.environ.get("MPIFL_USERS_PYTHON", sys.executable)
"""A Python that other users can start, with what mpifl needs."""


class People:
    """The users of one machine, each in a folder of mode 0700, and a copier that is none of them."""

    def __init__(self, base: Path, shards: Path) -> None:
        self.base = base
        spec = json.loads((shards / "federation.json").read_text())
        for name, uid in USERS.items():
            home = base / name
            for room in ("site", "link", "shards", "tmp"):
                (home / room).mkdir(parents=True)
            files = [one["file"] for one in spec["silos"] if one["name"] in SITES.get(name, ())]
            files += [spec["public"]["file"], *([spec["test"]["file"]] if name == "bern" else [])]
            for file in ("federation.json", *files):
                shutil.copy(shards / file, home / "shards")
            self.own(home, uid)

    def own(self, folder: Path, uid: int) -> None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid)
            path.chmod(0o700 if path.is_dir() else 0o600)

    def start(self, name: str, *words: object, ranks: int = 1) -> subprocess.Popen[bytes]:
        """Start a command of a user, as at a terminal of its own."""
        home, uid = self.base / name, USERS[name]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "MPIFL_SITE": str(home / "site"),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMPI_MCA_btl_sm_backing_directory": str(home / "tmp"),
        }
        mpi = [word for word in launcher() if word != "--allow-run-as-root"]
        command = [*([*mpi, "-n", str(ranks)] if ranks > 1 else []), PYTHON, "-m", "mpifl", *map(str, words)]
        who = {"user": uid, "group": uid, "extra_groups": []}
        with (self.base / f"said-{name}").open("w") as out:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            return subprocess.Popen(
                command, cwd=home, env=environment, start_new_session=True, **pipes, **who
            )

    def said(self, name: str, *words: object) -> str:
        """Return what a command of a user prints."""
        return self.end(name, self.start(name, *words))

    def end(self, name: str, process: subprocess.Popen[bytes]) -> str:
        """Wait until a command has ended well, and return what it printed."""
        out = self.base / f"said-{name}"
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, "\n".join(
            f"{one.name}: {one.read_text()[-1500:]}" for one in self.base.glob("said-*")
        )
        return out.read_text()


@pytest.fixture
def people(digits: Path) -> Iterator[People]:
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    yield People(base, digits / "many")
    shutil.rmtree(base)


def others_can_start() -> bool:
    """Whether a user who is not root can start PYTHON."""
    if os.geteuid() != 0:
        return False
    try:
        asked = [PYTHON, "-c", "import torch"]
        return not subprocess.run(
            asked, user=2101, group=2101, extra_groups=[], capture_output=True
        ).returncode
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be four users")
def test_four_users_train_a_model_and_no_one_reads_what_is_anothers(people, tmp_path, digits):
    if not others_can_start():
        pytest.skip(f"other users cannot start {PYTHON}; MPIFL_USERS_PYTHON names one that they can")
    job = job_of(tmp_path, digits / "many", "scaffold")
    expected, base = in_one_world(tmp_path, job), people.base
    for name in USERS:
        people.said(name, "identity", "make", name)
    entries = "".join(
        people.said(name, "sites", "entry", *(word for silo in SITES[name] for word in ("--silos", silo)))
        for name in SITES
    )
    (base / "bern" / "sites.toml").write_text(entries)
    (base / "bern" / "job.toml").write_text(
        job.read_text().replace(str(digits / "many"), str(base / "bern" / "shards"))
    )
    people.own(base / "bern", USERS["bern"])
    where = ("--sites", "sites.toml", "--link", "link", "--out", "run")
    told = people.said("bern", "sites", "init", "job.toml", *where)
    key = told.partition("Your key: ")[2].split(";")[0]
    pairs = []
    for name, uid in USERS.items():
        if name == "bern":
            continue
        folder = entries.partition(f'name = "{name}"')[2].partition('key = "')[2][:16]
        mine, theirs = base / "bern" / "link" / folder, base / name / "link" / folder
        for whose, at in ((USERS["bern"], mine), (uid, theirs)):
            for side in ("down", "up"):
                (at / side).mkdir(parents=True)
            people.own(at, whose)
        pairs += [mine / "down", theirs / "down", theirs / "up", mine / "up"]
        shutil.copy(base / "bern" / "link" / "invitation.toml", base / name / "link")
        people.own(base / name / "link", uid)
        people.said(name, "consent", "link", "--coordinator", key, "--yes")
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    copier = subprocess.Popen(
        [sys.executable, "-m", "links.worst_copier", "3", *map(str, pairs)], env={**os.environ, **path}
    )
    started = {name: people.start(name, "join", "link", "--shards", "shards", ranks=2) for name in SITES}
    try:
        started["bern"] = people.start("bern", "train", "job.toml", "--out", "run")
        people.end("bern", started["bern"])
        for name in SITES:
            people.end(name, started[name])
    finally:
        copier.kill()
        for process in (copier, *started.values()):
            process.kill()
            process.wait()
    assert sha256(base / "bern" / "run" / "model.safetensors") == expected
    for name, uid in USERS.items():
        site = base / name / "site"
        assert {path.stat().st_uid for path in (site, *site.rglob("*"))} == {uid}
        assert all(
            not path.stat().st_mode & 0o077 for path in (site, *site.glob("runs/*"), *site.glob("*.*"))
        )
