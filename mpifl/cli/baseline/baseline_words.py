"""A baseline in words: its verdict, its figures as texts, its table in the terminal, its JSON file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from mpifl.cli.baseline.baseline_figures import BY_GROUPS, Baseline, Scored
from mpifl.learning.metrics import MetricInfo
from mpifl.report.judging import paired
from mpifl.report.runs import alike_told, rests_on, units

NONE_SEEN = "no difference seen"
TOO_FEW, FEW_GROUPS, ONE_CLASS = "too few rows", "too few groups", "one class only"
MOST_NAMED = 6
"""Silos that the verdict names."""


def of_chance(found: Baseline) -> str:
    """Say what chance the intervals are of."""
    said = "The intervals are of the test rows alone"
    if found.seed is not None:
        said += f", and all models of seed {found.seed} alone: another seed moves each figure, too"
        said += "; repeat the command with --set seed=N and another --out before you decide"
    groups = "Patients (groups) count as independent; their rows do not"
    count = groups if found.test.startswith(BY_GROUPS) else "Rows count as independent"
    said += ". p and interval of silos are corrected by Holm for their number" * (len(found.silos) > 1)
    return f"{said}. {count}."


def heads(found: Baseline) -> list[str]:
    """Return the headings of the columns."""
    pooled = ["pooled"] if found.whole.pooled is not None else []
    rarer = ["rarer class"] if _has_events(found) else []
    return [
        *_rows(found),
        *rarer,
        "alone",
        "federated",
        *pooled,
        "difference",
        "95% interval",
        "p",
        "outcome",
    ]


def _rows(found: Baseline) -> list[str]:
    """Return the headings of the counts of rows."""
    fewer = any(one.counted < one.rows for one in (*found.silos, found.whole))
    return ["test rows", *(["rows that count"] if fewer else [])]


def cells(one: Scored, found: Baseline) -> list[str]:
    """Return what stands below these headings, for a silo or for all rows."""
    metric = found.metric
    values = [one.alone, one.federated, *([] if one.pooled is None else [one.pooled])]
    figures = [metric.write(value) if math.isfinite(value) else "–" for value in values]
    rows = [f"{one.rows:,}", f"{one.counted:,}"][: len(_rows(found))]
    rows += [f"{one.events:,}" if one.events is not None else "–"] if _has_events(found) else []
    if one.difference is None or one.p is None:
        return [*rows, *figures, "–", "–", "–", judged(one, metric)]
    difference = one.difference
    reach = f"{signed(metric, difference.low)} to {signed(metric, difference.high)}"
    p = f"{one.p:.3f}" if one.p >= 0.0005 else "< 0.001"
    return [*rows, *figures, signed(metric, difference.by), reach, p, judged(one, metric)]


def _has_events(found: Baseline) -> bool:
    return any(one.events is not None for one in found.silos)


def warnings_of(found: Baseline) -> dict[str, str]:
    """Say by name of which silos little can be told, and what became of draws without a figure."""
    said: dict[str, str] = {}
    for one in found.silos:
        words = []
        if few := rests_on(one.events):
            few = few.replace("rests on", "Only")
            words.append(f"{few}{': the interval and p are unreliable' if one.difference else ''}.")
        if one.undefined:
            words.append(
                f"{one.undefined:,} of {paired.DRAWS:,} draws had no {found.metric.name} and are left out."
            )
        said |= {one.name: " ".join(words)} if words else {}
    return said


def of_all(found: Baseline) -> list[str]:
    """Return what is to be said of more than one silo."""
    others = [] if found.mean else [(one.federated, one.rows) for one in found.silos if not one.alike]
    told = alike_told([one.name for one in found.silos if one.alike], found.metric, others)
    return [*found.remarks, *filter(None, [told])]


def remarks(found: Baseline) -> list[str]:
    """Return what is to be said against the figures, of all and of single silos."""
    return [*of_all(found), *(f"Silo {name}: {words}" for name, words in warnings_of(found).items())]


def judged(one: Scored, metric: MetricInfo) -> str:
    """Say whether a difference is seen, and which way it goes."""
    if one.difference is None:
        return ONE_CLASS if one.alike else "undefined"
    if not one.seen:
        return f"too few {one.few.split()[-1]}" if one.few else NONE_SEEN
    return "better" if (one.difference.by > 0) == metric.higher_is_better else "worse"


def outcome(one: Scored, metric: MetricInfo) -> str:
    """Say what is seen, of no difference also which ones the interval does not exclude, and what rows of one
    class leave undefined."""
    said, words = judged(one, metric), list[str]()
    if said == NONE_SEEN and one.difference is not None:
        ends = [abs(end) for end in one.difference.reach]
        each = zip(ends if metric.higher_is_better else ends[::-1], ("worse", "better"), strict=True)
        words = [f"{units.points(of, metric)} {word}" for of, word in each if of][::-1]
    said += f" ({one.few.rsplit(' ', 1)[0]})" if said in (TOO_FEW, FEW_GROUPS) else ""
    said += f"; up to {' or '.join(words)} is not excluded" if words else ""
    said += f"; {few}" if one.seen and (few := rests_on(one.events)) else ""
    if not one.alike:
        return said
    name = "AUROC" if one.difference else metric.label
    return (
        f"{said}: {name} is undefined" if said == ONE_CLASS else f"{said}; {ONE_CLASS}: {name} is undefined"
    )


def signed(metric: MetricInfo, value: float) -> str:
    """Write a difference with its sign, those of per cents in points."""
    size = f"{100 * abs(value):.2f}" if metric.share else metric.write(abs(value))
    nothing = not float(size.replace(",", "")) if size.replace(".", "").isdigit() else False
    return size if nothing else ("+" if value > 0 else "−") + size


def verdict(found: Baseline) -> str:
    """Say in one sentence whether federation helped, and for whom."""
    whole, metric = found.whole, found.metric
    told = {"better": "Federation helped", "worse": "Federation did harm", NONE_SEEN: "No difference seen"}
    told |= {
        f"too few {what}": f"These {what} are too few to show whether federation helped"
        for what in ("rows", "groups")
    }
    said = told.get(judged(whole, metric), "These rows do not show whether federation helped")
    said += "" if found.seed is None else f" with seed {found.seed}"
    if whole.difference is not None:
        points = " points" if metric.share else ""
        rows = f"{whole.rows:,} test rows"
        if whole.counted < whole.rows:
            rows = f"{whole.counted:,} test rows that count, of {whole.rows:,}"
        where = _where(found, rows) if found.mean else f"on all {rows}"
        low, high = signed(metric, whole.difference.low), signed(metric, whole.difference.high)
        said += (
            f" {where}: {metric.name} {metric.write(whole.federated)} against "
            f"{metric.write(whole.alone)} of silos alone, {signed(metric, whole.difference.by)}{points} "
            f"(95% interval {low} to {high})"
        )
        said += f", which {few}" if (few := rests_on(whole.events)) else ""
    if len(found.silos) < 2:
        return f"{said}."
    by_kind: dict[str, list[str]] = {}
    for one in found.silos:
        few = f" ({rests_on(one.events)})" if one.seen and rests_on(one.events) else ""
        by_kind.setdefault(judged(one, metric), []).append(one.name + few)
    kinds = {"better": "better for", "worse": "worse for", NONE_SEEN: f"{NONE_SEEN} for"}
    kinds |= {few: f"{few} at" for few in (TOO_FEW, FEW_GROUPS)}
    kinds |= {ONE_CLASS: f"{ONE_CLASS} at", "undefined": "undefined for"}
    if len(by_kind) == 1 and len(found.silos) > 2:
        (kind,) = by_kind
        which = "any" if kind == NONE_SEEN else "each"
        return f"{said}; {kinds[kind]} {which} of {len(found.silos):,} silos by itself."
    parts = [f"{words} {_listed(by_kind[kind])}" for kind, words in kinds.items() if kind in by_kind]
    return f"{said}; {', '.join(parts)}."


def cautions(found: Baseline) -> list[str]:
    """Return what stands beside the verdict, as it may be the cause of it."""
    return [found.cut_short] if found.cut_short else []


def _where(found: Baseline, rows: str) -> str:
    """Say of which silos a mean is, and of which rows."""
    known = [one for one in found.silos if one.difference is not None]
    if len(known) > 1:
        return f"in the mean of {len(known):,} silos, by their {rows}"
    (one,) = known
    own = f"its {one.rows:,} test rows"
    own = f"the {one.counted:,} of {own} that count" if one.counted < one.rows else own
    return f"at silo {one.name}, by {own}"


def _listed(names: Sequence[str]) -> str:
    """Return silos as a sentence has them, or how many there are."""
    if len(names) > MOST_NAMED:
        return f"{len(names):,} silos ({', '.join(names[:MOST_NAMED])} and others)"
    *most, last = names
    return f"silos {', '.join(most)} and {last}" if most else f"silo {last}"


def table(found: Baseline) -> Table:
    """Return the table for a terminal."""
    drawn = Table(caption=f"{found.metric.name}; {found.test}", caption_justify="left")
    drawn.add_column("silo", overflow="fold")
    for heading in heads(found):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for one in found.silos:
        drawn.add_row(one.name, *cells(one, found))
    drawn.add_section()
    drawn.add_row(found.whole.name, *cells(found.whole, found))
    return drawn


def record(found: Baseline) -> dict[str, Any]:
    """Return all figures for the JSON file; None is one that is undefined."""
    return {
        "metric": found.metric.name,
        "higher_is_better": found.metric.higher_is_better,
        "test": found.test,
        "verdict": verdict(found),
        "silos": {one.name: _of(one, found) for one in found.silos},
        "all": _of(found.whole, found),
        "left_out": found.left_out,
        "remarks": [*remarks(found), *cautions(found)],
        "rounds": dict(found.rounds),
    }


def as_csv(found: Baseline) -> str:
    """Return the figures of `record` as CSV: a line for each silo, and the last one for all rows."""
    told = record(found)
    rows = [
        {"silo": name, **_in_columns(one)}
        for name, one in [*told["silos"].items(), (found.whole.name, told["all"])]
    ]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    return units.csv_table(heads, [{head: row.get(head) for head in heads} for row in rows])


def _in_columns(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures with those of a group beside the others, as `against_pooled_difference`."""
    found: dict[str, Any] = {}
    for name, one in figures.items():
        found |= {f"{name}_{key}": of for key, of in one.items()} if isinstance(one, dict) else {name: one}
    return found


def as_latex(found: Baseline) -> str:
    """Return the table as LaTeX prints it."""
    rows = [[one.name, *cells(one, found)] for one in (*found.silos, found.whole)]
    said = [
        verdict(found),
        *cautions(found),
        f"{found.metric.name}; {found.test}.",
        *remarks(found),
        of_chance(found),
    ]
    return units.as_latex(["silo", *heads(found)], rows, said)


def _of(one: Scored, found: Baseline) -> dict[str, Any]:
    about: dict[str, Any] = {"rows": one.rows, "rows_that_count": one.counted, "alone": _known(one.alone)}
    about["federated"] = _known(one.federated)
    about |= {} if one.guessing is None else {"most_frequent_class": one.guessing}
    about |= {} if one.events is None else {"events": one.events, "draws_without": one.undefined}
    if one.pooled is not None:
        about["pooled"] = _known(one.pooled)
    if (difference := one.difference) is not None:
        about |= {"difference": difference.by, "low": difference.low, "high": difference.high}
        about |= {"level": difference.level, "p": difference.p, "p_holm": one.p}
    if (other := one.over_pooled) is not None and other.difference is not None:
        of = other.difference
        told = {
            "difference": of.by,
            "low": of.low,
            "high": of.high,
            "level": of.level,
            "p": of.p,
            "p_holm": other.p,
        }
        about["against_pooled"] = {**told, "judged": judged(other, found.metric)}
    about |= {"seen": one.seen, "judged": judged(one, found.metric)}
    return about | {"outcome": outcome(one, found.metric)}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
