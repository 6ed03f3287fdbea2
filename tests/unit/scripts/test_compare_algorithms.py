"""The comparison of the algorithms: its runs, what is counted of them, and its pictures, on tiny data."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from unit.builders import write_folder

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture
def scripts(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.chdir(tmp_path)


def rows_of(text):
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_a_quick_comparison_has_a_row_and_a_line_for_each_and_is_drawn_alike_again(scripts, tmp_path, capsys):
    from compare_algorithms import main

    given = ["--data", "mnist", "--quick", "--only", "fedavg", "ditto", "scaffold", "--at-a-time", "1"]
    main([*given, "--figures", str(tmp_path / "one")])
    reached, costs = map(rows_of, capsys.readouterr().out.split("\n\n")[1:3])
    assert [row["algorithm"] for row in reached] == ["FedAvg", "SCAFFOLD II", "Ditto"]
    assert all(0 <= float(row["test accuracy %"]) <= 100 for row in reached)
    wire = [(row["sent to a silo"], row["a silo sends"]) for row in costs]
    assert wire == [("1.00", "1.00"), ("2.00", "2.00"), ("1.00", "1.00")]
    assert [row["kept at a silo"] for row in costs] == ["0.00", "1.00", "1.00"]
    assert [row["kept at the server"] for row in costs] == ["1.00", "2.00", "1.00"]
    assert int(costs[2]["steps of a silo"]) == pytest.approx(2 * int(costs[0]["steps of a silo"]), abs=1)
    main([*given, "--figures", str(tmp_path / "two")])  # reads the runs that there are
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["algorithms-bytes.svg", "algorithms-rounds.svg", "algorithms-silos.svg"]
    for name in names:
        drawn = (tmp_path / "one" / name).read_bytes()
        assert drawn == (tmp_path / "two" / name).read_bytes()
        assert len(drawn) < 100_000
        assert {b"FedAvg", b"Ditto", b"SCAFFOLD II"} <= set(re.findall(rb">(\w[\w ]*)</text>", drawn))


def test_steps_are_those_that_were_taken_and_what_was_lost_is_not_run_again(scripts, tmp_path):
    from algorithm_tables import steps
    from compare_algorithms import DATA, QUICK_ROUNDS, train, train_all

    fixed = (
        f"shards={DATA['mnist'].partition(3, quick=True)}",
        "tracking.console=false",
        f"rounds={QUICK_ROUNDS}",
    )
    jobs = ROOT / "jobs" / "algorithms"
    even = ("local.momentum=0.0", "local.epochs=2", 'cohort.weights="uniform"')
    counted = (jobs / "mnist-fednova.toml", tmp_path / "counted", (*fixed, *even))
    diverges = (jobs / "mnist-fedavg.toml", tmp_path / "lost", (*fixed, "local.lr=1e30"))
    well, lost = train_all([counted, diverges], 1)
    assert well == ""
    assert "was lost" in lost
    taken = [
        json.loads(line)["tau_eff"]
        for line in (tmp_path / "counted" / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps(tmp_path / "counted") == [2 * mean for mean in taken]  # of two silos
    written = (tmp_path / "lost" / "environment.json").stat().st_mtime_ns
    assert lost.startswith(train(diverges))
    assert (tmp_path / "lost" / "environment.json").stat().st_mtime_ns == written


def test_a_job_that_was_changed_since_is_a_line(scripts, tmp_path, capsys):
    from compare_algorithms import train_all

    from mpifl.run.folder.run_folder import claim_run
    from mpifl.run.job.job import read_job

    job = ROOT / "jobs" / "algorithms" / "mnist-fedavg.toml"
    fixed = (f"shards={write_shards(tmp_path / 'shards')}", "tracking.console=false", "rounds=1")
    claim_run(tmp_path / "run", read_job(job, (*fixed, "seed=9")))
    with pytest.raises(SystemExit) as end:
        train_all([(job, tmp_path / "run", fixed)], 1)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/run: is a run of another job, it differs in seed; ")


def write_shards(folder):
    write_folder(folder, [4])
    return folder


def test_without_the_data_it_is_a_line(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "MPIFL_DATA"}
    command = [sys.executable, ROOT / "scripts" / "compare_algorithms.py", "--data", "mnist"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=180)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("error: --data: not given")
