"""The partial likelihood of Cox's model, its score and its information, over one stratum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class PartialSums(NamedTuple):
    """Sums over the events of a stratum.

    Attributes:
        information: The negative second derivative, shape [p, p].
        score: The derivative, shape [p].
        likelihood: The logarithm of the partial likelihood.
    """

    information: Tensor
    score: Tensor
    likelihood: float


@dataclass(frozen=True)
class RiskSets:
    """Sums over those at risk at each time with events, where a row's risk is r = exp(x beta).

    Attributes:
        deaths: How many events each time has, int64 of shape [k].
        risk: The sum of r over those at risk, shape [k].
        moment: The sum of r x over them, shape [k, p].
        tied_risk: The sum of r over the rows whose event is then, shape [k].
        tied_moment: The sum of r x over these, shape [k, p].
    """

    deaths: Tensor
    risk: Tensor
    moment: Tensor
    tied_risk: Tensor
    tied_moment: Tensor

    def at_events(self, efron: bool) -> RiskTerms:
        """Return what each event adds. Of d tied events the l-th, counted from 0, has l / d of the tied rows
        no longer at risk (Efron 1977); by Breslow (1974) it has all of them.
        """
        time = torch.repeat_interleave(self.deaths)
        begun = self.deaths.cumsum(0) - self.deaths
        gone = (torch.arange(len(time)) - begun[time]).double() / self.deaths[time]
        gone = gone if efron else torch.zeros_like(gone)
        risk = self.risk[time] - gone * self.tied_risk[time]
        means = (self.moment[time] - gone[:, None] * self.tied_moment[time]) / risk[:, None]
        hazard = torch.zeros_like(self.risk)
        return RiskTerms(
            means,
            float(risk.log().sum()),
            hazard.index_add(0, time, 1 / risk),
            hazard.index_add(0, time, gone / risk),
        )


class RiskTerms(NamedTuple):
    """What events add.

    Attributes:
        means: The mean of x over those at risk, weighted by r, at each event; shape [events, p].
        log_risk: The sum over events of the logarithm of the risk.
        hazard: The jump of the cumulative hazard at each time, shape [k].
        spared: What of it rows do not have whose event is then, shape [k].
    """

    means: Tensor
    log_risk: float
    hazard: Tensor
    spared: Tensor


def partial_sums(x: Tensor, pairs: Tensor, beta: Tensor, efron: bool) -> PartialSums:
    """Return the sums over the rows of one stratum.

    The second derivative's sums over risk sets become one sum over rows: each row counts with the hazard that
    has come up to its time.

    Args:
        x: The columns, float64 of shape [n, p].
        pairs: Times and events, shape [n, 2]; without an event all sums are 0.
        beta: The coefficients, shape [p].
        efron: Whether ties are by Efron, else by Breslow.
    """
    if not pairs[:, 1].any():
        return PartialSums(x.new_zeros(x.shape[1], x.shape[1]), x.new_zeros(x.shape[1]), 0.0)
    x = x - x[0]  # a column that is the same everywhere is 0 to the last digit
    x = x - x.mean(0)
    time, event = pairs[:, 0].contiguous(), pairs[:, 1] > 0
    at = torch.from_numpy(np.unique(time[event].numpy()))
    place = torch.searchsorted(at, time, right=True) - 1
    later = place >= 0
    eta = x @ beta
    most = eta.max()
    risk = (eta - most).exp()
    weighted = torch.cat([risk[:, None], risk[:, None] * x], 1)
    empty = weighted.new_zeros(len(at), weighted.shape[1])
    own = empty.index_add(0, place[later], weighted[later])
    tied = empty.index_add(0, place[event], weighted[event])
    above = own.flip(0).cumsum(0).flip(0)
    deaths = torch.bincount(place[event], minlength=len(at))
    sets = RiskSets(deaths, above[:, 0], above[:, 1:], tied[:, 0], tied[:, 1:])
    terms = sets.at_events(efron)
    hazard = terms.hazard.cumsum(0)[place.clamp(min=0)] * later - terms.spared[place.clamp(min=0)] * event
    second = x.T @ (x * (risk * hazard)[:, None])
    likelihood = float((eta[event] - most).sum()) - terms.log_risk
    score = x[event].sum(0) - terms.means.sum(0)
    return PartialSums(second - terms.means.T @ terms.means, score, likelihood)
