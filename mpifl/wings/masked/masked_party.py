"""A rank as a party of masked sums: what it agrees to hand over its sum for, and what it notes of that.

Whoever asks the same for two sets of silos learns the difference of the sets. So a party draws a round's
silos itself, and sees that parties enough have a part in the sum. Its site's ledger holds one sum for each
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
from mpifl.wings.masked.fixed_plan import SumPlan
from mpifl.wings.masked.masking import Question
from mpifl.wings.masked.pair_masks import add_masks
from mpifl.wings.masked.party_sums import SENTINELS
from mpifl.wings.masked.releases import Released, Releases
from mpifl.wings.masked.session import Offer, Session
from mpifl.wings.privacy import Draws
from mpifl.wings.site import digest
from mpifl.wire import Compute, Purpose

LEAST_NOISE, MOST_NOISE = 2.0**20, 2.0**57
"""The least deviation of a share of noise, so that rounding does not change it, and the largest of all
shares together, so that no sum wraps around; in the grid of the sum."""


@dataclass(frozen=True)
class MaskedTerms:
    """What a party knows of its run by itself, whatever the server says.

    Attributes:
        run: By which this run is known.
        digest: Of all of the job that sums follow from.
        terms: Of the job, whatever it is asked of.
        data: The sha256 of each silo's shard.
        job: The job's name.
        silos: The name of each silo.
        hosts: The party of each silo, by a number of its own.
        settings: The job's `[security]`.
        drawn: The silos of a round, drawn from all.
        purpose: What a work is for.
        rounds: How many the job asks for.
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
    rounds: int


class MaskedParty:
    """Masks a rank's sums; see `aggregation.Masking`."""

    def __init__(self, terms: MaskedTerms, session: Session, releases: Releases, secret: bytes) -> None:
        self._terms, self._session, self._releases, self._secret = terms, session, releases, secret
        self._serial = -1
        self._agreed: tuple[Released, dict[int, bytes], int, bytes] | None = None

    @property
    def offer(self) -> dict[str, Any]:
        """This party's half of the keys, for all others."""
        return self._session.offer.model_dump()

    def ready(self, question: Question, sums: Sequence[Tensor]) -> str:
        """Return the digest of all that the sum is for, if this party hands it over; see `Masking`."""
        self._agreed, request = None, question.request
        if request.serial <= self._serial:
            raise InputError("the server asks by a number that was used; it is broken, or not to be trusted")
        self._serial = request.serial
        offers = _offers_of(question)
        secrets = self._session.agree(offers, question.rank)
        drawn = self._drawn(request)
        self._check_silos(question, drawn)
        self._check_parties(question, offers, drawn)
        self._check_numbers(question.plan)
        message = digest([request.work, sorted(request.scalars.items())], question.received)
        vectors = [(one.name, one.length, one.combined, one.total) for one in question.plan.vectors]
        self._add_noise(question, message, sums)
        grids = digest([vectors, list(question.grids), question.plan.scalars], {})
        noise = [*map(float.hex, question.noise)]
        entry = Released(
            run=self._terms.run,
            round=request.round,
            work=request.work,
            message=message,
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
        self._releases.check(entry)
        about = [self._terms.run, request.round, request.attempt, request.serial, request.work, message]
        parties = [(rank, one.model_dump()) for rank, one in sorted(offers.items())]
        numbers = [sorted(part.scalars) for _, part in sorted(question.plan.parties.items())]
        # masks do not cancel where one party is told of less noise than others
        context = digest([*about, entry.set, grids, noise, parties, numbers], {})
        self._agreed = entry, secrets, question.rank, bytes.fromhex(context)
        return context

    def _add_noise(self, question: Question, message: str, sums: Sequence[Tensor]) -> None:
        """Add the shares of noise of this party's silos: as much as those that do not collude bring together.

        Of n silos c may collude, and each adds 1 / (n - c) of the variance. Those that are missing count as
        honest: whom the server leaves out is its own choice. The same answer of a silo to the same
        question over the same silos draws the same noise, whoever hosts it. Any other draws another, and so
        does noise of another size: of the same numbers twice as large the answer could be solved for.
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
        """Return how many silos of a sum do not collude, where those that are missing do not either."""
        drawn = len(self._drawn(question.request))
        return len(question.accepted) - math.floor(self._terms.settings.colluding * drawn)

    def _check_noise(self, question: Question, sure: int) -> None:
        """See that the noise can be added.

        Some silos do not collude. Rounding leaves their shares what they are, and the sum of all has room.
        """
        if any(question.noise) and sure < 1:
            what = f"all {len(question.accepted)} silos of the sum may collude, and none is sure to add noise"
            share = self._terms.settings.colluding
            raise InputError(f"[security] colluding = {share:.3g}: {what}; bring back the others")
        for vector, deviation in zip(question.plan.vectors, question.noise, strict=True):
            if not deviation:
                continue
            if deviation / math.sqrt(sure) < LEAST_NOISE:
                why = "would be lost in rounding; take a smaller range"
            elif deviation * math.sqrt(len(question.accepted) / sure) > MOST_NOISE:
                why = "has no room in the sum; take a larger range"
            else:
                continue
            where = f"[security] range = {self._terms.settings.range:g}"
            raise InputError(f"{where}: the noise of '{vector.name}' {why}")

    def release(self) -> None:
        """Have the site's ledger hold that the sum is handed over; see `Masking`."""
        assert self._agreed is not None
        self._releases.record(self._agreed[0])

    def mask(self, sums: Sequence[Tensor]) -> None:
        """Add the masks in place; see `Masking`."""
        assert self._agreed is not None
        _, secrets, rank, context = self._agreed
        self._agreed = None
        add_masks(sums, secrets, rank, context)

    def _named(self, silos: Iterable[int]) -> list[str]:
        return sorted(self._terms.silos[silo] for silo in silos)

    def _drawn(self, request: Compute) -> set[int]:
        """Return the silos that are to be asked: in training those of the round, in all else every one."""
        terms = self._terms
        if terms.purpose(request.work) == "training":
            if not 0 <= request.round < terms.rounds:
                what = f"round {request.round + 1} is none of the job's {terms.rounds}"
                raise InputError(f"{what}; the server is broken, or not to be trusted")
            return set(terms.drawn(request.round))
        return set(range(len(terms.silos)))

    def _check_silos(self, question: Question, drawn: Collection[int]) -> None:
        """See that no silos are asked and count but those that are drawn."""
        request, names = question.request, self._terms.silos
        if any(len(set(told)) < len(told) for told in (request.cohort, question.accepted)):
            raise InputError("the server names a silo twice; it is broken, or not to be trusted")
        asked, accepted = set(request.cohort), set(question.accepted)
        if strange := sorted(asked.difference(drawn)) or sorted(accepted - asked):
            known = [silo for silo in strange if silo in range(len(names))]
            named = names[known[0]] if known else str(strange[0])
            shown = request.round + (self._terms.purpose(request.work) != "evaluation")
            raise InputError(f"silo {named!r} is none of those that this site draws for round {shown}")
        own = {silo for silo in accepted if names[silo] in self._session.offer.silos}
        added = question.answers.keys()
        if wrong := sorted(
            own.symmetric_difference(added)
        ):  # the ledger would hold another set than was sent
            what = "counts, and is not in this site's sum"
            what = what if wrong[0] in own else "is in this site's sum, and is not to count"
            raise InputError(f"silo {names[wrong[0]]!r} {what}; the server is broken, or not to be trusted")

    def _check_parties(self, question: Question, offers: Mapping[int, Offer], drawn: Collection[int]) -> None:
        """See that parties enough have a part in the sum, of all whose silos are drawn: whom the server asks
        is its own choice."""
        owners = {silo: offer.key for offer in offers.values() for silo in offer.silos}
        accepted = self._named(question.accepted)
        if unowned := [silo for silo in accepted if silo not in owners]:
            raise InputError(f"silo {unowned[0]!r} counts, and no party has offered a key for it")
        settings, taking_part = self._terms.settings, {owners[silo] for silo in accepted}
        parties = {self._terms.hosts[silo] for silo in drawn}
        if len(taking_part) < settings.least:
            what = f"{len(taking_part)} parties have a part in the sum, too few to hide one among them"
            raise InputError(
                f"[security] least = {settings.least}: {what}; start more, or take another least"
            )
        if 2 * len(taking_part) - len(parties) <= settings.colluding * len(parties):  # 1 + a share may be 2
            what = f"{len(taking_part)} of {len(parties)} parties have a part in the sum, too few"
            gone = sorted(set(self._named(drawn)).difference(accepted))
            back = ", ".join(map(repr, gone[:3])) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
            raise InputError(f"[security] colluding = {settings.colluding:.3g}: {what}; bring back {back}")

    def _check_numbers(self, plan: SumPlan) -> None:
        """See that parties enough have each number: a sum hides none of fewer.

        Each party sees that the plan is right of itself, and masks cancel if all were told the same plan.
        """
        least = self._terms.settings.least
        if few := [name for name in plan.scalars if plan.counting(name) < least]:
            what = f"the number '{few[0]}' is of too few parties ({plan.counting(few[0])})"
            raise InputError(f"[security] least = {least}: {what}; have the job ask for least = {least}")


def _offers_of(question: Question) -> dict[int, Offer]:
    """Return what the parties of a sum offer, by rank.

    Raises:
        InputError: one is none.
    """
    found = {}
    for rank, part in sorted(question.plan.parties.items()):
        try:
            found[rank] = Offer.model_validate(part.offer)
        except ValidationError:
            raise InputError(f"what rank {rank} offers for its keys cannot be read") from None
    return found
