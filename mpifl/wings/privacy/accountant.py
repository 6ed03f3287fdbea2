"""What noised steps cost: epsilon for a delta, and the noise by which so many steps cost no more.

Without sampling the Gaussian mechanism has a closed form (Balle & Wang 2018). With it, `dp-accounting` counts
by privacy loss distributions or by Renyi divergences. Neighbours differ by one example, which the one has and
the other has not.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mpifl.common import InputError
from mpifl.common.machine import floors

GRID = 1000
"""Noise multipliers that are found are whole multiples of 1 / GRID."""
LARGEST = 10**10
"""No noise, in multiples of 1 / GRID, is sought beyond."""
_LINES = 24
"""The first looks of a search for noise, which follow lines; all others halve what is left."""
_FINE, _COARSE = 1e-4, 1e-3
"""How far apart privacy losses are told from each other, at least and at most; they are rounded up."""
_PART = 0.02
"""That distance as a part of the usual loss of a step, rate / noise: 25 epsilons grew by at most 4e-5
of themselves."""


@dataclass(frozen=True)
class Steps:
    """Steps of DP-SGD, each a sum of clipped gradients of the examples that a step drew, with noise.

    Attributes:
        noise: z, the deviation of the noise by the clip norm.
        rate: q, the chance of an example to be drawn; 1 where all are taken.
        count: How many steps.
    """

    noise: float
    rate: float
    count: int


def epsilon_of(taken: Iterable[Steps], delta: float, accountant: str = "pld") -> float:
    """Return the epsilon of all these steps together.

    Args:
        taken: The steps, in any order.
        delta: Of (epsilon, delta).
        accountant: "pld" or "rdp", where a step draws examples.

    Raises:
        InputError: `dp-accounting` is needed and not there.
        ValueError: a noise or a rate is NaN.
    """
    counts: Counter[tuple[float, float]] = Counter()
    for steps in taken:
        if math.isnan(steps.noise * steps.rate):
            raise ValueError(f"{steps}: there is no epsilon of what is no number")
        counts[steps.noise, steps.rate] += steps.count
    groups = tuple(sorted((noise, rate, count) for (noise, rate), count in counts.items() if count))
    if all(rate >= 1 for _, rate, _ in groups):
        return gaussian_epsilon(math.sqrt(sum(count / noise**2 for noise, _, count in groups)), delta)
    return _counted(groups, delta, accountant)


@functools.lru_cache(maxsize=4096)
def noise_for(epsilon: float, delta: float, rate: float, count: int, accountant: str = "pld") -> float:
    """Return the least noise multiplier, a multiple of 1 / GRID, by which so many steps cost no more.

    Raises:
        InputError: no noise that is finite in practice would do.
    """

    def cost(nth: int, by: str = accountant) -> float:
        return epsilon_of([Steps(nth / GRID, rate, count)], delta, by)

    rough = _least(GRID, lambda nth: cost(nth, "rdp"), epsilon)  # quickly counted, and not far off
    return (rough if accountant == "rdp" else _least(rough, cost, epsilon)) / GRID


def check_countable(rates: Iterable[float]) -> None:
    """See that what counts steps at these rates is installed, without importing it.

    Raises:
        InputError: it is not.
    """
    if any(rate < 1 for rate in rates) and importlib.util.find_spec("dp_accounting") is None:
        raise _missing()


def affordable(spent: Iterable[Steps], more: Steps, delta: float, epsilon: float, accountant: str) -> int:
    """Return how many of some more steps a budget allows after those that were spent.

    Args:
        spent: What was taken before.
        more: Steps of one kind, as many as are wanted.
        delta: Of the budget.
        epsilon: Of the budget.
        accountant: How it is counted.
    """
    before = list(spent)

    def fits(count: int) -> bool:
        taken = [*before, Steps(more.noise, more.rate, count)]
        return epsilon_of(taken, delta, accountant) <= epsilon

    if fits(more.count):
        return more.count
    most, too_many = 0, more.count
    while too_many - most > 1:
        middle = (most + too_many) // 2
        most, too_many = (middle, too_many) if fits(middle) else (most, middle)
    return most


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism of sensitivity mu and deviation 1 (Balle & Wang 2018).

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

    Raises:
        ValueError: mu or delta is negative or NaN.
    """
    if not (mu >= 0 and delta >= 0):
        raise ValueError(f"there is no epsilon of mu = {mu} and delta = {delta}")

    def exceeds(epsilon: float) -> bool:
        first, second = _phi(mu / 2 - epsilon / mu), _phi(-mu / 2 - epsilon / mu)
        # where the second underflows, its product is far below the first
        return first - (math.exp(epsilon + math.log(second)) if second > 0 else 0.0) > delta

    if mu == 0 or not exceeds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while exceeds(high):  # not so at Inf, where nothing is left of the first
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _least(start: int, cost: Callable[[int], float], most: float) -> int:
    """Return the least whole number of which a cost that falls is no more than `most`, sought from `start`.

    Between a number that costs too much and one that does not, the next is where a line through both meets
    `most`, in logarithms of both; each third is in the middle. Where lines have not found it soon, all are
    in the middle: the search ends whatever the cost is, and NaN is too much.

    Raises:
        InputError: there is none in practice.
    """
    few, many, high, low, nth, looks = 0, LARGEST, math.inf, 0.0, start, 0
    while many - few > 1:
        found, looks = cost(nth), looks + 1
        few, high, many, low = (few, high, nth, found) if found <= most else (nth, found, many, low)
        between = few > 0 and many < LARGEST
        if looks > _LINES or (between and (looks % 3 == 0 or not (low > 0 and 1 < high / low < math.inf))):
            nth = (few + many) // 2
        elif between:
            nth = round(few * (many / few) ** (math.log(high / most) / math.log(high / low)))
        else:
            nth = round(nth * (min(max(found / most, 1 / 3), 3.0) if found < math.inf else 3.0) ** 0.9)
        nth = min(max(nth, few + 1), many - 1)
    if many == LARGEST:
        raise InputError("[privacy] epsilon: no noise is enough for so small a budget; take a larger one")
    return many


@functools.lru_cache(maxsize=4096)
def _counted(groups: tuple[tuple[float, float, int], ...], delta: float, accountant: str) -> float:
    if accountant == "rdp":
        return _by_divergences(groups, delta)
    apart = min(_apart(noise, rate) for noise, rate, _ in groups)
    parts = [_composed(noise, rate, count, apart) for noise, rate, count in groups]
    return float(functools.reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))


def _apart(noise: float, rate: float) -> float:
    """Return how far apart the losses of some steps may be told: finely where each loses little."""
    return max(_FINE, min(_COARSE, _PART * rate / noise)) * max(1.0, 0.1 / noise**2)


@functools.lru_cache(maxsize=64)
def _composed(noise: float, rate: float, count: int, apart: float) -> Any:
    """Return the privacy loss distribution of so many steps."""
    return _one_step(noise, rate, apart).self_compose(count)


@functools.lru_cache(maxsize=64)
def _one_step(noise: float, rate: float, apart: float) -> Any:
    library = _library("pld.privacy_loss_distribution")
    return library.from_gaussian_mechanism(
        noise, value_discretization_interval=apart, sampling_prob=rate, use_connect_dots=True
    )


def _by_divergences(groups: tuple[tuple[float, float, int], ...], delta: float) -> float:
    events, library, log = _library("dp_event"), _library("rdp"), importlib.import_module("absl.logging")
    accountant, told = library.RdpAccountant(), log.get_verbosity()
    log.set_verbosity(log.ERROR)  # an order that is left out makes epsilon no smaller
    try:
        for noise, rate, count in groups:
            step = events.GaussianDpEvent(noise)
            accountant.compose(events.PoissonSampledDpEvent(rate, step) if rate < 1 else step, count)
    finally:
        log.set_verbosity(told)
    return float(accountant.get_epsilon(delta))


def _library(module: str) -> Any:
    try:
        library = importlib.import_module(f"dp_accounting.{module}")
    except ImportError:
        raise _missing() from None
    floors.hold("privacy")
    return library


def _missing() -> InputError:
    what = "counting steps that draw examples needs dp-accounting"
    return InputError(f"[privacy]: {what}; install it: pip install 'mpifl[privacy]'")
