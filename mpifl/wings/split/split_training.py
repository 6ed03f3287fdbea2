"""Build, on every rank, a training over silos that hold columns of the same rows.

Rank 0 belongs to the label holder. It has the top, and hosts the silo with the label holder's own columns.
The other ranks host the other silos.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm, Lead
from mpifl.common import InputError, Names
from mpifl.data.batches import Batches
from mpifl.data.shards import Shard, Split, VerticalSpec, alignment_of, open_vertical
from mpifl.exchange import Federation
from mpifl.exchange.server_side import Knowledge, place
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.run.job import Job, check_vertical_data
from mpifl.silo import learnable
from mpifl.silo.parameters import FlatModel
from mpifl.training import BOTTOMS, Changed, about_rank, rank_device, settle
from mpifl.wings.privacy import own_secret
from mpifl.wings.site import wing as own_rules
from mpifl.wings.split.activation_codecs import ActivationCodecs
from mpifl.wings.split.column_silo import Bottom, ColumnSilo
from mpifl.wings.split.dialogue import Dialogue, DialogueLead
from mpifl.wings.split.label_gate import Gate, randomised
from mpifl.wings.split.split_clients import SplitClient, client_of, follow
from mpifl.wings.split.split_messages import SplitMessages
from mpifl.wings.split.split_server import SplitServer
from mpifl.wings.split.top_and_bottoms import check_part, checked_bottom, load_part, top_of
from mpifl.wire import AnyReply, Converse, Transport
from mpifl.wire.launching import survivable


def assemble_vertical(
    job: Job,
    spec: VerticalSpec,
    run: Path,
    transport: Transport,
    changed: Changed | None = None,
    *,
    trained: str | None = None,
) -> tuple[SplitServer, Federation]:
    """Build the server and the federation of this rank, with its parts of the network and its silos.

    Args:
        spec: The shard folder's `federation.json`.
        run: The run folder.
        changed: Lets wings change the context of this rank's silos; by default only the site wing does.
        trained: The sha256 of a trained top: the parts are loaded from the run folder. None begins anew.

    Raises:
        InputError: the job does not fit such silos, or a shard is wrong.
    """
    if survivable():  # a rank could take over another's silos, and read their columns
        what = "a party whose columns another rank may read is not a party"
        raise InputError(f"--survive: {what}; leave it out, and continue with --resume after a death")
    algorithm = job.build_algorithm().for_federation(spec)
    check_vertical_data(job, algorithm, spec)
    top = _top(job, spec, algorithm, run, transport, trained)
    algorithm.task.metrics()  # imports the metrics' library now, not in the first evaluation
    placed = placement(spec, transport)
    silos = placed.get(transport.rank, [])
    bottoms = {k: _bottom(job, spec, algorithm, k, top.device, run=run, trained=trained) for k in silos}
    context = _context(job, spec, algorithm, run, top, bottoms)
    context = _changed(job, transport, changed, context, placed)
    told = {BOTTOMS: ", ".join(f"{len(bottom.model.trained):,}" for bottom in bottoms.values())}
    worker = Worker(context, silos, about_rank(top.device, len(silos)) | told, transport)
    codecs = ActivationCodecs.of(job.compression, spec.holder, job.seed)
    worker.together[Converse] = Converses(worker, algorithm, transport, codecs)
    server = SplitServer([top], job.seed, task=algorithm.task, evaluation_batch=job.evaluate.batch_size)
    if transport.is_server:
        _give_labels(server, job, spec, algorithm, run, trained)
    return server, _federation(context, worker, transport, placed)


def _federation(
    context: WorkerContext, worker: Worker, transport: Transport, placed: Mapping[int, Sequence[int]]
) -> Federation:
    """Return the federation. All silos must answer, and each stays on the rank that has its columns."""
    silos = context.spec.silos
    return Federation(
        transport,
        worker,
        [],
        placed,
        quorum=1.0,
        device=context.models[0].device,
        knowledge=Knowledge(context.algorithm, [one.examples for one in silos], "uniform", len(silos)),
        names=Names([one.name for one in silos]),
        stay=True,
    )


def _changed(
    job: Job,
    transport: Transport,
    changed: Changed | None,
    context: WorkerContext,
    placed: Mapping[int, Sequence[int]],
) -> WorkerContext:
    """Return the silos' context as wings change it. The site's rules hold in any case."""
    if changed is not None:
        return changed(context, placed)
    return own_rules(job).context(context, placed, transport, "")


def _top(
    job: Job, spec: VerticalSpec, algorithm: Algorithm, run: Path, transport: Transport, trained: str | None
) -> FlatModel:
    """Return the top on this rank's device, and set the rank's threads."""
    nth, workers = transport.place()
    settle(job, workers)
    device = rank_device(job, nth, is_worker=True)
    module = top_of(job, spec, algorithm)
    if trained is None:
        check_part(job, spec, algorithm, module)
    elif transport.is_server:
        load_part(module, run / "model.safetensors")
    return FlatModel(module, device, is_reporter=nth == 0, apart=True)


def _context(
    job: Job,
    spec: VerticalSpec,
    algorithm: Algorithm,
    run: Path,
    top: FlatModel,
    bottoms: Mapping[int, Bottom],
) -> WorkerContext:
    """Return the context that all silos share."""
    silo: Any = functools.partial(_column_silo, bottoms)
    return WorkerContext(
        functools.partial(_open, Path(job.shards), spec, algorithm),
        run,
        spec,
        algorithm,
        transforms=[],
        seed=job.seed,
        weights="uniform",
        models=[top],
        evaluation_batch=job.evaluate.batch_size,
        silo=silo,
    )


def tags_here(job: Job, spec: VerticalSpec, transport: Transport) -> dict[int, str]:
    """Return the alignment tag of each silo that this rank hosts, if its file has one and can be read."""
    silos = placement(spec, transport).get(transport.rank, [])
    found = {silo: alignment_of(Path(job.shards) / spec.silos[silo].file) for silo in silos}
    return {silo: tag for silo, tag in found.items() if tag is not None}


def placement(spec: VerticalSpec, transport: Transport) -> dict[int, list[int]]:
    """Return the silos of each rank: rank 0 hosts the label holder, the other ranks host the others.

    If each silo can have a rank of its own, ranks follow the order of the silos. So each party knows which
    rank to start. Otherwise silos are spread by their numbers of columns.
    """
    others = [entry.silo for entry in spec.silos if entry.silo != spec.holder]
    ranks = range(1, transport.size) if transport.size > 1 else range(1)
    if len(ranks) >= len(others):
        placed = {rank: [silo] for rank, silo in zip(ranks, others, strict=False)}
    else:
        spread = place([len(spec.silos[silo].columns) for silo in others], ranks)
        placed = {rank: [others[i] for i in indices] for rank, indices in spread.items()}
    placed[0] = sorted([spec.holder, *placed.get(0, [])])
    return placed


def _bottom(
    job: Job,
    spec: VerticalSpec,
    algorithm: Algorithm,
    silo: int,
    device: torch.device,
    run: Path,
    trained: str | None,
) -> Bottom:
    module = checked_bottom(job, spec, algorithm, silo)
    if trained is None:
        check_part(job, spec, algorithm, module, silo)
    else:
        load_part(module, run / "personal" / f"silo_{silo:04d}.safetensors", trained)
    model = FlatModel(module, device, apart=True)
    features = spec.silos[silo].features
    return Bottom.of(model, job.local, features, holds_labels=silo == spec.holder)


def _open(folder: Path, spec: VerticalSpec, algorithm: Algorithm, silo: int) -> Shard:
    """Open a silo's shard. A silo without targets gets the rows' ids as targets."""
    shard = _opened(folder, spec, silo)
    return learnable(shard, algorithm.task) if silo == spec.holder else shard


def _opened(folder: Path, spec: VerticalSpec, silo: int) -> Shard:
    entry = spec.silos[silo]
    splits = {}
    for name, held in open_vertical(folder, entry, spec).items():
        y = held.id if held.y is None else held.y
        splits[name] = Split(held.x, y, held.y_dtype)
    return Shard(folder / entry.file, splits)


def _held(folder: Path, spec: VerticalSpec, algorithm: Algorithm, device: torch.device) -> dict[str, Batches]:
    """Open the splits of the label holder."""
    features = spec.silos[spec.holder].features
    shard = _open(folder, spec, algorithm, spec.holder)
    return {name: Batches(split, features, device) for name, split in shard.splits.items()}


def _give_labels(
    server: SplitServer, job: Job, spec: VerticalSpec, algorithm: Algorithm, run: Path, trained: str | None
) -> None:
    """Give the server the label holder's splits, and for a training the protection of the labels."""
    server.held = _held(Path(job.shards), spec, algorithm, server.model.device)
    server.holder = spec.holder
    if trained is None:  # a trained network sends no gradients
        server.held, server.gate = _protected(job, spec, algorithm, run, server.held)


def _protected(
    job: Job, spec: VerticalSpec, algorithm: Algorithm, run: Path, held: Mapping[str, Batches]
) -> tuple[Mapping[str, Batches], Gate]:
    """Return the splits with the labels that the top learns, and the gate for gradients."""
    assert job.split is not None
    split, classes, train = job.split, algorithm.task.choices, held["train"]
    true = train.stored[1].long().reshape(-1) if classes == 2 else None
    if split.protect == "none":
        return held, Gate(spec.holder, true)
    secret = own_secret(run)
    if split.epsilon is not None:
        act = functools.partial(randomised, classes=classes, epsilon=split.epsilon, secret=secret)
        held = {**held, "train": train.relabelled(act)}
    return held, Gate(spec.holder, true, secret, equalises=split.protect == "max-norm")


def _column_silo(
    bottoms: Mapping[int, Bottom], id: int, shard: Shard, features: Any, lent: Any, **told: Any
) -> ColumnSilo:
    """Make a silo for a request, from some of the arguments that a worker gives."""
    takes = ("state", "round", "seed", "evaluation_batch")
    return ColumnSilo(id, shard, bottoms[id], **{name: told[name] for name in takes})


class Converses:
    """Runs the dialogue of a rank's silos with the server.

    Args:
        worker: The worker that hosts the silos.
        algorithm: The job's algorithm.
        codecs: Encode messages.
    """

    def __init__(
        self, worker: Worker, algorithm: Algorithm, transport: Transport, codecs: ActivationCodecs
    ) -> None:
        self._worker, self._algorithm = worker, algorithm
        self._transport, self._codecs = transport, codecs

    def __call__(
        self, mine: Sequence[int], request: Converse, vectors: dict[str, Tensor], lead: Lead | None
    ) -> list[AnyReply]:
        """Answer a request; see `Together`."""
        clients = {silo: self._client(silo, request, vectors) for silo in mine}
        lines = SplitMessages(self._transport, request.serial)
        written = self._codecs.writing(request.work, request.round)
        if lead is not None:
            assert isinstance(lead, DialogueLead)
            Dialogue(lead, request.cohort, clients, lines, *written).run()
        else:
            follow([*clients.values()], lines, request.longest, *written)
        return [client.reply for client in clients.values() if client.reply is not None]

    def _client(self, id: int, request: Converse, vectors: dict[str, Tensor]) -> SplitClient:
        worker = self._worker
        lend = functools.partial(worker.lend, id, request.round, work=request.work)
        keep, fault = functools.partial(worker.states.keep, id), functools.partial(worker.fault, id)
        return client_of(id, lend, self._algorithm, request, vectors=vectors, keep=keep, fault=fault)
