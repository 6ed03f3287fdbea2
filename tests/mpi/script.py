"""A user's script, run on every rank: an algorithm of its own,
trained, stopped, resumed and trained again."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

import mpifl

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
heard: list[int] = []


class Halved(mpifl.FedAvg):
    """Goes half of the way of FedAvg."""

    def round(self, server: mpifl.Server, cohort: mpifl.Cohort) -> dict[str, float]:
        mean = cohort.mean(self.train, w=server.state["w"])
        server.state["w"] += mean["delta"] / 2
        return mean.scalars


def net(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    inputs = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def state() -> list[Any]:
    """What a training has to leave as it was."""
    subnormal = (torch.full((4,), 1e-30) * 1e-10).count_nonzero().item()
    return [torch.get_num_threads(), subnormal, torch.initial_seed(), *map(signal.getsignal, SIGNALS)]


def refusal(job: Any, out: Path) -> str:
    try:
        mpifl.train(job, out=out)
    except mpifl.InputError as error:
        return str(error)
    return ""


def main(shards: str, out: Path) -> dict[str, Any]:
    job = {
        "name": "halved",
        "shards": shards,
        "rounds": 4,
        "device": "cpu",
        "model": {"name": "__main__:net", "hidden": 8},
        "algorithm": {"name": "__main__:Halved"},
        "checkpoint": {"every": 4},
    }
    told: dict[str, Any] = {"refusal": refusal({**job, "round": 4}, out / "refused")}
    stopped = mpifl.train(job, out=out / "stopped", on_round=lambda record: record["round"] == 2)
    if stopped is not None:
        told["stopped"] = [stopped.finished, len(stopped.metrics)]
        told["no model"] = ""
        try:
            stopped.model()
        except mpifl.InputError as error:
            told["no model"] = str(error)
    resumed = mpifl.train(job, out=out / "stopped", resume=True)

    seen: list[float] = []

    def spoil(record: dict[str, Any]) -> None:
        seen.append(record["test_accuracy"])
        record.clear()

    whole = mpifl.train(mpifl.Job.model_validate(job), out=str(out / "whole"), on_round=spoil)
    assert (resumed is None) == (whole is None) == (stopped is None)
    if whole is not None and resumed is not None:
        told["finished"] = [resumed.finished, whole.finished]
        told["rounds"] = [[record["round"] for record in run.metrics] for run in (resumed, whole)]
        told["seen"] = seen == [record["test_accuracy"] for record in whole.metrics]
        told["best"] = whole.best is not None and whole.best["test_accuracy"] == max(seen)
        told["job"] = [whole.job.rounds, whole.job.algorithm["name"]]
        told["model"] = all(map(torch.equal, whole.model(net).parameters(), resumed.model().parameters()))
    told["error"] = ""
    try:
        mpifl.train(job, out=out / "failed", on_round=lambda record: 1 / 0)
    except ZeroDivisionError as error:
        told["error"] = str(error)

    def ask_for_the_end(record: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert not heard, "it is kept back"

    mpifl.train(job, out=out / "signalled", on_round=ask_for_the_end)
    told["heard"] = [signal.Signals(number).name for number in heard]
    return told


if __name__ == "__main__":
    torch.set_num_threads(2)
    signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    before = state()
    told = main(sys.argv[1], Path(sys.argv[2]))
    told["as found"] = state() == before
    Path(sys.argv[2], f"told-{MPI.COMM_WORLD.rank}.json").write_text(json.dumps(told))
