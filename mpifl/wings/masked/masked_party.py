"""A rank as a party of masked sums: it checks a question, masks its sum, and notes the release.

Whoever gets the same sum over two sets of silos learns the difference between the sets. So a party draws a
round's silos itself, and checks that enough parties take part. Its site's ledger allows one sum for each
question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from mpifl.common import InputError
from mpifl.common.machine import processor
from mpifl.run.job.tables import SecuritySettings
from mpifl.wings.masked.fixed_plan import Question, SumPlan
from mpifl.wings.masked.pair_masks import add_masks
from mpifl.wings.masked.party_sums import SENTINELS
from mpifl.wings.masked.releases import Released, Releases
from mpifl.wings.masked.session import Offer, Session
from mpifl.wings.privacy import Draws
from mpifl.wings.site import digest
from mpifl.wire import Compute, Purpose

LEAST_NOISE, MOST_NOISE = 2.0**20, 2.0**57
"""Limits of the noise's deviation, in grid units. A share below the first would be lost in rounding; all
shares together above the second could make a sum wrap around."""


@dataclass(frozen=True)
class MaskedTerms:
    """What a party itself knows about its run, whatever the server says.

    Attributes:
        run: The digest of this run.
        digest: The digest of the shards, and of all parts of the job that affect a sum.
        terms: The digest of the same parts of the job, without the shards.
        data: The sha256 of each silo's shard.
        job: The job's name.
        silos: The name of each silo.
        hosts: The number of each silo's party.
        settings: The job's `[security]`, or stricter values of the site.
        drawn: Draws the silos of a round.
        purpose: Returns the purpose of a client method.
        holding: Returns the silos that have rows for a client method; a sum hides nobody behind the others.
        rounds: How many rounds the job asks for.
    """

    run: str
    digest: str
    terms: str
    data: Sequence[str]
    job: str
    silos: Sequence[str]
    hosts: Sequence[int]
    settings: SecuritySettings
    drawn: Callable[[int], Collection[int]]
    purpose: Callable[[str], Purpose]
    holding: Callable[[str], Collection[int]]
    rounds: int


class MaskedParty:
    """Masks a rank's sums."""

    def __init__(self, terms: MaskedTerms, session: Session, releases: Releases, secret: bytes) -> None:
        self._terms, self._session, self._releases, self._secret = terms, session, releases, secret
        self._serial = -1
        self._agreed: tuple[Released, dict[int, bytes], int, bytes] | None = None
        self._gone: Collection[str] = ()

    @property
    def offer(self) -> dict[str, Any]:
        """This party's offer to all others, with its public key."""
        return self._session.offer.model_dump()

    def ready(self, question: Question, sums: Sequence[Tensor], gone: Collection[str] = ()) -> str:
        """Check the question, add this party's noise in place, and return the digest of the question.

        Args:
            gone: Silos of sites that hand over nothing for this question, ever; see `Releases.check`.

        Raises:
            InputError: the party refuses to send such a sum.
        """
        self._agreed, self._gone, request = None, gone, question.request
        if request.serial <= self._serial:
            raise InputError("the server asks by a number that was used; it is broken, or not to be trusted")
        offers = _offers_of(question)
        secrets = self._session.agree(offers, question.rank)
        drawn = self._drawn(request)
        self._check_silos(question, drawn)
        self._check_parties(question, offers, drawn)
        self._check_numbers(question.plan)
        message = question.message
        vectors = [(one.name, one.length, one.combined, one.total) for one in question.plan.vectors]
        self._add_noise(question, message, sums)
        grids = digest([vectors, list(question.grids), question.plan.scalars], {})
        noise = [*map(float.hex, question.noise)]
        entry = self._entry(question, grids, noise)
        self._releases.check(entry, gone)
        about = [self._terms.run, request.round, request.attempt, request.serial, request.work, message]
        parties = [(rank, one.model_dump()) for rank, one in sorted(offers.items())]
        numbers = [sorted(part.scalars) for _, part in sorted(question.plan.parties.items())]
        # if the server tells one party of less noise than others, their masks do not cancel
        context = digest([*about, entry.set, grids, noise, parties, numbers, *question.about], {})
        self._serial = request.serial
        self._agreed = entry, secrets, question.rank, bytes.fromhex(context)
        return context

    def _entry(self, question: Question, grids: str, noise: Sequence[str]) -> Released:
        """Return the ledger's line of a sum."""
        return Released(
            run=self._terms.run,
            round=question.request.round,
            work=question.request.work,
            message=question.message,
            set=self._named(question.accepted),
            grids=grids,
            noise=digest([*noise, self._sure(question)], {}),
            shares=self._sure(question) if any(question.noise) else 0,
            silos=self._session.offer.silos,
            answers={self._terms.silos[silo]: one for silo, one in question.answers.items()},
            terms=self._terms.terms,
            data={self._terms.silos[silo]: self._terms.data[silo] for silo in question.answers},
            job=self._terms.job,
            processor=processor(),
        )

    def _add_noise(self, question: Question, message: str, sums: Sequence[Tensor]) -> None:
        """Add the shares of noise of this party's silos. The shares of honest silos alone are enough.

        Of n silos c may collude, and each adds 1 / (n - c) of the variance. Missing silos count as honest,
        since the server chooses whom it leaves out. The noise follows from the site's secret, the question,
        the silos of the sum, the silo, its answer and the noise's size. It does not depend on the rank that
        hosts the silo. So a repeated question gets the same noise. Noise of another size is another draw:
        from two multiples of the same noise one could solve for the answer.
        """
        asked, accepted = question.request, self._named(question.accepted)
        sure = self._sure(question)
        self._check_noise(question, sure)
        about = [self._terms.digest, str(asked.round), asked.work, message, *accepted]
        for vector, deviation, total in zip(question.plan.vectors, question.noise, sums[:-1], strict=True):
            size = deviation / math.sqrt(sure) if deviation else 0.0
            for silo, answer in sorted(question.answers.items()) if deviation else ():
                whose = self._terms.silos[silo], answer, vector.name, size.hex()
                drawn = Draws(self._secret, "share of noise", *about, *whose)
                total[:-SENTINELS] += drawn.whole_normal(len(total) - SENTINELS, size)

    def _sure(self, question: Question) -> int:
        """Return how many silos of a sum surely do not collude, if no missing silo colludes."""
        drawn = len(self._drawn(question.request))
        return len(question.accepted) - math.floor(self._terms.settings.colluding * drawn)

    def _check_noise(self, question: Question, sure: int) -> None:
        """Check that some silos do not collude, and that the noise fits between rounding and overflow."""
        if any(question.noise) and sure < 1:
            what = f"all {len(question.accepted)} silos of the sum may collude, and none is sure to add noise"
            share = self._terms.settings.colluding
            raise InputError(f"[security] colluding = {share:.3g}: {what}; bring back the others")
        for vector, deviation in zip(question.plan.vectors, question.noise, strict=True):
            if not deviation:
                continue
            if deviation / math.sqrt(sure) < LEAST_NOISE:
                why = "would be lost in rounding; use a smaller range"
            elif deviation * math.sqrt(len(question.accepted) / sure) > MOST_NOISE:
                why = "has no room in the sum; use a larger range"
            else:
                continue
            where = f"[security] range = {self._terms.settings.range:g}"
            raise InputError(f"{where}: the noise of '{vector.name}' {why}")

    def release(self) -> None:
        """Note in the site's ledger that the sum is sent; the note is on the disk when this returns.

        Raises:
            InputError: it cannot be noted, and nothing may be sent.
        """
        assert self._agreed is not None
        self._releases.record(self._agreed[0], self._gone)

    def mask(self, sums: Sequence[Tensor]) -> None:
        """Add the masks in place."""
        assert self._agreed is not None
        _, secrets, rank, context = self._agreed
        self._agreed = None
        add_masks(sums, secrets, rank, context)

    def _named(self, silos: Iterable[int]) -> list[str]:
        return sorted(self._terms.silos[silo] for silo in silos)

    def _drawn(self, request: Compute) -> set[int]:
        """Return the silos to be asked: for training those drawn for the round, else all."""
        terms = self._terms
        if terms.purpose(request.work) == "training":
            if not 0 <= request.round < terms.rounds:
                what = f"round {request.round + 1} is not one of the job's {terms.rounds}"
                raise InputError(f"{what}; the server is broken, or not to be trusted")
            return set(terms.drawn(request.round))
        return set(range(len(terms.silos)))

    def _check_silos(self, question: Question, drawn: Collection[int]) -> None:
        """Check that only drawn silos are asked, only asked silos count, and the sum has the right ones."""
        request, names = question.request, self._terms.silos
        if any(len(set(told)) < len(told) for told in (request.cohort, question.accepted)):
            raise InputError("the server names a silo twice; it is broken, or not to be trusted")
        asked, accepted = set(request.cohort), set(question.accepted)
        if strange := sorted(asked.difference(drawn)) or sorted(accepted - asked):
            known = [silo for silo in strange if silo in range(len(names))]
            named = names[known[0]] if known else str(strange[0])
            shown = request.round + (self._terms.purpose(request.work) != "evaluation")
            raise InputError(f"silo {named!r} is not one of those that this site draws for round {shown}")
        own = {silo for silo in accepted if names[silo] in self._session.offer.silos}
        added = question.answers.keys()
        if wrong := sorted(
            own.symmetric_difference(added)
        ):  # the ledger would note another set of silos than the sum has
            what = "counts, and is not in this site's sum"
            what = what if wrong[0] in own else "is in this site's sum, and is not to count"
            raise InputError(f"silo {names[wrong[0]]!r} {what}; the server is broken, or not to be trusted")

    def _check_parties(self, question: Question, offers: Mapping[int, Offer], drawn: Collection[int]) -> None:
        """Check that enough parties take part in the sum, with rows of their own.

        They are compared with the parties of all drawn silos, since the server chooses whom it asks.
        """
        owners = {silo: offer.key for offer in offers.values() for silo in offer.silos}
        accepted = self._named(question.accepted)
        if unowned := [silo for silo in accepted if silo not in owners]:
            raise InputError(f"silo {unowned[0]!r} counts, and no party has offered a key for it")
        settings, holding = self._terms.settings, set(self._terms.holding(question.request.work))
        taking_part = {owners[silo] for silo in self._named(holding.intersection(question.accepted))}
        parties = {self._terms.hosts[silo] for silo in holding.intersection(drawn)}
        if len(taking_part) < settings.least:
            what = f"{len(taking_part)} parties have a part in the sum, too few to hide one among them"
            raise InputError(f"[security] least = {settings.least}: {what}; start more, or use another least")
        if not share_enough(settings, len(taking_part), len(parties)):
            what = f"{len(taking_part)} of {len(parties)} parties have a part in the sum, too few"
            gone = sorted(set(self._named(drawn)).difference(accepted))
            back = ", ".join(map(repr, gone[:3])) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
            raise InputError(f"[security] colluding = {settings.colluding:.3g}: {what}; bring back {back}")

    def _check_numbers(self, plan: SumPlan) -> None:
        """Check that enough parties have each number, since a sum over too few hides none of them.

        Each party checks the plan's part on itself, and masks cancel only if all parties got the same plan.
        """
        least = self._terms.settings.least
        if few := [name for name in plan.scalars if plan.counting(name) < least]:
            what = f"the number '{few[0]}' is of too few parties ({plan.counting(few[0])})"
            raise InputError(f"[security] least = {least}: {what}; have the job ask for least = {least}")
        told = {name for part in plan.parties.values() for name in part.scalars}
        if sorted(plan.scalars) != sorted(name for name in told if plan.counting(name) >= least):
            raise InputError("the server plans to add up other numbers than those that enough parties have")


def share_enough(settings: SecuritySettings, some: int, parties: int) -> bool:
    """Return whether two sums of `some` of the parties share one that does not collude with the server."""
    return 2 * some - parties > settings.colluding * parties  # 1 + c may round to 2


def _offers_of(question: Question) -> dict[int, Offer]:
    """Return the offers of a sum's parties, by rank; raise InputError if an offer is not valid."""
    found = {}
    for rank, part in sorted(question.plan.parties.items()):
        try:
            found[rank] = Offer.model_validate(part.offer)
        except ValidationError:
            raise InputError(f"what rank {rank} offers for its keys cannot be read") from None
    return found
