"""Run on every rank: train all scenarios in one world, some of them stopped and resumed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import contract
import h5py
import scenarios
import tomli_w
import vertical

from mpifl.cli.job_tools import evaluate_together, predict_together
from mpifl.common import InputError
from mpifl.exchange.server_side import placement
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import abort_world, world
from mpifl.wire.transport import Transport


def main() -> None:
    shards, out = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ["MPIFL_SITE"] = str(out / "site")
    transport = world()
    if transport.is_server:
        (out / "site").mkdir(mode=0o700, parents=True)
        (out / "site" / "key").write_bytes(bytes(range(32)))
        (out / "site" / "stats.toml").write_text("times = true\n")
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
        runs = [(out / job["name"], scenarios.stops(job, transport.size))]
        runs += [(out / f"{job['name']}-resumed", True)] * scenarios.resumes(job)
        for run, stopped in runs:
            if stopped:
                train(file, run, (f"rounds={scenarios.half(job)}",), False, transport, wings_of=wings_of)
            train(file, run, (), stopped, transport, wings_of=wings_of)
    evaluate_together(out / "split", transport, {vertical.BOTTOM}, out / "split" / "scores.json")
    predicted = out / "split" / "predictions.csv"
    predict_together(out / "split", shards / "columns", predicted, transport, {vertical.BOTTOM})
    refused = refusal_of_another_alignment(shards, out, transport)
    if transport.is_server:
        (out / "done.json").write_text(json.dumps({"ranks": transport.size, "refused": refused}))


def refusal_of_another_alignment(shards: Path, out: Path, transport: Transport) -> str:
    """Train where rank 0 has its own copy of the shards, and others copies of another alignment."""
    here, there, before = out / "here", out / "there", Path.cwd()
    if transport.is_server:
        shutil.copytree(shards / "columns", here / "columns")
        shutil.copytree(shards / "columns", there / "columns")
        for shard in (there / "columns").glob("*.h5"):
            with h5py.File(shard, "r+") as file:
                file.attrs["alignment"] = "f" * 32
        (here / "split.toml").write_text(tomli_w.dumps(vertical.split("apart")))
    transport.broadcast_record(b"" if transport.is_server else None)  # the copies are there
    os.chdir(here if transport.is_server else there)
    try:
        train(here / "split.toml", out / "apart", (), False, transport, wings_of=wings_of)
    except InputError as error:
        return str(error)
    finally:
        os.chdir(before)
    return ""


try:
    main()
except Exception:
    traceback.print_exc()
    abort_world(1)
    raise
