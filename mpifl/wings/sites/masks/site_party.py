"""A site as one party of masked sums, however many ranks it has.

The sums of a question lie on the disk before its answer leaves. So a site that died between the letters of a
round hands over the same sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from mpifl.common import InputError
from mpifl.run.folder import serialization
from mpifl.wings.masked import (
    PER_SCALAR,
    SENTINELS,
    FixedSums,
    MaskedParty,
    Offer,
    PartyPlan,
    PartySums,
    SumPlan,
)
from mpifl.wings.site import fsync_folder
from mpifl.wings.sites.letters import LetterFault, Member, SumRecord, header_of
from mpifl.wings.sites.masks.site_totals import ALL_NUMBERS
from mpifl.wire import Compute, read_request

SUMS_FILE = "sums.safetensors"
_VECTOR, _NUMBER = "vector ", "number "


@dataclass(frozen=True)
class KeptSums:
    """A site's sums for one question.

    Attributes:
        n: The number of the question's letter.
        message: The digest of the request (`message_of`).
        sums: The sums over all silos of the site.
        planned: Name, length and kind of each vector, by which the site's ranks made the sums.
    """

    n: int
    message: str
    sums: PartySums
    request: Compute
    planned: list[list[Any]]


class SiteParty:
    """Keeps the sums of the last question, and masks them when the coordinator asks for them.

    Args:
        masking: Checks a question, notes the release, and masks.
        how: The settings of the sums.
        number: The site's place in the roster.
        run: The run's id.
        roster: The run's sites, sorted by key, as the site's own `sites.toml` has them.
        folder: The run's private folder at the site.
    """

    def __init__(
        self,
        masking: MaskedParty,
        how: FixedSums,
        number: int,
        run: str,
        roster: Sequence[Member],
        folder: Path,
    ) -> None:
        self._masking, self._how, self._number = masking, how, number
        self._run, self._roster, self._path = run, roster, folder / SUMS_FILE
        self._kept: KeptSums | None = None

    def keep(
        self, n: int, request: Compute, message: str, totals: Mapping[str, Tensor], plan: SumPlan
    ) -> PartyPlan:
        """Have a question's sums on the disk; return what the answer tells of them.

        Args:
            n: The number of the question's letter. Masks follow from it, so that they are of this letter.
            request: The question.
            message: The digest of the request.
            totals: The totals of the site's ranks, int64, as `SiteTotals` gives them.
            plan: The plan by which the ranks made them.

        Raises:
            InputError: they cannot be written.
        """
        tail, sums = totals[ALL_NUMBERS], PartySums(self._how, request.model_copy(update={"serial": n}))
        sums.vectors = {name: total for name, total in totals.items() if name != ALL_NUMBERS}
        for total in sums.vectors.values():
            total[-SENTINELS] = 1  # a site is one party, of however many ranks
        starts = {name: nth * PER_SCALAR for nth, name in enumerate(plan.scalars)}
        sums.numbers = {name: tail[start : start + PER_SCALAR].clone() for name, start in starts.items()}
        sums.silos = int(tail[-1])
        sums.answers = {silo: one for part in plan.parties.values() for silo, one in part.answers.items()}
        for part in plan.parties.values():
            sums.noise |= {name: max(one, sums.noise.get(name, 0.0)) for name, one in part.noise.items()}
        self._kept = KeptSums(n, message, sums, request, _planned(plan))
        self._write(self._kept)
        return PartyPlan(
            vectors=dict.fromkeys(sums.vectors, 0), scalars=sorted(sums.numbers), offer=self._masking.offer
        )

    def share(self, asked: SumRecord) -> tuple[str, dict[str, Tensor]]:
        """Return the digest of what the sum's masks follow from, and the masked sum.

        The release is in the site's ledger when this returns. The same sum may be asked for again.

        Raises:
            InputError: this site hands over no such sum.
        """
        kept = self._read() if self._kept is None else self._kept
        if kept is None or kept.n != asked.of:
            had = "none" if kept is None else f"letter {kept.n}"
            raise InputError(f"a sum is asked of letter {asked.of}, and this site has the sums of {had}")
        try:
            plan = SumPlan.model_validate(asked.plan)
        except ValidationError:
            raise InputError(f"the plan of the sum of letter {asked.of} cannot be read") from None
        names = {name for name, *_ in kept.planned}
        if _planned(plan) != kept.planned or any(
            one.vectors.keys() != names for one in plan.parties.values()
        ):
            raise InputError("the server plans to add up other vectors than this party has")
        about = self._answered(asked, plan)
        question = kept.sums.question(kept.message, plan, asked.accepted, self._number, about)
        order = [vector.name for vector in plan.vectors]
        own = [one.clone() for one in kept.sums.own(order, plan.scalars)]
        context = self._masking.ready(question, own, self._gone(asked, kept.request))
        most = len(asked.accepted) * max(self._how.largest_weight(kept.request.work), 1.0)
        if odd := [one.name for one in plan.vectors if not 0 < one.total <= most]:
            raise InputError(f"the server plans to divide the sum of '{odd[0]}' by what no silos weigh")
        self._masking.release()
        self._masking.mask(own)
        return context, dict(zip((*order, ALL_NUMBERS), own, strict=True))

    def forget(self) -> None:
        """Remove the sums from the disk, at the end of the run."""
        self._kept = None
        self._path.unlink(missing_ok=True)

    def _answered(self, asked: SumRecord, plan: SumPlan) -> list[str]:
        """Return the headers of all parties' answers, which each has signed for the letter that is asked of.

        Raises:
            InputError: one of them has not answered this letter, or stands at another's place.
        """
        if len(asked.answers) != len(plan.parties):
            raise InputError("the coordinator does not show an answer of each party; nothing is sent")
        for (number, part), signed in zip(sorted(plan.parties.items()), asked.answers, strict=True):
            if not 0 <= number < len(self._roster):
                raise InputError(f"the plan has a party {number}, and the run {len(self._roster)} sites")
            member = self._roster[number]
            try:
                site, header = (
                    Offer.model_validate(part.offer).site,
                    header_of(self._run, "answer", member.key, signed),
                )
            except (ValidationError, LetterFault) as error:
                what = error if isinstance(error, LetterFault) else "its offer cannot be read"
                raise InputError(f"site {member.name!r}: {what}; nothing is sent") from None
            if site != member.name or header.n != asked.of:
                what = f"site {site!r} with an answer to letter {header.n}"
                wanted = f"site {member.name!r} with one to letter {asked.of}"
                raise InputError(f"the plan has {what} in the place of {wanted}; nothing is sent")
        return [one.header for one in asked.answers]

    def _gone(self, asked: SumRecord, request: Compute) -> list[str]:
        """Return the silos of sites that have left the run, and hand over nothing for a question.

        Raises:
            InputError: a site of the run has not said so.
        """
        found = []
        for one in asked.withdrawn:
            member = next((member for member in self._roster if member.key == one.site), None)
            if member is None or one.run != self._run or not one.is_signed:
                what = f"{one.site[:8]}... is to have left the run, and it has not said so"
                raise InputError(f"{what}; nothing is sent")
            found += member.silos if (one.round, one.work) == (request.round, request.work) else []
        return found

    def _write(self, kept: KeptSums) -> None:
        sums, request = kept.sums, kept.request.encode().decode()
        told: dict[str, Any] = {"n": kept.n, "message": kept.message, "silos": sums.silos}
        told |= {"request": request, "answers": sums.answers, "noise": sums.noise, "planned": kept.planned}
        state: dict[str, Any] = {f"{_VECTOR}{name}": vector for name, vector in sums.vectors.items()}
        state |= {f"{_NUMBER}{name}": digits for name, digits in sums.numbers.items()}
        try:
            serialization.write_state(self._path, {**state, "about": json.dumps(told)})
            fsync_folder(self._path.parent)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written ({error.strerror or error})") from None

    def _read(self) -> KeptSums | None:
        """Return the sums that an earlier life has kept, None if there are none.

        Raises:
            InputError: the file is damaged.
        """
        try:
            state = serialization.unpack(self._path.read_bytes())
            told = json.loads(state.pop("about"))
            request = read_request(told["request"].encode())
            assert isinstance(request, Compute)
            sums = PartySums(self._how, request.model_copy(update={"serial": told["n"]}))
            sums.vectors, sums.numbers = _named(_VECTOR, state), _named(_NUMBER, state)
            sums.silos, sums.answers = told["silos"], {int(k): one for k, one in told["answers"].items()}
            sums.noise = told["noise"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise InputError(f"{self._path}: cannot be read ({error}); let the round be asked anew") from None
        self._kept = KeptSums(told["n"], told["message"], sums, request, told["planned"])
        return self._kept


def _named(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in state.items() if name.startswith(prefix)}


def _planned(plan: SumPlan) -> list[list[Any]]:
    return [[one.name, one.length, one.combined] for one in plan.vectors]
