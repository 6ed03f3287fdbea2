"""Selections: functions that choose the silos of a round, and their names in `[cohort] select`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mpifl.common import InputError, load_plugin


@dataclass(frozen=True)
class Draw:
    """What a selection knows about a round.

    Attributes:
        round: The round, counted from 0.
        count: How many silos take part: max(C * K, 1).
        silos: The ids of the K silos that can take part (some rank hosts them), ascending, shape [K].
        sizes: Their training examples, shape [K].
        losses: Their last training losses, float64, shape [K]; infinite for a silo that has not trained yet.
        candidates: The job's `[cohort] candidates`, if it has this key.
        stream: The random stream of this round; a selection draws only from it.
        drawn: For poisson: whether the server has drawn each of `silos`, in secret, shape [K].
    """

    round: int
    count: int
    silos: NDArray[np.int64]
    sizes: NDArray[np.int64]
    losses: NDArray[np.float64]
    stream: np.random.Generator
    candidates: int | None = None
    drawn: NDArray[np.bool_] | None = None


Selection: TypeAlias = Callable[[Draw], Iterable[int]]
"""Returns the ids of `count` different silos, in any order."""


def uniform(draw: Draw) -> NDArray[np.int64]:
    """Draw each silo with the same probability (McMahan et al. 2017, Algorithm 1)."""
    return draw.stream.choice(draw.silos, draw.count, replace=False)


def by_examples(draw: Draw) -> NDArray[np.int64]:
    """Draw silo k with probability p_k = n_k / n."""
    return draw.stream.choice(
        draw.silos, draw.count, replace=False, p=np.divide(draw.sizes, draw.sizes.sum())
    )


def power_of_choice(draw: Draw) -> NDArray[np.int64]:
    """Draw d candidates by p_k, and take those with the largest last losses.

    Cho, Wang & Joshi 2022, "Towards understanding biased client selection in federated learning", section 4,
    in the variant rpow-d. A candidate's loss is the mean over the steps of its last training, so no silo is
    asked for it. The loss of a silo that has not trained yet counts as infinite. If losses are equal, the
    candidate that was drawn first is taken.
    """
    assert draw.candidates is not None
    drawn = by_examples(replace(draw, count=min(draw.candidates, len(draw.silos))))
    losses = draw.losses[np.searchsorted(draw.silos, drawn)]
    return drawn[np.argsort(-losses, kind="stable")[: draw.count]]


def poisson(draw: Draw) -> NDArray[np.int64]:
    """Draw each silo independently with probability C, from the server's secret; it may draw no silo."""
    assert draw.drawn is not None
    return draw.silos[draw.drawn]


POISSON = "poisson"
"""The selection that is drawn in secret."""
SELECTIONS: dict[str, Selection] = {
    "uniform": uniform,
    "examples": by_examples,
    "power-of-choice": power_of_choice,
    POISSON: poisson,
}
DRAWN_BY_EXAMPLES = frozenset({"examples", "power-of-choice"})
"""Selections by p_k = n_k / n: the mean of the drawn silos with equal weights estimates sum_k p_k F_k."""
WITHOUT_LOSSES = frozenset({"uniform", "examples", POISSON})
"""Selections that do not use losses."""


def load_selection(name: str) -> Selection:
    """Return the selection of this name, or the user's own, `package.module:function`.

    Raises:
        InputError: there is no such selection.
    """
    found: Any = SELECTIONS.get(name) or load_plugin(name, "[cohort] select", SELECTIONS)
    if isinstance(found, type) or not callable(found):
        what = "is a class" if isinstance(found, type) else "cannot be called"
        raise InputError(f"[cohort] select = '{name}': {what}; name a function of a draw that returns silos")
    selection: Selection = found
    return selection


def select(name: str, selection: Selection, draw: Draw) -> list[int]:
    """Return the silos that a selection chooses, in the order of their ids.

    Raises:
        InputError: these are not `draw.count` different silos out of `draw.silos`.
    """
    chosen = selection(draw)
    if (wrong := _fault(chosen, draw)) is not None:
        raise InputError(f"[cohort] select = '{name}': {wrong}")
    return sorted(int(silo) for silo in chosen)


def _fault(chosen: Any, draw: Draw) -> str | None:
    """Return what is wrong with the silos of a selection; None if they are right."""
    if not isinstance(chosen, list | tuple | set | np.ndarray) or getattr(chosen, "ndim", 1) != 1:
        return f"returned a {type(chosen).__name__}; have it return a list of {draw.count} silos"
    silos = list(chosen)
    if odd := [one for one in silos if isinstance(one, bool) or not isinstance(one, int | np.integer)]:
        return f"returned {odd[0]!r}, which is not a silo; silos are whole numbers"
    if foreign := sorted(set(silos).difference(draw.silos.tolist())):
        return (
            f"returned silo {foreign[0]}, which is not one of the {len(draw.silos)} silos that can take part"
        )
    if len(silos) != len(set(silos)):
        return f"returned silo {max(silos, key=silos.count)} more than once"
    if len(silos) != draw.count:
        return f"returned {len(silos)} silos, and round {draw.round + 1} takes {draw.count}"
    return None
