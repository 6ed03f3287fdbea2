"""Silos that are suspected: as a run tells it round by round, resumed or not."""

from __future__ import annotations

import json

import pytest
from unit.builders import Alone, write_folder

from mpifl.report.judging import Suspicion
from mpifl.training.loop import train
from mpifl.wings import wings_of


def test_who_is_suspected_goes_by_its_own_last_five_rounds():
    suspicion = Suspicion("rfa")
    little = {"weights": {"2": 0.1, "10": 0.1, "7": 0.9}}
    assert [suspicion.see(little) for _ in range(5)] == [[]] * 4 + [["2", "10"]]
    assert suspicion.see({"weights": {"7": 0.5, "10": 0.5}}) == ["2"], "who was not asked is as it was"
    assert suspicion.see({"weights": {"2": 0.5, "7": 0.5}}) == []
    assert suspicion.see({"weights": [1, 2], "outside": "x"}) == [], "what a file of others' may hold"


@pytest.mark.parametrize("rule", ["trimmed", "rfa"])
def test_suspected_silos_are_told_in_each_round_as_if_a_run_never_stopped(tmp_path, capsys, rule):
    write_folder(tmp_path / "shards", [20] * 7)
    job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 6, "device": "cpu"}
    job |= {"model": {"name": "mlp", "hidden": [30]}, "local": {"lr": 0.1}}
    job |= {"cohort": {"weights": "uniform"}, "aggregation": {"rule": rule}}
    job["aggregation"] |= {"byzantine": 2} if rule == "trimmed" else {}
    job["attack"] = {"kind": "gaussian", "silos": [2], "std": 30.0}
    job["tracking"] = {"console": "always"}

    def run(name, rounds, resume=False):
        train({**job, "rounds": rounds}, tmp_path / name, (), resume, Alone(), wings_of=wings_of)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["suspected"] for line in lines]

    whole = run("whole", 6)
    assert whole == [[]] * 4 + [["2"]] * 2
    assert "  suspected silo 2\n" in capsys.readouterr().out
    run("stopped", 3)
    with (tmp_path / "stopped" / "metrics.jsonl").open("a") as file:  # of a round after the last checkpoint
        file.write((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines(keepends=True)[3])
    assert run("stopped", 6, resume=True) == whole
