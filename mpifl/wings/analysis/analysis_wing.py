"""The wing for algorithms by exact sums: what they come to in each round's record, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.exchange import Federation
from mpifl.exchange.worker_side import WorkerContext
from mpifl.report.runs import fit_doubt
from mpifl.training import ModelFacts, Wing
from mpifl.wings.analysis.dp_table import NO_NOISE, DPTable
from mpifl.wings.analysis.regression import SETTLED, NewtonFit
from mpifl.wings.analysis.site_terms import check_terms
from mpifl.wings.analysis.survival import Cox, KaplanMeier
from mpifl.wings.analysis.whole_sums import OneTable, ReleasedTable, WholeSums, given_of
from mpifl.wire import Transport

UNSETTLED = (
    "the coefficients have not settled: the last step's decrement is {:.2g}; use more rounds. "
    "A column that separates the outcomes never settles: leave it out, or use [algorithm] ridge"
)

SEPARATING = (
    "column '{}' separates the outcomes: its coefficient and its error grow with each step, without end; "
    "leave it out, or use [algorithm] ridge"
)


class AnalysisWing(Wing):
    """Tells coefficients with their standard errors and tests, or the table of who is in the data."""

    _doubt = ""
    """What is to be said of tests of coefficients; set by `check`."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that all silos take part in each round, with their sums as they are.

        Raises:
            InputError: they do not, or a table is asked for that cannot be made.
        """
        job, cohort = self._job, self._job.cohort
        self._doubt = fit_doubt(spec) if isinstance(algorithm, NewtonFit) else ""
        what = f"{job.algorithm['name']} takes exact sums over all silos"
        if cohort.fraction != 1.0:
            raise InputError(f"[cohort] fraction = {cohort.fraction:g}: {what}; leave it out")
        if cohort.quorum != 1.0:
            raise InputError(f"[cohort] quorum = {cohort.quorum:g}: {what}; leave it out")
        if job.compression.upload != "none":
            raise InputError(f"[compression] upload = '{job.compression.upload}': {what}; leave it out")
        if isinstance(algorithm, OneTable) and job.rounds != 1:
            what = f"{job.algorithm['name']} makes its table in one round; use rounds = 1"
            raise InputError(f"rounds = {job.rounds}: {what}")
        if isinstance(algorithm, OneTable):
            for key, value in given_of(algorithm.task).items():
                what = f"'{job.algorithm['name']}' trains and scores no model; leave it out"
                raise InputError(f"[task] {key} = {value!r}: {what}")
        if isinstance(algorithm, KaplanMeier) and isinstance(spec, FederationSpec):
            algorithm.check_groups(Path(job.shards), spec)
        if isinstance(algorithm, DPTable):
            self._check_noised()
        if getattr(algorithm, "by_silo", False) and job.security is not None:
            what = "[security] shows no figures of single silos; leave one of them out"
            raise InputError(f"[algorithm] by_silo = true: {what}")

    def _check_noised(self) -> None:
        """Check that the job's `[privacy]` has what a noised table takes."""
        if self._job.privacy is None:
            raise InputError(NO_NOISE)
        if self._job.privacy.evaluate_unprotected:
            what = "'dptable' scores no model, so that it does nothing; leave it out"
            raise InputError(f"[privacy] evaluate_unprotected = true: {what}")

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Check that this rank's site allows what a table tells.

        Raises:
            InputError: it does not.
        """
        of = context.algorithm
        if transport.rank not in transport.workers:
            return context
        if isinstance(of, ReleasedTable):
            check_terms(of.least, extremes=of.tells_extremes, by_silo=of.by_silo)
        if isinstance(of, NewtonFit):
            check_terms(by_silo=of.by_silo, times=isinstance(of, Cox) and of.strata == "none")
        return context

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Note the algorithm, which knows the columns' names."""
        self._algorithm, self._note = exchange.knowledge.algorithm, note

    def notes_of_job(self, silos: int, model: Callable[[], ModelFacts]) -> list[str]:
        """Return a line on groups of rows, which the tests of coefficients do not know of."""
        return [self._doubt] if self._doubt else []

    def spent(self, server: Server) -> dict[str, Any]:
        """Return the result, once there is one."""
        of = self._algorithm
        assert isinstance(of, WholeSums)
        told = of.told(server)
        ended = told and server.round == self._job.rounds
        if ended and isinstance(of, NewtonFit) and server.state["decrement"] > SETTLED:
            separating = told.get("separating")
            self._note(
                SEPARATING.format(separating) if separating else UNSETTLED.format(server.state["decrement"])
            )
        return told


wing = AnalysisWing
