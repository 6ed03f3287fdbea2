"""The program that scores the server's models behind the round; started by `behind`, imported by nobody.

It gets requests over its standard input, a socket, and the models in the memory of the file that is its
standard output. It builds model and test set as the server does. It has no MPI.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpifl.algorithms import Server


def main() -> None:
    """Score models until the server closes the socket."""
    link, file = socket.socket(fileno=os.dup(0)).makefile("rwb"), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    sys.path[:] = json.loads(sys.argv[1])
    from mpifl.run.folder import serialization

    try:
        act(link, file)
    except Exception as error:
        fault = serialization.packed({"fault": f"{type(error).__name__}: {error}"})
        link.write(len(fault).to_bytes(8, "little") + fault)
        link.flush()


def act(link: io.BufferedRWPair, file: int) -> None:
    """Build what the server has, and score a model for each request."""
    from mpifl.common.machine import tuning

    tuning.keep_memory()
    import torch

    from mpifl.wings.scoring import answered, shared

    server = _server(json.loads(link.readline()))
    models: dict[str, Any] = {}
    for line in link:
        asked = {name: (getattr(torch, dtype), length) for name, (dtype, length) in json.loads(line).items()}
        server.state = models = models or shared(file, asked)
        score = server.evaluate(models["w"])
        assert score is not None
        link.write(answered(score))
        link.flush()


def _server(told: dict[str, Any]) -> Server:
    """Return the state of a training's server, without what silos need."""
    import torch

    from mpifl.data.shards import FederationSpec, parse_any
    from mpifl.run.job import Job
    from mpifl.training import models_of, server_of, settle_kernels

    torch.set_flush_denormal(told["zero"])
    job, spec = Job.model_validate_json(told["job"]), parse_any(told["spec"])
    settle_kernels(job)
    torch.set_num_threads(told["threads"])
    assert isinstance(spec, FederationSpec)
    algorithm = job.build_algorithm().for_federation(spec)
    flat = models_of(job, spec, algorithm, torch.device("cpu"), is_reporter=False)
    return server_of(job, spec, algorithm, flat, spec.test, public=None)


if __name__ == "__main__":
    main()
