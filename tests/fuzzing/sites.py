"""What sites tell each other: lists of sites, and what parties offer at a start, with harm done to them."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from fuzzing.mutations import harmed_json, harmed_toml
from mpifl.wings.masked import Offer, Session
from mpifl.wings.site import Identity, read_sites

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SIGNING = {name: Identity(name, bytes([k] * 32)) for k, name in enumerate(("kiel", "bonn"))}
LIST = "\n".join(SIGNING[name].listing([f"{name}-1", f"{name}-2"]) for name in SIGNING)


def lists(draw: Random, valid: Path, folder: Path) -> Path:
    path = folder / "sites.toml"
    path.write_bytes(harmed_toml(draw, LIST.encode(), tomllib.loads(LIST)))
    return path


def offers(draw: Random, valid: Path, folder: Path) -> tuple[bytes, Path | None]:
    """Return a harmed offer, and the list of the party that hears it, if that has one."""
    (folder / "sites.toml").write_text(LIST)
    signed = Session("run", ["bonn-1"], SIGNING["bonn"]).offer
    path = draw.choice((None, folder / "sites.toml"))
    return harmed_json(draw, signed.model_dump_json().encode()), path


def agree(given: tuple[bytes, Path | None]) -> None:
    sites = read_sites(given[1]) if given[1] else None
    own = Session("run", ["kiel-1"], SIGNING["kiel"], sites)
    own.agree({1: own.offer, 2: Offer.model_validate_json(given[0])}, 1)
