"""What a person at a site is shown before a consent, and the consent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import InputError, visible
from mpifl.wings.privacy import budget_of
from mpifl.wings.site import Identity, identity_of, sites_of
from mpifl.wings.sites.consents.consent_file import ConsentedRun
from mpifl.wings.sites.consents.consented_job import code_in, in_singles, masks_of, paths_in, shared_job
from mpifl.wings.sites.consents.invitation import Invitation
from mpifl.wings.sites.consents.needed_numbers import needed_numbers
from mpifl.wings.sites.consents.own_code import code_digest
from mpifl.wings.sites.consents.roster import check_roster, check_terms, in_fours, number_of

USUAL = 4
"""Questions for each round of each run, unless the person says another number: training, evaluation, the end,
and rounds that are asked again."""


def consent_to(
    invitation: Invitation,
    folder: Path,
    link: Path,
    figures: Sequence[str] = (),
    questions: int | None = None,
    runs: int = 1,
    *,
    singles: bool = False,
) -> ConsentedRun:
    """Return a consent to a run as it is now, to be shown and written.

    Args:
        folder: This site's folder.
        link: The folder of the invitation, for errors.
        figures: The numbers of single silos that may leave, beside those that the algorithm needs.
        questions: How many questions may be asked; by default four for each round of each run.
        runs: How many runs may be made of the job.
        singles: Whether the update of one silo may leave by itself, if the job needs that.

    Raises:
        InputError: this site is not invited, its `sites.toml` has another roster, code is not installed, or
            single updates may not leave.
    """
    member = invitation.member(_identity(folder).public)
    if member is None:
        what = "does not invite this site's key; send the coordinator what `mpifl identity show` prints"
        raise InputError(f"{link}: {what}")
    job = shared_job(invitation.job)
    _check_listed(job, invitation, folder)
    _check_singles(job, invitation, link, singles)
    rounds = job.get("rounds")
    return ConsentedRun(
        coordinator=invitation.key,
        job=invitation.job_digest,
        federation=invitation.federation,
        silos=member.silos,
        masks="required" if masks_of(job) else "none",
        singles=bool(in_singles(job)),
        figures=[*dict.fromkeys([*needed_numbers(job), *figures])],
        code={name: code_digest(name) for name in code_in(job)},
        paths=paths_in(job),
        runs=runs,
        questions=questions or USUAL * max(rounds if isinstance(rounds, int) else 1, 1) * runs,
    )


def shown(invitation: Invitation, consent: ConsentedRun, folder: Path) -> Iterator[str]:
    """Yield the lines that a person reads before the consent is written: the job, and what would leave.

    Raises:
        InputError: this site's `sites.toml` is wrong.
    """
    job, sites = shared_job(invitation.job), sites_of(folder)
    names = [f"{_said(job, table, 'name')} ({table})" for table in ("algorithm", "model", "task")]
    yield f"job {_said(job, 'name')} ({consent.job[:8]}) of {invitation.coordinator}: {', '.join(names)}"
    runs = "1 run" if consent.runs == 1 else f"{consent.runs} runs"
    yield f"rounds: {_said(job, 'rounds')}; at most {consent.questions} questions and {runs}"
    sites_of_run = [f"{one.name} ({', '.join(map(visible, one.silos))})" for one in invitation.site]
    yield f"sites: {', '.join(sites_of_run)}"
    yield f"yours: {', '.join(map(visible, consent.silos))}"
    if (server := invitation.https) is not None:
        trusted = (
            f"whose key is {server.key[:16]}..." if server.key else "whose certificate this system trusts"
        )
        yield f"letters go to: {server.url}, {trusted}; this site opens the connections"
    masked = consent.masks == "required"
    yield from _of_rounds(job, consent)
    if _said(job, "evaluate", "silos") != "False":
        one = "; with one silo these are that silo's" if len(consent.silos) == 1 else ""
        rows = "sums over this site's held-out rows, if it has some (metrics' states)"
        seen = ", under masks as well" if masked else f", which the coordinator sees{one}"
        yield f"leaves in a scoring: {rows}{seen}"
    names_alone = "no number (under masks names of numbers alone)" if masked else "no figure"
    yield "leaves for each silo: its weight, its state's digest, and " + (
        ", ".join(consent.figures) or names_alone
    )
    yield from _of_noise(job, folder)
    for name, digest in consent.code.items():
        yield f"code that would run here: {visible(name)}, sha256 {digest[:16]}...; look at it"
    for path in consent.paths:
        yield f"file that would be read here: {visible(path)}"
    if sites is not None:
        yield f"number of sites.toml: {in_fours(number_of(sites))}; it must be the same at each site"


def _of_rounds(job: Any, consent: ConsentedRun) -> Iterator[str]:
    """Yield the lines on what leaves in a round."""
    if consent.masks == "required":
        least, share = _said(job, "security", "least"), _said(job, "security", "colluding")
        yield f"leaves in a round: this site's masked sum; the coordinator sees sums of {least} sites or more"
        yield "from two such sums, over other sites, it can learn one site's sum"
        yield f"what masks promise holds while at most {share} of the sites side with the coordinator"
    elif consent.singles:
        what = f"each silo's own update, which the coordinator sees ({visible(in_singles(job))})"
        yield f"leaves in a round: {what}"
    else:
        yield "leaves in a round: this site's sum of its silos' updates, which the coordinator sees"


def _of_noise(job: Any, folder: Path) -> Iterator[str]:
    """Yield the lines on what noise hides, and on what this site's budget allows.

    Raises:
        InputError: the site's `budget.toml` is wrong.
    """
    if not isinstance(privacy := job.get("privacy"), dict):
        yield "privacy: no noise is added"
        return
    delta, of_silos = _said(privacy, "delta"), privacy.get("level") == "silo"
    much = f"up to epsilon {_said(privacy, 'epsilon')} at delta {delta} over the whole job"
    if privacy.get("epsilon") is None:
        of_each = "that of each silo" if privacy.get("noise_of") else _said(privacy, "noise")
        much = f"by a noise multiplier, {of_each}; epsilon is told at delta {delta}"
    what = "whether a silo took part" if of_silos else "each example of a silo in what leaves in a round"
    yield f"privacy: hides {what}, {much}"
    here = "this site adds the noise, and counts it in its ledger.jsonl"
    places = {"server": "the coordinator adds the noise, and sees sums without it", "silo": here}
    in_sum = "each site adds a share of the noise" + (
        "" if of_silos else "; this site's ledger.jsonl counts it"
    )
    yield f"noise: {places.get(_said(privacy, 'noise_at'), in_sum)}"
    if privacy.get("evaluate_unprotected"):
        yield "no noise hides: scores on held-out rows, and the share of what is clipped"
    if os.path.lexists(path := folder / "budget.toml"):
        own = budget_of(path)
        yield f"this site's budget: epsilon {own.epsilon:g} at delta {own.delta:g} over all jobs together"


def _check_listed(job: Any, invitation: Invitation, folder: Path) -> None:
    sites = sites_of(folder)
    if sites is not None:
        silos = [silo for one in invitation.site for silo in one.silos]
        check_roster(sites, invitation.site, silos, "the invitation")
        check_terms(sites, job)
    elif masks_of(job):
        what = "is not there, and under masks it says who takes part; write it with all sites"
        raise InputError(f"{folder / 'sites.toml'}: {what}")


def _check_singles(job: Any, invitation: Invitation, link: Path, allowed: bool) -> None:
    if (why := in_singles(job)) and not allowed:
        what = (
            f"job {invitation.job_digest[:8]} needs each silo's update by itself, which the coordinator sees"
        )
        raise InputError(f"{link}: {what} ({visible(why)}); allow it by --singles, or stay away")


def _identity(folder: Path) -> Identity:
    identity = identity_of(folder)
    if identity is None:
        raise InputError(f"{folder}: has no identity.key; make it by `mpifl identity make`")
    return identity


def _said(job: Any, *keys: str) -> str:
    """Return a value of a job as a text that a terminal can show, `none` if it is not there."""
    for key in keys:
        job = job.get(key) if isinstance(job, dict) else None
    return "none" if job is None else visible(str(job)[:200])
