"""The roster of a run: who its sites are. A site holds it against its own `sites.toml`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common import InputError
from mpifl.wings.site import Sites
from mpifl.wings.sites.consents.invitation import check_members
from mpifl.wings.sites.letters import Member


def roster_of(sites: Sites, silos: Sequence[str]) -> list[Member]:
    """Return the sites of a run, sorted by key, as a `sites.toml` has them.

    Args:
        silos: The names of the federation's silos.

    Raises:
        InputError: no site has a silo.
    """
    owned: dict[str, list[str]] = {}
    for silo in silos:
        if (owner := sites.owner(silo)) is None:
            what = f"no site has the silo {silo!r}, which the federation has"
            raise InputError(f"{sites.path}: {what}; add it to the silos of its site")
        owned.setdefault(owner, []).append(silo)
    members = [Member(name=name, key=sites.by_name[name].key, silos=own) for name, own in owned.items()]
    return sorted(members, key=lambda member: member.key)


def check_roster(sites: Sites, roster: Sequence[Member], silos: Sequence[str], said: str) -> None:
    """Check that a roster is the one of this site's own `sites.toml`, number by number.

    Under masks the own list alone says who is a party. A roster that gave silos of honest sites to an
    accomplice would let two of six sites read a third one's sum.

    Args:
        silos: The names of the federation's silos.
        said: What has the roster, for errors, such as `the welcome`.

    Raises:
        InputError: it is another.
    """
    check_members(roster, said)
    told = {silo: member.name for member in roster for silo in member.silos}
    own = roster_of(sites, silos)
    for member in own:
        for silo in member.silos:
            if told.get(silo) != member.name:
                at = f"has silo {silo!r} at {told[silo]!r}" if silo in told else f"lacks silo {silo!r}"
                raise InputError(f"{said} {at}, {sites.path} at {member.name!r}; nothing is answered")
    for number, (theirs, ours) in enumerate(zip(roster, own, strict=False)):
        if theirs != ours:
            what = f"has {theirs.name!r} with key {theirs.key[:8]}... as site {number}"
            raise InputError(f"{said} {what}, {sites.path} has {ours.name!r} with {ours.key[:8]}...")
    if len(roster) != len(own):
        listed = f"{sites.path} has {len(own)} with silos of this run"
        raise InputError(f"{said} has {len(roster)} sites, {listed}")


def check_terms(sites: Sites, job: Mapping[str, Any]) -> None:
    """Check that a job with masks has the terms that this site demands, or stricter ones.

    All sites are bound to a sum that was asked for. If one refuses then, the round never ends.

    Args:
        job: The tables of the job; all defaults are filled in.

    Raises:
        InputError: the site demands more.
    """
    told = job.get("security")
    if not isinstance(told, Mapping):
        return
    for key, own in (("least", sites.least), ("colluding", sites.colluding)):
        value = told.get(key)
        if not isinstance(value, int | float) or own > value:
            what = f"{sites.path}: {key} = {own:g}, and the job has [security] {key} = {value}"
            raise InputError(f"{what}; ask the coordinator for {key} = {own:g}")


def number_of(sites: Sites) -> str:
    """Return the number of a list of sites, which all sites read to each other: 32 digits."""
    lines = sorted(f"{one.key} {one.name} {silo}" for one in sites.by_name.values() for silo in one.silos)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def in_fours(digits: str) -> str:
    """Return digits in groups of four, as people read them out."""
    return "-".join(digits[start : start + 4] for start in range(0, len(digits), 4))
