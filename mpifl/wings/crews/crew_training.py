"""What a rank needs where a silo's batches are cut into parts, which the ranks of a crew take."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.run.job import Job
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import Trains
from mpifl.training import models_of, settle
from mpifl.wings.crews.crew_gradients import Follower, Leader
from mpifl.wings.crews.parts_training import ByParts
from mpifl.wire import Transport


def trains_of(
    job: Job, algorithm: Algorithm, models: Sequence[FlatModel], device: torch.device, transport: Transport
) -> Trains:
    """Return who has the parts of a rank's batches taken.

    Raises:
        InputError: this rank trains on a GPU, or a rank of its crew cannot take part.
    """
    count, crew = job.silo.parts, transport.crew
    if crew is None:
        return ByParts(algorithm, count)
    if device.type != "cpu":
        what = "the ranks of a crew train on the cores of their node, and this one has a GPU"
        raise InputError(f"[silo] ranks = {job.silo.ranks}: {what}; take device = 'cpu', or ranks = 1")
    for follower in crew.followers:
        if problem := crew.readiness(follower):
            raise InputError(problem)
    leader = Leader(crew, models, count)
    return ByParts(algorithm, count, leader.take, leader.vectors)


def followed(job: Job, spec: AnySpec, transport: Transport) -> tuple[Server, Follower]:
    """Return what a rank needs that follows the leader of its crew, who hears that it is ready, or why not.

    Raises:
        InputError: it is not.
    """
    crew = transport.crew
    assert crew is not None
    assert isinstance(spec, FederationSpec)
    algorithm = job.build_algorithm().for_federation(spec)
    try:
        settle(job, transport.place()[1])
        models = models_of(job, spec, algorithm, torch.device("cpu"), is_reporter=False)
    except InputError as error:
        crew.be_ready(str(error))
        raise
    crew.be_ready()
    return Server(models, job.seed, task=algorithm.task), Follower(crew, models, algorithm)
