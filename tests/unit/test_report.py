"""What is made of a run's rounds: figures, tables, curves, and the words on the terminal."""

from pathlib import Path

import h5py
import pytest
from unit.builders import CLASSES, FEATURES, write_folder

from mpifl import checkpoint, models
from mpifl.errors import InputError
from mpifl.flat import FlatModel
from mpifl.job import check_job
from mpifl.report import Summary, compare_runs, draw, evaluate_run, read_run, show_run
from mpifl.run import claim_run, encode_record
from mpifl.tracking.base import Observer
from mpifl.tracking.console import Console, figures_of

RECORDS = [
    {
        "round": 1,
        "train_loss": 2.0,
        "test_loss": 1.5,
        "test_accuracy": 0.5,
        "seconds": 1.0,
        "bytes_sent": 2e6,
        "bytes_received": 1e6,
    },
    {"round": 2, "train_loss": 1.5, "seconds": 2.0, "bytes_sent": 2e6, "bytes_received": 1e6},
    {
        "round": 3,
        "train_loss": 1.0,
        "test_loss": 0.5,
        "test_accuracy": 0.9,
        "seconds": 3.0,
        "bytes_sent": 2e6,
        "bytes_received": 1e6,
    },
    {
        "round": 4,
        "train_loss": 0.9,
        "test_loss": 0.625,
        "test_accuracy": 0.8125,
        "seconds": 4.0,
        "silo_accuracy_worst": 0.25,
        "silo_accuracy_std": 0.125,
    },
    {"round": 5, "train_loss": 0.8, "seconds": 5.0},
]


def write(folder, records=RECORDS):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    return folder


def table_of(printed):
    """Return the rows of a printed table, its headings first, as lists of cells."""
    lines = [line for line in printed.splitlines() if line.startswith(("┃", "│"))]
    return [[cell.strip() for cell in line.strip("┃│ ").replace("│", "┃").split("┃")] for line in lines]


@pytest.fixture
def summary():
    return Summary(Path("run"), RECORDS)


def test_the_figures_are_those_of_the_last_round_that_was_evaluated(summary):
    assert summary.last["round"] == 4
    assert summary.figure("test_accuracy") == 0.8125
    assert summary.figure("silo_accuracy_worst") == 0.25
    assert summary.figure("no such figure") is None
    assert summary.best() == 0.9


def test_a_run_that_was_never_evaluated_is_told_by_its_last_round():
    summary = Summary(Path("run"), [{"round": 1}, {"round": 2, "train_loss": 1.0}])
    assert summary.last["round"] == 2
    assert summary.best() is None
    assert summary.figure("test_accuracy") is None
    assert summary.reached(0.0) is None


def test_totals_add_up_over_rounds_and_up_to_one(summary):
    assert summary.total("seconds") == 15.0
    assert summary.total("bytes_sent", "bytes_received") == 9e6
    assert summary.total("seconds", until=3) == 6.0
    assert summary.total("bytes_sent", until=2) == 4e6


@pytest.mark.parametrize(("target", "round"), [(0.5, 1), (0.51, 3), (0.9, 3), (0.91, None)])
def test_a_target_is_reached_in_the_first_round_that_has_it(summary, target, round):
    assert summary.reached(target) == round


def test_a_folder_without_rounds_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"no rounds in metrics\.jsonl; name the folder of a run"):
        read_run(tmp_path)


def test_a_comparison_has_a_row_for_every_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compare_runs([write(Path("a")), write(Path("b"), RECORDS[:2])], 0.9, None)
    headings, one, other = table_of(capsys.readouterr().out)
    found = dict(zip(headings, one, strict=True))
    assert found == {
        "run": "a",
        "rounds": "5",
        "accuracy": "81.25%",
        "best": "90.00%",
        "loss": "0.6250",
        "worst silo": "25.00%",
        "std": "12.50%",
        "seconds": "15.0",
        "MB sent": "6.0",
        "MB received": "3.0",
        "to 90%": "3 rounds, 6.0 s, 9.0 MB",
    }
    assert other[:3] + other[-1:] == ["b", "2", "50.00%", "not reached in 2 rounds"]
    assert other[5] == "-"


def test_a_target_is_named_to_the_digit_that_was_given(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compare_runs([write(Path("a"))], 0.975, None)
    assert table_of(capsys.readouterr().out)[0][-1] == "to 97.5%"


def test_a_comparison_without_a_target_has_no_column_for_it(tmp_path, capsys):
    compare_runs([write(tmp_path)], None, None)
    assert table_of(capsys.readouterr().out)[0][-1] == "MB received"


def test_curves_are_drawn_into_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    draw([Summary(Path("a"), RECORDS), Summary(Path("b"), RECORDS[:1])], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"--plot .*: cannot be written"):
        draw([Summary(Path("a"), RECORDS)], tmp_path / "nowhere" / "curves.png")


def test_a_finished_run_is_shown_with_its_target_and_where_its_model_lies(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Path("run")
    claim_run(run, make_job(tmp_path, evaluate={"target_accuracy": 0.9}))
    show_run(run)
    assert "no round was run" in capsys.readouterr().out
    write(run)
    show_run(run)
    printed = capsys.readouterr().out
    assert table_of(printed)[1][-1] == "3 rounds, 6.0 s, 9.0 MB"
    assert f"model: {run / 'model.safetensors'}" in printed


def make_job(folder, **more):
    table = {"name": "toy", "shards": str(folder / "shards"), "rounds": 1, "model": {"name": "logreg"}, **more}
    return check_job(table, "toy.toml")


def test_the_model_of_a_run_is_scored_on_the_test_set(tmp_path, capsys):
    write_folder(tmp_path / "shards", [4], test=20)
    claim_run(tmp_path, make_job(tmp_path))
    with pytest.raises(InputError, match=r"model\.safetensors: is not there; the run has not come to its end"):
        evaluate_run(tmp_path)
    model = FlatModel(models.build("logreg", {}, FEATURES, CLASSES, 0))
    model.trained.zero_()
    model.trained[-CLASSES + 1] = 1.0  # the bias of class 1
    checkpoint.write_model(tmp_path / "model.safetensors", model)
    evaluate_run(tmp_path)
    share = read_labels(tmp_path / "shards").count(1) / 20
    assert f"test accuracy {share:.2%}, 20 examples" in capsys.readouterr().out


def read_labels(folder):
    with h5py.File(folder / "test.h5") as file:
        return file["test/y"][:].tolist()


def test_a_run_without_a_test_set_cannot_be_scored(tmp_path):
    write_folder(tmp_path / "shards", [4])
    claim_run(tmp_path, make_job(tmp_path))
    with pytest.raises(InputError, match="has no test set"):
        evaluate_run(tmp_path)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, ""),
        ({"train_loss": 0.12345}, "loss 0.1235"),
        ({"train_loss": 1.0, "test_accuracy": 0.98765}, "loss 1.0000  accuracy 98.77%"),
        ({"test_accuracy": 1.0, "faults": {"3": "torn", "12": "late"}}, "accuracy 100.00%  without silo 3, 12"),
        ({"train_loss": 1.0, "faults": {}}, "loss 1.0000"),
    ],
    ids=str,
)
def test_a_round_is_told_in_a_few_words(record, words):
    assert figures_of(record) == words


def test_without_a_terminal_only_trouble_is_told_unless_asked(capsys):
    for wanted in (False, True, "always"):
        console, always = Console(3, wanted), wanted == "always"
        console.begin(0, "toy: fedavg")
        console.round({"round": 1, "train_loss": 1.0, "seconds": 0.5})
        console.note("silo 3 is broken")
        console.end()
        out, err = capsys.readouterr()
        assert ("toy: fedavg" in out) is ("round 1  loss 1.0000  0.50 s" in out) is always
        assert "silo 3 is broken" in (out if always else err)
        assert "\x1b" not in out


def test_an_observer_by_itself_reports_nothing(capsys):
    observer = Observer()
    observer.begin(0, "title")
    observer.round({"round": 1})
    observer.note("a line")
    observer.end()
    assert capsys.readouterr() == ("", "")


def test_tensorboard_is_told_every_number_of_a_round(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from mpifl.tracking.board import TensorBoard

    board = TensorBoard(tmp_path)
    board.round({"round": 3, "time": 1e9, "train_loss": 0.5, "test_accuracy": 0.25, "faults": {}})
    board.end()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["accuracy/test", "loss/train"]
    assert [(event.step, event.value) for event in events.Scalars("loss/train")] == [(3, 0.5)]
