"""The model of a run at its silos: the figures of the training, for every split, shards missing."""

import csv
import json
import re

import numpy as np
import pytest
import torch
from pages import Reader
from safetensors.torch import load_file, save_file
from sklearn import metrics as sk
from torchmetrics.functional import calibration_error
from typer.testing import CliRunner
from unit.builders import Alone, write_folder

from mpifl.cli import app
from mpifl.common.errors import InputError
from mpifl.data.shards import open_shard, read_federation
from mpifl.learning.metrics import ToldAnswers
from mpifl.report.findings.diverged import weak_answers
from mpifl.report.judging.at_silos import tell_certainty
from mpifl.report.judging.evaluate import evaluate_run, evaluate_silos
from mpifl.report.judging.predict import predict_run
from mpifl.report.judging.trained import OwnModel, read_trained
from mpifl.report.pages.answers_section import SILOS, Answered, answer_charts, plot_answers
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs.chance import interval
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs
from mpifl.run.folder import load_final
from mpifl.run.job import Job
from mpifl.training.loop import train
from mpifl.wings import wings_of

MODEL = {"name": "mlp", "hidden": [4]}


def make_run(
    folder, test=0, silos_test=7, valid=0, rounds=2, sizes=(10, 20, 30), algorithm=None, classes=3, **tables
):
    """Train a small model over shards drawn anew; return the run folder and its records."""
    write_folder(folder / "shards", sizes, classes=classes, test=test, silos_test=silos_test, valid=valid)
    job = {"name": "toy", "shards": str(folder / "shards"), "rounds": rounds, "device": "cpu", "model": MODEL}
    train(
        job | {"algorithm": algorithm or {"name": "fedavg"}} | tables,
        folder / "run",
        (),
        False,
        Alone(),
        wings_of=wings_of,
    )
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return folder / "run", [json.loads(line) for line in lines]


def scored(run, **more):
    evaluate_silos(run, file=run / "scores.json", **more)
    return json.loads((run / "scores.json").read_text())


def test_the_figures_of_silos_are_those_of_the_training(tmp_path, capsys):
    run, records = make_run(tmp_path)
    found, last = scored(run), records[-1]
    own = {name: {k: silo[k] for k in ("loss", "accuracy")} for name, silo in found["silos"].items()}
    assert own == last["silos"]
    assert found["mean"]["accuracy"] == pytest.approx(last["silo_accuracy_mean"])
    assert found["worst"] == {"loss": last["silo_loss_worst"], "accuracy": last["silo_accuracy_worst"]}
    total = sum(silo["examples"] * silo["loss"] for silo in found["silos"].values())
    mean = total / sum(silo["examples"] for silo in found["silos"].values())
    assert found["pooled"] == {"loss": pytest.approx(mean), "accuracy": last["silo_accuracy_pooled"]}
    assert found["worst_silo"] in found["silos"]
    assert {silo["split"] for silo in found["silos"].values()} == {"test"}
    printed = capsys.readouterr().out
    assert f"split test; worst accuracy: silo {found['worst_silo']}" in printed
    assert re.search(rf"all examples\W+21\W+{mean:.4f}", printed)


def test_it_is_said_where_silos_use_models_of_their_own(tmp_path, capsys):
    run, _ = make_run(tmp_path, algorithm={"name": "ditto", "lambda": 0.0})
    capsys.readouterr()
    scored(run)
    assert capsys.readouterr().err == (
        f"note: {run}: this is the server's model; rounds have scored what ditto makes for each silo\n"
    )


@pytest.mark.parametrize(("split", "examples"), [("valid", 5), ("train", 20), ("test", 7), (None, 7)])
def test_each_split_can_be_asked(tmp_path, split, examples):
    run, _ = make_run(tmp_path, valid=5)
    assert scored(run, split=split)["silos"]["1"]["examples"] == examples


def test_a_split_that_no_silo_has_is_refused(tmp_path):
    run, _ = make_run(tmp_path, silos_test=0)
    with pytest.raises(InputError, match="no silo has a split 'valid'; use another --split"):
        evaluate_silos(run, split="valid")
    with pytest.raises(InputError, match="no silo holds out examples; use --silos --split train"):
        evaluate_silos(run)
    with pytest.raises(InputError, match="--split public: is not one of test, valid, train"):
        evaluate_silos(run, split="public")


def test_silos_whose_shards_are_missing_are_named_and_left_out(tmp_path, capsys):
    run, records = make_run(tmp_path)
    (tmp_path / "shards" / "silo_0001.h5").unlink()
    found = scored(run)
    assert list(found["silos"]) == ["0", "2"]
    assert found["silos"]["2"]["loss"] == records[-1]["silos"]["2"]["loss"]
    assert "silo_0001.h5" in found["left_out"]["1"]
    assert re.search(r"^silo 1 left out: .*silo_0001\.h5", capsys.readouterr().out, re.MULTILINE)
    for silo in (0, 2):
        (tmp_path / "shards" / f"silo_000{silo}.h5").unlink()
    with pytest.raises(InputError, match=r"no silo's shard can be read here; silo 0: .*silo_0000\.h5"):
        evaluate_silos(run)


def test_the_best_model_is_scored_where_it_is_kept_and_the_last_on_wish(tmp_path, capsys):
    run, records = make_run(
        tmp_path,
        rounds=8,
        valid=6,
        test=20,
        local={"lr": 2.0},
        evaluate={"keep_best": True, "split": "valid"},
    )
    best = records[-1]["best_round"]
    assert best < 8, "or the test shows nothing"
    for last, round in ((False, best), (True, 8)):
        figures = scored(run, last=last, split="valid")
        assert figures["pooled"]["accuracy"] == records[round - 1]["silo_accuracy_pooled"]
        assert figures["silos"]["1"]["loss"] == records[round - 1]["silos"]["1"]["loss"]
    evaluate_run(run, file=run / "test.json")
    found = json.loads((run / "test.json").read_text())
    assert (found["model"], found["model_round"]) == ("model.safetensors", best)
    assert found["test"]["examples"] == 20
    assert found["test"]["accuracy"] == records[-1]["final"]["test_accuracy"]
    said = capsys.readouterr().out
    assert f"test accuracy {found['test']['accuracy']:.2%}" in said
    assert f"model: {run}/model.safetensors, of round {best}, the best\n" in said
    assert f"model: {run}/last.safetensors, of round 8, the last\n" in said
    trained = read_trained(run, ())
    begun = trained.model()
    load_final(begun.module, trained.job.model, run / "initial.safetensors")
    split = open_shard(trained.folder, trained.spec.test, trained.spec)["test"]
    for words in ((), ("--silos",), ("--data", tmp_path / "shards")):
        asked = ["evaluate", run, "--initial", "--json", run / "begun.json", *words]
        done = CliRunner().invoke(app, [*map(str, asked)])
        assert done.exit_code == 0
        assert f"model: {run}/initial.safetensors, before the training\n" in done.output
        if not words:
            found = json.loads((run / "begun.json").read_text())
            assert found["model"] == "initial.safetensors"
            assert found["test"]["loss"] == trained.evaluate(begun, split).loss
    refused = CliRunner().invoke(app, ["evaluate", str(run), "--initial", "--last"])
    assert "--initial: --last is given, too; leave one out" in str(refused.exception)
    (run / "initial.safetensors").unlink()
    refused = CliRunner().invoke(app, ["evaluate", str(run), "--initial"])
    assert "initial.safetensors: is not there" in str(refused.exception)


def evaluated(run, *words):
    """Carry out `mpifl evaluate`; return its result, and what it wrote."""
    done = CliRunner().invoke(app, ["evaluate", str(run), "--json", str(run / "more.json"), *words])
    return done, json.loads((run / "more.json").read_text()) if not done.exit_code else None


@pytest.mark.parametrize("kind", ["binary", "two classes", "classes"])
def test_metrics_asked_of_a_finished_run_are_those_of_its_predictions(tmp_path, kind):
    """scikit-learn and torchmetrics say the same of the table that `predict` writes, to four digits."""
    classes = 3 if kind == "classes" else 2
    task = YES_OR_NO if kind == "binary" else {"name": "classification"}
    task = {**task, "metrics": ["accuracy", "auroc", "average_precision"], "main": "accuracy"}
    run, records = make_run(tmp_path, silos_test=60, test=50, classes=classes, task=task)
    names = ["accuracy", "brier", "calibration_error", "auroc", "balanced_accuracy", "matthews"]
    asked = [word for name in names for word in ("--metric", name)]
    asked += ["--metric", '{name = "auroc", as = "again"}']
    done, told = evaluated(run, "--silos", *asked)
    assert done.exit_code == 0, done.output
    assert told["pooled"]["accuracy"] == records[-1]["silo_accuracy_pooled"]
    predict_run(run, tmp_path / "shards", tmp_path / "p.csv", split="test")
    own = [one for one in csv.DictReader((tmp_path / "p.csv").open()) if one["silo"] in told["silos"]]
    y = np.array([int(one["y"]) for one in own])
    p = np.array([[float(of) for name, of in one.items() if name.startswith("p_")] for one in own])
    p = p / p.sum(1, keepdims=True) if p.shape[1] > 1 else p  # float32
    yes = p[:, -1] if classes == 2 else p
    answers = p.argmax(1) if p.shape[1] > 1 else (yes > 0.5).astype(int)
    form = {"task": "binary"} if kind == "binary" else {"task": "multiclass", "num_classes": classes}
    by_bins = calibration_error(torch.tensor(yes if kind == "binary" else p), torch.tensor(y), **form)
    assert told["pooled"]["again"] == told["pooled"]["auroc"]
    found = {
        "accuracy": sk.accuracy_score(y, answers),
        "brier": sk.brier_score_loss(y, yes),
        "calibration_error": float(by_bins),
        "auroc": sk.roc_auc_score(y, yes, multi_class="ovr"),
        "balanced_accuracy": sk.balanced_accuracy_score(y, answers),
        "matthews": sk.matthews_corrcoef(y, answers),
    }
    assert {name: told["pooled"][name] for name in found} == pytest.approx(found, abs=1e-6)
    assert records[-1]["silo_auroc_pooled"] == pytest.approx(found["auroc"], abs=1e-6)
    precise = np.mean([sk.average_precision_score(y == c, p[:, c]) for c in range(p.shape[1])])
    precise = precise if p.shape[1] > 1 else sk.average_precision_score(y, yes)
    for value in (told["pooled"], records[-1]):
        key = "average_precision" if value is told["pooled"] else "silo_average_precision_pooled"
        assert value[key] == pytest.approx(precise, abs=1e-6)
    if kind == "binary":
        check_another_threshold(run, y, yes, records)
    if kind == "two classes":  # both are of the same rows, and each is judged by the names alone
        assert set(evaluated(run, *asked)[1]["test"]) >= set(names)
        assert set(evaluated(run, "--data", str(tmp_path / "shards"), *asked)[1]["pooled"]) >= set(names)


def check_another_threshold(run, y, yes, records):
    """Figures of answers follow a threshold, those of probabilities do not; a page and a table say which."""
    above = float(np.quantile(yes, 0.8))
    names = ("recall", "precision", "matthews", "auroc")
    words = [word for name in names for word in ("--metric", name)]
    done, told = evaluated(run, "--silos", *words, "--threshold", str(above))
    assert (
        f"note: accuracy, recall, precision, matthews: yes is answered above a probability of {above:g}"
        in (done.output)
    )
    answers = (yes > above).astype(int)
    found = {
        "accuracy": sk.accuracy_score(y, answers),
        "recall": sk.recall_score(y, answers),
        "precision": sk.precision_score(y, answers),
        "matthews": sk.matthews_corrcoef(y, answers),
        "auroc": records[-1]["silo_auroc_pooled"],
    }
    assert {name: told["pooled"][name] for name in found} == pytest.approx(found)
    assert told["answers"]["confusion"] == sk.confusion_matrix(y, answers).tolist()
    assert told["answers"]["threshold"] == above
    evaluated(run, "--threshold", str(above))
    for given, said in ((None, "0.5"), ([run / "more.json"], f"{above:g}")):
        words = " ".join(Reader(write_report(run, None, None, given or ()).read_text()).titles())
        assert f"is predicted above a probability of {said}. Correct" in words
    table = run.parent / "answers.csv"
    predict_run(run, run.parent / "shards", table, split="test", threshold=above)
    rows = [one for one in csv.DictReader(table.open()) if one["silo"] in told["silos"]]
    assert [int(one[next(name for name in one if name.startswith("answer"))]) for one in rows] == [*answers]
    for given in ("0", "1", "nan"):
        assert "should be above 0 and below 1" in str(evaluated(run, "--threshold", given)[0].exception)


def test_metrics_that_do_not_fit_the_task_are_refused_with_those_that_do(tmp_path):
    run, _ = make_run(tmp_path)
    for words, said in (
        (
            ("--metric", "briar"),
            "--metric briar: does not fit the task 'classification'; did you mean 'brier'? ",
        ),
        (
            ("--silos", "--metric", "dice"),
            "--metric dice: does not fit the task 'classification'; these do: acc",
        ),
        (("--metric", '{name = "brier", }'), "--metric {name = "),
        (("--threshold", "0.2"), "--threshold 0.2: is for the task 'binary'; that of the run is 'classifica"),
        (("--metric", "{name = 3}"), "--metric 3: does not fit the task"),
        (
            ("--metric", '{name = "accuracy"}'),
            "--metric: metric: two are called 'accuracy'; give one another",
        ),
        (("--metric", '{name = "f1", of = 2}'), "--metric: metric"),
        (("--metric", "os:system"), "--metric os:system: does not fit the task 'classification'; these do:"),
    ):
        done, _ = evaluated(run, *words)
        assert isinstance(done.exception, InputError), done.output
        assert str(done.exception).startswith(said)


def test_a_value_whose_bound_is_a_rounding_is_exact():
    assert tell_certainty("auroc", {"within": 6e-17}) == "auroc: exact"
    assert "at most 0.06 points" in tell_certainty("auroc", {"within": 6e-4})
    assert "at most 50 points" in tell_certainty("auroc", {"within": 0.5})


def test_a_run_that_keeps_no_best_model_has_one(tmp_path):
    run, _ = make_run(tmp_path)
    assert scored(run, last=True) == scored(run)
    assert "model_round" not in scored(run)


def test_silos_that_own_a_part_of_the_model_are_not_scored(tmp_path, monkeypatch):
    run, _ = make_run(tmp_path, algorithm={"name": "fedper", "personal": ["*.bias"]})
    each = r"fedper leaves .* at the silos, which have a model each"
    with pytest.raises(InputError, match=rf"{each}, in personal/; name a --silo; metrics"):
        evaluate_silos(run)
    monkeypatch.setattr(Job, "secure", True)
    with pytest.raises(
        InputError, match=rf"{each}, in personal/{run.name} of its site's folder; name a --silo; metrics"
    ):
        evaluate_silos(run)


@pytest.mark.parametrize("algorithm", [{"name": "fedper", "personal": ["*.bias"]}, {"name": "finetune"}])
def test_a_silos_own_model_answers_where_it_is_named(tmp_path, algorithm):
    run, records = make_run(tmp_path, algorithm=algorithm)
    own = run / "personal" / "silo_0001.safetensors"
    found = {name: scored(run, last=OwnModel(name)) for name in "01"}
    assert [found["1"]["model"], found["1"]["silo"]] == ["silo_0001.safetensors", "1"]
    for name, told in found.items():
        assert told["silos"][name]["loss"] == pytest.approx(records[-1]["silos"][name]["loss"], rel=1e-6)
    for name in found:
        predict_run(run, tmp_path / "shards", tmp_path / f"{name}.csv", last=OwnModel(name))
    assert (tmp_path / "0.csv").read_text() != (tmp_path / "1.csv").read_text()
    with pytest.raises(InputError, match=r"--silo north: is not a silo of .*; silos go by their numbers"):
        evaluate_silos(run, last=OwnModel("north"))
    save_file(load_file(own), own, {"model_sha256": "of another end"})
    with pytest.raises(InputError, match=r"silo_0001.safetensors is not of the end that .*model.safetensors"):
        evaluate_silos(run, last=OwnModel("1"))
    own.unlink()
    with pytest.raises(InputError, match=r"silo_0001.safetensors is not there: .* where the ranks of that"):
        evaluate_silos(run, last=OwnModel("1"))


def test_of_many_personal_parameters_the_first_are_named(tmp_path):
    six = {"name": "mlp", "hidden": [4, 4]}
    run, _ = make_run(tmp_path, algorithm={"name": "fedper", "personal": ["*.bias", "features.*"]}, model=six)
    with pytest.raises(InputError, match=r"leaves ([\w.]+, ){2}[\w.]+ and \d more parameters at the silos"):
        evaluate_silos(run)


def test_the_command_scores_silos_where_there_is_no_test_set(tmp_path):
    run, records = make_run(tmp_path)
    told = CliRunner().invoke(app, ["evaluate", str(run), "--json", str(tmp_path / "told.json")])
    assert f"{tmp_path}/shards has no test set; each silo is scored, as by --silos" in told.output
    refused = CliRunner().invoke(app, ["evaluate", str(run), "--split", "valid"])
    assert "--split: is for the silos' splits; give --silos, too" in str(refused.exception)
    refused = CliRunner().invoke(app, ["evaluate", str(run), "--silos", "--data", "d"])
    assert "--silos scores each silo of the run's own shards, --data each" in str(refused.exception)
    done = CliRunner().invoke(app, ["evaluate", str(run), "--silos", "--json", str(tmp_path / "found.json")])
    assert done.exit_code == 0, done.exception
    assert f"{records[-1]['silo_accuracy_pooled']:.2%}" in done.output
    assert f"json: {tmp_path}/found.json" in done.output
    assert (tmp_path / "told.json").read_text() == (tmp_path / "found.json").read_text()
    begun = CliRunner().invoke(app, ["evaluate", str(run), "--initial"])
    assert begun.exit_code == 0
    assert f"{records[-1]['silo_accuracy_pooled']:.2%}" not in begun.output


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    run, _ = make_run(tmp_path)
    with pytest.raises(InputError, match=r"--json .*nowhere.*: cannot be written \(No such file"):
        evaluate_silos(run, file=tmp_path / "nowhere" / "scores.json")


UNSUMMED = """
class Share:
    higher_is_better = True
    def __init__(self):
        self.all = []
    def update(self, outputs, y):
        self.all += (outputs.argmax(1) == y).tolist()
    def compute(self):
        return sum(self.all) / len(self.all)
"""


def test_compare_and_evaluate_agree_on_a_metric_that_all_examples_do_not_have(tmp_path, monkeypatch, capsys):
    """A dash stands for all examples, and beside it the mean by examples, by which the run is judged."""
    (tmp_path / "unsummed.py").write_text(UNSUMMED)
    monkeypatch.syspath_prepend(str(tmp_path))
    task = {"name": "classification", "metrics": ["unsummed:Share"]}
    run, records = make_run(tmp_path, sizes=(4, 9), silos_test=3, task=task)
    found, last = scored(run, trusted=["unsummed:Share"]), records[-1]
    printed = capsys.readouterr().out
    assert set(found["pooled"]) == {"loss"}
    assert found["weighted"]["share"] == pytest.approx(last["silo_share_weighted"])
    assert re.search(rf"mean by examples\W+{last['silo_share_weighted']:.4f}", printed)
    assert re.search(r"all examples\W+6\W+[\d.]+\W+-", printed)
    compare_runs([run], output=Output(json=tmp_path / "runs.json"))
    (told,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert told["silo_share_pooled"] is None
    assert told["silo_share_weighted"] == pytest.approx(last["silo_share_weighted"])
    printed = capsys.readouterr().out
    assert "mean by examples" in printed
    assert "all examples" not in printed


YES_OR_NO = {"name": "binary"}


def test_a_page_says_where_a_model_is_of_no_use(tmp_path):
    """Labels are drawn by chance, and a model that starts from 0 and learns little answers one class."""
    told = ToldAnswers(intervals={"auroc": (0.43, 0.61)}, confusion=[[30, 0], [8, 0]])
    said = (
        "The 95% interval of the AUROC, 43.00% to 61.00%, includes 50%, so the model may tell the classes no "
    )
    rare = "At a cut of 0.5 no row is predicted 'ill'; 8 rows are 'ill'."
    assert weak_answers(told, ["well", "ill"]) == f"{said}better than chance. {rare}"
    of_use = ToldAnswers(intervals={"auroc": (0.6, 0.9)}, confusion=[[30, 1], [8, 2]])
    assert [weak_answers(of_use, []), weak_answers(None, [])] == ["", ""]
    run, records = make_run(tmp_path, test=40, classes=2, task=YES_OR_NO, local={"lr": 1e-9})
    answers = ToldAnswers.model_validate(records[-1]["answers"]["test"])
    assert (found := weak_answers(answers, ["0", "1"]))
    assert found in Reader(write_report(run).read_text()).text


@pytest.mark.parametrize("how", ["plain", "valid", "masked", "private", "unprotected"])
def test_a_page_draws_how_the_model_answers(tmp_path, capsys, how):
    """By what rounds have told, and by what an evaluation has found of each silo."""
    valid = how == "valid"
    more = {"evaluate": {"split": "valid"}} if valid else {}
    weighed = how == "plain"
    more["task"] = {**YES_OR_NO, "weights": "balanced"} if weighed else YES_OR_NO
    run, records = make_run(tmp_path, test=40, silos_test=30, valid=9 * valid, classes=2, **more)
    told = records[-1]["answers"]
    assert all("answers" not in record for record in records[:-1])
    assert [round(sum(map(sum, told[rows]["confusion"]))) for rows in ("test", "silos")] == [40, 90]
    for rows, scores, key in (("test", "test", "test_auroc"), ("silos", "silo", "silo_auroc_pooled")):
        low, high = told[rows]["intervals"]["auroc"]
        assert low < (records[-1]["final"] if valid else records[-1])[key] < high, scores
    evaluate_run(run, file=run / "test.json")
    no_risks = "probabilities are no risks"
    assert (no_risks in capsys.readouterr().out) == weighed
    found = scored(run, split="test")
    told_there = re.search(r"│ 1 .*│", capsys.readouterr().out)
    low, high = found["silos"]["1"]["auroc_low"], found["silos"]["1"]["auroc_high"]
    yes = sum(found["silos"]["1"]["answers"]["confusion"][1])
    assert re.search(rf"│ +{yes} │ +{low:.2%} to {high:.2%} │$", told_there[0])
    assert json.loads((run / "test.json").read_text())["test"]["answers"] == told["test"]
    assert found["answers"] == told["silos"]
    assert found["pooled"]["auroc_within"] == 0.0
    assert found["pooled"]["auroc"] == (records[-1]["final"] if valid else records[-1])["silo_auroc_pooled"]
    tables = {
        "masked": "[security]\nmasks = true\nleast = 2\n",
        "private": "[privacy]\nnoise = 1.0\n",
        "unprotected": "[privacy]\nevaluate_unprotected = true\n",
    }
    with (run / "job.toml").open("a") as file:
        file.write(tables.get(how, ""))
    withheld = how in ("masked", "private")
    if withheld:
        metrics = (run / "metrics.jsonl").read_text()
        (run / "metrics.jsonl").write_text(re.sub(r'"answers":', '"none":', metrics))
        wanted = r"--plots .*: withheld: .*; .* give --scores FILE of mpifl evaluate \S+run --json FILE$"
        for scores in ([], [run / "scores.json"]):
            with pytest.raises(InputError, match=wanted):
                write_report(run, scores=scores, plots=tmp_path / "plots")
        (run / "metrics.jsonl").write_text(metrics)
    page = write_report(run, scores=[run / "scores.json", run / "test.json"], plots=tmp_path / "plots")
    keys = re.findall("<bdi>(.*?)</bdi>", page.read_text())
    words = " ".join(Reader(page.read_text()).titles())
    for title in ("ROC curve", "Precision-recall curve", "Calibration", "Confusion matrix"):
        assert title in words
    assert "Examples: test set" in words
    assert f"average precision {told['test']['precisions'][0]:.2%}" in page.read_text()
    assert "95% interval" in words
    assert (no_risks in words) == weighed
    rows = "all silos' rows together" if how == "valid" else "these rows"
    assert f"Always predicting the most common class of {rows} gives " in words, "beside the accuracy"
    assert ("all silos together" in keys, "silo 1" in keys) == (not withheld,) * 2
    assert ("Withheld: " in words) == withheld
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    kinds = ("roc", "precision-recall", "calibration", "confusion")
    assert names == {f"{kind}.{ending}" for kind in kinds for ending in ("pdf", "svg")}


def test_plots_of_a_rare_outcome_are_of_where_its_answers_lie(tmp_path):
    """Calibration to one scale up to the data, each kind of line with a look of its own, areas in words."""
    pytest.importorskip("matplotlib")
    rare = [[0.01 + 0.02 * nth, nth // 2, 40] for nth in range(10)]
    told = ToldAnswers(columns=[rare], intervals={"auroc": (0.6, 0.8)}, areas=[0.7], precisions=[0.2])
    found = Answered({SILOS: told}, {"0": told, "1": told})
    roc, precise, calibrated = answer_charts(found, ["no", "yes"])
    assert calibrated.ends == (0.0, 0.25), "of the data and the intervals"
    assert calibrated.lines[0].points == [(0.0, 0.0), (0.25, 0.25)]
    assert [one.line for one in calibrated.reaches] == [SILOS] * 10
    for one, (p, yes, no) in zip(calibrated.reaches, rare, strict=True):
        assert (one.at, one.low, one.high) == pytest.approx((p, *interval(yes / (yes + no), yes + no)))
    assert calibrated.below == f"{SILOS}: 10 bins of 40 to 44 rows, with 95% intervals (Wilson)"
    assert [line.last for line in roc.lines] == ["", *["AUROC 70.00% (60.00 to 80.00%)"] * 3]
    assert [line.last for line in precise.lines] == ["", *["average precision 20.00%"] * 3]
    plot_answers(found, ["no", "yes"], tmp_path)
    for name in ("roc", "precision-recall", "calibration"):
        drawn = (tmp_path / f"{name}.svg").read_text()
        looks = re.findall(r'clip-path="url\(#\w+\)" style="fill: none; (stroke.*?)"', drawn)
        assert len({*looks[:4]}) == 4, name
        assert ["dash" in look for look in looks[:4]] == [True, True, True, False], name
    assert "<!-- 0.25 -->" in drawn
    assert "<!-- 1.0" not in drawn
    assert "AUROC 70.00% (60.00 to 80.00%)" in (tmp_path / "roc.svg").read_text()


def test_answers_of_an_earlier_round_are_not_told_of_the_model_that_was_best(tmp_path):
    more = {"evaluate": {"keep_best": True}, "local": {"lr": 3.0}, "task": YES_OR_NO}
    run, records = make_run(tmp_path, test=40, classes=2, rounds=6, silos_test=0, **more)
    assert records[-1]["model_round"] < 6, "or the test shows nothing"
    assert set(records[-1]["answers"]["test"]) == {"commonest", "of_training"}
    evaluate_run(run, last=True, file=run / "last.json")
    with pytest.raises(InputError, match=r"last.json: is of the last round's model, not of the run's"):
        write_report(run, scores=[run / "last.json"])


def test_the_base_rate_stands_beside_an_accuracy_and_scores_of_others_are_refused(tmp_path):
    run, records = make_run(tmp_path, test=40)
    labels = read_federation(tmp_path / "shards").test.labels
    assert records[-1]["answers"]["test"]["commonest"] == pytest.approx(max(labels) / 40)
    assert (
        f"always predicting the most common class of these rows gives {max(labels) / 40:.2%}"
        in write_report(run).read_text()
    )
    with pytest.raises(InputError, match=r"--plots .*: the run tells no answers; give --scores FILE") as no:
        write_report(run, plots=tmp_path / "plots")
    assert str(no.value).endswith(f"of mpifl evaluate {run} --silos --json FILE")
    for content, said in (
        ("{}", "holds no answers"),
        ("[3]", "holds no answers"),
        ('{"run": "a/other", "test": {"answers": {"columns": []}}}', "is of the run other, not of"),
        ('{"run": "a/run", "data": "x", "test": {"answers": {}}}', "is of other shards, x"),
        ('{"run": "a/run", "test": {"answers": {"columns": [[[2.0, 1, 1]]]}}}', "holds no answers"),
    ):
        (tmp_path / "scores.json").write_text(content)
        with pytest.raises(
            InputError,
            match=rf"scores.json: {said}.*; make one by mpifl evaluate .* --json {run}/scores.json",
        ):
            write_report(run, scores=[tmp_path / "scores.json"])
    with pytest.raises(InputError, match=r"cannot be read \(No such file.* --silos --json .*/nowhere.json$"):
        write_report(run, scores=[tmp_path / "nowhere.json"])
    (run / "scores.json").write_text("{}")
    with pytest.raises(InputError, match=r"; make one by mpifl evaluate \S+run --silos --json OTHER.json$"):
        write_report(run, scores=[tmp_path / "scores.json"])
    kept = (run / "job.toml").read_text()
    (run / "job.toml").write_text(kept.replace('"classification"', '"segmentation"'))
    (tmp_path / "scores.json").write_text('{"run": "a/run", "silos": {"a": {"examples": 3}}, "answers": {}}')
    (tmp_path / "dice.csv").write_text("silo,row,dice\na,0,0.5\n")
    left = "scores.json holds no answers of the task segmentation that could be drawn: ROC, calibration and"
    assert left in write_report(run, scores=[tmp_path / "scores.json"]).read_text()
    scores = {"scores": [tmp_path / "scores.json"], "plots": tmp_path / "plots"}
    for more in ({"plots": tmp_path / "plots"}, scores, {"scores": [tmp_path / "dice.csv"]}):
        with pytest.raises(InputError, match=r"segmentation has no such plots: .* mpifl compare .* --plot"):
            write_report(run, **more)


def test_a_hint_names_the_command_that_has_rows_to_score(tmp_path):
    run, _ = make_run(tmp_path, test=40, silos_test=0)
    with pytest.raises(InputError, match=r"give --scores FILE of mpifl evaluate \S+run --json FILE$"):
        write_report(run, plots=tmp_path / "plots")
