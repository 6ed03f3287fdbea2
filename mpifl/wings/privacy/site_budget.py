"""What a site keeps for itself: its secret, its own budget, and a ledger of all that was asked of its data.

They lie in the folder that `MPIFL_SITE` names, which others cannot look into. A line of the ledger is on the
disk before its answer leaves, and no line is ever changed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpifl.common import InputError, by_weight, closed, hint_of, read_toml
from mpifl.wings.privacy.accountant import Steps
from mpifl.wings.site import SiteLedger, make_once, make_own, site_folder

SECRET_BYTES = 32
LEDGERS = ("ledger.jsonl", "released.jsonl")
"""What a folder has of answers that it gave; none is there before the secret."""


class BudgetEntry(BaseModel):
    """A line of the ledger: a question that was answered, and what that cost.

    Attributes:
        question: The digest of all that the answer follows from, but the secret.
        answer: The digest of the answer.
        silo: The name of the silo.
        shard: The sha256 of its shard.
        job: The job's name.
        run: A digest of the job.
        round: Rounds done before it.
        taken: The steps: (noise, rate, count) each.
        total: Steps of the silo in this run, these included.
        left: How many more questions like it the budget allows; None without a budget.
        processor: What has computed the answer, for people.
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

    @property
    def steps(self) -> list[Steps]:
        """What was taken."""
        return [Steps(*one) for one in self.taken]


@dataclass
class OfSilo:
    """A silo's lines of a ledger, as far as they were read.

    Attributes:
        entries: The lines, in their order.
        seen: How many lines of the ledger were looked at.
        counts: Its steps of each kind, (noise, rate).
        by_run: Its steps in each run.
    """

    entries: list[BudgetEntry] = field(default_factory=list)
    seen: int = 0
    counts: Counter[tuple[float, float]] = field(default_factory=Counter)
    by_run: Counter[str] = field(default_factory=Counter)

    @property
    def spent(self) -> list[Steps]:
        """What was taken, all steps of a kind together."""
        return [Steps(noise, rate, count) for (noise, rate), count in self.counts.items()]

    def take(self, entry: BudgetEntry) -> None:
        """Add a line."""
        self.entries.append(entry)
        for noise, rate, count in entry.taken:
            self.counts[noise, rate] += count
            self.by_run[entry.run] += count


class Budget(BaseModel):
    """`budget.toml`: what the site itself allows, whatever a job says.

    Attributes:
        epsilon, delta: What all answers together may cost.
        evaluate_unprotected: Whether a job may ask for figures of examples without noise, by its key of that
            name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    evaluate_unprotected: bool = False


class SiteFolder:
    """The site's folder, opened.

    Args:
        folder: Where it lies.
        named: What it is called in errors; by default by the variable that names it.

    Attributes:
        folder: Where it lies.
        secret: Bytes that nobody else knows.
        budget: The site's own, if it has one.
    """

    def __init__(self, folder: Path, named: str = "") -> None:
        self.folder = folder
        make_own(folder, named)
        self._answered: dict[str, BudgetEntry] = {}
        self._of_silo: dict[tuple[str, str], OfSilo] = {}
        self._ledger = SiteLedger(folder / LEDGERS[0], BudgetEntry, self._take)
        self.secret = _secret(folder / "key")
        own = folder / "budget.toml"
        self.budget = budget_of(own) if os.path.lexists(own) else None

    def answered(self, question: str) -> BudgetEntry | None:
        """Return what the ledger says of a question."""
        self._ledger.catch_up()
        return self._answered.get(question)

    def entries(self, silo: str = "", shard: str = "") -> list[BudgetEntry]:
        """Return all lines of a silo, known by its name or its shard; without either all that there are."""
        if silo or shard:
            return list(self.of_silo(silo, shard).entries)
        self._ledger.catch_up()
        return list(self._ledger.kept)

    def of_silo(self, silo: str, shard: str) -> OfSilo:
        """Return what there is of a silo, known by its name or its shard; each line is looked at once."""
        self._ledger.catch_up()
        found = self._of_silo.setdefault((silo, shard), OfSilo())
        for one in self._ledger.kept[found.seen :]:
            if one.shard == shard or (one.silo == silo and bool(silo)):
                found.take(one)
        found.seen = len(self._ledger.kept)
        return found

    def record(self, make: Callable[[], BudgetEntry | None]) -> None:
        """Write a line, and return when it is on the disk; see `Ledger.record`."""
        self._ledger.record(make)

    def add(self, make: Callable[[], BudgetEntry | None]) -> None:
        """Write a line, which is on the disk when `sync` returns; see `Ledger.add`."""
        self._ledger.add(make)

    def sync(self) -> None:
        """Return when all lines that were added are on the disk; see `Ledger.sync`."""
        self._ledger.sync()

    def _take(self, entry: BudgetEntry) -> None:
        self._answered[entry.question] = entry


def open_site() -> SiteFolder:
    """Open the folder that MPIFL_SITE names; it is made if it is not there.

    Raises:
        InputError: the variable is not set, or the folder is not the user's own.
    """
    return SiteFolder(site_folder("[privacy]", "this site's secret and its ledger"))


def budget_of(path: Path) -> Budget:
    """Read a site's own budget.

    Raises:
        InputError: it is none.
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
    """Say why no secret may be made in a folder that has none: it had one; "" if it may."""
    ledger = next((name for name in LEDGERS if (folder / name).exists()), None)
    if ledger is None:
        return ""
    what = f"has {ledger} and no key, by which it has drawn noise and sealed states"
    return f"{folder}: {what}; put the key back: a folder begun anew forgets what was spent and released"


def _secret(path: Path) -> bytes:
    """Return the site's secret; it is made once, and whole when it is there."""
    if not path.exists():
        if why := why_no_secret(path.parent):
            raise InputError(why)
        make_once(path, os.urandom(SECRET_BYTES))  # which another rank may have done by now
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise InputError(f"{path}: has {len(secret)} bytes, not {SECRET_BYTES}; put the right one back")
    return secret
