"""Silos that are far worse in one setting than in others: since when, what is known of why, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from mpifl.common import Names
from mpifl.common.pages import NEXT
from mpifl.report.findings.fall_events import DEEP, UNKNOWN, asked, falls
from mpifl.report.findings.left_out import missed, suspected
from mpifl.report.findings.run_steps import Advice
from mpifl.report.findings.silo_gains import values
from mpifl.report.judging import NAMES
from mpifl.report.runs import Held, Standing, Summary, chance, command_of, units
from mpifl.run.folder import number, read_environment

MOST_TOLD = 3


class Collapse(NamedTuple):
    """A silo that is far worse in one setting than in others: by how much, the silo, its setting's name, a
    run of it, and what is said of it."""

    by: float
    silo: str
    setting: str
    run: Summary
    said: str


def collapses(found: Sequence[Standing], held: Mapping[str, Held]) -> list[Collapse]:
    """Return the silos that are far worse in one setting than in others, beyond chance, the worst first."""
    if not found or not found[0].metric.share:
        return []
    metric, told = found[0].metric, list[Collapse]()
    sign, ends = 1 if metric.higher_is_better else -1, [(one, _means(one)) for one in found]
    for one, of in ends:
        for name, mean in of.items():
            others = [other[name] for _, other in ends if other is not of and name in other]
            if not others or sign * (usual := median(others)) - sign * mean < DEEP:
                continue
            rows = held[name].out if name in held and chance.counts(metric) else 0
            if rows and not chance.differ(mean, usual, rows):
                continue
            each = [(_since(run, name, (mean + usual) / 2), run) for run in one.group.runs]
            at, run = min(each, key=lambda of: of[0])
            what = f"collapses with {one.name} from round {at:,} on" if at > 1 else f"is bad with {one.name}"
            said = f"silo {name} {what}: {metric.write(mean)}, and {metric.write(usual)} with the others. "
            said += f"Why: {_why(run, name, at)}"
            told.append(Collapse(sign * (mean - usual), name, one.name, run, said))
    return sorted(told, key=lambda of: of.by)


def warnings_of(found: Sequence[Collapse]) -> list[str]:
    """Return what a comparison warns of: why, and where it stands what to do."""
    more = len(found) - MOST_TOLD
    said = [f"{of.said}. To do: see {NEXT}" for of in found[:MOST_TOLD]]
    return [*said, *([f"{more:,} more silos like these are in 'Which silos gain?'"] if more > 0 else [])]


def to_do(found: Sequence[Collapse]) -> list[Advice]:
    """Return what to do about the silos that warnings name."""
    if not found:
        return []
    told = [f"{one.setting} for silo {one.silo}" for one in found[:MOST_TOLD]]
    runs = dict.fromkeys(str(one.run.run) for one in found[:MOST_TOLD])
    page = "its page says when it fell" if len(told) == 1 else "pages of these runs say when each fell"
    said = f"Choose another setting than {', than '.join(told)}; {page}:"
    return [(said, "\n".join(command_of("report", run) for run in runs))]


def _means(one: Standing) -> dict[str, float]:
    """Return each silo's mean over seeds, of silos that all runs have scored."""
    each = [values(run) for run in one.group.runs]
    return {name: fmean(of[name] for of in each) for name in each[0] if all(name in of for of in each)}


def _why(run: Summary, silo: str, at: int) -> str:
    """Say what is known of why a silo is bad in a run from a round on."""
    names = Names(read_environment(run.run).get("silos", ()))
    out = next((rounds for who, rounds, _ in missed(run.records) if names[who] == silo), [])
    drawn = [of for r in run.records if (of := asked(r))]
    if out:
        return f"{len(out):,} rounds left it out ({units.spans(out)})"
    if drawn and not any(NAMES[one] == silo for of in drawn for one in of):
        return "no round asked it to train"
    if silo in suspected(run, names):
        return "its updates are suspected there, and weigh little"
    if at in [nth for nth, _ in falls(run)]:
        return f"the whole model falls in round {at:,}"
    return f"{UNKNOWN}, and no round left it out"


def _since(run: Summary, name: str, level: float) -> int:
    """Return the first round from which on a silo is never better than a level."""
    metric, at = run.metric, run.rounds
    for record in reversed(run.records):
        told = {NAMES[silo]: of for silo, of in (record.get("silos") or {}).items()}
        value = number(told.get(name) or {}, metric.name)
        if value is not None and metric.reaches(value, level):
            break
        at = record["round"] if value is not None else at
    return at
