"""What a GPU takes: local steps, silos that train together, sums, copies, scores, codecs, and whole rounds.

    python scripts/bench/gpu.py --json gpu.json
    python scripts/bench/gpu.py steps batched

Each figure is the median of repeats, and the device has done all work when the clock is read. `rounds` starts
ranks by MPIFL_MPIRUN, all on this machine; its workers share the GPU. Figures of steps are of 600 images of
28 x 28. A first training is not counted, since a compiled step is made in it. The JSON file is written after
each figure. Exit code 77: a section cannot run here; the line says why.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import gpu_steps
import torch
from common import CLASSES, NEVER, PIXELS, images, metrics, train as train_on_ranks, write_silos

from mpifl.common.errors import InputError
from mpifl.common.machine import accelerators
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Split
from mpifl.learning import models
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.scoring import evaluate
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import Loss, Training
from mpifl.sums.exact import ExactSum, peak_of
from mpifl.training import device_of
from mpifl.wings.compression.codecs import QSGD, Cast, TopK
from mpifl.wings.fast import quickly as train
from mpifl.wings.fast.stacked_training import train_together

IMAGES = 600
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compiled": {"compile": True},
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "bf16, compiled": {"precision": "bf16", "compile": True},
}
BOTH = ("plain", "compiled")
CASES = [
    ("logreg", 10, BOTH),
    ("2nn", 10, tuple(WAYS)),
    ("2nn", 100, BOTH),
    ("cnn", 10, BOTH),
    ("cnn", 50, tuple(WAYS)),
]
"""Model, batch size, and how its steps are taken."""
LENGTHS = (199_210, 1_663_370, 11_000_000, 100_000_000)
"""Parameters of the 2NN, the CNN, a ResNet-18, and of a small language model."""
WORLDS = {
    "2nn": {"plain": (1, 4, 8), "compile": (4, 1), "batched": (1, 4)},
    "cnn": {"plain": (4,), "compile": (4,)},
}
"""How many workers share the device, by model and by how silos take their steps."""
LIMIT = 120.0
Rows: TypeAlias = Iterator[tuple[str, float]]


class Bench:
    """What is measured on one device; each method is a section, and returns its figures by name."""

    def __init__(self, device: torch.device, silos: int = 100) -> None:
        self.device, self._silos = device, silos
        self._x, self._y, self.data = images(10_000)

    def batches(self, n: int) -> Batches:
        """Return the first examples."""
        return Batches(Split(self._x[:n], self._y[:n]), PIXELS, self.device)

    def model(self, name: str) -> FlatModel:
        """Return a model with its first weights."""
        return FlatModel(models.build(name, {}, PIXELS, CLASSES, 0), self.device)

    def median(self, act: Callable[[], object], repeats: int = 7, warm: int = 1) -> float:
        """Return the median seconds of a call."""
        taken = []
        for nth in range(warm + repeats):
            accelerators.finish(self.device)
            began = time.perf_counter()
            act()
            accelerators.finish(self.device)
            taken.append(time.perf_counter() - began) if nth >= warm else None
        return statistics.median(taken)

    def steps(self) -> Rows:
        """Microseconds of a local step, of a training of five epochs."""
        for name, size, ways in CASES:
            for way in ways:
                settings = WAYS[way]
                if self.device.type == "cpu" and "precision" in settings:
                    continue
                model, data = self.model(name), self.batches(IMAGES)
                local = LocalTraining(lr=0.05, batch_size=size, epochs=5, **settings)
                start = model.trained.clone()

                def once(model=model, data=data, local=local, start=start) -> None:
                    train(asked(model, data, start, local, 0))

                seconds = self.median(once, 5)
                yield f"{name}, B = {size}, {way}: us a step", 1e6 * seconds / (5 * IMAGES // size)

    def batched(self) -> Rows:
        """Microseconds of a silo's step where silos train together, by how many do."""
        for name in ("2nn", "cnn"):
            model = self.model(name)
            start, local = model.trained.clone(), LocalTraining(lr=0.05, batch_size=10)
            each = [
                Batches(
                    Split(self._x[60 * k : 60 * k + 60], self._y[60 * k : 60 * k + 60]), PIXELS, self.device
                )
                for k in range(128)
            ]

            def together(chunk: int, model=model, start=start, local=local, each=each) -> None:
                for begin in range(0, len(each), chunk):
                    part = each[begin : begin + chunk]
                    wanted = [asked(model, data, start, local, k) for k, data in enumerate(part)]
                    outcomes = train_together(wanted, chunk)
                    [outcome(one) for one, outcome in zip(wanted, outcomes, strict=True)]

            def singly(model=model, start=start, local=local, each=each) -> None:
                for k, data in enumerate(each):
                    train(asked(model, data, start, local, k))

            yield f"{name}, one after another: us", 1e6 * self.median(singly, 3) / (128 * 6)
            for chunk in (4, 16, 64, 128):
                seconds = self.median(lambda chunk=chunk, together=together: together(chunk), 3)
                yield f"{name}, chunks of {chunk}: us a silo's step", 1e6 * seconds / (128 * 6)

    def sums(self) -> Rows:
        """Milliseconds to add a vector to an exact sum, and to look for its largest magnitude."""
        for length in LENGTHS:
            vector = torch.randn(length, device=self.device)
            room = torch.zeros(length, dtype=torch.float64, device=self.device)
            total = ExactSum(length, 100)
            total.add(vector, 600.0, peak_of(vector), room)
            add = self.median(lambda total=total, vector=vector: total.add(vector, 600.0, 8.0, None))
            yield f"{length:,}: add, ms", 1e3 * add
            yield f"{length:,}: add, GB/s of 20 bytes a number", 20e-9 * length / add
            yield f"{length:,}: peak, ms", 1e3 * self.median(lambda vector=vector: peak_of(vector))

    def copies(self) -> Rows:
        """GB/s between the host and the device."""
        for length in LENGTHS:
            there = torch.empty(length, device=self.device)
            for kind, pinned in (("pageable", False), ("locked", True)):
                if pinned and self.device.type != "cuda":
                    continue
                here = torch.zeros(length, pin_memory=pinned)
                down = self.median(lambda there=there, here=here: there.copy_(here))
                up = self.median(lambda there=there, here=here: here.copy_(there))
                yield f"{length:,}: {kind}, to the device", 4e-9 * length / down
                yield f"{length:,}: {kind}, from the device", 4e-9 * length / up

    def scores(self) -> Rows:
        """Milliseconds to score 10,000 images."""
        data = self.batches(10_000)
        for name in ("2nn", "cnn"):
            model = self.model(name)
            w = model.trained.clone()

            def once(model=model, w=w) -> None:
                evaluate(model, w, data, CLASSIFICATION)

            yield f"{name}: ms", 1e3 * self.median(once, 5)

    def codecs(self) -> Rows:
        """Milliseconds to encode and decode 11 million numbers."""
        vector = torch.randn(11_000_000, device=self.device)
        for codec in (Cast("bfloat16"), QSGD(bits=4), TopK(0.01)):
            draw = torch.Generator().manual_seed(0)
            payload = codec.encode(vector, draw)
            name = type(codec).__name__
            encode = self.median(lambda codec=codec, draw=draw: codec.encode(vector, draw), 3)
            yield f"{name}: encode, ms", 1e3 * encode
            decode = self.median(lambda codec=codec, payload=payload: codec.decode(payload, len(vector)), 3)
            yield f"{name}: decode, ms", 1e3 * decode

    def rounds(self) -> Rows:
        """Seconds of rounds of silos of 600 images, all in each, by workers that share the device."""
        x, y, _ = images(600 * self._silos)
        cases = [
            (model, way, n) for model, ways in WORLDS.items() for way, sizes in ways.items() for n in sizes
        ]
        with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as name:
            folder = Path(name)
            write_silos(folder / "shards", x, y, self._silos, (x[:10_000], y[:10_000]))
            for model, way, workers in cases:
                said = f"{model}, {way}, {workers} workers"
                for what, figure in self._round(folder, model, way, workers):
                    yield f"{said}: {what}", figure

    def _round(self, folder: Path, model: str, way: str, workers: int) -> list[tuple[str, float]]:
        job, run = folder / "job.toml", folder / f"{model}-{way}-{workers}"
        job.write_text(
            f'name = "rounds"\nshards = "{folder / "shards"}"\nrounds = 4\n'
            f'device = "{self.device.type}"\n[model]\nname = "{model}"\n'
            f"[local]\nlr = 0.05\nbatch_size = 10\n{'' if way == 'plain' else f'{way} = true'}\n"
            f"[evaluate]\nsilos = false\n[checkpoint]\nevery = {NEVER}\n"
        )
        try:
            train_on_ranks(job, run, workers + 1, LIMIT)
        except SystemExit as error:
            print(error, file=sys.stderr)
            return [("failed", 1.0)]
        last = metrics(run)[1:]
        parts = ("seconds", "seconds_training", "seconds_evaluation", "seconds_communication")
        return [(part, statistics.median(line[part] for line in last)) for part in parts]


def asked(model: FlatModel, data: Batches, start: torch.Tensor, local: LocalTraining, seed: int) -> Training:
    """Return a training of images."""
    loss = Loss(
        CLASSIFICATION.objective,
        of_outputs=CLASSIFICATION.mean_loss,
        weighted=CLASSIFICATION.weighted_objective,
    )
    return Training(model, data, start, local, loss, torch.Generator().manual_seed(seed))


HERE = ("steps", "batched", "sums", "copies", "scores", "codecs", "rounds")
SECTIONS: dict[str, Callable[[Bench], Rows]] = {
    **{name: getattr(Bench, name) for name in HERE},
    "launches": gpu_steps.launches,
    "private": gpu_steps.private,
    "memory": gpu_steps.memory,
    "lora": gpu_steps.lora,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (all)")
    parser.add_argument("--device", default="gpu", help="as in a job (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="the first figure of each section alone")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"{', '.join(sorted(unknown))}: the sections are {', '.join(SECTIONS)}")
    torch.set_num_threads(1)
    try:
        bench = Bench(device_of(options.device, 0, True), silos=8 if options.quick else 100)
    except InputError as error:
        parser.error(str(error))
    name = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else str(bench.device)
    print(f"{name}, torch {torch.__version__}, {bench.data}")
    result: dict[str, Any] = {"device": name, "torch": torch.__version__}
    missing = False
    for section in options.sections or SECTIONS:
        began, result[section] = time.perf_counter(), {}
        print(section)
        try:
            for what, figure in itertools.islice(SECTIONS[section](bench), 1 if options.quick else None):
                result[section][what] = figure
                print(f"  {what:60} {figure:12.3f}", flush=True)
                if options.json:
                    options.json.write_text(json.dumps(result, indent=1) + "\n")
        except gpu_steps.NotHere as error:
            missing = True
            print(f"  not here: {error}", flush=True)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    if missing:
        sys.exit(77)


if __name__ == "__main__":
    main()
