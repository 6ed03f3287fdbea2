"""What to do after a run, the most important first: a sentence, and the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import Names
from mpifl.common.pages import NEXT, Block, Figure, Fold, HowTo, Said
from mpifl.data.shards import FederationSpec
from mpifl.report.findings.diverged import Event, below_guessing, far_worse, some_not_finite
from mpifl.report.findings.fall_events import MOST_NAMED, UNKNOWN, rises
from mpifl.report.findings.left_out import suspected, together
from mpifl.report.findings.silo_gains import known_to_help
from mpifl.report.judging import NAMES, NONE_HELD_OUT, scores, why_none
from mpifl.report.observers import best_round
from mpifl.report.runs import (
    Held,
    Summary,
    again,
    chance,
    command_of,
    continued,
    free,
    lent,
    member,
    shards_of,
    spec_of,
    trained,
    trains_alone,
    with_model,
)
from mpifl.run.folder import number, read_metrics
from mpifl.run.job import OF_SUMS

Advice = tuple[str, str]
"""What to do, and the command that does it; "" of none."""
MOST, MOST_PROBLEMS = 5, 2
"""Steps of a list, and those of them that are on what went wrong."""
OF_SPLIT = (
    "Each silo keeps a part of a split network, so all silos take part in each command. The commands are for "
    "one user who has all shards. Where each site has its own shard, all sites start the same command "
    "together under mpirun, each in its own folder, as for the training."
)
OF_MASKS = (
    "The commands are for one user who has all shards and keys. Where each site has a folder of its own, all "
    "sites start the same command together under mpirun, as for the training."
)
OF_SITES = (
    "To tell whether it helped, let each site train a model on its own rows alone, and score it on the same "
    "test rows."
)
OF_HOLDER = (
    "To tell whether it helped, let the silo with the labels train a model on its own columns alone, with "
    "the same training and test rows."
)
OF_OWNER = "The owner of a silo scores this model on its own test rows; SHARD is its folder or silo_N.h5:"
ALONE = "How a silo trains a model alone"
OF_ALONE = "To tell whether it helped, the owner of a silo trains a model alone: the steps are folded below."
IMPORTS = (
    "Import the rows once more, as silo 0 of a new folder OWN. KIND, ROWS, SHARE, SEED and NAME are those of "
    "the import for the training, as are its other options:"
)
HIDE = (
    "Hide the labels in the next training: this hides norms of gradients, without a guarantee; [split] "
    "protect = 'label-dp' with an epsilon has one"
)
NO_ROWS = "To tell whether it helped, partition the data anew with --test, and train again."


def next_of_run(
    summary: Summary,
    names: Names,
    held: Mapping[str, Held],
    fallen: Sequence[Event] = (),
    *,
    going: bool = False,
    told: bool = False,
) -> list[Advice]:
    """Return what to do after a run, or while it is `going`; nothing of exact sums.

    Args:
        held: What each silo holds, as far as that is known.
        fallen: The falls of single silos.
        told: Whether it is known already what silos reach alone.
    """
    if summary.job.get("algorithm", {}).get("name") in OF_SUMS or lent(summary.run):
        return []
    if summary.diverged:
        return _possible(_diverged(summary, names), summary)
    used = [] if going or not _all_here(summary) else _used(summary)
    problems = [*_suspected(summary, names), *_labels(summary), *_late(summary, names)]
    problems += [*(_unlearnt(summary) or _fell(fallen)), *_below(summary, held), *_past_best(summary)]
    helped = [] if told else how_to_tell(summary)
    unfinished = used[:1] if not summary.finished else []
    steps = [*unfinished, *_owner(summary), *problems[:MOST_PROBLEMS], *helped]
    return _possible([*steps, *(used if summary.finished else [])][:MOST], summary)


def next_figure(steps: Sequence[Advice], summary: Summary | None = None) -> Figure | None:
    """Return the section of a page with these steps; None of none."""
    said = OF_SPLIT if summary and "split" in summary.job else ""
    said = OF_MASKS if summary and _masked(summary) else said
    more: list[Block] = [Said(said)] if said else []
    if summary and any(said == OF_ALONE for said, _ in steps):
        more.append(Fold(ALONE, [HowTo(_alone(summary))]))
    return Figure(NEXT, "", [HowTo(steps), *more], wide=True) if steps else None


def how_to_tell(summary: Summary) -> list[Advice]:
    """Return what shows whether a run helped a silo; nothing where that is known, of exact sums, and of silos
    that train alone."""
    algorithm, run, job = summary.job.get("algorithm", {}), summary.run, summary.job
    if algorithm.get("name") in OF_SUMS or trains_alone(job) or known_to_help(summary) or lent(summary.run):
        return []
    if "split" in job:
        return [(OF_HOLDER, "")]
    if len(getattr(spec_of(run, job), "silos", (0, 1))) < 2:
        return []  # it is alone
    if _none_held_out(summary):
        return [(NO_ROWS, "")]
    if _owner(summary):
        return [(OF_ALONE, "")]
    if not _all_here(summary):
        return [(OF_SITES, "")]
    if summary.own_models or "personal" in algorithm:
        alone = Path(f"{run}-alone")
        both = command_of("report", str(run), "--alone", str(alone))
        if read_metrics(alone):
            return [(f"To tell whether it helped, write this page anew with {alone}:", both)]
        train = trained("train", run, job, 'algorithm={name="ditto",lambda=0}', out=free(alone))
        return [("To tell whether it helped, train each silo alone, and write this page anew with both:",
                 f"{train}\n{both}")]  # fmt: skip
    baseline = Path(f"{run}-baseline")
    if (page := baseline / "baseline.html").is_file():
        return [(f"Whether it helped stands in {page}.", "")]
    said = "To tell whether it helped, train each silo alone, and one model on all rows:"
    return [(said, trained("baseline", run, job, out=free(baseline)))]


def lower_rate(run: Path, job: Mapping[str, Any], said: str = "Train with") -> list[Advice]:
    """Return the step that trains with a tenth of the learning rate, if the job has one."""
    lr = number(job.get("local") or {}, "lr")
    return [again(f"{said} a tenth of the learning rate", run, job, "local.lr", lr / 10)] if lr else []


def _all_here(summary: Summary) -> bool:
    """Return whether one user may start all ranks: not where sites have taken part with their own data."""
    return not any("sites" in one for one in summary.records)


def _masked(summary: Summary) -> bool:
    """Return whether each worker has masked what it sent, with keys of its site."""
    table = summary.job.get("security")
    return isinstance(table, Mapping) and bool(table.get("masks", True))


def _possible(steps: Sequence[Advice], summary: Summary) -> list[Advice]:
    """Return the steps, in words alone where nobody here could start a training."""
    if _all_here(summary):
        return [*steps]
    return [
        (f"{said[:-1]}.", "") if asked.startswith("mpifl train") else (said, asked) for said, asked in steps
    ]


def _none_held_out(summary: Summary) -> bool:
    """Return whether it is known that no silo holds out test rows."""
    if isinstance(spec := spec_of(summary.run, summary.job), FederationSpec):
        return not any(entry.examples.get("test") for entry in spec.silos)
    return bool(summary.main) and not scores(summary) and why_none(summary.job, scored=True) == NONE_HELD_OUT


def _diverged(summary: Summary, names: Names) -> list[Advice]:
    """Return what finds out why a run diverged."""
    said = "Where the updates of other silos stay finite, compare the features of all:"
    shards = shards_of(summary.run, summary.job)
    compare = said, command_of("inspect", shards, "--features", program="data-prep")
    return [*lower_rate(summary.run, summary.job), *([compare] if some_not_finite(summary, names) else [])]


def _used(summary: Summary) -> list[Advice]:
    """Return the steps that continue a training, and those that take its model."""
    run, job, found = summary.run, summary.job, list[Advice]()
    if not summary.finished and "privacy" not in job:
        found.append(("Continue the training:", continued(run, job)))
    elif not summary.stopped and "privacy" not in job and not member(run) and rises(summary):
        longer = continued(run, job, f"rounds={2 * summary.rounds}")
        found.append(("The last round is the best one. Train for as many rounds again:", longer))
    each = [*with_model(run, job, summary.records)] if summary.finished else []
    said = [(what.partition(" "), asked) for asked, what in reversed(each)]
    return [
        *found,
        *((f"{does.capitalize().removesuffix('s')} {what}:", asked) for (does, _, what), asked in said),
    ]


def _owner(summary: Summary) -> list[Advice]:
    """Return how a silo's owner scores a model whose scores by silo are withheld."""
    hidden = any(name in summary.job for name in ("privacy", "security"))
    asked = command_of("evaluate", str(summary.run), "--data", "SHARD")
    return [(OF_OWNER, asked)] if hidden and not _none_held_out(summary) else []


def _alone(summary: Summary) -> list[Advice]:
    """Return how a silo's owner trains a model on its own rows alone."""
    hidden = " and ".join(f"[{name}]" for name in ("privacy", "security") if name in summary.job)
    spec = shlex.quote(str(Path(shards_of(summary.run, summary.job)) / "federation.json"))
    imports = f"data-prep import KIND --data ROWS --spec {spec} --silo 0 --name NAME"
    job = str(summary.run / "job.toml")
    return [
        (IMPORTS, f"{imports} --test SHARE --seed SEED --out OWN\ndata-prep assemble OWN"),
        (f"Copy the job file, and delete {hidden} in the copy:", shlex.join(["cp", job, "alone.toml"])),
        ("Train a model alone, and score it on the same test rows:",
         "mpifl train alone.toml --set shards=OWN --out alone\nmpifl evaluate alone --data OWN"),
    ]  # fmt: skip


def _suspected(summary: Summary, names: Names) -> list[Advice]:
    """Return what suspected silos are to do."""
    if not (who := suspected(summary, names)):
        return []
    said = f"{NAMES.listed(who, MOST_NAMED)} {'is' if len(who) == 1 else 'are'} suspected of wrong updates"
    return [(f"{said[:1].upper()}{said[1:]}: check rows, labels and units there.", "")]


def _labels(summary: Summary) -> list[Advice]:
    """Return how labels that a split network shows are hidden."""
    split = summary.job.get("split")
    shown = isinstance(split, dict) and split.get("protect", "none") == "none"
    leaks = any(number(record, "norm_leak_auc") is not None for record in summary.records)
    asked = again(HIDE, summary.run, summary.job, "split.protect", "max-norm")
    return [asked] if shown and leaks else []


def _unlearnt(summary: Summary) -> list[Advice]:
    """Return what to try where a model has not learned."""
    shown = any(one.startswith(chance.NO_BETTER) for one in summary.remarks)
    if not shown and not any(chance.grown(summary, key) for key in chance.LOSSES):
        return []
    return lower_rate(
        summary.run, summary.job, "The model has not learned: check labels and features, and try"
    )


def _below(summary: Summary, held: Mapping[str, Held]) -> list[Advice]:
    """Return what silos are to do at which the model is below guessing."""
    who = [name for name, *_ in below_guessing(summary, held)]
    said = "Check labels and units at {}: the model is worse there than always the most common class."
    return [(said.format(NAMES.listed(who, MOST_NAMED)), "")] if who else []


def _past_best(summary: Summary) -> list[Advice]:
    """Return how a training ends at its best round, where the last one is far worse."""
    best = best_round(summary.records, summary.metric)
    if not best or not far_worse(summary):
        return []
    return [again(f"End at round {best[0]:,}, the best one", summary.run, summary.job, "rounds", best[0])]


def _late(summary: Summary, names: Names) -> list[Advice]:
    """Return how the silos that were late most often would count; nothing where no key tells."""
    each = [one for one in together(summary.records) if "late" in one[2] or "no answer within" in one[2]]
    if not each or not (way := _in_time(summary, each[0][2])):
        return []
    silos, at, _ = each[0]
    many = f"{len(at):,} rounds" if len(at) > 1 else f"round {at[0]:,}"
    who = names.listed([names[silo] for silo in silos], MOST_NAMED)
    said, key, value = way
    said = f"{who[:1].upper()}{who[1:]} came too late in {many}: {said}"
    return [again(said, summary.run, summary.job, key, value)]


def _in_time(summary: Summary, reason: str) -> tuple[str, str, float | str] | None:
    """Return what would have a late silo count, in words, its key and its value."""
    job = summary.job
    if "letter" in reason and job.get("cohort", {}).get("late") != "next":
        return "let it count in the next round", "cohort.late", "next"
    for table in ("cohort", "clock"):
        if (now := number(job.get(table) or {}, "deadline")) is not None:
            return f"double [{table}] deadline, which is {now:g}", f"{table}.deadline", 2 * now
    for key in ("steps", "epochs"):
        if (now := number(job.get("local") or {}, key)) is not None and now > 1:
            return f"halve [local] {key}, which is {now:g}", f"local.{key}", int(now // 2)
    return None


def _fell(fallen: Sequence[Event]) -> list[Advice]:
    """Return what a silo is to do that fell for no known cause."""
    each = ((of.round, of.what) for of in fallen if UNKNOWN in of.reason)
    said = "No cause is known: {1} in round {0:,}. Have the silo check its rows, labels and units."
    return [(said.format(*of), "") for of in each][:1]
