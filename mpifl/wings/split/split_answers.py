"""Answers of a trained split network: all parties load their parts and run the network together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError, Names, RoundLost, sha256_of
from mpifl.data.shards import VerticalSpec, parse_any
from mpifl.exchange import Federation, first_of
from mpifl.run.job import Job
from mpifl.silo import Score
from mpifl.training import agree, agree_on
from mpifl.training.beforehand import check_told
from mpifl.wings.split.split_training import assemble_vertical, tags_here
from mpifl.wire import Open, Transport


@dataclass(frozen=True)
class Network:
    """A trained split network as rank 0 uses it; the other parties take part.

    Attributes:
        job: The job that trained it.
        spec: The shard folder with the rows to answer for.
        algorithm: The job's algorithm.
    """

    job: Job
    spec: VerticalSpec
    algorithm: Algorithm
    _server: Server
    _exchange: Federation

    def score(self, split: str) -> Score | None:
        """Return the network's score on a split; None if the split has no rows."""
        return self.algorithm.score(self._server, self._exchange.everyone(self._server), split)

    def answer(self, split: str, take: Callable[[Any, Any], None]) -> None:
        """Answer for a split's rows; `take` is called with the outputs of some rows and their targets."""
        self.algorithm.answer(self._server, self._exchange.everyone(self._server), split, take)


@contextlib.contextmanager
def all_together(
    transport: Transport, plan: Callable[[], tuple[Job, VerticalSpec, Path]], allow: Callable[[Job], None]
) -> Iterator[Network | None]:
    """Give the trained network to rank 0. The other ranks serve it until the context ends, and get None.

    Args:
        transport: The world. All ranks call this function together.
        plan: Returns on rank 0 the job, whose `shards` are those to answer for, their spec, and the run
            folder.
        allow: Raises InputError on a rank that must not run the job's code.

    Raises:
        InputError: on all ranks if a part of the network, or a shard, is missing or wrong on any of them.
    """
    told = agree(transport, lambda: _told(*plan()))
    job, spec, run = Job.model_validate_json(told["job"]), parse_any(told["spec"]), Path(told["run"])
    assert isinstance(spec, VerticalSpec)
    transport.server_hosts = True
    try:
        allow(job)
        check_told(job, spec)
        built, problem = assemble_vertical(job, spec, run, transport, trained=told["top"]), ""
    except InputError as error:
        built, problem = None, str(error)
    agree_on(transport, problem, tags_here(job, spec, transport), Names([one.name for one in spec.silos]))
    assert built is not None
    server, exchange = built
    if not transport.is_server:
        exchange.serve()
        yield None
        return
    algorithm = exchange.knowledge.algorithm
    try:
        server.state = server.begun(algorithm.begin)
        if faults := exchange.everyone(server).ask(Open).faults:  # all parties verify their shards
            raise InputError(first_of(faults, exchange.names))
        yield Network(job, spec, algorithm, server, exchange)
    except (InputError, RoundLost):  # now all ranks wait for a request; after another error they may not
        exchange.stop()
        raise
    exchange.stop()


def _told(job: Job, spec: VerticalSpec, run: Path) -> dict[str, str]:
    top = run / "model.safetensors"
    return {
        "job": job.model_dump_json(exclude_none=True),
        "spec": spec.model_dump_json(),
        "run": str(run),
        "top": sha256_of(top) if top.exists() else "",
    }
