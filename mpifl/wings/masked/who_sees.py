"""Which parties can see each other's data, as ranks report, and what masks cost."""

from __future__ import annotations

import os
import pwd
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import torch

from mpifl.common import Names
from mpifl.wings.masked.pair_masks import add_masks
from mpifl.wings.site import lists_sites
from mpifl.wire.launching import started_by

TRIED = 1 << 19
"""How many numbers are masked to measure the time."""
MOST_NAMED = 8
"""How many silos a line names."""
_LAUNCHED = "masks hide updates from logs, files and the wire, not from whoever started the run"


def about_rank() -> dict[str, str]:
    """Return what a rank reports about itself: its user, its launcher, and whether its site lists sites."""
    return {"user": user_name(), "launcher": launcher(), "sites": "yes" if lists_sites() else "no"}


def user_name() -> str:
    """Return the name of this process's user, or the user's number if there is no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def launcher() -> str:
    """Return the program that started all ranks, such as `srun (Slurm)`; "" if it is unknown."""
    found = started_by()
    return f"{Path(found[0]).name} ({found[1]})" if found else ""


def sharing(
    about: Mapping[int, Mapping[str, str]], placed: Mapping[int, Collection[int]], names: Names
) -> list[str]:
    """Return lines on what masks do not hide.

    There is a line for each user of a host whose silos, or silos and server, can see each other's data. One
    line says who started all ranks. Another names silos that cannot verify the keys of others.

    Args:
        about: What each rank reports about itself: its `host`, `user` and `launcher`, and whether it has
            `sites`.
        placed: The silos of each worker.
        names: The names of silos.
    """
    together: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, told in sorted(about.items()):
        together[told["host"], told.get("user", "")].append(rank)
    lines = []
    for (host, _), ranks in together.items():
        silos = sorted(silo for rank in ranks for silo in placed.get(rank, ()))
        beside = 0 in ranks and len(about) > 1
        if len(silos) + beside > 1:
            lines.append(_line(silos, host, beside, names))
    return lines + _started(about) + _unsigned(about, placed, names)


def cost_of_masks(parties: int, length: int) -> str:
    """Return a line on how many masks a party draws for a vector, and the time that this takes here."""
    others, tried = parties - 1, torch.zeros(TRIED, dtype=torch.int64)
    began = time.process_time()
    add_masks([tried], {1: bytes(32)}, 0, b"at the start")
    seconds = (time.process_time() - began) * others * length / TRIED
    drawn = f"each draws {others} for {length:,} numbers, in about {seconds:.2g} s of a core"
    return f"parties that mask their sums: {parties}; {drawn}"


def _line(silos: list[int], host: str, beside: bool, names: Names) -> str:
    who = _named(silos, names) + (" and the server" if beside else "")
    verb = "runs" if len(silos) == 1 and not beside else "run"
    return f"{who} {verb} as one user on host {host}: not hidden from each other"


def _started(about: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return a line if one user seems to have started all ranks."""
    users, programs = ({told.get(key, "") for told in about.values()} for key in ("user", "launcher"))
    if len(about) < 2 or len(users) > 1:
        return []
    (program,) = programs if len(programs) == 1 else ("",)
    by = f"one user's {program}" if program else "one user"
    return [f"all ranks were started by {by}: {_LAUNCHED}"]


def _unsigned(
    about: Mapping[int, Mapping[str, str]], placed: Mapping[int, Collection[int]], names: Names
) -> list[str]:
    """Return a line on silos whose ranks have no list of sites, if there are several parties."""
    parties = [rank for rank, silos in placed.items() if silos]
    trusting = [rank for rank in parties if about.get(rank, {}).get("sites") == "no"]
    if len(parties) < 2 or not trusting:
        return []
    silos = sorted(silo for rank in trusting for silo in placed[rank])
    verb = "has" if len(silos) == 1 else "have"
    what = "keys are taken on the server's word, and one that swaps them sees updates"
    return [f"{_named(silos, names)} {verb} no sites.toml: {what}"]


def _named(silos: list[int], names: Names) -> str:
    return names.listed(silos, MOST_NAMED)
