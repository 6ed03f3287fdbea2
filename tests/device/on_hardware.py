"""Run on every rank: train the jobs of `worlds` and some more, each rank on the GPU of its place.

python on_hardware.py SHARDS OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import tomli_w
from scenarios import job
from worlds import JOBS, SPLIT, death_in, dies

from mpifl.cli import ending
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import leave, world

LOCAL = {"lr": 0.1, "batch_size": 16, "momentum": 0.9}
ALONE = [
    job("compiled", rounds=2, shards="many", local={**LOCAL, "compile": True}),
    job("bf16", rounds=2, local={**LOCAL, "precision": "bf16"}),
    job("tf32", rounds=2, local={**LOCAL, "precision": "tf32"}),
    job("topk", rounds=2, compression={"upload": "topk", "share": 0.1, "download": "bfloat16"}),
    job(
        "wide-median",
        rounds=2,
        shards="many",
        model={"name": "mlp", "hidden": [64]},
        aggregation={"rule": "median"},
    ),
]
"""Of these nothing is known on the fake accelerator."""


def main(standalone_mode: bool = False) -> None:
    shards, out = Path(sys.argv[1]), Path(sys.argv[2])
    transport = world()
    out.mkdir(parents=True, exist_ok=True)
    for one in [*ALONE, *JOBS]:  # those whose ranks die come last
        if one["name"] == SPLIT and transport.size > 1:
            continue
        file, run = out / f"{one['name']}.toml", out / one["name"]
        if transport.is_server:
            file.write_text(tomli_w.dumps({**one, "shards": str(shards / one["shards"])}))
        if one["name"] == SPLIT:
            train(file, run, ("device=cuda", "rounds=1"), False, transport, wings_of=wings_of)
        on_round = {"on_round": death_in} if dies(one, transport) else {}
        train(file, run, ("device=cuda",), one["name"] == SPLIT, transport, **on_round, wings_of=wings_of)
    leave(0)


sys.exit(ending.run(main))
