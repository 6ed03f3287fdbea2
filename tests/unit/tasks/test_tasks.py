"""What a task owns, and that everything else asks it:
one of a user's is trained, judged and compared by its own."""

import json
import re
from types import SimpleNamespace

import pytest
import tomli_w
import torch
from grades import Ordinal, Within
from pydantic import ValidationError
from torch.nn import functional as F
from typer.testing import CliRunner
from unit.builders import CLASSES, FEATURES, Alone, arrays, batches, net, same_bits, stream, write_folder

from mpifl.algorithms.feddf import FedDF
from mpifl.cli import app
from mpifl.common import InputError
from mpifl.learning import models
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.learning.tasks.classification import Classification
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.pages.run_page import _cards, page
from mpifl.report.runs.compared_files import as_json
from mpifl.report.runs.compared_runs import read_runs
from mpifl.report.runs.run_summary import Summary, read_run
from mpifl.run.job import read_job
from mpifl.silo import evaluate
from mpifl.silo.parameters import FlatModel
from mpifl.silo.scoring import _placed
from mpifl.training.loop import train
from mpifl.wings import wings_of

ORDINAL = "grades:Ordinal"


def examples(n=40, *shape):
    logits = torch.randn(n, CLASSES, *shape, generator=stream(1))
    return logits, torch.randint(0, CLASSES, (n, *shape), generator=stream(2))


@pytest.mark.parametrize("shape", [(), (6,)], ids=["a label", "a label a place"])
def test_a_classification_is_cross_entropy_and_accuracy(shape):
    logits, y = examples(40, *shape)
    total, count = CLASSIFICATION.loss(logits, y)
    assert (float(total), count) == (float(F.cross_entropy(logits, y, reduction="sum")), y.numel())
    assert same_bits(CLASSIFICATION.mean_loss(logits, y), F.cross_entropy(logits, y))
    assert same_bits(CLASSIFICATION.objective(torch.nn.Identity(), logits, y), F.cross_entropy(logits, y))
    accuracy = CLASSIFICATION.metrics()["accuracy"]
    for half in (slice(0, 13), slice(13, None)):
        accuracy.update(logits[half], y[half])
    assert accuracy.compute() == (logits.argmax(1) == y).double().mean()


def test_a_metric_knows_its_keys_its_direction_and_how_it_is_written():
    error = MetricInfo(name="mae", higher_is_better=False)
    assert ACCURACY.judged_by == ("test_accuracy", "silo_accuracy_pooled", "silo_accuracy_weighted")
    assert [metric.best([0.5, 0.25]) for metric in (ACCURACY, error)] == [0.5, 0.25]
    assert [metric.worst([0.5, 0.25]) for metric in (ACCURACY, error)] == [0.25, 0.5]
    assert [metric.reaches(0.5, 0.25) for metric in (ACCURACY, error)] == [True, False]
    assert [metric.reaches(0.5, 0.5) for metric in (ACCURACY, error)] == [True, True]
    short = 0.95 - 0.6 / 12  # which float64 rounds below 0.9
    assert short < 0.9
    assert [metric.reaches(short, 0.9) for metric in (ACCURACY, error)] == [True, True]
    assert ACCURACY.write(short, 0.9) == "90.00%"
    assert not ACCURACY.reaches(0.9 - 1e-9, 0.9), "one row of a thousand million is no rounding"
    assert error.reaches(0.1 + 0.2, 0.3)
    assert [metric.write(0.12345) for metric in (ACCURACY, error)] == ["12.35%", "0.1235"]
    assert [metric.write_briefly(0.12345) for metric in (ACCURACY, error)] == ["12.35%", "0.1235"]
    assert error.write(2e9) == "2e+09"


def test_what_belongs_together_has_one_heading_on_a_board():
    pytest.importorskip("tensorboard")
    from mpifl.report.observers.board import tag

    error = MetricInfo(name="mae", higher_is_better=False)
    assert tag("test_mae", [error]) == "mae/test"
    assert tag("silo_mae_worst", [error]) == "mae_of_silos/worst"
    assert [tag(name) for name in ("test_accuracy", "silo_accuracy_mean")] == [
        "accuracy/test",
        "accuracy_of_silos/mean",
    ]


@pytest.mark.parametrize("target", ["1e400", "'no'", "true", "[]"])
def test_a_target_that_is_no_number_is_a_job_of_another_program(tmp_path, target):
    (tmp_path / "job.toml").write_text(f"rounds = 1\n[evaluate]\ntarget = {target}\n")
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "test_accuracy": 0.5}\n')
    assert "job.toml is not as mpifl" in read_run(tmp_path).remarks[0]


@pytest.mark.parametrize("metric", ['{"name": 3}', '{"name": "a b"}', '{"name": "m", "more": 1}', "[]", "{}"])
def test_a_metric_that_cannot_be_one_is_the_accuracy(tmp_path, metric):
    (tmp_path / "environment.json").write_text(f'{{"metric": {metric}}}')
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "test_accuracy": 0.5}\n')
    assert read_run(tmp_path).metric == ACCURACY


def test_a_zero_is_shown_on_the_page(tmp_path):
    summary = Summary(
        tmp_path, [{"round": 1, "test_mae": 0.0}], metric=MetricInfo(name="mae", higher_is_better=False)
    )
    assert any(card[1] == "0.0000" and "0.0000" in card[2] for card in _cards(summary, 0, {}))


def test_an_evaluation_goes_by_the_task():
    task, model = Ordinal(), FlatModel(models.build("logreg", {}, FEATURES, 1, 0, Ordinal()))
    x, y = map(torch.from_numpy, arrays(1100))
    score = evaluate(model, model.trained.clone(), batches(1100), task)
    off = (model.module(x).detach().squeeze(1) - y).abs().double()
    assert score.loss == pytest.approx(float(off.square().mean()), rel=1e-6)
    assert score.metrics["absolute_error"] == pytest.approx(float(off.mean()), rel=1e-6)
    assert score.metrics["within"] == float((off <= 0.5).double().mean())
    assert score.examples == 1100


def test_states_of_a_metric_lie_where_the_model_does():
    assert _placed(Within(0.5), torch.device("meta")).right.device.type == "meta"
    plain = CLASSIFICATION.metrics()["accuracy"]
    assert _placed(plain, torch.device("meta")) is plain


def test_a_model_answers_what_the_task_takes():
    width = [p.shape[0] for p in models.build("logreg", {}, FEATURES, 1, 0, Ordinal()).parameters()]
    assert width == [1, 1]
    with pytest.raises(InputError, match=r"answers 2 examples with shape \[2, 3\], not \[2\]"):
        models.build("unit.builders:net", {}, FEATURES, 1, 0, Ordinal())


def job_of(tmp_path, **more):
    tables = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 6, "model": {"name": "logreg"}}
    tables |= {"local": {"lr": 0.05, "batch_size": 4}, **more}
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(tables))
    return path


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (
            {"task": {"name": "nothing"}},
            "[task] name = 'nothing': unknown; use classification, binary, multilabel, regression",
        ),
        (
            {"task": {"name": "math:pi"}},
            "[task] name = 'math:pi': is not a mpifl Task; name a subclass of it",
        ),
        (
            {"task": {"name": "classification", "mian": "f1"}},
            "[task] has no key 'mian'; did you mean 'main'?",
        ),
        ({"task": {"main": "f1"}}, "main = 'f1': is not one of its metrics; use accuracy"),
        ({"task": {"name": ORDINAL, "main": "f1"}}, "is not one of its metrics; use absolute_error, within"),
        (
            {"algorithm": {"name": "fedavg", "task": {}}},
            "[algorithm] has no key 'task'; it is a table of its own",
        ),
        ({"evaluate": {"target": 1.5}}, "[evaluate] target = 1.5: accuracy is a share above 0 and up to 1"),
        ({"evaluate": {"target": 0.5, "target_accuracy": 0.5}}, "are two names of one key"),
        ({"evaluate": {"stop_at_target": True}}, "stop_at_target needs target_accuracy, or target"),
        (
            {"task": {"name": ORDINAL}, "evaluate": {"target_accuracy": 0.5}},
            "[evaluate] target_accuracy: the main metric is absolute_error; use target",
        ),
    ],
    ids=str,
)
def test_a_mistake_about_the_task_is_one_line(tmp_path, tables, reason):
    with pytest.raises(InputError) as refused:
        read_job(job_of(tmp_path, **tables))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({}, "returned none; have it return one or more"),
        ({"loss": Within(1)}, "names one 'loss'; use letters, digits and '_', and not 'loss'"),
        ({"r 2": Within(1)}, "names one 'r 2'"),
    ],
    ids=str,
)
def test_metrics_have_names_that_are_keys(metrics, reason):
    class Named(Ordinal):
        def metrics(self):
            return metrics

    with pytest.raises(ValidationError, match=re.escape(reason)):
        Named()


def test_a_job_that_names_no_task_is_a_classification_and_one_may_have_keys(tmp_path):
    job = read_job(job_of(tmp_path))
    assert job.task == {"name": "classification"}
    assert job.build_task() == job.build_algorithm().task == CLASSIFICATION
    assert job.build_task().main_metric == ACCURACY
    job = read_job(
        job_of(tmp_path, task={"name": ORDINAL, "by": 1.5, "main": "within"}, evaluate={"target": 0.9})
    )
    assert job.task == {"name": ORDINAL, "by": 1.5, "main": "within"}
    assert job.plugins == {"task": ORDINAL}
    assert job.build_algorithm().task.main_metric == MetricInfo(name="within", share=True)
    assert (job.evaluate.wanted, job.evaluate.stops_at) == (0.9, None)


def test_an_algorithm_that_needs_probabilities_says_so():
    with pytest.raises(
        InputError, match=r"'feddf': distills probabilities of classes.*use \[task\] name = 'classif"
    ):
        FedDF(task=Ordinal()).check(net(), None)


def test_a_task_may_refuse_a_federation(tmp_path):
    write_folder(tmp_path / "shards", [8, 8], classes=2, test=8)
    with pytest.raises(InputError, match="2 grades are too few; use 3 or more"):
        train(
            job_of(tmp_path, task={"name": ORDINAL}), tmp_path / "run", (), False, Alone(), wings_of=wings_of
        )


def test_a_users_task_is_trained_stopped_reported_and_compared_by_its_own_metric(tmp_path, capsys):
    write_folder(tmp_path / "shards", [12, 20], test=30, valid=6)
    task = {"name": ORDINAL, "by": 1.0}
    job = job_of(
        tmp_path, task=task, tracking={"console": "always"}, evaluate={"target": 1.0, "stop_at_target": True}
    )
    run = tmp_path / "run"
    train(job, run, (), False, Alone(), wings_of=wings_of)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = records[-1]
    assert last["round"] < 6
    assert [record["test_absolute_error"] <= 1.0 for record in records] == [
        *[False] * (len(records) - 1),
        True,
    ]
    assert (
        last["silo_absolute_error_worst"]
        >= last["silo_absolute_error_mean"]
        >= last["silo_absolute_error_best"]
    )
    assert {"test_within", "silo_within_weighted", "silo_within_worst10", "silo_loss_mean"} <= set(last)
    assert not [name for name in last if "accuracy" in name]
    assert f"test absolute_error {last['test_absolute_error']:.4f}  worst silo" in capsys.readouterr().out
    summary = read_run(run)
    assert (summary.finished, summary.remarks, summary.best()) == (True, (), last["test_absolute_error"])
    assert summary.reached(1.0) == last["round"]
    assert "Absolute error over rounds" in page(summary)
    told = json.loads(as_json(*read_runs([run]), 1.0))
    assert told["target_absolute_error"] == 1.0
    assert told["runs"][0]["rounds_to_target"] == last["round"]
    said = CliRunner().invoke(app, ["compare", str(run)]).output
    assert "absolute_error" in said
    assert "to 1 " in said
    assert "%" not in said
    evaluate_run(run, [ORDINAL])
    said = capsys.readouterr().out
    assert (
        f"test absolute_error {last['test_absolute_error']:.4f}, test within {last['test_within']:.2%}"
        in said
    )


def test_what_was_found_out_before_the_shards_were_known_is_found_out_anew():
    ignoring = SimpleNamespace(dtype="int64", shape=(), ignore=255)
    spec = SimpleNamespace(classes=3, silos=[], targets=ignoring)
    task = Classification()
    assert task.plain
    assert not task.for_federation(spec).plain
