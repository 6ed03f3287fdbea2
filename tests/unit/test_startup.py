"""What a command imports before it can answer: starting stays fast as long as nothing heavy slips in."""

import subprocess
import sys

import pytest
from conftest import ROOT, launcher, rank_environment

HEAVY = {"torch", "numpy", "h5py", "mpi4py", "matplotlib", "safetensors"}
RUN = """
import runpy, sys
try:
    runpy.run_module("mpifl", run_name="__main__", alter_sys=True)
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(*arguments):
    """The packages that `mpifl ARGUMENTS` has imported at its end."""
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=rank_environment(), timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["train", "--help"]], ids=" ".join)
def test_help_imports_nothing_that_takes_long(arguments):
    found = imported(*arguments)
    assert "typer" in found
    assert not found & HEAVY


def test_the_benchmark_tells_the_parts_of_a_start_and_that_nothing_heavy_is_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))
    import common
    import startup

    monkeypatch.setattr(startup, "MPIRUN", launcher())
    monkeypatch.setattr(startup, "ENVIRONMENT", rank_environment())
    common.write_silos(tmp_path / "shards", *common.images(40)[:2], 2)
    for nth, optimizer in enumerate(("sgd", "adam")):
        common.write_job(tmp_path / "job.toml", tmp_path / "shards", 1, {"name": "logreg"}, optimizer=optimizer)
        told = startup.start(tmp_path, 2, nth)
        assert told["heavy"] == []
        parts = [told[part] for part in ("imports", "to first round", "first round")]
        assert min(parts) > 0
        assert sum(parts) < startup.LIMIT
