"""What the runs of a comparison came to, as rows of Markdown tables."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

Record = dict[str, Any]
TARGET = 0.9
SPREAD = ("mean", "worst", "std")
LABELS = {
    "fedsgd": "FedSGD", "fedavg": "FedAvg", "fedavgm": "FedAvgM", "fedadagrad": "FedAdagrad",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi", "fedprox": "FedProx", "fednova": "FedNova", "scaffold": "SCAFFOLD II",
    "feddyn": "FedDyn",
    "fsvrg": "FSVRG", "qfedavg": "q-FedAvg", "moon": "MOON", "feddf": "FedDF",
    "fedper": "FedPer", "ditto": "Ditto",
}  # fmt: skip
"""What tables and pictures call the jobs, in their order."""


def records(run: Path) -> list[Record]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def mnist_row(runs: list[Path]) -> list[str]:
    each = [records(run) for run in runs]
    tested = [[r["test_accuracy"] for r in rounds if "test_accuracy" in r] for rounds in each]
    accuracy = [spread([100 * of(a) for a in tested]) if all(tested) else "–" for of in (last, late, max)]
    silos = [spread([100 * rounds[-1][f"silo_accuracy_{name}"] for rounds in each]) for name in SPREAD]
    return [
        *accuracy,
        *silos,
        *to_target(runs),
        megabytes([r for rounds in each for r in rounds]),
        processor(runs),
    ]


def last(values: list[float]) -> float:
    return values[-1]


def late(values: list[float]) -> float:
    return mean(values[-10:])


def spread(values: list[float], decimals: int = 1) -> str:
    """Write the mean over seeds, and the sample standard deviation if there are several."""
    deviation = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{mean(values):.{decimals}f}{deviation}"


def to_target(runs: list[Path]) -> list[str]:
    """Return the rounds, MB and silos' steps to the target,
    means over the seeds; or how many seeds reach it."""
    found = [reached(run) for run in runs]
    there = [costs for costs in found if costs is not None]
    if len(there) < len(found):
        return [f"{len(there)} of {len(found)}" if there else "–", "–", "–"]
    return [f"{mean(costs):,.0f}" for costs in zip(*there, strict=True)]


def reached(run: Path) -> tuple[float, float, float] | None:
    """Return the first round at the target, and the MB and the silos' steps until its end."""
    from mpifl.report.runs.run_summary import read_run

    summary = read_run(run)
    if (first := summary.reached(TARGET)) is None:
        return None
    return first, summary.total("bytes_sent", "bytes_received", until=first) / 1e6, sum(steps(run)[:first])


def steps(run: Path) -> list[int]:
    """Return how many gradient steps all silos took in each round,
    by the silos that it drew and their examples."""
    from mpifl.algorithms.server import Server
    from mpifl.data.shards.shards import read_federation
    from mpifl.run.job.job import read_job
    from mpifl.training.draw_cohort import Selector

    job = read_job(run / "job.toml")
    sizes = [entry.examples["train"] for entry in read_federation(Path(job.shards)).silos]
    batch = max(sizes) if job.local.batch_size == "full" else job.local.batch_size
    of_silo = [(job.local.epochs or 0) * -(-size // batch) for size in sizes]
    name = job.algorithm["name"]
    if name in ("fedsgd", "qfedsgd"):
        of_silo = [1] * len(sizes)
    if name == "ditto":  # for its own model, and for the shared one
        of_silo = [2 * many for many in of_silo]
    servers = (Server([], job.seed, round=n) for n in range(len(records(run))))
    return [sum(of_silo[silo] for silo in Selector(job.cohort, sizes, server).select()) for server in servers]


def cost_row(run: Path) -> list[str]:
    """Return what a silo is sent and sends in a round and what is kept,
    in models; and its steps in a round."""
    from safetensors.torch import load_file

    from mpifl.data.shards.shards import read_federation
    from mpifl.run.job.job import read_job

    def size(file: Path) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in load_file(file).values())

    job, rounds = read_job(run / "job.toml"), records(run)
    model = size(run / "initial.safetensors")
    drawn = len(rounds) * max(
        int(job.cohort.fraction * len(read_federation(Path(job.shards)).silos) + 1e-9), 1
    )
    wire = [sum(r[name] for r in rounds) / drawn / model for name in ("bytes_sent", "bytes_received")]
    saved = max((run / "checkpoints").iterdir())
    silos = [size(file) / model for file in saved.glob("silo_*.safetensors")]
    kept = [max(silos, default=0.0), size(saved / "server.safetensors") / model]
    return [*(f"{models:.2f}" for models in (*wire, *kept)), f"{sum(steps(run)) / drawn:.0f}"]


def heart_row(runs: list[Path]) -> list[str]:
    """Return means over the seeds; pooled is over all test rows alike, with the deviation over the seeds."""
    from mpifl.report.runs.run_summary import read_run
    from scripts.reproduce.scores import over_all, silos_of

    found = [silos_of(read_run(run)) for run in runs]
    each = [
        percent(mean(silo.metrics["accuracy"] for silo in hospital)) for hospital in zip(*found, strict=True)
    ]
    pooled = spread([100 * over_all(silos, "accuracy") for silos in found])
    last = [records(run)[-1] for run in runs]
    silos = [percent(mean(r[f"silo_accuracy_{name}"] for r in last)) for name in ("mean", "worst", "std")]
    return [pooled, *each, *silos, megabytes(records(runs[0])), f"{seconds(runs) / len(runs):.1f}"]


HEADINGS = {
    "mnist": "test accuracy %|last ten|best|silos' mean %|worst|std|rounds to 90 %|MB to 90 %|steps to 90 %|"
    "MB a round|CPU s",
    "heart": "all rows %|Cleveland|Hungary|Switzerland|VA|hospitals' mean %|worst|std|MB a round|CPU s",
}
COSTS = "sent to a silo|a silo sends|kept at a silo|kept at the server|steps of a silo"
TITLES = {
    "mnist": "K = 20 by Dirichlet with alpha = 0.1, 2NN, C = 0.5, E = 1, B = 32",
    "heart": "four hospitals, a perceptron of 16 hidden units, E = 2, B = 16",
}
ROWS = {"mnist": mnist_row, "heart": heart_row}


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def megabytes(rounds: list[Record]) -> str:
    size = mean(r["bytes_sent"] + r["bytes_received"] for r in rounds) / 1e6
    return f"{size:.1f}" if size >= 0.1 else f"{size:.4f}"


def seconds(runs: list[Path]) -> float:
    return sum(float((run / "cpu_seconds").read_text()) for run in runs)


def processor(runs: list[Path]) -> str:
    return f"{seconds(runs) / len(runs):.0f}"


def titled(name: str) -> str:
    job, space, seeds = name.partition(" ")
    return LABELS.get(job, job) + space + seeds


def table(headings: str, rows: dict[str, list[str]]) -> str:
    head = ["algorithm", *headings.split("|")]
    order = [*LABELS, *rows]
    shown = sorted(rows, key=lambda name: order.index(name.partition(" ")[0]))
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *([titled(name), *rows[name]] for name in shown)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
