"""What silos gain by a model over another, such as one that each trains alone, and what is chance in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from pydantic_core import from_json

from mpifl.common import LARGEST_FILE, InputError, count_of, one_line, read_whole
from mpifl.common.pages import NEXT, Block, Said
from mpifl.learning.metrics import MetricInfo
from mpifl.report.judging import ranked, scores
from mpifl.report.results import told_by_baseline
from mpifl.report.runs import (
    Difference,
    Held,
    Summary,
    chance,
    lent,
    one_class,
    rests_on,
    trains_alone,
    units,
)
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
ASKED = "Did it help a silo?"
OF_OTHERS = (
    "Only the silo with the labels can have a figure of its own. The others hold no labels: no model can be "
    "trained or scored on their columns alone."
)
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
    few: str = ""
    """On how few rows of the rarer class it rests, in words; "" where they are enough."""

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
        found[name] = Gain(
            other,
            round(sign * (one - other), 12),
            told,
            tuple(seen),
            reach,
            rests_on(of.events if of else None),
        )
    return found


def held_against(found: Iterable[Gain]) -> tuple[str, str]:
    """Say where changes are written, where they are more than chance makes of what; and how that is known."""
    given = [*found]
    told = [gain.held for gain in given]
    parts = [what for what in (SEEDS, EXAMPLES) if any(what in held for held in told)]
    if not parts or not all(told):
        return UNTOLD, ""
    said = (
        f"A change is shown where it exceeds chance over {' and over '.join(parts)}, for each silo by itself."
    )
    said += "" if any(gain.look for gain in given) else f" {NO_CHANGE}"
    how = [] if SEEDS in parts else ["A setting with one seed shows no spread over seeds."]
    return said, " ".join([*how, *([PAIRED] if EXAMPLES in parts else [])])


def values(summary: Summary) -> dict[str, float]:
    """Return the main metric of each silo that has one, by its name, the worst first."""
    return {name: value for name, value in ranked(scores(summary), summary.metric) if value is not None}


def gain_unknown(summary: Summary) -> list[Block]:
    """Say what a baseline has told of a run and its silos, or that nobody knows whether it helped.

    Nothing is said of exact sums, of silos that train alone, or of the other trainings of a baseline.
    """
    if summary.job.get("algorithm", {}).get("name") in OF_SUMS or trains_alone(summary.job):
        return []
    if lent(summary.run):
        return []
    if summary.diverged:
        return [Said(f"{ASKED} No: the run diverged.")]
    if told := known_to_help(summary):
        return [Said(f"{ASKED} {told}")]
    more = f" {OF_OTHERS}" if "split" in summary.job else ""
    return [Said(f"{ASKED} This page cannot tell, since no silo was trained alone.{more} See {NEXT}.")]


def known_to_help(summary: Summary) -> str:
    """Return the verdict of `mpifl baseline` where a run is its federated one, and where its page is; "" of
    other runs."""
    run = summary.run.absolute()
    # none there, or not one of ours
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        if run.name == "federated":
            told = from_json(read_whole(run.parent / "baseline.json", LARGEST_FILE))
            return f"{one_line(str(told['verdict']))} {run.parent / 'baseline.html'} has each silo."
    return ""


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


def gained(
    found: Mapping[str, Gain],
    metric: MetricInfo,
    against: str = ALONE,
    setting: str = THIS,
    others: Sequence[Mapping[str, Gain]] = (),
    begin: str = "The",
) -> str:
    """Say what silos gain together, by a paired t-test over them, and at how many the change exceeds chance.

    `others` is what they gain by other settings that are held against the same: Holm corrects for these.
    `begin` may say of which rows they are.
    """
    by, other = fmean(gain.by for gain in found.values()), fmean(gain.other for gain in found.values())
    up, down = (sum(sign * gain.by > 0 for gain in found.values()) for sign in (1, -1))
    words = ("higher", "lower") if metric.higher_is_better else ("lower", "higher")
    counts = zip((up, down, len(found) - up - down), (*words, "equal"), strict=True)
    each = ", ".join(f"{many:,} {'are' if many > 1 else 'is'} {word}" for many, word in counts if many)
    served = other + (by if metric.higher_is_better else -by)
    change = Gain(other, by, None).write(metric) + (" points" if metric.share else "")
    tests = [
        test for of in (found, *others)
        if (test := chance.over_seeds({name: gain.by for name, gain in of.items()}, dict.fromkeys(of, 0.0)))
    ]  # fmt: skip
    if len(found) > 1:
        test, corrected = chance.holm(tests)[0]
        reach, p = units.between(*test.reach, metric), units.probability(corrected)
        change += f"; 95% interval {reach}, p {p if '<' in p else f'= {p}'} by a paired t-test over the silos"
        if len(tests) > 1:
            change += f", both corrected by Holm for the {len(tests):,} settings held against {against}"
    return (
        f"{begin} silos' mean is {metric.write(served)} with {setting} and {metric.write(other)} with "
        f"{against} ({change}). Of {count_of(len(found), 'silo')}, {each}{_singly(found)}"
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
        *told_by_baseline(alone),
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
    up, down = (f"{many:,} do{'es' * (many == 1)}" if many else "none does" for many in (better, worse))
    said = f". Beyond chance, not corrected for the number of silos: {up} better, {down} worse, "
    said += f"and {rest:,} show{'s' * (rest == 1)} no difference."
    few = [f"silo {name} {gain.few}" for name, gain in found.items() if gain.look and gain.few]
    more = f" (and {len(few) - MOST_NAMED:,} more)" * (len(few) > MOST_NAMED)
    return said + f" Of these, {', '.join(few[:MOST_NAMED])}{more}." * bool(few)
