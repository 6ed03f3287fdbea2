"""A run over three sites on one machine: their keys, their folders, their programs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mpifl.wings.site import Exchange, Identity
from mpifl.wings.sites.correspondence import Correspondence
from mpifl.wings.sites.letters import Member
from mpifl.wings.sites.site_run import Invited

RUN = "ab" * 16
NAMES = ("north", "south", "west")


def secret(*of: str) -> bytes:
    return hashlib.sha256(" ".join(of).encode()).digest()


def identity(name: str) -> Identity:
    return Identity(name, secret("identity", name))


def roster(told: dict[str, list[str]]) -> list[Member]:
    members = [Member(name=name, key=identity(name).public, silos=silos) for name, silos in told.items()]
    return sorted(members, key=lambda member: member.key)


def correspondence(base: Path, out: Path, link: Path) -> Correspondence:
    told = json.loads((base / "sites.json").read_text())
    return Correspondence(RUN, out, link, identity("coordinator"), Exchange(secret("run")), roster(told))


def invited(base: Path, name: str) -> Invited:
    told = json.loads((base / "sites.json").read_text())
    key = Exchange(secret("run")).public.hex()
    return Invited(RUN, identity("coordinator").public, key, identity(name), told[name], lambda told: None)
