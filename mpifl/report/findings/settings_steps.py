"""What to do after a comparison, the most important first: a sentence, and the commands that do it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from mpifl.report.findings.run_steps import MOST, Advice, how_to_tell
from mpifl.report.runs import (
    SERVER,
    Rival,
    Standing,
    chance,
    command_of,
    free,
    member,
    of_several_shards,
    rivals,
    trained,
    trains_alone,
    units,
    with_model,
)

MORE_SEEDS, MOST_AGAIN = 3, 3
"""Seeds that are advised beyond those that there are, and settings that get them."""
BYTES = ("bytes_sent", "bytes_received")
NONE_LEARNT = "No setting is better than guessing: check labels, features and the learning rate."
OTHER_ROWS = "; more test rows would tell whether it is best on others, too"


def next_of_settings(found: Sequence[Standing], bad: Sequence[Advice] = ()) -> list[Advice]:
    """Return what to do after a comparison. The best setting comes first in `found`.

    Args:
        bad: What to do about silos that are far worse in one setting than in others.
    """
    if not found:
        return []
    first, alone = found[0], any(trains_alone(one.group.runs[0].job) for one in found)
    if _guesses(first):
        return [*bad, (NONE_LEARNT, "")]
    run, known = first.group.runs[0], alone or _of_baseline(found)
    steps = [] if known else how_to_tell(run)
    helped = [(f"{said[:-1]}, by the job of {first.name}{said[-1]}" if asked else said, asked)
              for said, asked in steps]  # fmt: skip
    if len(found) < 2 or (first.judged and first.judged.apart):
        return [*bad, *helped]
    used = []
    if (run.run / "model.safetensors").exists():
        seed = f", with seed {run.job.get('seed')}, not chosen by its figure" if len(first.ends) > 1 else ""
        each = [*with_model(run.run, run.job, run.records)]
        used = [(f"Predict by the model of {first.name}{seed}:", asked) for asked, _ in each[-1:]]
    return [_which(found), *bad, *_by_silos(found), *helped, *used][:MOST]


def _which(found: Sequence[Standing]) -> Advice:
    """Say which setting to take, or which need more seeds, and the commands for these."""
    first, others = found[0], rivals(found)
    near = [first, *(one.standing for one in others if not _worse(one) and not _guesses(one.standing))]
    turns = any(one.may_turn for one in others)
    name = f"{first.name} ({first.group.runs[0].run})" if first.name.endswith("…") else first.name
    take, more = f"Take {name}{' for rows like these' * turns}", "\n".join(_more_seeds(near, found))
    if len(near) < 2:
        rows = "; the others are worse on these rows, and one seed cannot show more"
        one = any(other.test is None for other in others)
        return f"{take}{OTHER_ROWS if turns else rows * one}.", ""
    if len(first.ends) > 1 and all(len(one.ends) < 2 for one in near[1:]):
        few = units.listed([one.name for one in near[1:]])
        also = f"; to tell whether it is better than {few}, run more seeds of both, and compare all again:"
        return f"{take}{also if more else OTHER_ROWS}", more
    which = units.listed([one.name for one in near]) if len(near) <= MOST_AGAIN else f"these {len(near):,}"
    of = f"the first {MOST_AGAIN}" if len(near) > MOST_AGAIN else "each"
    again = f", or run more seeds of {of}, and compare all again:" if more else "."
    return f"Take the simplest of {which}{_cheapest(near)}{again}", more


def _guesses(one: Standing) -> bool:
    """Return whether a run of a setting is known to be no better than guessing."""
    return any(remark.startswith(chance.NO_BETTER) for run in one.group.runs for remark in run.remarks)


def _of_baseline(found: Sequence[Standing]) -> bool:
    """Return whether a run belongs to a baseline, whose page tells whether it helped."""
    return any(member(run.run) == "baseline" for one in found for run in one.group.runs)


def _worse(one: Rival) -> bool:
    """Return whether a setting is behind the first by more than chance makes of seeds, or of rows."""
    return one.seen or (one.rows is not None and one.rows.low > 0)


def _cheapest(near: Sequence[Standing]) -> str:
    """Say which of some settings sends least, where they differ in that by as many rounds."""
    if len({run.rounds for one in near for run in one.group.runs}) > 1:
        return ""
    sums = sorted((fmean(each), one.name) for one in near if (each := one.sums(None, *BYTES)))
    if not sums or sums[0][0] == sums[-1][0]:
        return ""
    return f", or {sums[0][1]}, which sends least ({units.size(sums[0][0])})"


def _more_seeds(near: Sequence[Standing], found: Sequence[Standing]) -> list[str]:
    """Return commands that train settings with more seeds, and the one that compares all `found` again.

    There are none where there is one setting, where seeds have shards of their own, or of a baseline's runs.
    """
    used = {seed for one in near for seed in one.seeds if isinstance(seed, int)}
    runs = [run.run for each in found for run in each.group.runs]
    if len(near) < 2 or any(of_several_shards(one.group) for one in near) or not used or _of_baseline(found):
        return []
    every = sorted(used | {max(used) + nth for nth in range(1, MORE_SEEDS + 1)})
    asked, seen = list[str](), {str(_whole(run, runs)) for run in runs}
    for one in islice(near, MOST_AGAIN):
        run, seeds = one.group.runs[0], ",".join(str(seed) for seed in every if seed not in one.seeds)
        out = free(Path(f"{run.run}-seeds"))
        asked.append(trained("sweep", run.run, run.job, f"seed={seeds}", out=out))
        seen.add(str(out))
    return [*asked, command_of("compare", *sorted(seen))]


def _whole(run: Path, runs: Sequence[Path]) -> Path:
    """Return the folder of a run's neighbours, if these are all among some runs; else the run."""
    beside = {found.parent for found in run.parent.glob("*/metrics.jsonl")}
    return run.parent if beside <= {*runs} else run


def _by_silos(found: Sequence[Standing]) -> list[Advice]:
    """Say which setting has the best mean over silos, where another one is first on the server's test set."""
    judged, metric = found[0].judged, found[0].metric
    if judged is None or judged.rows != SERVER:
        return []
    means = {one.name: fmean(each) for one in found if (each := one.of_silos("mean"))}
    top, own = metric.best(means.values(), default=None), means.get(found[0].name)
    if top is None or own is None or metric.write(top) == metric.write(own):
        return []
    best = next(name for name, mean in means.items() if mean == top)
    said = f"For the silos' own rows look at {best}, too: the mean over silos is {metric.write(top)}, and "
    return [(f"{said}{metric.write(own)} with {found[0].name}.", "")]
