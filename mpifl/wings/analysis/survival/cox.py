"""Cox's model by Newton's method, stratified by silo or over the rows of all silos."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PrivateAttr
from torch import Tensor, nn

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.learning.tasks import NO_EVENT, times_and_events
from mpifl.silo import Silo
from mpifl.wings.analysis import (
    NewtonFit,
    NoFit,
    OutcomeModel,
    ProportionalHazards,
    Reason,
    RowSums,
    columns_of,
    exact_products as exact,
    predictor,
    reach_of,
    wide_exp,
)
from mpifl.wings.analysis.survival.partial_likelihood import partial_sums
from mpifl.wings.analysis.survival.pooled_risks import PooledRisks
from mpifl.wings.analysis.survival.time_grid import CELLS, STEPS, TimeGrid, pairs_of, step_counts
from mpifl.wire import Update, summed


class Cox(NewtonFit):
    """Cox's proportional hazards model (Cox 1972) by Newton's method.

    With silos as strata, each has a baseline hazard of its own, and sends the partial likelihood of its rows,
    its score and its information: no time leaves it. Without strata, sums over risk sets are exact at each
    time, so all bits are those of one silo with all rows; but the server sees sums by time. It solves for the
    step, and tells hazard ratios. The model is `logreg`, whose intercept has no meaning here.
    """

    tasks = ("survival",)

    strata: Literal["silo", "none"] = "silo"
    """Whether each silo has a baseline hazard of its own, or all have one."""
    ties: Literal["efron", "breslow"] = "efron"
    """How events at the same time count: by Efron (1977), or by Breslow (1974)."""
    step: PositiveFloat | None = None
    """Without strata, times are rounded up to multiples of this; by default as those of `kaplanmeier`."""

    _rows: int = PrivateAttr(0)

    def for_federation(self, spec: AnySpec) -> Cox:
        """Return the algorithm with the number of the federation's training rows."""
        found = super().for_federation(spec)
        assert isinstance(found, Cox)
        found._rows = sum(entry.examples.get("train", 0) for entry in spec.silos)
        return found

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check the model, the task, and that `step` has a use.

        Raises:
            InputError: one of them does not fit.
        """
        super().check(module, spec)
        if self.step is not None and self.strata == "silo":
            what = "silos as strata keep their times as they are; leave it out, or use strata = 'none'"
            raise InputError(f"[algorithm] step = {self.step:g}: {what}")

    @property
    def family(self) -> OutcomeModel:
        """The model of the outcome."""
        return ProportionalHazards()

    def outcome(self, y: Any) -> Tensor:
        """Return the times, float64 of shape [n]."""
        return times_and_events(y)[:, 0].double()

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the sums."""
        p, found = len(server.state["beta"]), super().lengths(server)
        if self.strata == "silo":
            return found | {"products": exact.words_of(p * p + p + 3)}
        found |= {
            "steps": len(STEPS),
            "deaths": CELLS + 1,
            "reach": exact.EXPONENTS,
            "products": exact.words_of(p * p),
        }
        return found | {"risks": PooledRisks.words(p, self._room)}

    def told(self, server: Server) -> dict[str, Any]:
        """Return the table of coefficients, and what it is of."""
        if not (found := super().told(server)):
            return {}
        return found | {"events": int(server.state["events"]), "ties": self.ties, "strata": self.strata}

    def row_sums(self, cohort: Cohort, state: Mapping[str, Any]) -> RowSums:
        """Ask for the sums over all silos' events at the coefficients of a state."""
        beta, tops, centre = (state[key] for key in ("beta", "tops", "centre"))
        if self.strata == "none":
            _check_events(float(state["deaths"].sum()))
            return self._pooled(cohort, state, beta, tops, centre)
        mean, p = cohort.mean(self.add_up, beta=beta, tops=tops, centre=centre), len(beta)
        words, two = self.of_all(cohort, mean, "products"), tops.new_full((1,), 2.0)
        values = exact.unpacked(words, two, self._bounds(beta, tops))[0]
        information, (likelihood, rows, events) = values[: p * p].reshape(p, p), values[-3:].tolist()
        information = (information + information.T) / 2
        score = values[p * p : -3]
        _check_events(events)
        return RowSums(information, score, 0.0, likelihood, round(rows), round(events))

    def add_up(self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor) -> Update:
        """Send the sums over the silo's events at the coefficients beta, shape [p].

        Args:
            tops: Powers of two above the magnitudes of columns and times, shape [p + 1].
            centre: What the columns are less, shape [p].
        """
        sums = self._partial_sums(silo, beta, centre)
        counts = beta.new_tensor([sums.likelihood, sums.rows, sums.events])
        values = torch.cat([sums.information.reshape(-1), sums.score, counts])[None]
        two, one = tops.new_full((1,), 2.0), tops.new_ones(1, 1)
        words = exact.packed(exact.products(one, values, two, self._bounds(beta, tops)))
        return silo.update(products=summed(words))

    def own_sums(self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor) -> RowSums:
        """Return the sums over a silo's events alone."""
        sums = self._partial_sums(silo, beta, centre)
        _check_events(sums.events)
        return sums

    def own_start(self, silo: Silo) -> float:
        """Return 0: the model has no intercept."""
        return 0.0

    def _partial_sums(self, silo: Silo, beta: Tensor, centre: Tensor) -> RowSums:
        x, pairs = map(torch.cat, zip(*self._rows_of(silo, centre), strict=True))
        sums = partial_sums(x, pairs, beta, self.ties == "efron")
        events = int(pairs[:, 1].sum())
        return RowSums(sums.information, sums.score, 0.0, sums.likelihood, len(pairs), events)

    def count_steps(self, silo: Silo) -> Update:
        """Send how many times have each step as the least that reaches them."""
        counts = (step_counts(pairs[:, 0]) for _, pairs in pairs_of(silo, "train"))
        return silo.update(steps=summed(torch.as_tensor(sum(counts))))

    def count_deaths(self, silo: Silo, step: float) -> Update:
        """Send how many events each cell of time has."""
        found, grid = torch.zeros(CELLS + 1, dtype=torch.int64), TimeGrid(step)
        for _, pairs in pairs_of(silo, "train"):
            found += torch.bincount(grid.cells(pairs[pairs[:, 1] > 0, 0]), minlength=len(found))
        return silo.update(deaths=summed(found))

    def reach(self, silo: Silo, beta: Tensor, centre: Tensor) -> Update:
        """Send how many risks have each power of two."""
        risks = (wide_exp(predictor(columns, beta))[:, None] for columns, _ in self._rows_of(silo, centre))
        return silo.update(reach=summed(torch.as_tensor(sum(map(exact.exponent_counts, risks)))))

    def add_risks(
        self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor, at: Tensor, top: Tensor, step: float
    ) -> Update:
        """Send the sums of risks by time; see `PooledRisks` for what it is sent."""
        risks = PooledRisks(TimeGrid(step), at, beta, tops, top, self._room)
        return silo.update(risks=summed(risks.of(self._rows_of(silo, centre))))

    def add_second(
        self,
        silo: Silo,
        beta: Tensor,
        tops: Tensor,
        centre: Tensor,
        at: Tensor,
        top: Tensor,
        step: float,
        hazard: Tensor,
        spared: Tensor,
    ) -> Update:
        """Send the sums of squares and products by the hazard up to each row's time."""
        risks = PooledRisks(TimeGrid(step), at, beta, tops, top, self._room)
        return silo.update(products=summed(risks.second(self._rows_of(silo, centre), hazard, spared)))

    @property
    def _room(self) -> int:
        """How many times may have events."""
        return min(self._rows, CELLS + 1)

    def _grid(self, cohort: Cohort) -> TimeGrid:
        if self.step:
            return TimeGrid(self.step)
        return TimeGrid.reaching(self.of_all(cohort, cohort.mean(self.count_steps), "steps"))

    def _measured(self, cohort: Cohort, p: int) -> dict[str, Tensor]:
        """Return what the columns have in common, and without strata the events of each time."""
        found = super()._measured(cohort, p)
        if self.strata == "none":
            step = self._grid(cohort).step
            found["width"] = torch.tensor([step], dtype=torch.float64)
            found["deaths"] = self.of_all(cohort, cohort.mean(self.count_deaths, step=step), "deaths")
        return found

    def _pooled(
        self, cohort: Cohort, state: Mapping[str, Any], beta: Tensor, tops: Tensor, centre: Tensor
    ) -> RowSums:
        """Return the sums over all silos' events where all have one baseline hazard."""
        deaths, grid = state["deaths"], TimeGrid(float(state["width"]))
        at = (deaths > 0).nonzero().flatten()
        exponents = self.of_all(cohort, cohort.mean(self.reach, beta=beta, centre=centre), "reach")
        common = {"beta": beta, "tops": tops[:-1], "centre": centre, "at": at, "top": reach_of(exponents)}
        pooled = PooledRisks(grid, at, beta, tops[:-1], common["top"], self._room)
        words = self.of_all(cohort, cohort.mean(self.add_risks, **common, step=grid.step), "risks")
        sets, whole = pooled.unpacked(words, deaths[at].long())
        terms = sets.at_events(self.ties == "efron")
        by_time = {"hazard": terms.hazard.cumsum(0), "spared": terms.spared}
        mean = cohort.mean(self.add_second, **common, step=grid.step, **by_time)
        second = pooled.unpacked_second(self.of_all(cohort, mean, "products"), by_time["hazard"])
        information, score = second - terms.means.T @ terms.means, whole.columns - terms.means.sum(0)
        information[0], information[:, 0], score[0] = 0.0, 0.0, 0.0  # of the intercept, up to rounding
        return RowSums(information, score, 0.0, whole.eta - terms.log_risk, whole.rows, len(terms.means))

    def _rows_of(self, silo: Silo, centre: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the training rows in blocks: columns less their centre, the intercept first, and times and
        events."""
        for x, pairs in pairs_of(silo, "train"):
            yield columns_of(x, centre), pairs

    def _bounds(self, beta: Tensor, tops: Tensor) -> Tensor:
        """Return powers of two above all that a silo may send, in its order. Two rows lie apart by 2 tops."""
        wide, n = 2 * tops[:-1], float(self._rows + 1)
        eta = float((beta.abs() * wide).sum())
        counts = wide.new_tensor([n * (math.log(n) + 2 * eta + 1), n, n])
        return exact.powers_above(torch.cat([n * torch.outer(wide, wide).reshape(-1), 2 * n * wide, counts]))


def _check_events(events: float) -> None:
    """Check that there is an event.

    Raises:
        NoFit: there is none.
    """
    if not events:
        told = f"{NO_EVENT}, so no coefficient is finite; take rows that have their event"
        raise NoFit(told, Reason.NO_EVENT)
