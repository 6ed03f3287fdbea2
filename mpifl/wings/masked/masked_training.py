"""What a rank needs for `[security]`: the settings of its sums, and the party that masks them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpifl.algorithms import EVALUATIONS, Algorithm, usual_weight
from mpifl.common import InputError
from mpifl.data.shards import AnyEntry, AnySpec
from mpifl.run.job import Job
from mpifl.run.job.tables import SecuritySettings
from mpifl.training import drawn
from mpifl.wings.dpsgd import digest_of, run_of
from mpifl.wings.masked.masked_party import MaskedParty, MaskedTerms
from mpifl.wings.masked.party_sums import FixedSums
from mpifl.wings.masked.released_file import ReleasedFile
from mpifl.wings.masked.releases import Releases
from mpifl.wings.masked.session import Offer, Session
from mpifl.wings.privacy import SiteFolder
from mpifl.wings.site import Sites, identity_of, site_folder, sites_of

SITE_NEEDED = ("[security]", "this site's keys and what it released")
"""What asks a rank for its site's folder, and for what."""


def sums_of(
    job: Job,
    spec: AnySpec,
    algorithm: Algorithm,
    run: Path,
    placed: Mapping[int, Sequence[int]],
    rank: int,
    id: str,
) -> FixedSums:
    """Return the settings by which this rank adds up updates as whole numbers.

    Args:
        algorithm: The job's algorithm, made for this federation.
        run: The run folder.
        placed: The silos of each worker.
        rank: This rank.
        id: The run's id, by which sites tell runs of one job apart.

    Raises:
        InputError: there are fewer parties than the job asks for, or the site's folder is missing or damaged.
    """
    assert job.security is not None

    @functools.cache
    def largest_weight(work: str) -> float:
        counts = [entry.examples for entry in spec.silos]
        return max(algorithm.weight(work, one, usual_weight(job.cohort.weights, one)) for one in counts)

    if not job.security.masks:
        return FixedSums(job.security.range, largest_weight, len(spec.silos))
    _check_parties(job.security, sum(map(bool, placed.values())))
    _check_drawn(job, job.security.least, len(spec.silos))
    masking = _party(job, spec, algorithm, placed, rank, id) if placed.get(rank) else None
    how = FixedSums(job.security.range, largest_weight, len(spec.silos), True, masking)
    if rank:
        return how
    check = functools.partial(_check_offer, names_of(spec), list(placed.values()))
    released, least = ReleasedFile(run, id), job.security.least
    return dataclasses.replace(how, released=released, least=least, check_offer=check)


def names_of(spec: AnySpec) -> list[str]:
    """Return the names of silos in offers and in `sites.toml`."""
    return [entry.name or f"silo {silo}" for silo, entry in enumerate[AnyEntry](spec.silos)]


def _check_offer(
    names: Sequence[str], hosted: Sequence[Sequence[int]], answered: Sequence[int], offered: Any
) -> None:
    """Check, at the server, that a rank offers a key for exactly its silos; another offer would stop the run.
    Raise ValueError if the offer is unreadable, or for other silos."""
    try:
        offer = Offer.model_validate(offered)
    except ValidationError:
        raise ValueError("what it offers for its keys cannot be read") from None
    own = {names[silo] for silos in hosted if set(answered) & {*silos} for silo in silos}
    if wrong := sorted(own.symmetric_difference(offer.silos)):
        raise ValueError(f"its offer is not for the silos that it hosts ({wrong[0]})")


def _check_parties(security: SecuritySettings, parties: int) -> None:
    if parties < security.least:
        what = f"{parties} workers host silos, and each is one party"
        to_do = f"start {security.least} or more of them, or set least = {parties} where that is enough"
        raise InputError(f"[security] least = {security.least}: {what}; {to_do}")


def _check_drawn(job: Job, least: int, silos: int) -> None:
    if (drawn := job.cohort.size(silos)) < least:
        what = f"[cohort] fraction = {job.cohort.fraction:g} draws {drawn} of {silos} silos a round"
        to_do = f"use a larger fraction, or set least = {drawn} where that is enough"
        raise InputError(f"[security] least = {least}: {what}, and each is of one party; {to_do}")


def _party(
    job: Job, spec: AnySpec, algorithm: Algorithm, placed: Mapping[int, Sequence[int]], rank: int, id: str
) -> MaskedParty:
    assert job.security is not None
    folder = site_folder(*SITE_NEEDED)
    names = names_of(spec)
    sizes = [entry.examples["train"] for entry in spec.silos]
    known = run_of(job, spec, id)
    draw = functools.cache(functools.partial(drawn, job.cohort, sizes, job.seed))
    party_of = {silo: party for party, silos in placed.items() for silo in silos}
    hosts = [party_of[silo] for silo in range(len(names))]
    identity, sites = identity_of(folder), sites_of(folder)
    terms = MaskedTerms(
        run=known.run,
        digest=known.job,
        terms=digest_of(job),
        data=[one.sha256 for one in spec.silos],
        job=job.name,
        silos=names,
        hosts=hosts,
        settings=_strictest(job.security, sites),
        drawn=draw,
        purpose=algorithm.purpose,
        rounds=job.rounds,
    )
    session = Session(known.run, [names[silo] for silo in placed[rank]], identity, sites)
    return MaskedParty(terms, session, Releases(folder, EVALUATIONS), SiteFolder(folder).secret)


def _strictest(security: SecuritySettings, sites: Sites | None) -> SecuritySettings:
    """Return the job's settings, raised to the least that this site demands."""
    if sites is None:
        return security
    more = max(security.least, sites.least), max(security.colluding, sites.colluding)
    return security.model_copy(update=dict(zip(("least", "colluding"), more, strict=True)))
