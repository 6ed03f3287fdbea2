"""The job file: every default filled in, every mistake one line that names file,
key, what was given, what would do."""

import os
import re
import sys
from pathlib import Path

import pytest
import tomli_w

from mpifl.algorithms.algorithm_registry import ALGORITHMS
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedsgd import FedSGD
from mpifl.algorithms.server_optimizers import Yogi
from mpifl.common.errors import InputError
from mpifl.common.machine import tuning
from mpifl.run.job.job import Job, check_job, read_job
from mpifl.run.job.outline import differing_keys
from mpifl.run.job.renamed import EARLIER
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.training.beforehand.given_job import resolved
from mpifl.wings import wings_of

JOBS = Path(__file__).parents[3] / "jobs"
TOP = 'name = "toy"\nshards = "shards/toy"\nrounds = 3\n'
MODEL = '[model]\nname = "2nn"\n'
LEAST = TOP + MODEL
TOY = {"name": "toy", "shards": "shards/toy", "rounds": 3, "model": {"name": "2nn"}}


@pytest.fixture
def read(tmp_path):
    """Write a job file and read it; its path is `read.path`."""
    path = tmp_path / "job.toml"

    def act(text=LEAST, *overrides):
        path.write_text(text)
        return read_job(path, overrides)

    act.path = path
    return act


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Put a user's module `toy_plugin` on the path."""
    (tmp_path / "toy_plugin.py").write_text(
        "from mpifl.algorithms import FedAvg\n"
        "class Mine(FedAvg):\n"
        "    mu: float\n"
        "    patience: int | None = None\n"
        "    layers: list[str] = ['a']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("toy_plugin", None)


def missing(found, wanted):
    """Whether a value, or a table that may have more keys, is not as wanted."""
    return found != wanted if not isinstance(wanted, dict) else not wanted.items() <= found.items()


def test_the_least_job_has_every_default_filled_in(read):
    job = read()
    expected = {
        "name": "toy",
        "shards": "shards/toy",
        "seed": 0,
        "rounds": 3,
        "device": "auto",
        "threads": 1,
        "model": {"name": "2nn", "weights": None},
        "algorithm": {"name": "fedavg"},
        "local": LocalTraining(epochs=1).model_dump(),
        "server_optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.0},
        "cohort": {"fraction": 1.0, "quorum": 1.0, "weights": "examples"},
        "aggregation": {"rule": "mean"},
        "evaluate": {"every": 1, "silos": True, "target_accuracy": None, "stop_at_target": False},
        "checkpoint": {"every": 10, "keep": 3},
        "tracking": {"console": True, "jsonl": True, "tensorboard": False, "mlflow": False},
    }
    assert not any(missing(job.model_dump()[key], value) for key, value in expected.items())
    assert (job.local.lr, job.local.epochs, job.local.steps, job.local.batch_size) == (0.1, 1, None, 10)


def test_an_algorithm_is_built_with_its_hyperparameters(read):
    text = (
        LEAST + '[algorithm]\nname = "fedsgd"\n[server_optimizer]\nname = "yogi"\nlr = 1\n[local]\nlr = 0.5\n'
    )
    algorithm = read(text).build_algorithm()
    assert type(algorithm) is FedSGD
    assert algorithm.server_optimizer == Yogi(lr=1.0)
    assert algorithm.local.lr == 0.5
    assert type(read().build_algorithm()) is FedAvg


def test_a_models_own_arguments_are_kept_apart(read):
    model = read(TOP + '[model]\nname = "mlp"\nhidden = [3, 4]\nweights = "w.safetensors"\n').model
    assert (model.name, model.weights, model.arguments) == ("mlp", "w.safetensors", {"hidden": [3, 4]})


NAMES = ", ".join(ALGORITHMS)
AVERAGING = sorted(
    name for name, kind in ALGORITHMS.items() if kind.layout == "horizontal" and not kind.timed
)
WRONG = {
    "several values": (
        'seed = "1,2,3"\n' + LEAST,
        "several values are for `mpifl sweep` and `mpifl submit --sweep`",
    ),
    "unknown key": ("seeed = 1\n" + LEAST, "has no key 'seeed'; did you mean 'seed'?"),
    "unknown table": (
        LEAST + "[locl]\nlr = 1\n",
        "has no key 'locl'; did you mean 'local'?",
    ),
    "unknown key of a table": (
        LEAST + "[local]\nbatchsize = 1\n",
        "[local] has no key 'batchsize'; did you mean 'batch_size'?",
    ),
    "unknown key like no other": (
        LEAST + "[cohort]\nxyz = 1\n",
        "[cohort] has no key 'xyz'; cohort takes fraction",
    ),
    "wrong type": (LEAST + '[local]\nlr = "big"\n', '[local] lr = "big": should be a valid number'),
    "a truth for a number": (LEAST + "[local]\nlr = true\n", "[local] lr = true: should be a valid number"),
    "a date for a number": (
        LEAST + "[local]\nlr = 1979-05-27\n",
        '[local] lr = "1979-05-27": should be a valid',
    ),
    "a fraction for a count": (TOP.replace("3", "3.5") + MODEL, "rounds = 3.5: should be a valid integer"),
    "text for a count": (TOP.replace("3", '"3"') + MODEL, 'rounds = "3": should be a valid integer'),
    "NaN": (LEAST + "[local]\nlr = nan\n", "[local] lr = NaN: should be a finite number"),
    "infinity": (LEAST + "[local]\nlr = inf\n", "[local] lr = Infinity: should be a finite number"),
    "out of range": (LEAST + "[local]\nlr = -0.1\n", "[local] lr = -0.1: should be greater than 0"),
    "a rate that grows out of float32": (
        LEAST + "[local]\nlr_decay = 1e30\n",
        "[local] lr_decay = 1e+30: round 3 has a learning rate above 1e+30; use at most 1",
    ),
    "epochs that fall below a step": (
        LEAST + "[local]\nepochs = 4\nepochs_decay = 0.3\n",
        "[local] epochs_decay = 0.3: round 3 has 0.36 epochs, which leaves less than one step; use more "
        "epochs, fewer rounds or a larger epochs_decay",
    ),
    "one silo's epochs that fall below a step": (
        LEAST + "[local]\nepochs_by_silo = [9, 1]\nepochs_decay = 0.7\n",
        "[local] epochs_decay = 0.7: round 3 has 0.49 epochs, which leaves",
    ),
    "epochs that grow": (
        LEAST + "[local]\nepochs_decay = 1.1\n",
        "[local] epochs_decay = 1.1: should be less than or equal to 1",
    ),
    "steps that fall": (
        LEAST + "[local]\nsteps = 4\nepochs_decay = 0.9\n",
        "[local] epochs_decay is of epochs, and steps are given; give epochs or epochs_by_silo",
    ),
    "batches that shrink": (
        LEAST + "[local]\nbatch_growth = 0.9\n",
        "[local] batch_growth = 0.9: should be greater than or equal to 1",
    ),
    "batches out of bounds": (
        LEAST + "[local]\nbatch_growth = 1e200\n",
        "[local] batch_growth = 1e+200: round 3 has a batch above 2.14748e+09 examples; use a smaller",
    ),
    "all examples that grow": (
        LEAST + "[local]\nbatch_size = 'full'\nbatch_growth = 2.0\n",
        "[local] batch_growth: a batch of all examples does not grow; give batch_size a number",
    ),
    "percent": (
        LEAST + "[evaluate]\ntarget_accuracy = 97\n",
        "target_accuracy = 97: should be less than or equal to 1",
    ),
    "no rounds": (TOP.replace("3", "0") + MODEL, "rounds = 0: should be greater than 0"),
    "negative seed": ("seed = -1\n" + LEAST, "seed = -1: should be greater than or equal to 0"),
    "two mistakes": (
        LEAST + "[cohort]\nfraction = 1.5\nquorum = 0\n",
        "[cohort] fraction = 1.5: should be less than or equal to 1 (and 1 more)",
    ),
    "one number for two": (
        LEAST + "[data]\nzoom = 0.1\n",
        "[data] zoom = 0.1: it must be the least and the largest factor, as [0.9, 1.1]",
    ),
    "union": (
        LEAST + "[local]\nbatch_size = 2.5\n",
        "batch_size = 2.5: should be a valid integer or should be 'full'",
    ),
    "union out of range": (
        LEAST + "[local]\nbatch_size = 0\n",
        "batch_size = 0: should be greater than 0 or should be",
    ),
    "union of words": (
        LEAST + '[tracking]\nconsole = "no"\n',
        '[tracking] console = "no": should be a valid boolean or',
    ),
    "word not in a list": (LEAST + '[local]\noptimizer = "lbfgs"\n', "should be 'sgd', 'adam' or 'adamw'"),
    "unknown rule": (
        LEAST + '[aggregation]\nrule = "best"\n',
        "[aggregation] rule = 'best': unknown; use mean, median, "
        "trimmed, krum, multikrum, rfa, centered, fltrust or your own 'package.module:name'",
    ),
    "trimmed without a number": (
        LEAST + '[aggregation]\nrule = "trimmed"\n',
        "rule = 'trimmed' needs byzantine",
    ),
    "a number for the median": (
        LEAST + '[aggregation]\nrule = "median"\nbyzantine = 1\n',
        "[aggregation] byzantine = 1: goes with rule = 'trimmed', 'krum', 'multikrum' or pre = 'nnm', "
        "not with 'median'",
    ),
    "a share of half": (
        LEAST + '[aggregation]\nrule = "krum"\nbyzantine = 0.5\n',
        "[aggregation] byzantine = 0.5: should be",
    ),
    "nnm without a number": (
        LEAST + '[aggregation]\nrule = "median"\npre = "nnm"\n',
        "[aggregation] pre = 'nnm' needs byzantine: how many silos may lie, or which share of them",
    ),
    "centered without tau": (
        LEAST + '[aggregation]\nrule = "centered"\n',
        "[aggregation] rule = 'centered' needs tau: how far from the last aggregate an update may be",
    ),
    "tau for krum": (
        LEAST + '[aggregation]\nrule = "krum"\nbyzantine = 1\ntau = 1.0\n',
        "[aggregation] tau = 1.0: goes with rule = 'centered', not with 'krum'",
    ),
    "buckets of the mean": (
        LEAST + '[aggregation]\npre = "bucketing"\n',
        "[aggregation] pre = 'bucketing': goes with another rule than the mean",
    ),
    "a bucket's size without buckets": (
        LEAST + '[aggregation]\nrule = "rfa"\ns = 2\n',
        "[aggregation] s = 2: goes with pre = 'bucketing', not with 'none'",
    ),
    "nothing to trim": (
        LEAST + '[aggregation]\nrule = "trimmed"\nbyzantine = 0\n',
        "[aggregation] byzantine = 0: should be greater than 0",
    ),
    "nothing to spill": (
        LEAST + '[aggregation]\ndisk_buffer = "x"\n',
        "[aggregation] disk_buffer = 'x': goes with a rule of",
    ),
    "examples under a rule": (
        LEAST + '[aggregation]\nrule = "median"\n[cohort]\nweights = "examples"\n',
        "[cohort] weights = 'examples': by [aggregation] rule = 'median' silos count alike",
    ),
    "silos drawn by what they claim under a rule": (
        LEAST + '[aggregation]\nrule = "median"\n[cohort]\nselect = "power-of-choice"\ncandidates = 3\n',
        "[cohort] select = 'power-of-choice': by [aggregation] rule = 'median' silos are drawn by the losses",
    ),
    "sizes under a rule": (
        LEAST + '[aggregation]\nrule = "median"\n[cohort]\nselect = "examples"\n',
        "[cohort] select = 'examples': by [aggregation] rule = 'median' silos are drawn by the examples that",
    ),
    "sparse updates under a rule": (
        LEAST + '[aggregation]\nrule = "median"\n[compression]\nupload = "topk"\n',
        "[compression] upload = 'topk': [aggregation] rule = 'median' compares single elements",
    ),
    "unknown codec": (
        LEAST + '[compression]\nupload = "zip"\n',
        "[compression] upload = \"zip\": should be 'none', 'float16'",
    ),
    "topk for the model itself": (
        LEAST + '[compression]\ndownload = "topk"\n',
        "[compression] download = \"topk\": should be 'none', 'float16', 'bfloat16' or 'qsgd'",
    ),
    "bits without qsgd": (
        LEAST + '[compression]\nupload = "topk"\nbits = 4\n',
        "[compression] bits belongs to qsgd; leave it out, or use upload = 'qsgd'",
    ),
    "share without topk": (
        LEAST + '[compression]\nupload = "qsgd"\nshare = 0.1\n',
        "[compression] share belongs to topk; leave it out, or use upload = 'topk'",
    ),
    "memory of nothing": (
        LEAST + '[compression]\ndownload = "qsgd"\nerror_feedback = true\n',
        "[compression] error_feedback is for what updates lose",
    ),
    "bits that are none": (
        LEAST + '[compression]\nupload = "qsgd"\nbits = 1\n',
        "[compression] bits = 1: should be greater than or equal to 2",
    ),
    "key of another table": (
        LEAST + '[compression]\nupload = "qsgd"\nbit = 4\n',
        "[compression] has no key 'bit'; did you mean 'bits'?",
    ),
    "missing key": ('shards = "s"\nrounds = 1\n' + MODEL, "needs the key 'name'"),
    "missing table": (TOP, "needs the key 'model'"),
    "missing key of a table": (TOP + "[model]\n", "[model] needs the key 'name'"),
    "a number for a table": ("local = 3\n" + LEAST, "local = 3: should be an object"),
    "a name that is not a folder": (LEAST.replace('"toy"', '"a/b"'), 'name = "a/b"'),
    "a name with another mark": (
        LEAST.replace('"toy"', '"a+b"'),
        "name = \"a+b\": should have letters, digits, '.', '_' and '-' alone, and not only dots",
    ),
    "a name that is another folder": (LEAST.replace('"toy"', '".."'), 'name = ".."'),
    "unknown algorithm": (
        LEAST + '[algorithm]\nname = "fedavgg"\n',
        f"[algorithm] name = 'fedavgg': unknown; did you mean 'fedavg'? use {NAMES}",
    ),
    "no algorithm": (LEAST + "[algorithm]\nno = 1\n", f"[algorithm] needs name, one of {NAMES}"),
    "whose hyperparameter": (
        LEAST + "[algorithm]\nq = 1\n",
        "[algorithm] needs name, since 'q' is a key of qfedavg, qfedsgd; give --set algorithm.name=qfedavg",
    ),
    "a number for an algorithm": (
        LEAST + "[algorithm]\nname = 3\n",
        f"[algorithm] needs name, one of {NAMES}",
    ),
    "another's hyperparameter": (
        LEAST + '[algorithm]\nname = "fedavg"\nmu = 1\n',
        "[algorithm] has no key 'mu'; fedavg takes",
    ),
    "a table in the algorithm": (
        LEAST + '[algorithm]\nname = "fedavg"\nlocal = 1\n',
        "[algorithm] has no key 'local'; it is a table of its own, [local]",
    ),
    "unknown optimizer": (
        LEAST + '[server_optimizer]\nname = "adamm"\n',
        "[server_optimizer] name = 'adamm': unknown; did you mean 'adam'? use sgd, adagrad, adam, yogi",
    ),
    "optimizer's key": (
        LEAST + '[server_optimizer]\nname = "sgd"\nmomentun = 0.9\n',
        "[server_optimizer] has no key 'momentun'; did you mean 'momentum'?",
    ),
    "optimizer's range": (
        LEAST + '[server_optimizer]\nname = "adam"\nbeta1 = 2.0\n',
        "[server_optimizer] beta1 = 2.0: should be less than 1",
    ),
    "momentum with adam": (
        LEAST + '[local]\noptimizer = "adam"\nmomentum = 0.9\n',
        "[local] momentum belongs to sgd; adam takes beta1 and beta2",
    ),
    "adam's keys with sgd": (
        LEAST + "[local]\nbeta2 = 0.99\nepsilon = 1e-3\n",
        "[local] beta2 belongs to adam and adamw; sgd takes momentum",
    ),
    "a stop at no target": (
        LEAST + "[evaluate]\nstop_at_target = true\n",
        "[evaluate] stop_at_target needs target_accuracy",
    ),
    "epochs and steps": (
        LEAST + "[local]\nepochs = 1\nsteps = 2\n",
        "[local] takes epochs or steps, not both",
    ),
    "a smaller batch beside all examples": (
        LEAST + '[local]\nbatch_size = "full"\ndrop_last = true\n',
        "[local] drop_last = true: all of a silo's examples are one batch, and none is smaller; give",
    ),
    "a span of no schedule": (
        LEAST + "[local]\nsteps = 4\nschedule_rounds = 3\n",
        "[local] schedule_rounds = 3: spans a schedule or a warm-up, and there is none; give schedule or",
    ),
    "weights that are taken from no file": (
        LEAST + "strict = false\n",
        "[model] strict = false: no file is read; give weights, or leave it out",
    ),
    "bounds of speeds that are given": (
        LEAST + '[algorithm]\nname = "fedbuff"\n[clock]\nfastest = 20.0\nspeeds = { a = 1.0 }\n',
        "[clock] fastest = 20.0: is of speeds that are drawn, and speeds names each silo's; leave one of",
    ),
    "how a fixed mu changes": (
        LEAST + '[algorithm]\nname = "fedprox"\nmu_step = 0.5\n',
        "[algorithm] mu_step = 0.5: says how adaptive changes mu, which stays as it is; use adaptive = true",
    ),
    "the patience of a fixed mu": (
        LEAST + '[algorithm]\nname = "fedprox"\npatience = 2\n',
        "[algorithm] patience = 2: says how adaptive changes mu",
    ),
    "epochs and steps of fine-tuning": (
        LEAST + '[algorithm]\nname = "finetune"\ntune_epochs = 9\ntune_steps = 3\n',
        "[algorithm] tune_epochs = 9: tune_steps = 3 takes the place of epochs; leave one of them out",
    ),
    "a staleness that polynomial does not know": (
        LEAST + '[algorithm]\nname = "fedasync"\nb = 9.0\n[clock]\n',
        "[algorithm] b = 9.0: weighting = 'polynomial' does not take it; use 'hinge', or leave it out",
    ),
    "a fall of no weighting": (
        LEAST + '[algorithm]\nname = "fedcompass"\nweighting = "constant"\na = 0.9\n[clock]\n',
        "[algorithm] a = 0.9: weighting = 'constant' does not take it; use 'polynomial' or 'hinge', or leave",
    ),
    "nesterov alone": (LEAST + "[local]\nnesterov = true\n", "[local] nesterov needs momentum above 0"),
    "not TOML": ("rounds = ", "not TOML: "),
    "YAML": ("rounds: 3\n", "not TOML: "),
    "no such plugin": (
        LEAST + '[algorithm]\nname = "no_such_module:X"\n',
        "No module named 'no_such_module'",
    ),
    "no such attribute": (LEAST + '[algorithm]\nname = "math:X"\n', "module 'math' has no attribute 'X'"),
    "a plugin of another kind": (LEAST + '[algorithm]\nname = "math:pi"\n', "[algorithm] name = 'math:pi'"),
    "a class of another kind": (
        LEAST + '[algorithm]\nname = "json:JSONDecoder"\n',
        "[algorithm] name = 'json:JSONDecoder'",
    ),
    "a relative plugin": (LEAST + '[algorithm]\nname = ".toy:X"\n', "[algorithm] name = '.toy:X'"),
    "half a plugin": (LEAST + '[algorithm]\nname = "math:"\n', "[algorithm] name = 'math:'"),
}


def test_under_a_rule_of_columns_silos_count_alike_by_themselves(read):
    assert read(LEAST + '[aggregation]\nrule = "median"\n').cohort.weights == "uniform"
    assert read(LEAST + '[aggregation]\nrule = "mean"\n').cohort.weights == "examples"


@pytest.mark.parametrize("name", AVERAGING)
def test_a_rule_of_columns_is_for_algorithms_whose_updates_it_can_combine(read, name):
    allowed = {"fedavg", "fedprox", "fedsgd", "moon", "ditto", "fedper", "fedbn"}
    allowed |= {"fedsam", "fedrep", "pfedme", "apfl", "finetune"}
    personal = '\npersonal = ["x"]' if name in ("fedper", "fedrep") else ""
    job = read(LEAST + f'[algorithm]\nname = "{name}"{personal}\n[aggregation]\nrule = "median"\n')
    (robust,) = (one for one in wings_of(job) if one.name == "robust")
    needs = job.build_algorithm().needs_mean or job.build_algorithm().accumulated
    what = "say why in needs_mean, or put its name into `allowed` here if a rule may combine its updates"
    assert (name in allowed) is not bool(needs), what
    if name in allowed:
        assert robust.aggregated(None, job.build_algorithm()) is not None
    else:
        with pytest.raises(
            InputError, match=rf"rule = 'median': '{name}' needs the mean: \w.*; use 'mean', or 'fedavg'"
        ):
            robust.aggregated(None, job.build_algorithm())


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_line_with_the_file_the_key_and_what_would_do(read, mistake):
    text, reason = WRONG[mistake]
    with pytest.raises(InputError) as refused:
        read(text)
    message = str(refused.value)
    assert message.startswith(f"{read.path}: ")
    assert reason in message
    assert not ("has no key" in reason and "did you mean" in reason and " takes " in message)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda path: None,
            "cannot be read (No such file or directory); name a job file such as jobs/demo.toml",
        ),
        (
            lambda path: path.mkdir(),
            "cannot be read (Is a directory); name a job file such as jobs/demo.toml",
        ),
        (lambda path: path.write_bytes(b"\xff\xfe"), "not TOML: 'utf-8' codec"),
        (os.mkfifo, "cannot be read (it is not a file); name a job file"),
        (lambda path: path.symlink_to("/dev/zero"), "cannot be read (it is not a file); name a job file"),
        (lambda path: path.write_text("x = " + "[" * 9999), "not TOML: nested too deep"),
        (lambda path: path.write_text(".".join("x" * 999) + " = 1"), "not TOML: x: nested too deep"),
        (
            lambda path: path.write_text("rounds = " + "9" * 400),
            "not TOML: rounds: is not a whole number of 64 bits",
        ),
        (lambda path: path.write_text("rounds = " + "9" * 5000), "not TOML: "),
        (
            lambda path: path.write_text('[model]\nname = "a\\u0000"'),
            "not TOML: model.name = 'a\\x00': has a NUL in it",
        ),
        (
            lambda path: path.write_text("[local]\nlr_decay = 5e-324"),
            "not TOML: local.lr_decay: is below 2.2250738585072014e-308 in size; give 0 or a larger number",
        ),
        (
            lambda path: path.write_text(" " * (1 << 24) + "\n"),
            "cannot be read (it has 16777217 bytes, 16777216 at most)",
        ),
    ],
    ids=[
        "missing",
        "a folder",
        "binary",
        "a pipe",
        "a device",
        "deep",
        "dotted",
        "64 bits",
        "digits",
        "NUL",
        "subnormal",
        "large",
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, make, reason):
    path = tmp_path / "job.toml"
    make(path)
    with pytest.raises(InputError) as refused:
        read_job(path)
    assert str(refused.value).startswith(f"{path}: {reason}")


@pytest.mark.parametrize("value", [5e-324, -2.225073858507201e-308])
def test_a_subnormal_number_is_refused_where_it_counts_as_0_too(value):
    with tuning.subnormals_as_zero(), pytest.raises(InputError, match=r"local\.lr_decay: is below"):
        resolved({"local": {"lr_decay": value}}, ())


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("rounds=7", lambda job: job.rounds == 7),
        ("local.lr=0.05", lambda job: job.local.lr == 0.05),
        (" local.lr = 1e-3 ", lambda job: job.local.lr == 1e-3),
        ("local.batch_size=full", lambda job: job.local.batch_size == "full"),
        ('local.batch_size="full"', lambda job: job.local.batch_size == "full"),
        ("local.steps=4", lambda job: (job.local.steps, job.local.epochs) == (4, None)),
        ("model.hidden=[3, 4]", lambda job: job.model.arguments == {"hidden": [3, 4]}),
        ("algorithm.name=fedsgd", lambda job: job.algorithm == {"name": "fedsgd"}),
        ("tracking.console=false", lambda job: job.tracking.console is False),
        ("shards=over/there", lambda job: job.shards == "over/there"),
    ],
)
def test_an_override_changes_its_key_and_nothing_else(read, override, found):
    text = LEAST + "[local]\nepochs = 2\n"
    before, job = read(text), read(text, override)
    assert found(job)
    key = override.partition("=")[0].strip()
    assert set(differing_keys(before, job)) <= {key, "local.epochs"}


def test_of_overrides_that_exclude_each_other_none_goes_unsaid(read):
    for overrides in (("local.steps=4", "local.epochs=2"), (" local.epochs = 2", "local.steps=4")):
        with pytest.raises(InputError, match=r"\[local\] takes epochs or steps, not both"):
            read(LEAST + "[local]\nepochs = 3\n", *overrides)


def test_a_key_that_is_set_twice_is_refused(read):
    with pytest.raises(InputError, match=r"--set local.lr: given 2 times \(1 and 2\), and takes one value"):
        read(LEAST, "local.lr=1", "rounds=3", " local.lr =2")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("local.lr", "--set local.lr: give it as key=value, for instance --set local.lr=0.05"),
        ("=3", "--set =3: give it as key=value"),
        ("local..lr=3", "--set local..lr=3: give it as key=value"),
        (".lr=3", "--set .lr=3: give it as key=value"),
        ("name.x=1", "--set name.x=1: 'name' is not a table"),
        ("local.lr=fast", '[local] lr = "fast": should be a valid number'),
        ("local.lr=", '[local] lr = "": should be a valid number'),
        ("evaluate.patience=none", "integer; for none leave the key out of the file, and do not set it"),
        ("nosuch=1", "has no key 'nosuch'"),
        ("local=3", "local = 3: should be an object"),
        ("algorithm=fedavg", 'algorithm = "fedavg": should be an object, such as algorithm.name=fedavg'),
    ],
)
def test_a_bad_override_is_one_line(read, override, reason):
    with pytest.raises(InputError) as refused:
        read(LEAST, override)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


OWN = dict.fromkeys(("fedper", "fedrep"), 'personal = ["head.*"]\n')
"""What an algorithm cannot do without."""


@pytest.mark.parametrize("name", AVERAGING)
def test_every_algorithm_is_read_by_its_name_and_reads_back_from_the_resolved_job(read, name):
    job = read(LEAST + f'[algorithm]\nname = "{name}"\n' + OWN.get(name, ""))
    assert type(job.build_algorithm()) is ALGORITHMS[name]
    assert read(through_toml(job)) == job
    assert (
        Job.model_validate_json(job.model_dump_json(exclude_none=True)).build_algorithm()
        == job.build_algorithm()
    )


RESOLVED = [
    LEAST,
    LEAST + "[local]\nsteps = 5\n",
    LEAST + '[local]\nbatch_size = "full"\nepochs = 3\nmomentum = 0.9\nnesterov = true\n',
    LEAST + '[local]\noptimizer = "adamw"\nlr = 1e-3\n[server_optimizer]\nname = "yogi"\ntau = 1e-2\n',
    TOP + '[model]\nname = "mlp"\nhidden = [64, 64]\nweights = "w"\n[tracking]\nconsole = "always"\n',
    LEAST
    + "[evaluate]\ntarget_accuracy = 0.97\nstop_at_target = true\n"
    + '[cohort]\nfraction = 0.1\nweights = "uniform"\n',
    LEAST + '[compression]\nupload = "topk"\ndownload = "qsgd"\nbits = 5\n',
    LEAST + '[compression]\nupload = "bfloat16"\nerror_feedback = true\n',
]


def through_toml(job):
    return tomli_w.dumps(job.model_dump(mode="json", exclude_none=True))


@pytest.mark.parametrize("text", RESOLVED)
def test_a_resolved_job_reads_back_equal_from_toml_and_json(read, text):
    job = read(text)
    assert read(through_toml(job)) == job
    assert Job.model_validate_json(job.model_dump_json(exclude_none=True)) == job
    assert check_job(job.model_dump(exclude_none=True), "again") == job


@pytest.mark.usefixtures("plugin")
def test_a_users_algorithm_is_read_built_and_resolved(read):
    text = LEAST + '[algorithm]\nname = "toy_plugin:Mine"\nmu = 1\nlayers = ["b"]\n'
    job = read(text)
    algorithm = job.build_algorithm()
    assert (type(algorithm).__name__, algorithm.mu, algorithm.layers) == ("Mine", 1.0, ["b"])
    again = read(through_toml(job))
    assert again.build_algorithm() == algorithm


@pytest.mark.usefixtures("plugin")
def test_a_users_algorithm_wants_its_hyperparameters(read):
    with pytest.raises(InputError, match=r"\[algorithm\] needs the key 'mu'"):
        read(LEAST + '[algorithm]\nname = "toy_plugin:Mine"\n')
    with pytest.raises(InputError, match=r"no key 'mo'.* toy_plugin:Mine takes mu, patience, layers"):
        read(LEAST + '[algorithm]\nname = "toy_plugin:Mine"\nmu = 1.0\nmo = 2\n')


CHANGES = ("local.lr=0.3", "rounds=9", "checkpoint.every=2", "model.hidden=[1]")


def test_differing_keys_are_named_without_the_harmless(read):
    one = read(LEAST)
    other = read(LEAST + '[server_optimizer]\nname = "sgd"\nlr = 2.0\n', *CHANGES)
    assert differing_keys(one, other) == [
        "checkpoint.every",
        "local.lr",
        "model.hidden",
        "rounds",
        "server_optimizer.lr",
    ]
    assert differing_keys(one, other, ("rounds", "checkpoint", "model.hidden")) == [
        "local.lr",
        "server_optimizer.lr",
    ]
    assert differing_keys(one, read(LEAST)) == []


@pytest.mark.parametrize("path", sorted(JOBS.rglob("*.toml")), ids=lambda path: path.name)
def test_every_job_of_the_repository_reads_and_builds_its_algorithm(path):
    job = read_job(path)
    assert job.build_algorithm().local == job.local


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        ({"name": "moon"}, "moon compares features with those that other models see in"),
        ({"name": "fsvrg"}, "fsvrg corrects steps by the gradient of"),
        ({"name": "fedsgd"}, "fedsgd takes the gradient of all"),
        ({"name": "qfedavg"}, "qfedavg weighs silos by their losses on"),
        ({"name": "qfedsgd"}, "qfedsgd weighs silos by their losses on"),
        ({"name": "scaffold", "option": "I"}, "scaffold with option I corrects steps by the gradient of"),
        ({"name": "fedprox", "measure_gamma": True}, "fedprox measures gamma on"),
    ],
)
def test_algorithms_that_look_at_examples_as_they_are_refuse_to_augment(algorithm, why):
    with pytest.raises(InputError) as error:
        check_job({**TOY, "algorithm": algorithm, "data": {"augment": "flip"}}, "toy.toml")
    assert str(error.value).startswith(f"toy.toml: [data] augment = 'flip': {why}")
    assert str(error.value).endswith("examples as they are; leave augment out")
    with pytest.raises(InputError, match=rf"\[data\] shift = 0.1: {re.escape(why)}.*leave shift out"):
        check_job({**TOY, "algorithm": algorithm, "data": {"shift": 0.1}}, "toy.toml")


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fednova", "ditto", "feddyn", "feddf"])
def test_other_algorithms_augment(name):
    job = check_job({**TOY, "algorithm": {"name": name}, "data": {"augment": "flip"}}, "toy.toml")
    assert job.data.augment == "flip"


@pytest.mark.parametrize("key", ["compile", "batch_silos"])
def test_a_change_of_the_users_own_is_not_compiled_for(key):
    tables = {**TOY, "data": {"augment": "mine:change"}, "local": {key: True}}
    with pytest.raises(InputError, match=r"augment = 'mine:change': .* may change shapes, .* leave one of"):
        check_job(tables, "toy.toml")


@pytest.mark.parametrize(("old", "new"), EARLIER.items())
def test_a_key_of_earlier_jobs_is_told_with_its_name_now(read, old, new):
    table, _, key = old.rpartition(".")
    with pytest.raises(InputError, match=rf"has no key '{key}'; it is '{new}' now; .* takes .*\b{new}\b"):
        read(LEAST + f"[{table}]\n{key} = 1\n" if table else f"{key} = 1\n" + LEAST)


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        ("def train(self, silo, w): ...", "Own: lacks the method round; define it as Algorithm has it"),
        ("def round(self, server): ...", "Own: round(server) is called as round(server, cohort)"),
        (
            "def begin(self): ...\n    def round(self, server, cohort): ...",
            "Own: begin() is called as begin(server); give it these parameters",
        ),
        (
            "async def round(self, server, cohort): ...",
            "Own: round is an `async def`, which nothing awaits; write `def round`",
        ),
        (
            "async def learn(self, silo, w): yield\n    def round(self, server, cohort): ...",
            "Own: learn is an `async def`, which nothing awaits",
        ),
        ("def round(self, server, cohort): yield {}", "Own: round has a `yield`, and its result is not"),
        (
            "def round(self, server, cohort): ...\n    def train(self, client, w): ...",
            "Own offers no work 'train'; name a public method with the parameters (self, silo, ...)",
        ),
    ],
)
def test_an_own_algorithm_has_the_methods_that_a_training_calls(read, tmp_path, monkeypatch, methods, reason):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)
    (tmp_path / "own_methods.py").write_text(
        f"from mpifl import Algorithm\nclass Own(Algorithm):\n    {methods}\n"
    )
    with pytest.raises(InputError, match=re.escape(reason)):
        read(LEAST + '[algorithm]\nname = "own_methods:Own"\n')
