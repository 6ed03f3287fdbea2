"""Commands of data_prep run in a process that may take little time and memory."""

import atexit
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from conftest import ROOT, rank_environment

SECONDS, MEMORY = 60, 3 << 30
"""Of the processor, and bytes, that a command may take; torch is not imported."""


@functools.cache
def forking():
    """Return the process that starts the commands; it ends with this one."""
    command = [sys.executable, Path(__file__).with_name("forks.py")]
    process = subprocess.Popen(
        command, cwd=ROOT, env=rank_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def refused(*words):
    """Run a module in a process with limits, and return the one line that it says, with exit code 2."""
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        told = {"words": [*map(str, words)], "seconds": SECONDS, "memory": MEMORY}
        process = forking()
        process.stdin.write(json.dumps({**told, "out": out.name, "err": err.name}) + "\n")
        process.stdin.flush()
        code, said = int(process.stdout.readline()), err.read()
        assert (code, out.read()) == (2, ""), said[-2000:]
    assert said.count("\n") == 1, said
    assert said.startswith("error: ")
    assert len(said) < 1000
    return said


def partitioned(tmp_path, source, data, *more):
    """Return the line that refuses a source's data."""
    words = ("data_prep", "partition", source, "--data", data, "--out", tmp_path / "out", *more)
    said = refused(*words, "--scheme", "iid", "--silos", 2)
    assert not (tmp_path / "out").exists()
    return said
