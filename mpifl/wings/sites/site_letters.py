"""The coordinator's letters to and from one site, and why a site may not take part."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mpifl import __version__
from mpifl.data.shards import FederationSpec
from mpifl.wings.sites.letters import HelloRecord, Mailbox, Member, SignedHeader, WithdrawRecord
from mpifl.wings.sites.told_job import torch_version


@dataclass
class SiteLetters:
    """The letters to and from one site.

    Attributes:
        silos: The numbers of its silos.
        box: Its mailbox.
        about: What the site says of itself.
        awaited: The number of the question that it has not answered in time; None if it is not away.
        since: When it was noted as away, for people.
        figures: Letters and bytes since they were told last.
        refused: The digest of a hello by which it cannot take part.
        no: Why it answers nothing any more, until the coordinator starts again.
        mark: The newest mark of its ledgers, which goes back to it.
        signed: The header of its last answer.
        withdrawn: Its word that it has left the run for good.
        bits: The digest of what its ranks compute of two trial steps, by its last answer; "" if unknown.
    """

    member: Member
    silos: frozenset[int]
    box: Mailbox
    about: dict[str, str] = field(default_factory=dict)
    awaited: int | None = None
    since: str = ""
    figures: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    no: str = ""
    mark: str = ""
    signed: SignedHeader | None = None
    withdrawn: WithdrawRecord | None = None
    bits: str = ""

    @property
    def joined(self) -> bool:
        """Whether the site has said hello in this run."""
        return self.box.post.other_key is not None

    def miss(self, n: int) -> None:
        """Note that the site is away: it has not answered a question in time."""
        self.awaited, self.since = n, time.strftime("%Y-%m-%d %H:%M:%S")

    def count(self, way: str, size: int) -> None:
        """Count a letter that was sent or received."""
        for name, more in ((f"letters_{way}", 1), (f"bytes_{way}", size)):
            self.figures[name] = self.figures.get(name, 0) + more


def differing_sites(sites: Mapping[str, SiteLetters]) -> str:
    """Return a line on sites that compute other bits than the rest, by their names; "" if there are none."""
    groups: dict[str, list[str]] = {}
    for name, site in sorted(sites.items()):
        if site.bits:
            groups.setdefault(site.bits, []).append(name)
    if len(groups) < 2:
        return ""
    what = f"sites compute other bits of the same two steps ({'; '.join(map(', '.join, groups.values()))})"
    return f"{what}: only processors like theirs give this model again"


def why_not_welcome(
    silos: Sequence[str], hello: HelloRecord, names: Sequence[str], spec: FederationSpec
) -> str:
    """Return why a site cannot take part, "" if it can.

    Args:
        silos: Its silos, by the invitation.
        names: The names of all silos of the federation.
    """
    for what, here, there in (("mpifl", __version__, hello.mpifl), ("torch", torch_version(), hello.torch)):
        if here != there:
            return f"it has {what} {there}, the coordinator {here}; install the same version"
    sizes = {name: dict(entry.examples) for name, entry in zip(names, spec.silos, strict=True)}
    told = {one.name: dict(one.sizes) for one in hello.silos}
    if odd := sorted({*silos} ^ told.keys()):
        return f"silo '{odd[0]}' is named by the invitation or by its hello alone"
    if odd := [name for name, of in told.items() if of != sizes[name]]:
        has = f"has examples {told[odd[0]]}, and {sizes[odd[0]]} by the coordinator's federation.json"
        return f"silo '{odd[0]}' {has}; let both have the same federation.json"
    return ""
