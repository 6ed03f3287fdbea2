"""The wing for `[algorithm] name = "newton"`: the table of coefficients in each round's record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation
from mpifl.training import Wing
from mpifl.wings.analysis.newton import Newton

SETTLED = 1e-8
"""Newton's decrement, twice the log-likelihood that the last step may gain, below which digits stand."""
UNSETTLED = (
    "the coefficients have not settled: the last step's decrement is {:.2g}; use more rounds. "
    "A column that separates the outcomes never settles: leave it out, or use [algorithm] ridge"
)


class AnalysisWing(Wing):
    """Tells the coefficients, their standard errors and tests."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that all silos take part in each round, with their sums as they are.

        Raises:
            InputError: they do not.
        """
        what, cohort = "newton takes exact sums over all silos", self._job.cohort
        if cohort.fraction != 1.0:
            raise InputError(f"[cohort] fraction = {cohort.fraction:g}: {what}; leave it out")
        if self._job.compression.upload != "none":
            raise InputError(f"[compression] upload = '{self._job.compression.upload}': {what}; leave it out")

    def begin(self, server: Server, exchange: Federation, note: Callable[..., None]) -> None:
        """Note the algorithm, which knows the columns' names."""
        self._algorithm, self._note = exchange.knowledge.algorithm, note

    def spent(self, server: Server) -> dict[str, Any]:
        """Return the table of coefficients, once there is one."""
        assert isinstance(self._algorithm, Newton)
        fit = self._algorithm.fit(server)
        if fit is None:
            return {}
        if server.round == self._job.rounds and server.state["decrement"] > SETTLED:
            self._note(UNSETTLED.format(server.state["decrement"]))
        told = {"coefficients": fit.table(), "rows": fit.rows}
        return told | ({"ridge": self._algorithm.ridge} if self._algorithm.ridge else {})


wing = AnalysisWing
