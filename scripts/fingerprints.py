"""The sha256 of what every job of the suite trains to, so that a change of one bit is seen.

    python -m scripts.fingerprints                      a line a job: its name, model, last checkpoint
    python -m scripts.fingerprints --tree OTHER         compares with what another checkout trains here to

The bits belong to one processor and one version of PyTorch: a list is only good on the machine that made it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests" / "mpi"
sys.path.append(str(TESTS))

import suite_shards  # noqa: E402


def fingerprints(tree: Path, folder: Path) -> dict[str, str]:
    """Train the suite's jobs with the code of a checkout, on one rank; return two sha256 for each job."""
    paths = [str(tree), str(tree / "tests" / "mpi"), str(TESTS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def python(*arguments: object, check: bool = True) -> None:
        command = [sys.executable, *map(str, arguments)]
        subprocess.run(command, check=check, cwd=folder, env=environment, stdout=subprocess.DEVNULL)

    suite_shards.write_lines(folder)
    for name, asked in suite_shards.requests(folder).items():
        # an earlier checkout knows not all such shards, and has no job on them
        python("-m", "data_prep", *asked, "--out", folder / "shards" / name, check="digits" in asked)
    python(tree / "tests" / "mpi" / "drive.py", folder / "shards", folder / "runs")
    runs = sorted(path.parent for path in (folder / "runs").glob("*/model.safetensors"))
    return {run.name: f"{sha256(run / 'model.safetensors')} {kept(run)}" for run in runs}


def kept(run: Path) -> str:
    """Return one digest of the server's and all silos' files in the last checkpoint."""
    if not (folders := sorted((run / "checkpoints").glob("round_*"))):
        return "-"
    body = json.loads((folders[-1] / "checkpoint.json").read_text())
    return hashlib.sha256(json.dumps([body["server"], body["silos"]], sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, help="another checkout, to compare with")
    other = parser.parse_args().tree
    with tempfile.TemporaryDirectory() as scratch:
        made = {}
        for name, tree in {"here": ROOT, **({"there": other.resolve()} if other else {})}.items():
            (Path(scratch) / name).mkdir()
            made[name] = fingerprints(tree, Path(scratch) / name)
    here, there = made["here"], made.get("there", made["here"])
    for job in sorted(here.keys() | there.keys()):
        same = here.get(job) == there.get(job)
        print(
            f"{job}  {here.get(job, 'missing here')}"
            + ("" if same else f"  DIFFERS from {there.get(job, 'nothing')}")
        )
    differing = sum(here.get(job) != there.get(job) for job in here.keys() | there.keys())
    if other:
        print(f"{len(here)} jobs, {differing} differ")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
