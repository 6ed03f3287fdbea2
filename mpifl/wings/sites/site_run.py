"""A site's end of a run at its rank 0: its private folder, its hello, and the letters that it answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from mpifl.algorithms import EVALUATIONS, Algorithm
from mpifl.common import InputError, write_atomic
from mpifl.common.machine import signals
from mpifl.data.shards import FederationSpec
from mpifl.run.job import Job
from mpifl.training.beforehand import BITS, PROCESSOR, differing, moved
from mpifl.wings.masked import PartyPlan, Released, message_of, party_of, plain_sums
from mpifl.wings.privacy import LEDGERS, BudgetEntry, SiteFolder
from mpifl.wings.site import Identity, SiteLedger, SiteSeal
from mpifl.wings.sites.answers import ANSWERS, KeptAnswers, SiteAnswer, SiteRanks, vector_headers, vectors_of
from mpifl.wings.sites.consents import (
    SESSION_KEY,
    ConsentedRun,
    ConsentLedger,
    Invitation,
    RunHome,
    SentFile,
)
from mpifl.wings.sites.https import site_link
from mpifl.wings.sites.letters import (
    REMINDER,
    AnswerRecord,
    Journal,
    Letter,
    LetterFault,
    Mailbox,
    NoRecord,
    Post,
    ShareRecord,
    looks,
)
from mpifl.wings.sites.masks import LedgerMarks, SiteParty
from mpifl.wings.sites.site_hello import hello_of, own_entries
from mpifl.wings.sites.told_job import counted, largest_letter, names_of_silos
from mpifl.wire import AnyRequest, Compute, Finish, Report

ANOTHER_JOB = "it has joined for another job"
NOT_COVERED = "its consent does not cover the question"
PUT_BACK = "its folder was put back from a copy"
REFUSED = "it refuses such a sum; the site was told why"
"""What the coordinator learns of a refusal; the rest stays at the site."""


class SiteRun:
    """One site in one run.

    Args:
        invitation: The coordinator's invitation.
        consent: The site's consent to its job.
        identity: The site's identity.
        home: The run's folder at the site.
        link: The folder of the invitation, which carries the letters if no server does.
        shards: The folder of the site's shards.
        site: The site's private folder.
        ranks: How many ranks the site has.
    """

    def __init__(
        self,
        invitation: Invitation,
        consent: ConsentedRun,
        identity: Identity,
        home: RunHome,
        *,
        link: Path,
        shards: Path,
        site: Path,
        ranks: int,
    ) -> None:
        self._invitation, self._consent, self._identity, self._home = invitation, consent, identity, home
        self._link, self._place = link, invitation.place(link)
        self._shards, self._ranks = shards, ranks
        self._secret, self._exchange = SiteFolder(site).secret, home.key()
        self._journal, self._sent = Journal(home.journal), SentFile(site, invitation.run)
        if self._journal.last("withdrawn") is not None:
            what = f"this site has left run {invitation.run[:8]} by `mpifl withdraw`"
            raise InputError(f"{link}: {what}; it can take part in another run alone")
        self._ledger = ConsentLedger(site, consent)
        self._ledger.count(invitation.run)
        kinds = zip(LEDGERS, (BudgetEntry, Released), strict=True)
        ledgers: list[SiteLedger[Any]] = [
            SiteLedger(site / name, kind, lambda line: None) for name, kind in kinds
        ]
        ledgers += [self._ledger.ledger, self._sent.ledger]
        self._marks = LedgerMarks(SiteSeal(self._secret, invitation.run), ledgers)
        self._party: SiteParty | None = None
        self._bits = ""
        self._box, self._has_waited, self._said = self._mailbox(0), False, set[str]()

    def _mailbox(self, elements: int) -> Mailbox:
        told, largest = (
            self._invitation,
            largest_letter(elements, len(self._consent.silos)) if elements else 0,
        )
        post = Post(told.run, self._identity, self._exchange, told.key, told.run_key, largest)
        link = site_link(told, self._identity, self._link, self._home)
        return Mailbox(post, link, self._home.outbox(told.key), leaves=self._sent.note, say=say)

    def join(self) -> dict[str, str] | None:
        """Say hello and wait for the welcome; return what it tells. None if a signal asks to end.

        Raises:
            InputError: the site has other shards, or may not take part.
        """
        name, life = self._identity.name, self._journal.life
        entries = own_entries(self._shards, self._invitation, self._consent.silos)
        kept = self._home.folder / "welcome.json"
        if not kept.exists():
            self._box.dispatch(0, hello_of(name, life, entries, self._secret, self._ranks))
        for _ in self._looks():
            letter = self._box.newest("welcome", "end", after=-1)
            if letter is not None and letter.record.kind == "welcome":
                write_atomic(kept, json.dumps(letter.record.told).encode())
            if kept.exists():
                break
            if letter is not None:
                what = f"the coordinator does not take this site: {letter.record.why}"
                raise InputError(f"{self._link}: {what}")
            if signals.pending():
                return None
        told: dict[str, str] = json.loads(kept.read_bytes())
        return told

    def spec(self, text: str) -> FederationSpec:
        """Return the federation of a welcome, which is the site's own, without its test set."""
        return FederationSpec.model_validate_json(text).model_copy(update={"test": None})

    def places(self) -> dict[str, int]:
        """Return for each known digest of a state the number of the letter to which it was answered first."""
        answered = [line for line in self._journal.lines if line.event == "answered"]
        return {
            digest: int(line.about.get("place", line.n))
            for line in answered
            for key, digest in line.about.items()
            if _of_silo(key)
        }

    def compared(self, about: Mapping[int, Mapping[str, str]]) -> list[str]:
        """Note which bits the site's ranks compute; return a line if they differ, and if they are others than
        in an earlier life. What was answered by then is given again all the same.

        Args:
            about: What each rank reports of itself.
        """
        before = [line.about for line in self._journal.lines if line.event == "ranks"]
        now = [{key: told[key] for key in (BITS, PROCESSOR) if key in told} for told in about.values()]
        self._bits = "+".join(sorted({told[BITS] for told in now if told.get(BITS)}))
        for told in now:
            if told not in before:
                self._journal.note("ranks", 0, **told)
        return [line for line in (differing(about), moved(before, now)) if line]

    def kept(self) -> KeptAnswers:
        """Return the answers that are kept, which is the site's for this run alone."""
        return KeptAnswers(self._home.folder / ANSWERS)

    def under_masks(self, job: Job, spec: FederationSpec, algorithm: Algorithm) -> None:
        """Answer with masked sums, as the job says.

        Raises:
            InputError: the site's folder is missing or damaged, or its `sites.toml` has other sites.
        """
        roster, names = self._invitation.site, names_of_silos(spec)
        placed = {nth: [names.index(silo) for silo in one.silos] for nth, one in enumerate(roster)}
        number = [one.key for one in roster].index(self._identity.public)
        key, run = self._home.key(SESSION_KEY), self._invitation.run
        masking = party_of(job, spec, algorithm, placed, number, run, exchange=key)
        how = plain_sums(job, spec, algorithm)
        self._party = SiteParty(masking, how, number, run, roster, self._home.folder)

    def answer_letters(self, ranks: SiteRanks, spec: FederationSpec, job: str, elements: int) -> bool:
        """Answer letters until the end; return False if a signal asks to end before.

        Args:
            job: The digest of the job.
            elements: How many elements the model has.

        Raises:
            InputError: a letter is of another job, or was another question before.
        """
        self._box, names = self._mailbox(elements), names_of_silos(spec)
        before = self._journal.last("answered")
        last = before.n if before else 0
        if before is not None:
            self._refuse_other(last, before.about.get("asked", ""))
            self._box.put_again(last, "answer" if "asked" in before.about else "share")
        while True:
            letter = self._next(last, ended=before is not None and "end" in before.about)
            if letter is None:
                return before is not None and "end" in before.about
            if letter.record.kind == "sum":
                self._hand_over(letter)
            elif letter.record.job != job:
                self._refuse(letter.n, ANOTHER_JOB)
                told, here = letter.record.job[:8], job[:8]
                what = f"letter {letter.n} is of job {told}..., this site has joined for {here}..."
                raise InputError(f"{what}; look at it by `mpifl consent`, and join again")
            else:
                self._work(letter, ranks, names, last)
            last, before = letter.n, self._journal.last("answered")

    def _next(self, last: int, ended: bool) -> Letter | None:
        """Return the next question. None if a signal asks to end, or at the end if there is none."""
        for _ in self._looks():
            if signals.pending():
                return None
            try:
                if (letter := self._box.newest("ask", "sum", after=last)) is not None:
                    return letter
            except LetterFault as fault:
                self._say_once(f"{self._identity.name}: not answered: {fault}")
            if ended:
                return None
        return None

    def _looks(self) -> Iterator[None]:
        """Return looks at the link; the first wait of a life is told at once."""

        def remind() -> None:
            say(f"{self._identity.name}: waiting for the coordinator's letter in {self._place}")
            self._has_waited = True

        return looks(remind, first=REMINDER if self._has_waited else 0.0)

    def _say_once(self, line: str) -> None:
        if line not in self._said and len(self._said) < 100:
            self._said.add(line)
            say(line)

    def _refuse_other(self, last: int, asked: str) -> None:
        """Refuse to go on if the letter that was answered last has become another question."""
        letter = self._box.newest("ask", after=last - 1) if asked else None
        if letter is not None and letter.n == last and letter.record.question(letter.vectors) != asked:
            why = f"letter {last} was another question before"
            self._refuse(last, why)
            two = "two coordinators use this run folder, or it was put back from a copy"
            raise InputError(f"{why}; {two}: nothing is answered")

    def _refuse(self, n: int, why: str) -> None:
        """Tell the coordinator why this site answers nothing any more."""
        self._box.dispatch(n, NoRecord(life=self._journal.life, of=n, why=why))

    def _work(self, letter: Letter, ranks: SiteRanks, names: Sequence[str], last: int) -> None:
        """Carry out a question, and answer it."""
        n, ask, began = letter.n, letter.record, time.monotonic()
        asked, why = ask.question(letter.vectors), PUT_BACK
        try:
            self._marks.check(ask.mark)
            why = NOT_COVERED
            self._ledger.count(self._invitation.run, ask, asked)
        except InputError:
            self._refuse(n, why)
            raise
        self._journal.note("taken", n, asked=asked)
        base = {names.index(name): digest for name, digest in ask.base.items() if name in self._consent.silos}
        answer = ranks.answer(n, ask.request, letter.vectors, base, ask.keep_from, question=asked)
        states = {names[silo]: digest for silo, digest in answer.states.items()}
        part = self._part(n, ask.request, letter.vectors, answer)
        work = getattr(ask.request, "work", ask.request.kind)
        record = AnswerRecord(
            life=self._journal.life,
            asked=asked,
            report=self._consent.shown(Report(headers=list(answer.replies), about={BITS: self._bits})),
            sums=vector_headers(answer),
            states={name: (ask.base.get(name, ""), digest) for name, digest in states.items()},
            part=part,
            place=answer.place,
            last=last,
            mark=self._marks.mark(),
        )
        sealed = self._box.seal(n, record, vectors_of(answer))
        ended = {"end": "1"} if isinstance(ask.request, Finish) else {}
        noted = {f"silo {name}": digest for name, digest in states.items()}
        told = {"asked": asked, "place": str(answer.place), "round": str(ask.request.round), "work": work}
        self._journal.note("answered", n, **told, **noted, **ended)
        shown = ask.request.round + (work not in (*EVALUATIONS, "finish"))  # people count from 1
        self._box.put(sealed, {"round": shown, "work": work})
        self._box.forget(n)
        if ended and self._party is not None:
            self._party.forget()
            self._home.forget(SESSION_KEY)
        left = f"{sealed.bytes / 1000:.1f} kB left{answer.first_fault(names)}"
        verb = "scored the model in" if work in EVALUATIONS else "worked"
        what = f"{counted(answer.worked, 'silo')} {verb} {time.monotonic() - began:.1f} s, {left}"
        what = "it was answered before; " + left if answer.place != n else what
        what = f"the end: the model is here, {left}" if ended else what
        say(f"{self._identity.name}: letter {n}, round {shown}: {what}")

    def _part(
        self, n: int, request: AnyRequest, vectors: Mapping[str, Tensor], answer: SiteAnswer
    ) -> PartyPlan | None:
        """Keep the sums of a question under masks; return what the answer tells of them."""
        if self._party is None or answer.plan is None:
            return None
        assert isinstance(request, Compute)
        return self._party.keep(n, request, message_of(request, vectors), answer.totals, answer.plan)

    def _hand_over(self, letter: Letter) -> None:
        """Hand over the masked sum of the question that was answered last, or say why not."""
        n, of, vectors, context = letter.n, letter.record.of, dict[str, Tensor](), None
        self._journal.note("taken", n)
        try:
            if self._party is None:
                raise InputError("the job has no masks, and a masked sum is asked for")
            context, vectors = self._party.share(letter.record)
        except InputError as error:
            say(f"{self._identity.name}: letter {n}: no sum is handed over: {error}")
        refused, mark = None if context else REFUSED, self._marks.mark()
        record = ShareRecord(life=self._journal.life, of=of, context=context, refused=refused, mark=mark)
        sealed = self._box.seal(n, record, vectors)
        self._journal.note("answered", n, **({"of": str(of)} if vectors else {}))
        self._box.put(sealed, {"work": "sum"})
        self._box.forget(n)
        if vectors:
            what = f"the masked sum of letter {of} left, {sealed.bytes / 1000:.1f} kB"
            say(f"{self._identity.name}: letter {n}: {what}")


def say(line: str) -> None:
    """Print a line for the people at the site."""
    print(line, flush=True)


def _of_silo(key: str) -> bool:
    return key.startswith("silo ")
