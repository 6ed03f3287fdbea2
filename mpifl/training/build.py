"""Builds a job on every rank: the model, the rank's silos, and the server's state."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch
from pydantic import TypeAdapter, ValidationError

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError, Names, RankLost, allow_many_open_files, lock
from mpifl.data.shards import AnySpec, FederationSpec, VerticalSpec, open_shard, parse_any, read_any
from mpifl.exchange import Federation
from mpifl.exchange.server_side import Knowledge, place
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.report.observers import check_tracking
from mpifl.run.folder import check_run
from mpifl.run.job import Job
from mpifl.silo import learnable
from mpifl.sums import MakesAggregator
from mpifl.training.beforehand import (
    Given,
    augment_of,
    check_layout,
    check_told,
    check_wings,
    models_of,
    plan_wings,
    resolved,
    source_of,
    splits_of,
    told_of,
)
from mpifl.training.devices import lanes_of, settle_kernels
from mpifl.training.draw_cohort import check_clock
from mpifl.training.hosting import batches_of, server_of, settled_device, successor, worker_of
from mpifl.training.rank_agreement import agree, agree_on
from mpifl.training.wing import Changed, Wing, WingsOf, core_alone, of_one, told_once
from mpifl.transforms import Clipping, RunningStatistics, Transform
from mpifl.wire import Transport

Plan: TypeAlias = dict[str, str]
"""The message of rank 0 to all ranks: the job, the federation, the run folder, and the wings' own texts."""
_TOLD = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class Built:
    """A training, built on one rank.

    Attributes:
        server: The server's state; at a worker, the parts that it needs to take the server's place.
        exchange: Sends requests to the silos; at a worker, answers them.
        wings: The wings that the job asks for.
    """

    job: Job
    spec: AnySpec
    server: Server
    exchange: Federation
    wings: Sequence[Wing]


def build(
    job: Given,
    out: Path,
    overrides: tuple[str, ...],
    resume: bool,
    transport: Transport,
    force: bool = False,
    wings_of: WingsOf = core_alone,
) -> Built:
    """Build a training. All ranks of the world call this together, and rank 0's arguments count.

    Raises:
        InputError: on all ranks if anything is wrong on any of them, with the line to show.
    """
    plan = functools.partial(_plan, job, out, overrides, resume, force, wings_of)
    return build_planned(job, plan, transport, wings_of)


def build_planned(
    given: Given, planned: Callable[[], Plan], transport: Transport, wings_of: WingsOf
) -> Built:
    """Build a training of a plan that rank 0 makes; see `build`.

    Args:
        given: What the plan was made of, for the names of errors.
        planned: Makes the plan; called at rank 0.
    """
    allow_many_open_files()
    before, prepared = transport.agreed, None
    while transport.agreed == before:
        try:
            prepared = None
            prepared = _prepared(given, planned, transport, wings_of)
            agree_on(transport, prepared.problem, prepared.alignments, prepared.names)
        except RankLost:
            ranks = transport.recover()
            if transport.agreed > before and prepared is not None:  # other ranks already know that all agreed
                prepared.renumber(ranks, transport)
    assert prepared is not None
    assert prepared.built is not None
    return Built(prepared.job, prepared.spec, *prepared.built, prepared.wings)


@dataclass
class _Prepared:
    """A rank's build of a job, or its problem."""

    job: Job
    spec: AnySpec
    built: tuple[Server, Federation] | None
    wings: Sequence[Wing] = ()
    problem: str = ""
    alignments: Mapping[int, str] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """The silos' names."""
        return Names([entry.name for entry in self.spec.silos])

    def renumber(self, ranks: Mapping[int, int], transport: Transport) -> None:
        """Keep what was built before a death, with new rank numbers; this rank may have become the server."""
        assert self.built is not None
        server, federation = self.built
        federation.renumber(ranks)
        if transport.is_server and 0 not in ranks:
            self.built = successor(self.job, self.spec, server), federation


def _prepared(
    given: Given, planned: Callable[[], Plan], transport: Transport, wings_of: WingsOf
) -> _Prepared:
    plan = agree(transport, planned)
    job = Job.model_validate_json(plan["job"])
    spec = parse_any(plan["spec"])
    built, wings, problem, tags = None, list[Wing](), "", dict[int, str]()
    try:
        check_told(job, spec)
        wings += wings_of(job)
        built = _assembled(job, spec, Path(plan["out"]), transport, plan, wings)
        tags = told_once((), wings, lambda wing: wing.alignments(spec, transport), "the alignment of silo")
    except InputError as error:
        problem = told_of(error, given)
    return _Prepared(job, spec, built, wings, problem, tags)


def _plan(
    given: Given, out: Path, overrides: tuple[str, ...], resume: bool, force: bool, wings_of: WingsOf
) -> Plan:
    """Return, on rank 0, the facts that all ranks need."""
    job = resolved(given, overrides)
    try:
        settle_kernels(job)  # a user's own rule is tried below, which computes
        check_tracking(job)
        spec = read_any(Path(job.shards))
        job.evaluate.check(splits_of(spec))
        check_clock(job, spec)
    except InputError as error:
        raise InputError(told_of(error, given)) from None
    check_layout(job, spec, source_of(given))
    wings = check_wings(job, spec, source_of(given), wings_of)
    lock.check(out)
    check_run(out, job, resume, force, spec)
    plan_wings(job, spec, source_of(given), wings)
    return plan_of(job, spec, out, wings)


def plan_of(job: Job, spec: AnySpec, out: Path, wings: Sequence[Wing]) -> Plan:
    """Return the plan of a training, with the texts of the wings that all ranks have."""
    told = {wing.name: wing.told(spec, out) for wing in wings if not wing.of_rank}
    plan = {"job": job.model_dump_json(exclude_none=True), "spec": spec.model_dump_json(), "out": str(out)}
    return {**plan, "wings": json.dumps(told)}


def _assembled(
    job: Job, spec: AnySpec, run: Path, transport: Transport, plan: Plan, wings: Sequence[Wing]
) -> tuple[Server, Federation]:
    """Build what a rank needs: by a wing, if one builds the whole training, else by the core."""
    transport.server_hosts = isinstance(spec, VerticalSpec) or any(wing.at_server for wing in wings)
    changed = functools.partial(_changed, transport, _told(plan, wings, transport.rank), wings)
    if own := of_one(wings, lambda wing: wing.assembled(spec, run, transport, changed), "the whole training"):
        return own
    assert isinstance(spec, FederationSpec)
    return _assemble(job, spec, run, transport, changed, wings)


def _told(plan: Plan, wings: Sequence[Wing], rank: int) -> dict[str, str]:
    """Return the text that rank 0 sends to each wing. Raise InputError if the texts are not of this version,
    or this rank has other wings."""
    try:
        told = _TOLD.validate_json(plan.get("wings", ""))
    except ValidationError:
        what = "rank 0 says what no rank of this version says; start all with the same"
        raise InputError(what) from None
    if other := told.keys() ^ {wing.name for wing in wings if not wing.of_rank}:
        with_, without = (0, rank) if min(other) in told else (rank, 0)
        what = f"the wing '{min(other)}' takes part at rank {with_} and not at rank {without}"
        raise InputError(f"{what}; start all with the same version")
    return told


def _changed(
    transport: Transport,
    told: Mapping[str, str],
    wings: Sequence[Wing],
    context: WorkerContext,
    placed: Mapping[int, Sequence[int]],
) -> WorkerContext:
    """Return a rank's context after all wings have changed it, one after another."""
    for wing in wings:
        context = wing.context(context, placed, transport, told.get(wing.name, ""))
    return context


def _assemble(
    job: Job, spec: FederationSpec, run: Path, transport: Transport, changed: Changed, wings: Sequence[Wing]
) -> tuple[Server, Federation]:
    """Build this rank's models, its worker, and its server's state."""
    device = settled_device(job, spec, transport)
    folder = Path(job.shards)
    algorithm = job.build_algorithm().for_federation(spec)
    first = transport.place()[0] == 0
    flat = models_of(job, spec, algorithm, device, is_reporter=first, tries=first)
    algorithm.task.metrics()  # import the metrics' library now, not in the first evaluation
    rule, transforms = _changing(job, algorithm, spec, run, wings)
    public = batches_of(folder, spec, spec.public, "public", device)
    placed = of_one(wings, lambda wing: wing.placed(spec, transport), "the ranks of silos")
    placed = _placed(job, spec, transport) if placed is None else placed
    context = WorkerContext(
        open=lambda silo: learnable(open_shard(folder, spec.silos[silo], spec), algorithm.task),
        run=run,
        spec=spec,
        algorithm=algorithm,
        transforms=transforms,
        seed=job.seed,
        weights=job.cohort.weights,
        models=flat,
        public=public,
        select=job.cohort.drawn_by,
        rule=rule,
        evaluation_batch=job.evaluate.batch_size,
        augment=augment_of(job, spec),
        losses_every=job.tracking.step_losses,
    )
    context = changed(context, placed)
    worker = worker_of(context, job, placed.get(transport.rank, []), transport, wings)
    test = spec.test if transport.is_server else None
    server = server_of(
        job, spec, algorithm, flat, test, public=public, lanes=lanes_of(job.threads, transport, device)
    )
    return server, _federation(job, context, worker, transport, placed, device)


def _federation(
    job: Job,
    context: WorkerContext,
    worker: Worker,
    transport: Transport,
    placed: Mapping[int, Sequence[int]],
    device: torch.device,
) -> Federation:
    """Return the federation, given a rank's context and worker."""
    spec = context.spec
    assert isinstance(spec, FederationSpec)
    return Federation(
        transport,
        worker,
        context.transforms,
        placed,
        quorum=job.cohort.quorum,
        device=device if transport.rank in transport.workers else torch.device("cpu"),
        knowledge=_knowledge(job, spec, context),
        deadline=job.cohort.deadline,
        names=Names([entry.name for entry in spec.silos]),
        timed=context.rule is None,
    )


def _placed(job: Job, spec: FederationSpec, transport: Transport) -> dict[int, list[int]]:
    job.cohort.check(len(spec.silos))
    return place([entry.examples["train"] for entry in spec.silos], transport.workers)


def _knowledge(job: Job, spec: FederationSpec, context: WorkerContext) -> Knowledge:
    examples, cohort = [entry.examples for entry in spec.silos], job.cohort
    total = cohort.total([one["train"] for one in examples])
    budgets = job.privacy is not None and job.privacy.level == "example"
    return Knowledge(context.algorithm, examples, cohort.weights, total, context.averaging, budgets)


def _changing(
    job: Job, algorithm: Algorithm, spec: FederationSpec, run: Path, wings: Sequence[Wing]
) -> tuple[MakesAggregator | None, list[Transform]]:
    """Return the rule that combines updates (None is the mean), and the transforms in the order of requests.

    Updates pass the transforms in reverse order. So an attack changes an update after it is clipped, and
    nothing changes an update after its codec. The first wing's transforms are the outermost.
    """
    clip, first, last, rule = job.aggregation.clip, list[Transform](), list[Transform](), None
    for wing in wings:
        first += wing.transforms(spec, algorithm, run)
        last = wing.last_transforms(spec, algorithm, run) + last
        rule = wing.aggregated(rule, algorithm)
    return rule, [*first, RunningStatistics(), *([Clipping(clip)] if clip else []), *last]
