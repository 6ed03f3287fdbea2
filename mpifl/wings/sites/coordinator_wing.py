"""The wing of the coordinator: a training on one rank, whose silos are at sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.run.job import Job, is_silo_level
from mpifl.training import Wing
from mpifl.transforms import Transform
from mpifl.wings.sites.asking_worker import AskingWorker, Questions
from mpifl.wings.sites.consents import ConsentedNumbers, in_singles
from mpifl.wings.sites.late import LateSums
from mpifl.wings.sites.masks import sums_of_sites
from mpifl.wings.sites.singles import HandedOver
from mpifl.wings.sites.what_fits import refuse_unfit
from mpifl.wire import Transport


class Coordinating(Questions, Protocol):
    """Asks sites, and tells what was said."""

    def begin(self, job: Job, spec: FederationSpec, elements: int) -> None:
        """Begin for a job, before anything is asked.

        Args:
            elements: How many elements the model has.

        Raises:
            InputError: the job or the federation is not that of the invitation.
        """

    def listen(self, note: Callable[..., None]) -> None:
        """Set the function that notes something for the user."""

    def figures(self) -> dict[str, Any]:
        """Return the figures of each site since the last call, by the site's name."""

    def told(self) -> dict[str, Any]:
        """Return what each site says of itself, by the site's name."""


class Coordinator(Wing):
    """Lets a training ask sites."""

    name = "sites"

    def __init__(self, job: Job, questions: Coordinating) -> None:
        super().__init__(job)
        self._questions = questions
        self._late = LateSums(job.cohort) if job.cohort.late == "next" else None

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Refuse what does not go over sites.

        Raises:
            InputError: a key does not.
        """
        refuse_unfit(self._job)

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Begin to ask sites.

        Raises:
            InputError: there is more than one rank, or the job is not that of the invitation.
        """
        if transport.size > 1:
            what = f"{transport.size} ranks were started, and a coordinator of sites is one"
            raise InputError(f"{what}; start it without mpirun and --ranks")
        assert isinstance(context.spec, FederationSpec)
        elements = sum(value.numel() for value in context.models[0].state_dict().values())
        self._questions.begin(self._job, context.spec, elements)
        if self._job.security is None:
            return context
        over = sums_of_sites(self._job, context.spec, context.algorithm, context.run, self._questions)
        return dataclasses.replace(context, averaging=over)

    def last_transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return what has late sums count, if they may: on the mean, before anything else changes it. Without
        masks, consents say which numbers leave."""
        late = [] if self._late is None else [self._late]
        return [*late, *([] if self._job.security else [ConsentedNumbers(self._job.algorithm["name"])])]

    def worker(self, kind: type[Worker]) -> type[Worker]:
        """Return the class of the worker that asks sites."""
        singles = HandedOver.of(self._job) if in_singles(self._job.model_dump()) else None
        budgets = self._job.privacy is not None and not is_silo_level(self._job)
        of_run = {"questions": self._questions, "late": self._late, "singles": singles, "budgets": budgets}
        return type("AskingWorkerOfRun", (AskingWorker,), of_run)

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Have notes on sites shown to the user."""
        self._questions.listen(note)
        if self._late is not None:
            self._late.listen(note)

    def spent(self, server: Server) -> dict[str, Any]:
        """Return the figures of the round's letters, and which late sums counted in it."""
        late = {} if self._late is None else self._late.figures()
        letters = self._questions.figures()
        return {"sites": {name: {**letters.get(name, {}), **late.get(name, {})} for name in letters | late}}

    def environment(self) -> dict[str, Any]:
        """Return what sites say of themselves."""
        return {"sites": self._questions.told()}
