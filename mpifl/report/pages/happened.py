"""What a run's page says in sentences: what came of the run, and what happened in which round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean, median
from types import MappingProxyType

from mpifl.common import Names, count_of
from mpifl.common.pages import Figure, Table
from mpifl.report.findings import (
    MOST_NAMED,
    Event,
    all_drawn,
    asked,
    below_guessing,
    deepest_fall,
    diverged,
    guesses_beat,
    missed,
    none_fell,
    rule,
    suspected,
    together,
    told_falls,
)
from mpifl.report.judging import NAMES, evaluates, ranked, scores, unscored
from mpifl.report.observers import HELD_OUT, best_round, judged
from mpifl.report.pages.trust_section import spent
from mpifl.report.results import told_of_result
from mpifl.report.runs import Held, Summary, alike_told, chance, one_class, units

MOST_LEFT_OUT, MOST_MINDED, MOST_SUSPECTED = 20, 3, 10
NO_PROOF = " A score tells nothing of a silo's updates: it is of the shared model on the silo's own rows."
NO_FAULT = "No silo was left out of a round, and no rank was lost."
ALL_ASKED = "All silos that were asked have answered, and no rank was lost."


def verdict(
    summary: Summary, names: Names = NAMES, held: Mapping[str, Held] = MappingProxyType({})
) -> list[str]:
    """Return what came of a run, in a sentence or two."""
    stopped = f"{summary.stopped[:1].upper()}{summary.stopped[1:]}." if summary.stopped else ""
    return [
        one
        for one in (
            diverged.told(summary, names),
            *told_of_result(summary.records, names.many or len(held)),
            _reached(summary),
            deepest_fall(summary),
            spent(summary),
            stopped,
            "" if diverged.of_no_use(summary) else _of_silos(summary, names, held),
        )
        if one
    ]


def _reached(summary: Summary) -> str:
    """Say what the model reached by what it is judged by, and when it was at the target."""
    metric, judged, final = summary.metric, summary.judged_by, summary.final()
    useless = diverged.of_no_use(summary)
    title = f"{metric.title} of the model that diverged" if useless else metric.title
    end = ". Do not report this figure." if useless else f"{_of_target(summary)}."
    by = f", by {summary.model_words}" if summary.model_words else ""
    by += ", by the shared model" if summary.personal and judged == metric.test else ""
    tested = "the test rows of all silos" if "split" in summary.job else "the server's test set"
    key, rows = (summary.main or [""])[0], 0 if final is not None else summary.rows
    ends = None if useless else chance.reach_at_end(summary, metric, key, rows)
    sure = f" (95% interval {units.reach(ends, metric)})" if ends else ""
    if final is not None:
        whose = tested if metric.test in summary.at_end else "the test rows of all silos"
        return f"{title} is {metric.write(final)}{sure} on {whose}, scored once at the end{by}{end}"
    if judged is None or (value := summary.figure(judged)) is None:
        return unscored(summary)
    held = "the silos' validation rows" if summary.by_valid else HELD_OUT
    held = f"on {held}{', taken together as one set' * (len(scores(summary)) != 1)}"
    of = {metric.test: f"on {tested}", metric.pooled: held}
    mean = f"as the silos' mean, weighted by {'validation rows' if summary.by_valid else 'examples'}"
    return f"{title} is {metric.write(value, summary.target)}{sure} {of.get(judged, mean)}{by}{end}"


def _of_target(summary: Summary) -> str:
    """Say when the model was at the target by the rows that rounds look at, and by how few rows it is not."""
    if summary.target is None:
        return ""
    target, at = summary.metric.write_briefly(summary.target), summary.reached(summary.target)
    when = f"was reached in round {at:,}" if at else f"was not reached{'' if summary.finished else ' yet'}"
    where = " on the silos' validation rows" if summary.by_valid else ""
    lost, rows = f", and {since}" if (since := missed_since(summary)) else "", summary.rows
    best = None if at else best_round(summary.records, summary.metric)
    value = best[1] if best else summary.figure(summary.judged_by or "")
    said = f"; the target, {target}, {when}{where}{lost}"
    if at is not None and not lost:
        return said + _doubt(summary, at)
    if value is None or not (lost or best) or not rows or not chance.counts(summary.metric):
        return said
    lacks = max(1, ceil((summary.target - value) * rows - 1e-9))
    near = f": {lacks:,} right answer{'s' * (lacks > 1)} of {rows:,} {'are' if lacks > 1 else 'is'} lacking"
    return said + f"{near}, which is within chance" * (chance.interval(value, rows)[1] >= summary.target)


def _doubt(summary: Summary, at: int) -> str:
    """Say where the first value at the target may be chance of its rows: its interval includes less."""
    found = judged(next(r for r in summary.records if r["round"] == at), summary.metric)
    if not found or summary.target is None or not summary.rows or not chance.counts(summary.metric):
        return ""
    may = chance.interval(found[1], summary.rows)[0] < summary.target
    return f"; {summary.rows:,} row{' is' if summary.rows == 1 else 's are'} too few to be sure of that" * may


def missed_since(summary: Summary) -> str:
    """Say since which round the model is no longer at the target that a round has reached; "" if it is."""
    value, target = summary.figure(summary.judged_by or ""), summary.target
    if value is None or target is None or not summary.reached(target):
        return ""
    if summary.metric.reaches(value, target):
        return ""
    told = [(r["round"], judged(r, summary.metric)) for r in summary.records]
    good = max(at for at, found in told if found and summary.metric.reaches(found[1], target))
    return f"missed since round {min((at for at, found in told if found and at > good), default=good):,}"


def _of_silos(summary: Summary, names: Names, held: Mapping[str, Held]) -> str:
    """Say how the model serves the silos, if more than one was scored."""
    told = scores(summary)
    each = ranked(told, summary.metric)
    alike = [name for name in told if one_class(told[name], held.get(name))]
    found = [(name, value) for name, value in each if value is not None]
    others = [(value, of.out) for name, value in found if name not in alike and (of := held.get(name))]
    one = alike_told(alike, summary.metric, others)
    if len(found) < 2:
        return one if len(each) > 1 else ""
    write, half = summary.metric.write, median(value for _, value in found)
    low, high = found[0][1], found[-1][1]
    where = f" on {summary.silo_rows}" if summary.silo_rows else ""
    if low == high:
        return f"All {len(found):,} silos have {write(low)}{where}. {one}".rstrip()

    doubted = suspected(summary, names)
    doubts = {"rows of one class": alike, "suspected": doubted,
              "below guessing": [name for name, *_ in below_guessing(summary, held)]}  # fmt: skip

    def who_has(end: float) -> str:
        called = [name for name, value in found if value == end]
        said = NAMES.listed(called, MOST_NAMED)
        for doubt, of in doubts.items():
            those = [name for name in called if name in of]
            which = "" if those == called else f": {', '.join(those[:MOST_NAMED])}"
            said += f" ({doubt}{which})" * bool(those)
        return f"{said[:1].upper()}{said[1:]} {'are' if len(called) > 1 else 'is'}"

    own = " Each silo has a model of its own." if summary.personal else ""
    algorithm, main = summary.job.get("algorithm", {}), summary.main
    if own and "personal" not in algorithm and main and main[0] != summary.metric.test:
        own += f" The shared model beside it was not scored; {evaluates(summary, '--silos')} does so."
    without = [name for name, value in each if value is None and name not in alike]
    lacks = f" The rows of {NAMES.listed(without, MOST_NAMED)} have no {summary.metric.label}."
    mean = write(fmean(value for _, value in found))
    return (
        f"The mean over silos, each counted once, is {mean}{where}. {who_has(low)} the worst of "
        f"{len(found):,} silos, with {write(low)}. {who_has(high)} the best, with {write(high)}. "
        f"The median is {write(half)}."
        f"{NO_PROOF * any(name in doubted for name, value in found if value in (low, high))}"
        f"{own}{lacks * bool(without)} {one}"
    ).rstrip()


def minded(summary: Summary, names: Names, held: Mapping[str, Held] = MappingProxyType({})) -> list[str]:
    """Return what is to be minded: what speaks against a run, and silos below guessing or left out."""
    absent = together(summary.records)
    found = [
        f"{names.listed(silos, MOST_NAMED)} {'were' if len(silos) > 1 else 'was'} left out of {_many(at)} "
        f"({reason})"
        for silos, at, reason in absent[:MOST_MINDED]
    ]
    if others := sum(len(silos) for silos, _, _ in absent[MOST_MINDED:]):
        was = "was" if others == 1 else "were"
        found.append(f"{count_of(others, 'more silo')} {was} left out of some rounds")
    if summary.model_round and not summary.by_valid:
        found.append("the best round was chosen on the rows that score it, so its figures are optimistic")
    found += diverged.far_worse(summary)
    if who := suspected(summary, names):
        to_do = "figures are provisional until they are checked (see Trust)"
        found.append(f"suspected of wrong updates: {NAMES.listed(who, MOST_SUSPECTED)}; {to_do}")
    said = [one for one in summary.remarks
            if not one.startswith("without test") and not chance.names_divergence(one)]  # fmt: skip
    return [*said, *guesses_beat(summary, held), *found]


def events(summary: Summary, names: Names, more: Sequence[Event] = ()) -> list[Event]:
    """Return what happened, in the order of rounds: the target, the best round, falls, silos left out, ranks
    lost, and `more`."""
    found = [*_marks(summary), *diverged.divergence(summary, names), *told_falls(summary, names), *more]
    found += _left_out(summary, names)
    for record in summary.records:
        if isinstance(lost := record.get("ranks_lost"), list) and lost:
            found.append(Event(record["round"], f"Ranks lost: {', '.join(map(str, lost))}"))
    return sorted(found, key=lambda one: one.round)


def happened(summary: Summary, names: Names, more: Sequence[Event] = ()) -> Figure | None:
    """Return what happened as a part of a page; None where nothing did."""
    found = events(summary, names, more)
    rows = [[f"{one.round:,}", one.what, one.reason] for one in found]
    heads = ["round", "what happened", "reason"]
    if not any(one.reason for one in found):
        heads, rows = heads[:2], [row[:2] for row in rows]
    told = any("faults" in record for record in summary.records)
    fault = bool(missed(summary.records)) or any(record.get("ranks_lost") for record in summary.records)
    each = _asked(summary, names)
    note = [*each, *[ALL_ASKED if each else NO_FAULT] * (told and not fault), *none_fell(summary)]
    table = Table.of(heads, rows, text=1)
    blocks = [table, *all_drawn(summary, names)]
    how = " ".join(rule(summary))
    return Figure("What happened", " ".join(note), blocks, wide=True, how=how) if rows else None


def _asked(summary: Summary, names: Names) -> list[str]:
    """Say how many silos rounds asked, where these were not all."""
    drawn = [of for r in summary.records if (of := asked(r))]
    if not (many := [*map(len, drawn)]):
        return []
    each = " to ".join(str(end) for end in sorted({min(many), max(many)}))
    ever, every = {NAMES[one] for of in drawn for one in of}, seen(summary, names)
    whole, never = max(names.many, len(every)), [one for one in every if one not in ever]
    asks = (
        f"{each} of {count_of(whole, 'silo')}" if whole > max(many) else f"{each} silo{'s' * (each != '1')}"
    )
    said = [f"Each round asks {asks}."]
    if never:
        said.append(f"Never asked, and so never trained: {names.listed(never, MOST_NAMED)}.")
    return said


def _marks(summary: Summary) -> list[Event]:
    """Return the round of the target, and the best one."""
    metric, found = summary.metric, []
    if diverged.of_no_use(summary):
        return []
    if summary.target is not None and (at := summary.reached(summary.target)):
        found.append(Event(at, f"The run reaches the target, {metric.write_briefly(summary.target)}"))
    if best := best_round(summary.records, metric):
        where = " on validation rows" if summary.by_valid else ""
        beaten = f", {chance.NO_BETTER}" * chance.guesses(summary, best[1])
        found.append(Event(best[0], f"Best {metric.label}{where}: {metric.write(best[1])}{beaten}"))
    if summary.stopped:
        found.append(Event(summary.rounds, "The run stops early"))
    return found


def seen(summary: Summary, names: Names) -> list[str]:
    """Return the silos that some round has scored or left out: the last one may lack some of them."""
    scored: dict[str, object] = {}
    for record in summary.records:
        scored |= record["silos"] if isinstance(record.get("silos"), dict) else {}
    out = [names[silo] for silo, _, _ in missed(summary.records)]
    return [*dict.fromkeys([*(NAMES[name] for name in scored), *out])]


def _many(at: Sequence[int]) -> str:
    return f"{len(at):,} rounds: {units.spans(at)}" if len(at) > 1 else f"round {at[0]:,}"


def _left_out(summary: Summary, names: Names) -> list[Event]:
    """Return the silos that were left out of rounds."""
    absent, found = together(summary.records), []
    for silos, at, reason in absent[:MOST_LEFT_OUT]:
        said = f"{names.listed(silos, MOST_NAMED)} {'are' if len(silos) > 1 else 'is'} left out"
        also = f" ({_many(at)})" if len(at) > 1 else ""
        found.append(Event(at[0], f"{said[:1].upper()}{said[1:]}{also}", reason))
    if others := absent[MOST_LEFT_OUT:]:
        many, first = sum(len(silos) for silos, _, _ in others), min(at[0] for _, at, _ in others)
        more = f"{count_of(many, 'more silo')} {'is' if many == 1 else 'are'}"
        found.append(Event(first, f"{more} left out of some rounds"))
    return found
