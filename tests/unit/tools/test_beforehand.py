"""What is wrong with a training is told before its ranks start, by the line that they would end with."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from conftest import ROOT, python, rank_environment
from typer.testing import CliRunner
from unit.builders import Alone, write_folder

from mpifl import FedAvg
from mpifl.cli import app
from mpifl.cli.job_tools import shipped_job
from mpifl.cli.job_tools.beforehand import _is_suspect, check_beforehand, check_whole
from mpifl.common import InputError
from mpifl.data.shards import read_any
from mpifl.run.job import read_outline
from mpifl.run.job.tables import RULE_NAMES
from mpifl.run.job.uncalled_methods import uncalled
from mpifl.wings import wings_of
from mpifl.wings.dpsgd import privacy_plan
from mpifl.wings.privacy import SiteFolder
from mpifl.wings.robust import RULES

TOLD = """
import runpy, sys
try:
    runpy.run_module("mpifl", run_name="__main__", alter_sys=True)
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
JOB = {"name": "toy", "rounds": 1, "model": {"name": "logreg"}, "tracking": {"console": False}}
PRIVATE = [
    "shards='shards'",
    "rounds=4",
    "local.batch_size='full'",
    "evaluate.silos=false",
    "privacy={noise=3.0, clip=1.0, delta=1e-5}",
]
REFUSED = {
    "schedule-over-rounds": ["local.schedule='cosine'", "local.schedule_rounds=3"],
    "key-of-a-table": ["local.lrr=0.1"],
    "algorithm": ["algorithm.name='fedporx'"],
    "key-of-an-algorithm": ["algorithm.name='fedprox'", "algorithm.nu=0.1"],
    "value-of-an-algorithm": ["algorithm.name='fedprox'", "algorithm.mu=-0.1"],
    "task": ["task.name='clasification'"],
    "metric": ["task.metrics=['acuracy']"],
    "server-optimizer": ["server_optimizer.name='adamw'"],
    "model": ["model.name='resnet'"],
    "key-of-another-model": ["model.hidden=[4]"],
    "weights": ["model.weights='nowhere.safetensors'"],
    "own-model": ["model.name='no_such_module:net'"],
    "own-metric": ["task.metrics=['no_such_module:Metric']"],
    "own-observer": ["tracking.observers=['no_such_module:Chat']"],
    "selection": ["cohort.select='random'"],
    "shards": ["shards='nowhere'"],
    "split": ["evaluate.split='valid'"],
    "candidates": ["cohort.select='power-of-choice'", "cohort.candidates=9"],
    "layout": ["algorithm.name='splitnn'", "split.cut_width=2"],
}


LATE = {"model.hidden=[4]"}
"""What needs torch, and a training in one process says itself."""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beforehand")
    write_folder(folder / "shards", [6, 5, 4], test=4)
    (folder / "job.toml").write_text(tomli_w.dumps({**JOB, "shards": str(folder / "shards")}))
    return folder / "job.toml"


def refusal(act):
    with pytest.raises(InputError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_a_wrong_job_is_refused_with_the_line_of_its_ranks(changes, job, tmp_path, monkeypatch):
    from mpifl.training.loop import train

    monkeypatch.chdir(tmp_path)
    line = refusal(lambda: train(job, tmp_path / "run", tuple(changes), False, Alone(), wings_of=wings_of))
    assert refusal(lambda: check_whole(job, changes, tmp_path / "run", resume=False, force=False)) == line
    if changes[0] not in LATE:
        assert refusal(lambda: check_beforehand(job, changes, tmp_path / "run", False, False)) == line


def started(job, run, *arguments, cwd):
    """The code of `train --ranks 3`, whether ranks started, and what is told."""
    return _started(job, run, *arguments, cwd=cwd, start=[*python(), "-m", "mpifl"])


def started_cold(job, run, *arguments, cwd):
    """As `started`, and whether torch was imported."""
    code, ranks, [*told, torch] = _started(job, run, *arguments, cwd=cwd, start=[sys.executable, "-c", TOLD])
    return code, ranks, torch == "True", told


def _started(job, run, *arguments, cwd, start):
    launcher = cwd / "launcher"
    launcher.write_text(f"#!/bin/sh\ntouch {cwd}/started\n")
    launcher.chmod(0o755)
    (cwd / "started").unlink(missing_ok=True)
    command = [*start, "train", job, "--ranks", "3", "--out", run, *arguments]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=rank_environment(MPIFL_MPIRUN=str(launcher)),
        timeout=180,
    )
    return done.returncode, (cwd / "started").exists(), done.stderr.splitlines()


def test_no_rank_starts_for_a_wrong_job(job, tmp_path):
    changes = ["--set", "local.schedule_rounds=3"]
    code, ranks, torch, told = started_cold(job, tmp_path / "run", *changes, cwd=tmp_path)
    assert (code, ranks, torch, len(told)) == (2, False, False, 1)
    assert told[0].startswith(f"error: {job}: [local] schedule_rounds")
    code, ranks, told = started(job, tmp_path / "run", "--set", "model.hidden=[4]", cwd=tmp_path)
    assert (code, ranks) == (2, False)
    assert told == [f"error: {job}: [model] has no key 'hidden'; logreg takes bias"]
    assert started(job, tmp_path / "run", cwd=tmp_path)[1]


def checked(job, *arguments):
    """The code of `mpifl check`, what it prints, and its lines on stderr."""
    done = CliRunner().invoke(app, ["check", str(job), *map(str, arguments)], standalone_mode=False)
    raised = [f"error: {done.exception}"] if isinstance(done.exception, InputError) else []
    return done.return_value or len(raised) * 2, done.stdout, [*done.stderr.splitlines(), *raised]


@pytest.fixture
def own_job(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MPIFL_SITE", raising=False)
    shutil.copytree(job.parent / "shards", "shards")
    shutil.copy(job, "own.toml")
    return Path("own.toml")


def test_check_tells_what_would_be_trained_and_writes_nothing(own_job):
    before = sorted(Path.cwd().rglob("*"))
    code, told, noted = checked(own_job, "--set", "shards='shards'")
    assert (code, noted) == (0, [])
    assert told == "own.toml: nothing is wrong: fedavg, logreg, 3 silos, 1 round, run folder runs/own\n"
    assert sorted(Path.cwd().rglob("*")) == before


def test_check_says_that_nothing_will_be_scored(own_job):
    path = Path("shards/federation.json")
    told = json.loads(path.read_text())
    told["test"] = None
    for entry in told["silos"]:
        entry["examples"] |= {split: 0 for split in ("valid", "test") if split in entry["examples"]}
    path.write_text(json.dumps(told))
    code, said, noted = checked(own_job, "--set", "shards='shards'")
    assert "nothing will be scored: no rows are held out; make shards with --test 0.2" in noted
    lines = "the line above" if len(noted) == 1 else f"the {len(noted)} lines above"
    assert (code, said.partition(": fedavg")[0]) == (0, f"own.toml: no error, but read {lines}")


def test_check_tells_each_problem_in_a_line(own_job):
    own = ["--set", "shards='shards'"]
    with Path("shards/silo_0001.h5").open("r+b") as file:
        file.truncate(100)
    Path("shards/silo_0002.h5").unlink()
    Path("no_folder").touch()
    code, told, noted = checked(own_job, *own, "--out", "no_folder")
    assert (code, told, len(noted)) == (2, "", 2)
    assert noted[0].startswith("error: shards/silo_0001.h5: 100 bytes, federation.json says ")
    assert noted[0].endswith(" (and 1 more silo); [cohort] quorum below 1 would continue without")
    counted = ["--set", "algorithm.name='tableone'", "--set", "rounds=1"]
    assert checked(own_job, *own, *counted, "--out", "no_folder")[2][0].endswith(" (and 1 more silo)")
    assert noted[1].startswith("error: no_folder: cannot be written (Not a directory)")
    quorum = ["--set", "cohort.quorum=0.3"]
    code, told, noted = checked(own_job, *own, *quorum)
    assert (code, len(noted)) == (0, 2)
    assert noted[1].startswith("continuing without silo 2 while it is broken: shards/silo_0002.h5")
    assert checked(own_job, *own, "--shards-elsewhere")[0] == 0
    Path("shards/test.h5").unlink()
    code, _, noted = checked(own_job, *own, *quorum)
    assert (code, len(noted)) == (2, 1)
    to_do = "; if the ranks' machines have it, give --shards-elsewhere"
    assert noted[0] == f"error: shards/test.h5: is missing; federation.json names it{to_do}"


OWN = """
from mpifl import Constant, FedAvg


class Own(FedAvg):
    def train(self, silo, w):
        run = silo.train_locally(w, self.local)
        {}
"""
ROUND = """return silo.update(delta=run.delta)

    def round(self, server, cohort):
        return cohort.mean(self.train, {}).scalars
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return silo.update(delta=run.delta, train_loss=run.loss)", None),
        (
            "return silo.update(delta=run.delta / run.steps.mean)",
            r"AttributeError: 'int' .* \(.*OWN.py, line 8\)",
        ),
        ("return run.delta", r"train returned a Tensor; have it return silo.update"),
        ("next(iter(silo.split('train')))[0].frobnicate()", r"AttributeError: .*frobnicate.* line 8\)"),
        ("w += 1; return silo.update(delta=run.delta)", r"train wrote to 'w', which all silos read; have it"),
        (
            "self.d = 1; return silo.update(delta=run.delta)",
            r"train sets self.d, and .* is frozen.*OWN.py, line 8",
        ),
        (
            "return silo.update(delta=silo.train_locally(w, self.local, correct=Constant(1.0)).delta)",
            r"Constant takes a vector as long as w, of shape \[\d+\]; 1.0 is given",
        ),
        (ROUND.format("w=server.state['v']"), r"round failed: KeyError: 'v' \(.*OWN.py, line 11\)"),
        (ROUND.format("w=w"), r"round failed: NameError: name 'w' is not defined \(.*OWN.py, line 11\)"),
        (ROUND.format("w=self.w0"), r"round failed: AttributeError: 'Own' object .* 'w0' \(.*, line 11\)"),
        (ROUND.format("w=server.public.x"), None),  # the trial may lack it
        (ROUND.format("v=server.state['w']"), r"TypeError: .* argument 'v' \(.*OWN.py, line 6\)"),
    ],
)
def test_check_tries_the_client_method_of_an_algorithm_of_ones_own(own_job, monkeypatch, line, said):
    module = f"own{abs(hash(line))}"
    Path(f"{module}.py").write_text(OWN.format(line))
    monkeypatch.syspath_prepend(str(Path.cwd()))
    own = [
        "--set",
        "shards='shards'",
        "--set",
        f"algorithm.name='{module}:Own'",
        "--set",
        "local.epochs=10000",
    ]
    code, _, noted = checked(own_job, *own)
    assert (code, len(noted)) == ((0, 0) if said is None else (2, 1))
    if said is not None:
        where = rf"error: \[algorithm\] name = '{module}:Own': .*{said.replace('OWN', module)}"
        assert re.match(where, noted[0]), noted[0]


METRIC = """
class Own:
    higher_is_better = True

    def __init__(self):
        self.right, self.rows = 0, 0

    def update(self, predicted, y):
        {}
        self.right, self.rows = self.right + int((predicted.argmax(1) == y).sum()), self.rows + len(y)

    def compute(self):
        {}
"""


@pytest.mark.parametrize(
    ("update", "compute", "said"),
    [
        ("pass", "return self.right / self.rows", None),
        ("predicted.frobnicate()", "return 1.0", r"AttributeError: .*frobnicate.* \(.*MODULE.py, line 9\)"),
        ("pass", "return self.wrong", r"AttributeError: .* 'wrong' \(.*MODULE.py, line 13\)"),
        ("pass", "return {}", r"TypeError: .*"),
    ],
)
def test_check_tries_a_metric_of_ones_own(own_job, monkeypatch, update, compute, said):
    module = f"metric{abs(hash(update + compute))}"
    Path(f"{module}.py").write_text(METRIC.format(update, compute))
    monkeypatch.syspath_prepend(str(Path.cwd()))
    own = ["--set", "shards='shards'", "--set", f"task.metrics=['accuracy', '{module}:Own']"]
    code, _, noted = checked(own_job, *own)
    assert (code, len(noted)) == ((0, 0) if said is None else (2, 1)), noted
    if said is not None:
        where = r"error: \[task\] metrics: 'own' \(Own\) failed on 4 rows of silo 0: "
        assert re.match(where + said.replace("MODULE", module), noted[0]), noted[0]


@pytest.mark.skipif(importlib.util.find_spec("dp_accounting") is None, reason="needs dp-accounting")
class Misspelt(FedAvg):
    decay: float = 0.6

    def rounds(self, server, cohort):
        return cohort.mean(self.trained, w=server.state["w"]).scalars

    def trained(self, silo, w):
        return silo.update(delta=w)


class Unchanged(FedAvg):
    decay: float = 0.6


class Other(FedAvg):
    mu: float = 0.5

    def train(self, silo, w):
        return self.train_once(silo, w)

    def train_once(self, silo, w):
        return super().train(silo, w)


TOLD_AT_START = {
    "an algorithm that takes no steps": (
        ["algorithm.name='fedsgd'", "local.epochs=5", "local.straggler_chance=0.9"],
        ["[algorithm] name = 'fedsgd': does not use local.epochs, local.straggler_chance"],
    ),
    "one silo a step": (
        ["algorithm.name='fedasync'", "clock={}", "cohort.weights='uniform'"],
        ["[algorithm] name = 'fedasync': does not use cohort.weights"],
    ),
    "no parts": (
        ["local.straggler_chance=0.5"],
        ["[local] straggler_chance: one epoch or step has no parts"],
    ),
    "choices of nobody": (
        [
            "cohort={select='power-of-choice', candidates=3}",
            "local={schedule='cosine', steps=1}",
            "attack={kind='label_flip', silos=[0], keep_optimizer_state=true}",
        ],
        [
            "[cohort] select = 'power-of-choice': by fraction = 1 all silos take part",
            "[local] schedule = 'cosine': a round has one step, whose rate is lr",
            "[attack] keep_optimizer_state = true: by [local] silos keep none",
        ],
    ),
    "terms of no masks": (
        ["security={masks=false, least=4, colluding=0.9}"],
        [
            "[security] least = 4: is of masks, and masks = false adds none",
            "[security] colluding = 0.9: is of masks, and masks = false adds none",
        ],
    ),
    "epochs of nobody": (
        ["local={epochs_by_silo=[1, 2, 3, 9]}"],
        ["[local] epochs_by_silo: has 4 numbers for 3 silos; the last have no use"],
    ),
    "liars": (["attack={kind='sign_flip', silos=[0]}"], ["[attack] kind = 'sign_flip': SILOS 0 LIE"]),
    "a score behind": (
        ["evaluate.behind=true", "device='cpu'"],
        ["[evaluate] behind = true: has no effect, as a round with"],
    ),
    "a target of silos": (
        ["algorithm={name='fedper', personal=['head.bias']}", "evaluate.target_accuracy=0.9"],
        ["[evaluate] target_accuracy: silos own a part of the model, and silos hold out no data"],
    ),
    "a loud noise": (
        ["privacy={level='silo', noise=50.0, clip=1.0, delta=1e-3}", "cohort.weights='uniform'"],
        ["[privacy] level = 'silo': the noise is "],
    ),
}


@pytest.mark.parametrize(("changes", "lines"), TOLD_AT_START.values(), ids=TOLD_AT_START)
def test_check_tells_what_train_tells_of_a_job_at_its_start(own_job, changes, lines, capsys):
    from mpifl.training.loop import train

    changes = ["shards='shards'", *changes]
    code, told, noted = checked(own_job, *(word for one in changes for word in ("--set", one)))
    assert code == 0
    assert [line for line in lines if not any(one.startswith(line) for one in noted)] == []
    assert "nothing is wrong" not in told
    train(own_job, Path("run"), (*changes, "tracking.console=true"), False, Alone(), wings_of=wings_of)
    shown = " ".join("".join(capsys.readouterr()).split())
    assert [one for one in noted if one not in shown] == []


def test_a_misspelt_method_of_an_algorithm_of_ones_own_is_told(own_job):
    assert uncalled(Misspelt) == [
        "Misspelt defines `rounds`, which nothing calls; did you mean `round`?",
        "Misspelt overrides nothing, and so trains as FedAvg does",
    ]
    assert uncalled(Unchanged) == ["Unchanged overrides nothing, and so trains as FedAvg does"]
    assert uncalled(Other) == []
    assert uncalled(FedAvg) == []
    own = ["--set", "shards='shards'", "--set", f"algorithm.name='{__name__}:Misspelt'"]
    code, _, noted = checked(own_job, *own, "--set", "local.epochs=1")
    assert code == 0
    assert "defines `rounds`, which nothing calls" in noted[0]


def test_no_noise_is_sought_for_a_job_that_its_site_refuses(own_job):
    privacy_plan._say_once.cache_clear()
    keys = [one for one in PRIVATE if "noise" not in one and "batch" not in one]
    sought = ["local.batch_size=4", "privacy={epsilon=3.0, clip=1.0, delta=1e-5}"]
    code, _, noted = checked(own_job, *(word for key in (*keys, *sought) for word in ("--set", key)))
    assert (code, len(noted)) == (2, 1), noted
    assert noted[0].startswith("error: [privacy]: MPIFL_SITE names no folder for this site's secret")


def test_check_tells_what_is_left_of_a_budget(own_job, monkeypatch):
    own = [word for key in PRIVATE for word in ("--set", key)]
    code, told, noted = checked(own_job, *own)
    assert (code, told) == (2, "")
    assert "error: [privacy]: MPIFL_SITE names no folder for this site's secret" in noted[-1]
    assert checked(own_job, "--set", "shards='shards'", "--set", "security={least=1}")[0] == 2
    monkeypatch.setenv("MPIFL_SITE", "site")
    assert checked(own_job, *own)[0] == 0
    assert not Path("site").exists()
    SiteFolder(Path("site"))
    one, all_rounds = (_epsilon(own_job, rounds) for rounds in (1, 4))
    for epsilon, code, told in (
        (all_rounds * 1.01, 0, []),
        (one * 1.01, 0, ["silo 0: its privacy budget allows 1 of 4 rounds"]),
        (one * 0.9, 2, ["its privacy budget is spent"]),
    ):
        Path("site/budget.toml").write_text(f"epsilon = {epsilon}\ndelta = 1e-5\n")
        found, _, noted = checked(own_job, *own)
        assert found == code
        assert [told[0] in line for line in noted[: len(told)]] == [True] * len(told), noted
    found, _, noted = checked(own_job, "--set", "shards='shards'")
    assert (found, len(noted)) == (2, 1)
    assert "has a budget.toml, and the job has no [privacy]" in noted[0]


def _epsilon(job, rounds):
    from mpifl.run.job import read_job
    from mpifl.wings.dpsgd import figures_of_plan, plans

    asked = read_job(job, PRIVATE)
    spec = read_any(Path("shards"))
    planned = plans(asked, spec, asked.build_algorithm().for_federation(spec))
    return figures_of_plan(asked, planned, rounds)[0]


def test_a_job_of_the_package_goes_by_its_name_or_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in ("demo", "demo.toml", "jobs/demo.toml", "jobs/demo", "algorithms/heart-fedprox"):
        assert shipped_job(Path(given)).is_relative_to(ROOT / "jobs"), given
    for given in ("", "jobs", "no_such", "../pyproject", "algorithms"):
        assert shipped_job(Path(given)) is None, given
    code, _, noted = checked("demo")
    assert (code, len(noted)) == (2, 1)
    assert "shards/digits" in noted[0]
    Path("demo").write_text("name = 1")
    assert "demo: " in checked("demo")[2][0], "a file of the user's goes first"


def test_one_process_looks_before_it_imports_torch_too(job, tmp_path):
    command = [sys.executable, "-c", TOLD, "train", job, "--out", tmp_path / "run", "--set", "local.lrr=1"]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=rank_environment(), timeout=180
    )
    told, torch = done.stderr.splitlines()
    assert (done.returncode, torch) == (2, "False")
    assert told.startswith(f"error: {job}: [local] has no key 'lrr'")


def test_a_run_in_the_folder_is_told_of_before_ranks_start(job, tmp_path):
    from mpifl.training.loop import train

    run = tmp_path / "run"
    train(job, run, (), False, Alone(), wings_of=wings_of)
    code, ranks, told = started(job, run, cwd=tmp_path)
    assert (code, ranks) == (2, False)
    assert "holds a run already" in told[0]
    code, ranks, told = started(job, run, "--resume", "--set", "local.lr=0.3", cwd=tmp_path)
    assert (code, ranks) == (2, False)
    assert "it differs in local.lr" in told[0]
    longer = ["--resume", "--set", "rounds=2"]
    assert started(job, run, *longer, cwd=tmp_path)[1]


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").rglob("*.toml")), ids=lambda path: path.stem)
def test_no_job_that_ships_is_suspect(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert not _is_suspect(read_outline(path))


def test_the_rules_that_a_job_is_held_against_are_those_that_there_are():
    assert tuple(RULES) == RULE_NAMES


def test_a_module_in_this_folder_is_found(job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ["model.name='nets_of_mine:net'"]
    assert _is_suspect(read_outline(job, changes))
    Path("nets_of_mine.py").touch()
    assert not _is_suspect(read_outline(job, changes))
