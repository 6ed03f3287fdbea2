"""What a job says of a task of the package, which federations and models it takes; one is trained."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w
import torch
from unit.builders import CLASSES, FEATURES, Alone, batches, make_silo, net, write_folder
from unit.tasks.test_metrics import FEDERATIONS, federation

from mpifl.algorithms.fedavg import FedAvg
from mpifl.cli.job_tools.keys import tables
from mpifl.common import InputError, ShardError
from mpifl.data import Features, Targets
from mpifl.data.shards import FederationSpec, Shard, Split
from mpifl.learning import models
from mpifl.learning.tasks import CLASSIFICATION, TASKS, TaskFacts, multilabel
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.run.job import read_job
from mpifl.silo import evaluate, learnable
from mpifl.silo.parameters import FlatModel
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.write_shard import write_shard


def job_of(tmp_path, **more):
    given = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 3, "model": {"name": "logreg"}}
    given |= {"local": {"lr": 0.05, "batch_size": 4}, **more}
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(given))
    return path


MISTAKES = [
    ({"loss": "hinge"}, "[task] loss = 'hinge': unknown; use cross_entropy, focal or your own"),
    ({"loss": "math:nothing"}, "[task] loss = 'math:nothing': "),
    ({"loss": "math:pi"}, "[task] loss = 'math:pi': is not a function; name one that takes (outputs, y)"),
    (
        {"metrics": ["auc"]},
        "[task] metrics = 'auc': unknown; did you mean 'auroc'? use accuracy, auroc, average_precision",
    ),
    ({"metrics": []}, "[task] metrics() returned none"),
    ({"metrics": ["f1", "f1"]}, "two are called 'f1'; give one another name by as = '...'"),
    ({"metrics": [{"name": "auroc", "bins": 3}]}, "auroc has no key 'bins'; it takes none"),
    ({"metrics": [{"name": "f1", "beta": 3}]}, "f1 has no key 'beta'; it takes none"),
    ({"metrics": [{"name": "fbeta", "beta": "2"}]}, "fbeta: beta = '2': should be a number above 0"),
    ({"metrics": [{"name": "calibration_error", "bins": 2.5}]}, "should be a whole number above 0"),
    ({"metrics": ["math:sqrt"]}, "metrics = 'math:sqrt': cannot be made with {}"),
    ({"metrics": ["builtins:dict"]}, "is not a metric; name a class with update and compute"),
    ({"metrics": ["f1"], "main": "auroc"}, "main = 'auroc': is not one of its metrics; use f1"),
    ({"gamma": 2.0}, "gamma: loss = 'cross_entropy' takes none; use loss = 'focal'"),
    ({"loss": "focal", "label_smoothing": 0.1}, "loss = 'focal' takes none; use loss = 'cross_entropy'"),
    ({"weights": "balance"}, '[task] weights = "balance": '),
    ({"weights": [1.0, -1.0]}, "[task] weights"),
    ({"name": "regression", "weights": [1.0]}, "has no key 'weights'; regression takes main, loss, metrics"),
    ({"name": "segmentation", "loss": "dice", "weights": [1.0]}, "use loss = 'dice_ce' or 'cross_entropy'"),
    ({"name": "binary", "loss": "torch.nn.functional:l1_loss", "gamma": 1.0}, "use loss = 'focal'"),
]


@pytest.mark.parametrize(("task", "reason"), MISTAKES, ids=str)
def test_a_mistake_is_one_line_that_says_what_there_is(tmp_path, task, reason):
    with pytest.raises(InputError) as refused:
        read_job(job_of(tmp_path, task=task))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_job_keeps_the_keys_that_it_was_given(tmp_path):
    given = {
        "name": "binary",
        "loss": "focal",
        "gamma": 1.5,
        "weights": "balanced",
        "metrics": ["auroc", {"name": "fbeta", "beta": 2, "as": "f2"}],
        "main": "f2",
    }
    job = read_job(job_of(tmp_path, task=given))
    assert job.task == given
    task = job.build_task()
    assert list(task.infos) == ["auroc", "f2"]
    assert task.main_metric.name == "f2"


def test_only_the_keys_of_a_task_are_offered():
    rows = {(row.name, row.of) for row in tables()["task"]}
    assert ("delta", "regression") in rows
    assert ("gamma", "classification, binary, multilabel") in rows
    said = {row.of: row.values for row in tables()["task"] if row.name in ("loss", "metrics")}
    assert said["regression, counts"] == 'list of "mae", "mse", "rmse", "r2" or package.module:name or table'
    losses = {row.of: row.values for row in tables()["task"] if row.name == "loss"}
    assert losses["binary, multilabel"] == '"bce", "focal" or package.module:name'


def test_a_users_loss_and_metrics_are_code_that_the_job_names(tmp_path):
    metrics = ["f1", {"name": "torchmetrics.classification:BinaryAccuracy"}]
    task = {"name": "binary", "loss": "torch.nn.functional:l1_loss", "metrics": metrics}
    assert read_job(job_of(tmp_path, task=task)).plugins == {
        "task.loss": "torch.nn.functional:l1_loss",
        "task.metrics.1": "torchmetrics.classification:BinaryAccuracy",
    }


WRONG = [
    ("classification", federation(None, (1,), "float32"), "float32 values of shape [1]", "regression"),
    ("classification", federation(None, (3,), "bool"), "bool values of shape [3]", "multilabel"),
    ("binary", federation(3), "class numbers, of 3 classes", "classification"),
    ("binary", federation(None, (), "float32"), "float32 values of shape []", "regression"),
    ("multilabel", federation(3), "class numbers, of 3 classes", "classification"),
    ("multilabel", federation(None, (3,), "float32"), "float32 values of shape [3]", "regression"),
    ("multilabel", federation(None, (), "bool"), "bool values of shape []", "binary"),
    ("regression", federation(3, (5, 5)), "class numbers of shape [5, 5], of 3 classes", "segmentation"),
    ("regression", federation(3), "class numbers, of 3 classes", "classification"),
    ("counts", federation(3), "class numbers, of 3 classes", "classification"),
    ("segmentation", federation(3, ()), "class numbers of shape [], of 3 classes", "classification"),
    ("language", federation(None, (3,), "float32"), "float32 values of shape [3]", "regression"),
    ("survival", federation(None, (3,), "float32"), "float32 values of shape [3]", "regression"),
    ("survival", federation(3), "class numbers, of 3 classes", "classification"),
]


@pytest.mark.parametrize(("kind", "spec", "found", "instead"), WRONG, ids=str)
def test_a_federation_that_does_not_fit_is_refused_with_what_would_do(kind, spec, found, instead):
    for refuse in (TASKS[kind]().for_federation, lambda spec: TASKS[kind]().check(spec, net())):
        with pytest.raises(InputError) as refused:
            refuse(spec)
        said = f"takes {TASKS[kind].takes}; the shards have {found}, for which use '{instead}'"
        told, _, one_hot = str(refused.value).partition("; if the rows are one-hot, ")
        hint = TASKS[kind].of_numbers if spec.classes and found.startswith("class numbers,") else ""
        assert told == f"[task] name = '{kind}': {said}{hint}"
        assert bool(one_hot) == (kind == "classification" and spec.targets.shape == (3,))


def test_yes_and_no_may_be_stored_as_truths():
    task = TASKS["binary"](weights=[1.0, 2.0]).for_federation(federation(None, (), "bool", labels=()))
    z, y = torch.tensor([[0.0], [0.0]]), torch.tensor([0.0, 1.0])
    assert float(task.loss(z, y)[1]) == 3
    metric = task.metrics()["auroc"]
    metric.update(*task.scored(torch.tensor([[-1.0], [1.0]]), y))
    assert float(metric.compute()) == 1


@pytest.mark.parametrize("kind", TASKS)
def test_a_task_learns_of_a_federation_as_a_copy(kind):
    task = TASKS[kind]()
    told = task.for_federation(FEDERATIONS[kind])
    assert told != task
    assert task == TASKS[kind]()
    assert told.model_dump() == task.model_dump()
    told.check(FEDERATIONS[kind], net())


def test_balanced_weights_are_n_by_classes_and_examples_of_each():
    spec = federation(3, labels=((6, 0, 1), (2, 0, 3)))
    task = TASKS["classification"](weights="balanced").for_federation(spec)
    y = torch.tensor([0, 1, 2])
    assert float(task.loss(torch.zeros(3, 3), y)[1]) == pytest.approx(12 / (3 * 8) + 1 + 12 / (3 * 4))
    binary = TASKS["binary"](weights="balanced").for_federation(federation(2, labels=((9, 1),)))
    assert float(binary.loss(torch.zeros(2, 1), torch.tensor([0, 1]))[1]) == pytest.approx(10 / 18 + 5)


@pytest.mark.parametrize(
    ("weights", "spec", "reason"),
    [
        ([1.0, 2.0], federation(3), "[task] weights: 2 are given; use 3, one for each class"),
        ("balanced", federation(3, labels=((0, 0, 0),)), "the shards count no labels; give a list"),
    ],
)
def test_weights_are_one_for_each_class(weights, spec, reason):
    with pytest.raises(InputError) as refused:
        TASKS["classification"](weights=weights).for_federation(spec)
    assert reason in str(refused.value)


def test_what_the_shards_ignore_is_ignored_unless_the_job_says_otherwise():
    spec = federation(3, (7,), ignore=-1)
    assert TASKS["language"]().for_federation(spec).ignored == -1
    assert TASKS["language"](ignore=0).for_federation(spec).ignored == 0
    for other, told in ((None, "0 to 2; leave it out"), (-1, "0 to 2 and -1, which does not count already;")):
        with pytest.raises(InputError, match=rf"\[task\] ignore = 99: no row has it: targets are {told}"):
            TASKS["classification"](ignore=99).for_federation(federation(3, (), ignore=other))
    y = torch.tensor([0, -1])
    task = TASKS["classification"]().for_federation(federation(3, (), ignore=-1))
    loss = task.mean_loss(torch.tensor([[2.0, 0, 0], [0, 0, 5.0]]), y)
    assert float(loss) == pytest.approx(float(torch.tensor([2.0, 0, 0]).logsumexp(0) - 2), rel=1e-6)


WIDTHS = {
    "classification": 4,
    "binary": 1,
    "multilabel": 3,
    "regression": 2,
    "counts": 2,
    "segmentation": 4,
    "language": 4,
    "survival": 1,
}


@pytest.mark.parametrize("kind", TASKS)
def test_a_model_answers_what_a_task_takes(kind):
    spec = FEDERATIONS[kind]
    task = TASKS[kind]().for_federation(spec)
    width, places = task.width(spec), spec.targets.shape if kind in ("segmentation", "language") else ()
    assert width == WIDTHS[kind]
    task.check_outputs(torch.zeros(2, width, *places), 2, width)
    wrong = torch.zeros(2, width + 1, *places)
    with pytest.raises(ValueError) as refused:
        task.check_outputs(wrong, 2, width)
    assert f"shape {list(wrong.shape)}, not {[2, width, *places]}" in str(refused.value)
    with pytest.raises(ValueError, match="it answers with list, not a tensor"):
        task.check_outputs([], 2, width)
    if width == 1:
        task.check_outputs(torch.zeros(2), 2, 1)
    if places:
        with pytest.raises(ValueError, match="not "):
            task.check_outputs(torch.zeros(2, width), 2, width)


@pytest.mark.parametrize("shape", [None, (7,)])
def test_classes_behind_the_places_are_told_where_they_belong(shape):
    spec = FEDERATIONS["language"] if shape else federation(CLASSES)
    task = TASKS["language"]()
    task._facts = TaskFacts.of(spec)
    line = r"shape \[2, 7, 4\], not \[2, 4, 7\]; classes come before places, as outputs.movedim\(-1, 1\)"
    with pytest.raises(ValueError, match=line):
        task.check_outputs(torch.zeros(2, 7, 4), 2, 4)
    with pytest.raises(ValueError, match=r"shape \[2, 7, 9\], not \[2, 4(, 7)?\]$"):
        task.check_outputs(torch.zeros(2, 7, 9), 2, 4)


@pytest.mark.parametrize("kind", TASKS)
def test_predictions_are_shares_or_values(kind):
    task, outputs = TASKS[kind](), torch.tensor([[-1.0, 1.0], [40.0, 0.0]])
    found = task.predict(outputs)
    if kind in ("regression", "survival"):
        assert torch.equal(found, outputs)
    elif kind == "counts":
        assert torch.equal(found, outputs.exp())
    elif kind in ("binary", "multilabel"):
        assert torch.equal(found, outputs.sigmoid())
    else:
        assert torch.equal(found, outputs.softmax(1))


def test_an_evaluation_leaves_out_what_does_not_count_and_a_split_of_nothing_else_is_nan():
    model = FlatModel(net())
    scored = {}
    for ignore in (0, 1):
        task = TASKS["classification"](metrics=["accuracy", "f1"], ignore=ignore)
        task = task.for_federation(federation(CLASSES, labels=((1,) * CLASSES,)))
        data = batches(1100)
        scored[ignore] = evaluate(model, model.trained.clone(), data, task)
        data._y.fill_(ignore)
        nothing = evaluate(model, model.trained.clone(), data, task)
        assert np.isnan([nothing.loss, *nothing.metrics.values()]).all()
    (x, y), *_ = batches(1100).in_order(2000)
    answers = model.module(x).argmax(1)
    for ignore, score in scored.items():
        own = (answers == y)[y != ignore].double().mean()
        assert score.metrics["accuracy"] == float(own)


def test_the_accuracy_alone_looks_at_logits():
    near = torch.tensor([[1e-30, 2e-30]])
    assert near.softmax(1).argmax(1) == 0
    assert CLASSIFICATION.scored(near, torch.tensor([1]))[0].argmax(1) == 1


@pytest.mark.parametrize("classes", [2, CLASSES])
def test_an_algorithm_is_told_through_its_task(tmp_path, classes):
    spec = write_folder(tmp_path, [8, 9], classes=classes)
    algorithm = FedAvg(task=TASKS["classification"](metrics=["auroc"])).for_federation(spec)
    assert algorithm.task._facts == TaskFacts.of(spec)
    model = FlatModel(models.build("logreg", {}, FEATURES, classes, 0))
    silo = make_silo(model, splits={"valid": 9}, task=algorithm.task)
    assert FedAvg(task=TASKS["classification"]()).for_federation(spec).task != CLASSIFICATION
    if classes == CLASSES:
        assert 0 <= algorithm.evaluate(silo, w=model.trained.clone()).scalars["silo_auroc"] <= 1


def ill_and_well(n, seed, ill=0.3):
    draw = np.random.default_rng(seed)
    y = (draw.random(n) < ill).astype(np.int64)
    x = draw.normal(size=(n, 4)) + y[:, None]
    return x.astype(np.float32), y


def hospitals(folder):
    """Write three silos with labels 0 and 1; nobody that the last holds out is ill."""
    folder.mkdir()
    made = {"features": FEATURES, "classes": 2}
    entries = []
    for k in range(3):
        drawn = {"train": ill_and_well(40, k), "valid": ill_and_well(30, 10 + k, ill=0.4 if k < 2 else 0.0)}
        name = f"silo_{k:04d}.h5"
        entries.append(write_shard(folder / name, drawn, silo=k, name=f"hospital {k}", **made))
    test = {"test": ill_and_well(200, 99)}
    last = write_shard(folder / "test.h5", test, silo=None, name="test.h5", **made)
    scheme = {"name": "toy"}
    spec = FederationSpec(name="toy", seed=0, scheme=scheme, source={}, silos=entries, test=last, **made)
    spec.write(folder)


def test_a_binary_task_is_trained_and_judged_by_auroc(tmp_path, capsys, recwarn):
    hospitals(tmp_path / "shards")
    task = {"name": "binary", "weights": "balanced", "metrics": ["auroc", "f1", "accuracy"]}
    job, run = job_of(tmp_path, task=task, rounds=5), tmp_path / "run"
    train(job, run, (), False, Alone(), wings_of=wings_of)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["test_auroc"] > 0.8
    assert 0.5 < last["silo_auroc_worst"] <= last["silo_auroc_mean"] <= last["silo_auroc_best"] <= 1
    assert last["silo_accuracy_worst"] < 1
    assert not last["faults"]
    assert not [one for one in recwarn if "torchmetrics" in str(one.filename)]
    evaluate_run(run)
    assert f"test auroc {last['test_auroc']:.2%}, test f1 {last['test_f1']:.2%}" in capsys.readouterr().out


def test_a_silo_without_anybody_ill_has_no_auroc(tmp_path):
    hospitals(tmp_path / "shards")
    told = SimpleNamespace(classes=2, silos=[], targets=None)
    task = TASKS["binary"](metrics=["auroc"]).for_federation(told)
    model = FlatModel(models.build("logreg", {}, FEATURES, 1, 0, task))
    silo = make_silo(model, task=task)
    silo._splits["valid"] = batches(30)
    silo._splits["valid"]._y.zero_()
    assert silo.evaluate(model.trained.clone(), "valid").metrics["auroc"] != 0
    update = FedAvg(task=task).evaluate(silo, w=model.trained.clone())
    assert np.isnan(update.scalars["silo_auroc"])
    assert update.scalars["silo_loss"] > 0


def test_metrics_of_the_package_itself_do_not_import_torchmetrics(tmp_path):
    write_folder(tmp_path / "shards", [8, 8], test=8)
    program = (
        "import sys; from pathlib import Path; from mpifl.training.loop import train; "
        "from unit.builders import Alone; "
        f"train(Path({str(job_of(tmp_path))!r}), Path({str(tmp_path / 'run')!r}), (), False, Alone()); "
        "from mpifl.run.job import read_job; from mpifl.learning.tasks import TASKS; "
        "[task().main_metric for task in TASKS.values()]; "
        "[TASKS[kind](metrics=names).metrics() for kind, names in"
        " (('segmentation', ['dice', 'iou', 'dice_pooled']), ('binary', ['auroc', 'average_precision']))]; "
        "assert 'torchmetrics' not in sys.modules"
    )
    where = {**os.environ, "PYTHONPATH": "tests"}
    done = subprocess.run([sys.executable, "-c", program], env=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_labels_other_than_0_and_1_name_the_file_and_the_first_row(monkeypatch, dtype):
    monkeypatch.setattr(multilabel, "PIECE", 8)  # numbers: two rows at a time
    y = np.zeros((7, 4), dtype)
    y[2], y[5, 3], y[6, 0] = 1, 3, 9
    shard = Shard(Path("silo_0003.h5"), {"valid": Split(np.zeros((7, 2)), y)})
    with pytest.raises(ShardError) as refused:
        learnable(shard, TASKS["multilabel"]())
    found = "silo_0003.h5: valid: label 3 is 3 in row 5; multilabel takes 0, 1; correct the source"
    assert str(refused.value) == f"{found} and partition again"
    y[6, 0] = 0
    assert learnable(shard, TASKS["multilabel"](ignore=3)) is shard


def test_one_class_number_an_example_has_one_mean():
    task = TASKS["regression"](mean=[0.1, -3.0])
    with pytest.raises(InputError, match=r"\[task\] mean: 2 are given; use 1, one for each column"):
        task.for_federation(federation(3, None))


@pytest.mark.parametrize("kind", ["segmentation", "language"])
def test_one_class_number_an_example_is_none_for_each_place(kind):
    shard = Shard(Path("silo_0003.h5"), {"test": Split(np.zeros((7, 4)), np.zeros(7, np.int64))})
    told = r"silo_0003\.h5: test: each example has one class number, and .* use \"classification\""
    with pytest.raises(ShardError, match=told):
        learnable(shard, TASKS[kind]())


def test_the_servers_test_set_is_looked_through_as_well(tmp_path):
    x, targets = np.zeros((6, 3), "f4"), Targets(dtype="int64", shape=(2,))
    features, y = Features(shape=(3,), dtype="float32"), np.zeros((6, 2), "i8")
    common = {"features": features, "classes": None, "targets": targets}
    (tmp_path / "shards").mkdir()
    silo = write_shard(tmp_path / "shards" / "a.h5", {"train": (x, y)}, silo=0, name="a", **common)
    y[4, 1] = 2
    test = write_shard(tmp_path / "shards" / "test.h5", {"test": (x, y)}, silo=None, name="test", **common)
    more = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "format_version": 2}
    FederationSpec(silos=[silo], test=test, **common, **more).write(tmp_path / "shards")
    job = job_of(tmp_path, task={"name": "multilabel"})
    with pytest.raises(InputError, match=r"test.h5: test: label 1 is 2 in row 4; multilabel takes 0, 1"):
        train(job, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
