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
from torch import nn
from unit.builders import Alone, net, write_folder

from mpifl import Run
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common.errors import InputError, Unwritable
from mpifl.data.batches.batches import Batches
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.pages import write_report
from mpifl.report.runs import Output, compare_runs
from mpifl.report.runs.compared_runs import show_run
from mpifl.report.runs.run_summary import read_run
from mpifl.run.folder import ROUND, checkpoint, read_metrics, round_of
from mpifl.run.job import read_job
from mpifl.run.job.tables import Evaluate
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.training.beforehand import validate_job
from mpifl.training.early_stopping import BEST, BestModel
from mpifl.training.loop import train
from mpifl.wings import wings_of


@pytest.fixture
def run(tmp_path):
    """Train on three silos with these keys of [evaluate]; return the records of the rounds."""

    def act(name="run", resume=False, rounds=4, valid=6, lr=0.1, tables=None, **evaluate):
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
            **(tables or {}),
        }
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(job))
        train(tmp_path / f"{name}.toml", tmp_path / name, (), resume, Alone(), wings_of=wings_of)
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    return act


def without_costs(records):
    told = ("round", "train_loss", "silo_", "silos", "best_round", "evaluations_since_best", "final", "model")
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


def says_that_it_stopped(capsys, run, round, why, records, more=""):
    """Whether the console, the page and the comparison say that a run of 9 rounds has stopped at this one."""
    key = "test_accuracy"
    best = max(records, key=lambda record: record[key])
    said = f"stopped early, after round {round} of 9: {why}; "
    said += f"round {best['round']} was best, with accuracy {best[key]:.2%}{more}"
    assert capsys.readouterr().err.splitlines().count(said) == 1
    page = Reader(write_report(run).read_text()).titles()
    assert f"S{said[1:]}." in page
    assert "The run stops early" in page
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
    folder, why = tmp_path / "run", "no better accuracy in 2 evaluations"
    records = run(rounds=9, lr=0.3, patience=2)
    says_that_it_stopped(capsys, folder, 3, why, records, ", and model.safetensors is of it")
    assert [record["evaluations_since_best"] for record in records] == [0, 1, 2]
    assert {record["best_round"] for record in records} == {1}
    assert [record.get("model_round") for record in records] == [None, None, 1]
    assert json.loads((folder / "compared.json").read_text())["runs"][0]["model_round"] == 1
    page = " ".join(Reader((folder / "report.html").read_text()).text)
    assert "by the best model, of round 1" in page
    assert "Warning: the best round was chosen on the rows that score it" in page
    assert [round_of(folder / f"{name}.safetensors") for name in ("model", "last", "best")] == [1, 3, 1]
    assert read_run(folder).finished
    assert run(rounds=9, lr=0.3, patience=2, resume=True) == records
    records = run("other", rounds=9, lr=0.3, patience=2, keep_best=False)
    says_that_it_stopped(capsys, tmp_path / "other", 3, why, records)
    assert "model_round" not in records[-1]
    assert not any((tmp_path / "other" / f"{name}.safetensors").exists() for name in ("last", "best"))


def test_a_metric_that_never_moved_has_no_best_round_and_the_model_is_the_last_one(run, tmp_path, capsys):
    records = run(rounds=9, lr=1e-9, patience=2)
    said = "stopped early, after round 3 of 9: no better accuracy in 2 evaluations; accuracy never moved: "
    said += "30.00% in each of 3 evaluations, so no round is best, and the model is the last one"
    assert capsys.readouterr().err.splitlines() == [said]
    assert "model_round" not in records[-1]
    assert round_of(tmp_path / "run" / "model.safetensors") == 0
    assert not (tmp_path / "run" / "last.safetensors").exists()
    assert f"S{said[1:]}." in Reader(write_report(tmp_path / "run").read_text()).titles()
    halves = run("halves", rounds=2, lr=1.5, patience=5)
    assert "model_round" not in halves[-1]
    halves = run("halves", rounds=3, lr=1.5, patience=5, resume=True)
    assert without_costs(halves) == without_costs(run("whole", rounds=3, lr=1.5, patience=5))
    assert halves[-1]["model_round"] == 1
    for name in ("model", "last", "best"):
        assert same_model(*(tmp_path / of / f"{name}.safetensors" for of in ("halves", "whole")))


NORMED = {"model": {"name": "unit.training.test_best:normed"}}
"""A model with running statistics."""


def normed(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 5), nn.BatchNorm1d(5), nn.Linear(5, classes))


def same_model(one, other):
    first, second = load_file(one), load_file(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def state_of(folder, round):
    """What the training continues from, but for what it remembers of the best."""
    state = load_file(folder / "checkpoints" / f"round_{round:06d}" / "server.safetensors")
    return {name: tensor for name, tensor in state.items() if name != BEST}


def test_the_model_that_is_kept_best_is_the_runs_and_scored_at_the_end(run, tmp_path, capsys):
    """As that of a run of so many rounds; the training continues from the last one."""
    records = run(rounds=8, lr=2.0, keep_best=True, split="valid", tables=NORMED)
    values = [record["silo_accuracy_pooled"] for record in records]
    best = records[-1]["model_round"]
    assert best == records[-1]["best_round"] == 1 + values.index(max(values))
    assert best < 8, "or the test shows nothing"
    short = run("short", rounds=best, lr=2.0, split="valid", tables=NORMED)
    whole = run("whole", rounds=8, lr=2.0, split="valid", tables=NORMED)
    folder = tmp_path / "run"
    assert round_of(folder / "model.safetensors") == best
    for name, other in (("model", "short"), ("best", "short"), ("last", "whole")):
        assert same_model(folder / f"{name}.safetensors", tmp_path / other / "model.safetensors")
    assert not same_model(folder / "model.safetensors", folder / "last.safetensors")
    assert records[-1]["final"] == short[-1]["final"] != whole[-1]["final"]
    ours, theirs = state_of(folder, 8), state_of(tmp_path / "whole", 8)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)
    summary = read_run(folder)
    assert summary.of_model["round"] == summary.model_round == best
    assert summary.figures(None)["test_accuracy"] is None
    assert summary.figures(None)["final_accuracy"] == short[-1]["final"]["test_accuracy"]
    for last, name in ((False, "model"), (True, "last")):
        weights = Run.of(folder).model(last=last).state_dict()
        assert all(
            torch.equal(weights[key], of) for key, of in load_file(folder / f"{name}.safetensors").items()
        )
    show_run(folder)
    said = f"model.safetensors, of round {best}, the best; {folder / 'last.safetensors'} is of the last"
    assert said in capsys.readouterr().out


def test_a_run_that_goes_on_after_its_end_has_the_model_of_one_in_one_go(run, tmp_path):
    first = run("halves", rounds=9, lr=2.0, patience=1)
    assert len(first) < 8, "or the test shows nothing"
    halves = run("halves", rounds=9, lr=2.0, patience=5, resume=True)
    whole = run(rounds=9, lr=2.0, patience=5)
    assert without_costs(halves) == without_costs(whole)
    for name in ("model", "last", "best"):
        found = [(tmp_path / of / f"{name}.safetensors").read_bytes() for of in ("halves", "run")]
        assert found[0] == found[1]


def test_who_changes_the_key_after_the_end_gets_the_other_model(run, tmp_path):
    folder, keys = tmp_path / "run", {"rounds": 8, "lr": 2.0, "split": "valid"}
    kept = run(keep_best=True, **keys)
    last = run("plain", **keys)
    assert run(keep_best=False, resume=True, **keys)[-1]["final"] == last[-1]["final"]
    assert "model_round" not in read_metrics(folder)[-1]
    assert not (folder / "last.safetensors").exists()
    assert same_model(folder / "model.safetensors", tmp_path / "plain" / "model.safetensors")
    assert run(keep_best=True, resume=True, **keys)[-1] == kept[-1]
    assert round_of(folder / "model.safetensors") == kept[-1]["best_round"]


@pytest.mark.parametrize("torn", [False, True])
def test_a_best_model_that_cannot_be_read_at_the_end_leaves_the_last_one(run, tmp_path, capsys, torn):
    """Nor one that is gone."""
    best, keys = tmp_path / "run" / "best.safetensors", {"rounds": 8, "lr": 2.0, "keep_best": True}
    run(**keys)
    run("plain", rounds=8, lr=2.0)
    if torn:
        best.write_bytes(best.read_bytes()[:-8])
    else:
        best.unlink()
    assert "model_round" not in run(resume=True, **keys)[-1]
    assert same_model(tmp_path / "run" / "model.safetensors", tmp_path / "plain" / "model.safetensors")
    assert "no model of the best round is kept" in capsys.readouterr().err


@pytest.mark.parametrize("missed", ["last", "model"])
def test_a_run_that_ends_between_its_two_models_is_not_finished(run, tmp_path, monkeypatch, missed):
    write, folder = checkpoint.write_model, tmp_path / "run"

    def crowded(path, *given):
        if path.name == f"{missed}.safetensors":
            raise Unwritable(path, OSError(28, "No space left on device"))
        return write(path, *given)

    monkeypatch.setattr(checkpoint, "write_model", crowded)
    with pytest.raises(InputError, match="No space left on device"):
        run(rounds=6, lr=2.0, keep_best=True)
    monkeypatch.undo()
    assert not read_run(folder).finished
    records = run(rounds=6, lr=2.0, keep_best=True, resume=True)
    assert round_of(folder / "model.safetensors") == records[-1]["model_round"]
    run("whole", rounds=6, lr=2.0, keep_best=True)
    for name in ("model", "last"):
        assert same_model(*(tmp_path / of / f"{name}.safetensors" for of in ("run", "whole")))


def test_a_target_that_ends_the_run_is_at_its_best_round(run, tmp_path):
    records = run(rounds=9, lr=0.5, target_accuracy=0.01, stop_at_target=True, patience=2)
    assert records[-1]["model_round"] == len(records) == 1
    assert same_model(*(tmp_path / "run" / f"{name}.safetensors" for name in ("model", "last")))


OWN = [{"name": "finetune"}, {"name": "fedper", "personal": ["*.bias"]}]


@pytest.mark.parametrize("algorithm", OWN, ids=lambda table: table["name"])
def test_models_of_silos_are_those_of_the_last_round(run, tmp_path, algorithm):
    records = run(rounds=9, lr=1e-9, patience=1, tables={"algorithm": algorithm})
    assert records[-1]["best_round"] == 1 < len(records) < 9
    assert "model_round" not in records[-1]
    assert not any((tmp_path / "run" / f"{name}.safetensors").exists() for name in ("last", "best"))
    what = rf"keep_best = true: '{algorithm['name']}' leaves a model of its own at each silo"
    with pytest.raises(InputError, match=what):
        run("refused", keep_best=True, tables={"algorithm": algorithm})
    with pytest.raises(InputError, match=what):
        validate_job(read_job(tmp_path / "refused.toml"), "the job", wings_of)


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
    assert round_of(tmp_path / "run" / "model.safetensors") == 0
    again = run(rounds=8, lr=lr, keep_best=True, resume=True)
    assert round_of(best) == again[-1]["best_round"] == late
    assert again[-1]["model_round"] == late


def test_a_best_model_of_another_round_is_not_scored(run, tmp_path, capsys):
    folder = tmp_path / "run"
    records = run(rounds=3, keep_best=True)
    best = folder / "best.safetensors"
    (folder / "model.safetensors").unlink()  # as of a run that continues
    evaluate_run(folder)
    said = f"model: {best}, of round {round_of(best)}, the best so far; the run has not come to its end\n"
    assert said in capsys.readouterr().out
    with pytest.raises(InputError, match=r"model\.safetensors: is not there; the run has not come"):
        evaluate_run(folder, last=True)
    save_file(load_file(best), best, {"round": "1" if records[-1]["best_round"] != 1 else "2"})
    with pytest.raises(InputError, match=r"best\.safetensors: is of round \d, and round \d was the best"):
        evaluate_run(folder)


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
    assert found.remarks[0] == "unfinished: 4 of 4 rounds"
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
    assert "No space left on device); training continues, and the next" in capsys.readouterr().err
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
def test_a_file_of_another_round_is_removed_and_patience_counts_on(tmp_path, of_file, kept):
    server, path = Server([FlatModel(net())]), tmp_path / "best.safetensors"
    server.state[BEST] = torch.tensor([0.9, 3, 1, 4], dtype=torch.float64)
    if of_file is not None:
        checkpoint.write_model(path, server.models[0], {ROUND: str(of_file)})
    best = BestModel(Evaluate(keep_best=True), FedAvg(), server, tmp_path)
    best.begin()
    assert server.state[BEST].tolist() == [0.9, 3, 1, 4]
    assert (path.exists(), best.kept) == (kept, 3 if kept else 0)
