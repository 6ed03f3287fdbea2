"""A grid of settings: its tasks, their names and states; and its runs,
one after another, stopped and gone on with."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner
from unit.builders import write_folder

from mpifl.cli import app, main
from mpifl.cli.sweep import running
from mpifl.cli.sweep.running import command, list_tasks
from mpifl.cli.sweep.settings_grid import grid, split
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import read_federation
from mpifl.run.folder.environment import note_lost, why_lost, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run, describe

pytestmark = pytest.mark.usefixtures("warm_python")
JOB = """
name = "toy"
shards = "{shards}"
rounds = {rounds}
[model]
name = "logreg"
[local]
lr = 0.1
[checkpoint]
every = 1
[tracking]
console = false
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "shards", [8, 9], test=20)
    path = tmp_path / "toy.toml"
    path.write_text(JOB.format(shards=tmp_path / "shards", rounds=2))
    return path


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2", ["1", "2"]),
        ("[1,2]", ["[1,2]"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("[[1,2],[3]],4", ["[[1,2],[3]]", "4"]),
        ("{a=1,b=2},{a=2}", ["{a=1,b=2}", "{a=2}"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("'[,',2", ["'[,'", "2"]),
        ("", [""]),
        ("1,,2", ["1", "", "2"]),
    ],
)
def test_values_are_split_at_commas_that_belong_to_none(text, values):
    assert split(text) == values


def test_a_grid_has_a_task_for_every_combination(job, tmp_path):
    tasks = grid(job, ["local.lr=0.1, 0.2", "seed=1,2,3", "rounds=5"], tmp_path / "out")
    assert [task.number for task in tasks] == list(range(6))
    assert [task.name for task in tasks][:4] == [
        "local.lr=0.1,seed=1", "local.lr=0.1,seed=2", "local.lr=0.1,seed=3", "local.lr=0.2,seed=1",
    ]  # fmt: skip
    assert tasks[3].settings == ("local.lr=0.2", "seed=1", "rounds=5")
    assert (tasks[3].job.local.lr, tasks[3].job.seed, tasks[3].job.rounds) == (0.2, 1, 5)
    assert list_tasks(tasks[:1]) == f"0\tnew\t{tmp_path}/out/local.lr=0.1,seed=1\n"
    assert not (tmp_path / "out").exists()


def test_lists_and_strings_make_names_of_folders(job, tmp_path):
    job.write_text(job.read_text().replace('"logreg"', '"mlp"'))
    tasks = grid(job, ["model.hidden=[8],[8,8]", 'algorithm.name=fedavg,"fedsgd"'], tmp_path)
    assert [task.name for task in tasks] == [
        "model.hidden=_8_,algorithm.name=fedavg", "model.hidden=_8_,algorithm.name=fedsgd",
        "model.hidden=_8,8_,algorithm.name=fedavg", "model.hidden=_8,8_,algorithm.name=fedsgd",
    ]  # fmt: skip
    assert [task.job.model.arguments["hidden"] for task in tasks] == [[8], [8], [8, 8], [8, 8]]
    assert [task.name for task in grid(job, ["rounds=1"], tmp_path)] == ["toy"]


def test_values_that_go_together_are_one_setting(job, tmp_path):
    settings = [
        "algorithm.name=fedavg  server_optimizer.name=adam server_optimizer.lr=0.03",
        """algorithm={name="fedprox", mu=0.1}""",
    ]
    tasks = grid(job, ["seed=1,2", "rounds=5"], tmp_path, settings)
    assert [task.name for task in tasks] == [
        f"{name},seed={seed}"
        for name in (
            "algorithm.name=fedavg,server_optimizer.name=adam,server_optimizer.lr=0.03",
            "algorithm=_name=fedprox,_mu=0.1_",
        )
        for seed in (1, 2)
    ]
    assert tasks[1].settings == (*settings[0].split(), "seed=2", "rounds=5")
    assert [task.job.server_optimizer["name"] for task in tasks] == ["adam", "adam", "sgd", "sgd"]
    assert [task.job.algorithm["name"] for task in tasks[1:3]] == ["fedavg", "fedprox"]


WRONG = {
    "no value": (["seed"], "--set seed: give it as key=value,value"),
    "empty value": (["seed=1,,2"], "--set seed=1,,2: give it as"),
    "twice": (["seed=1,1"], "1 is given twice"),
    "two keys": (["seed=1", "seed=2"], "--set seed: given twice"),
    "a key of one algorithm": (
        ["algorithm.name=fedavg,scaffold,fedprox", "algorithm.mu=0.1"],
        """; use --set 'algorithm={name="fedavg"},{name="scaffold"},{name="fedprox",mu=0.1}'""",
    ),
    "bad key": (["local.sed=1"], "has no key 'sed'"),
    "bad value": (
        ["seed=1,x", "rounds=5,6"],
        'seed = "x": should be a valid integer; 2 of 4 settings would do, those without seed=x',
    ),
    "bad together": (
        ["compression.upload=none,topk", "compression.share=0.1,2", "rounds=5"],
        "; 1 of 4 settings would do, as compression.upload=topk compression.share=0.1 rounds=5",
    ),
    "one name": (['model.a="x/y","x_y"'], "share the name"),
    "no metrics": (["tracking.jsonl=true,false"], "jsonl = false"),
    "one job": (["local.lr=0.1,0.10"], "local.lr=0.1 and local.lr=0.10 are the same job; leave one out"),
    "steps and epochs": (["local.epochs=1,5", "local.steps=10"], "takes epochs or steps, not both"),
    "long name": ([f"shards=a,{'b' * 260}"], "is longer than 255 bytes"),
}


WRONG_TOGETHER = [
    (["seed=1"], ["seed=1 local.lr=0.1"], "--set seed: given twice"),
    ([], ["seed=1,2"], "--setting 'seed=1,2': give each key once, with one value"),
    ([], ["seed=1 seed=2"], "--setting 'seed=1 seed=2': give each key once"),
    ([], ["seed"], "--setting 'seed': give each key once"),
    ([], [" "], "--setting ' ': give each key once"),
]


@pytest.mark.parametrize(
    ("given", "settings", "said"),
    [*((given, [], said) for given, said in WRONG.values()), *WRONG_TOGETHER],
)
def test_a_grid_that_makes_no_sense_is_refused_before_anything_runs(job, tmp_path, given, settings, said):
    with pytest.raises(InputError) as refused:
        grid(job, given, tmp_path / "out", settings)
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()


def sweep(*words):
    """Run the command in this process, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mpifl", "sweep", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
    return stop.value.code


def test_settings_of_a_private_sweep_share_the_ledger_of_a_site(job, monkeypatch, capfd):
    job.write_text(job.read_text() + "\n[privacy]\nclip = 1.0\nnoise = 5.0\ndelta = 0.01\n")
    monkeypatch.setattr(running, "run_all", lambda *_: 0)
    line = (
        "[privacy] settings share the ledger of each site, and spend of one budget in the order of their runs"
    )
    for seeds in ("1", "1,2"):
        assert sweep(job, "--set", f"seed={seeds}", "--out", f"sw{len(seeds)}") == 0
        assert (line in capfd.readouterr().err) is (seeds == "1,2")


def test_a_sweep_runs_what_is_not_done_and_compares(job, tmp_path, capfd):
    words = [job, "--set", "local.lr=0.1,0.2", "--set", "seed=1,2", "--out", "sw"]
    assert sweep(*words, "--task", 3) == 0
    assert [path.name for path in (tmp_path / "sw").iterdir()] == ["local.lr=0.2,seed=2"], "and no page"
    before = (tmp_path / "sw" / "local.lr=0.2,seed=2" / "metrics.jsonl").read_bytes()
    capfd.readouterr()
    assert sweep(*words, "--list") == 0
    assert [line.split("\t")[1] for line in capfd.readouterr().out.splitlines()] == [
        "new",
        "new",
        "new",
        "done",
    ]
    assert sweep(*words) == 0
    printed = capfd.readouterr().out
    assert "[4/4] local.lr=0.2,seed=2 done before" in printed
    assert (tmp_path / "sw" / "local.lr=0.2,seed=2" / "metrics.jsonl").read_bytes() == before
    assert "mean ± deviation over seeds" in printed
    assert "local.lr = 0.2" in printed
    means = [line.split("│")[1].strip() for line in printed.splitlines() if " ± " in line and "│" in line]
    assert {*means} == {"lr 0.1", "lr 0.2"}, "one name in all tables"
    assert printed.count("Figures: accuracy on the server's test set") == 1
    assert sweep(*words, "--list") == 0
    assert {line.split("\t")[1] for line in capfd.readouterr().out.splitlines()} == {"done"}
    (tmp_path / "sw" / "sweep.html").unlink()
    assert sweep(*words, "--task", 0) == 0
    assert "4 runs" in (tmp_path / "sw" / "sweep.html").read_text(), "by the last task of an array"
    capfd.readouterr()
    assert sweep(*words, "--set", "rounds=3", "--list") == 0  # more rounds are a run to continue with
    assert {line.split("\t")[1] for line in capfd.readouterr().out.splitlines()} == {"cut"}
    assert sweep(*words, "--set", "threads=2", "--list") == 2
    assert "is a run of another job, it differs in threads" in capfd.readouterr().err
    assert sweep(*words, "--task", 4) == 2
    assert "there are the tasks 0 to 3" in capfd.readouterr().err


def finish(task, rounds=2, accuracy=0.5, data=None, changes=()):
    """Leave a run in a task's folder as if it had been trained."""
    claim_run(task.run, task.job)
    records = [{"round": round, "test_accuracy": accuracy, "seconds": 1.0} for round in range(1, rounds + 1)]
    (task.run / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    write_environment(task.run, list(changes), **({"data": data} if data else {}))
    (task.run / "model.safetensors").write_bytes(b"")


def test_a_run_on_other_shards_or_of_other_settings_on_the_way_is_not_taken_for_done(job, tmp_path, capfd):
    words = [job, "--set", "seed=1,2", "--out", "sw"]
    tasks = grid(job, ["seed=1,2"], tmp_path / "sw")
    data = describe(read_federation(tmp_path / "shards"))
    for task in tasks:
        finish(task, data=data)
    assert sweep(*words) == 0
    assert "seed=2 done before" in capfd.readouterr().out
    write_environment(tasks[1].run, ["local.lr 0.1 -> 0.5 after round 1"], data=data)
    assert sweep(*words) == 2
    changed = "was changed on the way by --force: local.lr 0.1 -> 0.5 after round 1"
    assert capfd.readouterr().err == f"error: sw/seed=2: {changed}; name another folder by --out\n"
    write_folder(tmp_path / "shards", [9, 8], test=20)
    assert sweep(*words) == 2
    other = f"was started on other shards than those at {tmp_path}/shards now"
    assert capfd.readouterr().err == f"error: sw/seed=1: {other}; name another folder by --out\n"
    assert sweep(job, "--set", "seed=1,2", "--out", "sw/seed=1") == 2
    within = "holds a run already (metrics.jsonl), and runs are to lie in folders below it"
    assert capfd.readouterr().err == f"error: sw/seed=1: {within}; name another folder by --out\n"
    assert sweep(job, "--out", "sw") == 2
    assert "give --set" in capfd.readouterr().err
    shutil.rmtree(tmp_path / "shards")
    write_environment(tasks[0].run, data=data)
    shutil.rmtree(tasks[1].run)
    assert sweep(*words, "--task", "0") == 0  # what is done needs no shards
    assert sweep(*words) == 2
    assert "shards/federation.json: is not there" in capfd.readouterr().err


def test_figures_are_those_that_the_sweep_asks_for(job, tmp_path, capfd):
    words = [job, "--set", "seed=1,2", "--out", "sw"]
    for task in grid(job, ["seed=1,2,3", "evaluate.target_accuracy=0.9"], tmp_path / "sw"):
        finish(task)
    assert sweep(*words, "--set", "evaluate.target_accuracy=0.4") == 0
    printed = capfd.readouterr().out
    assert "3 runs" in (tmp_path / "sw" / "sweep.html").read_text(), "the page is of all in the folder"
    assert "to 40%" in printed
    assert "to 90%" not in printed
    assert sweep(*words, "--set", "rounds=1", "--list") == 2
    said = capfd.readouterr().err
    assert (
        said == "error: sw/seed=1: has done 2 rounds, more than the 1 that are asked for; "
        "name another folder by --out\n"
    )


def test_a_run_that_could_not_start_is_told_before_any_does(job, tmp_path, capfd):
    for given, said in (
        ("model.hidden=[4],[]", f"{job} --set model.hidden=[4]: [model] has no key 'hidden'; logreg takes"),
        (
            "model.name=logreg,x:net",
            f"{job} --set model.name=x:net: [model] name = 'x:net': No module named 'x'",
        ),
        (
            "algorithm.name=fedavg,feddf",
            f"{job} --set algorithm.name=feddf: [algorithm] name = 'feddf': the shards",
        ),
        (f"shards={tmp_path}/shards,nowhere", "nowhere/federation.json: is not there"),
    ):
        assert sweep(job, "--set", given, "--out", "sw") == 2
        assert capfd.readouterr().err.startswith(f"error: {said}")
    assert not (tmp_path / "sw").exists()


def test_a_folder_that_cannot_be_made_is_one_line(job, tmp_path, capfd):
    (tmp_path / "file").write_text("in the way")
    assert sweep(job, "--set", "seed=1,2", "--out", "file/sw") == 2
    said = capfd.readouterr().err
    assert (
        said
        == "error: file/sw/seed=1: cannot be written (Not a directory); name a folder that can by --out\n"
    )


DIVERGES = ["--set", "rounds=3", "--set", "local.weight_decay=1.0"]
"""With lr = 1e30 each step multiplies the parameters by as much."""


def test_a_run_that_was_lost_takes_no_other_along_and_is_run_again_only_if_asked(job, tmp_path, capfd):
    words = [job, "--set", "local.lr=1e30,0.1", *DIVERGES, "--out", "sw"]
    assert sweep(*words) == 3
    assert "ended with exit code 3, sw/local.lr=1e30/log.txt says: error: round" in capfd.readouterr().out
    assert (tmp_path / "sw" / "local.lr=0.1" / "model.safetensors").exists()
    log = tmp_path / "sw" / "local.lr=1e30" / "log.txt"
    before = log.read_bytes()
    assert sweep(*words, "--list") == 0
    assert [line.split("\t")[1] for line in capfd.readouterr().out.splitlines()] == ["lost", "done"]
    assert sweep(*words) == 3
    printed = capfd.readouterr().out
    assert "[1/2] local.lr=1e30 lost before: round" in printed
    assert "give --retry" in printed
    assert "sw/local.lr=1e30: round" in printed  # below the table
    assert sweep(*words, "--task", 0) == 3
    assert log.read_bytes() == before
    assert sweep(*words, "--task", 0, "--retry") == 3
    again = log.read_bytes()
    assert again.startswith(before)
    assert len(again) > len(before)


def test_a_run_that_was_lost_is_so_no_more_when_it_went_on(job, tmp_path, capfd):
    words = [job, "--set", "seed=1", "--out", "sw"]
    assert sweep(*words) == 0
    run = tmp_path / "sw" / "toy"
    # as a rank that was late for it would make it be
    note_lost(run, "round 3 was lost: 1 of 2 silos answered")
    more = [*words, "--set", "rounds=3"]
    capfd.readouterr()
    assert sweep(*more, "--list") == 0
    assert capfd.readouterr().out.split("\t")[1] == "lost"
    assert sweep(*more) == 3
    assert why_lost(run) == "round 3 was lost: 1 of 2 silos answered"
    assert sweep(*more, "--retry") == 0
    assert why_lost(run) is None
    capfd.readouterr()
    assert sweep(*more, "--list") == 0
    assert capfd.readouterr().out.split("\t")[1] == "done"


def test_a_dry_run_shows_commands_that_work(job, tmp_path, capfd):
    assert sweep(job, "--set", "seed=1,2", "--out", "sw", "--dry-run") == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    assert not (tmp_path / "sw").exists()
    subprocess.run(lines[1], shell=True, check=True, timeout=180, capture_output=True)
    assert (tmp_path / "sw" / "seed=2" / "model.safetensors").exists()


def test_a_run_starts_its_own_ranks(job, tmp_path):
    (task,) = grid(job, ["seed=1"], tmp_path)
    assert command(task, job, 3) == [*command(task, job, 1), "--ranks", "3"]
    assert command(task, job, 1)[:4] == [sys.executable, "-m", "mpifl", "train"]


def test_nothing_runs_where_nothing_starts_ranks(job, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MPIFL_MPIRUN", "mpirun 'unclosed")
    assert sweep(job, "--set", "seed=1,2", "--out", "sw", "--ranks", "2") == 2
    assert capfd.readouterr().err.startswith("error: MPIFL_MPIRUN=mpirun 'unclosed: No closing quotation")
    launcher = tmp_path / "starts-nothing"
    launcher.write_text(
        "#!/bin/sh\nprintf -- '-----\\nNot enough slots\\nfor 2 ranks.\\n-----\\n' >&2\nexit 1\n"
    )
    launcher.chmod(0o755)
    monkeypatch.setenv("MPIFL_MPIRUN", str(launcher))
    assert sweep(job, "--set", "seed=1,2", "--out", "sw", "--ranks", "2") == 2
    said = f"{launcher} starts no processes: Not enough slots for 2 ranks."
    assert capfd.readouterr().err == f"error: --ranks 2: {said}\n"
    assert not (tmp_path / "sw").exists()
    done = CliRunner().invoke(app, ["check", str(job)])
    assert f"warning: {said}\n" in done.stderr
    assert done.exit_code == 0


def test_a_run_that_a_signal_killed_ends_with_a_shells_code(job, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "executable", f"{sys.prefix}/bin/python")  # whose code is not another's word
    (tmp_path / "killed.py").write_text(
        "import os\n"
        "from mpifl import Observer\n"
        "class Killed(Observer):\n"
        "    def round(self, record):\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    with job.open("a") as file:
        file.write('observers = ["killed:Killed"]\n')
    assert sweep(job, "--out", "sw", "--set", "seed=1") == 137
    assert "ended with exit code 137" in capfd.readouterr().out


@pytest.mark.slow
def test_a_sweep_that_is_stopped_goes_on_with_the_same_bits(job, tmp_path):
    job.write_text(JOB.format(shards=tmp_path / "shards", rounds=3000).replace("every = 1", "every = 1000"))
    start = [sys.executable, "-m", "mpifl", "sweep", str(job), "--set", "seed=1,2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    stopped = subprocess.Popen(
        [*start, "--out", "sw"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    )
    metrics, deadline = tmp_path / "sw" / "seed=1" / "metrics.jsonl", time.monotonic() + 180
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(180) == 75
    done = len(metrics.read_text().splitlines())
    assert 0 < done < 3000
    assert not (tmp_path / "sw" / "seed=2").exists()
    for out in ("sw", "whole"):
        words = [*start, "--set", f"rounds={done + 5}", "--out", out, "--task", "0"]
        subprocess.run(
            words, cwd=tmp_path, env=environment, check=True, timeout=180, stdout=subprocess.DEVNULL
        )
    one, other = (tmp_path / out / "seed=1" for out in ("sw", "whole"))
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    abouts = [json.loads((run / "environment.json").read_text()) for run in (one, other)]
    assert [about["resumed_after_round"] for about in abouts] == [done, 0]
