"""The charts of a run's page: the main metric over rounds, what its rounds cost, and where time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from re import fullmatch

from mpifl.common import Names
from mpifl.common.pages import Figure, charts
from mpifl.learning.metrics import ACCURACY, ToldAnswers
from mpifl.report.findings import falls, last_values, moves, points_of
from mpifl.report.judging import scores
from mpifl.report.observers import TOGETHER
from mpifl.report.runs import Summary, chance, longer, units
from mpifl.run.folder import number
from mpifl.run.job import OF_SUMS

TRAVELS = ("seconds_training", "seconds_communication")
PARTS = ("training", "waiting", "communication", "evaluation", "checkpoint")
REST = "other: the server between exchanges"
"""What a round takes beyond its exchanges, by rank 0's clock: drawing silos, its step, mending what died."""
MEASURED = "Communication is what exchanges take beyond the slowest training; other is the rest of the round."
SPENT_ON = ("training", "waiting for the slowest", "communication", "scoring", "checkpoints", REST)
SPENT = (
    ("whole round", "seconds", "test"),
    ("training, slowest rank", "seconds_training", "s1"),
    ("communication", "seconds_communication", "mean"),
    ("scoring after the round", "seconds_evaluation", "s3"),
    ("checkpoint before the round", "seconds_checkpoint", "s4"),
)
CARRIED = (("sent to silos", "bytes_sent", "test"), ("received", "bytes_received", "mean"))
MOST_BINS = 300  # points of a line of times or bytes: of more rounds each is of some
SAME = 0.005
FLAT = 0.001
"""What a curve that is flat may still gain, as a share."""
MOST_TOLD = 5
"""Silos whose names are told of a round that left out more."""


def curve(summary: Summary, names: Names) -> Figure | None:
    """Draw the main metric: what the run is judged by, the silos, the target, and what went wrong."""
    metric, main = summary.metric, summary.judged_by or summary.metric.test
    held = "all silos' validation rows" if summary.by_valid else TOGETHER
    write = partial(metric.write, target=summary.target)
    shared, own = (", shared model", ", own models") if summary.personal else ("", "")
    called = {metric.test: f"test set{shared}", metric.pooled: held}
    lines = [_line(summary, called.get(main, "silos' mean, weighted by examples"), main, "test", write)]
    several = several_silos(summary)
    if several:
        lines.append(_line(summary, f"silos' mean{own}", f"{metric.silo}_mean", "mean", write))
    fallen = {at for at, _ in falls(summary)}
    points = [(float(r["round"]), number(r, main) if r["round"] in fallen else None) for r in summary.records]
    lines.append(charts.Line("falls" if metric.higher_is_better else "rises", points, "fall", ""))
    band = _band(summary, metric.silo) if several else None
    return charts.lines(f"{metric.title} over rounds", lines, band, metric.write_briefly, summary.target,
                        wide=True, log=bool(summary.before) and not metric.share,
                        note=_noted(summary, main), covers=_around(summary, main),
                        under=charts.Under("silo left out or rank lost", _wrong(summary, names)))  # fmt: skip


def several_silos(summary: Summary) -> bool:
    """Return whether several silos were scored, so that their mean and the worst say more than one does."""
    return len(scores(summary)) != 1


def _wrong(summary: Summary, names: Names) -> dict[float, str]:
    """Return the rounds in which silos were left out, or ranks were lost, and which."""
    found = {}
    for record in summary.records:
        faults, lost = record.get("faults"), record.get("ranks_lost")
        who = [names[silo] for silo in (faults if isinstance(faults, Mapping) else ())]
        said = [", ".join(who[:MOST_TOLD]) + " ..." * (len(who) > MOST_TOLD)] if who else []
        said += [f"ranks {', '.join(map(str, lost))}"] if isinstance(lost, list) and lost else []
        if said:
            found[float(record["round"])] = "; ".join(said)
    return found


def _noted(summary: Summary, main: str) -> str:
    """Say what the lines of the main metric are of."""
    kept, said = summary.model_round, f"{_whose(summary)} Values beside names are of the last round"
    said += "." if kept in (None, summary.rounds) else f"; figures above are of the best round, {kept:,}."
    if (before := number(summary.before, main)) is not None:
        said += f" Before training it was {summary.metric.write(before)}."
    bound = summary.answers.get("silos", ToldAnswers()).within.get(summary.metric.name)
    if main == summary.metric.pooled and bound:
        exact = f"within {summary.metric.write_briefly(bound)} of the value by single rows"
        said += f" It is from counts over ranges of the probability, and not exact: {exact}."
    mean = summary.figure(f"{summary.metric.silo}_mean")
    if main != summary.metric.pooled or mean is None or not several_silos(summary):
        return said.strip()
    rows = "all silos' validation rows" if summary.by_valid else TOGETHER
    said += f" The line '{rows}' takes all rows as one set; the silos' mean counts each silo alike."
    return said.strip()


def _line(
    summary: Summary, name: str, figure: str, colour: str, write: charts.Write | None = None
) -> charts.Line:
    records = [{**summary.before, "round": 0}, *summary.records]
    points = [(float(r["round"]), number(r, figure)) for r in records if figure in r]
    known = [(at, value) for at, value in points if value is not None]
    last = write(known[-1][1]) if write and known else None
    if last and known[-1][0] != summary.rounds:
        last += f" (round {known[-1][0]:,.0f})"
    return charts.Line(name, points, colour, last)


def _around(summary: Summary, key: str) -> list[float]:
    """Return what an axis of a share covers: the 95% interval of the last value, and two points."""
    value = number(summary.records[-1], key)
    if value is None or not summary.metric.share:
        return []
    ends = chance.interval(value, summary.rows) if summary.rows and chance.counts(summary.metric) else ()
    return [*units.two_points(value), *ends]


def over_the_clock(summary: Summary) -> Figure | None:
    """Draw the main metric over the virtual clock, if the run has one."""
    of = summary.judged_by or summary.metric.test
    timed = [(number(r, "virtual_seconds"), number(r, of)) for r in summary.records if of in r]
    points = [(at, value) for at, value in timed if at is not None]
    line = charts.Line("test set" if of == summary.metric.test else "silos", points, "test")
    along = "virtual seconds"
    return charts.lines(f"{summary.metric.title} over {along}", [line], None, summary.metric.write_briefly,
                        summary.target, along=along, note=_whose(summary))  # fmt: skip


def certain(summary: Summary, key: str, name: str, rows: int = 0) -> list[str]:
    """Say what chance makes of a metric at the end, as far as that is known: its interval and the base rate.

    Args:
        key: The key of the metric in rounds.
        rows: Of how many rows its value is, 0 where that is not known.
    """
    test, info, said = key.startswith("test_"), summary.info(name), []
    if (ends := chance.reach_at_end(summary, info, key, rows)) is not None:
        said.append(f"95% interval {units.reach(ends, info)}")
        said[0] += f", by chance of these {rows:,} rows alone" if rows else ""
    elif name == summary.metric.name and chance.counts(info):
        said.append("no 95% interval, since the number of scored rows is not known here")
    guess, where = chance.commonest(summary, test)
    if guess is not None and name == ACCURACY.name:
        said.append(f"always predicting the most common class of {where} gives {info.write(guess)}")
    elif "privacy" in summary.job and name == ACCURACY.name and number(summary.of_model, key) is not None:
        said.append("what guessing gives is not known: a private run releases no counts of classes")
    return said


def one_seed(summary: Summary) -> str:
    """Say that a run is of one seed, and how far its metric moves in the last rounds; "" of a run that has
    no such metric, no seed, or diverged."""
    key, metric, seed = summary.judged_by, summary.metric, summary.job.get("seed")
    sums = summary.job.get("algorithm", {}).get("name") in OF_SUMS
    if summary.diverged or key is None or seed is None or sums:
        return ""
    last = last_values(summary)
    said = f"This is one run with seed {seed}: another seed gives another figure."
    if len(last) < 2:
        return said
    low, high = min(last), max(last)
    if metric.write(low) == metric.write(high):
        learnt = summary.main is None or not chance.guesses(summary, summary.main[1])
        return said + _flat(summary) * learnt
    said += f" The last {len(last)} scored rounds"
    if summary.finished and not moves(summary):
        few = f"differ by at most one of the {summary.rows:,} scored rows: more rounds may gain nothing"
        return f"{said} {few}."
    said += f" lie from {metric.write(low)} to {metric.write(high)}"
    if last[-1] == metric.best(value for _, value in points_of(summary)):
        return f"{said}, and the last one is the best of all: {longer(summary.job, summary.rounds)}."
    return f"{said}. One run does not show how far apart seeds lie."


def _flat(summary: Summary) -> str:
    """Say after which round a curve is flat, if that is in the first half of the rounds and it ends there,
    what it fell by later, and what to do."""
    told, metric = points_of(summary), summary.metric
    best, near = metric.best(value for _, value in told), FLAT * metric.share
    at = next(at for at, value in told if abs(best - value) <= near)
    if at > summary.rounds / 2 or abs(best - told[-1][1]) > near:
        return ""
    fell = sorted(nth for nth, _ in falls(summary) if nth > at)
    what = ("fall" if metric.higher_is_better else "rise") + "s" * (len(fell) > 1)
    but = f" but for the {what} in round{'s' * (len(fell) > 1)} {', '.join(f'{nth:,}' for nth in fell)}"
    gained = f"gained {units.points(near, metric)} or less" if near else "gained nothing"
    enough = f"rounds = {at} is enough for the next run{f', and ends before the {what}' * bool(fell)}"
    return f" The curve is flat{but * bool(fell)}: rounds after {at:,} {gained}. {enough}."


def _whose(summary: Summary) -> str:
    """Say of which rows curves over rounds are, where the end is scored on others."""
    return "Each round is scored on validation rows." if summary.by_valid else ""


def _band(summary: Summary, silo: str) -> charts.Band:
    """Return what lies between the worst silo's figure and the best one's in each round."""
    each = ((r["round"], *(number(r, f"{silo}_{end}") for end in ("worst", "best"))) for r in summary.records)
    known = [(float(at), one, other) for at, one, other in each if one is not None and other is not None]
    return charts.Band("worst to best silo", [(at, *sorted(ends)) for at, *ends in known])


def beside(summary: Summary) -> list[Figure | None]:
    """Draw what a reader looks at next: losses, the time of rounds, bytes that differ, other metrics."""
    of = {"test set": ("test_loss", "test"), "training": ("train_loss", "train")}
    losses = [_line(summary, name, *told, "{:.3g}".format) for name, told in of.items()]
    spent = [_line(summary, name, figure, look) for name, figure, look in SPENT]
    rest = [(float(r["round"]), _rest(r)) for r in summary.records if "seconds" in r]
    spent.insert(3, charts.Line(REST, rest, "s5"))
    sent = [_line(summary, name, figure, look) for name, figure, look in CARRIED]
    found = [charts.lines("Loss", losses, write="{:.3g}".format, log=True), over_steps(summary)]
    if any(value for line in spent for _, value in line.points):
        timed = charts.lines("Time per round", spent, write=units.seconds, marked=units.clock, note=MEASURED,
                             most=MOST_BINS)  # fmt: skip
        found.append(timed)
    if not all(_same(line.points) for line in sent):
        found.append(charts.lines("Bytes per round", sent, write=units.size, most=MOST_BINS))
    return [*found, *_more_metrics(summary)]


def over_steps(summary: Summary) -> Figure | None:
    """Draw the training loss by step, if rounds tell it: the silos' mean, and the range of silos."""
    found = []
    for record in summary.records:
        told = record.get("step_losses")
        of_silos = [one for one in told.values() if isinstance(one, list)] if isinstance(told, dict) else []
        most = max(map(len, of_silos), default=0)
        for place in range(most):
            losses = [one[place] for one in of_silos if len(one) > place and isinstance(one[place], float)]
            if losses:
                found.append((record["round"] - 1 + (place + 1) / most, losses))
    mean = charts.Line("silos' mean", [(at, sum(of) / len(of)) for at, of in found], "train")
    band = charts.Band("lowest to highest silo", [(at, min(of), max(of)) for at, of in found])
    title, note = "Training loss by step", "The steps of a round are evenly spaced within it."
    return charts.lines(title, [mean], band, "{:.3g}".format, log=True, note=note, along="rounds")


def _more_metrics(summary: Summary) -> list[Figure | None]:
    """Draw every metric beside the main one."""
    keys = dict.fromkeys(key for record in (summary.records[0], summary.of_model) for key in record)
    tested = [key.removeprefix("test_") for key in keys if key.startswith("test_")]
    means = [found[1] for key in keys if (found := fullmatch("silo_(.*)_mean", key))]
    drawn: list[Figure | None] = []
    for name in (name for name in dict.fromkeys(tested + means) if name not in ("loss", summary.metric.name)):
        info = summary.info(name)
        where, key = ("test set", f"test_{name}") if name in tested else (TOGETHER, info.pooled)
        of, band, said = [_line(summary, where, key, "test", info.write)], None, certain(summary, key, name)
        if several_silos(summary):
            of.append(_line(summary, "silos' mean", f"{info.silo}_mean", "mean", info.write))
            band = _band(summary, info.silo)
        note = " ".join([_whose(summary), *(f"{one[:1].upper()}{one[1:]}." for one in said)]).strip()
        values = [value for one in of for _, value in one.points[-1:] if value is not None and info.share]
        covers = [end for value in values for end in units.two_points(value)]
        drawn.append(charts.lines(info.title, of, band, write=info.write_briefly, note=note, covers=covers))
    return drawn


def _same(points: charts.Points) -> bool:
    """Whether figures of rounds do not differ by more than a header."""
    values = [value or 0.0 for _, value in points]
    return not values or max(values) - min(values) <= SAME * max(values)


def _rest(record: Mapping[str, object]) -> float:
    """Return the seconds of a round that are neither training nor communication."""
    whole, *parts = (number(record, key) or 0.0 for key in ("seconds", *TRAVELS))
    return max(whole - sum(parts), 0.0)


def time(summary: Summary) -> Figure | None:
    """Draw where the time of a worker went, in the rounds and between them."""
    training, waiting, talking, scoring, saving = (summary.total(f"seconds_{part}") for part in PARTS)
    if not training or summary.missing:  # in sum: no round may be missing
        return None
    whole = summary.total("seconds") + scoring + saving
    parts = [training - waiting, waiting, talking, scoring, saving, sum(map(_rest, summary.records))]
    named = zip(SPENT_ON, parts, units.shares(parts), strict=True)
    share = " · ".join(f"{name} {of}%" for name, part, of in named if part)
    sent, received = (units.size(summary.total(key)) for key in ("bytes_sent", "bytes_received"))
    note = f"Average over workers, all rounds: {share}. Sent to silos: {sent}, received: {received}."
    note += _slowest(summary)
    worker = "average worker", parts, units.seconds(whole)
    return charts.split("What it cost", [worker], SPENT_ON, units.seconds, note)


def _slowest(summary: Summary) -> str:
    """Say which rank trains longer than any other by more than half of the rounds' time; "" of none."""
    each = sorted(((of[PARTS[0]], rank) for rank, of in _sums(summary).items()), reverse=True)
    if len(each) < 2 or each[0][0] - each[1][0] <= summary.total("seconds") / 2:
        return ""
    most, other = (units.seconds(spent) for spent, _ in each[:2])
    said = f" Rank {each[0][1]} alone takes more than half of the rounds' time: it trains for {most}"
    return f"{said}, the next slowest rank for {other}."


def of_ranks(summary: Summary) -> dict[str, dict[str, str]]:
    """Return how long each rank trained and waited for the slowest, if rounds tell of it."""
    return {r: {name: units.seconds(of) for name, of in each.items()} for r, each in _sums(summary).items()}


def _sums(summary: Summary) -> dict[str, Counter[str]]:
    """Return the seconds of each rank in training and waiting, if rounds tell of them."""
    sums: dict[str, Counter[str]] = {}
    for record in [] if summary.missing else summary.records:
        for rank, parts in (record.get("rank_seconds") or {}).items():
            sums.setdefault(rank, Counter()).update({name: number(parts, name) or 0.0 for name in PARTS[:2]})
    return sums
