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
TEXTS = "".join(f'{{"text": "{"ab" * (1 + n * 7 % 23)}"}}\n' for n in range(60))
LINES = ["jsonl", "--data", "texts.jsonl", "--scheme", "iid", "--silos", "3"]
RAGGED = ["--option", "ragged=true", "--option", "length=40"]
DIGITS = ["digits", "--scheme", "dirichlet", "--alpha", "0.5", "--silos"]
SHARDS = {
    "digits": [*DIGITS, "4"],
    "many": [*DIGITS, "7", "--test", "0.2", "--public", "0.1"],
    "few": [*DIGITS, "2"],
    "columns": ["digits", "--scheme", "vertical", "--silos", "3", "--label-silo", "1", "--valid", "0.1"],
    "volumes": ["volumes:examples", "--scheme", "natural"],
    "values": ["scored:values", "--scheme", "iid", "--silos", "3"],
    "ragged": [*LINES, *RAGGED, "--test", "0.3"],
    "read": [*LINES, *RAGGED, "--option", "test=held.jsonl"],
    "texts": [*LINES, "--test", "0.2", "--option", "length=16"],
}


def fingerprints(tree: Path, folder: Path) -> dict[str, str]:
    """Train the suite's jobs with the code of a checkout, on one rank; return two sha256 for each job."""
    paths = [str(tree), str(tree / "tests" / "mpi"), str(ROOT / "tests" / "mpi")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def python(*arguments: object, check: bool = True) -> None:
        command = [sys.executable, *map(str, arguments)]
        subprocess.run(command, check=check, cwd=folder, env=environment, stdout=subprocess.DEVNULL)

    (folder / "texts.jsonl").write_text(TEXTS)
    (folder / "held.jsonl").write_text("".join(TEXTS.splitlines(keepends=True)[:23]))
    for name, given in SHARDS.items():
        cut = ["-m", "data_prep", "partition", *given, "--seed", "7"]
        # an earlier checkout knows not all such shards, and has no job on them
        python(*cut, "--out", folder / "shards" / name, check=given[:1] == ["digits"])
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
