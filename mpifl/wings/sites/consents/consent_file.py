"""A site's `consent.toml`: which runs it takes part in. Without an entry nothing is answered."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from mpifl.common import InputError, tables, write_atomic
from mpifl.wings.site import PublicKey, SiloName, SiteLedger, sites_of
from mpifl.wings.sites.consents.consented_job import (
    code_in,
    in_singles,
    job_digest,
    masks_of,
    paths_in,
    shared_job,
)
from mpifl.wings.sites.consents.invitation import Invitation
from mpifl.wings.sites.consents.needed_numbers import needed_numbers
from mpifl.wings.sites.consents.own_code import check_code
from mpifl.wings.sites.consents.roster import check_roster, check_terms
from mpifl.wings.sites.letters import AskRecord, RunId
from mpifl.wire import Digest, Message, Report

FILE, LEDGER = "consent.toml", "consented.jsonl"


class ConsentedRun(BaseModel):
    """A table `[[run]]` of `consent.toml`.

    Attributes:
        coordinator: The public key of who may ask.
        job, federation: The digests of the job (`job_digest`) and of the federation.
        silos: This site's silos that may answer.
        masks: Whether sums leave under masks only; then `sites.toml` must be there.
        singles: Whether the vector of one silo may leave by itself.
        figures: The numbers of single silos that may leave.
        code: The digest of each piece of code that the job names (`code_digest`).
        paths: The files that the job names.
        runs: How many runs may be made of the job.
        questions: How many questions may be asked, evaluations too; a repeated one does not count.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    coordinator: PublicKey
    job: Digest
    federation: Digest
    silos: Annotated[list[SiloName], Field(min_length=1)]
    masks: Literal["required", "none"]
    singles: bool = False
    figures: list[str] = []
    code: dict[str, Digest] = {}
    paths: list[str] = []
    runs: PositiveInt = 1
    questions: PositiveInt

    def shown(self, report: Report) -> Report:
        """Return a report without the numbers of single silos that may not leave."""
        headers: list[Any] = []
        for header in report.headers:
            scalars: Mapping[str, Any] = getattr(header, "scalars", {})
            kept = {name: value for name, value in scalars.items() if name in self.figures}
            headers.append(header.model_copy(update={"scalars": kept}) if scalars else header)
        return report.model_copy(update={"headers": headers})


class _ConsentFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    run: list[ConsentedRun] = []


class _ConsentLine(Message):
    """A run, or a question of it, for which a consent was used."""

    coordinator: PublicKey
    job: Digest
    run: RunId
    question: str = Field(default="", pattern="^([0-9a-f]{64})?$")


def read_consents(site: Path) -> list[ConsentedRun]:
    """Return the consents in a site's folder.

    Raises:
        InputError: the file is wrong, or has two consents to one job.
    """
    path = site / FILE
    if not os.path.lexists(path):
        return []
    try:
        found = _ConsentFile.model_validate(tables(path)).run
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        given = f"{first['msg']}, not {str(first['input'])[:80]!r}"
        raise InputError(f"{path}: {place}: {given}; let `mpifl consent` write it") from None
    except (OSError, ValueError) as error:
        what = f"cannot be read ({str(getattr(error, 'strerror', None) or error)[:200]})"
        raise InputError(f"{path}: {what}; put back a copy that is whole") from None
    for k, one in enumerate(found):
        if any((one.coordinator, one.job) == (other.coordinator, other.job) for other in found[:k]):
            raise InputError(f"{path}: run {k + 1}: job {one.job[:8]}... is there twice; remove one")
    return found


def add_consent(site: Path, consent: ConsentedRun) -> None:
    """Write a consent into a site's folder, in the place of an earlier one to the same job.

    Raises:
        InputError: the file is wrong, or cannot be written.
    """
    _write(site, [*_others(site, consent.coordinator, consent.job), consent])


def remove_consent(site: Path, coordinator: str, job: str) -> None:
    """Remove the consent to a job from a site's folder, if it is there.

    Raises:
        InputError: the file is wrong, or cannot be written.
    """
    _write(site, _others(site, coordinator, job))


def _others(site: Path, coordinator: str, job: str) -> list[ConsentedRun]:
    return [one for one in read_consents(site) if (one.coordinator, one.job) != (coordinator, job)]


def _write(site: Path, consents: Sequence[ConsentedRun]) -> None:
    content = tomli_w.dumps({"run": [one.model_dump() for one in consents]})
    try:
        write_atomic(site / FILE, content.encode(), 0o600)
    except OSError as error:
        raise InputError(f"{site / FILE}: cannot be written ({error.strerror or error})") from None


def admitted(
    site: Path, invitation: Invitation, job: str, silos: Collection[str], link: Path
) -> ConsentedRun:
    """Return the consent to a run, after all that must hold before the job is read by what imports.

    Every rank calls this. The signature and the size were checked when the invitation or welcome was read.

    Args:
        site: This site's folder.
        job: The job as JSON, as the coordinator tells it now.
        silos: The federation's silos.
        link: The folder of the invitation, for errors.

    Raises:
        InputError: the consent has no such job, or another federation, path or code; or masks are required
            and there is no `sites.toml`, or one with another roster.
    """
    where, digest, table = site / FILE, job_digest(job), shared_job(job)
    entry = next(
        (one for one in read_consents(site) if (one.coordinator, one.job) == (invitation.key, digest)), None
    )
    if entry is None:
        look = f"look at it by `mpifl consent {link} --coordinator KEY`"
        raise InputError(f"{link}: job {digest[:8]} is not in {where}; {look}")
    if entry.federation != invitation.federation:
        other = f"{entry.federation[:8]}... there, and is {invitation.federation[:8]}... now"
        raise InputError(f"{where}: the federation of job {digest[:8]} is {other}; consent anew")
    if entry.masks == "required":
        sites = sites_of(site)
        if sites is None:
            raise InputError(f"{where}: masks = 'required' needs {site / 'sites.toml'}, which is not there")
        if not masks_of(table):
            raise InputError(f"{where}: masks = 'required', and the job has no [security] with masks")
        check_roster(sites, invitation.site, list(silos), "the invitation")
        check_terms(sites, table)
    if withheld := [name for name in needed_numbers(table) if name not in entry.figures]:
        what = f"the job makes no round without {withheld[0]!r} of each silo, which `figures` there lacks"
        raise InputError(f"{where}: {what}")
    if unnamed := [path for path in paths_in(table) if path not in entry.paths]:
        raise InputError(f"{where}: the job names the file {unnamed[0]!r}, and `paths` there does not")
    check_code(code_in(table), entry.code, str(where))
    if in_singles(table) and not entry.singles:
        what = "the job needs each silo's update by itself, and `singles` there is false"
        raise InputError(f"{where}: {what}; consent anew by `mpifl consent` with --singles, or stay away")
    return entry


class ConsentLedger:
    """Counts the runs and questions of a consent, in a file of the site's folder."""

    def __init__(self, site: Path, consent: ConsentedRun) -> None:
        """Read what was counted.

        Raises:
            InputError: the file is damaged.
        """
        self._consent, self._where = consent, site / FILE
        self._counted: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self.ledger = SiteLedger(site / LEDGER, _ConsentLine, self._take)
        self.ledger.catch_up()

    def count(self, run: str, ask: AskRecord | None = None, question: str = "") -> None:
        """Count a run, or a question of it; a repeated one does not count.

        Args:
            ask: The question's record; None for the run itself.
            question: The question's digest.

        Raises:
            InputError: the consent does not cover it, and nothing is answered.
        """
        own = self._consent
        if ask is not None and ask.job != own.job:
            told = f"asks for job {ask.job[:8]}..., and {self._where} has {own.job[:8]}..."
            raise InputError(f"the coordinator {told}; nothing is answered")
        self.ledger.record(lambda: self._line(run, question))

    def _line(self, run: str, question: str) -> _ConsentLine | None:
        own = self._consent
        counted = self._counted.get((own.coordinator, own.job), set())
        if (run, question) in counted:
            return None
        runs = {one for one, _ in counted} | {run}
        asked = sum(bool(digest) for _, digest in counted) + bool(question)
        for what, count, most in (("runs", len(runs), own.runs), ("questions", asked, own.questions)):
            if count > most:
                used = f"{what} = {most} for job {own.job[:8]}, and all are used"
                raise InputError(f"{self._where}: {used}; nothing is answered. Consent to more, or stop")
        return _ConsentLine(coordinator=own.coordinator, job=own.job, run=run, question=question)

    def _take(self, line: _ConsentLine) -> None:
        self._counted.setdefault((line.coordinator, line.job), set()).add((line.run, line.question))
