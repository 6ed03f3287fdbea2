"""Letters of masked sums with harm done inside: what a site hands over, and what becomes of it."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import torch
from links.memory_link import MemoryLink, Shared
from links.two_ends import COORDINATOR, KEYS as OF_BOTH, LARGEST, LIFE, RUN
from pydantic import ValidationError

from fuzzing import artefacts
from fuzzing.mutations import harmed_json
from fuzzing.outcomes import Undocumented
from mpifl.common import InputError, RoundLost
from mpifl.data.shards import FederationSpec, read_federation
from mpifl.run.job import check_job
from mpifl.wings.dpsgd import run_of
from mpifl.wings.masked import PER_SCALAR, SENTINELS, Session, SumPlan, party_of, plain_sums
from mpifl.wings.masked.fixed_plan import PartyPlan, PlannedVector
from mpifl.wings.site import Exchange, Identity, ListedSite, Sites, make_once
from mpifl.wings.sites import SiteLetters
from mpifl.wings.sites.letters import (
    Journal,
    LetterHeader,
    Mailbox,
    Member,
    NoRecord,
    Post,
    ShareRecord,
    SignedHeader,
    SumRecord,
)
from mpifl.wings.sites.masks import ALL_NUMBERS, Share, SiteParty, SumLetters, sums_of_sites
from mpifl.wire import Compute, Memory, Verdict

NAMES, OF, LENGTH, NUMBERS = ("kiel", "bonn", "ulm"), 4, 5, ["train_loss"]
SIZES = {"delta": LENGTH + SENTINELS, ALL_NUMBERS: PER_SCALAR + SENTINELS}
REQUEST = Compute(work="train", round=0, cohort=[0, 1, 2], serial=OF)
KEYS = {name: Exchange(bytes([60 + k] * 32)) for k, name in enumerate(NAMES)}
COMMON = OF_BOTH[COORDINATOR.name]


class Run:
    """A masked run of three sites with a silo each, and the honest letters of a sum."""

    def __init__(self, valid: Path) -> None:
        self.spec = _three(read_federation(valid / "plain"))
        table = {
            "name": "fuzzed",
            "shards": str(valid / "plain"),
            "rounds": 2,
            "device": "cpu",
            "security": {},
        }
        self.job = check_job({**table, "model": {"name": "mlp", "hidden": [3]}}, "the job")
        self.algorithm = self.job.build_algorithm().for_federation(self.spec)
        self.identities = {name: _identity(valid / "sites" / name, name) for name in NAMES}
        keys = {name: one.public for name, one in self.identities.items()}
        self.roster = [
            Member(name=n, key=keys[n], silos=[f"{n}-1"]) for n in sorted(NAMES, key=keys.__getitem__)
        ]
        self.lists = "".join(self.identities[one.name].listing(one.silos) for one in self.roster)
        self.numbers = {one.name: nth for nth, one in enumerate(self.roster)}
        self.silos = {entry.name: silo for silo, entry in enumerate(self.spec.silos)}
        listed = Sites(valid, [ListedSite(**one.model_dump()) for one in self.roster])
        known = run_of(self.job, self.spec, RUN).run
        offers = {
            nth: Session(
                known, one.silos, self.identities[one.name], listed, KEYS[one.name]
            ).offer.model_dump()
            for nth, one in enumerate(self.roster)
        }
        parts = {k: PartyPlan(vectors={"delta": 0}, scalars=NUMBERS, offer=one) for k, one in offers.items()}
        vector = PlannedVector(name="delta", length=LENGTH, combined="weighted", total=12.0)
        self.plan = SumPlan(vectors=[vector], scalars=NUMBERS, parties=parts)
        told = self.plan.model_dump(mode="json")
        answers = [self._answer(self.identities[one.name]) for one in self.roster]
        self.asked = SumRecord(life=LIFE, of=OF, plan=told, accepted=[0, 1, 2], answers=answers)

    def _answer(self, own: Identity) -> SignedHeader:
        about = {"run": RUN, "kind": "answer", "sender": own.public, "to": COORDINATOR.public, "n": OF}
        whole = {**about, "salt": "00" * 32, "length": 0, "sha256": "00" * 32}
        header = LetterHeader.model_validate(whole).encode()
        return SignedHeader(header=header.decode(), signature=own.sign("letter", header))

    @functools.cached_property
    def shares(self) -> dict[str, tuple[str, dict[str, torch.Tensor]]]:
        """What each site hands over, by the honest letter."""
        with tempfile.TemporaryDirectory() as folder:
            return {name: self.party(name, Path(folder, name)).share(self.asked) for name in NAMES}

    def party(self, name: str, folder: Path) -> SiteParty:
        """Return a site that has answered the question, in a folder of its own."""
        identity, number = _identity(folder, name), self.numbers[name]
        assert identity.public == self.identities[name].public
        (folder / "sites.toml").write_text(self.lists)
        placed = {nth: [self.silos[silo] for silo in one.silos] for nth, one in enumerate(self.roster)}
        given = self.job, self.spec, self.algorithm
        with mock.patch.dict(os.environ, MPIFL_SITE=str(folder)):
            masking = party_of(*given, placed, number, RUN, exchange=KEYS[name])
        party = SiteParty(masking, plain_sums(*given), number, RUN, self.roster, folder)
        totals = {one: torch.arange(size) << 20 for one, size in SIZES.items()}
        for total in totals.values():
            total[-SENTINELS:] = 1
        mine = placed[number][0]
        part = PartyPlan(vectors={"delta": 0}, scalars=NUMBERS, answers={mine: "ab" * 32})
        party.keep(OF, REQUEST, "cd" * 32, totals, self.plan.model_copy(update={"parties": {0: part}}))
        return party


def _three(spec: FederationSpec) -> FederationSpec:
    entries = [spec.silos[0].model_copy(update={"silo": k, "name": f"{n}-1"}) for k, n in enumerate(NAMES)]
    return spec.model_copy(update={"silos": entries})


def _identity(folder: Path, name: str) -> Identity:
    """Return a site's identity, the same in each process, whose file lies in a folder of its own."""
    seed = bytes([30 + NAMES.index(name)] * 32)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_once(folder / "identity.key", f'name = "{name}"\nprivate_key = "{seed.hex()}"\n'.encode())
    return Identity(name, seed)


run_at = functools.cache(Run)


def sums(draw: Random, valid: Path, folder: Path) -> tuple[Run, SiteParty, bytes, Path]:
    """Return a site that has answered, and a harmed letter that asks for its share of the sum."""
    run, folder = run_at(valid), folder / "home"
    party = run.party(draw.choice(NAMES), folder)
    text = run.asked.encode()
    return run, party, harmed_json(draw, text) if draw.random() < 0.95 else text, folder


def hand_over(given: tuple[Run, SiteParty, bytes, Path]) -> None:
    """Have the site hand over its share. Nothing is released but the sum of all three silos."""
    run, party, text, folder = given
    asked = SumRecord.model_validate_json(text)
    try:
        _, vectors = party.share(asked)
    except InputError:
        if text == run.asked.encode() or (folder / "released.jsonl").exists():
            raise Undocumented("a sum was refused, and should not be, or was released before") from None
        raise
    (line,) = (folder / "released.jsonl").read_text().splitlines()
    if json.loads(line)["set"] != sorted(run.silos) or {k: len(one) for k, one in vectors.items()} != SIZES:
        raise Undocumented(f"a sum over other silos, or of other vectors, was handed over: {line}")


class _Here(SumLetters):
    """The coordinator's letters, whose shares are all here or never come."""

    run = RUN

    def summed(self, plan: SumPlan, accepted: Any) -> dict[int, Share | str]:
        came = {number: self._share(self._sites[one.name]) for number, one in enumerate(self.roster)}
        return {number: "has sent no letter" if one is None else one for number, one in came.items()}


def shares(draw: Random, valid: Path, folder: Path) -> tuple[Run, dict[str, Shared], Path]:
    """Return the letters of three shares, of which one is another kind of letter or harmed inside."""
    run, liar, links = run_at(valid), draw.choice((*NAMES, "")), dict[str, Shared]()
    for name, own in run.identities.items():
        context, vectors = run.shares[name]
        (folder / name).mkdir()
        record: Any = ShareRecord(life=LIFE, of=OF, context=context)
        if name == liar:
            record = draw.choice((record, record, NoRecord(life=LIFE, of=OF, why="no")))
            vectors = _harmed(draw, vectors)
            with suppress(ValidationError):
                record = type(record).model_validate_json(harmed_json(draw, record.encode()))
        post = Post(RUN, own, KEYS[name], COORDINATOR.public, COMMON.public.hex(), LARGEST)
        links[name] = {}
        Mailbox(post, MemoryLink(links[name], "up"), folder / name).dispatch(OF + 1, record, vectors)
    return run, links, folder


def _harmed(draw: Random, vectors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return vectors of which some are of another length, dtype, name or content."""
    found = {}
    for name, one in vectors.items():
        harms = (one, one, one[1:], one[:0], torch.cat([one, one]), one.double(), one.int(), one + 1, ~one)
        found[draw.choice((name, name, name, "x" * draw.randrange(1, 9)))] = draw.choice(harms)
    return found if draw.random() < 0.9 else {}


def add_up(given: tuple[Run, dict[str, Shared], Path]) -> None:
    """Have the coordinator add the shares up: a mean, or why there is none."""
    run, links, folder = given
    letters = _Here(run.roster)
    letters._n, letters._journal = OF + 1, Journal(folder / "sites.jsonl")
    letters.listen(lambda *told, **how: None)
    for one in run.roster:
        post = Post(RUN, COORDINATOR, COMMON, one.key, KEYS[one.name].public.hex(), LARGEST)
        (folder / f"box-{one.name}").mkdir()
        box = Mailbox(post, MemoryLink(links[one.name], "down"), folder / f"box-{one.name}")
        silos = frozenset({run.silos[one.silos[0]]})
        letters._sites[one.name] = SiteLetters(one, silos, box)
    over = sums_of_sites(run.job, run.spec, run.algorithm, folder, letters)
    adding = over.aggregator(torch.device("cpu"), Memory(shared=False))
    adding.begin(REQUEST, {}, [0, 1, 2])
    pieces = [run.plan.model_dump(mode="json")]
    found = adding.combine(artefacts.TwoNodes(), Verdict(accepted=[0, 1, 2], pieces=pieces))
    if found.lost is None and {k: len(one) for k, one in found.vectors.items()} != {"delta": LENGTH}:
        raise Undocumented(f"a mean of other vectors was made: {found.vectors}")
    if found.lost is not None:
        raise RoundLost(found.lost)
