"""A run followed by its folder alone: what it is doing, how it is drawn, how its page is kept fresh."""

import io
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner
from unit.builders import write_folder

from mpifl.cli import app
from mpifl.common import InputError, lock
from mpifl.report.pages.live_page import keep_report
from mpifl.report.runs.compared_runs import show_run
from mpifl.report.runs.next_commands import again, next_steps
from mpifl.report.terminal.braille import canvas
from mpifl.report.terminal.following import Follower, State, pace
from mpifl.report.terminal.frame import frame
from mpifl.run.folder.environment import note_lost, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run
from mpifl.run.job.job import check_job

RANKS = {"0": {"host": "a"}, "1": {"host": "\x1b[31mred", "device": "cpu"}}


def record(round, **more):
    silos = {f"clinic {n}": {"loss": 0.5, "accuracy": 0.5 + n / 100} for n in range(8)}
    parts = {"1": {"training": 1.0, "waiting": 0.0}}
    return {
        "round": round, "time": 1e9 + 3 * round, "seconds": 2.0, "train_loss": 2 / round, "faults": {},
        "test_accuracy": 1 - 1 / round, "silo_accuracy_worst": 0.5, "silos": silos, "rank_seconds": parts,
        **more,
    }  # fmt: skip


def begin(run, rounds=10, **more):
    table = {"name": "toy", "shards": "s", "rounds": rounds, "model": {"name": "logreg"}, **more}
    claim_run(run, check_job(table, "toy.toml"))
    write_environment(run, ranks=RANKS)
    return run


def add(run, *records):
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"".join(map(encode_record, records)))


def finish(run):
    (run / "model.safetensors").write_bytes(b"")


def drawn(look, width=100, height=30, plain=False):
    console = Console(width=width, height=height, file=io.StringIO(), markup=False, emoji=False)
    console.print(frame(look, width, height, plain))
    return console.file.getvalue()


def test_what_a_run_is_doing_is_told_by_its_folder(tmp_path):
    run = tmp_path / "run"
    for what in ("is not there", "is not a run: it has no job.toml"):
        with pytest.raises(InputError, match=f"run: {what}; name the folder of a run"):
            Follower(run).look()
        run.mkdir(exist_ok=True)
    assert Follower(run, wait=True).look().state is State.AWAITED
    begin(run)
    follower = Follower(run)
    assert follower.look().state is State.STOPPED
    with lock.hold(run):
        assert (follower.look().state, follower.look().summary) == (State.GOING, None)
        add(run, record(1), record(2))
        look = follower.look()
        assert (look.state, look.rounds, look.pace, look.left) == (State.GOING, 2, 3.0, 24.0)
    assert follower.look().state is State.STOPPED
    assert Follower(run, wait=True).look().state is State.AWAITED
    note_lost(run, "too few")
    assert follower.look().state is State.LOST
    add(run, *(record(n) for n in range(3, 11)))
    finish(run)
    assert follower.look().state is State.FINISHED


def test_a_training_elsewhere_whose_lock_is_not_seen_has_ended_when_it_has_been_silent(tmp_path):
    begin(tmp_path)
    add(tmp_path, record(1, time=0.0), record(2, time=100.0))  # 100 s a round
    (tmp_path / lock.FILE).write_text(json.dumps({"host": "node17", "pid": 1, "since": "then"}))
    for ago, state in ((400, State.GOING), (600, State.STOPPED)):
        for path in tmp_path.iterdir():
            os.utime(path, (time.time() - ago,) * 2)
        assert Follower(tmp_path).look().state is state


def test_the_pace_is_the_median_of_the_last_rounds():
    assert pace([record(1)]) is None
    assert (
        pace([record(1, time=0.0), record(2, time=1.0), record(3, time=900.0), record(5, time=904.0)]) == 2.0
    )


@pytest.mark.parametrize(("width", "height"), [(40, 10), (50, 24), (80, 24), (200, 60)])
def test_a_picture_fits_the_terminal(tmp_path, width, height):
    begin(tmp_path)
    add(tmp_path, *(record(n) for n in range(1, 6)))
    lines = drawn(Follower(tmp_path).look(), width, height).splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "clinic 0" in text
    assert "round 5 of 10" in text
    assert "\x1b" not in text


def test_a_picture_has_the_worst_silos_and_the_best_one(tmp_path):
    begin(tmp_path)
    add(tmp_path, record(1), record(2, faults={"3": "late"}))
    text = drawn(Follower(tmp_path).look(), 100, 12)
    named = [line.split()[1] for line in text.splitlines() if line.startswith("clinic")]
    assert named == ["0", "1", "7"]
    assert "and 5 between" in text
    assert "left out: 1 3" in " ".join(text.split())
    assert drawn(Follower(tmp_path).look(), plain=True).isascii() is False  # bars, yet no curve
    assert "round 1 to 2" not in drawn(Follower(tmp_path).look(), plain=True)


def test_figures_of_valid_rows_are_called_so(tmp_path):
    begin(tmp_path, evaluate={"split": "valid"})
    rounds = [record(n, silo_accuracy_pooled=0.5) for n in (1, 2)]
    add(tmp_path, *({key: of for key, of in one.items() if key != "test_accuracy"} for one in rounds))
    text = drawn(Follower(tmp_path).look())
    for said in (
        "accuracy of all silos' validation rows 50.00%",
        "accuracy, validation rows  silos",
        "accuracy, validation rows",
    ):
        assert said in text
    lines = CliRunner().invoke(app, ["watch", str(tmp_path)]).output.splitlines()
    assert ["accuracy of all silos' validation rows 50.00%" in line for line in lines[:2]] == [True, True]


def test_scores_that_nobody_may_see_are_withheld(tmp_path):
    begin(tmp_path)
    (tmp_path / "job.toml").write_text("rounds = 9\n[security]\nmasks = true\n")
    add(tmp_path, record(1, silos={}))
    assert "silos' accuracy: withheld: sums are masked" in drawn(Follower(tmp_path).look())


def test_curves_are_dots_of_braille():
    assert canvas([(0, 0), (1, 1)], 2, 1) == ["⡠⠊"]
    assert canvas([(0, 1), None, (1, 0)], 1, 1) == ["⢁"]
    assert canvas([], 3, 1) == ["   "]


def test_exit_codes_are_those_of_the_end(tmp_path):
    run = begin(tmp_path / "run", rounds=2)
    add(run, record(1), record(2))

    def code():
        return CliRunner().invoke(app, ["watch", str(run), "--once"]).exit_code

    with lock.hold(run):
        assert code() == 5
    assert code() == 75
    note_lost(run, "too few")
    assert code() == 3
    finish(run)
    assert code() == 0


def test_a_page_is_kept_fresh_while_the_run_goes_on(tmp_path):
    run, page = begin(tmp_path / "run", rounds=2), tmp_path / "run" / "report.html"
    seen = []

    def until(word):
        deadline = time.monotonic() + 180
        while not (page.exists() and word in page.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        seen.append(page.read_text())

    def train():
        with lock.hold(run):
            begun.set()
            until("No round is recorded yet")
            add(run, record(1))
            until("1 of 2 rounds")
            add(run, record(2))
            finish(run)

    begun, thread = threading.Event(), threading.Thread(target=train)
    thread.start()
    begun.wait()
    state = keep_report(run, None, 0.05)
    thread.join()
    assert state is State.FINISHED
    assert all('<meta http-equiv="refresh" content="0.05">' in text for text in seen)
    assert len(seen) == 2
    assert all(
        "Do not report these figures yet. " in text and "in progress</b> last round 20" in text
        for text in seen[1:]
    )
    assert "refresh" not in page.read_text()
    assert "Do not report" not in page.read_text()
    assert "unfinished" not in seen[1]


@pytest.fixture
def activated(monkeypatch):
    """The environment's commands are on the PATH."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


@pytest.mark.usefixtures("activated")
def test_a_training_says_on_a_terminal_what_is_next_and_in_a_log_it_does_not(tmp_path, capsys, monkeypatch):
    add(begin(tmp_path, rounds=1), record(1))
    finish(tmp_path)
    for live in (True, False):
        monkeypatch.setattr("mpifl.report.runs.compared_runs.on_terminal", lambda live=live: live)
        show_run(tmp_path)
        out = capsys.readouterr().out
        assert f"model: {tmp_path}/model.safetensors" in out.replace("\n", "")
        assert ("next:" in out, f"mpifl report {tmp_path}" in out) == (live, live)


def commands(run, job, records=()):
    begin(run, **job)
    add(run, *records)
    return [command for command, _ in next_steps(run)]


TOY = {"name": "toy", "shards": "s", "rounds": 10, "model": {"name": "logreg"}}


@pytest.mark.usefixtures("activated")
def test_what_is_next_is_what_the_run_allows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = ["mpifl report a", "mpifl evaluate a", "mpifl predict a --data s --out predictions.csv"]
    assert commands(Path("a"), {}, [record(1)]) == [*base, "mpifl compare a OTHER-RUN"]
    untested = {key: value for key, value in record(1).items() if key != "test_accuracy"}
    found = commands(Path("b"), {}, [untested])
    assert (found[1], found[3]) == ("mpifl evaluate b --silos", "mpifl compare b a")
    fedper = {"algorithm": {"name": "fedper", "personal": ["*"]}}
    assert commands(Path("c c"), fedper, [untested]) == ["mpifl report 'c c'", "mpifl compare 'c c' b"]
    own = {"shards": "data:one", "model": {"name": "unit.builders:model"}}
    assert commands(Path("o"), own, [record(1)])[1] == "mpifl evaluate o --trust unit.builders:model"
    seeded = "mpifl train a/job.toml --set seed=20261130 --out a-seed-20261130 --ranks 2"
    assert again("So", Path("a"), TOY, "seed", 20261130) == ("So:", seeded), "a seed keeps its digits"
    write_folder(tmp_path / "s", [4])  # nothing is held out
    assert commands(Path("d"), {}, [untested])[1] == "mpifl evaluate d --silos --split train"
    path = tmp_path / "s" / "federation.json"
    several = {"format_version": 2, "targets": {"dtype": "int64", "shape": [7]}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **several}))
    assert commands(Path("e"), {}, [untested])[2] == "mpifl predict e --data s --out predictions.npz"
    monkeypatch.chdir("/")  # where the job's relative paths do not begin
    (_, _, (predict, _), _) = next_steps(tmp_path / "a")
    assert f"--data {tmp_path}/s " in predict
