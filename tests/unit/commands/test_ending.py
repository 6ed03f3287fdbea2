"""What a training that a launcher started came to: rank 0 says it, and not the launcher's number."""

import signal

import pytest
from unit.builders import write_folder

from mpifl.cli import app, ending
from mpifl.common.machine import signals
from mpifl.wire.launching import launcher


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Start a launcher with a code of its own, whose ranks do so; return what `--ranks` ends with."""
    found = {name: signal.getsignal(name) for name in signals.SIGNALS}

    def start(ranks, code):
        script = tmp_path / "mpiexec"
        script.write_text(f"#!/bin/sh\n{ranks}\nexit {code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("MPIFL_MPIRUN", str(script))
        return ending.code_of_launched(lambda: launcher.launch(2), tmp_path / "run")

    yield start
    signals.clear()
    for name, handler in found.items():
        signal.signal(name, handler)


LEAVES = 'printf {} >"$MPIFL_EXIT_CODE"'
TAKES = 'mkdir "${0%/*}/run" && touch "${0%/*}/run/job.toml"'
ASKED = "trap '' USR1; kill -TERM $PPID"
DIED = "ranks died, and the training ended with them before the first checkpoint; start again with --resume"


@pytest.mark.parametrize("own", [0, 1, 9, 143])
@pytest.mark.parametrize("left", [1, 2, 3, 75])
def test_the_code_of_rank_0_is_the_runs_whatever_the_launchers_is(launched, capfd, left, own):
    assert launched(LEAVES.format(left), own) == left
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("own", "code"), [(0, 4), (9, 4), (15, 4), (137, 137), (143, 143)])
def test_ranks_that_died_are_told_where_rank_0_left_nothing(launched, capfd, own, code):
    """Hydra ends with 9 where a rank was killed, and its word is not that of the run."""
    assert launched(TAKES, own) == code
    assert capfd.readouterr().err.endswith(f": {DIED}\n")


@pytest.mark.parametrize("own", [0, 9, 10, 138, 255])
def test_a_signal_before_the_training_is_no_accident_whatever_the_launcher_ends_with(launched, capfd, own):
    """It may have killed ranks that did not listen yet: Intel's ends with 255 then, Open MPI's with 138."""
    signals.install()
    assert launched(ASKED, own) == 75
    assert "stopped by a signal before the training began" in capfd.readouterr().err


def test_ranks_that_died_when_a_signal_had_come_are_told(launched, capfd):
    signals.install()
    assert launched(f"{ASKED}; {TAKES}", 137) == 137
    assert capfd.readouterr().err.endswith(f": {DIED}\n")


@pytest.mark.parametrize("own", [1, 2, 3, 75])
def test_a_code_of_ours_is_believed_where_rank_0_is_on_another_machine(launched, capfd, own):
    assert launched("", own) == own
    assert capfd.readouterr().err == ""


def test_the_last_code_left_holds(tmp_path, monkeypatch):
    left = tmp_path / "code"
    left.touch()
    monkeypatch.setenv("MPIFL_EXIT_CODE", str(left))
    launcher.leave_code(75)
    launcher.leave_code(1)
    assert left.read_text() == "1"
    monkeypatch.setenv("MPIFL_EXIT_CODE", str(tmp_path / "elsewhere"))
    launcher.leave_code(75)
    assert list(tmp_path.iterdir()) == [left]


OWN = """
from mpifl import FedAvg


class Own(FedAvg):
    def round(self, server, cohort):
        {round}
        return super().round(server, cohort)

    def train(self, silo, w):
        {train}
        return super().train(silo, w)
"""
MISTAKES = {
    "lacks": ("self.nothing", "0", "7: Own.round: AttributeError: 'Own' object has no attribute 'nothing'"),
    "frozen": (
        "self.v = 1",
        "0",
        "7: Own.round: sets self.v, which is frozen; at the server keep it in serve",
    ),
    "wrote": (
        "0",
        "w += 1",
        "10: Own.train wrote to 'w', which all silos of the node read; have it write to ",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_code_of_ones_own_is_one_line_with_its_place(mistake, tmp_path, monkeypatch, capfd):
    round, train, said = MISTAKES[mistake]
    write_folder(tmp_path / "shards", [4, 4])
    (tmp_path / f"{mistake}_own.py").write_text(OWN.format(round=round, train=train))
    job = 'name = "x"\nshards = "shards"\nrounds = 1\n[model]\nname = "logreg"\n[algorithm]\n'
    job += f'name = "{mistake}_own:Own"\n'
    (tmp_path / "job.toml").write_text(job)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["mpifl", "train", "job.toml", "--out", "run"])
    monkeypatch.setattr(ending, "_take_along", lambda: None)  # this process shall live on
    assert ending.run(app) == 1
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith(f"error: {tmp_path}/{mistake}_own.py:{said}")
    monkeypatch.setenv("MPIFL_DEBUG", "1")
    monkeypatch.setattr("sys.argv", ["mpifl", "train", "job.toml", "--out", "other"])
    assert ending.run(app) == 1
    assert capfd.readouterr().err.count("Traceback") == 1
