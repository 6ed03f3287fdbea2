"""A sweep on several ranks: every run by the launcher, stopped and gone on with."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from conftest import ROOT, launcher, rank_environment, ranks
from faults.processes import Command
from scenarios import job


@pytest.mark.slow
def test_a_sweep_under_mpirun_stops_goes_on_and_compares(digits: Path, tmp_path: Path) -> None:
    shards = f"shards={digits / 'many'}"
    words = [
        "-m",
        "mpifl",
        "sweep",
        str(ROOT / "jobs" / "demo.toml"),
        "--set",
        "local.lr=0.05,0.1",
        "--set",
        shards,
    ]
    words += ["--set", "rounds=150", "--set", "tracking.console=false", "--out", "sw", "--ranks", "3"]
    environment = rank_environment(MPIFL_MPIRUN=" ".join(launcher()))
    with (tmp_path / "out").open("wb") as out:
        stopped = subprocess.Popen(
            [sys.executable, *words], cwd=tmp_path, env=environment, stdout=out, stderr=out
        )
    first, deadline = tmp_path / "sw" / "local.lr=0.05", time.monotonic() + 180
    while not ((first / "metrics.jsonl").exists() and (first / "metrics.jsonl").stat().st_size):
        assert time.monotonic() < deadline, (tmp_path / "out").read_text()
        time.sleep(0.02)
    os.kill(stopped.pid, signal.SIGINT)
    assert stopped.wait(180) == 75, (tmp_path / "out").read_text()
    assert "the same command continues" in (tmp_path / "out").read_text()
    done = len((first / "metrics.jsonl").read_text().splitlines())
    assert 0 < done < 150
    finished = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "sw/local.lr=0.1" in finished.stdout
    about = json.loads((first / "environment.json").read_text())
    assert (len(about["ranks"]), about["resumed_after_round"]) == (3, done)
    compared = ranks(
        1, "-m", "mpifl", "compare", *sorted((tmp_path / "sw").glob("*=*/")), "--csv", tmp_path / "c.csv"
    )
    assert compared.returncode == 0, compared.stderr
    lines = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert [(line["local.lr"], line["rounds_done"], line["finished"]) for line in lines] == [
        ("0.05", "150.0", "true"),
        ("0.1", "150.0", "true"),
    ]
    assert all(float(line["test_accuracy"]) > 0.9 for line in lines)
    page = ranks(1, "-m", "mpifl", "report", first)
    assert page.stdout == f"report: {first / 'report.html'}\n"


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_second_signal_ends_a_sweep_and_its_ranks_at_once(n: int, digits: Path, tmp_path: Path) -> None:
    held = {"algorithm": {"name": "plugins:Steady"}, "model": {"name": "plugins:perceptron"}}
    table = job("held", shards=str(digits / "many"), **held)
    (tmp_path / "held.toml").write_text(tomli_w.dumps(table))
    words = ["-m", "mpifl", "sweep", str(tmp_path / "held.toml"), "--set", "tracking.console=false"]
    words += ["--out", "sw", "--ranks", str(n)]
    # ranks that no signal has reached are held for as long as the test lasts, and are killed in the end
    with Command(tmp_path / "command", 1, *words, trouble={"hold": 1}) as command:
        about = command.reached().folder / "sw" / "held" / "environment.json"
        processes = [Path("/proc") / rank["pid"] for rank in json.loads(about.read_text())["ranks"].values()]
        assert len(processes) == n
        os.kill(command.session, signal.SIGINT)
        command.wait(0.5)  # the first asks for a checkpoint after the round, which takes for ever
        assert command.ended is None
        os.kill(command.session, signal.SIGINT)
        assert command.end(20).code == 75
        deadline = time.monotonic() + 180
        while any(process.exists() for process in processes):
            assert time.monotonic() < deadline, "ranks live on"
            time.sleep(0.05)
