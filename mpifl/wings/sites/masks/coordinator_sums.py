"""The coordinator's end of masked sums: it asks each site for its share, and adds the shares up."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, RoundLost
from mpifl.data.shards import FederationSpec
from mpifl.run.job import Job
from mpifl.sums import Aggregator, Combined
from mpifl.wings.dpsgd import run_of
from mpifl.wings.masked import (
    MOST_NOISE,
    PER_SCALAR,
    SENTINELS,
    FixedSum,
    FixedSums,
    Offer,
    ReleasedFile,
    SumPlan,
    WholeNumbers,
    check_holding,
    check_least,
    check_signed,
    drawn_of,
    holding_of,
    of_server,
    plain_sums,
    share_enough,
    width_of,
)
from mpifl.wings.site import Exchange, ListedSite, Sites
from mpifl.wings.sites import names_of_silos
from mpifl.wings.sites.letters import Member
from mpifl.wings.sites.masks.site_totals import ALL_NUMBERS
from mpifl.wire import Compute, Header, Memory, Report, Transport, Verdict


@dataclass(frozen=True)
class Share:
    """A site's masked sum.

    Attributes:
        context: The digest of what its masks follow from.
        vectors: The masked vectors, int64, and `ALL_NUMBERS`.
    """

    context: str
    vectors: Mapping[str, Tensor]


class SharesAsked(Protocol):
    """Asks sites for their shares of a sum.

    Attributes:
        run: The run's id.
        roster: The run's sites, sorted by key; a party's number is its place.
        left: The names of the sites that have left the run for good.
    """

    run: str
    roster: Sequence[Member]
    left: set[str]

    def summed(self, plan: SumPlan, accepted: Sequence[int]) -> Mapping[int, Share | str]:
        """Ask the parties of a plan; return the share of each by its number, or why there is none."""


@dataclass(frozen=True)
class OverSites(WholeNumbers):
    """Averages updates by sums of whole numbers that sites mask.

    Attributes:
        sites: Asks the sites.
        too_few: Returns why these parties hide too little in the answer to a request; "" if they do.
        noised: Whether sums have noise of the sites.
    """

    sites: SharesAsked
    too_few: Callable[[Compute, Collection[int]], str]
    noised: bool

    def aggregator(self, device: torch.device, memory: Memory) -> Aggregator:
        """Return the coordinator's aggregator."""
        return SumsOfSites(self, memory)


class SumsOfSites(FixedSum):
    """Adds up the masked sums of sites. The coordinator itself is no party."""

    def __init__(self, over: OverSites, memory: Memory) -> None:
        super().__init__(over.how, memory)
        self._over, self._reports = over, dict[int, Report]()

    def begin(self, request: Any, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the round before; see `Aggregator`."""
        super().begin(request, received, silos)
        self._reports = {}

    def take(self, transport: Transport, site: int, parts: Sequence[Any], headers: Sequence[Header]) -> None:
        """Take what a site tells of its sum. Raise ValueError if it does not match its headers."""
        super().accept(transport, site, parts, headers)
        self._reports[site] = Report(headers=list(headers), parts=list(parts))

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Accept the coordinator's own report, whose headers are those of the sites."""

    def place(self, reports: Mapping[int, Report]) -> list[SumPlan]:
        """Return the plan of the sum, if it will hide enough: sites refuse it else, and one might be late."""
        plans = super().place(self._reports)
        for plan in plans:
            assert isinstance(self._request, Compute)
            if why := self._over.too_few(self._request, plan.parties.keys()):
                replies = [reply for report in reports.values() for reply in report.headers]
                faults = {reply.fault: reply.silo for reply in replies if reply.fault is not None}
                told = [f"silo {silo}: {fault}" for fault, silo in faults.items()]
                raise RoundLost("; ".join([why, *told[:_MOST_FAULTS]]))
        return plans

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Note that the sum is released, ask the sites for their shares, and add them up."""
        self.hanging, self._scalars = set(), {}
        if not verdict.pieces:
            return Combined()
        plan = SumPlan.model_validate(verdict.pieces[0])
        if (lost := self._unnoted(verdict)) is not None:
            return lost
        came = {number: self._held(plan, one) for number, one in self._asked(plan, verdict)}
        shares = {number: one for number, one in came.items() if isinstance(one, Share)}
        for number, one in came.items():
            if isinstance(one, str):
                who = self._over.sites.roster[number].name
                if who in self._over.sites.left:  # it has sworn to hand over nothing: others may do without
                    return Combined(lost=f"site '{who}' {one}")
                return Combined(lost=f"site '{who}' {one}; {_BOUND}", in_vain=True)
        if others := self._with_others(shares):
            what = f"masks do not cancel: {others} mask for another sum than most; they lie, or were told it"
            return Combined(lost=f"{what}; {_BOUND}", in_vain=True)
        totals = {
            vector.name: _total(share.vectors[vector.name] for share in shares.values())
            for vector in plan.vectors
        }
        if beyond := self._beyond_range(plan, totals, len(verdict.accepted)):
            return Combined(lost=f"{beyond}; {_BOUND}", in_vain=True)
        tails = {number: share.vectors[ALL_NUMBERS] for number, share in shares.items()}
        found = self._result(plan, totals, tails, len(verdict.accepted))
        return found or Combined(lost=f"the sums are not whole; {_BOUND}", in_vain=True)

    def _with_others(self, shares: Mapping[int, Share]) -> str:
        """Return the names of the sites whose masks follow from something else than most sites' masks."""
        (usual, _), *others = Counter(one.context for one in shares.values()).most_common()
        odd = [number for number, one in shares.items() if one.context != usual] if others else []
        return ", ".join(f"site '{self._over.sites.roster[number].name}'" for number in odd)

    def _beyond_range(self, plan: SumPlan, totals: Mapping[str, Tensor], silos: int) -> str:
        """Return which sum is larger than updates within the range can make it; "" if none is."""
        for one in plan.vectors:
            own = totals[one.name][:-SENTINELS]
            if one.combined == "summed" or not len(own):
                continue
            grid = self._how.grid(one.name, one.combined, self._request)
            most = self._how.reach(one.name) * one.total / grid + silos  # each is rounded once
            most += _TAIL * MOST_NOISE if self._over.noised else 0.0
            if float(own.double().abs().max()) > most * (1 + 2**-40):
                what = f"the sum of '{one.name}' is larger than updates within the range can make it"
                return f"[security] range = {self._how.range:g}: {what}, so a site lies"
        return ""

    def _asked(self, plan: SumPlan, verdict: Verdict) -> Iterable[tuple[int, Share | str]]:
        return sorted(self._over.sites.summed(plan, verdict.accepted).items())

    def _held(self, plan: SumPlan, came: Share | str) -> Share | str:
        """Return a share if its vectors are those of the plan, else why there is none."""
        if isinstance(came, str):
            return came
        widths = {one.name: width_of(one) for one in plan.vectors}
        widths[ALL_NUMBERS] = len(plan.scalars) * PER_SCALAR + SENTINELS
        found = {name: (len(one), one.dtype) for name, one in came.vectors.items()}
        fits = found == {name: (width, torch.int64) for name, width in widths.items()}
        return came if fits else "hands over other vectors than were asked for"


_MOST_FAULTS = 3
_TAIL = 10
"""No noise is larger than so many of its deviations."""
_BOUND = "the sum was asked for, and can be asked for over no other silos"


def _total(vectors: Iterable[Tensor]) -> Tensor:
    total, *others = vectors
    found = total.clone()
    for vector in others:
        found += vector
    return found


def check_sites(job: Job, sites: int, silos: int) -> None:
    """Check that a run has as many sites, and its rounds as many silos, as a masked sum needs.

    Raises:
        InputError: it has fewer.
    """
    if job.security is not None:
        check_least(job, sites, f"the run has {sites} sites, and each is one party; invite more", silos)


def sums_of_sites(
    job: Job, spec: FederationSpec, algorithm: Algorithm, run: Path, asked: SharesAsked
) -> OverSites:
    """Return how the coordinator averages updates under masks.

    Args:
        run: The run folder.
        asked: Asks the sites.

    Raises:
        InputError: there are fewer sites than the job asks for, or the file of released sums is damaged.
    """
    assert job.security is not None
    settings, roster, everyone = job.security, asked.roster, len(spec.silos)
    check_sites(job, len(roster), everyone)
    names = names_of_silos(spec)
    hosted = [{names.index(silo) for silo in member.silos} for member in roster]
    how = of_server(plain_sums(job, spec, algorithm), job, spec, ReleasedFile(run, asked.run), hosted)
    drawn, holding = drawn_of(job, spec), holding_of(spec)
    check_holding(job, spec, algorithm, hosted)

    def why_too_few(request: Compute, numbers: Collection[int]) -> str:
        training = algorithm.purpose(request.work) == "training"
        asked_of = {*holding(request.work)} & {*(drawn(request.round) if training else range(everyone))}
        with_rows = [bool(own & asked_of) for own in hosted]
        parties, some = sum(with_rows), sum(with_rows[number] for number in numbers)
        if some < settings.least:
            return f"[security] least = {settings.least}: {some} sites have a part in the sum"
        if not share_enough(settings, some, parties):
            what = f"{some} of {parties} sites have a part in the sum, too few"
            return f"[security] colluding = {settings.colluding:.3g}: {what}"
        return ""

    check = _checked(how, run_of(job, spec, asked.run).run, roster)
    noised = job.privacy is not None and job.privacy.in_sum
    return OverSites(dataclasses.replace(how, check_offer=check), asked, why_too_few, noised)


def _checked(how: FixedSums, run: str, roster: Sequence[Member]) -> Callable[[Collection[int], Any], None]:
    """Return what raises ValueError for an offer that other sites would refuse: the sum would never come."""
    listed = [ListedSite(name=one.name, silos=list(one.silos), key=one.key) for one in roster]
    sites = Sites(Path("the invitation"), listed)

    def check(answered: Collection[int], offered: Any) -> None:
        assert how.check_offer is not None
        how.check_offer([*answered], offered)
        offer = Offer.model_validate(offered)
        try:
            check_signed(run, offer, sites)
        except InputError as error:
            raise ValueError(str(error)) from None
        Exchange().shared(bytes.fromhex(offer.key))

    return check
