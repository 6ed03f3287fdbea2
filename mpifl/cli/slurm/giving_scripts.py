"""Giving a batch script to sbatch, or having SLURM look at it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from mpifl.cli.slurm.batch_script import is_edited
from mpifl.cli.slurm.cluster import ask, check_not_queued
from mpifl.common import InputError, write_atomic


def submit_script(path: Path, script: str) -> str:
    """Write a script and give it to sbatch; return the job's number."""
    if not shutil.which("sbatch"):
        raise InputError(
            "sbatch: not on the PATH; submit on a login node of a SLURM cluster, or look with --dry-run"
        )
    check_not_queued(path)
    before = path.read_bytes() if path.exists() else None
    _write(path, script.encode())
    if before is not None and before != script.encode() and is_edited(before):
        kept = path.with_name(f"{path.stem}.edited-{hashlib.sha256(before).hexdigest()[:8]}.sbatch")
        _write(kept, before)
        print(f"{path}: was edited, and is kept as {kept}; a new one is submitted", file=sys.stderr)
    try:
        return _sbatch(script=script, out=path.with_suffix(""), path=path)
    except InputError:
        path.unlink() if before is None else _write(path, before)
        raise


def _sbatch(*options: str, script: str, out: Path, path: Path | None = None) -> str:
    """Give a script to sbatch, by its file if it has one; return the job's number, or "" for a test.

    Raises:
        InputError: SLURM refuses it.
    """
    command = ["sbatch", "--parsable", *options, *([str(path)] if path else [])]
    asked = subprocess.run(command, input=None if path else script, capture_output=True, text=True)
    number = asked.stdout.strip().partition(";")[0]  # "12;cluster" if there are several clusters
    if asked.returncode or not (number or options):
        said = [line.strip() for line in asked.stderr.splitlines() if line.strip()]
        why = (
            "; ".join(dict.fromkeys(one.removeprefix("sbatch: error: ") for one in said))
            or f"sbatch says nothing, exit code {asked.returncode}"
        )
        names = dict.fromkeys(name.rstrip("*") for name in ask("sinfo", "-h", "-o", "%P").split())
        there = f"; the partitions are {', '.join(names)}" if "partition" in why and names else ""
        raise InputError(f"{out}: refused: {why}{there}")
    return number


def _write(path: Path, script: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, script)
    except OSError as error:
        what = f"cannot be written ({error.strerror}); name another run folder by --out"
        raise InputError(f"{path}: {what}") from None


def look_through(script: str, out: Path) -> None:
    """Have SLURM look at a script, or tell that it does not answer."""
    if ask("sinfo", "-h"):
        _sbatch("--test-only", script=script, out=out)
    else:
        print("SLURM does not answer here: it has not looked at this script", file=sys.stderr)
