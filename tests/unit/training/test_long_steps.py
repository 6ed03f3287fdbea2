"""The server says by itself in which step it computes for long; training and scoring it leaves alone."""

import importlib
import re
import struct
import time
from types import SimpleNamespace

import pytest
import tomli_w
from unit.builders import Alone, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.training import long_steps
from mpifl.training.long_steps import LongSteps
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import world
from mpifl.wire.transport import DONE, Transport

PATIENCE = 0.3
SAID = re.compile(
    r"the server has worked for \d+ s on (\w+) \((\S+), line (\d+)\); nothing has failed, and it goes on"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(long_steps, "PATIENCE", PATIENCE)


def spin(seconds=0.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1e-4)


def alternating(seconds, enough=lambda: False):
    until = time.monotonic() + seconds
    while time.monotonic() < until and not enough():
        spin(PATIENCE / 20)
        time.sleep(PATIENCE / 20)  # half of the looks find it here: all of a report's in `spin` by 1 of 2^24


class Spinning(FedAvg):
    """Its server and its silos compute for a time."""

    server: float = 0.0
    silos: float = 0.0

    def round(self, server, cohort):
        found = super().round(server, cohort)
        spin(self.server)
        return found

    def train(self, silo, w):
        alternating(self.silos)
        return super().train(silo, w)


def trained(folder, **algorithm):
    write_folder(folder, [4, 4])
    tables = {
        "name": "long",
        "shards": str(folder),
        "seed": 1,
        "rounds": 1,
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "unit.training.test_long_steps:Spinning", **algorithm},
        "local": {"lr": 0.1, "epochs": 1, "batch_size": 2},
    }
    (folder / "job.toml").write_text(tomli_w.dumps(tables))
    train(folder / "job.toml", folder / "run", (), False, Alone(), wings_of=wings_of)


def test_a_step_that_takes_long_is_said_with_its_place_and_training_is_not(tmp_path, capsys):
    trained(tmp_path, server=4 * PATIENCE, silos=4 * PATIENCE)
    found = SAID.findall(capsys.readouterr().err)
    own = [step for step, file, _ in found if file == "training/test_long_steps.py"]
    assert {*own} <= {"round", "spin"}, "its round, and what that calls; no method of a silo"
    assert 1 <= len(own) <= 4, "after a time, and after twice as long"


def test_of_a_wait_for_ranks_nothing_is_said(capsys):
    transport = Transport(world()._comm.Dup())
    with LongSteps():
        assert transport._next(0, DONE, time.perf_counter() + 3 * PATIENCE) is None
        transport.post(0, struct.pack("<q", 1), DONE)
        assert transport._next(0, DONE) == (0, struct.pack("<q", 1))
    assert capsys.readouterr().err == ""


def test_steps_of_many_rounds_are_not_taken_for_a_long_one(capsys, monkeypatch):
    """Its clock is the number of looks: on that of a busy machine any round may be a long step."""
    looks = []

    def monotonic():
        looks.append(PATIENCE / long_steps.LOOKS)
        return sum(looks)

    monkeypatch.setattr(long_steps, "time", SimpleNamespace(monotonic=monotonic))
    with LongSteps(lambda: len(looks) // long_steps.LOOKS):
        alternating(60, lambda: len(looks) > 4 * long_steps.LOOKS)
    assert capsys.readouterr().err == ""
    with LongSteps():
        alternating(60, lambda: len(looks) > 6 * long_steps.LOOKS)
    assert "alternating" in capsys.readouterr().err


def test_a_loop_is_said_and_not_what_it_calls_in_turn(capsys, monkeypatch):
    told, said = long_steps._said, []
    monkeypatch.setattr(long_steps, "_said", lambda *given: said.append(told(*given)) or said[-1])
    for _ in range(3):
        said.clear()
        with LongSteps():
            alternating(60, lambda: any("alternating" in line for line in said))
    found = {step for step, *_ in SAID.findall(capsys.readouterr().err)}
    own = test_a_loop_is_said_and_not_what_it_calls_in_turn.__name__  # it may have been looked at before
    assert "alternating" in found <= {"alternating", own}


def test_a_long_import_is_said_as_one(tmp_path, capsys, monkeypatch):
    (tmp_path / "slow_to_load").mkdir()
    (tmp_path / "slow_to_load" / "__init__.py").write_text(f"import time; time.sleep({4 * PATIENCE})")
    monkeypatch.syspath_prepend(tmp_path)
    with LongSteps():
        importlib.import_module("slow_to_load")
    said = capsys.readouterr().err
    assert re.search(r"the server is still importing slow_to_load after \d+ s; it goes on when that is", said)


def test_a_model_that_is_built_for_long_alarms_nobody():
    def models_of():
        pass

    own = models_of.__code__.replace(co_filename=str(long_steps.PACKAGE / "training" / "lent_models.py"))
    said = long_steps._said(61, [(own, 7)])
    assert said == "the server still builds and tries the model after 61 s; it goes on by itself"
