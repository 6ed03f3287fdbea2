"""The steps of a day on a GPU: a program each, which writes its figures as they come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "scripts" / "bench"
NOT_HERE = 77
"""The exit code of a program that cannot run on this machine; its last line says why."""
Figures: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a step runs.

    Attributes:
        device: As a job's `device`.
        quick: Whether the short form is asked for.
        figures: The JSON file for what a step finds.
    """

    device: str
    quick: bool
    figures: Path

    def program(self, module: str) -> list[str]:
        """Return the command of a program of this package."""
        return [sys.executable, "-m", f"scripts.gpu_day.{module}", *self._told(self.device)]

    def bench(self, name: str, *words: str, device: str | None = None) -> list[str]:
        """Return the command of a benchmark."""
        told = self._told(device or self.device)
        return [sys.executable, "-W", "ignore", str(BENCH / f"{name}.py"), *words, *told]

    def _told(self, device: str) -> list[str]:
        return ["--device", device, "--json", str(self.figures), *["--quick"] * self.quick]


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: What the command line calls it.
        about: What it finds out.
        seconds: When it is cut.
        command: Its program.
        read: The figures by name, of what the program has written.
    """

    name: str
    about: str
    seconds: int
    command: Callable[[Place], list[str]]
    read: Callable[[Figures], Figures] = dict


def _own(module: str, about: str, seconds: int, read: Callable[[Figures], Figures] = dict) -> Step:
    return Step(module.split("_")[0], about, seconds, lambda place: place.program(module), read)


def _section(name: str, about: str, seconds: int = 200) -> Step:
    return Step(name, about, seconds, lambda place: place.bench("gpu", name), lambda told: told.get(name, {}))


def _beside(job: str, *more: str) -> Step:
    words = ["--job", job, "--rounds", "10", "--repeats", "3"]
    also = [word for settings in more for word in ("--also", settings)]

    def command(place: Place) -> list[str]:
        """A bare loop knows no other device than CUDA's, by which name ROCm goes, too."""
        if place.quick:
            return place.bench("round_overhead", *words, device="cpu")
        return place.bench("round_overhead", *words, *also, device="cuda")

    about = f"rounds of {job} beside a bare loop of PyTorch on the same device"
    return Step(job, about, 300, command, _ratios)


def _ratios(told: Figures) -> Figures:
    """Return each side's seconds of a round as a ratio to the bare loop's: the median, and its extremes."""
    found: Figures = {}
    for side, own in told["jobs"][0]["ratios"].items():
        found[f"{side}: ratio to bare"] = own["ratio"]
        found[f"{side}: from, to"] = f"{own['low']:.3f}, {own['high']:.3f}"
    return found


def _counted(told: Figures) -> Figures:
    """Return how many tests passed and were skipped, and each other outcome by its test."""
    usual = [str(outcome).partition(":")[0] for outcome in told.values()]
    counts = {kind: usual.count(kind) for kind in ("passed", "skipped") if kind in usual}
    return {**counts, **{name: one for name, one in told.items() if str(one).partition(":")[0] not in counts}}


COMPILED, BATCHED = "local.compile=true", "local.batch_silos=true"
STEPS = [
    _own("machine", "what machine this is", 60),
    _own("bits_of_ranks", "models of 1, 3 and 5 ranks on one GPU, and of 3 ranks once more", 400),
    _own("tests_on_device", "tests that need a GPU", 550, _counted),
    _section("launches", "what a step starts on the device"),
    _section("steps", "microseconds of a local step, plain, compiled and captured", 300),
    _section("batched", "microseconds of a silo's step, where silos train together", 300),
    _beside("J1", COMPILED, BATCHED),
    _beside("J2", COMPILED),
    _beside("J3", COMPILED, BATCHED),
    _section("copies", "GB/s of copies, from locked and from pageable memory"),
    _section("sums", "exact sums"),
    _section("scores", "scoring of 10,000 images"),
    _section("codecs", "codecs on 11 million numbers"),
    _section("private", "steps of DP-SGD"),
    _section("memory", "memory of the device at the peak of a training"),
    _section("lora", "adapters of a small GPT-2 in bf16"),
    _section("rounds", "seconds of rounds of 100 silos, by workers that share the GPU", 550),
    _own("mps_rounds", "the same under CUDA's MPS, whose daemon this step starts and ends", 550),
    _own("sanitized", "compute-sanitizer over one round", 400),
]
