"""What to do after a comparison, the most important first: a sentence, and the commands that do it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import fmean

from mpifl.report.findings.next_of_run import MOST, Advice, how_to_tell
from mpifl.report.runs import (
    SERVER,
    Standing,
    command_of,
    of_several_shards,
    rivals,
    trains_alone,
    units,
    with_model,
)

MORE_SEEDS, MOST_AGAIN = 3, 3
"""Seeds that are advised beyond those that there are, and settings that get them."""
BYTES = ("bytes_sent", "bytes_received")
OTHER_ROWS = "; more test rows would tell whether it is best on others, too"


def next_of_settings(found: Sequence[Standing], bad: Sequence[Advice] = ()) -> list[Advice]:
    """Return what to do after a comparison. The best setting comes first in `found`.

    Args:
        bad: What to do about silos that are far worse in one setting than in others.
    """
    if not found:
        return []
    first, alone = found[0], any(trains_alone(one.group.runs[0].job) for one in found)
    run, steps = first.group.runs[0], [] if alone else how_to_tell(first.group.runs[0])
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
    near = [first, *(one.standing for one in others if not one.seen)]
    turns = any(one.may_turn for one in others)
    take, more = f"Take {first.name}{' for rows like these' * turns}", "\n".join(_more_seeds(near))
    if len(near) < 2:
        return f"{take}{OTHER_ROWS * turns}.", ""
    if len(first.ends) > 1 and all(len(one.ends) < 2 for one in near[1:]):
        few = units.listed([one.name for one in near[1:]])
        also = f"; to tell whether it is better than {few}, run more seeds of both, and compare all again:"
        return f"{take}{also if more else OTHER_ROWS}", more
    which = units.listed([one.name for one in near]) if len(near) <= MOST_AGAIN else f"these {len(near):,}"
    of = f"the first {MOST_AGAIN}" if len(near) > MOST_AGAIN else "each"
    again = f", or run more seeds of {of}, and compare all again:" if more else "."
    return f"Take the simplest of {which}{_cheapest(near)}{again}", more


def _cheapest(near: Sequence[Standing]) -> str:
    """Say which of some settings sends least, where they differ in that."""
    sums = sorted((fmean(each), one.name) for one in near if (each := one.sums(None, *BYTES)))
    if not sums or sums[0][0] == sums[-1][0]:
        return ""
    return f", or {sums[0][1]}, which sends least ({units.size(sums[0][0])})"


def _more_seeds(near: Sequence[Standing]) -> list[str]:
    """Return commands that train settings with more seeds, and with those that others have; none where there
    is one setting, or seeds have shards of their own."""
    used = {seed for one in near for seed in one.seeds if isinstance(seed, int)}
    if len(near) < 2 or any(of_several_shards(one.group) for one in near) or not used:
        return []
    every = sorted(used | {max(used) + nth for nth in range(1, MORE_SEEDS + 1)})
    found, seen = list[str](), {str(one.run.parent) for each in near for one in each.group.runs}
    for one in islice(near, MOST_AGAIN):
        run, seeds = one.group.runs[0].run, ",".join(str(seed) for seed in every if seed not in one.seeds)
        out = f"{run}-seeds"
        found.append(command_of("sweep", f"{run}/job.toml", "--set", f"seed={seeds}", "--out", out))
        seen.add(out)
    return [*found, command_of("compare", *sorted(seen))]


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
