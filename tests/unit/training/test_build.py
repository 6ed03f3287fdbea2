"""What every rank works out for itself before a training: its threads,
and whether it can compute as the job wants."""

import json
import os
import resource

import pytest
from torch import nn
from unit.builders import Alone, write_folder, write_vertical_folder

from mpifl.common.errors import InputError
from mpifl.common.files import check_open_files
from mpifl.report.observers.console import Console
from mpifl.run.job import Job, check_job, read_job
from mpifl.training import build, devices
from mpifl.training.beforehand.run_checks import plan_wings, validate_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.split.split_answers import all_together


class Placed(Alone):
    """The only worker of its node."""

    def place(self):
        return 0, 1


@pytest.mark.parametrize(
    ("mine", "launchers", "workers", "threads"),
    [
        (16, 16, 1, 16),
        (16, 16, 3, 5),
        (16, 16, 40, 1),
        (4, 16, 4, 4),  # bound to four cores each
        (8, 16, 4, 4),  # bound to two sockets, two ranks on each
        (1, 16, 2, 1),
        (16, 16, 0, 1),  # the server
    ],
)
def test_auto_shares_the_cores_that_a_rank_may_use(monkeypatch, mine, launchers, workers, threads):
    cores = {0: set(range(mine)), os.getppid(): set(range(launchers))}
    monkeypatch.setattr(os, "sched_getaffinity", cores.__getitem__, raising=False)
    assert devices.threads_of("auto", workers) == threads
    assert devices.threads_of(3, workers) == 3


def test_bfloat16_on_a_cpu_is_refused_in_a_line(tmp_path):
    write_folder(tmp_path / "shards", [8, 8])
    job = tmp_path / "job.toml"
    job.write_text(
        f'name = "toy"\nshards = "{tmp_path / "shards"}"\nrounds = 1\ndevice = "cpu"\n'
        '[model]\nname = "logreg"\n[local]\nprecision = "bf16"\n'
    )
    with pytest.raises(InputError, match=r"\[local\] precision = 'bf16': .* use 'fp32'") as refused:
        build.build(job, tmp_path / "run", (), False, Placed(), wings_of=wings_of)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("allowed", "silos"), [(200, 200), (40, 8), (12, 1)])
def test_a_rank_that_may_not_open_its_shards_says_so_at_the_start(monkeypatch, tmp_path, allowed, silos):
    limits = {resource.RLIMIT_NOFILE: (allowed, allowed)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    told = rf"^ulimit -n = {allowed}: this rank hosts {silos} silos, a file each, .*; raise the limit"
    with pytest.raises(InputError, match=told):
        check_open_files(silos)
    limits[resource.RLIMIT_NOFILE] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    check_open_files(silos)
    write_folder(tmp_path / "shards", [8] * 8)
    limits[resource.RLIMIT_NOFILE] = (allowed, allowed)
    job = check_job(
        {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": {"name": "logreg"}}, "it"
    )
    monkeypatch.setattr(resource, "setrlimit", lambda *given: None)
    if allowed < 200:
        with pytest.raises(InputError, match=rf"ulimit -n = {allowed}: this rank hosts 8 silos"):
            build.build(job, tmp_path / "run", (), False, Placed(), wings_of=wings_of)


def normed(shape, classes):
    """A model that cannot train on one example."""
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, classes))


def normed_job(folder, local):
    write_folder(folder / "shards", [8, 9])
    job = folder / "job.toml"
    model = f'[model]\nname = "{__name__}:normed"'
    job.write_text(f'name = "toy"\nshards = "{folder / "shards"}"\nrounds = 1\n{model}\n[local]\n{local}\n')
    return job


def test_a_last_batch_of_one_is_refused_where_the_model_cannot_train_on_it(tmp_path):
    """Which silo and what would do is said before the first round, and PyTorch's words are not."""
    job = normed_job(tmp_path, "batch_size = 4")
    what = "of 9 rows the last batch has one, and the model of silo 1 cannot train on one row"
    told = rf"\[local\] batch_size = 4: {what} \(BatchNorm1d\); use drop_last = true, or another size"
    with pytest.raises(InputError, match=told):
        validate_job(read_job(job), str(job), wings_of)
    with pytest.raises(InputError, match=told):
        build.build(job, tmp_path / "run", (), False, Placed(), wings_of=wings_of)


@pytest.mark.parametrize(
    "local", ["batch_size = 4\ndrop_last = true", "batch_size = 4\nsteps = 2", "batch_size = 5"]
)
def test_a_last_batch_of_one_that_no_silo_draws_is_none(tmp_path, local):
    job = normed_job(tmp_path, local)
    validate_job(read_job(job), str(job), wings_of)


HOSTILE = {
    "a rule under masks": ({"aggregation": {"rule": "median"}}, "masks hide them"),
    "compression": ({"compression": {"upload": "topk"}}, "masked vectors do not shrink"),
    "steps in parts": ({"local": {"accumulate_batches": 2, "batch_size": 4}}, "has one batch, of any size"),
    "a compiled step": ({"local": {"compile": True, "batch_size": 4}}, "is not compiled"),
    "half precision": ({"local": {"precision": "fp16", "batch_size": 4}}, "bounds norms in float32"),
    "full gradients": ({"algorithm": {"name": "fsvrg"}}, "fsvrg"),
    "liars": ({"attack": {"kind": "scale", "silos": [0]}}, "leave one of them out"),
    "a large delta": ({"privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.5}}, "delta allows to publish"),
    "noise in a sum that is in clear": (
        {"privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.01, "noise_at": "sum"}, "security": None},
        "add a table",
    ),
    "weights of classes": ({"task": {"name": "classification", "weights": [1.0, 2.0, 3.0]}}, "the loss"),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_job_that_rank_0_should_have_refused_is_refused_at_each_rank(tmp_path, monkeypatch, why):
    """Sites take the job from rank 0, which may run another program."""
    tables, line = HOSTILE[why]
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    spec = write_folder(tmp_path / "shards", [20, 20], test=5)
    usual = {
        "name": "toy",
        "shards": str(tmp_path / "shards"),
        "rounds": 1,
        "device": "cpu",
        "model": {"name": "logreg"},
        "local": {"batch_size": 4},
        "evaluate": {"silos": False},
        "privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.01},
        "security": {"least": 1, "colluding": 0.0},
    }
    given = {name: table for name, table in {**usual, **tables}.items() if table is not None}
    with pytest.raises(InputError, match=line):
        plan_wings(job := check_job(given, "the job"), spec, "the job", wings_of(job))
    told = {"spec": spec.model_dump_json(), "out": str(tmp_path / "run")}
    told["wings"] = json.dumps({"dpsgd": "[1.0, 1.0]", "masked": "it"})
    job = Job.model_validate(given)
    monkeypatch.setattr(build, "_plan", lambda *_: {**told, "job": job.model_dump_json(exclude_none=True)})
    with pytest.raises(InputError, match=line):
        build.build(tmp_path / "job.toml", tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    assert not (tmp_path / "site" / "ledger.jsonl").exists()


@pytest.mark.parametrize("wings", [None, "", "nonsense", "[]", '{"dpsgd": 1}', '{"dpsgd": null}'])
def test_what_rank_0_tells_wings_is_read_or_refused_in_a_line(tmp_path, monkeypatch, wings):
    spec = write_folder(tmp_path / "shards", [20, 20])
    given = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": {"name": "logreg"}}
    job = check_job(given, "the job").model_dump_json(exclude_none=True)
    told = {"spec": spec.model_dump_json(), "out": str(tmp_path / "run"), "job": job}
    told |= {} if wings is None else {"wings": wings}
    monkeypatch.setattr(build, "_plan", lambda *_: told)
    with pytest.raises(InputError, match="rank 0 says what no rank of this version says; start all with"):
        build.build(tmp_path / "job.toml", tmp_path / "run", (), False, Alone(), wings_of=wings_of)


def test_who_evaluates_or_predicts_by_columns_checks_the_job_too(tmp_path, monkeypatch):
    """By [privacy] a site with a budget would let pass what it refuses without."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    spec = write_vertical_folder(tmp_path / "shards", {"train": 8})
    given = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "algorithm": {"name": "splitnn"}}
    privacy = {"clip": 1.0, "noise": 1.0, "delta": 0.01}
    job = Job.model_validate({**given, "model": {"name": "mlp"}, "privacy": privacy})
    with (
        pytest.raises(InputError, match="splitnn"),
        all_together(Alone(), lambda: (job, spec, tmp_path), print),
    ):
        pass


def test_gpus_that_slurm_gave_and_torch_does_not_see_are_told(monkeypatch, tmp_path):
    write_folder(tmp_path / "shards", [4])
    table = {"name": "t", "shards": str(tmp_path / "shards"), "rounds": 1, "local": {"lr": 0.1}}
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "2")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = []
    for device in ("auto", "cpu"):
        job = check_job({**table, "device": device, "model": {"name": "mlp"}}, "job.toml")
        monkeypatch.setattr(Console, "note", lambda _, line: said.append(line))
        train(job, tmp_path / device, (), False, Alone(), wings_of=wings_of)
    (line,) = [line for line in said if "SLURM" in line]
    assert line.startswith("SLURM gave GPUs (SLURM_GPUS_ON_NODE=2), and workers on ")
    assert "see mpifl doctor, or set device = 'cuda' to have this refused" in line
