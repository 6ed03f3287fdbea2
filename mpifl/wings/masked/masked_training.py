"""What a rank needs for `[security]`: the settings of its sums, and the party that masks them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpifl.algorithms import EVALUATIONS, Algorithm, usual_weight
from mpifl.common import InputError
from mpifl.data.shards import AnyEntry, AnySpec, held_out
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
from mpifl.wings.site import Exchange, Sites, identity_of, site_folder, sites_of

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
    how = plain_sums(job, spec, algorithm)
    if not job.security.masks:
        return how
    parties = sum(map(bool, placed.values()))
    to_do = f"start {job.security.least} or more of them, or set least = {parties} where that is enough"
    check_least(
        job, parties, f"{parties} workers host silos, and each is one party; {to_do}", len(spec.silos)
    )
    masking = party_of(job, spec, algorithm, placed, rank, id) if placed.get(rank) else None
    check_holding(job, spec, algorithm, list(placed.values()))
    how = dataclasses.replace(how, masks=True, masking=masking)
    return how if rank else of_server(how, job, spec, ReleasedFile(run, id), list(placed.values()))


def plain_sums(job: Job, spec: AnySpec, algorithm: Algorithm) -> FixedSums:
    """Return the settings of a job's sums of whole numbers without masks."""
    assert job.security is not None

    @functools.cache
    def largest_weight(work: str) -> float:
        counts = [entry.examples for entry in spec.silos]
        return max(algorithm.weight(work, one, usual_weight(job.cohort.weights, one)) for one in counts)

    return FixedSums(job.security.range, largest_weight, len(spec.silos))


def of_server(
    how: FixedSums, job: Job, spec: AnySpec, released: ReleasedFile, hosted: Sequence[Collection[int]]
) -> FixedSums:
    """Return the settings of masked sums at the server.

    Args:
        how: The settings that all ranks have.
        hosted: The silos of each party.
    """
    assert job.security is not None
    check = functools.partial(_check_offer, names_of(spec), hosted)
    return dataclasses.replace(
        how, masks=True, released=released, least=job.security.least, check_offer=check
    )


def drawn_of(job: Job, spec: AnySpec) -> Callable[[int], Collection[int]]:
    """Return what draws the silos of a round, as every party does."""
    sizes = [entry.examples["train"] for entry in spec.silos]
    return functools.cache(functools.partial(drawn, job.cohort, sizes, job.seed))


def holding_of(spec: AnySpec) -> Callable[[str], Collection[int]]:
    """Return what tells which silos have rows for a client method. One that scores needs its split."""

    def holding(work: str) -> Collection[int]:
        if work not in EVALUATIONS:
            return range(len(spec.silos))
        split = EVALUATIONS[work]
        counts = [one.examples.get(split or held_out(one.examples) or "", 0) for one in spec.silos]
        return {silo for silo, count in enumerate(counts) if count}

    return holding


def check_holding(job: Job, spec: AnySpec, algorithm: Algorithm, hosted: Sequence[Collection[int]]) -> None:
    """Check that enough parties hold out rows, if any does: zeros of the others hide nobody's scores.

    Args:
        hosted: The silos of each party.

    Raises:
        InputError: too few do.
    """
    assert job.security is not None
    if not (job.evaluate.silos and algorithm.scored_at_silos):
        return
    least, holding = job.security.least, holding_of(spec)
    for work in ("evaluate",) if job.evaluate.split is None else ("evaluate_valid", "evaluate_test"):
        parties = sum(bool({*holding(work)} & {*own}) for own in hosted)
        if 0 < parties < least:
            rows = f"{EVALUATIONS[work] or 'held-out'} rows"
            what = f"only {parties} of {len(hosted)} parties have {rows}, too few to hide one's scores"
            to_do = f"use [evaluate] silos = false, or hold out rows at {least} parties"
            raise InputError(f"[security] least = {least}: {what}; {to_do}")


def names_of(spec: AnySpec) -> list[str]:
    """Return the names of silos in offers and in `sites.toml`."""
    return [entry.name or f"silo {silo}" for silo, entry in enumerate[AnyEntry](spec.silos)]


def _check_offer(
    names: Sequence[str], hosted: Sequence[Collection[int]], answered: Sequence[int], offered: Any
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


def check_least(job: Job, parties: int, too_few: str, silos: int) -> None:
    """Check that there are as many parties, and silos in a round, as a sum needs.

    Args:
        too_few: What an error says of too few parties.
        silos: How many silos the federation has.

    Raises:
        InputError: there are fewer.
    """
    assert job.security is not None
    least = job.security.least
    if parties < least:
        raise InputError(f"[security] least = {least}: {too_few}")
    if (drawn := job.cohort.size(silos)) < least:
        what = f"[cohort] fraction = {job.cohort.fraction:g} draws {drawn} of {silos} silos a round"
        to_do = f"use a larger fraction, or set least = {drawn} where that is enough"
        raise InputError(f"[security] least = {least}: {what}, and each is of one party; {to_do}")


def party_of(
    job: Job,
    spec: AnySpec,
    algorithm: Algorithm,
    placed: Mapping[int, Collection[int]],
    rank: int,
    id: str,
    *,
    exchange: Exchange | None = None,
) -> MaskedParty:
    """Return what masks the sums of a party.

    Args:
        placed: The silos of each party.
        rank: The number of this party.
        id: The run's id.
        exchange: The party's session key; by default a new one.

    Raises:
        InputError: the site's folder is missing or damaged, or lists other sites or silos.
    """
    assert job.security is not None
    folder = site_folder(*SITE_NEEDED)
    names = names_of(spec)
    known = run_of(job, spec, id)
    draw = drawn_of(job, spec)
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
        holding=holding_of(spec),
        rounds=job.rounds,
    )
    session = Session(known.run, [names[silo] for silo in placed[rank]], identity, sites, exchange)
    return MaskedParty(terms, session, Releases(folder, EVALUATIONS), SiteFolder(folder).secret)


def _strictest(security: SecuritySettings, sites: Sites | None) -> SecuritySettings:
    """Return the job's settings, raised to the least that this site demands."""
    if sites is None:
        return security
    more = max(security.least, sites.least), max(security.colluding, sites.colluding)
    return security.model_copy(update=dict(zip(("least", "colluding"), more, strict=True)))
