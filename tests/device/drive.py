"""Run on every rank: train small jobs on the fake accelerator, on one rank on the CPU, too.

python drive.py SHARDS OUT
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import fake  # before mpifl looks for devices
import scenarios
import steps
import tomli_w
from worlds import JOBS, LAST

from mpifl.tracking import Record
from mpifl.training.loop import train
from mpifl.wire import survivable
from mpifl.wire.joining import abort_world, leave, world
from mpifl.wire.transport import Transport


def main() -> None:
    shards, out = Path(sys.argv[1]), Path(sys.argv[2])
    transport = world()
    out.mkdir(parents=True, exist_ok=True)
    devices = ["cpu", "gpu"] if transport.size == 1 else ["gpu"]
    for job in JOBS:
        file = out / f"{job['name']}.toml"
        if transport.is_server:
            file.write_text(tomli_w.dumps({**job, "shards": str(shards / job["shards"])}))
        for device in devices:
            if job["name"] == LAST:
                tell(out, transport)
            run, on_round = out / f"{job['name']}-{device}", death_in if dies(job, transport) else lives
            train(file, run, (f"device={device}",), False, transport, on_round=on_round)
    leave(0)


def tell(out: Path, transport: Transport) -> None:
    """Write what this rank asked of its accelerator, and how it was answered."""
    facts = {"current": fake.current(), "counts": fake.told(), "refused": fake.pages.refused}
    facts["locked"] = len(fake.pages.locked)
    if transport.size == 1:
        facts["waits"] = {way: [steps.waits(way, size) for size in (24, 4)] for way in steps.WAYS}
        facts["operations"] = {way: steps.operations(way) for way in ("plain", "batched")}
        facts["folds"] = [steps.folds(length) for length in (10, 200_000)]
    (out / f"rank{transport.rank}.json").write_text(json.dumps(facts))


def dies(job: scenarios.Job, transport: Transport) -> bool:
    return job["name"] == LAST and transport.size > 1 and transport.is_server and survivable()


def death_in(record: Record) -> bool:
    if record["round"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


def lives(record: Record) -> bool:
    return False


try:
    main()
except Exception:
    traceback.print_exc()
    abort_world(1)
    raise
