"""What silos gain by a model over another, such as one that each trains alone, and what is chance in it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from pydantic_core import from_json

from mpifl.common import LARGEST_FILE, InputError, one_line, read_whole
from mpifl.common.pages import Block, Cell, Said, Table, charts
from mpifl.learning.metrics import MetricInfo
from mpifl.report.judging import NONE_HELD_OUT, evaluates, ranked, scores, why_none
from mpifl.report.runs import Difference, Held, Summary, chance, one_class, trains_alone, units
from mpifl.run.folder import same_data
from mpifl.run.job import OF_SUMS

SEEDS, EXAMPLES = "the seeds", "the held-out examples"
"""What chance comes from."""
NO_CHANGE = "No silo's change exceeds chance by itself."
UNTOLD = "Chance is not known for single silos."
ALONE, THIS = "a model trained alone", "this model"
PAIRED = (
    "Both models answer the same rows, so chance is that of pairs (Tango's interval). Which rows changed is "
    "not recorded, so the interval is the widest possible one. It is widened to 0 where McNemar's exact test "
    "sees no difference. Rows count as independent. Nothing is corrected for the number of silos."
)
TOLD = (
    "The table is of mpifl baseline; baseline.html in the folder above has more. "
    "Difference: federated − alone, on the same test rows. Interval and p are corrected by Holm for the "
    "number of silos. A difference is seen where p is at most 0.05:"
)
TOLD_HEADS = ("silo", "alone", "federated", "difference", "corrected interval", "outcome")
MOST_NAMED = 3
"""Silos that are named as below guessing."""


class Gain(NamedTuple):
    """What a silo has by the other model, and how much better than that it is served, in the metric's unit.

    `seen` says whether that is more than chance makes by each of what it is `held` against; None where nobody
    can tell.
    """

    other: float
    by: float
    seen: bool | None
    held: tuple[str, ...] = ()
    reach: tuple[float, float] | None = None
    """Where `by` lies with 95 % by the held-out examples, where that is known."""

    @property
    def look(self) -> str:
        """Return the look of a gain or of a loss that exceeds chance; "" of any other."""
        return "" if not self.seen or not self.by else "best" if self.by > 0 else "worst"

    def write(self, metric: MetricInfo) -> str:
        """Write it with its sign, per cents as points."""
        size = f"{100 * abs(self.by):.2f}" if metric.share else metric.write(abs(self.by))
        return ("+" if self.by > 0 else "−" if self.by < 0 else "±") + size


def gains(
    served: Mapping[str, float],
    beside: Mapping[str, float],
    metric: MetricInfo,
    held: Mapping[str, Held],
    over_seeds: Mapping[str, Difference | None] | None = None,
) -> dict[str, Gain]:
    """Return the gain of each silo that has both values.

    Args:
        served: Each silo's value by the one model.
        beside: Each silo's value by the other.
        metric: What the values are of.
        held: How many examples each silo holds out, as far as that is known.
        over_seeds: The difference of each silo over seeds, where both models were trained with several.
    """
    sign, found = 1 if metric.higher_is_better else -1, {}
    for name in (name for name in served if name in beside):
        of, (one, other) = held.get(name), (served[name], beside[name])
        seen, reach = {}, None
        if test := (over_seeds or {}).get(name):
            seen[SEEDS] = test.seen
        if chance.counts(metric) and of is not None and of.out > 0:
            reach = chance.apart(one, other, of.out)
            seen[EXAMPLES] = reach[0] > 0 or reach[1] < 0
        told = all(seen.values()) if seen else None
        found[name] = Gain(other, sign * (one - other), told, tuple(seen), reach)
    return found


def held_against(found: Iterable[Gain]) -> str:
    """Say where changes are written: where they are more than chance makes of what."""
    given = [*found]
    told = [gain.held for gain in given]
    parts = [what for what in (SEEDS, EXAMPLES) if any(what in held for held in told)]
    if not parts or not all(told):
        return UNTOLD
    said = (
        f"A change is shown where it exceeds chance over {' and over '.join(parts)}, for each silo by itself."
    )
    said += "" if any(gain.look for gain in given) else f" {NO_CHANGE}"
    said += "" if SEEDS in parts else " A setting with one seed shows no spread over seeds."
    return said + (f" {PAIRED}" if EXAMPLES in parts else "")


def drawn_around_zero(
    found: Sequence[tuple[str, float, float, float] | None], metric: MetricInfo
) -> tuple[list[Cell], list[str]]:
    """Draw differences with their intervals; return a cell for each, and what is written below their axis.

    Args:
        found: The words of each, itself, and the ends of its interval; None of one that is not known.
        metric: What they are of.
    """
    most = charts.ticks(0.0, max((abs(end) for one in found if one for end in one[1:]), default=1.0))[-1]
    scale, end = charts.Scale(-most, most), f"{100 * most if metric.share else most:g}"
    cells = []
    for one in found:
        by, low, high = (100 * scale(of) for of in one[1:]) if one else (0, 0, 0)
        cells.append(Cell(one[0], one[1], dots=[by], span=(low, high), zero=50) if one else Cell("–", ""))
    return cells, [f"−{end}", "0", f"+{end}"]


def values(summary: Summary) -> dict[str, float]:
    """Return the main metric of each silo that has one, by its name, the worst first."""
    return {name: value for name, value in ranked(scores(summary), summary.metric) if value is not None}


def gain_unknown(summary: Summary) -> list[Block]:
    """Say what a baseline has told of a run and its silos, or that nobody knows whether it helped, and how to
    tell.

    Nothing is said of exact sums, or of silos that train alone.
    """
    if not (how := how_to_tell(summary)):
        return []
    who = "party" if "split" in summary.job else "silo"
    if summary.diverged:
        return [Said(f"Did it help a {who}? No: the run diverged.")]
    if told := _told_by_baseline(summary):
        return told
    if summary.main and not scores(summary) and why_none(summary.job, scored=True) == NONE_HELD_OUT:
        how = "No silo holds out rows: partition the data anew with '--test', and train again."
    return [Said(f"Did it help a {who}? This page cannot tell, since no {who} was trained alone. {how}")]


def how_to_tell(summary: Summary) -> str:
    """Say what shows whether a run helped a silo; "" of exact sums, and of silos that train alone."""
    algorithm, run = summary.job.get("algorithm", {}), shlex.quote(str(summary.run))
    if algorithm.get("name") in OF_SUMS or trains_alone(summary.job):
        return ""
    if "split" in summary.job:
        how = "To answer, the party with the labels trains a model on its own columns alone"
        return f"{how}, with the same training and test rows."
    if "privacy" in summary.job or "security" in summary.job:
        given = evaluates(summary, "--data", str(summary.job.get("shards", "SHARDS")))
        how = "Each silo can tell for itself. It trains a model alone, on the rows outside its test split."
        how += f" {given} scores this run's model on the test rows of its shards. The same command with the"
        return f"{how} folder of the silo's own run scores its own model on the same rows."
    if summary.own_models or "personal" in algorithm:
        how = (
            f"Copy {run}/job.toml to alone.toml. Let its [algorithm] be name = 'ditto', lambda = 0. Then run"
        )
        return (
            f"{how} 'mpifl train alone.toml --out {run}-alone' and 'mpifl report {run} --alone {run}-alone'."
        )
    return f"To answer, run 'mpifl baseline {run}/job.toml --out {run}-baseline'."


def _told_by_baseline(summary: Summary) -> list[Block]:
    """Return the verdict of `mpifl baseline` and its table of silos where a run is its federated one."""
    run = summary.run.absolute()
    # none there, or not one of ours
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        if run.name == "federated":
            told = from_json(read_whole(run.parent / "baseline.json", LARGEST_FILE))
            verdict, test = (one_line(str(told[key])) for key in ("verdict", "test"))
            said = f"Did it help a silo? {verdict} {TOLD} {test}."
            rows = [[name, *_told_of(one, summary.metric)] for name, one in told["silos"].items()]
            return [Said(said), Table.of(TOLD_HEADS, rows, text=5)]
    return []


def _told_of(one: Mapping[str, Any], metric: MetricInfo) -> list[str]:
    """Return the cells of a silo, given its record in `baseline.json`."""
    values = [one[key] for key in ("alone", "federated")]
    written = ["–" if value is None else metric.write(value) for value in values]
    came = one_line(str(one.get("outcome", one["judged"])))
    if "difference" not in one:
        return [*written, "–", "–", came]
    by = Gain(values[0], one["difference"], None).write(metric)
    return [*written, by, units.between(one["low"], one["high"], metric), came]


def gains_over(alone: Summary, summary: Summary, held: Mapping[str, Held]) -> dict[str, Gain]:
    """Return what each silo gains over another run, in which each trains by itself.

    Raises:
        InputError: that is no such run: its silos do not train alone, or they, its metric or the examples
            that judge are others.
    """
    if not trains_alone(alone.job):
        what = "its silos do not train alone, as those of algorithm 'ditto' with lambda = 0 do"
        raise InputError(f"--alone {alone.run}: {what}; name such a run")
    splits = [run.job.get("evaluate", {}).get("split") for run in (summary, alone)]
    for differs, what in (
        (not same_data(summary.data, alone.data), "was trained on other shards"),
        (summary.metric != alone.metric, "is judged by another metric"),
        (splits[0] != splits[1], "is judged on another split"),
        (summary.silo_rows != alone.silo_rows, f"has figures of silos on {alone.silo_rows} alone"),
        (not values(alone), "tells no silo's score, so nothing can be held against it"),
    ):
        if differs:
            raise InputError(
                f"--alone {alone.run}: {what}; name a run like {summary.run}, of silos that each train alone"
            )
    return gains(values(summary), values(alone), summary.metric, held)


def _together(found: Mapping[str, Gain], metric: MetricInfo, against: str, setting: str) -> str:
    """Say what the silos gain as a whole: their means, and a paired t-test over them."""
    by, other = (
        fmean(each) for each in zip(*((gain.by, gain.other) for gain in found.values()), strict=True)
    )
    up, down = (sum(sign * gain.by > 0 for gain in found.values()) for sign in (1, -1))
    words = ("higher", "lower") if metric.higher_is_better else ("lower", "higher")
    counts = zip((up, down, len(found) - up - down), (*words, "equal"), strict=True)
    each = ", ".join(f"{many:,} {'are' if many > 1 else 'is'} {word}" for many, word in counts if many)
    served = other + (by if metric.higher_is_better else -by)
    change = Gain(other, by, None).write(metric) + (" points" if metric.share else "")
    test = chance.over_seeds({name: gain.by for name, gain in found.items()}, dict.fromkeys(found, 0.0))
    if test is not None:  # of several silos
        p = units.probability(test.p)
        change += (
            f"; 95% interval {units.between(test.low, test.high, metric)}, p {p if '<' in p else f'= {p}'}"
        )
        change += " by a paired t-test over the silos"
    return (
        f"The silos' mean is {metric.write(served)} with {setting} and {metric.write(other)} with {against} "
        f"({change}). Of {len(found):,} silo{'s' * (len(found) > 1)}, {each}"
    )


def _largest_loss(found: Mapping[str, Gain], metric: MetricInfo, held: Mapping[str, Held]) -> str:
    """Say which silo loses most beyond chance, and what is known of why; "" where none does."""
    lose = [(gain.by, name) for name, gain in found.items() if gain.look == "worst" and gain.reach]
    if not lose:
        return ""
    by, name = min(lose)
    reach = units.between(*(found[name].reach or (by, by)), metric)
    return (
        f"Silo {name} loses most beyond chance: {units.points(by, metric)}, 95% interval {reach} "
        f"({held[name].words()}). Why is not known."
    )


def gained(found: Mapping[str, Gain], metric: MetricInfo, against: str = ALONE, setting: str = THIS) -> str:
    """Say what silos gain together, and at how many of them the change exceeds chance; by which setting."""
    return f"{_together(found, metric, against, setting)}{_singly(found)}"


def compared(
    summary: Summary, alone: Summary | None, found: Mapping[str, Gain], held: Mapping[str, Held]
) -> list[str]:
    """Say what silos gain over those alone, and of which rounds both are where these differ."""
    if alone is None or not found:
        return []
    own, other = (run.of_model["round"] for run in (summary, alone))
    setting, against = "personal models" if summary.personal else THIS, ALONE
    if own != other:
        setting, against = f"{setting} (round {own:,})", f"{against} (round {other:,})"
    told = scores(summary)
    alike = [name for name in found if one_class(told.get(name, {}), held.get(name))]
    return [
        gained(found, summary.metric, against, setting) + without_alike(found, alike, summary.metric),
        _largest_loss(found, summary.metric, held),
    ]


def without_alike(found: Mapping[str, Gain], alike: Sequence[str], metric: MetricInfo) -> str:
    """Say what silos gain without those whose rows have one class, which one answer serves; "" of none."""
    rest = [gain for name, gain in found.items() if name not in alike]
    if not rest or len(rest) == len(found) or not chance.counts(metric):
        return ""
    change = Gain(0.0, fmean(gain.by for gain in rest), None).write(metric)
    who = "silo" if len(alike) == 1 else "silos"
    return f" Without the {who} of one class ({', '.join(alike[:MOST_NAMED])}) it is {change} points."


def _singly(found: Mapping[str, Gain]) -> str:
    """Say how many silos gain, how many lose, and of how many no difference is seen."""
    looks = [gain.look for gain in found.values()]
    better, worse = looks.count("best"), looks.count("worst")
    if not better + worse and all(gain.seen is not None for gain in found.values()):
        return ", none beyond chance by itself."
    if any(gain.seen is None for gain in found.values()):
        return f". {UNTOLD}"
    rest = len(looks) - better - worse
    up, down = (f"{many:,} do{'es' * (many == 1)}" for many in (better, worse))
    return f". Beyond chance, {up} better, {down} worse, and {rest:,} show{'s' * (rest == 1)} no difference."
