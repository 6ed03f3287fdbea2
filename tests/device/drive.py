"""Run on every rank: train small jobs on the fake accelerator, on one rank on the CPU, too.

python drive.py SHARDS OUT
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import fake  # before mpifl looks for devices
import steps
import tomli_w
from worlds import JOBS

from mpifl.training.loop import train
from mpifl.wire.joining import abort_world, world


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
            train(file, out / f"{job['name']}-{device}", (f"device={device}",), False, transport)
    facts = {
        "current": fake.torch.fake.current_device(),
        "counts": fake.told(),
        "refused": fake.pages.refused,
    }
    if transport.size == 1:
        facts["waits"] = {way: [steps.waits(way, size) for size in (24, 4)] for way in steps.WAYS}
    (out / f"rank{transport.rank}.json").write_text(json.dumps(facts))


try:
    main()
except Exception:
    traceback.print_exc()
    abort_world(1)
    raise
