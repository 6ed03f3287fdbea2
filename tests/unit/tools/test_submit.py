"""Batch scripts of `mpifl submit`, as far as they can be judged without a SLURM;
tests/slurm runs them under one."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, python
from unit import builders

from mpifl.cli.slurm import cluster, submit
from mpifl.cli.slurm.batch_script import GOING_ON, JOINING, is_edited
from mpifl.cli.slurm.submit import SlurmOptions, submit_job
from mpifl.common.errors import InputError
from mpifl.training.loop import train as train_here
from mpifl.wings import wings_of

JOB = ROOT / "jobs" / "demo.toml"
SCRIPTS = sorted((ROOT / "jobs" / "slurm").glob("*.sbatch"))


@pytest.fixture
def place(digits, tmp_path, monkeypatch):
    """An empty folder with the demo's shards, and no SLURM in sight."""
    (tmp_path / "shards").symlink_to(digits)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("MPIFL_MPIRUN", raising=False)
    return tmp_path


def script(capsys, *overrides, out="runs/demo", force=False, **wishes):
    submit_job(
        JOB, Path(out), overrides, SlurmOptions(**{"launcher": "srun", **wishes}), dry_run=True, force=force
    )
    return capsys.readouterr().out


def directives(text):
    return dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", text, re.MULTILINE))


def test_a_worker_a_silo_and_the_server(place, capsys):
    text = script(capsys, nodes=2)
    asked = directives(text)
    assert (asked["nodes"], asked["ntasks-per-node"], asked["cpus-per-task"]) == ("2", "3", "1")
    assert asked["signal"] == "B:USR1@120"
    assert {"requeue", "open-mode"} <= set(asked)
    assert not {"time", "partition", "account", "gpus-per-node"} & set(asked), (
        "what is not asked is the site's to say"
    )
    assert "--ntasks=5 " in text
    assert text.endswith(GOING_ON)
    assert subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert list(place.iterdir()) == [place / "shards"], "a dry run writes nothing"


def test_a_worker_a_gpu(place, capsys, monkeypatch):
    assert "--ntasks=3 " in script(capsys, nodes=2, gpus_per_node=1)
    assert "--ntasks=5 " in script(capsys, nodes=2, gpus_per_node=4), "no more workers than silos"
    assert directives(script(capsys, "device=gpu", gpus_per_node=2))["gpus-per-node"] == "2"
    submit_job(JOB, place / "run", ("device=gpu",), SlurmOptions(launcher="srun"), dry_run=True)
    line = "device = 'gpu': no GPU is asked for, so that SLURM may give none; give --gpus-per-node\n"
    assert line in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(place))
    submit_job(JOB, place / "run", (), SlurmOptions(launcher="srun"), dry_run=True)
    assert capsys.readouterr().err == "SLURM does not answer here: it has not looked at this script\n"


def test_what_is_wished_for_stands_there(place, capsys):
    text = script(capsys, "threads=2", ranks=3, time="1-12", partition="gpu", account="me")
    asked = directives(text)
    assert [asked[key] for key in ("time", "partition", "account", "cpus-per-task")] == [
        "1-12",
        "gpu",
        "me",
        "2",
    ]
    assert "--ntasks=3 --cpus-per-task=2" in text
    wishes = {
        "mem": "4G",
        "gres": "gpu:a100:2,mps:100",
        "exclusive": True,
        "qos": None,
        "mail-type": "END,FAIL",
    }
    text = script(capsys, nodes=2, sbatch=wishes, words=("--comment=of two words", "--contiguous"))
    asked = directives(text)
    assert "qos" not in asked
    assert [asked[key] for key in ("mem", "gres", "exclusive", "mail-type", "contiguous")] == [
        *("4G", "gpu:a100:2,mps:100", "", "END,FAIL", ""),
    ]
    assert asked["comment"] == '"of two words"'
    assert "--ntasks=5 " in text, "a worker for each of four GPUs, and the server"
    assert not is_edited(text.encode())
    assert is_edited(text.replace("4G", "8G").encode())
    assert is_edited(text.replace("# srun would", "module load openmpi\n# srun would").encode())
    assert is_edited(b"#!/bin/bash\n")
    text = script(capsys, "tracking.console=true")
    assert "--set tracking.console=true --set tracking.console=always" in text, (
        "for a log, where no terminal is"
    )


def test_names_with_spaces_and_percents_survive_the_shell_and_sbatch(place, capsys):
    text = script(capsys, out="my runs/50% off")
    assert directives(text)["output"] == '"my runs/50%% off.log"'
    assert train_of(text)[-2:] == ["--out", "my runs/50% off"]
    assert train_of(text)[0] == sys.executable


def train_of(text, **environment):
    """Return the command that a script starts its ranks with."""
    show = text[: -len(GOING_ON)] + '\nprintf "%s\\n" "${train[@]}"'
    return subprocess.run(
        ["/bin/bash", "-c", show], capture_output=True, text=True, env=environment
    ).stdout.splitlines()


def test_a_sweep_is_an_array_of_the_runs_that_are_not_done(place, capsys):
    given = ("local.lr=0.1,0.3", "seed=1,2", "rounds=1")
    text = script(capsys, *given, out="runs/50% off", sweep=True, at_once=3)
    asked = directives(text)
    assert (asked["array"], asked["output"]) == ("0,1,2,3%3", '"runs/50%% off.%a.log"')
    assert text.endswith(GOING_ON)
    train = train_of(text, SLURM_ARRAY_TASK_ID="1")
    words = ["--set", "local.lr=0.1", "--set", "seed=2", "--set", "rounds=1"]
    run = "runs/50% off/local.lr=0.1,seed=2"
    assert train[1:] == ["-m", "mpifl", "train", str(JOB), *words, "--out", run]
    train_here(JOB, place / run, tuple(words[1::2]), False, builders.Alone(), wings_of=wings_of)
    left = script(capsys, *given, out="runs/50% off", sweep=True)
    assert directives(left)["array"] == "0,2,3"
    more = script(
        capsys, *given[1:], out="runs/50% off", sweep=True, settings=("local.lr=0.1", "local.lr=0.3")
    )
    assert directives(more)["array"] == "0,2,3"
    with pytest.raises(
        InputError, match=r"^--setting 'seed=3': is for runs of a sweep; give --sweep, or leave"
    ):
        script(capsys, settings=("seed=3",))
    with pytest.raises(InputError, match=r"seed=2: holds a run already \(metrics.jsonl\), and runs are to"):
        script(capsys, "seed=1,2", out=run, sweep=True)
    (place / "runs/one").mkdir()
    (place / run).rename(place / "runs/one/demo")
    with pytest.raises(
        InputError, match=r"^runs/one: all 1 runs are done; look at them by mpifl compare runs"
    ):
        script(capsys, "local.lr=0.1", "seed=2", "rounds=1", out="runs/one", sweep=True)
    with pytest.raises(InputError, match="--at-once 3: is for runs of a sweep; give --sweep, or leave"):
        script(capsys, at_once=3)
    with pytest.raises(InputError, match=r"^--sweep: no key has several values; give them, such as"):
        script(capsys, "local.lr=0.1", out="runs/other", sweep=True)


@pytest.mark.parametrize("out", [".", "..", "runs/.."])
def test_a_run_folder_is_any_folder(place, capsys, out):
    wanted = (place / out).resolve()
    log = Path(directives(script(capsys, out=out))["output"])
    assert (log.name, (place / log).resolve().parent) == (f"{wanted.name}.log", wanted.parent)


ITSELF = "itself; give its own option before --, or edit the script"
WORDS = {
    "-C": "-C, after --: give an option of sbatch in full, such as --comment=text",
    "stray": "stray, after --: give an option of sbatch in full",
    "--=x": "--=x, after --: give an option of sbatch in full",
    "--signal=USR2": f"--signal=USR2, after --: mpifl submit writes --signal {ITSELF}",
    "--partition=gpu": f"--partition=gpu, after --: mpifl submit writes --partition {ITSELF}",
    "--test-only": f"--test-only, after --: mpifl submit writes --test-only {ITSELF}",
    '--comment="': "sbatch cannot read this from a script",
}


@pytest.mark.parametrize(
    ("overrides", "wishes", "line"),
    [
        ((), {"nodes": 9}, "--nodes 9: some would have none of 5 ranks; ask for 5 at most"),
        (
            ("threads=4",),
            {"cpus_per_task": 2},
            "--cpus-per-task 2: fewer than the job's threads = 4",
        ),
        (("model.depth=4",), {}, f"{JOB}: [model] has no key 'depth'; mlp takes"),
        (("model.name=nowhere:net",), {}, f"{JOB}: [model] name = 'nowhere:net': No module named 'nowhere'"),
        (("rounds=0",), {}, f"{JOB}: rounds = 0: should be greater than 0"),
        ((), {"partition": 'x"y'}, "sbatch cannot read this from a script"),
        ((), {"launcher": "ssh"}, "--launcher ssh: give auto, srun or mpirun"),
        *(((), {"words": (word,)}, line) for word, line in WORDS.items()),
        ((), {"sbatch": {"mem": "2GiB"}}, "--mem 2GiB: sbatch takes a whole number with K, M, G or T"),
        ((), {"time": "1h"}, "--time 1h: sbatch does not take that; write minutes, H:MM:SS or D-HH"),
        (("model.hidden=16",), {}, "hidden = 16: must be a list of widths, such as [16]"),
        ((), {"time": "0:180"}, "--time 0:180: SLURM signals a job up to 180 s before its end, to save"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(place, capsys, overrides, wishes, line):
    with pytest.raises(InputError, match=re.escape(line)):
        script(capsys, *overrides, **wishes)
    assert list(place.iterdir()) == [place / "shards"]


def test_a_shard_that_is_not_here_is_told_unless_compute_nodes_have_it(place, digits, capsys):
    (place / "shards").unlink()
    shutil.copytree(digits, place / "shards")
    next((place / "shards" / "digits").glob("silo_*2.h5")).unlink()
    with pytest.raises(InputError, match=r"is missing; federation.json names it.* give --shards-elsewhere"):
        script(capsys)
    assert "--ntasks=5 " in script(capsys, elsewhere=True)


def test_without_slurm_it_says_so(place):
    with pytest.raises(InputError, match=r"^sbatch: not on the PATH"):
        submit_job(JOB, Path("runs/demo"), (), SlurmOptions(launcher="srun"), dry_run=False)
    assert not (place / "runs").exists()


def test_a_run_of_another_job_is_refused(place, capsys):
    command = [*python(), "-m", "mpifl", "train", str(JOB), "--out", "runs/demo", "--set", "rounds=1"]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=180
    )
    assert script(capsys)
    done = "runs/demo: is done; look at it by mpifl report runs/demo, or give more rounds, such as --set"
    with pytest.raises(InputError, match=re.escape(done)):
        script(capsys, "rounds=1")
    with pytest.raises(InputError, match=re.escape("runs/demo: is a run of another job, it differs in seed")):
        script(capsys, "seed=8")
    with pytest.raises(InputError, match=re.escape("differs in local.lr; ")):
        script(capsys, "local.lr=0.05")
    text = script(capsys, "local.lr=0.05", force=True)
    assert train_of(text)[-1] == "--force"
    assert train_of(text, SLURM_RESTART_COUNT="1") == [word for word in train_of(text) if word != "--force"]


@pytest.mark.parametrize(("writes", "code"), [("job.toml", 1), ("job.toml model.safetensors", 0)])
def test_a_model_of_an_earlier_end_is_no_success(tmp_path, writes, code):
    (tmp_path / "model.safetensors").touch()
    start = f"for file in {writes}; do sleep 0.02; touch {tmp_path}/$file; done"
    text = f"run={tmp_path}\nstart=(bash -c)\ntrain=({shlex.quote(start)})\n{GOING_ON}"
    done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (code, "")
    assert ("not queued again" in done.stdout) == bool(code)
    starts = [path.name for path in tmp_path.parent.glob(".*.starts")]
    assert (f".{tmp_path.name}.starts" in starts) == bool(code), "after a good end no start is counted"


def test_a_checkpoint_that_was_set_aside_is_none_that_a_start_has_brought(tmp_path):
    """It stays there: compared with it, no start would bring more."""
    for name in ("round_000020", "unread_000022"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    start = f"mkdir {tmp_path}/checkpoints/round_000024; exit 75"
    text = f"scontrol() {{ :; }}\nrun={tmp_path}\nstart=(bash -c)\ntrain=({shlex.quote(start)})\n{GOING_ON}"
    done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (
        75,
        "exit code 75 after round_000024: queued again\n",
        "",
    )


def test_the_sixth_start_at_one_checkpoint_ends_at_once(tmp_path):
    """As after nodes that fail: SLURM queues such a job again without asking the script."""
    run = tmp_path / "runs" / "one"
    text = f"run={run}\nstart=(bash -c)\ntrain=('kill -9 $PPID')\n{GOING_ON}"

    def start(count: int | None) -> str:
        restarts = {} if count is None else {"SLURM_RESTART_COUNT": str(count)}
        environment = {"PATH": os.environ["PATH"], **restarts}
        done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, env=environment, timeout=180)
        assert done.returncode == (1 if done.stdout else -9)
        return done.stdout.decode()

    said = "5 starts without a checkpoint more than {}: not started again, see above how they end\n"
    assert [start(count) for count in (None, 1, 2, 3, 4, 5)] == [""] * 5 + [said.format("none")]
    (run / "checkpoints/round_000002").mkdir(parents=True)
    assert [start(count) for count in range(6, 12)] == [""] * 5 + [said.format("round_000002")]
    assert start(None) == "", "it was submitted anew"


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        *(("30", 1800), ("2:30", 150), ("1:00:30", 3630), ("1-2", 93600), ("1-2:03", 93780)),
        *(("1-02:03:04", 93784), ("infinite", math.inf), ("UNLIMITED", math.inf), ("0", math.inf)),
    ],
)
def test_a_limit_of_time_is_read_as_sbatch_does(time, wanted):
    assert cluster.seconds(time) == wanted


def test_a_partition_of_unlike_nodes_lacks_what_too_few_have():
    """GPUs of one kind and sockets, as `sinfo` writes them."""
    assert sum(map(int, cluster.GPUS.findall("gpu:a100:4(S:0-1),gpu:2,mps:100"))) == 6
    mixed = cluster.Partition("mixed", [(4, 0), (4, 0), (8, 4)], "1-00:00:00", default=True)
    assert mixed.lacks(1, 8, 1, 4, "1-0") == ""
    assert mixed.lacks(2, 2, 2, 0, None) == ""
    assert mixed.lacks(2, 3, 2, 0, None) == "2 nodes with 3 ranks of 2 CPUs each"
    assert mixed.lacks(2, 1, 1, 1, None) == "--gpus-per-node 1"
    assert mixed.lacks(1, 1, 1, 1, "1-0:01") == "--time 1-0:01"
    kinds = "2 nodes of 4 CPUs and no GPUs and 1 node of 8 CPUs and 4 GPUs"
    assert str(mixed) == f"partition mixed has {kinds}, for 1-00:00:00 at most"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_ready_scripts_end_as_the_submitted_ones_do(path):
    text = path.read_text()
    assert text.endswith(GOING_ON)
    asked = directives(text)
    assert asked["signal"] == "B:USR1@120"
    assert {"requeue", "open-mode"} <= set(asked)


def test_there_are_ready_scripts():
    assert [path.stem for path in SCRIPTS] == ["array", "cpu", "gpu", "hetjob"]


INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260101"


def test_intels_mpirun_is_a_script_that_hands_no_signal_on(tmp_path, monkeypatch):
    """What it starts takes its place, told of SLURM as the script tells it."""
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\necho '{INTEL}'\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("MPIFL_MPIRUN", raising=False)
    wishes = SlurmOptions(nodes=2, launcher="mpirun")
    with pytest.raises(InputError, match=r"hands no signal on; put its mpiexec\.hydra on the PATH"):
        submit.launcher_of(wishes, 5, 1)
    hydra = tmp_path / "mpiexec.hydra"
    hydra.symlink_to("mpirun")
    start = ["env", "I_MPI_HYDRA_BOOTSTRAP=slurm", str(hydra), "-n", "5", "-ppn", "3"]
    assert submit.launcher_of(wishes, 5, 1) == start


def test_the_launcher_of_a_script_is_the_one_that_is_named(tmp_path, monkeypatch):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    mpirun.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("MPIFL_MPIRUN", raising=False)
    wishes = SlurmOptions(launcher="mpirun")
    with pytest.raises(
        InputError, match="no mpirun on the PATH; load your site's MPI, name one by MPIFL_MPIRUN"
    ):
        submit.launcher_of(wishes, 5, 1)
    monkeypatch.setenv("MPIFL_MPIRUN", f"{mpirun} --bind-to core")
    start = [str(mpirun), "--bind-to", "core", "-n", "5", "--map-by", "node"]
    assert submit.launcher_of(wishes, 5, 1) == start
    (tmp_path / "srun").symlink_to("mpirun")
    monkeypatch.setenv("MPIFL_MPIRUN", f"{tmp_path}/srun --mpi=pmi2")
    start = [f"{tmp_path}/srun", "--mpi=pmi2", "--ntasks=5", "--cpus-per-task=1", "--distribution=cyclic"]
    assert submit.launcher_of(SlurmOptions(), 5, 1) == start
    monkeypatch.setenv("MPIFL_MPIRUN", str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"MPIFL_MPIRUN=.*nothing: there is no such program"):
        submit.launcher_of(wishes, 5, 1)


@pytest.mark.parametrize(
    ("does", "code", "said", "counted"),
    [
        ("exit 75", 75, "exit code 75, letters answered: 1; queued again\nrequeue 7\n", False),
        (
            "echo $line >>journal; exit 9",
            9,
            "exit code 9, letters answered: 2; queued again\nrequeue 7\n",
            True,
        ),
        ("exit 9", 9, "exit code 9 without a letter more than 1: not queued again\n", True),
        ("exit 0", 0, "", False),
        ("exit 2", 2, "", False),
        (
            "trap : USR1; kill -USR1 $PPID; sleep 0.3; exit 75",
            75,
            "exit code 75, letters answered: 1; queued again\nrequeue 7\n",
            False,
        ),
    ],
)
def test_a_site_that_joins_is_queued_again_while_it_answers_or_waits(tmp_path, does, code, said, counted):
    line = '\'{"life":"a","event":"answered","n":3}\''
    (tmp_path / "journal").write_text(f"{line[1:-1]}\n")
    begin = 'scontrol() { echo "$@"; }\nSLURM_JOB_ID=7 journal=journal starts=starts start=(bash -c)\n'
    text = f"{begin}join=({shlex.quote(f'line={line}; {does}')})\n{JOINING}"
    done = subprocess.run(
        ["/bin/bash", "-c", text], capture_output=True, text=True, timeout=180, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
    assert (tmp_path / "starts").exists() is counted
    text = text.replace(f"join=({shlex.quote(f'line={line}; {does}')})", "join=('exit 9')")
    (tmp_path / "starts").write_text("after 1\n" * 5 + "after 2\n" * 5)
    begun = {"PATH": os.environ["PATH"], "SLURM_RESTART_COUNT": "6"}
    done = subprocess.run(["/bin/bash", "-c", text], capture_output=True, text=True, cwd=tmp_path, env=begun)
    assert done.returncode == 1
    assert "5 starts without a letter more than" in done.stdout
