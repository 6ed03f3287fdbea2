"""What a site has released under masks; the same sum over other silos would tell these apart."""

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
    """A line of the ledger: a party's part of a sum that was released under masks.

    Attributes:
        run: A digest of the run.
        round: Rounds done before it.
        work: What was asked; a round asks each work once.
        message: The digest of what was asked: received vectors, numbers, work.
        set: The names of the silos that the sum is over, all parties' together.
        grids: The digest of the arithmetic.
        noise: The digest of how much noise the sum is to have, and of how many shares of it.
        shares: How many shares of noise the sum is counted to have, 0 for none.
        silos: The names of the party's own silos.
        answers: The digests of what those of them that have a part in the sum have added, by name.
        terms: The digest of the job, whatever it is asked of.
        data: The sha256 of the shards of those in `answers`, by name.
        job: The job's name, for people.
        processor: What has computed it here, for people.
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
        """What may be asked once."""
        return self.run, self.round, self.work


class Releases:
    """The ledger of a site's folder, which all its parties share.

    A sum is released once for a question. The same sum may be released again: it tells nothing new.
    """

    def __init__(self, folder: Path, evaluations: Collection[str] = ()) -> None:
        """Open it.

        Args:
            folder: The site's.
            evaluations: The works that look at the model of the round before.

        Raises:
            InputError: the folder is not the user's own, or the ledger is none.
        """
        make_own(folder)
        self._evaluations = evaluations
        self._by_question: dict[_Question, list[Released]] = {}
        self._by_message: dict[str, Released] = {}
        """The first line of each; all others are over the same silos."""
        self._data: dict[tuple[str, str, str], str] = {}
        """The shard of each silo that has answered a message by some terms."""
        self._shares: dict[tuple[str, str, int], int] = {}
        """How many shares the noise of a message by some terms in a round was of."""
        self._ledger = SiteLedger(folder / LEDGERS[1], Released, self._take)
        self._ledger.catch_up()  # one that is none is better found before the first round

    def check(self, entry: Released) -> None:
        """See that a sum may be released.

        Raises:
            InputError: another was released for the question, or for the message over other silos, or over
                other examples of one, or with other noise.
        """
        self._ledger.catch_up()
        self._compare(entry)

    def record(self, entry: Released) -> None:
        """Note that a sum is released, and return when that is on the disk; no line is repeated.

        Raises:
            InputError: as `check`, or the ledger cannot be written. Nothing may be sent then.
        """

        def make() -> Released | None:
            self._compare(entry)
            return None if self._is_known(entry) else entry

        self._ledger.record(make)

    def _take(self, entry: Released) -> None:
        self._by_question.setdefault(entry.question, []).append(entry)
        self._by_message.setdefault(entry.message, entry)
        for silo, sha256 in entry.data.items():
            self._data.setdefault((entry.message, entry.terms, silo), sha256)
        if entry.shares:
            self._shares.setdefault((entry.message, entry.terms, entry.round), entry.shares)

    def _is_known(self, entry: Released) -> bool:
        return any(entry.silos == line.silos for line in self._by_question.get(entry.question, []))

    def _compare(self, entry: Released) -> None:
        for line in self._by_question.get(entry.question, []):
            self._compare_question(entry, line)
        line = self._by_message.get(entry.message, entry)
        same = f"round {self._shown(line)} of job {line.job!r} was asked the same"
        if line.set != entry.set:
            raise self._refusal(entry, f"{same}, {_other_set(line, entry)}")
        before = self._shares.get((entry.message, entry.terms, entry.round), entry.shares)
        if entry.shares and before != entry.shares:
            what = f"and its noise is to be of {entry.shares} shares, where it was of {before}"
            raise self._refusal(entry, f"{same}, {what}, so both sums together would have less")
        for silo, sha256 in entry.data.items():
            if self._data.get((entry.message, entry.terms, silo), sha256) != sha256:
                what = f"and silo {silo!r} has other examples now, so both sums would tell what has changed"
                raise self._refusal(entry, f"{same}, {what}")

    def _compare_question(self, entry: Released, line: Released) -> None:
        """Hold a sum against one of the same run, round and work."""
        again = "the round was released before"
        if line.set != entry.set:
            raise self._refusal(entry, f"{again}, {_other_set(line, entry)}")
        if line.message != entry.message:
            what = f"{again}, and is now asked with another model or other numbers"
            raise self._refusal(entry, what, line)
        if line.grids != entry.grids:
            raise self._refusal(entry, f"{again}, and its sums are to be rounded otherwise")
        if line.noise != entry.noise:
            raise self._refusal(entry, f"{again}, and is now asked with other noise")
        for silo, answer in entry.answers.items():
            if silo in line.silos and line.answers.get(silo) != answer:
                what = f"{again}, and the answer of silo {silo!r} is another now"
                raise self._refusal(entry, what, line)

    def _refusal(self, entry: Released, why: str, before: Released | None = None) -> InputError:
        """Refuse a sum; where its bits are others than before, name the processor that came to those."""
        what = f"round {self._shown(entry)} of job {entry.job!r} is not released ({entry.work})"
        would = "go on with the run from its own last checkpoint, or take another seed"
        if before and before.processor and before.processor != entry.processor:
            would = f"it was computed on {before.processor}, and this is {entry.processor}; {would}"
        return InputError(f"{self._ledger.path}: {what}: {why}; {would}")

    def _shown(self, entry: Released) -> int:
        """Return a round as people count it, from 1; a ledger has the rounds done before."""
        return entry.round + (entry.work not in self._evaluations)


def _other_set(line: Released, entry: Released) -> str:
    """Say by what silos two sums differ."""
    gone, new = (set(line.set) - set(entry.set)), (set(entry.set) - set(line.set))
    parts = [f"{word} {_named(names)}" for word, names in (("without", gone), ("with", new)) if names]
    return f"and is now to be over other silos ({', '.join(parts)}), so both sums would tell them apart"


def _named(names: set[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
