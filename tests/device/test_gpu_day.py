"""The day on a GPU, in its short form: on the fake accelerator, where it is cut and goes on."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, launcher, python, rank_environment, warm_executable

HERE = Path(__file__).parent
SLOW = bool(os.environ.get("MPIFL_SLOW"))
SHORT = ["machine", *["bits"] * SLOW, "tests", "launches"]
"""Models of ranks that start cold take half the time of all: by MPIFL_SLOW=1."""


@pytest.fixture
def day(library, tmp_path):
    """Run the short form where torch finds the fake accelerator, and return its answer and its figures."""
    (tmp_path / "sitecustomize.py").write_text("import fake\n")
    told = {
        **os.environ,
        "FAKE_LIBRARY": str(library),
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, HERE, ROOT))),
        "MPIFL_MPIRUN": shlex.join(launcher()),
    }

    def run(*words, env=told):
        command = [sys.executable, "-m", "scripts.gpu_day", "--quick", "--out", str(tmp_path / "day"), *words]
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=400, check=False
        )
        path = tmp_path / "day" / "gpu_day.json"
        return done, json.loads(path.read_text()) if path.exists() else {}

    return run


def test_a_day_is_cut_and_goes_on_with_what_is_left(day, tmp_path):
    done, told = day("--minutes", "0.26", *SHORT)
    assert done.returncode == 0, done.stdout + done.stderr
    first = told["steps"]
    assert set(first) < set(SHORT), "a step takes a second at least, and none begins in the last 15"
    assert first["machine"]["state"] == "done"
    assert first["machine"]["figures"]["device"] == "fake:0"

    done, told = day(*(SHORT if not SLOW else []))
    assert done.returncode == 0, done.stdout + done.stderr
    steps = told["steps"]
    assert steps["machine"] == first["machine"], "what is done stays done"
    assert {steps[name]["state"] for name in SHORT} == {"done"}
    assert steps["tests"]["figures"]["skipped"] > 30, "they wait for CUDA"
    assert steps["launches"]["figures"]["2nn, plain: operations a step"] > 10
    page = (tmp_path / "day" / "gpu_day.md").read_text()
    assert "| device | fake:0 |" in page
    if SLOW:
        (bits,) = steps["bits"]["figures"].values()
        assert bits.startswith("one sha256: ")
        assert bits.endswith(" on 1, 3 ranks")
        assert bits in page

    done, _ = day("--device", "cpu", *SHORT, env=None)
    assert done.returncode == 2
    assert "has the figures of another device or form; name another folder" in done.stderr
    done, _ = day("stpes", env=None)
    assert (done.returncode, "stpes: the steps are machine, bits, tests, " in done.stderr) == (2, True)


def test_models_of_ranks_have_one_sha256(tmp_path):
    """Here on the processor; that ranks on an accelerator have the bits of one is a test of its worlds."""
    file = tmp_path / "bits.json"
    words = ["-m", "scripts.gpu_day.bits_of_ranks", "--device", "cpu", "--quick", "--json", str(file)]
    told = rank_environment(WARM_PYTHON=warm_executable(), MPIFL_MPIRUN=shlex.join(launcher()))
    done = subprocess.run(
        [*python(), *words], cwd=ROOT, env=told, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (bits,) = json.loads(file.read_text()).values()
    assert bits.startswith("one sha256: ")
    assert bits.endswith(" on 1, 3 ranks")


CONTROL = """#!/bin/sh
[ "$1" = -d ] && echo begun >> "$CUDA_MPS_TOLD" && exit
cat >> "$CUDA_MPS_TOLD"
"""


def test_a_step_that_is_cut_ends_the_daemon_that_it_has_begun(tmp_path):
    """No GPU is here, so a script stands in for the control program of MPS."""
    control, told = tmp_path / "nvidia-cuda-mps-control", tmp_path / "told"
    control.write_text(CONTROL)
    control.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    words = ["--device", "cpu", "--quick", "--json", str(tmp_path / "rounds.json")]
    step = subprocess.Popen(
        [sys.executable, "-m", "scripts.gpu_day.mps_rounds", *words],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "CUDA_MPS_TOLD": str(told)},
        start_new_session=True,
    )
    for _ in range(600):
        if told.exists():
            break
        time.sleep(0.1)
    os.killpg(step.pid, signal.SIGTERM)
    step.wait(180)
    assert told.read_text().split() == ["begun", "quit"]
