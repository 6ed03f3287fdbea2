"""From runs to the figures that papers print."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev

from safetensors.torch import load_file

from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.learning import models
from mpifl.report.runs.run_summary import Summary
from mpifl.run.job.job import read_job
from mpifl.silo import Score, evaluate
from mpifl.silo.parameters.flat_model import FlatModel


def rounds_to(run: Summary, target: float, figure: str = "test_accuracy") -> float | None:
    """Return the rounds to an accuracy as McMahan et al. 2017 count them (section 3).

    The curve is made monotone, each point the best so far, and interpolated linearly between its points. The
    first point is the first round that was evaluated.
    """
    best, at = None, 0
    for record in run.records:
        if (found := record.get(figure)) is None:
            continue
        if found >= target:
            if best is None:
                return float(record["round"])
            return at + (target - best) / (found - best) * (record["round"] - at)
        best, at = max(found, best or 0.0), record["round"]
    return None


def silos_of(run: Summary, split: str = "test") -> list[Score]:
    """Score the model that each silo ends with on a split of its own."""
    job = read_job(run.run / "job.toml")
    spec = read_federation(Path(job.shards))
    task = job.build_task().for_federation(spec)
    width, table = task.width(spec), job.model
    module = models.build(table.name, table.arguments, spec.features, width, job.seed, task)
    model = FlatModel(module)
    found = []
    for entry in spec.silos:
        own = run.run / "personal" / f"silo_{entry.silo:04d}.safetensors"
        model.module.load_state_dict(load_file(own if own.exists() else run.run / "model.safetensors"))
        held = open_shard(Path(job.shards), entry, spec)[split]
        batches = Batches(held, spec.features, model.device)
        found.append(evaluate(model, model.trained.clone(), batches, task))
    return found


def over_all(silos: list[Score], figure: str) -> float:
    """Average the loss or a metric of silos over all their examples alike."""
    figures = [silo.loss if figure == "loss" else silo.metrics[figure] for silo in silos]
    total = sum(value * silo.examples for value, silo in zip(figures, silos, strict=True))
    return total / sum(silo.examples for silo in silos)


def percent(values: list[float], digits: int = 1) -> str:
    """Return a mean of shares in percent,
    with the sample deviation over the seeds where there are several."""
    deviation = f" ± {100 * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.{digits}f}{deviation}"
