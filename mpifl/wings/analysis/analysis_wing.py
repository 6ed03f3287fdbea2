"""The wing for `[algorithm] name = "newton"`: the table of coefficients in each round's record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpifl.algorithms import Server
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
        return {"coefficients": fit.table()}


wing = AnalysisWing
