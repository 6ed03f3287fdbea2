"""Commands run in a process that may take little time and memory."""

import resource
import subprocess
import sys

from conftest import ROOT

SECONDS, MEMORY = 60, 3 << 30


def limited():
    """Let no command take more processor time or memory than these; torch is not imported here."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def refused(*words, **more):
    """Run a command in a process with limits, and return the one line that it says, with exit code 2."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(
        command, cwd=ROOT, preexec_fn=limited, capture_output=True, text=True, check=False, **more
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr) < 1000
    return done.stderr


def partitioned(tmp_path, source, data, *more):
    """Return the line that refuses a source's data."""
    words = ("-m", "data_prep", "partition", source, "--data", data, "--out", tmp_path / "out", *more)
    said = refused(*words, "--scheme", "iid", "--silos", 2)
    assert not (tmp_path / "out").exists()
    return said
