"""A coordinator and a site with a mailbox each, over a folder or a link in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from links.memory_link import MemoryLink, Shared
from mpifl.wings.site import Exchange, Identity
from mpifl.wings.sites.letters import (
    AnswerRecord,
    AskRecord,
    EndRecord,
    FolderLink,
    HelloRecord,
    HelloSilo,
    LetterLink,
    LetterRecord,
    Mailbox,
    Member,
    NoRecord,
    Post,
    Settled,
    ShareRecord,
    SignedHeader,
    SumHeader,
    SumRecord,
    WelcomeRecord,
    WithdrawRecord,
)
from mpifl.wire import Compute, Header, Report

RUN, LIFE, DIGEST = "ab" * 16, "cd" * 16, "ef" * 32
COORDINATOR, SITE, STRANGER = (
    Identity(name, bytes([k] * 32)) for k, name in enumerate(("bern", "graz", "wien"), 1)
)
KEYS = {one.name: Exchange(bytes([40 + k] * 32)) for k, one in enumerate((COORDINATOR, SITE, STRANGER))}
LARGEST = 1 << 20
HELLO = HelloRecord(
    life=LIFE,
    name="graz",
    silos=[HelloSilo(name="silo 1", shard=DIGEST, sizes={"train": 40})],
    mpifl="0.2.0",
    torch="2.6",
    about={"device": "cpu"},
)


def ask(n: int = 0) -> AskRecord:
    request = Compute(work="train", round=3, cohort=[0, 1], scalars={"lr": 0.1}, serial=n)
    return AskRecord(
        life=LIFE, request=request, job=DIGEST, settled=[Settled(n=2, silos=[1])], base={"silo 1": ""}
    )


def records() -> dict[str, LetterRecord]:
    """Return a record of each kind."""
    member = Member(name="graz", key=SITE.public, silos=["silo 1"])
    signed = SignedHeader(header="{}", signature="00" * 64)
    withdraw = WithdrawRecord(
        life=LIFE, run=RUN, round=3, work="train", of=4, site=SITE.public, signature="00" * 64
    )
    answer = AnswerRecord(
        life=LIFE,
        asked=DIGEST,
        report=Report(headers=[Header(silo=1, weight=4.0, scalars={"loss": 0.5})]),
        sums=[SumHeader(name="delta", window=-3)],
        states={"silo 1": (DIGEST, "")},
        mark="ab12",
    )
    told = {"job": '{"name": "x"}', "spec": "{}"}
    found: list[LetterRecord] = [
        HELLO,
        WelcomeRecord(life=LIFE, hello=DIGEST, told=told, roster=[member]),
        ask(),
        answer,
        SumRecord(life=LIFE, of=4, plan={"a": [1]}, accepted=[1], answers=[signed], withdrawn=[withdraw]),
        ShareRecord(life=LIFE, of=4, context=DIGEST),
        NoRecord(life=LIFE, of=4, why="no"),
        withdraw,
        EndRecord(life=LIFE, sha256=DIGEST),
    ]
    return {record.kind: record for record in found}


def vectors(seed: int = 0, length: int = 777) -> dict[str, torch.Tensor]:
    """Return vectors of each dtype that may travel, of which one is empty."""
    draw = torch.Generator().manual_seed(seed)
    whole = torch.randint(-(2**40), 2**40, (length,), generator=draw)
    odd = torch.arange(length % 13, dtype=torch.uint8)
    real = torch.randn(2 * length, generator=draw)
    return {"o": odd, "w": real, "sum": real.double() / 3, "masked": whole, "empty": torch.empty(0)}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return [*one] == [*other] and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def post(own: Identity, other: Identity, run: str = RUN, knows: bool = True) -> Post:
    key = KEYS[other.name].public.hex() if knows else None
    return Post(run, own, KEYS[own.name], other.public, key, LARGEST)


@dataclass
class TwoEnds:
    """The mailboxes of both parties, in folders below `folder`."""

    folder: Path
    in_memory: bool = False
    knows: bool = True
    """Whether the coordinator knows the site's run key already."""
    shared: Shared = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "link").mkdir(exist_ok=True)
        self.coordinator = self.mailbox(COORDINATOR, SITE, knows=self.knows)
        self.site = self.mailbox(SITE, COORDINATOR)

    def link(self, own: Identity) -> LetterLink:
        side = "down" if own is COORDINATOR else "up"
        if self.in_memory:
            return MemoryLink(self.shared, side)
        return FolderLink(self.folder / "link", SITE.public, side)

    def mailbox(self, own: Identity, other: Identity, run: str = RUN, knows: bool = True) -> Mailbox:
        outbox = self.folder / f"outbox-{own.name}-{other.name}-{run[:4]}"
        outbox.mkdir(exist_ok=True)
        side = own if other is not COORDINATOR else SITE
        return Mailbox(post(own, other, run, knows), self.link(side), outbox, say=self.lines.append)

    @property
    def down(self) -> Path:
        return self.folder / "link" / SITE.public[:16] / "down"

    @property
    def up(self) -> Path:
        return self.folder / "link" / SITE.public[:16] / "up"
