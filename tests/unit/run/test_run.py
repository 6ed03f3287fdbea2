"""The run folder: whose it is, what it says of its rounds, and that a torn line is no round."""

import json

import pytest
from unit import builders

from mpifl.cli.sweep.settings_grid import grid
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import Features, FederationSpec, ShardEntry
from mpifl.report.observers.configured import check_tracking, observers
from mpifl.report.observers.jsonlines import JsonLines
from mpifl.run.folder.environment import read_environment, write_environment
from mpifl.run.folder.metrics_file import encode_record, read_metrics, trim_metrics
from mpifl.run.folder.run_folder import check_run, claim_run, describe, latest_checkpoint
from mpifl.run.job.job import check_job, read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of


def make_job(**changes):
    table = {"name": "toy", "shards": "s", "rounds": 3, "model": {"name": "2nn"}, "local": {"lr": 0.1}}
    return check_job(table | changes, "toy.toml")


def write(folder, *lines):
    (folder / "metrics.jsonl").write_bytes(b"".join(lines))


LINES = [encode_record({"round": round, "test_loss": 1 / round}) for round in range(1, 6)]


def test_a_claimed_folder_holds_the_resolved_job(tmp_path):
    job = make_job(local={"steps": 3}, algorithm={"name": "fedsgd"})
    claim_run(tmp_path / "runs" / "a", job)
    assert read_job(tmp_path / "runs" / "a" / "job.toml") == job
    assert [path.name for path in (tmp_path / "runs" / "a").iterdir()] == ["job.toml"]


def test_a_free_folder_is_anyones_and_is_not_made(tmp_path):
    check_run(tmp_path / "new", make_job(), resume=False)
    check_run(tmp_path / "new", make_job(), resume=True)
    assert not (tmp_path / "new").exists()


def test_a_folder_with_a_run_is_not_begun_again(tmp_path):
    claim_run(tmp_path, make_job())
    with pytest.raises(InputError) as refused:
        check_run(tmp_path, make_job(), resume=False)
    assert (
        str(refused.value)
        == f"{tmp_path}: holds a run already; continue with it by --resume, or name another folder by --out"
    )


HARMLESS = [
    {"rounds": 99},
    {"checkpoint": {"every": 1, "keep": 9}},
    {"evaluate": {"every": 5, "target_accuracy": 0.5}},
    {"tracking": {"console": False}},
]


@pytest.mark.parametrize("changes", HARMLESS, ids=str)
def test_a_run_goes_on_with_a_job_that_differs_harmlessly(tmp_path, changes):
    claim_run(tmp_path, make_job())
    check_run(tmp_path, make_job(**changes), resume=True)


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"seed": 1}, "seed"),
        ({"local": {"lr": 0.2, "momentum": 0.5}}, "local.lr, local.momentum"),
        ({"local": {"lr": 0.1, "steps": 3}}, "local.epochs, local.steps"),
        ({"algorithm": {"name": "fedsgd"}, "rounds": 9}, "algorithm.name"),
        ({"server_optimizer": {"name": "sgd", "momentum": 0.9}}, "server_optimizer.momentum"),
        ({"model": {"name": "mlp", "hidden": [3]}}, "model.hidden, model.name"),
    ],
    ids=str,
)
def test_a_run_of_another_job_is_refused_with_the_keys_that_differ(tmp_path, changes, keys):
    claim_run(tmp_path, make_job())
    with pytest.raises(InputError) as refused:
        check_run(tmp_path, make_job(**changes), resume=True)
    assert str(refused.value).startswith(
        f"{tmp_path}: is a run of another job, it differs in {keys}; resume with"
    )


FORCED = [
    ({"device": "cpu"}, ['device "auto" -> "cpu"']),
    ({"shards": "moved", "name": "toy2"}, ['name "toy" -> "toy2"', 'shards "s" -> "moved"']),
    (
        {"local": {"lr": 0.05, "steps": 3}},
        ["local.epochs 1 -> none", "local.lr 0.1 -> 0.05", "local.steps none -> 3"],
    ),
    (
        {"cohort": {"fraction": 0.5, "quorum": 0.5}},
        ["cohort.fraction 1.0 -> 0.5", "cohort.quorum 1.0 -> 0.5"],
    ),
    ({"server_optimizer": {"name": "sgd", "lr": 0.5}}, ["server_optimizer.lr 1.0 -> 0.5"]),
]


@pytest.mark.parametrize(("changes", "told"), FORCED, ids=str)
def test_what_leaves_the_state_its_meaning_changes_by_force_alone(tmp_path, changes, told):
    claim_run(tmp_path, make_job())
    with pytest.raises(InputError, match=r"or add --force$"):
        check_run(tmp_path, make_job(**changes), resume=True)
    assert check_run(tmp_path, make_job(**changes), resume=True, force=True) == told


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"algorithm": {"name": "fedprox"}},
        {"server_optimizer": {"name": "sgd", "momentum": 0.9}},
        {"model": {"name": "logreg"}},
    ],
    ids=str,
)
def test_what_cannot_go_on_does_not_by_force(tmp_path, changes):
    claim_run(tmp_path, make_job())
    with pytest.raises(InputError, match=r"it differs in [\w., ]*; resume with .* another --out$") as refused:
        check_run(tmp_path, make_job(local={"lr": 0.2}, **changes), resume=True, force=True)
    assert "local.lr" not in str(refused.value)


EXAMPLES = {"clip": 1.0, "noise": 1.0, "delta": 1e-3}


@pytest.mark.parametrize("changes", [{"local": {"lr": 0.2}}, {"cohort": {"fraction": 0.5}}], ids=str)
def test_what_epsilon_was_counted_by_stays_even_by_force(tmp_path, changes):
    claim_run(tmp_path, make_job(privacy=EXAMPLES))
    with pytest.raises(InputError, match=f"it differs in {next(iter(changes))}"):
        check_run(tmp_path, make_job(privacy=EXAMPLES, **changes), resume=True, force=True)
    check_run(tmp_path, make_job(privacy=EXAMPLES, rounds=9, device="cpu"), resume=True, force=True)


def test_the_rounds_that_noise_follows_from_stay(tmp_path):
    by_epsilon = {"clip": 1.0, "epsilon": 3.0, "delta": 1e-3}
    claim_run(tmp_path, make_job(privacy=by_epsilon))
    check_run(tmp_path, make_job(privacy=by_epsilon), resume=True)
    with pytest.raises(InputError, match=r"noise of its rounds follows from rounds = \d+, by .privacy. eps"):
        check_run(tmp_path, make_job(privacy=by_epsilon, rounds=900), resume=True)


def test_force_alone_does_not_overwrite_a_run(tmp_path):
    claim_run(tmp_path, make_job())
    with pytest.raises(InputError, match="holds a run already"):
        check_run(tmp_path, make_job(), resume=False, force=True)


def make_spec(classes=3, digests="ab"):
    features = Features(shape=(8, 8), dtype="uint8", scale=1.0)
    about = {"examples": {"train": 1}, "labels": [1] * classes, "bytes": 9}
    silos = [
        ShardEntry(silo=k, name="", file=f"{k}.h5", sha256=d * 64, **about) for k, d in enumerate(digests)
    ]
    return FederationSpec(
        name="s", features=features, classes=classes, seed=0, scheme={}, source={}, silos=silos
    )


def test_a_run_goes_on_with_its_own_shards_wherever_they_lie(tmp_path):
    claim_run(tmp_path, make_job())
    # started before the digest was written down
    check_run(tmp_path, make_job(), resume=True, spec=make_spec())
    write_environment(tmp_path, data=describe(make_spec()))
    check_run(tmp_path, make_job(), resume=True, spec=make_spec().model_copy(update={"name": "moved"}))
    with pytest.raises(InputError, match=r"the shards are not those that it was started on; .* add --force"):
        check_run(tmp_path, make_job(), resume=True, spec=make_spec(digests="ac"))
    (change,) = check_run(tmp_path, make_job(), resume=True, force=True, spec=make_spec(digests="ac"))
    assert change.startswith("shards of sha256 ")


def test_a_run_goes_on_with_the_code_of_ones_own_that_it_was_started_with(tmp_path, digits, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source, run = tmp_path / "own_code.py", tmp_path / "job"
    source.write_text("from mpifl import FedAvg\nclass Own(FedAvg):\n    beta: float = 0.5\n")
    job = tmp_path / "job.toml"
    table = f'name = "own"\nshards = "{digits}/digits"\nrounds = 1\nmodel.name = "mlp"\n'
    job.write_text(f'{table}local.lr = 0.1\nalgorithm.name = "own_code:Own"\n')
    train(job, run, (), False, builders.Alone(), wings_of=wings_of)
    assert check_run(run, read_job(job), resume=True) == []
    source.write_text(
        "# why\n" + source.read_text().replace("0.5", "0.5  # a \u201ehalf\u201c") + "# after it\n"
    )
    assert check_run(run, read_job(job), resume=True) == []
    source.write_text(source.read_text() + "MARK = '# no comment'\n")
    with pytest.raises(InputError, match=r"the code of own_code is not that which it was started with; put "):
        train(job, run, ("rounds=2",), True, builders.Alone(), wings_of=wings_of)
    with pytest.raises(InputError, match=r"job: was started with another code of own_code than is there now"):
        grid(job, ["rounds=1"], tmp_path)
    train(job, run, ("rounds=2",), True, builders.Alone(), force=True, wings_of=wings_of)
    (change,) = read_environment(run)["changes"]
    assert change.startswith("code of own_code of sha256 ")
    assert check_run(run, read_job(job), resume=True) == []
    private, counted = (
        read_job(job, ("privacy={noise=1.0,clip=1.0,delta=1e-5}", "local.epochs=1")),
        tmp_path / "private",
    )
    claim_run(counted, private)
    write_environment(counted, code={"own_code": "0" * 64})
    with pytest.raises(
        InputError, match=r"by \[privacy\] .* put that back, or start again with another --out$"
    ):
        check_run(counted, private, resume=True, force=True)


def with_shared(digest):
    """Return shards with public examples and a test set of a digest each."""
    entry = make_spec().silos[0]
    public, test = (entry.model_copy(update={"sha256": d * 64}) if d != "-" else None for d in digest)
    return make_spec().model_copy(update={"public": public, "test": test})


@pytest.mark.parametrize(
    ("other", "change"),
    [
        (with_shared("ca"), "public examples of sha256 aaaaaaaaaaaa -> cccccccccccc"),
        (with_shared("ac"), "test set of sha256 aaaaaaaaaaaa -> cccccccccccc"),
        (with_shared("a-"), "test set of sha256 aaaaaaaaaaaa -> none"),
    ],
)
def test_public_examples_and_the_test_set_belong_to_the_shards(tmp_path, other, change):
    claim_run(tmp_path, make_job())
    write_environment(tmp_path, data=describe(with_shared("aa")))
    check_run(tmp_path, make_job(), resume=True, spec=with_shared("aa"))
    with pytest.raises(InputError, match="the shards are not those that it was started on"):
        check_run(tmp_path, make_job(), resume=True, spec=other)
    assert check_run(tmp_path, make_job(), resume=True, force=True, spec=other) == [change]


def test_a_run_that_was_started_before_these_were_written_down_goes_on(tmp_path):
    claim_run(tmp_path, make_job())
    older = {key: value for key, value in describe(make_spec()).items() if key in ("form", "sha256")}
    write_environment(tmp_path, data=older)
    assert check_run(tmp_path, make_job(), resume=True, spec=with_shared("aa")) == []
    with pytest.raises(InputError, match="the shards are not those"):
        check_run(tmp_path, make_job(), resume=True, spec=make_spec(digests="ac"))


@pytest.mark.parametrize("other", [make_spec(classes=4), make_spec(digests="abc")], ids=["classes", "silos"])
def test_shards_that_the_state_does_not_fit_are_refused_even_by_force(tmp_path, other):
    claim_run(tmp_path, make_job())
    write_environment(tmp_path, data=describe(make_spec()))
    (tmp_path / "model.safetensors").write_bytes(b"")
    told = "was started on 2 silos of 8x8 uint8 in 3 classes, the shards are "
    joined = other.classes == 3
    for job, force in ((make_job(), True), (make_job(shards="others"), False)):
        with pytest.raises(InputError) as refused:
            check_run(tmp_path, job, resume=True, force=force, spec=other)
        said = "was started on 2 silos, and the shards are 3 silos; " if joined else told
        assert said in str(refused.value)
        begin = f"with another --out, from its model by [model] weights = '{tmp_path}/model.safetensors'"
        assert (begin in str(refused.value)) == joined
        assert "--force" not in str(refused.value)


def test_what_was_changed_by_force_stays_on_record(tmp_path):
    write_environment(tmp_path, changes=["local.lr 0.1 -> 0.05 after round 2"])
    write_environment(tmp_path, changes=[])
    write_environment(tmp_path, changes=["threads 1 -> 2 after round 4"])
    about = json.loads((tmp_path / "environment.json").read_text())
    assert about["changes"] == ["local.lr 0.1 -> 0.05 after round 2", "threads 1 -> 2 after round 4"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot be written .*; name a folder that can by --out"):
        claim_run(tmp_path / "file" / "run", make_job())


def test_metrics_are_read_as_they_were_written(tmp_path):
    records = [{"round": 1, "train_loss": 1 / 3, "faults": {"2": "é"}}, {"round": 2, "train_loss": 5e-324}]
    observer = JsonLines(tmp_path)
    for record in records:
        observer.round(record)
    assert read_metrics(tmp_path) == records
    assert len((tmp_path / "metrics.jsonl").read_bytes().splitlines()) == 2


def test_a_folder_without_metrics_has_no_rounds(tmp_path):
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("kept", [1, 5, 11, len(LINES[4]) - 2])
def test_a_torn_last_line_is_no_round(tmp_path, kept):
    write(tmp_path, *LINES[:4], LINES[4][:kept])
    assert [record["round"] for record in read_metrics(tmp_path)] == [1, 2, 3, 4]


@pytest.mark.parametrize("round", [0, 2, 4, 9])
@pytest.mark.parametrize("torn", [b"", b'{"round": 6, "te', b"[1]\n", b'{"a": 1}\n', b'{"round": "6"}\n'])
def test_trimming_drops_the_rounds_to_be_done_again_and_a_torn_line(tmp_path, round, torn):
    write(tmp_path, *LINES, torn)
    trim_metrics(tmp_path, round)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(LINES[:round])
    JsonLines(tmp_path).round({"round": round + 1})
    assert [record["round"] for record in read_metrics(tmp_path)] == [*range(1, min(round, 5) + 1), round + 1]


def test_a_torn_line_takes_no_later_round_along(tmp_path):
    write(tmp_path, *LINES[:1], LINES[1][:9] + b"\n", *LINES[2:])
    assert [record["round"] for record in read_metrics(tmp_path)] == [1, 3, 4, 5]
    trim_metrics(tmp_path, 4)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join([LINES[0], *LINES[2:4]])


def test_trimming_a_new_run_leaves_an_empty_file(tmp_path):
    trim_metrics(tmp_path, 0)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_the_environment_names_versions_and_what_it_is_given(tmp_path):
    write_environment(tmp_path, mpi="Open MPI 5.0.8", ranks={"1": {"host": "a"}})
    about = json.loads((tmp_path / "environment.json").read_text())
    assert {"mpifl", "python", "torch", "numpy", "h5py", "pydantic", "safetensors"} <= set(about["versions"])
    assert (about["mpi"], about["ranks"]) == ("Open MPI 5.0.8", {"1": {"host": "a"}})


@pytest.mark.parametrize(
    "about", [3, {"data": 3}, {"changes": 3}, {"ranks": {"0": 3}}, {"ranks": 3}, {"directory": 3}], ids=str
)
def test_an_altered_environment_is_none(tmp_path, about):
    claim_run(tmp_path, make_job())
    (tmp_path / "environment.json").write_text(json.dumps(about))
    assert read_environment(tmp_path) == {}
    assert check_run(tmp_path, make_job(), resume=True, spec=make_spec()) == []


def test_the_latest_checkpoint_is_the_one_of_the_most_rounds(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    for round in (9, 10, 2):
        (tmp_path / "checkpoints" / f"round_{round:06d}").mkdir(parents=True)
    assert latest_checkpoint(tmp_path) == 10


@pytest.mark.parametrize(
    ("tracking", "kinds"),
    [
        ({}, ["JsonLines", "Console"]),
        ({"console": False}, ["JsonLines", "Console"]),
        ({"jsonl": False, "console": "always"}, ["Console"]),
        ({"jsonl": False, "console": False}, ["Console"]),
    ],
    ids=str,
)
def test_the_observers_are_those_that_the_job_asks_for(tmp_path, tracking, kinds):
    assert [type(observer).__name__ for observer in observers(make_job(tracking=tracking), tmp_path)] == kinds


def test_an_observer_whose_package_is_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("mpifl.report.observers.configured.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"tensorboard = true: needs 'pip install mpifl\[tensorboard\]'"):
        check_tracking(make_job(tracking={"tensorboard": True}))
    check_tracking(make_job(tracking={"tensorboard": False}))


def test_the_hosts_of_all_starts_are_kept(tmp_path):
    for hosts in (["n1", "n2"], ["n3", "n1"]):
        write_environment(tmp_path, ranks={str(n): {"host": host} for n, host in enumerate(hosts)})
    assert read_environment(tmp_path)["hosts"] == ["n1", "n2", "n3"]
