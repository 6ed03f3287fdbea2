"""What is refused before training: exit code 2 and one line that names the key and what would do.

And a user's algorithm outside the package, `example_algorithm.py`: taken by its name, refused like any other.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from conftest import ranks
from reference.conftest import HERE
from safetensors.torch import load_file

from mpifl import cli
from mpifl.wire.memory import Memory
from mpifl.wire.nodes import Nodes
from mpifl.wire.transport import Transport

Main = Callable[..., tuple[int, str]]


class Alone(Transport):
    """A world of one rank that needs no MPI."""

    def __init__(self) -> None:
        self.rank, self.size, self.sent, self.received = 0, 1, 0, 0
        self.nodes, self.memory = Nodes([0], 0), Memory(shared=False)
        self.origins, self._founders, self.silent = [0], [0], set()

    def reports(self, is_stale: Any = None) -> Any:
        return iter(())


def write_job(path: Path, shards: Path, **tables: Any) -> Path:
    usual = {"name": "toy", "shards": str(shards), "rounds": 2, "model": {"name": "mlp", "hidden": [8]}}
    path.write_text(tomli_w.dumps({**usual, "device": "cpu", **tables}))
    return path


@pytest.fixture
def main(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Main:
    """Run `mpifl train` on a job with these tables in this process; return the exit code and what it said."""
    monkeypatch.setattr("mpifl.wire.launching.world", Alone)
    monkeypatch.setattr("mpifl.common.machine.signals.install", lambda: None)
    monkeypatch.syspath_prepend(HERE)

    def act(**tables: Any) -> tuple[int, str]:
        file = write_job(tmp_path / "job.toml", folders / "renamed", **tables)
        monkeypatch.setattr(sys, "argv", ["mpifl", "train", str(file), "--out", str(tmp_path / "run")])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().err

    return act


def of(name: str, local: Any = None, model: Any = None, **keys: Any) -> dict[str, Any]:
    tables = {"algorithm": {"name": name, **keys}, "local": local, "model": model}
    return {key: table for key, table in tables.items() if table is not None}


def server(name: str, **keys: Any) -> dict[str, Any]:
    return {"server_optimizer": {"name": name, **keys}}


FLAT = {"name": "problems:featureless"}
OUT_OF_RANGE = [
    (of("fedprox", mu=-0.1), "[algorithm] mu = -0.1", "greater than or equal to 0"),
    (of("fedprox", adaptive=True, mu_step=-1.0), "[algorithm] mu_step = -1.0", "greater than or equal to 0"),
    (of("fedprox", patience=0), "[algorithm] patience = 0", "greater than 0"),
    (of("scaffold", option="III"), '[algorithm] option = "III"', "'I' or 'II'"),
    (of("qfedavg", q=-1.0), "[algorithm] q = -1.0", "greater than or equal to 0"),
    (of("qfedsgd", q="fair"), '[algorithm] q = "fair"', "a valid number"),
    (of("ditto", **{"lambda": -0.5}), "[algorithm] lambda = -0.5", "greater than or equal to 0"),
    (of("fedprox", gamma=1.5), "[algorithm] gamma = 1.5", "less than 1"),
    (of("finetune", tune_epochs=0), "[algorithm] tune_epochs = 0", "greater than 0"),
    (of("fedasync", alpha=1.5), "[algorithm] alpha = 1.5", "less than or equal to 1"),
    (of("fedbuff", buffer=0), "[algorithm] buffer = 0", "greater than 0"),
    ({**of("fedbuff"), "clock": {"jitter": 1.0}}, "[clock] jitter = 1.0", "less than 1"),
    ({**of("fedbuff"), "clock": {"slowest": 20.0}}, "[clock]", "slowest = 20 is above fastest = 10"),
    (of("ifca", clusters=0), "[algorithm] clusters = 0", "greater than or equal to 1"),
    (of("moon", mu=-1.0), "[algorithm] mu = -1.0", "greater than or equal to 0"),
    (of("moon", temperature=0.0), "[algorithm] temperature = 0.0", "greater than 0"),
    (of("fedavg", local={"lr": 0.0}), "[local] lr = 0.0", "greater than 0"),
    (
        of("fedavg", local={"straggler_chance": 1.5}),
        "[local] straggler_chance = 1.5",
        "less than or equal to 1",
    ),
    (of("fednova", local={"momentum": 1.0}), "[local] momentum = 1.0", "less than 1"),
    (server("sgd", momentum=1.0), "[server_optimizer] momentum = 1.0", "less than 1"),
    (server("adam", tau=0.0), "[server_optimizer] tau = 0.0", "greater than 0"),
    (server("adagrad", beta1=-0.1), "[server_optimizer] beta1 = -0.1", "greater than or equal to 0"),
    (server("yogi", beta2=1.0), "[server_optimizer] beta2 = 1.0", "less than 1"),
    ({"cohort": {"fraction": 1.2}}, "[cohort] fraction = 1.2", "less than or equal to 1"),
    (of("feddyn", alpha=0.0), "[algorithm] alpha = 0.0", "greater than 0"),
    (of("example_algorithm:FedExP", epsilon=0.0), "[algorithm] epsilon = 0.0", "greater than 0"),
]
NEEDS = [
    (
        of("scaffold", local={"optimizer": "adam"}),
        "scaffold",
        "use [local] optimizer = 'sgd' and nesterov = false",
    ),
    (of("scaffold", local={"momentum": 0.9, "nesterov": True}), "scaffold", "'sgd' and nesterov = false"),
    (of("fednova", local={"optimizer": "adam"}), "fednova", "use [local] optimizer = 'sgd'"),
    (of("fednova", local={"momentum": 0.9, "nesterov": True}), "fednova", "nesterov = false"),
    (of("fsvrg", local={"momentum": 0.9}), "fsvrg", "use [local] optimizer = 'sgd', momentum = 0"),
    (of("fsvrg", local={"optimizer": "adamw"}), "fsvrg", "use [local] optimizer = 'sgd', momentum = 0"),
    (of("fedsgd", local={"momentum": 0.9}), "fedsgd", "use [local] optimizer = 'sgd', momentum = 0"),
    (of("qfedsgd", local={"weight_decay": 0.1}), "qfedsgd", "use [local] optimizer = 'sgd', momentum = 0"),
    (of("qfedavg", local={"momentum": 0.9}), "qfedavg", "use [local] optimizer = 'sgd', momentum = 0"),
    (of("qfedavg", local={"weight_decay": 0.1}), "qfedavg", "momentum = 0, weight_decay = 0"),
    (of("qfedavg", local={"optimizer": "adam"}), "qfedavg", "use [local] optimizer = 'sgd'"),
    ({**of("qfedavg"), **server("adam")}, "qfedavg", "use [server_optimizer] name = 'sgd', lr = 1.0"),
    (
        {**of("qfedsgd"), **server("sgd", momentum=0.9)},
        "qfedsgd",
        "use [server_optimizer] name = 'sgd', lr = 1.0",
    ),
    ({**of("feddyn"), **server("sgd", lr=0.5)}, "feddyn", "use [server_optimizer] name = 'sgd', lr = 1.0"),
    ({**of("feddf"), **server("sgd", momentum=0.9)}, "feddf", "use [server_optimizer] name = 'sgd'"),
    (
        of("fedprox", gamma=0.5, local={"batch_silos": True}),
        "gamma = 0.5",
        "takes several at once; leave one of them out",
    ),
    ({**of("fedsgd"), "clock": {}}, "'fedsgd' takes one gradient of all examples", "or leave [clock] out"),
    ({**of("fsvrg"), "clock": {}}, "[clock]: 'fsvrg'", "use fedavg, or leave [clock] out"),
    ({**of("scaffold", option="I"), "clock": {}}, "by option I", "use option = 'II', or leave [clock] out"),
    ({**of("fedprox", gamma=0.5), "clock": {}}, "'fedprox' measures gamma", "leave gamma out, or leave"),
    ({**of("fedrep", personal=["head.*"]), "clock": {}}, "'fedrep' trains its own", "use fedper, or leave"),
    (
        {**of("fedavg"), "clock": {"speeds": {"hospital-0": 1.0}}},
        "[clock] speeds: no speed is given for silo 'hospital-1' and",
        "use 'uniform'",
    ),
    ({**of("fedavg", local={"deadline": 1.0}), "clock": {}}, "[local] deadline = 1", "leave it out"),
    (
        {**of("fedavg"), "clock": {"speeds": "uniform", "slowest": 1.0, "deadline": 0.01}},
        "[clock] deadline = 0.01: none of ",
        "silos of round 1 would be done by then; give at least ",
    ),
    ({**of("fedbuff"), "clock": {"deadline": 9.0}}, "[clock] deadline = 9", "wait for nobody; leave it out"),
    (
        {**of("fedavg"), "clock": {"deadline": 9.0}, "security": {}},
        "[clock] deadline = 9: masks are among all silos",
        "leave one of them out",
    ),
    (
        {**of("fedcompass", min_local_steps=9, max_local_steps=3), "clock": {}},
        "min_local_steps = 9 is above max_local_steps = 3",
        "exchange them",
    ),
    (
        {
            **of("fedcompass", local={"steps": 2, "schedule_rounds": 3, "schedule": "linear"}),
            "clock": {},
        },
        "[local] schedule_rounds counts steps",
        "leave it out",
    ),
    (of("fedbuff"), "'fedbuff'", "is said by [clock], and the job has none"),
    ({**of("fedasync"), **server("adam"), "clock": {}}, "fedasync", "use [server_optimizer] name = 'sgd'"),
    (
        {**of("fedbuff"), "clock": {"speeds": {"silo_0000": 1.0}}},
        "no silo is called 'silo_0000'; the silos are hospital-0",
        "hospital-1",
    ),
    ({**of("fedbuff", concurrency=99), "clock": {}}, "concurrency = 99", "give at most that many"),
    ({**of("fedbuff", local={"deadline": 1.0}), "clock": {}}, "[local] deadline", "leave"),
    ({**of("fedbuff"), "clock": {}, "security": {}}, "[security]: by [clock]", "leave one of them out"),
    (
        {**of("fedasync", model={"name": "problems:normalised"}), "clock": {}},
        "running statistics",
        "use GroupNorm",
    ),
    (of("moon", model=FLAT), "moon", "needs a model with features(x) and head(z)"),
    (of("fedbn"), "fedbn", "has no BatchNorm layer; use fedavg, or fedper"),
    (of("ifca", model={"name": "problems:normalised"}), "'ifca': running statistics", "use GroupNorm"),
    (of("ifcasgd", model={"name": "problems:level"}), "all clusters would be one", "begins at random"),
    (of("ifcasgd", local={"momentum": 0.9}), "ifcasgd", "use [local] optimizer = 'sgd', momentum = 0"),
    ({**of("ifca"), **server("adam")}, "ifca", "use [server_optimizer] name = 'sgd', lr = 1.0"),
    ({**of("ifca"), "security": {}}, "a sum over few silos hides little", "leave [security] masks out"),
    (
        of("fedper", personal=["haed.*"]),
        "[algorithm] personal",
        "'haed.*' matches no parameter; there are features.1.w",
    ),
    (of("fedper", personal=["*"]), "[algorithm] personal", "leave some to be averaged"),
    (of("feddf"), "feddf", "no public examples; partition with --public"),
    (of("fedper"), "[algorithm]", "needs the key 'personal'"),
]
TAKES = [
    (of("fedavg", mu=0.1), "fedavg takes none"),
    (of("fedsgd", q=0.1), "fedsgd takes none"),
    (of("fedprox", q=0.1), "fedprox takes mu, adaptive, mu_step, patience, gamma, measure_gamma"),
    (of("fednova", tau=3), "fednova takes none"),
    (of("scaffold", options="I"), "did you mean 'option'?"),
    (of("fsvrg", h=1.0), "fsvrg takes scaling"),
    (of("qfedavg", mu=1.0), "qfedavg takes q"),
    (of("fedper", personal=["head.*"], layers=1), "fedper takes personal"),
    (of("ditto", lamda=1.0), "did you mean 'lambda'?"),
    (of("moon", temp=1.0), "did you mean 'temperature'?"),
    (of("feddyn", mu=1.0), "feddyn takes alpha"),
    (of("example_algorithm:FedExP", mu=1.0), "example_algorithm:FedExP takes epsilon"),
]


def assert_refused(told: tuple[int, str], *parts: str) -> None:
    code, said = told
    assert code == 2, said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert not [part for part in parts if part not in said], said


@pytest.mark.parametrize(("tables", "key", "remedy"), OUT_OF_RANGE, ids=lambda value: str(value)[:40])
def test_a_hyperparameter_out_of_range_is_refused(main: Main, tables: Any, key: str, remedy: str) -> None:
    assert_refused(main(**tables), "job.toml", key, remedy)


@pytest.mark.parametrize(("tables", "who", "remedy"), NEEDS, ids=lambda value: str(value)[:60])
def test_an_algorithm_without_what_it_needs_is_refused(
    main: Main, tables: Any, who: str, remedy: str
) -> None:
    assert_refused(main(**tables), "job.toml", who, remedy)


@pytest.mark.parametrize(("tables", "takes"), TAKES, ids=lambda value: str(value)[:40])
def test_an_unknown_key_is_answered_with_those_that_are(main: Main, tables: Any, takes: str) -> None:
    assert_refused(main(**tables), "[algorithm] has no key", takes)


def test_the_command_itself_refuses(folders: Path, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.toml", folders / "toy", **of("scaffold", local={"optimizer": "adam"}))
    done = ranks(1, "-m", "mpifl", "train", job, "--out", tmp_path / "run", timeout=180)
    assert_refused((done.returncode, done.stderr), str(job), "scaffold", "optimizer = 'sgd'")
    assert not (tmp_path / "run").exists()


def test_what_is_not_refused_trains(main: Main, tmp_path: Path) -> None:
    """A user's algorithm, trained by its name:
    the job that it came from stands in the run with its default."""
    code, said = main(**of("example_algorithm:FedExP"), tracking={"console": False})
    assert code == 0, said
    assert "epsilon = 0.001" in (tmp_path / "run" / "job.toml").read_text()
    losses = [
        json.loads(line)["train_loss"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert losses[1] < losses[0]
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == {
        f"{layer}.{kind}" for layer in ("features.1", "head") for kind in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            of("fedsgd", local={"batch_size": 3, "steps": 2, "straggler_chance": 0.5}),
            "name = 'fedsgd': does not use local.batch_size, local.steps, local.straggler_chance",
        ),
        (of("qfedsgd", local={"precision": "fp32", "epochs": 2}), "'qfedsgd': does not use local.epochs"),
        (
            {**of("qfedavg"), "cohort": {"weights": "uniform", "select": "examples", "fraction": 0.5}},
            "[algorithm] name = 'qfedavg': does not use cohort.weights",
        ),
        (
            of("fedavg", local={"straggler_chance": 0.5}),
            "[local] straggler_chance: one epoch or step has no parts; use more",
        ),
        (
            of("fedavg", local={"straggler_chance": 0.5, "epochs_by_silo": [1, 1]}),
            "one epoch or step has no parts",
        ),
        ({"cohort": {"select": "examples", "fraction": 0.5}}, "use weights = 'uniform'"),
        (
            {"cohort": {"select": "power-of-choice", "candidates": 4, "fraction": 0.5}},
            "[cohort] select = 'power-of-choice': drawn by their examples and weighted by them",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_has_no_effect_is_told(main: Main, tables: Any, said: str) -> None:
    code, told = main(**{**tables, "rounds": 1})
    assert code == 0
    (line,) = told.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "tables",
    [
        of("fedsgd", local={"lr": 0.2, "lr_decay": 0.9, "epochs": 1, "batch_size": 10}),
        of("fedavg", local={"straggler_chance": 0.5, "steps": 2}),
        {"cohort": {"select": "examples", "weights": "uniform", "fraction": 0.5}},
        {"cohort": {"select": "examples"}},
        {**of("qfedavg"), "cohort": {"select": "examples", "fraction": 0.5}},
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_has_its_effect_is_not_told(main: Main, tables: Any) -> None:
    assert main(**{**tables, "rounds": 1}) == (0, "")


def test_the_example_is_as_short_as_promised() -> None:
    """At most 20 lines of code, without blank ones and the docstring."""
    text = (HERE / "example_algorithm.py").read_text()
    document = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef)).body[0]
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    assert len([n for n in lines if not document.lineno <= n <= (document.end_lineno or 0)]) <= 20
