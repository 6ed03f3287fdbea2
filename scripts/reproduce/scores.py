"""From runs to the figures that papers print."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, pstdev

from mpifl.report import Summary


def rounds_to(run: Summary, target: float, figure: str = "test_accuracy") -> float | None:
    """Return the rounds to an accuracy as McMahan et al. 2017 count them (section 3).

    The curve is made monotone, each point the best so far, and interpolated linearly between its points. The first
    point is the first round that was evaluated.
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


def silos_of(run: Summary, split: str = "test") -> list[tuple[float, float, int]]:
    """Score the model that each silo ends with on a split of its own: accuracy, loss and the number of examples."""
    import torch
    from safetensors.torch import load_file

    from mpifl import models
    from mpifl.job import read_job
    from mpifl.shards import open_shard, read_federation

    job = read_job(run.run / "job.toml")
    spec = read_federation(Path(job.shards))
    module = models.build(job.model.name, job.model.arguments, spec.features, spec.classes, job.seed).eval()
    found = []
    for entry in spec.silos:
        own = run.run / "personal" / f"silo_{entry.silo:04d}.safetensors"
        module.load_state_dict(load_file(own if own.exists() else run.run / "model.safetensors"))
        held = open_shard(Path(job.shards), entry, spec)[split]
        with torch.no_grad():
            logits, y = module(torch.tensor(held.x)), torch.tensor(held.y)
        accuracy = (logits.argmax(1) == y).float().mean()
        found.append((float(accuracy), float(torch.nn.functional.cross_entropy(logits, y)), len(y)))
    return found


def over_all(silos: list[tuple[float, float, int]], which: int) -> float:
    """Average a figure of silos over all their examples alike."""
    return sum(silo[which] * silo[2] for silo in silos) / sum(silo[2] for silo in silos)


def percent(values: list[float], digits: int = 1) -> str:
    """Return a mean of shares in percent, with the deviation over the seeds where there are several."""
    spread = f" ± {100 * pstdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.{digits}f}{spread}"
