"""A site's privacy folder: its secret, its own budget, and a ledger of all answers about its data.

The environment variable `MPIFL_SITE` names the folder, and only the site's user can read it. A line of the
ledger is on the disk before its answer is sent, and lines are never changed.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpifl.common import InputError, by_weight, closed, hint_of, read_toml
from mpifl.common.machine import moved_from
from mpifl.wings.privacy.accountant import Steps
from mpifl.wings.site import SiteLedger, make_once, make_own, site_folder

SECRET_BYTES = 32
LEDGERS = ("ledger.jsonl", "released.jsonl")
"""The ledgers of a folder. The secret is made before any of them."""


class BudgetEntry(BaseModel):
    """A line of the ledger: a question that was answered, and its cost.

    Attributes:
        question: The digest of all that the answer follows from, except the secret.
        answer: The digest of the answer.
        silo: The name of the silo.
        shard: The sha256 of its shard.
        job: The job's name.
        run: A digest of the job.
        round: How many rounds were done before it.
        taken: The steps, each as (noise, rate, count).
        total: The silo's steps in this run, including these.
        left: How many more questions of this kind the budget allows; None without a budget.
        processor: The processor that computed the answer, for people to read.
        environment: What the question names of the software and the machine; () in lines of older versions.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    question: str
    answer: str
    silo: str
    shard: str
    job: str = ""
    run: str = ""
    round: int = 0
    taken: list[tuple[float, float, int]]
    total: int = 0
    left: int | None = None
    processor: str = ""
    environment: tuple[int | str, ...] = ()

    @property
    def steps(self) -> list[Steps]:
        """The steps of this answer."""
        return [Steps(*one) for one in self.taken]

    def check(self, answer: str) -> None:
        """Refuse another answer to the same question."""
        if self.answer != answer:
            what = "the same question would get another answer, whose difference noise does not protect"
            to_do = "continue with the software and the machine that answered it first"
            raise InputError(f"{what}; {to_do}{moved_from(self.processor)}")


@dataclass
class OfSilo:
    """A silo's lines of a ledger that were read so far.

    Attributes:
        entries: The lines, in their order.
        seen: How many lines of the whole ledger were read.
        counts: The number of steps of each kind (noise, rate).
        of_run: The number of steps by run, silo and shard: a run on changed shards asks other questions.
    """

    entries: list[BudgetEntry] = field(default_factory=list)
    seen: int = 0
    counts: Counter[tuple[float, float]] = field(default_factory=Counter)
    of_run: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def spent(self) -> list[Steps]:
        """All steps, those of the same kind added up."""
        return [Steps(noise, rate, count) for (noise, rate), count in self.counts.items()]

    def asked_alike(self, run: tuple[str, str, str], environment: tuple[int | str, ...]) -> int:
        """Return the steps of a run, silo and shard whose questions name an environment that begins so.

        A line that names none counts, too.
        """
        alike = (one for one in self.entries if (one.run, one.silo, one.shard) == run
                 and environment[: len(one.environment)] == one.environment[: len(environment)])  # fmt: skip
        return sum(count for one in alike for _, _, count in one.taken)

    def take(self, entry: BudgetEntry) -> None:
        """Add a line."""
        self.entries.append(entry)
        for noise, rate, count in entry.taken:
            self.counts[noise, rate] += count
            self.of_run[entry.run, entry.silo, entry.shard] += count


class Budget(BaseModel):
    """`budget.toml`: the site's own limits, which hold whatever a job says.

    Attributes:
        epsilon, delta: The most that all answers together may cost.
        evaluate_unprotected: Whether a job may use its key of the same name, to get metrics without noise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    evaluate_unprotected: bool = False


class SiteFolder:
    """The site's folder, opened.

    Args:
        named: Its name in error messages; by default the variable that names it.

    Attributes:
        secret: Bytes that only this site knows.
        budget: The site's own budget, if it has one.
        record, add, sync: Write lines, as `SiteLedger` does.
    """

    def __init__(self, folder: Path, named: str = "") -> None:
        self.folder = folder
        make_own(folder, named)
        self._answered: dict[str, BudgetEntry] = {}
        self._of_silo: dict[tuple[str, str], OfSilo] = {}
        self._ledger = ledger = SiteLedger(folder / LEDGERS[0], BudgetEntry, self._take)
        self.record, self.add, self.sync = ledger.record, ledger.add, ledger.sync
        self.secret = _secret(folder / "key")
        own = folder / "budget.toml"
        self.budget = budget_of(own) if os.path.lexists(own) else None

    def answered(self, question: str) -> BudgetEntry | None:
        """Return the ledger's line for a question, or None."""
        self._ledger.catch_up()
        return self._answered.get(question)

    def entries(self, silo: str = "", shard: str = "") -> list[BudgetEntry]:
        """Return all lines of a silo, found by its name or its shard; without both, all lines."""
        if silo or shard:
            return list(self.of_silo(silo, shard).entries)
        self._ledger.catch_up()
        return list(self._ledger.kept)

    def of_silo(self, silo: str, shard: str) -> OfSilo:
        """Return a silo's lines and steps, found by its name or its shard. Each line is read only once."""
        self._ledger.catch_up()
        found = self._of_silo.setdefault((silo, shard), OfSilo())
        for one in self._ledger.kept[found.seen :]:
            if one.shard == shard or (one.silo == silo and bool(silo)):
                found.take(one)
        found.seen = len(self._ledger.kept)
        return found

    def _take(self, entry: BudgetEntry) -> None:
        self._answered[entry.question] = entry


def open_site() -> SiteFolder:
    """Open the folder that MPIFL_SITE names, and make it if it is missing.

    Raises:
        InputError: the variable is not set, or the folder belongs to another user.
    """
    return SiteFolder(site_folder("[privacy]", "this site's secret and its ledger"))


def budget_of(path: Path) -> Budget:
    """Read a site's own budget.

    Raises:
        InputError: the file is not a valid budget.
    """
    try:
        return Budget.model_validate(read_toml(path))
    except ValidationError as error:
        first = by_weight(error.errors())[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path}: {key}: {first['msg']}; it takes epsilon, delta and evaluate_unprotected"
            f"{closed(hint_of(Budget, first))}"
        ) from None


def why_no_secret(folder: Path) -> str:
    """Return why a folder without a secret must not get a new one: it had one before; "" if it may."""
    ledger = next((name for name in LEDGERS if (folder / name).exists()), None)
    if ledger is None:
        return ""
    what = f"has {ledger} and no key, by which it has drawn noise and sealed states"
    return f"{folder}: {what}; put the key back: a folder begun again forgets what was spent and released"


def _secret(path: Path) -> bytes:
    """Return the site's secret. If there is none, make it; no rank ever reads half of it."""
    if not path.exists():
        if why := why_no_secret(path.parent):
            raise InputError(why)
        make_once(path, os.urandom(SECRET_BYTES))  # no effect if another rank was faster
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise InputError(f"{path}: has {len(secret)} bytes, not {SECRET_BYTES}; put the right one back")
    return secret
