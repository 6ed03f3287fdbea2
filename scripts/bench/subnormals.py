"""What a silo whose images are all of one class costs, with and without numbers that are too small to be
normal.

A model that has learned such a silo by heart has gradients below 1.2e-38, with which processors are slow, and
which `mpifl train` takes for zero. FedAvg's half of a round (NIID-Bench's CNN, B = 64, momentum 0.9) is done
in turns both ways, in one process on one thread; the processor's time is counted. Both must come to the same
model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import torch
from common import CLASSES, PIXELS, images, save, write_silos

from jobs.papers.lenet import lenet
from mpifl.algorithms.fedavg import FedAvg
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.silo import Silo
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.fast import quickly

LABEL = 0


def measure(folder: Path, many: int, epochs: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each way, repeat by repeat.

    Raises:
        AssertionError: the ways' models differ.
    """
    x, y, _ = images(many)
    own = y == LABEL
    write_silos(folder, x[own], y[own], 1)
    spec = read_federation(folder)
    shard = open_shard(folder, spec.silos[0], spec)
    model = FlatModel(lenet(PIXELS.shape, CLASSES))
    w = model.trained.clone()
    algorithm = FedAvg(local=LocalTraining(lr=0.01, momentum=0.9, batch_size=64, epochs=epochs))
    taken: dict[str, list[float]] = {"as zero": [], "as they are": []}
    for _ in range(repeats):
        deltas = []
        for way, flushed in zip(taken, (True, False), strict=True):
            torch.set_flush_denormal(flushed)
            began = time.process_time()
            update = algorithm.train(Silo(0, shard, PIXELS, [model], state={}, trains=quickly), w=w)
            taken[way].append(time.process_time() - began)
            torch.set_flush_denormal(False)
            deltas.append(update.vectors["delta"].clone())
        assert torch.equal(w + deltas[0], w + deltas[1])
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--images", type=int, default=20000, help="of MNIST, a tenth of them the silo's (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="little of all: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    many, epochs, repeats = (
        (600, 150, 2) if options.quick else (options.images, options.epochs, options.repeats)
    )
    if min(many, epochs) < 1 or repeats < 2:
        parser.error("--images and --epochs must be at least 1, --repeats 2")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        zero, kept = measure(Path(scratch) / "shards", many, epochs, repeats).values()
    low, ratio, high = quantiles((a / b for a, b in zip(zero, kept, strict=True)), n=4)
    print(
        f"taken for zero {median(zero):.2f} s, as they are {median(kept):.2f} s: "
        f"{ratio:.2f}, {low:.2f} to {high:.2f}"
    )
    save(options.json, {"zero": zero, "kept": kept, "ratio": ratio, "low": low, "high": high})


if __name__ == "__main__":
    main()
