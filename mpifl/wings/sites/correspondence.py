"""The coordinator's letters: it welcomes sites, asks them, waits for answers, and notes who is away."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpifl.common import InputError
from mpifl.data.shards import FederationSpec
from mpifl.run.job import Job
from mpifl.training.beforehand import BITS
from mpifl.wings.site import Identity
from mpifl.wings.sites.answers import CameBack, SiteQuestion, parted
from mpifl.wings.sites.consents import Invitation, RunHome, federation_digest, job_digest
from mpifl.wings.sites.late import LateAnswer, LateAnswers
from mpifl.wings.sites.letters import (
    AskRecord,
    EndRecord,
    FolderLink,
    Journal,
    LetterFault,
    Mailbox,
    Member,
    Post,
    WelcomeRecord,
    WithdrawRecord,
)
from mpifl.wings.sites.masks import SumLetters
from mpifl.wings.sites.site_letters import SiteLetters, differing_sites, why_not_welcome
from mpifl.wings.sites.told_job import counted, largest_letter, names_of_silos, welcome_text
from mpifl.wire import Compute, Finish

LEAVE_TAKING = 60.0
"""Seconds which the coordinator waits at the end."""


class Correspondence(SumLetters):
    """Asks the sites of one run by letters.

    Args:
        invitation: The coordinator's own invitation.
        identity: Its identity.
        home: The run's private folder, with its run key and its letters.
        out: The run folder, which gets `sites.jsonl`.
        link: The folder that carries the letters.

    Attributes:
        silos, run, roster: See `Questions`.
    """

    def __init__(
        self, invitation: Invitation, identity: Identity, home: RunHome, out: Path, link: Path
    ) -> None:
        self._invitation, self._identity, self._home = invitation, identity, home
        self._out, self._link, self._exchange = out, link, home.key()
        super().__init__(invitation.site)
        self.silos: Mapping[str, frozenset[int]] = {}
        self.run = invitation.run

    def begin(self, job: Job, spec: FederationSpec, elements: int) -> None:
        """Open the mailboxes, and read what was noted before.

        Args:
            elements: How many elements the model has.

        Raises:
            InputError: the invitation is to another job or federation.
        """
        self._told, names = welcome_text(job, spec), names_of_silos(spec)
        self._spec, self._names = spec, names
        self._digest, self._deadline = job_digest(self._told["job"]), job.cohort.deadline
        invited = self._invitation.job_digest, self._invitation.federation
        for what, told, here in zip(
            ("job", "federation"), invited, (self._digest, federation_digest(self._told["spec"])), strict=True
        ):
            if told != here:
                of = f"the invitation is to {what} {told[:8]}..., and this is {here[:8]}..."
                raise InputError(
                    f"{self._link}: {of}; make a new one by `mpifl sites init`, with another --link and --out"
                )
        self._journal = Journal(self._out / "sites.jsonl")
        late = job.cohort.late == "next"
        self._late = LateAnswers(self._journal, self._home, job.cohort.late_rounds) if late else None
        for member in self._invitation.site:
            silos = frozenset(names.index(silo) for silo in member.silos)
            self._sites[member.name] = SiteLetters(member, silos, self._box(member, elements))
        self.silos = {name: site.silos for name, site in self._sites.items()}
        self._read_journal()

    def _box(self, member: Member, elements: int) -> Mailbox:
        outbox, largest = self._home.outbox(member.key), largest_letter(elements, len(member.silos))
        post = Post(self.run, self._identity, self._exchange, member.key, None, largest)
        link = FolderLink(self._link, member.key, "down")
        return Mailbox(post, link, outbox, say=lambda line: self._note(line))

    def _read_journal(self) -> None:
        """Take up run keys, the last number, which answer told which state, and when checkpoints began."""
        self._n, self._places, self._saved = 0, dict[str, int](), dict[int, int]()
        for line in self._journal.lines:
            self._n = max(self._n, line.n)
            if line.event == "hello" and (site := self._sites.get(line.about["site"])):
                site.box.post.other_key = line.about["key"]
                if line.about["job"] != self._digest or not site.box.put_again(0, "welcome"):
                    self._welcome(site, line.about["hello"])
            if site := self._sites.get(line.about.get("site", "")):
                site.mark = line.about.get("mark", site.mark)
            if line.event == "answered":
                of_silos = (value for key, value in line.about.items() if key.startswith("silo "))
                self._places |= dict.fromkeys(of_silos, int(line.about.get("place", line.n)))
            if line.event == "withdrawn":
                self._leaves(
                    self._sites[line.about["site"]], WithdrawRecord.model_validate_json(line.about["record"])
                )
            if line.event == "saved":  # the first time counts: from there on the answers were given first
                self._saved.setdefault(int(line.about["round"]), line.n)
        for site in self._sites.values():
            if site.joined and (letter := self._newest(site, self._n, "answer")):
                self._n = letter.n  # this folder was put back, and the site has gone on

    def figures(self) -> dict[str, Any]:
        """Return letters and bytes of each site since the last call, and which are away."""
        found = {}
        for name, site in self._sites.items():
            away = {} if site.awaited is None else {"away_since": site.since, "away_letter": site.awaited}
            if site.figures or name not in self.left:
                found[name] = {**site.figures, **away}
            site.figures = {}
        return found

    def told(self) -> dict[str, Any]:
        """Return what each site says of itself."""
        return {name: {"silos": len(site.silos), **site.about} for name, site in self._sites.items()}

    def opened(self) -> dict[str, str]:
        """Welcome the sites; see `Questions.opened`. Sites that joined before are not waited for."""
        until = time.monotonic() + (self._deadline or math.inf)
        for _ in self._looks("the sites", lambda: [n for n, s in self._sites.items() if not s.joined], until):
            missing = [
                name for name, site in self._sites.items() if not (site.joined or self._welcomed(site))
            ]
            if not missing:
                return {}
        return {name: f"site '{name}' has not joined yet" for name in missing}

    def _welcomed(self, site: SiteLetters) -> bool:
        """Welcome a site if its hello is here, and return whether it was."""
        if (letter := self._newest(site, -1, "hello")) is None:
            return False
        hello, name = letter.record, site.member.name
        if why := why_not_welcome(site.member.silos, hello, self._names, self._spec):
            self._refuse(site, letter.sha256, why)
            return False
        assert letter.key is not None
        self._journal.note("hello", 0, site=name, key=letter.key, hello=letter.sha256, job=self._digest)
        self._welcome(site, letter.sha256)
        site.about = {"mpifl": hello.mpifl, "torch": hello.torch, **hello.about}
        ranks = hello.about.get("ranks", "?")
        ranks = f"{ranks} rank{'' if ranks == '1' else 's'}"
        self._note(f"{name} joined: {counted(len(site.silos), 'silo')} on {ranks}")
        return True

    def _refuse(self, site: SiteLetters, hello: str, why: str) -> None:
        """Tell a site once that it cannot take part by this hello; it may say another one."""
        if hello != site.refused:
            site.refused = hello
            site.box.dispatch(0, EndRecord(life=self._journal.life, why=why))
            self._note(f"site '{site.member.name}' cannot take part: {why}")
        site.box.post.other_key = None

    def _welcome(self, site: SiteLetters, hello: str) -> None:
        """Send a site the job, in answer to the hello with this digest."""
        life, roster = self._journal.life, self._invitation.site
        welcome = WelcomeRecord(life=life, hello=hello, told=self._told, roster=roster)
        site.count("sent", site.box.dispatch(0, welcome).bytes)

    def asked(self, question: SiteQuestion) -> Iterator[tuple[str, CameBack | str]]:
        """Ask sites; see `Questions.asked`. All are asked before the first answer is waited for."""
        request = question.request
        work = request.work if isinstance(request, Compute) else request.kind
        self._await_late(question)
        self._next_number(round=str(request.round), work=work)
        waiting, absent = dict[str, str](), dict[str, str]()
        for name in question.base:
            why, site = self._why_absent(self._sites[name]), self._sites[name]
            if why and not (isinstance(request, Finish) and site.awaited is not None):  # it is to end, too
                absent[name] = why
            else:
                waiting[name] = self._ask(name, question)
        yield from absent.items()
        yield from self._answers(waiting, question)
        if line := differing_sites(self._sites):
            self._note(line, once=line)

    def late(self, waiting: Mapping[str, int]) -> dict[str, LateAnswer | str]:
        """Return the late answers that are here; see `Questions.late`."""
        assert self._late is not None
        return self._late.here(waiting)

    def missed(self, round: int) -> dict[str, int]:
        """Return who misses the question of a round; see `Questions.missed`."""
        assert self._late is not None
        away = {name: site.awaited for name, site in self._sites.items() if site.awaited is not None}
        return {name: n for name, n in away.items() if self._late.round_of(name, n) == round}

    def _await_late(self, question: SiteQuestion) -> None:
        """Wait again for late answers that are not here, also after a start; forget what counts no more."""
        if self._late is None:
            return
        self._late.forget(math.inf if isinstance(question.request, Finish) else question.oldest)
        for name, n in (question.waiting or {}).items():
            site = self._sites[name]
            if site.joined and name not in self.left and site.awaited != n and self._late.of(name, n) is None:
                site.box.put_again(n, "ask")
                site.miss(n)

    def saved(self, round: int) -> None:
        """Note that a checkpoint begins; see `Questions.saved`."""
        self._journal.note("saved", self._n, round=str(round))
        self._saved.setdefault(round, self._n)

    def _ask(self, name: str, question: SiteQuestion) -> str:
        """Send a question to a site; return the question's digest."""
        site = self._sites[name]
        told = question.request.model_copy(update={"serial": 0, "resting": None, "direct": False})
        record = AskRecord(
            life=self._journal.life,
            request=told,
            job=self._digest,
            base={self._names[silo]: digest for silo, digest in question.base[name].items()},
            keep_from=min(question.keep_from(name, self._places, self._saved), self._n),
            mark=site.mark,
        )
        on_host = {key: vector.cpu() for key, vector in question.vectors.items()}
        sealed = site.box.dispatch(self._n, record, on_host)
        site.count("sent", sealed.bytes)
        return record.question(on_host)

    def _answers(
        self, waiting: dict[str, str], question: SiteQuestion
    ) -> Iterator[tuple[str, CameBack | str]]:
        """Yield the answers to questions, whose digests are given by site, as they come, and hold none. After
        the deadline the rest is away.

        Raises:
            RoundLost: a signal asks the coordinator to end.
        """
        patience = self._deadline or math.inf
        last = isinstance(question.request, Finish)
        until = time.monotonic() + (min(patience, LEAVE_TAKING) if last else patience)
        for _ in self._looks(f"letter {self._n}", lambda: [*waiting], until):
            for name in [*waiting]:
                if (found := self._answer(name, waiting[name])) is not None:
                    del waiting[name]
                    yield name, found
                del found
            if not waiting:
                return
        for name in waiting:
            site = self._sites[name]
            site.miss(self._n)
            if self._late is not None and question.waiting is not None:
                self._late.miss(name, self._n, question.request, question.base[name], waiting[name])
            if last:
                where = f"its letter {self._n} lies in {self._link}"
                self._note(f"site '{name}' has not taken the model yet; {where}")
            yield name, f"site '{name}' has not answered letter {self._n} in time"

    def _answer(self, name: str, asked: str) -> CameBack | str | None:
        """Return a site's answer to the question of this number, None if there is none yet."""
        site = self._sites[name]
        try:
            letter = site.box.newest("answer", "no", after=self._n - 1)
        except LetterFault as fault:
            return f"site '{name}': {fault}"
        if letter is None or letter.n != self._n:
            return f"site '{name}' {left}" if (left := self._has_left(site)) else None
        site.count("received", letter.bytes)
        site.box.forget(self._n)  # not before: until it answers, the site may not have read its welcome
        record = letter.record
        if record.kind == "no":
            return self._said_no(site, record.why)
        if record.asked != asked:
            return f"site '{name}' answers another question than letter {self._n}"
        site.bits = record.report.about.get(BITS, "")
        told = {silo: record.states.get(self._names[silo], ("", ""))[1] for silo in site.silos}
        states = {silo: digest for silo, digest in told.items() if digest}
        noted = {f"silo {self._names[silo]}": digest for silo, digest in states.items()}
        place = record.place or self._n
        self._note_answer(site, record.mark, letter.signed, place=str(place), **noted)
        self._places |= dict.fromkeys(states.values(), place)
        if (came := parted(record.sums, [*letter.vectors.values()])) is None:
            return f"site '{name}' sends other vectors than it names"
        return CameBack(report=record.report, states=states, part=record.part, **came)

    def _why_absent(self, site: SiteLetters) -> str:
        """Return why a site is not asked, "" if it is."""
        name = site.member.name
        if left := self._has_left(site):
            return f"site '{name}' {left}"
        if site.no:
            return site.no
        if not site.joined and not self._welcomed(site):
            return f"site '{name}' has not joined yet"
        if site.awaited is None:
            return ""
        letter = self._newest(site, site.awaited - 1, "answer", "no")
        if letter is None:
            return f"site '{name}' is away since {site.since} (letter {site.awaited})"
        what = f"its answer to letter {site.awaited} came too late to count"
        what = what if self._late is None else self._late.take(name, site.awaited, letter)
        self._note(f"{name} is back ({what})")
        site.awaited = None
        return ""

    def _newest(self, site: SiteLetters, after: int, *kinds: str) -> Any:
        """Return the newest letter of some kinds; what is wrong with one is told."""
        try:
            return site.box.newest(*kinds, after=after)
        except LetterFault as fault:
            self._note(f"site '{site.member.name}': {fault}", once=(site.member.name, str(fault)))
            return None
