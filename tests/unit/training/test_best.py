"""Judging by the silos' valid splits, ending for want of patience, and keeping the best model."""

import contextlib
import json
import os
import shutil

import pytest
import tomli_w
import torch
from pages import Reader
from safetensors.torch import load_file, save_file
from unit.builders import Alone, net, write_folder

from mpifl.algorithms.server import Server
from mpifl.common.errors import InputError, Unwritable
from mpifl.data.batches.batches import Batches
from mpifl.learning.metrics import ACCURACY
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.pages import write_report
from mpifl.report.runs import Output, compare_runs
from mpifl.report.runs.runs import read_run
from mpifl.run.folder import ROUND, checkpoint, read_metrics, round_of
from mpifl.run.job import read_job
from mpifl.run.job.tables import Evaluate
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.training.best import BEST, BestModel
from mpifl.training.loop import train
from mpifl.wings import wings_of


@pytest.fixture
def run(tmp_path):
    """Train on three silos with these keys of [evaluate]; return the records of the rounds."""

    def act(name="run", resume=False, rounds=4, valid=6, lr=0.1, **evaluate):
        if not (tmp_path / "shards").exists():
            write_folder(tmp_path / "shards", (10, 10, 10), test=20, silos_test=7, valid=valid)
        job = {
            "name": "toy",
            "shards": str(tmp_path / "shards"),
            "rounds": rounds,
            "device": "cpu",
            "model": {"name": "mlp", "hidden": [4]},
            "local": {"lr": lr},
            "checkpoint": {"every": 1},
            "evaluate": evaluate,
        }
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(job))
        train(tmp_path / f"{name}.toml", tmp_path / name, (), resume, Alone(), wings_of=wings_of)
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    return act


def without_costs(records):
    told = ("round", "train_loss", "silo_", "silos", "best_round", "evaluations_since_best", "final")
    return [{k: v for k, v in record.items() if k.startswith(told)} for record in records]


def test_rounds_are_judged_by_the_valid_splits_and_test_is_scored_at_the_end(run, tmp_path):
    usual, judged = run("usual"), run("judged", split="valid")
    assert not any("test_accuracy" in record for record in judged)
    assert [("final" in record) for record in judged] == [False, False, False, True]
    final = judged[-1]["final"]
    assert final["test_accuracy"] == usual[-1]["test_accuracy"]
    assert final["silo_accuracy_pooled"] == usual[-1]["silo_accuracy_pooled"]
    assert final["silos"] == usual[-1]["silos"]
    six = {round(6 * figures["accuracy"], 9) % 1 for figures in judged[-1]["silos"].values()}
    assert six == {0.0}, "each silo's accuracy is of its six valid examples"
    assert read_run(tmp_path / "judged").final() == final["test_accuracy"]


def test_without_a_valid_split_the_key_is_refused(run):
    with pytest.raises(InputError, match="no silo has such a split; partition with --valid"):
        run(valid=0, split="valid")


def says_that_it_stopped(capsys, run, round, why, records):
    """Whether the console, the page and the comparison say that a run of 9 rounds has stopped at this one."""
    key = "test_accuracy"
    best = max(records, key=lambda record: record[key])
    said = f"stopped early, after round {round} of 9: {why}; "
    said += f"round {best['round']} was best, with accuracy {best[key]:.2%}"
    assert capsys.readouterr().err.splitlines().count(said) == 1
    page = Reader(write_report(run).read_text()).titles()
    assert f"S{said[1:]}." in page
    assert "Stops early" in page
    compare_runs([run], output=Output(json=run / "compared.json", page=run / "compared.html"))
    printed = capsys.readouterr().out
    assert f"{run}: {said}\n" in printed
    assert f" {round} of 9 " in printed
    assert json.loads((run / "compared.json").read_text())["runs"][0]["stopped"] == said
    assert said in (run / "compared.html").read_text()


def test_a_run_that_reaches_its_target_says_that_it_stopped(run, tmp_path, capsys):
    records = run(rounds=9, lr=0.5, target_accuracy=0.01, stop_at_target=True)
    says_that_it_stopped(capsys, tmp_path / "run", 1, "the target, 1%, is reached", records)
    assert run("whole", rounds=1, target_accuracy=0.01, stop_at_target=True)
    assert "stopped early" not in capsys.readouterr().err
    assert read_run(tmp_path / "whole").stopped == ""


def test_training_ends_when_patience_does(run, tmp_path, capsys):
    records = run(rounds=9, lr=1e-9, patience=2)
    says_that_it_stopped(capsys, tmp_path / "run", 3, "no better accuracy in 2 evaluations", records)
    assert [record["evaluations_since_best"] for record in records] == [0, 1, 2]
    assert {record["best_round"] for record in records} == {1}
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert read_run(tmp_path / "run").finished
    assert run(rounds=9, lr=1e-9, patience=2, resume=True) == records


def test_the_best_model_is_that_of_its_round(run, tmp_path):
    records = run(rounds=8, lr=2.0, keep_best=True, split="valid")
    values = [record["silo_accuracy_pooled"] for record in records]
    best = records[-1]["best_round"]
    assert best == 1 + values.index(max(values))
    assert best < 8, "or the test shows nothing"
    run("short", rounds=best, lr=2.0)
    assert round_of(tmp_path / "run" / "best.safetensors") == best
    kept, other = load_file(tmp_path / "run" / "best.safetensors"), tmp_path / "short" / "model.safetensors"
    assert all(torch.equal(kept[name], tensor) for name, tensor in load_file(other).items())


def test_a_resumed_run_knows_what_was_best(run, tmp_path):
    whole = run(rounds=6, lr=2.0, keep_best=True, patience=5)
    run("halves", rounds=3, lr=2.0, keep_best=True, patience=5)
    halves = run("halves", rounds=6, lr=2.0, keep_best=True, patience=5, resume=True)
    assert without_costs(halves) == without_costs(whole)
    best = [(tmp_path / name / "best.safetensors").read_bytes() for name in ("run", "halves")]
    assert best[0] == best[1]


def test_the_best_model_is_of_a_round_of_the_run(run, tmp_path):
    """Not of one that it has gone back behind, nor of one before it kept none for a while."""
    lr, best = 2.0, tmp_path / "run" / "best.safetensors"
    records = run(rounds=8, lr=lr, keep_best=True)
    late = records[-1]["best_round"]
    assert late > 2, "or the test shows nothing"
    for round in range(2, 9):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"round_{round:06d}", ignore_errors=True)
    run("back", rounds=late - 1, lr=lr, keep_best=True)
    shutil.copytree(tmp_path / "back" / "checkpoints", tmp_path / "run" / "checkpoints", dirs_exist_ok=True)
    run(rounds=late - 1, lr=lr, keep_best=True, resume=True)
    assert not best.exists()
    with pytest.raises(InputError, match=r"best\.safetensors: is not there; no round was scored since"):
        evaluate_run(tmp_path / "run", best=True)
    again = run(rounds=8, lr=lr, keep_best=True, resume=True)
    assert round_of(best) == again[-1]["best_round"] == late
    run(rounds=9, lr=lr, patience=99, resume=True)
    records = run(rounds=10, lr=lr, keep_best=True, patience=99, resume=True)
    assert records[-1]["best_round"] == round_of(best)


def test_a_best_model_of_another_round_is_not_scored(run, tmp_path):
    records = run(rounds=3, keep_best=True)
    best = tmp_path / "run" / "best.safetensors"
    evaluate_run(tmp_path / "run", best=True)
    save_file(load_file(best), best, {"round": "1" if records[-1]["best_round"] != 1 else "2"})
    with pytest.raises(InputError, match=r"best\.safetensors: is of round \d, and round \d was the best"):
        evaluate_run(tmp_path / "run", best=True)


def test_the_model_of_an_earlier_end_is_gone_when_a_run_goes_on(run, tmp_path):
    """A run that is killed between its last round's line and its model is not finished."""
    folder = tmp_path / "run"
    run(rounds=2)
    kept = (folder / "model.safetensors").read_bytes()
    run(rounds=2, resume=True)
    assert (folder / "model.safetensors").read_bytes() == kept, "nothing was left to train"
    job = read_job(folder / "job.toml", ("rounds=4",))
    if (child := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            train(
                job,
                folder,
                (),
                True,
                Alone(),
                on_round=lambda r: r["round"] == 4 and os._exit(9),
                wings_of=wings_of,
            )
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [record["round"] for record in read_metrics(folder)] == [1, 2, 3, 4]
    found = read_run(folder)
    assert not found.finished
    assert found.remarks == ("unfinished: 4 of 4 rounds",)
    with pytest.raises(InputError, match="the run has not come to its end"):
        evaluate_run(folder)


def test_a_run_whose_record_lacks_the_checkpoints_round_goes_on(run, tmp_path):
    """As after a power failure, which the checkpoint has outlived and the line has not."""
    whole = run(rounds=4, keep_best=True, patience=5)
    metrics = tmp_path / "halves" / "metrics.jsonl"
    first = run("halves", rounds=2, keep_best=True, patience=5)
    metrics.write_text(json.dumps(first[0]) + "\n")
    halves = run("halves", rounds=4, keep_best=True, patience=5, resume=True)
    assert [record["round"] for record in halves] == [1, 3, 4]
    assert without_costs(halves[1:]) == without_costs(whole[2:])


def test_a_disk_without_room_for_the_best_model_ends_no_run(run, tmp_path, monkeypatch, capsys):
    """The next that is better is kept."""
    write, refused = checkpoint.write_model, []

    def crowded(path, *given):
        if path.name == "best.safetensors" and not refused:
            refused.append(path)
            raise Unwritable(path, OSError(28, "No space left on device"))
        return write(path, *given)

    monkeypatch.setattr(checkpoint, "write_model", crowded)
    records = run(rounds=6, keep_best=True)
    assert len(records) == 6
    assert refused
    assert "No space left on device); training goes on, and the next" in capsys.readouterr().err
    assert records[-1]["best_round"] > 1
    assert (tmp_path / "run" / "best.safetensors").exists()


@pytest.fixture
def largest(monkeypatch):
    """Return a function that says how many examples were scored at a time since it was asked."""
    found, plain = [], Batches.in_order

    def noted(self, size):
        for x, y in plain(self, size):
            found.append(len(y))
            yield x, y

    def act():
        most = max(found)
        found.clear()
        return most

    monkeypatch.setattr(Batches, "in_order", noted)
    return act


def test_so_many_examples_are_scored_at_a_time(run, tmp_path, largest):
    usual = run("usual")
    assert largest() == 20, "all of the test set"
    small = run("small", batch_size=4)
    assert largest() == 4
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("usual", "small")]
    assert models[0] == models[1]
    for key in ("train_loss", "test_accuracy", "silo_accuracy_pooled"):
        assert usual[-1][key] == small[-1][key]
    assert usual[-1]["test_loss"] == pytest.approx(small[-1]["test_loss"])


@pytest.mark.parametrize(("of_file", "kept"), [(3, True), (2, False), (None, False)])
def test_the_best_is_forgotten_where_its_file_is_of_another_round(tmp_path, of_file, kept):
    server, path = Server([FlatModel(net())]), tmp_path / "best.safetensors"
    server.state[BEST] = torch.tensor([0.9, 3, 1, 4], dtype=torch.float64)
    if of_file is not None:
        checkpoint.write_model(path, server.models[0], {ROUND: str(of_file)})
    BestModel(Evaluate(keep_best=True), ACCURACY, server, tmp_path).begin()
    best, of_round, since, last = server.state[BEST].tolist()
    assert (path.exists(), of_round, since, last) == ((True, 3, 1, 4) if kept else (False, 0, 0, 4))
    assert best == 0.9 if kept else best != best
