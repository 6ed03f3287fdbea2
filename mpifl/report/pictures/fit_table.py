"""The coefficients of a fitted regression as texts: rows of a table, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpifl.common import count_of
from mpifl.common.pages import Block, Figure, Said, Table

FIT_HEADS = ("column", "estimate", "error", "statistic", "p", "95 %: low", "high")
REFERENCE = "reference"
"""What stands in place of an estimate of the level with which others are compared."""
RATIOS = ("odds_ratio", "hazard_ratio", "rate_ratio")
"""What e to the power of an estimate may be, by the family of the fit."""
OF_SILOS = ("fixed effect", "Q", "p of Q", "I²")
SETTLED = 1e-8
"""The decrement of Newton's method below which a fit's digits stand."""


def fit_of(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the record of the last round that has coefficients; an empty one where none has."""
    return next((one for one in reversed(records) if "coefficients" in one), {})


def fit_heads(fit: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the heads of a fit's table: those of each fit, of ratios, and of what silos' own fits tell."""
    ratio = tuple(f"{one.replace('_', ' ')} (95 %)" for one in _ratio(fit))
    return FIT_HEADS + ratio + (OF_SILOS if "own_fits" in fit else ())


def fit_rows(fit: Mapping[str, Any]) -> list[list[str]]:
    """Return a row below `fit_heads` for each column; what is left out has a word, and empty cells."""
    rows = fit["coefficients"]
    ratios = _ratio(fit)
    return [
        [row["name"], *_cells(row), *(_as_ratio(row, one) for one in ratios),
         *(_parted(row) if "own_fits" in fit else [])]
        for row in rows
    ]  # fmt: skip


def said_of_fit(fit: Mapping[str, Any], doubt: str) -> list[str]:
    """Return lines on references, units, the fit as a whole and its ridge.

    Args:
        fit: The record of a round.
        doubt: What is to be said against errors, p and intervals; "" if nothing is.
    """
    rows, said = fit["coefficients"], list[str]()
    if compared := _names(row for row in rows if row.get("reference")):
        said.append(f"other levels of a category are compared with: {compared}")
    if units := ", ".join(f"{row['name']} {row['deviation']:.4g}" for row in rows if "deviation" in row):
        said.append(f"per deviation of the column, as the shards have it: {units}")
    if left_out := _names(row for row in rows if row.get("left_out") and not row.get("reference")):
        said.append(
            f"left out, since they follow from the others, up to rounding, or are constant: {left_out}"
        )
    told = f"log-likelihood {fit['log_likelihood']:.4f}, AIC {fit['aic']:.2f}"
    events = f", {fit['events']:,} events" if "events" in fit else ""
    said.append(f"{fit['rows']:,} rows{events}, {told}, after {fit['round']} rounds")
    said += [_said_of_silos(fit["own_fits"])] if "own_fits" in fit else []
    if "offset" in fit:
        said.append(f"offset: {fit['offset']}, with a coefficient of 1")
    if "row_weights" in fit:
        said.append(f"rows count by their {fit['row_weights']}")
    if "ridge" in fit:
        said.append(f"ridge = {fit['ridge']:g} draws estimates to 0; p and intervals leave that out")
    return [*said, *([doubt] if doubt else [])]


def unsettled(fit: Mapping[str, Any]) -> str:
    """Say that the digits of a fit do not stand, and what to do; "" where they do."""
    if fit["decrement"] <= SETTLED:
        return ""
    if name := fit.get("separating"):
        what = f"column '{name}' separates the outcomes: its coefficient and its error grow with each step"
        return f"{what}; leave it out, or use [algorithm] ridge"
    what = f"these coefficients have not settled (decrement {fit['decrement']:.2g})"
    return f"{what}; train for more rounds by --resume --set rounds=..."


def coefficients(records: Sequence[Mapping[str, Any]], doubt: str) -> Figure | None:
    """Return the table of a fit on a page; None of a run that is none. See `said_of_fit` for the doubt."""
    if not (fit := fit_of(records)):
        return None
    together = {key: of for key, of in fit.items() if key != "own_fits"}
    said = [one for one in (*said_of_fit(together, doubt), unsettled(fit)) if one]
    blocks: list[Block] = [*map(Said, said), Table.of(fit_heads(together), fit_rows(together))]
    if "own_fits" in fit:  # a table of its own: beside the others its columns have no room
        apart = [[row["name"], *_parted(row)] for row in fit["coefficients"] if "q" in row]
        blocks += [Said(_said_of_silos(fit["own_fits"]))]
        blocks += [Table.of([FIT_HEADS[0], *OF_SILOS], apart)] if apart else []
    return Figure("Coefficients", "", blocks, wide=True)


def _ratio(fit: Mapping[str, Any]) -> list[str]:
    """Return the kind of ratio of a fit, none where it has none."""
    return [one for one in RATIOS if any(one in row for row in fit["coefficients"])]


def _as_ratio(row: Mapping[str, Any], kind: str) -> str:
    """Return e to the power of an estimate and of its interval's ends; "" of what is left out."""
    if kind not in row:
        return ""
    return f"{row[kind]:.4g} ({row['ratio_low']:.4g} to {row['ratio_high']:.4g})"


def _names(rows: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(row["name"] for row in rows)


def _cells(row: Mapping[str, Any]) -> list[str]:
    if row.get("left_out"):
        return [REFERENCE if row.get("reference") else "–", *[""] * (len(FIT_HEADS) - 2)]
    p = f"{row['p']:.4f}" if row["p"] >= 1e-4 else f"{row['p']:.1e}"
    low, high = f"{row['low']:.4g}", f"{row['high']:.4g}"
    return [f"{row['estimate']:.5g}", f"{row['error']:.4g}", f"{row['statistic']:.3f}", p, low, high]


def _parted(row: Mapping[str, Any]) -> list[str]:
    """Return how far silos' own coefficients part; empty cells of fewer than two."""
    if "q" not in row:
        return [""] * len(OF_SILOS)
    p = f"{row['q_p']:.4f}" if row["q_p"] >= 1e-4 else f"{row['q_p']:.1e}"
    return [f"{row['fixed']:.5g}", f"{row['q']:.3f}", p, f"{100 * row['i2']:.0f}%"]


def _said_of_silos(own: Mapping[str, Any]) -> str:
    what = f"fixed effect, Cochran's Q and I²: of the own fits of {count_of(len(own['silos']), 'silo')}"
    why = own.get("reasons", {})
    none = ", ".join(f"{name} ({why[name]})" if name in why else name for name in own["left_out"])
    return what + (f"; without a finite fit: {none}" if none else "")
