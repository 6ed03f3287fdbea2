"""The wing for `[privacy]`: noise of the silos that hides each example, or noise that hides each silo."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, group_note
from mpifl.exchange import Federation, KindsAlone
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import Job, is_silo_level
from mpifl.training import Coins, ModelFacts, Wing
from mpifl.transforms import Transform
from mpifl.wings.dpsgd.budget_room import check_site_allows, room_check
from mpifl.wings.dpsgd.privacy_plan import Accounting, SiloPlan, guard_of, plans, stated_noise
from mpifl.wings.dpsgd.private_rows import PrivateRows
from mpifl.wings.dpsgd.question_ledger import Protection
from mpifl.wings.dpsgd.silo_level_plan import SiloAccounting, account_of, coins_of, mechanism_of, warning_of
from mpifl.wings.privacy import Draws, Noising, open_site
from mpifl.wire import Transport

_NOISE = TypeAdapter(list[Annotated[float, Field(gt=0, allow_inf_nan=False)]])


class OfExamples(Wing):
    """Makes silos answer with noise that hides each example."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._plans = list[SiloPlan]()

    def plan(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Compute the noise of each silo.

        Raises:
            InputError: no noise meets the budget, or `dp-accounting` is needed and not installed.
        """
        self._plans = plans(self._job, spec, algorithm)

    def told(self, spec: AnySpec, run: Path) -> str:
        """Return each silo's noise multiplier."""
        return json.dumps([plan.noise for plan in self._plans])

    def last_transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return the transform that notes answers and what silos have spent."""
        return [Protection(len(spec.silos))]

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Make the silos of this rank private silos, whose answers are noted at its site.

        Raises:
            InputError: the site's folder is missing, not private or damaged, or allows no such job. Or the
                server's noise differs from the job's.
        """
        self._spec, self._algorithm = context.spec, context.algorithm
        noise = _noise_told(self._job, context.spec, told)
        context = dataclasses.replace(context, tells=KindsAlone)
        if transport.rank not in transport.workers:
            return context
        site = open_site()
        site.entries()  # so that a damaged ledger stops the run before the first round
        guard = guard_of(self._job, context.spec, noise, site)
        check_site_allows(self._job, site)
        silo, device = partial(PrivateRows, guard=guard), context.models[0].device
        check = room_check(self._job, context.spec, guard, device)
        return dataclasses.replace(context, silo=silo, check=check, sync=site.sync)

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Begin to count what rounds cost."""
        planned = self._plans or plans(self._job, self._spec, self._algorithm)
        self._accounting = Accounting(self._job, planned)

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Return a line on groups of examples, which an epsilon of one example protects less."""
        note = group_note(Path(self._job.shards), self._spec)
        return [f"[privacy] {note}"] if note else []

    def spent(self, server: Server) -> dict[str, Any]:
        """Return the figures of what silos have spent."""
        return self._accounting.figures(server.state, server.round)


class OfExamplesElsewhere(OfExamples):
    """Counts what a training costs whose silos are at other sites: these add the noise and keep the
    ledgers."""

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Note what the cost is counted for."""
        self._spec, self._algorithm = context.spec, context.algorithm
        return context


class OfSilos(Wing):
    """Makes silos clip their updates, and adds noise that hides each silo."""

    def plan(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Compute the noise of a round.

        Raises:
            InputError: no noise meets the budget, or a library is needed and not installed.
        """
        mechanism_of(self._job, len(spec.silos))
        Draws(b"", "at the start")  # so that a missing library is an error at the start

    def transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return the transform that clips updates and adds noise to their sum."""
        assert self._job.privacy is not None
        mechanism = cache(lambda: mechanism_of(self._job, len(spec.silos)))
        account, name = account_of(self._job, run), self._job.algorithm["name"]
        return [Noising(self._job.privacy, algorithm.noised, mechanism, account, name)]

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Let the server learn only kinds of faults."""
        self._run = context.run
        return dataclasses.replace(context, tells=KindsAlone)

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Begin to count what rounds cost."""
        self._accounting = SiloAccounting(self._job, self._run)

    def notes_of_job(self, silos: int, model: Callable[[], ModelFacts]) -> list[str]:
        """Return a warning if the noise is too large for the silos' updates to be visible."""
        return warning_of(self._job, silos, model().shared)

    def coins(self, silos: int, run: Path) -> Coins | None:
        """Return a function that draws the silos of a round in secret, if the job asks for this."""
        return coins_of(self._job, silos, run)

    def spent(self, server: Server) -> dict[str, Any]:
        """Return the figures of what all silos together have spent."""
        return self._accounting.figures(server.state, server.round)


def wing(job: Job) -> Wing:
    """Return the wing for a job's `[privacy]`."""
    return OfSilos(job) if is_silo_level(job) else OfExamples(job)


def _noise_told(job: Job, spec: AnySpec, told: str) -> list[float]:
    """Return each silo's noise multiplier from rank 0's message `told`; raise InputError if the message is
    not valid, or the job states other noise."""
    what = "the server tells no noise of each silo; it is broken, or not to be trusted"
    try:
        noise = _NOISE.validate_json(told, strict=True)
    except ValidationError:
        raise InputError(f"[privacy]: {what}") from None
    if len(noise) != len(spec.silos):
        raise InputError(f"[privacy]: {what}")
    for stated, one in zip(stated_noise(job, spec), noise, strict=True):
        if stated is not None and one != stated:
            what = f"the server tells a noise of {one:g}; it is broken, or not to be trusted"
            raise InputError(f"[privacy] noise = {stated:g}: {what}")
    return noise
