"""The energy that this machine takes, from the counters of its processors and GPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
ENERGY = {
    "joules_processors": "joules, processors of the server's machine",
    "joules_gpus": "joules, GPUs of the server's machine",
}
"""The figures that a meter gives, and what they are."""


class EnergyCounter(NamedTuple):
    """A counter of energy."""

    figure: str
    """The key of `ENERGY` that it adds to."""
    unit: float
    """The joules of 1."""
    values: int
    """How many values it takes before it begins anew at 0."""
    read: Callable[[], int | None]
    """Returns its value; None where it cannot be read."""


class EnergyMeter:
    """Tells what the whole machine takes between two readings, other programs' part with it.

    The processors' packages count in Linux's powercap (RAPL of Intel and AMD), which many systems show to
    root alone. GPUs count in NVIDIA's NVML, which the package `nvidia-ml-py` reads where it is installed.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._counters = [one for one in (*_packages(root), *_gpus()) if one.read() is not None]
        self._last = [one.read() for one in self._counters]

    def spent(self) -> dict[str, float]:
        """Return the joules since the last call, by keys of `ENERGY`; a key is left out where a counter
        cannot be read.

        A package's counter begins anew after some 262 kJ, which is 20 minutes at 200 W. Of a longer time it
        tells the rest alone.
        """
        now = [one.read() for one in self._counters]
        found: dict[str, float] = {}
        unread = set()
        for counter, before, value in zip(self._counters, self._last, now, strict=True):
            if before is None or value is None:
                unread.add(counter.figure)
                continue
            joules = (value - before) % counter.values * counter.unit
            found[counter.figure] = found.get(counter.figure, 0.0) + joules
        self._last = now
        return {key: joules for key, joules in found.items() if key not in unread}


def _packages(root: Path) -> Sequence[EnergyCounter]:
    """Return a counter for each package of processors; some are there twice, by two ways to read them."""
    found: dict[str, EnergyCounter] = {}
    for zone in sorted((root / "sys/class/powercap").glob("*:*")):
        name, largest = _text(zone / "name"), _number(zone / "max_energy_range_uj")
        if name.startswith("package") and largest:
            found.setdefault(name, _package(zone / "energy_uj", largest))
    return [*found.values()]


def _package(path: Path, largest: int) -> EnergyCounter:
    return EnergyCounter("joules_processors", 1e-6, largest + 1, lambda: _number(path))


def _gpus() -> Sequence[EnergyCounter]:
    """Return a counter for each GPU that NVML shows."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(nth) for nth in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no package, no driver, or one that does not answer: there is nothing to read
        return []

    def gpu(handle: object) -> EnergyCounter:
        def read() -> int | None:
            with contextlib.suppress(pynvml.NVMLError):
                return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
            return None

        return EnergyCounter("joules_gpus", 1e-3, 1 << 64, read)

    return [gpu(handle) for handle in handles]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
