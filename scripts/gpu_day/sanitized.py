"""Train a round under NVIDIA's compute-sanitizer, which looks at each access to the device's memory."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tomli_w

from scripts.gpu_day.reporting import Noted, arguments, not_here
from scripts.gpu_day.steps import BENCH, ROOT

sys.path.insert(0, str(BENCH))

from common import images, write_silos

WAYS = {"plain": {}, "compiled": {"compile": True}}


def main() -> None:
    given = arguments(__doc__)
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        not_here("compute-sanitizer is not on the path")
    noted, bad = Noted(given.json), 0
    with tempfile.TemporaryDirectory(prefix="mpifl-gpu-") as scratch:
        folder = Path(scratch)
        x, y, _ = images(40)
        write_silos(folder / "shards", x, y, 2, (x, y))
        for name, settings in WAYS.items():
            local = {"lr": 0.05, "batch_size": 10, **settings}
            job = {"name": "one", "shards": str(folder / "shards"), "rounds": 1, "device": given.device}
            (folder / "job.toml").write_text(tomli_w.dumps({**job, "model": {"name": "2nn"}, "local": local}))
            watched = [tool, "--error-exitcode", "99", sys.executable, "-m", "mpifl", "train"]
            words = [*watched, str(folder / "job.toml"), "--out", str(folder / name)]
            ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
            summary = re.findall(r"ERROR SUMMARY: .*", ended.stdout + ended.stderr) or ["no summary"]
            noted.add(name, f"{summary[-1]}; exit code {ended.returncode}")
            bad += ended.returncode != 0
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
