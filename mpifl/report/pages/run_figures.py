"""The charts of a run's page: what its rounds reached and cost, and where time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpifl.common.pages import Figure, bars, charts, split
from mpifl.report.runs import Summary, units
from mpifl.run.folder import number

PARTS = ("training", "waiting", "communication", "evaluation", "checkpoint")
IN_ROUNDS = ("training", "waiting for the slowest", "communication")
ON_RANKS = """In the rounds. Communication: from request to mean, without the slowest rank’s training; \
the same for all."""


BETWEEN = "Between the server and the silos."
SAME = 0.005


def _line(summary: Summary, name: str, figure: str, colour: str) -> charts.Line:
    points = [(float(r["round"]), number(r, figure)) for r in summary.records if figure in r]
    return charts.Line(name, points, colour)


def reached(summary: Summary) -> list[Figure | None]:
    """Draw what the model reached: the main metric, losses, and how far the silos lie apart."""
    metric, target = summary.metric, summary.target
    test = [_line(summary, "test", metric.test, "test")]
    losses = [_line(summary, "test", "test_loss", "test"), _line(summary, "training", "train_loss", "train")]
    return [
        charts.lines(f"Test {metric.name}", test, None, metric.write_briefly, target),
        charts.lines("Loss", losses, write="{:.3g}".format, log=True),
        _over_silos(summary),
    ]


def over_the_clock(summary: Summary) -> Figure | None:
    """Draw the main metric over the virtual clock, if the run has one."""
    name, of = summary.metric.name, summary.judged_by or summary.metric.test
    timed = [(number(r, "virtual_seconds"), number(r, of)) for r in summary.records if of in r]
    points = [(at, value) for at, value in timed if at is not None]
    title, write = f"{name[:1].upper()}{name[1:]} over virtual seconds", summary.metric.write_briefly
    line = charts.Line("test" if of == summary.metric.test else "at the silos", points, "test")
    return charts.lines(title, [line], None, write, summary.target, along="virtual seconds")


_TOGETHER = {
    True: "Together: as if it lay in one place.",
    False: "By examples: the mean in which a silo counts as its examples.",
}
"""What the line is by which a run without a test set is judged, by whether it is of all examples."""


def _over_silos(summary: Summary) -> Figure | None:
    """Draw the main metric at the silos; the target is there only if it is for what they hold out."""
    name, silo = summary.metric.name, summary.metric.silo
    if "split" in summary.job:  # silos have no score of their own: all have the same rows
        rows = [_line(summary, "valid", summary.metric.pooled, "test")]
        return charts.lines(f"Valid {name}", rows, None, summary.metric.write_briefly, summary.target)
    pooled = summary.together == summary.metric.pooled
    apart = [
        _line(summary, "mean", f"{silo}_mean", "mean"),
        _line(summary, "together" if pooled else "by examples", summary.together, "test"),
        _line(summary, "worst tenth", f"{silo}_worst10", "worst"),
    ]
    band = charts.Band("from the worst silo to the best", _worst_to_best(summary.records, silo))
    target, note = None, "On what each silo holds out, every silo counting alike."
    if summary.judged_by not in (None, summary.metric.test):
        target, note = summary.target, f"{note} {_TOGETHER[pooled]}"
    title = f"{name[:1].upper()}{name[1:]} over the silos"
    return charts.lines(title, apart, band, summary.metric.write_briefly, target, note=note)


def _worst_to_best(records: Sequence[Mapping[str, Any]], silo: str) -> list[tuple[float, float, float]]:
    """Return the round, and the lower and higher of the worst silo's figure and the best one's."""
    found = []
    for record in records:
        worst, best = number(record, f"{silo}_worst"), number(record, f"{silo}_best")
        if worst is not None and best is not None:
            found.append((float(record["round"]), min(worst, best), max(worst, best)))
    return found


def costs(summary: Summary) -> list[Figure | None]:
    """Draw what each round cost: seconds and bytes."""
    rounds = [int(record["round"]) for record in summary.records]
    sent, received = _series(summary, "bytes_sent"), _series(summary, "bytes_received")
    traffic = [("sent to silos", sent, "s0"), ("received", received, "s1")]
    stacks = [stack for stack in _seconds(summary) if any(stack[1])]
    if alike := _same(sent) and _same(received):
        each = f"{units.size(sent[0])} sent to the silos, {units.size(received[0])} received"
        said = Figure("Bytes of each round", f"The same in every round: {each}.", wide=True)
    return [
        bars("Time of each round", rounds, stacks, units.seconds, marked=units.clock),
        said if alike else bars("Bytes of each round", rounds, traffic, units.size, BETWEEN),
    ]


def _same(values: Sequence[float]) -> bool:
    """Whether figures of rounds do not differ by more than a header."""
    return len(values) > 1 and min(values) > 0 and max(values) - min(values) <= SAME * max(values)


def _seconds(summary: Summary) -> list[tuple[str, list[float], str]]:
    """Return what the time of each round is made of, as the stacks of bars."""
    whole, training = _series(summary, "seconds"), _series(summary, "seconds_training")
    talking = _series(summary, "seconds_communication")
    rest = [max(w - t - c, 0.0) for w, t, c in zip(whole, training, talking, strict=True)]
    return [
        ("training, slowest rank", training, "s0"),
        ("communication", talking, "s2"),
        ("the server’s own", rest, "rest"),
        ("scoring", _series(summary, "seconds_evaluation"), "s3"),
        ("the checkpoint before it", _series(summary, "seconds_checkpoint"), "s4"),
    ]


def _series(summary: Summary, figure: str) -> list[float]:
    return [number(record, figure) or 0.0 for record in summary.records]


def time(summary: Summary) -> Figure | None:
    """Draw where the time of a worker went, in the rounds and between them."""
    training, waiting, talking, scoring, saving = (summary.total(f"seconds_{part}") for part in PARTS)
    rounds = summary.total("seconds")
    if not training:
        return None
    whole = rounds + scoring + saving
    parts = [training - waiting, waiting, talking, scoring, saving, max(rounds - training - talking, 0.0)]
    named = zip([*PARTS[:3], "scoring", "checkpoints", "server"], parts, strict=True)
    share = " · ".join(f"{name} {part / whole:.0%}" for name, part in named if part)
    names = [*IN_ROUNDS, "scoring", "checkpoints", "waiting for the server"]
    note = f"Of the mean worker, over all rounds: {share}."
    return split("Where time went", [("a worker", parts, units.seconds(whole))], names, units.seconds, note)


def ranks(summary: Summary, environment: dict[str, Any]) -> Figure | None:
    """Draw where each rank's time went in the rounds, if they tell of it."""
    told = [record for record in summary.records if record.get("rank_seconds")]
    if not (sums := _seconds_of_ranks(told)):
        return None
    if len(sums) == 1:
        (only,) = sums
        why = f"Rank {only} alone trained: all of the above."
        return Figure("Where time went on each rank", why, wide=True)
    timed = replace(summary, records=told)
    whole, training, talking = map(timed.total, ("seconds", "seconds_training", "seconds_communication"))
    alike = [talking, max(whole - training - talking, 0.0)]
    about = environment.get("ranks") or {}
    rows = [] if "0" in sums else [("rank 0, the server", [0.0, training, *alike], "")]
    for rank in sorted(sums, key=int):
        where = about.get(rank, {})
        behind = f"{where.get('host', '')} {where.get('device', '')}".strip()
        rows.append((f"rank {rank}", [sums[rank]["training"], sums[rank]["waiting"], *alike], behind))
    names = [*IN_ROUNDS, "the server’s own work"]
    return split("Where time went on each rank", rows, names, units.seconds, ON_RANKS)


def _seconds_of_ranks(told: Sequence[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Add up `rank_seconds`, {rank: {training, waiting}}, over rounds."""
    sums: dict[str, Counter[str]] = {}
    for record in told:
        for rank, parts in record["rank_seconds"].items():
            sums.setdefault(rank, Counter()).update({name: number(parts, name) or 0.0 for name in PARTS[:2]})
    return sums
