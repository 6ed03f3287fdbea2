"""The observers of a run: what each tells, and that one that fails takes no training along."""

import os
import struct
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, python
from unit.builders import room_for

from mpifl.common.errors import InputError
from mpifl.common.names import Names
from mpifl.learning.metrics.metric import ACCURACY, MetricInfo
from mpifl.report.observers.configured import check_tracking, observers as observers_of
from mpifl.report.observers.console import Console, figures_of
from mpifl.report.observers.jsonlines import JsonLines
from mpifl.report.observers.observer import Observer
from mpifl.report.observers.observer_group import Observers
from mpifl.report.observers.progress import Progress, at_end
from mpifl.run.folder.environment import write_environment
from mpifl.run.folder.metrics_file import encode_record, read_metrics, trim_metrics
from mpifl.run.folder.run_folder import claim_run
from mpifl.run.job.job import check_job

RECORD = {
    "round": 3, "time": 1e9, "seconds": 0.5, "seconds_training": 0.25, "train_loss": 0.5,
    "test_accuracy": 0.25,
    "silo_accuracy_worst": 0.125, "bytes_sent": 7, "faults": {"2": "torn"},
}  # fmt: skip


def make_job(**more):
    return check_job(
        {"name": "toy", "shards": "s", "rounds": 4, "model": {"name": "2nn"}, **more}, "toy.toml"
    )


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, ""),
        ({"train_loss": 0.12345}, "loss 0.1235"),
        ({"train_loss": 1.5e30}, "loss 1.5e+30"),
        ({"train_loss": 1.0, "test_accuracy": 0.98765}, "loss 1.0000  test accuracy 98.77%"),
        (
            {"test_accuracy": 1.0, "silo_accuracy_worst": 0.5},
            "test accuracy 100.00%  worst silo 50.00%",
        ),
        (
            {"test_accuracy": 1.0, "faults": {"3": "torn", "12": "late"}},
            "test accuracy 100.00%  without silos 3, 12",
        ),
        (
            {"faults": {str(k): "late" for k in range(10)}},
            "without 10 silos (among them 0, 1, 2, 3, 4, 5, 6, 7)",
        ),
        ({"train_loss": 1.0, "faults": {}}, "loss 1.0000"),
        ({"test_accuracy": 0.5, "silo_accuracy_weighted": 0.25}, "test accuracy 50.00%"),
        (
            {"silo_accuracy_weighted": 0.25, "silo_accuracy_worst": 0.125},
            "silos' mean accuracy by examples 25.00%  worst silo 12.50%",
        ),
        (
            {"silo_accuracy_weighted": 0.25, "silo_accuracy_pooled": 0.5},
            "accuracy of all held-out examples 50.00%",
        ),
        (
            {"suspected": ["3", "12"], "noise_std": 0.25, "clipped": 0.4},
            "suspected silos 3, 12  deviation of the noise 0.25  clipped 40%",
        ),
        ({"clipped_examples": 1.0, "suspected": []}, "clipped 100%"),
        ({"parties": 1}, "1 party"),
        ({"parties": 5}, "5 parties"),
        (
            {
                "sites": {
                    "ulm": {
                        "letters_sent": 2,
                        "letters_received": 1,
                        "bytes_sent": 9e4,
                        "bytes_received": 2e4,
                    }
                }
            },
            "1 site (2 letters down, 1 up, 90 and 20 kB)",
        ),
        (
            {"sites": {"ulm": {"away_since": "2026-11-28 01:02:03", "away_letter": 7}, "bonn": {}}},
            "2 sites (0 letters down, 0 up, 0 and 0 kB)  ulm away since 2026-11-28 01:02:03",
        ),
        (
            {"sites": {"ulm": {"late_letter": 7, "late_round": 4, "late_weight": 0.577}}},
            "1 site (0 letters down, 0 up, 0 and 0 kB)  ulm's sum of round 4 counts 0.58 times",
        ),
        ({"train_loss": None, "test_accuracy": None, "silo_accuracy_worst": None}, ""),
    ],
    ids=str,
)
def test_a_round_is_told_in_a_few_words(record, words):
    assert figures_of(record) == words
    assert figures_of(record, valid=True) == words.replace("all held-out", "all silos'").replace(
        "examples", "validation rows"
    )


def test_without_a_terminal_trouble_is_told_whatever_was_asked(capsys):
    for wanted in (False, True, "always"):
        console, always = Console(3, wanted), wanted == "always"
        console.begin(0, "toy: fedavg, [/t] of 5 :smile:")
        console.round({"round": 1, "train_loss": 1.0, "seconds": 0.5})
        console.note("silo 3 is broken")
        console.end()
        out, err = capsys.readouterr()
        told = "toy: fedavg, [/t] of 5 :smile:" in out, "round 1  0.50 s  loss 1.0000" in out
        assert told == (bool(wanted), bool(wanted))
        assert "silo 3 is broken" in (out if always else err)
        assert "\x1b" not in out


@pytest.mark.parametrize(
    ("rounds", "every", "first", "told"),
    [
        (20, 1, 0, [*range(1, 21)]),
        (50, 10, 0, [*range(1, 51)]),
        (10_000, 100, 0, [*range(100, 10_001, 100)]),
        (10_000, 150, 9_000, [9150, 9300, 9450, 9600, 9750, 9900]),
        (10_000, 7, 9_800, [9905]),
        (1_000, 1_000, 900, [920, 940, 960, 980, 1_000]),
    ],
)
def test_a_log_hears_of_scored_rounds_and_of_others_where_none_is_scored_for_long(
    capsys, rounds, every, first, told
):
    console = Console(rounds)
    console.begin(first, "toy")
    for round in range(first + 1, rounds + 1):
        scored = {"test_accuracy": 0.5} if round % every == 0 else {}
        console.round({"round": round, "seconds": 0.5, **scored})
    console.end()
    _, *lines = capsys.readouterr().out.splitlines()
    if first:
        assert lines.pop(0) == f"continues after round {first:,}, from its checkpoint"
    assert [int(line.split()[1]) for line in lines] == told


@pytest.mark.parametrize("done", [2, 3])
def test_on_a_terminal_the_bar_of_a_run_that_ends_early_goes_away(monkeypatch, done):
    ours, theirs = os.openpty()
    for name in ("OMPI_COMM_WORLD_SIZE", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        console = Console(3)
        console.begin(0, "toy")
        for round in range(1, done + 1):
            console.round({"round": round, "seconds": 0.5})
        console.end()
        terminal.flush()
        print("\nend", file=terminal, flush=True)
        shown = ""
        while not shown.endswith("end\r\n"):
            shown += os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "round 2  0.50 s" in shown
    assert "left" in shown, "while it continues, the bar says what is left"
    last = shown[shown.rindex(f"round {done}  0.50 s") :]
    assert (f"{done}/3" in last.split("\x1b[2K")[-1]) is (done == 3)


def test_why_a_silo_was_left_out_is_told_once(capsys):
    for wanted in (False, "always"):
        console = Console(9, wanted)
        console.note("continuing without silo 34 while it is broken: gone")
        console.begin(0, "toy")
        console.round({"round": 0, "seconds": 0.5, "faults": {"34": "gone", "3": "gone"}})
        for round, faults in enumerate(
            [{"2": "torn [a]"}, {"2": "torn [a]"}, {"2": "late"}, {"3": "late"}], 1
        ):
            console.round({"round": round, "seconds": 0.5, "faults": faults})
        console.end()
        out, err = capsys.readouterr()
        told = [line for line in (out if wanted else err).splitlines() if ": without" in line]
        assert told == [
            "round 0: without silo 3: gone",
            "round 1: without silo 2: torn [a]",
            "round 3: without silo 2: late",
            "round 4: without silo 3: late",
        ]


def test_silos_are_told_by_name_and_those_of_one_fault_together(capsys):
    console = Console(9, "always", Names(["cleveland", "silo 1", "hun\x1b[2Jgary"]))
    console.note("continuing without silo 1 while it is broken: gone")
    for fault in ("gone", "late"):
        console.round({"round": 1, "seconds": 0.5, "faults": {"0": fault, "1": fault, "2": fault}})
    console.end()
    assert capsys.readouterr().out.splitlines()[1:] == [
        "round 1  0.50 s  without silos cleveland, 1, 'hun[2Jgary'",
        "round 1: without silos cleveland, 'hun[2Jgary': gone",
        "round 1  0.50 s  without silos cleveland, 1, 'hun[2Jgary'",
        "round 1: without silos cleveland, 1, 'hun[2Jgary': late",
    ]


def test_an_observer_by_itself_reports_nothing(tmp_path, capsys):
    observer = Observer(make_job(), tmp_path)
    observer.begin(0, "title")
    observer.round({"round": 1})
    observer.note("a line")
    observer.end()
    assert capsys.readouterr() == ("", "")


class Recorded(Observer):
    """Writes what it hears into the run folder, and trips over the third round."""

    def begin(self, round, title):
        self.write(f"begin {round} {title} {self.job.name}")

    def round(self, record):
        if record["round"] == 3:
            raise KeyError("nothing to show")
        self.write(f"round {record['round']}")
        record["test_accuracy"] = 1.0

    def note(self, text):
        self.write(f"note {text}")

    def end(self):
        self.write("end")

    def write(self, line):
        with (self.folder / "heard.txt").open("a") as file:
            file.write(f"{line}\n")


OWN = "unit.tracking.test_tracking:Recorded"


def test_an_observer_of_the_users_own_hears_all_and_takes_no_training_along(tmp_path, capsys):
    group, record = Observers(), {**RECORD, "round": 2}
    group.note("before there was anybody")
    group.attach(observers_of(make_job(tracking={"jsonl": False, "observers": [OWN]}), tmp_path))
    group.begin(1, "toy: fedavg")
    group.round(record)
    group.note("a line")
    for round in (3, 4):
        group.round({**RECORD, "round": round})
    group.end()
    heard = (tmp_path / "heard.txt").read_text().splitlines()
    assert heard == ["note before there was anybody", "begin 1 toy: fedavg toy", "round 2", "note a line"]
    assert record["test_accuracy"] == RECORD["test_accuracy"], "it was given a copy"
    said = [line for line in capsys.readouterr().err.splitlines() if "training continues" in line]
    what = f"[tracking] observers: '{OWN}': KeyError: 'nothing to show' (test_tracking.py:"
    assert len(said) == 1
    assert said[0].startswith(what)


class Unmade(Observer):
    def __init__(self, job, folder):
        raise RuntimeError(f"no server for {job.name}")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("console", "'console' names no class; give 'package.module:Class'"),
        (
            "nowhere_to_be_found:Own",
            "= 'nowhere_to_be_found:Own': No module named 'nowhere_to_be_found'; it is looked",
        ),
        ("unit.tracking.test_tracking:Nobody", "has no attribute 'Nobody'"),
        ("unit.tracking.test_tracking:make_job", "make_job' is not a mpifl Observer; name a subclass of it"),
        ("builtins:dict", "'builtins:dict' is not a mpifl Observer; name a subclass of it"),
    ],
)
def test_a_name_of_no_observer_is_refused_in_a_line(name, why):
    with pytest.raises(InputError) as refused:
        check_tracking(make_job(tracking={"observers": [name]}))
    assert str(refused.value).startswith("[tracking] observers")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_observer_that_cannot_be_made_is_refused_in_a_line(tmp_path):
    own = make_job(tracking={"observers": ["unit.tracking.test_tracking:Unmade"]})
    check_tracking(own)
    with pytest.raises(
        InputError, match=r"Unmade' cannot be made: RuntimeError: no server for toy \(test_tracking"
    ):
        observers_of(own, tmp_path)


class Leaving(Observer):
    def round(self, record):
        sys.exit("enough")


def test_an_observer_that_leaves_takes_no_training_along(tmp_path, capsys):
    observers = Observers()
    observers.attach([Leaving(make_job(), tmp_path)])
    observers.round(RECORD)
    assert "Leaving: SystemExit: enough (test_tracking.py:" in capsys.readouterr().err


class Mute(Leaving):
    def note(self, text):
        raise OSError("nobody is there")


def test_observers_that_fail_to_tell_of_each_other_take_no_training_along(tmp_path, capsys):
    observers = Observers()
    observers.attach([Mute(make_job(), tmp_path) for _ in range(3)])
    observers.round(RECORD)
    assert capsys.readouterr().err.count("training continues without it") == 1
    observers.round(RECORD)


def test_a_reader_that_goes_away_ends_no_training(digits, tmp_path):
    """As of `mpifl train ... | head -3`."""
    read, write = os.pipe()
    os.close(read)
    words = ["rounds=2", "tracking.console='always'", f"shards='{digits / 'digits'}'"]
    settings = [word for setting in words for word in ("--set", setting)]
    command = [*python(), "-m", "mpifl", "train", str(ROOT / "jobs" / "demo.toml"), "--out", "run", *settings]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, timeout=180
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_of_one_thing_the_user_reads_once(tmp_path, capsys):
    group = Observers()
    group.attach(observers_of(make_job(tracking={"jsonl": False}), tmp_path))
    for round in (1, 2):
        group.note(f"round {round}: no room", once="no room")
        group.note("a line")
    assert capsys.readouterr().err.splitlines() == ["round 1: no room", "a line", "a line"]


@pytest.mark.parametrize(
    ("round", "accuracy", "stop", "more", "finished"),
    [
        (3, 0.9, False, {}, False),
        (4, 0.1, False, {}, True),
        (3, 0.9, True, {}, True),
        (3, 0.5, True, {}, False),
        (3, None, True, {}, False),
        (3, 0.9, True, {"decided_by": {"test_accuracy": 0.5}}, False),
        (3, 0.9, True, {"decided_by": {}}, False),
        (3, 0.5, True, {"decided_by": {"test_accuracy": 0.9}}, True),
        (3, 0.9, True, {"decided_by": "harmed"}, True),
        (3, 0.5, False, {"evaluations_since_best": 3}, True),
        (3, 0.5, False, {"evaluations_since_best": 3, "decided_by": {"evaluations_since_best": 2}}, False),
        (3, 0.5, False, {"decided_by": {"evaluations_since_best": 3}}, True),
    ],
)
def test_a_run_is_finished_by_one_rule(round, accuracy, stop, more, finished):
    job = make_job(evaluate={"target_accuracy": 0.8, "stop_at_target": stop, "patience": 3})
    progress = Progress(round - 1).next({"train_loss": 1.0}).adding({"test_accuracy": accuracy, **more})
    assert (progress.round, progress.reported) == (round, False)
    assert progress.finished(job, ACCURACY) is finished
    told = (job.rounds, job.evaluate.stops_at, ACCURACY, job.evaluate.patience)
    assert bool(at_end(round, progress.record, *told)) is finished


def test_lines_that_a_full_disk_does_not_take_are_told_of_once_and_written_later(tmp_path, capsys):
    lines = JsonLines(tmp_path)
    lines.round({"round": 1})
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    with room_for(len(whole) + 7):
        for round in (2, 3):
            lines.round({"round": round})
            assert (tmp_path / "metrics.jsonl").read_bytes() == whole
    trim_metrics(tmp_path, 1)
    for round in (4, 5):
        lines.round({"round": round})
    assert [record["round"] for record in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"{tmp_path / 'metrics.jsonl'}: cannot be written (File too large); "
        "training continues, its lines follow when "
        "there is room"
    )


def test_a_line_of_the_last_round_is_written_at_the_end(tmp_path, capsys):
    lines = JsonLines(tmp_path)
    lines.round({"round": 1})
    with room_for((tmp_path / "metrics.jsonl").stat().st_size):
        lines.round({"round": 2})
    lines.end()
    assert [record["round"] for record in read_metrics(tmp_path)] == [1, 2]
    assert "its lines follow" in capsys.readouterr().err


# the library's thread says so, too
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_tensorboard_on_a_full_disk_is_told_of_once(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from mpifl.report.observers.board import TensorBoard

    claim_run(tmp_path, make_job())
    others = set(threading.enumerate())  # of tests before, which nobody ends
    board = Observers()
    board.attach([TensorBoard(tmp_path)])
    with room_for(10):
        board.begin(0, "toy: fedavg")
        for round in (1, 2, 3):
            board.round({**RECORD, "round": round})
        board.end()
        for thread in set(threading.enumerate()) - others:  # the library's ends with what it could not write
            thread.join(5)
    assert capsys.readouterr().err.count("training continues without it") == 1


def test_tensorboard_is_told_every_number_of_a_round(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from mpifl.report.observers.board import TensorBoard

    claim_run(tmp_path, make_job())
    for done in (0, 0, 2, 2):  # it begins anew, and later does round 3 again after round 2
        board = TensorBoard(tmp_path)
        board.begin(done, "toy: fedavg")
        if done:
            silos = {"silos": {"north": {"loss": 0.5, "accuracy": None}}, "learning_rate": 0.125}
            more = {"step_losses": {"north": [2.0, None, 1.5, 1.0]}, "rank_seconds": {"0": {"waiting": 0.5}}}
            board.round({**RECORD, **silos, **more, "answers": {"test": {"rows": 3}}})
        else:
            board.before({"round": 0, "test_loss": 0.75})
        board.end()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == [
        "accuracy/test",
        "accuracy_of_silos/worst",
        "bytes/sent",
        "learning_rate",
        "loss/test",
        "loss/train",
        "loss_by_silo/north",
        "rank_seconds/0/waiting",
        "silos/left_out",
        "time/round",
        "time/training",
    ]
    assert [(event.step, event.value) for event in events.Scalars("loss/train")] == [(3, 0.5)]
    assert [(event.step, event.value) for event in events.Scalars("loss/test")] == [(0, 0.75)]
    assert events.Scalars("silos/left_out")[-1].value == 1
    steps = EventAccumulator(str(tmp_path / "tensorboard" / "steps")).Reload().Scalars("step_loss/north")
    assert [(event.step, event.value) for event in steps] == [(2250, 2.0), (2750, 1.5), (3000, 1.0)]


def test_tensorboard_files_a_metric_under_the_longest_name_that_fits():
    pytest.importorskip("tensorboard")
    from mpifl.report.observers.board import tag

    metrics = [MetricInfo(name=name) for name in ("f1", "f1_macro", "loss_of_all")]
    assert tag("silo_f1_mean", metrics) == "f1_of_silos/mean"
    assert tag("silo_f1_macro_mean", metrics) == "f1_macro_of_silos/mean"
    assert tag("silo_loss_of_all_worst", metrics) == "loss_of_all_of_silos/worst"
    assert tag("silo_loss_worst", metrics) == "loss_of_silos/worst"


def test_tensorboard_shows_a_run_that_starts_anew_once(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from mpifl.report.observers.board import TensorBoard

    claim_run(tmp_path, make_job())
    for last in (3, 1):  # it was cut before its first checkpoint, and has come less far the second time
        board = TensorBoard(tmp_path)
        board.begin(0, "toy: fedavg")
        for round in range(1, last + 1):
            board.round({**RECORD, "round": round})
        board.end()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss/train")] == [1]


def mlflow_client(monkeypatch, folder):
    pytest.importorskip("mlflow")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    from mpifl.report.observers import mlflow as observer

    return observer.MLflow, observer.MlflowClient((folder / "mlruns").as_uri())


def test_mlflow_is_told_every_number_and_a_resumed_run_goes_on_in_its_own(tmp_path, monkeypatch):
    MLflow, client = mlflow_client(monkeypatch, tmp_path)
    job = make_job(local={"lr": 0.5})
    (tmp_path / "run").mkdir()
    for round, status in ((3, "KILLED"), (4, "FINISHED")):
        observer = MLflow(job, tmp_path / "run")
        observer.begin(round - 1, "toy: fedavg")
        more = {"silos": {"ward:1": {"loss": 0.5}}, "step_losses": {"north": [2.0, 1.0]}}
        observer.round({**RECORD, **more, "round": round, "test_loss": float("nan")})
        observer.end()
        (run,) = client.search_runs([client.get_experiment_by_name("toy").experiment_id])
        assert run.info.status == status
    assert (run.info.run_name, run.data.params["local.lr"]) == ("run", "0.5")
    assert {"train_loss", "test_accuracy", "seconds", "bytes_sent", "silos_left_out"} <= set(run.data.metrics)
    assert "test_loss" not in run.data.metrics
    assert run.data.metrics["loss_by_silo/ward_1"] == 0.5
    history = client.get_metric_history(run.info.run_id, "step_loss/north")
    assert [(m.step, m.value) for m in history] == [(2500, 2.0), (3000, 1.0), (3500, 2.0), (4000, 1.0)]
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train_loss")] == [
        (3, 0.5),
        (4, 0.5),
    ]


def test_mlflow_is_told_a_round_that_is_done_again_once_and_what_was_forced(tmp_path, monkeypatch):
    MLflow, client = mlflow_client(monkeypatch, tmp_path)
    (tmp_path / "run").mkdir()
    for begin, last, changes in ((0, 0, []), (0, 3, []), (1, 4, ["local.lr 0.1 -> 0.5 after round 1"])):
        write_environment(tmp_path / "run", changes)
        observer = MLflow(make_job(), tmp_path / "run")
        observer.begin(begin, "toy: fedavg")
        if not begin:
            observer.before({"round": 0, "test_accuracy": 0.125})
        for round in range(begin + 1, last + 1):
            observer.round({**RECORD, "round": round, "time": 1e9 + begin})
        observer.end()
    (run,) = client.search_runs([client.get_experiment_by_name("toy").experiment_id])
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "train_loss")] == [
        1,
        2,
        3,
        4,
    ]
    history = client.get_metric_history(run.info.run_id, "test_accuracy")
    assert [(metric.step, metric.value) for metric in history[:2]] == [(0, 0.125), (1, 0.25)]
    assert run.data.tags["changed_by_force"] == "local.lr 0.1 -> 0.5 after round 1"
    assert run.info.status == "FINISHED"


def test_mlflow_finishes_a_run_that_has_nothing_left_to_do(tmp_path, monkeypatch):
    MLflow, client = mlflow_client(monkeypatch, tmp_path)
    job = make_job(evaluate={"target_accuracy": 0.75, "stop_at_target": True})
    (tmp_path / "run").mkdir()
    for round, accuracy, status in ((2, 0.7, "KILLED"), (3, 0.75, "FINISHED"), (job.rounds, 0.7, "FINISHED")):
        record = encode_record({"round": round, "test_accuracy": accuracy})
        (tmp_path / "run" / "metrics.jsonl").write_bytes(record)
        observer = MLflow(job, tmp_path / "run")
        observer.begin(round, "toy: fedavg")
        observer.end()
        (run,) = client.search_runs([client.get_experiment_by_name("toy").experiment_id])
        assert run.info.status == status, round


def records_of(file):
    """Yield the records of an offline run: a header of 7 bytes, and a log as LevelDB has it."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        whole, at = whole + content[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


@pytest.mark.usefixtures("offline")
def test_wandb_is_told_every_number_once_and_a_resumed_run_goes_on_in_its_own(tmp_path):
    from mpifl.report.observers.weights_and_biases import WeightsAndBiases

    (tmp_path / "run").mkdir()
    for begin, last, changes in ((0, 3, []), (1, 4, ["local.lr 0.1 -> 0.5 after round 1"])):
        write_environment(tmp_path / "run", changes)
        observer = WeightsAndBiases(make_job(local={"lr": 0.5}), tmp_path / "run")
        observer.begin(begin, "toy: fedavg")
        observer.before({"round": 0, "test_accuracy": 0.125})
        for round in range(begin + 1, last + 1):
            observer.round({**RECORD, "round": round, "test_loss": float("nan")})
        observer.end()
        time.sleep(1.05 if last == 3 else 0)  # the library names a run's folder by the second
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    rounds, ids, codes, changed = [], set(), [], []
    for record in (one for file in files for one in records_of(file)):
        told = {one.key or ".".join(one.nested_key): one.value_json for one in record.history.item}
        rounds += [told] if told else []
        ids |= (
            {(record.run.run_id, record.run.project, record.run.display_name)} if record.run.run_id else set()
        )
        codes += [record.exit.exit_code] if record.HasField("exit") else []
        changed += [one.value_json for one in record.summary.update if one.key == "changed_by_force"]
    assert [float(one["round"]) for one in rounds] == [0, 1, 2, 3, 4]
    assert float(rounds.pop(0)["test_accuracy"]) == 0.125
    assert {one[1:] for one in ids} == {("toy", "run")}
    assert len(ids) == 1
    assert {"train_loss", "test_accuracy", "seconds", "bytes_sent", "silos_left_out"} <= rounds[0].keys()
    assert "test_loss" not in rounds[0]
    assert float(rounds[0]["train_loss"]) == 0.5
    assert codes == [1, 0], "a run with rounds left to do is not a finished one"
    assert changed == ['"local.lr 0.1 -> 0.5 after round 1"']


@pytest.fixture
def offline(monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    yield
    wandb.teardown()  # a process keeps what its first login was told


@pytest.mark.usefixtures("offline")
def test_wandb_without_a_key_is_refused_and_not_asked_for(monkeypatch):
    job = make_job(tracking={"wandb": True})
    check_tracking(job)
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(
        InputError, match=r"^\[tracking\] wandb = true: no key is stored; .*WANDB_MODE=offline"
    ):
        check_tracking(job)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    check_tracking(job)


def test_a_store_that_fails_is_told_of_once(tmp_path, monkeypatch, capsys):
    MLflow, _ = mlflow_client(monkeypatch, tmp_path)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "file" / "mlruns").as_uri())
    (tmp_path / "run").mkdir()
    observer = Observers()
    observer.attach([MLflow(make_job(), tmp_path / "run")])
    observer.begin(0, "toy")
    for round in (1, 2):
        observer.round({**RECORD, "round": round})
    observer.end()
    assert capsys.readouterr().err.count("training continues without it") == 1
