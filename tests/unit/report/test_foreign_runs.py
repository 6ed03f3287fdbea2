"""Run folders that come from anybody: their code is not run unless the user names it."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner
from unit.builders import Alone, write_folder
from unit.report.test_report import make_model, write

from mpifl.cli import app
from mpifl.cli.sweep.settings_grid import grid
from mpifl.common.errors import InputError
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.judging.trained import check_plugins
from mpifl.report.pages.run_page import write_report
from mpifl.run.folder.run_folder import check_run, claim_run
from mpifl.run.job import Job
from mpifl.run.job.job import check_job
from mpifl.training import loop

JOB = """name = "toy"
shards = "{shards}"
rounds = 5
{more}
[model]
name = "{model}"
{arguments}
"""
PLUGIN = """
from pathlib import Path
from mpifl.algorithms import FedAvg
from mpifl.learning.models import MODELS
Path(__file__).with_name("was run").touch()
net = MODELS["logreg"]
class Mine(FedAvg):
    pass
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run folder by hand, beside a module of the user's own; the command runs beside it."""
    write_folder(tmp_path / "shards", [4], test=20)
    (tmp_path / "planted.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "run").mkdir()
    yield tmp_path / "run"
    sys.modules.pop("planted", None)


def write_job(run, model="logreg", arguments="", more=""):
    given = {"shards": run.parent / "shards", "model": model, "arguments": arguments, "more": more}
    (run / "job.toml").write_text(JOB.format(**given))
    write(run)
    make_model(run)


def mark(run):
    return run.parent / "was run"


def commanded(*words):
    """Run a command as a shell does; return its InputError, None if it went well."""
    return CliRunner().invoke(app, [str(word) for word in words]).exception


PLANTED = [
    {"model": "os:system", "arguments": "command = \"touch 'was run'\""},
    {"model": "planted:net"},
    {"more": '[algorithm]\nname = "planted:Mine"'},
    {"more": '[server_optimizer]\nname = "planted:Mine"'},
    {"more": '[task]\nname = "binary"\nloss = "planted:net"'},
    {"more": '[task]\nname = "binary"\nmetrics = ["f1", "planted:Mine"]'},
    {"more": '[task]\nname = "binary"\nmetrics = [{ name = "planted:Mine", as = "f1" }]'},
]


@pytest.mark.parametrize(
    "job", PLANTED, ids=["shell", "model", "algorithm", "optimizer", "loss", "metric", "table"]
)
@pytest.mark.parametrize("command", ["evaluate", "report", "compare"])
def test_what_a_foreign_job_names_is_not_run(run, command, job):
    write_job(run, **job)
    refused = commanded(command, run)
    assert not mark(run).exists()
    assert (refused is None) == (command != "evaluate")
    if refused:
        assert isinstance(refused, InputError)
        assert "is code that this command would import and run; name it by --trust" in str(refused)


def test_all_code_that_needs_trust_is_named_at_once(tmp_path):
    table = {"name": "j", "shards": "s", "rounds": 1, "task": {"name": "unit.builders:task"}}
    table |= {"model": {"name": "unit.builders:model"}}
    with pytest.raises(InputError) as refused:
        check_plugins(tmp_path, Job.model_validate(table), [])
    said = str(refused.value)
    assert said.endswith("--trust unit.builders:model --trust unit.builders:task if you trust it")
    assert "[model] name = 'unit.builders:model' and [task] name = 'unit.builders:task': is code" in said


OBSERVED = '[tracking]\nobservers = ["planted:Mine"]'


@pytest.mark.parametrize("command", ["evaluate", "report", "compare"])
def test_observers_of_a_foreign_run_are_not_imported(run, command):
    write_job(run, more=OBSERVED)
    assert commanded(command, run) is None
    assert not mark(run).exists()


def test_a_run_goes_on_without_observers_that_its_folder_alone_names(run):
    write_job(run, more=OBSERVED)
    mine = run.parent / "mine.toml"
    job = JOB.format(shards=run.parent / "shards", model="logreg", arguments="", more="threads = 1")
    mine.write_text(job)
    loop.train(mine, run, (), True, Alone())
    assert not mark(run).exists()
    mine.write_text(f"{job}\n{OBSERVED}")
    with pytest.raises(
        InputError, match=r"mine\.toml: \[tracking\] observers: 'planted:Mine' is not a mpifl Observer"
    ):
        loop.train(mine, run, (), True, Alone())
    assert mark(run).exists(), "the user has named it"


def test_a_user_evaluates_with_code_that_they_name(run, capsys):
    write_job(run, "planted:net")
    with pytest.raises(
        InputError, match=r"\[model\] name = 'planted:net': .* by --trust planted:net if you trust it"
    ):
        evaluate_run(run, ["planted:other"])
    assert not mark(run).exists()
    assert commanded("evaluate", run, "--trust", "planted:net") is None
    assert mark(run).exists()


def test_a_module_of_the_run_folder_itself_is_not_imported(run, monkeypatch):
    write_job(run, "planted:net")
    (run / "planted.py").write_text(PLUGIN)
    monkeypatch.chdir(run)
    with pytest.raises(InputError, match="modules would be imported from the run folder itself"):
        evaluate_run(run, ["planted:net"])
    assert not (run / "was run").exists()


def test_modules_where_the_command_runs_do_not_stand_for_pythons_own(run):
    write_job(run)
    for name in ("rich", "typing", "signal"):
        (run / f"{name}.py").write_text(PLUGIN)
    report = subprocess.run(
        [sys.executable, "-m", "mpifl", "report", "."], cwd=run, capture_output=True, text=True
    )
    assert (report.returncode, report.stdout) == (0, "report: report.html\n")
    assert not (run / "was run").exists()


def test_a_run_goes_on_with_the_users_job_alone(run):
    write_job(run, more='[algorithm]\nname = "planted:Mine"')
    table = {"name": "toy", "shards": str(run.parent / "shards"), "rounds": 5, "model": {"name": "logreg"}}
    with pytest.raises(InputError, match=r"is a run of another job, it differs in algorithm\.name"):
        check_run(run, check_job(table, "mine.toml"), resume=True)
    assert not mark(run).exists()
    mine = check_job({**table, "algorithm": {"name": "planted:Mine"}}, "mine.toml")
    assert mark(run).exists()
    assert check_run(run, mine, resume=True) == []
    claim_run(run, mine)
    assert check_run(run, mine, resume=True) == []


def test_a_sweep_runs_no_code_of_what_lies_in_its_folders(run):
    job = run.parent / "mine.toml"
    job.write_text(JOB.format(shards=run.parent / "shards", model="logreg", arguments="", more=""))
    (run / "seed=1").mkdir()
    write_job(run / "seed=1", more='[algorithm]\nname = "planted:Mine"')
    with pytest.raises(InputError, match=r"seed=1: is a run of another job, it differs in algorithm\.name"):
        grid(job, ["seed=1,2"], run)
    assert not mark(run).exists()


def test_a_page_of_a_run_with_the_users_own_code_is_written_without_it(run):
    write_job(run, "planted:net", more='[algorithm]\nname = "planted:Mine"')
    assert "planted:Mine" in write_report(run).read_text()
    assert not mark(run).exists()
