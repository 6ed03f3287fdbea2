"""The coordinator's letters for sums under masks, and what all its letters share: numbers and waiting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from mpifl.common import RoundLost
from mpifl.common.machine import signals
from mpifl.wings.masked import SumPlan
from mpifl.wings.sites import SiteLetters
from mpifl.wings.sites.letters import (
    Journal,
    LetterFault,
    Member,
    SignedHeader,
    SumRecord,
    WithdrawRecord,
    looks,
)
from mpifl.wings.sites.masks.coordinator_sums import Share

LEFT = "has left the run"


class SumLetters:
    """Asks sites for their shares of a sum.

    Attributes:
        run: The run's id.
        roster: The run's sites, sorted by key.
        left: The names of the sites that have left the run for good.
    """

    run: str

    _journal: Journal
    _n: int
    """The number of the last letter."""

    def __init__(self, roster: Sequence[Member]) -> None:
        self.roster = roster
        self._note: Callable[..., None] = lambda text, **how: print(text, flush=True)
        self._sites: dict[str, SiteLetters] = {}
        self.left: set[str] = set()

    def listen(self, note: Callable[..., None]) -> None:
        """Set the function that notes something for the user."""
        self._note = note

    def _next_number(self, **about: str) -> None:
        """Take the next number, which is on the disk before a letter has it."""
        self._n += 1
        self._journal.note("asked", self._n, **about)

    def _note_answer(self, site: SiteLetters, mark: str, signed: SignedHeader, **about: str) -> None:
        """Note an answer or a share; the site's mark goes back to it with the next question."""
        self._journal.note("answered", self._n, site=site.member.name, mark=mark, **about)
        site.mark, site.signed = mark, signed

    def _said_no(self, site: SiteLetters, why: str) -> str:
        site.no = f"site '{site.member.name}' answers nothing any more: {why}"
        return site.no

    def _has_left(self, site: SiteLetters) -> str:
        """Return that a site has left the run, "" if it has not said so."""
        if site.withdrawn is None:
            try:
                letter = site.box.newest("withdraw")
            except LetterFault:
                return ""
            if letter is None or not self._leaves(site, letter.record):
                return ""
            self._journal.note(
                "withdrawn", self._n, site=site.member.name, record=letter.record.encode().decode()
            )
            self._note(f"{site.member.name} has left the run; it takes no part in it any more")
        return LEFT

    def _leaves(self, site: SiteLetters, record: WithdrawRecord) -> bool:
        """Take a site's word that it leaves the run; return whether it is one."""
        if (record.run, record.site) != (self.run, site.member.key) or not record.is_signed:
            return False
        site.withdrawn, site.awaited = record, None
        self.left.add(site.member.name)
        return True

    def summed(self, plan: SumPlan, accepted: Sequence[int]) -> dict[int, Share | str]:
        """Ask the parties of a sum for their shares; see `SharesAsked.summed`. They are waited for without
        end: no other site's sum can take the place of one.

        Raises:
            RoundLost: a signal asks the coordinator to end.
        """
        of, parties = self._n, {number: self.roster[number].name for number in sorted(plan.parties)}
        self._next_number(work="sum", of=str(of))
        told = [self._sites[name].signed for name in parties.values()]
        record = SumRecord(
            life=self._journal.life,
            of=of,
            plan=plan.model_dump(mode="json"),
            accepted=list(accepted),
            answers=[one for one in told if one is not None],
            withdrawn=[one.withdrawn for one in self._sites.values() if one.withdrawn is not None],
        )
        for name in parties.values():
            self._sites[name].count("sent", self._sites[name].box.dispatch(self._n, record).bytes)
        waiting, came = dict(parties), dict[int, Share | str]()
        what = f"the sum of letter {of}, to which they are bound"
        for _ in self._looks(what, lambda: [*waiting.values()], math.inf):
            for number, name in [*waiting.items()]:
                if (found := self._share(self._sites[name])) is not None:
                    came[number] = found
                    del waiting[number]
            if not waiting or any(isinstance(one, str) for one in came.values()):
                break
        return came

    def _share(self, site: SiteLetters) -> Share | str | None:
        """Return a site's share of the sum of this number, or why it gives none; None if it is not here."""
        try:
            letter = site.box.newest("share", "no", after=self._n - 1)
        except LetterFault as fault:
            return str(fault)
        if letter is None or letter.n != self._n:
            return self._has_left(site) or None
        site.count("received", letter.bytes)
        site.box.forget(self._n)
        if letter.record.kind == "no":
            self._said_no(site, letter.record.why)
            return f"answers nothing any more: {letter.record.why}"
        if letter.record.context is None:
            return f"hands over no sum: {letter.record.refused or 'it does not say why'}"
        self._note_answer(site, letter.record.mark, letter.signed)
        return Share(letter.record.context, letter.vectors)

    def _looks(self, what: str, missing: Callable[[], list[str]], until: float) -> Iterator[None]:
        """Yield whenever it is time for another look, until a time is over; see `looks`.

        Raises:
            RoundLost: a signal asks the coordinator to end.
        """

        def remind() -> None:
            self._note(f"waiting for {', '.join(sorted(missing()))} ({what})")

        for _ in looks(remind, until):
            yield
            if signals.pending():
                raise RoundLost(f"{', '.join(sorted(missing()))} had not answered yet", in_vain=True)
