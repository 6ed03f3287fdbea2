"""Train by mpifl on one rank and by a plain loop, in turns; print sha256, processor and ratio as JSON."""

import hashlib
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

SILOS, STEPS, BATCH, ROUNDS, TURNS = 4, 100, 10, 30, 3
CUT = "partition synthetic --out shards --scheme natural --seed 7 --test 0.2"
CUT += f" --option alpha=1 --option beta=1 --option silos={SILOS}"
JOB = f"""
name = "centre"
shards = "shards"
seed = 7
rounds = {ROUNDS}
model.name = "mlp"
algorithm.name = "fedavg"
local = {{lr = 0.05, steps = {STEPS}, batch_size = {BATCH}}}
evaluate = {{every = {ROUNDS}, silos = false}}
"""


def trained(run: str) -> list[float]:
    """Seconds of each round by mpifl; the first makes things ready."""
    subprocess.run([sys.executable, "-m", "mpifl", "train", "job.toml", "--out", run], check=True)
    lines = Path(run, "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines][1:-1]


def plain() -> list[float]:
    """Seconds of each round by torch alone: as many steps of the same size, and the average."""
    torch.set_num_threads(1)
    sizes = (60, 200, 200, 10)
    layers = [
        layer for pair in itertools.pairwise(sizes) for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())
    ]
    model = torch.nn.Sequential(*layers[:-1])
    x, y = torch.randn(600, 60), torch.randint(10, (600,))
    start, found = [p.detach().clone() for p in model.parameters()], []
    for _ in range(ROUNDS - 2):
        began, total = time.perf_counter(), [torch.zeros_like(p) for p in start]
        for _ in range(SILOS):
            with torch.no_grad():
                for p, s in zip(model.parameters(), start, strict=True):
                    p.copy_(s)
            optimizer, order = torch.optim.SGD(model.parameters(), lr=0.05), torch.randperm(600)
            for step in range(STEPS):
                rows = order[step * BATCH % 600 :][:BATCH]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
            for t, p in zip(total, model.parameters(), strict=True):
                t += p.detach() / SILOS
        start = total
        found.append(time.perf_counter() - began)
    return found


def main() -> None:
    subprocess.run([sys.executable, "-m", "data_prep", *CUT.split()], check=True)
    Path("job.toml").write_text(JOB)
    turns = [(trained(f"run{turn}"), plain()) for turn in range(TURNS)]
    ratio = statistics.median(statistics.median(own) / statistics.median(other) for own, other in turns)
    about = json.loads(Path("run0", "environment.json").read_text())
    computes = f"{about['ranks']['0']['processor']}, torch {about['versions']['torch']}"
    digest = hashlib.sha256(Path("run0", "model.safetensors").read_bytes()).hexdigest()
    print(json.dumps({"sha256": digest, "computes": computes, "ratio": round(ratio, 3)}))


main()
