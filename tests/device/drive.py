"""Run on every rank: train small jobs on the fake accelerator, on one rank on the CPU, too.

python drive.py SHARDS OUT
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import fake  # before mpifl looks for devices
import steps
import tomli_w
import torch
from worlds import FAILS, JOBS, ODD, SPLIT, death_in, dies

from mpifl.cli import ending
from mpifl.data.batches.resident import resident_on
from mpifl.report.observers import Record
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import leave, world
from mpifl.wire.transport import Transport

held: list[int] = []
rounding: list[bool] = []


def main(standalone_mode: bool = False) -> None:
    shards, out = Path(sys.argv[1]), Path(sys.argv[2])
    transport = world()
    out.mkdir(parents=True, exist_ok=True)
    devices = ["cpu", "gpu"] if transport.size == 1 else ["gpu"]
    for job in JOBS[transport.size > 1 :]:
        file = out / f"{job['name']}.toml"
        if transport.is_server:
            file.write_text(tomli_w.dumps({**job, "shards": str(shards / job["shards"])}))
        if job["name"] == FAILS:
            tell(out, transport)
        for device in [*devices, "odd"] if job["name"] in ODD else devices:
            run, on_round = out / f"{job['name']}-{device}", death_in if dies(job, transport) else lives
            fake.round_oddly(device == "odd")
            held.clear()
            gc.collect()  # what the job before has left is not held by this one
            where = (f"device={'gpu' if device == 'odd' else device}",)
            if job["name"] == SPLIT:
                train(file, run, (*where, "rounds=1"), False, transport, wings_of=wings_of)
            train(file, run, where, job["name"] == SPLIT, transport, on_round=on_round, wings_of=wings_of)
            if transport.size == 1:
                (run / "held.json").write_text(json.dumps(held))
    leave(0)


def tell(out: Path, transport: Transport) -> None:
    """Write what this rank asked of its accelerator, and how it was answered."""
    facts = {"current": fake.current(), "counts": fake.told(), "refused": fake.pages.refused}
    facts["locked"] = len(fake.pages.locked)
    if transport.size == 1:
        facts["waits"] = {way: [steps.waits(way, size) for size in (24, 4)] for way in steps.WAYS}
        facts["operations"] = {way: steps.operations(way) for way in ("plain", "batched")}
        facts["rounds"] = {precision: steps.rounds(precision) for precision in ("fp32", "tf32")}
        facts["between"], facts["after"] = rounding, steps.rounding()
        facts["travels"], facts["fetched"] = steps.travels(), steps.fetched()
        facts["finishes"] = [steps.finishes(deadline) for deadline in (None, 60.0)]
        facts["folds"] = [steps.folds(length) for length in (10, 200_000)]
    (out / f"rank{transport.rank}.json").write_text(json.dumps(facts))


def lives(record: Record) -> bool:
    """Note what lies on the accelerators after a round, beside examples."""
    kept = resident_on(torch.device("fake", 0))
    held.append(fake.told()["live bytes"] - (kept.nbytes if kept else 0))
    rounding[:] = steps.rounding()
    return False


sys.exit(ending.run(main))
