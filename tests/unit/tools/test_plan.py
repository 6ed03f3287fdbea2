"""What a plan says before a job is trained, held against what the training moves."""

import json
import os

import tomli_w
from unit.builders import Alone

from mpifl.cli.plan.played_rounds import play
from mpifl.common.errors import InputError, RoundLost
from mpifl.run.job.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.jobs_at_random.draw import Draws, cells
from scripts.jobs_at_random.federations import make

JOBS, LONGEST = 20 if os.environ.get("MPIFL_SLOW") else 5, 48
"""How many jobs are compared; the most bytes by which digits make a state's file shorter than planned."""


def records_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def files(run):
    """Return the bytes of the server's file of the last checkpoint, and of each silo's."""
    last = max((run / "checkpoints").iterdir())
    silos = {int(one.stem[5:]): one.stat().st_size for one in last.glob("silo_*")}
    return (last / "server.safetensors").stat().st_size, silos


def test_the_bytes_of_a_plan_are_those_of_the_training(tmp_path, monkeypatch):
    """Jobs are drawn over all keys. Those that are refused, lose a silo or move bytes by chance do not count."""
    draws = Draws(11, cells(), lambda kind, number: make(kind, number, tmp_path))
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    compared = number = 0
    while compared < JOBS:
        path, run = tmp_path / f"{number}.toml", tmp_path / f"run-{number}"
        path.write_text(tomli_w.dumps(draws.job(number)[0]))
        number += 1
        try:
            train(path, run, (), False, Alone(), wings_of=wings_of)
            found = play(read_job(path))
        except (InputError, RoundLost):
            continue
        records = records_of(run)
        if found.at_most or found.unknown or any(one["faults"] or "attempts_lost" in one for one in records):
            continue
        moved = [(one["bytes_sent"], one["bytes_received"], one["bytes_of_silo_max"]) for one in records]
        told = [(one.sent, one.received, one.of_silo_max) for one in found.rounds]
        assert moved == told[: len(moved)], path.read_text()
        compared += 1
        if len(told) == len(moved) and (run / "checkpoints").exists():
            server, silos = files(run)
            assert 0 <= found.server_state - server <= LONGEST, path.read_text()
            assert found.silo_states.keys() == silos.keys()
            assert all(0 <= found.silo_states[k] - size <= LONGEST for k, size in silos.items())
