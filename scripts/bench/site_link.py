"""How fast a letter with a large model goes over a folder, beside the same bytes by the disk alone.

    python scripts/bench/site_link.py --folder /a/disk --gb 2 --json result.json

A coordinator asks a site: the vectors are sealed into the outbox, put on the link and opened at the site. In
turns with it the same bytes are written to one file, flushed to the disk and read again. All files lie in the
folder given. Outbox and link lie on one disk here; at sites the synchroniser may have another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch
from common import ROOT, advise, middle, save

sys.path.insert(0, str(ROOT / "tests"))

from links import two_ends

from mpifl.wire import Compute

TARGET = 0.7
STEP = 1 << 20
"""What the disk is written and read by at a time: larger steps took up to five times the processor's time."""


def over_the_link(folder: Path, vector: torch.Tensor, n: int) -> dict[str, float]:
    """Return the seconds of each step of a letter's way, in all, and of the processor."""
    ends = two_ends.TwoEnds(folder)
    request = Compute(work="train", round=n, cohort=[0], serial=n)
    record = two_ends.ask().model_copy(update={"request": request})
    steps, busy = [time.perf_counter()], time.process_time()
    sealed = ends.coordinator.seal(n, record, {"w": vector})
    steps.append(time.perf_counter())
    ends.coordinator.put(sealed)
    steps.append(time.perf_counter())
    letter = ends.site.newest("ask", after=n - 1)
    steps.append(time.perf_counter())
    assert letter is not None
    assert torch.equal(letter.vectors["w"], vector)
    names = ("seal", "put", "open")
    found = {name: end - start for name, start, end in zip(names, steps, steps[1:], strict=False)}
    return {**found, "link": steps[-1] - steps[0], "processor": time.process_time() - busy}


def by_the_disk(folder: Path, vector: torch.Tensor) -> float:
    """Return the seconds to write the same bytes, to have them on the disk, and to read them."""
    content, path = memoryview(vector.numpy()).cast("B"), folder / "plain"
    back = bytearray(STEP)
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(content), STEP):
            file.write(content[at : at + STEP])
        os.fsync(file.fileno())
    with path.open("rb", buffering=0) as file:
        while file.readinto(back):
            pass
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    vector = torch.randn(int(given.gb * 1e9) // 4)
    two_ends.LARGEST = 5 * len(vector)
    timed: list[dict[str, float]] = []
    for n in range(1, given.repeats + 1):
        at = Path(tempfile.mkdtemp(dir=given.folder))
        try:
            disk = by_the_disk(at, vector)
            (at / "plain").unlink()
            timed.append({"disk": disk, **over_the_link(at, vector, n)})
        finally:
            shutil.rmtree(at)
        print("  ".join(f"{name} {seconds:.2f} s" for name, seconds in timed[-1].items()), flush=True)
    ratios = [one["disk"] / one["link"] for one in timed]
    ratio, spread = middle(ratios)
    print(f"{given.gb:g} GB: the link at {ratio:.2f} of the disk's speed (target {TARGET})")
    print(f"on {os.cpu_count()} cores, for which {os.getloadavg()[0]:.1f} processes wait")
    advise(spread)
    if given.json:
        save(given.json, {"timed": timed, "ratios": ratios})


if __name__ == "__main__":
    main()
