"""A run over sites as processes: a coordinator, sites with two ranks each, perhaps a copier between them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from conftest import ROOT, rank_environment
from faults.processes import Command
from links.https_ends import pin, port_to_be, write_certificate
from sites import kit

from mpifl.wings.sites.consents import HttpsServer

DYING = Path(__file__).with_name("dying.py")
FAULTS = (1, 2, 3)
"""Exit codes of what has not been killed."""


class SitesRun:
    """All processes of a run.

    Args:
        base: A folder of its own.
        job: The job file.
        shards: The folder of all shards.
        copier: The seed of a bad provider between the coordinator and the sites; None: they share a folder.
        https: Whether sites have no folder, and come to a server of the coordinator's.
        die: For parties the points at which they kill themselves; see `dying.py`.
    """

    def __init__(
        self,
        base: Path,
        job: Path,
        shards: Path,
        copier: int | None = None,
        die: Mapping[str, Mapping[str, int]] | None = None,
        sites: Mapping[str, Sequence[str]] = kit.SITES,
        ranks: int = 2,
        https: bool = False,
    ) -> None:
        self.base, self.job, self.shards, self.ranks, self._die = base, job, shards, ranks, die or {}
        self._kept = ExitStack()
        self._port = self._kept.enter_context(port_to_be())
        server = HttpsServer(url=f"https://localhost:{self._port}", key=pin()) if https else None
        kit.set_up(base, job, sites, https=server)
        for name in (kit.COORDINATOR, *sites):
            (base / f"died-{name}").mkdir()
        self.sites, self.run, self.starts = [*sites], base / "run", 0
        self.links = dict.fromkeys((kit.COORDINATOR, *sites), base / "link")
        self.faults = FAULTS
        self.more: dict[str, str] = {}
        """Variables of the parties that are started from now on."""
        self.more_of: dict[str, dict[str, str]] = {}
        self.running: dict[str, Command] = {}
        self.codes: dict[str, list[int | None]] = {}
        self.server: Command | None = None
        for name in sites if https else ():
            self.links[name] = base / f"link-{name}"
            self.links[name].mkdir()
            shutil.copy(base / "link" / "invitation.toml", self.links[name])
        self._https = https
        self._copier: subprocess.Popen[bytes] | None = None
        self._seed = copier

    def _start_copier(self, seed: int) -> None:
        pairs = []
        for name in self.sites:
            key = kit.key_of(self.base, name)[:16]
            mine, theirs = self.base / "link" / key, self.base / f"link-{name}" / key
            (self.base / f"link-{name}").mkdir()
            shutil.copy(self.base / "link" / "invitation.toml", self.base / f"link-{name}")
            self.links[name] = self.base / f"link-{name}"
            pairs += [mine / "down", theirs / "down", theirs / "up", mine / "up"]
            for side in ("down", "up"):
                (mine / side).mkdir(parents=True)
                (theirs / side).mkdir(parents=True)
        command = [sys.executable, "-m", "links.worst_copier", str(seed), *map(str, pairs)]
        path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        self._copier = subprocess.Popen(command, env=rank_environment() | path, start_new_session=True)

    def __enter__(self) -> SitesRun:
        if self._seed is not None:
            self._start_copier(self._seed)
        if self._https:
            self.serve()
        for name in (kit.COORDINATOR, *self.sites):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for command in self.running.values():
            command.kill()
        if self.server is not None:
            self.server.kill()
        if self._copier is not None:
            self._copier.kill()
            self._copier.wait()
        self._kept.close()

    def serve(self) -> Command:
        """Start the server, perhaps again."""
        self.starts += 1
        words = ["--listen", f"127.0.0.1:{self._port}"]
        for name, path in zip(("--cert", "--key"), write_certificate(self.base), strict=True):
            words += [name, str(path)]
        folder = self.base / "commands" / f"{self.starts:03d}-server"
        self.server = Command(folder, 1, "-m", "mpifl", "sites", "serve", self.base / "link", *words)
        return self.server

    def start(self, name: str) -> Command:
        """Start a party, perhaps again."""
        self.starts += 1
        points = self._die.get(name)
        more = {
            "MPIFL_SITE": str(kit.home(self.base, name)),
            "DIED": str(self.base / f"died-{name}"),
            "DIE": json.dumps(points),
            **self.more,
            **self.more_of.get(name, {}),
        }
        program = [DYING] if points else ["-m", "mpifl"]
        if name == kit.COORDINATOR:
            words, ranks = ["train", self.job, "--out", self.run, "--resume"], 1
        else:
            words, ranks = ["join", self.links[name], "--shards", self.shards, "--device", "cpu"], self.ranks
        folder = self.base / "commands" / f"{self.starts:03d}-{name}"
        self.running[name] = Command(folder, ranks, *program, *words, **more)
        return self.running[name]

    def until_dead(self, name: str, point: str) -> None:
        """Wait until a party has killed itself at a point, and end what is left of it."""
        mark, deadline = self.base / f"died-{name}" / point.replace(" ", "-"), time.monotonic() + 180
        while not mark.exists():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)
        self.kill(name)

    def kill(self, name: str) -> None:
        """Kill all processes of a party by SIGKILL."""
        self.running[name].kill()

    def signal(self, name: str) -> None:
        """Ask a party's first rank to end."""
        for pid in self.running[name].living():
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if name == kit.COORDINATOR or b"OMPI_COMM_WORLD_RANK=0" in words:
                os.kill(pid, signal.SIGTERM)

    def revive(self, held: str = "") -> list[str]:
        """Start again what has died or was asked to end, but the party that is held; return the names."""
        died = [name for name, one in self.running.items() if one.ended not in (None, 0) and name != held]
        for name in died:
            assert self.running[name].ended not in self.faults, self.said()
            self.codes.setdefault(name, []).append(self.running[name].ended)
            self.kill(name)  # mpirun may have left a rank behind
            self.start(name)
        return died

    def finish(self, seconds: float = 120) -> SitesRun:
        """Wait until all have ended by themselves, and start again what dies meanwhile."""
        deadline = time.monotonic() + seconds
        while any(one.ended != 0 for one in self.running.values()):
            assert time.monotonic() < deadline, f"still running after {seconds} s\n{self.said()}"
            self.revive()
            time.sleep(0.02)
        return self

    @property
    def rounds(self) -> int:
        """How many rounds the run has told."""
        path = self.run / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def until_round(self, wanted: int) -> None:
        """Wait until a round is told."""
        self.until(lambda: self.rounds >= wanted)

    def until(self, happened: Callable[[], object], seconds: float = 60, held: str = "") -> None:
        """Wait for something, and start again what dies meanwhile by itself, but the party that is held."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, self.said()
            if self._die:
                self.revive(held)
            time.sleep(0.01)

    def told(self, name: str, figure: str) -> object:
        """What the newest round tells of a site."""
        lines = (self.run / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["sites"][name].get(figure)

    def said(self) -> str:
        """What all processes said last."""
        return "\n".join(f"{name}: {one.out[-900:]}\n{one.err[-900:]}" for name, one in self.running.items())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
