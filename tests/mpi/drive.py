"""Run on every rank: train all scenarios in one world, then one of them stopped and resumed."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import contract
import scenarios
import tomli_w

from mpifl.exchange import placement
from mpifl.training.loop import train
from mpifl.wire.joining import abort_world, world


def main() -> None:
    shards, out = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ["MPIFL_SITE"] = str(out / "site")
    transport = world()
    if transport.is_server:
        (out / "site").mkdir(mode=0o700, parents=True)
        (out / "site" / "key").write_bytes(bytes(range(32)))
        for name in scenarios.SERVER_SECRETS:
            for folder in (out / name / "privacy", out / f"{name}-resumed" / "privacy"):
                folder.mkdir(mode=0o700, parents=True)
                (folder / "key").write_bytes(bytes(range(32)))
        if scenarios.LORA in scenarios.JOBS:
            scenarios.write_gpt2(out / "gpt2")
    contract.check(transport)
    placement.WORTH = 0.0  # silos move from rank to rank for the least gain
    for job in scenarios.jobs_on(transport.size):
        file = out / f"{job['name']}.toml"
        if transport.is_server:
            model = {**job["model"], **({"path": str(out / "gpt2")} if "path" in job["model"] else {})}
            file.write_text(tomli_w.dumps({**job, "shards": str(shards / job["shards"]), "model": model}))
        train(file, out / job["name"], (), False, transport)
        if scenarios.resumes(job, transport.size):
            half = (f"rounds={job['rounds'] // 2 + 1}",)
            train(file, out / f"{job['name']}-resumed", half, False, transport)
            train(file, out / f"{job['name']}-resumed", (), True, transport)
    if transport.is_server:
        (out / "done.json").write_text(json.dumps({"ranks": transport.size}))


try:
    main()
except Exception:
    traceback.print_exc()
    abort_world(1)
    raise
