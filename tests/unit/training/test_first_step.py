"""What cannot be trained, or not alike on any number of ranks, is one line before round 1."""

import contextlib
import copy
import itertools
import random
import time

import numpy as np
import pytest
import torch
from torch import nn
from unit.builders import Alone, write_folder, write_vertical_folder

from mpifl.common.errors import InputError
from mpifl.data.shards.shards import Features, FederationSpec
from mpifl.data.targets import Targets
from mpifl.learning.tasks.losses import cross_entropy
from mpifl.run.job import check_job
from mpifl.training import build
from mpifl.training.beforehand.run_checks import validate_job
from mpifl.wings import wings_of
from scripts.write_shard import write_shard


class Placed(Alone):
    """The only worker of its node."""

    def place(self):
        return 0, 1


def linear(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


class Own(nn.Module):
    """A linear model, to which each case adds what is wrong with it."""

    def __init__(self, shape, classes):
        super().__init__()
        self.body = linear(shape, classes)

    def forward(self, x):
        return self.body(x)


class Auxiliary(Own):
    def forward(self, x):
        y = self.body(x)
        return (y, y) if self.training else y


class Frozen(Own):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.requires_grad_(False)


class Detached(Own):
    def forward(self, x):
        return self.body(x).detach()


class Squeezed(Own):
    def forward(self, x):
        return self.body(x).squeeze()


class Normed(Own):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.norm = nn.BatchNorm1d(classes)

    def forward(self, x):
        return self.norm(self.body(x))


class Counting(Own):
    steps = 0

    def forward(self, x):
        self.steps += self.training
        return self.body(x) / (1 + self.steps)


class Flagged(nn.Module):
    """Takes the scale of its first batch, as ActNorm does, and says so in a plain attribute."""

    def __init__(self, shape, classes):
        super().__init__()
        self.body, self.scale, self.known = linear(shape, classes), nn.Parameter(torch.ones(1)), False

    def forward(self, x):
        if self.training and not self.known:
            with torch.no_grad():
                self.scale.copy_(x.std().reshape(1))
            self.known = True
        return self.body(x * self.scale)


class Moving(Flagged):
    """Does so by giving its parameter other memory."""

    def forward(self, x):
        if self.training:
            self.scale.data = x.std().reshape(1)
        return self.body(x * self.scale)


class Listing(Counting):
    """Has a list of its parameters, as torch's recurrent layers have."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.all = [*self.parameters()]


class Averaging(Own):
    """Keeps a mean of its batches in a tensor that is no buffer."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.mean = torch.zeros(())

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean().detach()
        return self.body(x - self.mean)


class Teacher(Own):
    """Trains towards frozen parameters that follow its own."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.teacher = copy.deepcopy(self.body).requires_grad_(False)

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                for mine, its in zip(self.body.parameters(), self.teacher.parameters(), strict=True):
                    its.mul_(0.5).add_(mine, alpha=0.3)
        return self.body(x) + self.teacher(x)


class Drawing(Own):
    """Draws noise from a generator of its own."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.draws = np.random.default_rng(0)

    def forward(self, x):
        return self.body(x) + float(self.draws.normal())


_CLOCK = itertools.count()


class Clocked(Own):
    def forward(self, x):
        return self.body(x) + next(_CLOCK)


class Seeded(Own):
    """Draws from the generators that are seeded for each training, and keeps what is harmless."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.drop, self.calls, self.cache = nn.Dropout(0.5), 0, None
        self.register_buffer("low", torch.full((), float("inf")))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.cache = torch.arange(3) if self.cache is None else self.cache
        self.low = torch.minimum(self.low, x.detach().min())
        self.seen += 1
        noise = random.random() + np.random.rand() if self.training else 0.0  # noqa: NPY002
        return self.drop(self.body(x)) + noise + self.low


class Uncopied(Own):
    """Cannot be copied once it has been called, as with torch's old weight norm."""

    def forward(self, x):
        self.last = self.body(x)
        return self.last


class Table(Own):
    """Has a large table of numpy's, to which it writes as it trains."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.table = np.zeros(1 << 25, np.float32)

    def forward(self, x):
        self.table[-1] += self.training
        return self.body(x) + float(self.table[-1])


def test_a_large_table_is_looked_at_without_a_copy_of_it_as_text(tmp_path):
    write_folder(tmp_path / "shards", [8, 9])
    began = time.process_time()
    with pytest.raises(InputError, match=TWICE + ATTRIBUTE % "table"):
        validate_job(check_job(tables(tmp_path, "Table"), "the job"), "the job")
    assert time.process_time() - began < 20


def sumless(outputs, y):
    """A loss of a shape that none may have."""
    return cross_entropy(outputs, y)[0].expand(3), 1


def tables(folder, own, **more):
    usual = {"name": "toy", "shards": str(folder / "shards"), "rounds": 1, "device": "cpu"}
    return {**usual, "model": {"name": f"{__name__}:{own}"}, **more}


NO_STEP = r"^the job: \[model\] name = '.*': cannot take a step of training: "
TWICE = r"two trainings from one state on one batch end at other answers, .* train otherwise than apart: "
ATTRIBUTE = r"training changes its attribute '%s'; what a model remembers belongs in a buffer"
REFUSED = {
    "Auxiliary": NO_STEP + r"in training mode it answers with tuple, not a tensor$",
    "Frozen": r"has no parameter that is trained; leave requires_grad",
    "Detached": NO_STEP + r"its loss depends on no parameter that is trained",
    "Counting": TWICE + ATTRIBUTE % "steps",
    "Listing": TWICE + ATTRIBUTE % "steps",
    "Flagged": TWICE + ATTRIBUTE % "known",
    "Moving": r"'.*': training has put other memory in the parameter 'scale' \(\.data\); write into it",
    "Averaging": TWICE + ATTRIBUTE % "mean",
    "Teacher": r"'.*': training wrote to the parameter 'teacher\.1\.weight', which is frozen; register",
    "Drawing": TWICE + ATTRIBUTE % "draws",
    "Clocked": TWICE + r"it draws from a generator of its own, or goes by the time or",
}


@pytest.mark.parametrize("model", REFUSED)
def test_what_cannot_be_trained_is_a_line_at_the_start(tmp_path, model):
    write_folder(tmp_path / "shards", [8, 9])
    job = check_job(tables(tmp_path, model), "the job")
    with pytest.raises(InputError, match=REFUSED[model]) as refused:
        validate_job(job, "the job", wings_of)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=REFUSED[model]):
        build.build(job, tmp_path / "run", (), False, Placed(), wings_of=wings_of)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"privacy": {"level": "example", "noise": 1.0, "clip": 1.0, "delta": 1e-5}}, r"\[privacy\]"),
    ],
)
def test_no_buffer_learns_where_each_example_stands_by_itself(tmp_path, more, key):
    """Not even one that is put back: a silo's own batches would see what others of it have left."""
    write_folder(tmp_path / "shards", [8, 9])
    model = {"name": f"{__name__}:Seeded", "buffers": {"low": "reset", "seen": "reset"}}
    table = tables(tmp_path, "", model=model, evaluate={"silos": False})
    validate_job(check_job(table, "the job"), "the job", wings_of)
    line = rf"': training wrote to the buffer 'low', and by {key} none may learn; .* or leave \[\w+\] out$"
    with pytest.raises(InputError, match=line):
        validate_job(check_job({**table, **more}, "the job"), "the job", wings_of)


@pytest.mark.parametrize("model", ["Own", "Seeded", "Uncopied", "Normed"])
@pytest.mark.parametrize("local", [{}, {"optimizer": "adam", "accumulate_batches": 2, "warmup": 3}])
def test_the_trial_leaves_no_trace(tmp_path, model, local):
    """Neither in the model, nor in what others draw."""
    write_folder(tmp_path / "shards", [8, 10])
    rules = {"buffers": {"low": "min", "seen": "reset"}} if model == "Seeded" else {}
    told = {"name": f"{__name__}:{model}", **rules}
    job = check_job(tables(tmp_path, "", model=told, local={"batch_size": 5, **local}), "the job")
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    tried = build.build(job, tmp_path / "run", (), False, Placed(), wings_of=wings_of).server
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002
    with pytest.MonkeyPatch.context() as untried:
        untried.setattr("mpifl.training.beforehand.lent_models.check_training", lambda *given: None)
        plain = build.build(job, tmp_path / "run", (), False, Placed(), wings_of=wings_of).server
    one, other = (dict(server.model.module.named_buffers()) for server in (tried, plain))
    assert torch.equal(tried.model.trained, plain.model.trained)
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert getattr(tried.model.module, "calls", 0) == getattr(plain.model.module, "calls", 0)


@pytest.mark.parametrize(
    ("model", "layer"), [("Normed", "BatchNorm1d"), ("Squeezed", "Expected|Dimension out of range")]
)
@pytest.mark.parametrize(
    ("local", "what"),
    [
        ({"batch_size": 4}, r"batch_size = 4: of 9 rows the last batch has one.*use drop_last = true"),
        ({"batch_size": 1}, r"batch_size = 1: each batch has one row.*use another size"),
        (
            {"batch_size": 3, "batch_growth": 1.4},
            r"batch_size = 4: of 9 rows the last .*the model of silo 1 in round 2 cannot train on one row",
        ),
    ],
)
def test_a_batch_of_one_is_tried_where_there_is_one(tmp_path, model, layer, local, what):
    write_folder(tmp_path / "shards", [8, 9])
    with pytest.raises(InputError, match=what) as refused:
        validate_job(check_job(tables(tmp_path, model, rounds=2, local=local), "the job"), "the job")
    assert "\n" not in str(refused.value)
    validate_job(check_job(tables(tmp_path, model, local={"batch_size": 5}), "the job"), "the job")


@pytest.mark.parametrize(
    ("tables_of_job", "what"),
    [
        (
            {"algorithm": {"name": "feddf", "distill_batch": 1}},
            r"distill_batch = 1: each batch has one row, and the server's model, .* use another size$",
        ),
        (
            {"algorithm": {"name": "feddf", "distill_batch": 6}},
            r"\[algorithm\] distill_batch = 6: of 7 rows .* one, .* \(BatchNorm1d\); use another size$",
        ),
        (
            {"aggregation": {"rule": "fltrust"}, "local": {"batch_size": 3}},
            r"\[local\] batch_size = 3: of 7 rows the last batch has one, .*server's .*drop_last = true",
        ),
    ],
)
def test_a_batch_of_one_of_the_public_examples_is_refused_before_the_server_trains(
    tmp_path, tables_of_job, what
):
    """It ended the first round in a traceback."""
    write_folder(tmp_path / "shards", [8, 8, 8], public=7)
    local = {"local": {"batch_size": 4}} | tables_of_job
    with pytest.raises(InputError, match=what) as refused:
        validate_job(check_job(tables(tmp_path, "Normed", **local), "the job"), "the job", wings_of)
    assert "\n" not in str(refused.value)
    plain = {**local, "algorithm": {"name": "fedavg"}, "aggregation": {}}
    validate_job(check_job(tables(tmp_path, "Normed", **plain), "the job"), "the job")


def test_a_silo_of_one_example_under_full_gradients(tmp_path):
    write_folder(tmp_path / "shards", [8, 1])
    job = tables(tmp_path, "Normed", algorithm={"name": "fedsgd"})
    with pytest.raises(InputError, match=r"batch_size = full: each .* silo 1 .* leave that silo out"):
        validate_job(check_job(job, "the job"), "the job", wings_of)


def test_a_loss_of_ones_own_that_is_none(tmp_path):
    write_folder(tmp_path / "shards", [8, 9])
    task = {"name": "classification", "loss": f"{__name__}:sumless"}
    with pytest.raises(InputError, match=r"': the objective returned a tensor of shape \[3\]"):
        validate_job(check_job(tables(tmp_path, "Own", task=task), "the job"), "the job")


def write(folder, x, y, features, **told):
    """Write a folder of two silos with the same examples."""
    folder.mkdir()
    targets = {**told, "features": features}
    entries = [
        write_shard(folder / f"{silo}.h5", {"train": (x, y)}, silo=silo, name=str(silo), **targets)
        for silo in range(2)
    ]
    about = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}}
    version = 1 if told.get("targets") is None else 2
    FederationSpec(**about, **targets, format_version=version, silos=entries).write(folder)


IMAGE = Features(shape=(1, 12, 12), dtype="uint8")
ROW = Features(shape=(4,), dtype="float32")


def test_images_without_a_scale(tmp_path):
    x, y = np.zeros((6, 1, 12, 12), np.uint8), np.arange(6) % 2
    write(tmp_path / "shards", x, y, IMAGE, classes=2)
    job = check_job(tables(tmp_path, "", model={"name": "logreg"}), "the job")
    told = r"hold uint8 without a scale, which a model receives as tokens; .* --option scale=1/255"
    with pytest.raises(InputError, match=told):
        validate_job(job, "the job", wings_of)


@pytest.mark.parametrize(("dtype", "classes"), [("float32", None), ("int64", 2), ("bool", None)])
def test_one_hot_targets(tmp_path, dtype, classes):
    y = np.eye(5, dtype=dtype)
    targets = Targets(dtype=dtype, shape=(5,))
    write(tmp_path / "shards", np.zeros((5, 4), np.float32), y, ROW, classes=classes, targets=targets)
    job = check_job(tables(tmp_path, "", model={"name": "logreg"}), "the job")
    with pytest.raises(InputError, match=r"one-hot, have the source store class numbers .* 'multilabel'"):
        validate_job(job, "the job", wings_of)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0]])
def test_labels_of_0_and_1_in_uint8_are_taken_by_multilabel(tmp_path, weights):
    """They are class numbers to partition, as nobody has said that they are values."""
    draw = np.random.default_rng(0)
    x, y = draw.random((20, 4), np.float32), draw.integers(0, 2, (20, 3)).astype(np.uint8)
    of_two = {"classes": 2, "targets": Targets(dtype="uint8", shape=(3,))}
    write(tmp_path / "shards", x, y, ROW, **of_two)
    task = {"name": "multilabel"} | ({"weights": weights} if weights else {})
    job = check_job(tables(tmp_path, "", model={"name": "logreg"}, task=task), "the job")
    validate_job(job, "the job", wings_of)
    of_values = job.build_algorithm().task
    told = {"classes": None, "targets": Targets(dtype="bool", shape=(3,))}
    write(tmp_path / "values", x, y.astype(bool), ROW, **told)
    found = []
    for folder in ("shards", "values"):
        spec = validate_job(job.model_copy(update={"shards": str(tmp_path / folder)}), "the job")
        ready = of_values.for_federation(spec)
        outputs, aims = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.from_numpy(y)
        seen = aims.long() if spec.classes else aims.float()
        metrics = ready.metrics()
        for metric in metrics.values():
            metric.update(*ready.scored(outputs, seen))
        found.append([ready.width(spec), float(ready.mean_loss(outputs, seen))])
        found[-1] += [float(metric.compute()) for metric in metrics.values()]
    assert found[0] == found[1]
    with pytest.raises(InputError, match="for which use 'multilabel'"):
        validate_job(check_job(tables(tmp_path, "Own", task={"name": "regression"}), "it"), "it")


class Rows(nn.Module):
    """Answers for each of three numbers of an example."""

    def __init__(self, shape, classes, counts=False):
        super().__init__()
        self.scale, self.counts, self.calls = nn.Parameter(torch.ones(classes, 1)), counts, 0

    def forward(self, x):
        self.calls += self.counts and self.training
        return x[:, None, :3] * self.scale / (1 + self.calls)


def test_class_numbers_whose_shape_a_federation_does_not_say(tmp_path):
    y = np.arange(15).reshape(5, 3) % 2
    write(tmp_path / "shards", np.ones((5, 4), np.float32), y, ROW, classes=2)
    model = {"name": f"{__name__}:Rows"}
    validate_job(check_job(tables(tmp_path, "", model=model), "the job"), "the job")
    model["counts"] = True
    with pytest.raises(InputError, match=TWICE + ATTRIBUTE % "calls"):
        validate_job(check_job(tables(tmp_path, "", model=model), "the job"), "the job")


class Noting(Own):
    """Notes in buffers that it was trained; of how it does so each case says more."""

    def __init__(self, shape, classes, kept=True, replaces=False):
        super().__init__(shape, classes)
        self.replaces = replaces
        self.register_buffer("known", torch.tensor(False), persistent=kept)
        self.register_buffer("low", torch.full((), float("inf")))

    def forward(self, x):
        if self.training and not self.known:
            self.known.fill_(True)
            low = torch.minimum(self.low, x.detach().min())
            self.low = low.double() if self.replaces else low
        return self.body(x)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, ""),
        ({"kept": False}, r"'known' \(bool\), .* becomes of that; register it as persistent$"),
        ({"replaces": True}, r"replaced the buffer 'low', .* by float64 \[\]; write into it \(copy_\)$"),
    ],
)
def test_a_half_keeps_all_buffers_that_are_kept(tmp_path, arguments, line):
    """A job can say nothing else of them, and no line tells to."""
    write_vertical_folder(tmp_path / "shards", {"train": 9, "test": 3})
    more = {"algorithm": {"name": "splitnn"}, "split": {"cut_width": 3}}
    model = {"name": f"{__name__}:Noting", **arguments}
    job = check_job(tables(tmp_path, "", model=model, **more), "the job")
    with pytest.raises(InputError, match=line) if line else contextlib.nullcontext():
        validate_job(job, "the job", wings_of)


@pytest.mark.parametrize("model", ["Auxiliary", "Counting", "Normed"])
def test_halves_of_a_split_network_take_a_step_too(tmp_path, model):
    write_vertical_folder(tmp_path / "shards", {"train": 9, "test": 3})
    more = {"algorithm": {"name": "splitnn"}, "split": {"cut_width": 3}, "local": {"batch_size": 4}}
    table = tables(tmp_path, model, **more)
    line = {
        "Auxiliary": r"\[model\]: cannot take a step of training",
        "Counting": r"\[model\]: two trainings .* 'steps'",
        "Normed": r"of 9 rows the last batch has one, and \[model\] cannot train on one row \(BatchNorm1d\)",
    }
    with pytest.raises(InputError, match=line[model]) as refused:
        validate_job(check_job(table, "the job"), "the job", wings_of)
    assert "\n" not in str(refused.value)
