"""A site's ledger of released masked sums: the same sum over other silos would reveal the difference."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from mpifl.common import InputError
from mpifl.wings.privacy import LEDGERS
from mpifl.wings.site import SiteLedger, make_own

Names = Annotated[list[str], AfterValidator(sorted)]
_Question = tuple[str, int, str]


class Released(BaseModel):
    """A line of the ledger: a party's part of a released masked sum.

    Attributes:
        run: The digest of the run.
        round: How many rounds were done before it.
        work: The name of the client method; a round asks for each one once.
        message: The digest of the request: received vectors, numbers and client method.
        set: The names of all silos in the sum, of all parties.
        grids: The digest of the vectors, their grids, and the names of numbers.
        noise: The digest of the noise's deviations and of the number of its shares.
        shares: How many shares of noise are counted on, 0 without noise.
        silos: The names of the party's own silos.
        answers: By name, the digest of what each own silo has added to the sum.
        terms: The digest of all parts of the job that affect a sum, without the shards.
        data: By name, the sha256 of the shard of each silo in `answers`.
        job: The job's name, for people to read.
        processor: The processor that computed the answers, for people to read.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: str
    round: int
    work: str
    message: str
    set: Names
    grids: str
    noise: str = ""
    shares: int = 0
    silos: Names
    answers: dict[str, str] = {}
    terms: str = ""
    data: dict[str, str] = {}
    job: str = ""
    processor: str = ""

    @property
    def question(self) -> _Question:
        """The key of a question, which may get only one sum."""
        return self.run, self.round, self.work


class Releases:
    """The ledger in a site's folder, shared by all parties of the site.

    Only one sum is released for a question. The same sum may be released again, since it reveals nothing new.
    """

    def __init__(self, folder: Path, evaluations: Collection[str] = ()) -> None:
        """Open the ledger.

        Args:
            folder: The site's folder.
            evaluations: The client methods that evaluate the model of the round before.

        Raises:
            InputError: the folder belongs to another user, or the ledger is damaged.
        """
        make_own(folder)
        self._evaluations = evaluations
        self._by_question: dict[_Question, list[Released]] = {}
        self._by_message: dict[str, list[Released]] = {}
        """A line of each question and set of silos for each message."""
        self._data: dict[tuple[str, str, str], str] = {}
        """The shard of a silo, by message, terms and silo."""
        self._shares: dict[tuple[str, str, int], int] = {}
        """The number of shares of noise, by message, terms and round."""
        self._ledger = SiteLedger(folder / LEDGERS[1], Released, self._take)
        self._ledger.catch_up()  # so that a damaged ledger stops the run before the first round

    def check(self, entry: Released, gone: Collection[str] = ()) -> None:
        """Check that a sum may be released.

        Args:
            entry: What would be noted.
            gone: Silos of sites that have sworn to hand over nothing for this question. The sum without
                exactly these may follow one with them, which was never whole: without their part it opens
                nothing. A site that lies reveals its own part alone.

        Raises:
            InputError: another sum was released for the question. Or the message was answered over other
                silos, with other examples of a silo, or with other noise.
        """
        self._ledger.catch_up()
        self._compare(entry, gone)

    def record(self, entry: Released, gone: Collection[str] = ()) -> None:
        """Note that a sum is released, and return when the note is on the disk. Do not repeat a line.

        Raises:
            InputError: as `check`, or the ledger cannot be written. Then nothing may be sent.
        """

        def make() -> Released | None:
            self._compare(entry, gone)
            return None if self._is_known(entry) else entry

        self._ledger.record(make)

    def _take(self, entry: Released) -> None:
        self._by_question.setdefault(entry.question, []).append(entry)
        same = self._by_message.setdefault(entry.message, [])
        if not any((line.question, line.set) == (entry.question, entry.set) for line in same):
            same.append(entry)
        for silo, sha256 in entry.data.items():
            self._data.setdefault((entry.message, entry.terms, silo), sha256)
        if entry.shares:
            self._shares.setdefault((entry.message, entry.terms, entry.round), entry.shares)

    def _is_known(self, entry: Released) -> bool:
        known = self._by_question.get(entry.question, [])
        return any((entry.silos, entry.set) == (line.silos, line.set) for line in known)

    def _compare(self, entry: Released, gone: Collection[str]) -> None:
        for line in self._by_question.get(entry.question, []):
            self._compare_question(entry, line, gone)
        lines = self._by_message.get(entry.message, [entry])
        for line in lines:
            same = f"round {self._shown(line)} of job {line.job!r} was asked the same"
            if line.set != entry.set and not _without(line, entry, gone):
                raise self._refusal(entry, f"{same}, {_other_set(line, entry)}")
        same = f"round {self._shown(lines[0])} of job {lines[0].job!r} was asked the same"
        before = self._shares.get((entry.message, entry.terms, entry.round), entry.shares)
        if entry.shares and before != entry.shares:
            what = f"and its noise is to be of {entry.shares} shares, where it was of {before}"
            raise self._refusal(entry, f"{same}, {what}, so both sums together would have less")
        for silo, sha256 in entry.data.items():
            if self._data.get((entry.message, entry.terms, silo), sha256) != sha256:
                what = f"and silo {silo!r} has other examples now, so both sums would tell what has changed"
                raise self._refusal(entry, f"{same}, {what}")

    def _compare_question(self, entry: Released, line: Released, gone: Collection[str]) -> None:
        """Compare a sum with an earlier one for the same run, round and client method."""
        again, without = "the round was released before", _without(line, entry, gone)
        if line.set != entry.set and not without:
            raise self._refusal(entry, f"{again}, {_other_set(line, entry)}")
        if line.message != entry.message:
            what = f"{again}, and is now asked with another model or other numbers"
            raise self._refusal(entry, what, line)
        if line.grids != entry.grids and not without:  # the total weight is another
            raise self._refusal(entry, f"{again}, and its sums are to be rounded otherwise")
        if line.noise != entry.noise and not without:
            raise self._refusal(entry, f"{again}, and is now asked with other noise")
        for silo, answer in entry.answers.items():
            if silo in line.silos and line.answers.get(silo) != answer:
                what = f"{again}, and the answer of silo {silo!r} is another now"
                raise self._refusal(entry, what, line)

    def _refusal(self, entry: Released, why: str, before: Released | None = None) -> InputError:
        """Return the error that refuses a sum. For differing bits it names the earlier sum's processor."""
        what = f"round {self._shown(entry)} of job {entry.job!r} is not released ({entry.work})"
        would = "continue with the run from its own last checkpoint, or use another seed"
        if before and before.processor and before.processor != entry.processor:
            would = f"it was computed on {before.processor}, and this is {entry.processor}; {would}"
        return InputError(f"{self._ledger.path}: {what}: {why}; {would}")

    def _shown(self, entry: Released) -> int:
        """Return a round as people count it, from 1. The ledger counts the rounds done before."""
        return entry.round + (entry.work not in self._evaluations)


def _without(line: Released, entry: Released, gone: Collection[str]) -> bool:
    """Return whether a sum is an earlier one of the same question without silos that are gone, and both have
    no noise. To another question that was asked the same they may have handed over their part."""
    left = [silo for silo in line.set if silo not in gone]
    noisy = line.shares or entry.shares
    return line.question == entry.question and line.set != entry.set == left and not noisy


def _other_set(line: Released, entry: Released) -> str:
    """Return which silos two sums do not share, as text for an error."""
    gone, new = (set(line.set) - set(entry.set)), (set(entry.set) - set(line.set))
    parts = [f"{word} {_named(names)}" for word, names in (("without", gone), ("with", new)) if names]
    return f"and is now to be over other silos ({', '.join(parts)}), so both sums would tell them apart"


def _named(names: set[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
