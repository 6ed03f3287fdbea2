"""Starting: the ranks that --ranks starts, signals at any moment,
and run folders that two jobs cannot share."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import launcher, rank_environment
from faults.processes import (
    HERE,
    Command,
    checkpoints,
    lines_of,
    outcome,
    own_lines,
    pid_of,
    rounds_of,
    train,
    tree,
)

TALKS = ["--set", "tracking.console=always"]
TERM, INT, USR1 = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1


def _listens(pid: int) -> bool:
    """Whether a process handles USR1 by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught >> (USR1 - 1) & 1)


def _refused(folder: Path, ranks: int, *arguments: str) -> str:
    """Run a command that is refused; return its one line."""
    with Command(folder, ranks, *arguments) as command:
        assert command.end().code == 2
    (line,) = own_lines(command.err)
    assert command.out == ""
    return line


def test_ranks_starts_its_own_ranks_whatever_a_killed_launcher_left_behind(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    """Open MPI's mpirun names its session by its pid,
    and starts nothing where one of that name was left behind."""
    stale = tmp_path / "mpirun"
    stale.write_text(
        '#!/bin/sh\nmkdir "$TMPDIR/ompi.$$" && touch "$TMPDIR/ompi.$$/pmix.$(hostname).tool"\nexec "$@"\n'
    )
    stale.chmod(0o755)
    arguments = train(yard / "steady.toml", tmp_path / "run", "--ranks", "3", *TALKS)
    with Command(
        tmp_path / "command", 1, *arguments, MPIFL_MPIRUN=shlex.join([str(stale), *launcher()])
    ) as command:
        assert command.end().code == 0, command.err
    assert " on 2 workers (" in command.out
    assert list(json.loads((tmp_path / "run" / "environment.json").read_text())["ranks"]) == ["0", "1", "2"]
    assert outcome(tmp_path / "run") == outcome(untroubled / "whole")
    left = sorted(path.name for path in (tmp_path / "command" / "tmp").iterdir())
    assert all(re.fullmatch(r"ompi\.\d+", name) for name in left)  # the stale one; nothing of our own


def test_one_rank_runs_in_place(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run", "--ranks", "1", *TALKS)
    with Command(tmp_path / "command", 1, *arguments, cold=True) as command:
        assert command.end().code == 0
    assert " on 1 worker (" in command.out
    ranks = json.loads((tmp_path / "run" / "environment.json").read_text())["ranks"]
    assert ranks["0"]["pid"] == str(command.session)
    assert outcome(tmp_path / "run") == outcome(untroubled / "whole")


def test_what_is_wrong_comes_through_the_launcher(yard: Path, tmp_path: Path) -> None:
    arguments = train(yard / "plain.toml", tmp_path / "run", "--set", "local.lr=-1", "--ranks", "2")
    assert "[local] lr = -1: " in _refused(tmp_path / "command", 1, *arguments)
    assert not (tmp_path / "run").exists()


def test_a_mistake_at_all_silos_is_shown_once_for_all_ranks(yard: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Command(
        tmp_path / "command", 3, *train(yard / "steady.toml", run), trouble={"mistake": 2}
    ) as command:
        assert command.end().code == 3
    assert command.err.count("Traceback") == command.err.count("\nKeyError: 'no such layer'") == 1
    (line,) = [line for line in own_lines(command.err) if "round 2 was lost" in line]
    assert line.startswith("error: ")
    assert checkpoints(run) == [1]


@pytest.mark.parametrize("trouble", [pytest.param(None, marks=pytest.mark.slow), {"mistake": 1}])
def test_the_last_line_is_the_commands_own_whatever_the_launcher_says(
    yard: Path, tmp_path: Path, trouble: Any
) -> None:
    wrong = [] if trouble else ["--set", "local.lr=-1"]
    arguments = train(yard / "steady.toml", tmp_path / "run", *wrong, "--ranks", "2")
    with Command(tmp_path / "command", 1, *arguments, trouble=trouble) as command:
        assert command.end().code == (3 if trouble else 2)
    lines = command.err.splitlines()
    assert [line.startswith("error: ") for line in lines] == [False] * (len(lines) - 1) + [True]


def test_ranks_that_disagree_with_the_launcher_are_refused(yard: Path, tmp_path: Path) -> None:
    line = _refused(tmp_path / "command", 2, *train(yard / "plain.toml", tmp_path / "run", "--ranks", "3"))
    assert line.startswith("error: --ranks 3: the launcher has started 2")
    assert not (tmp_path / "run").exists()


def test_a_rank_that_finds_itself_alone_is_refused(
    yard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")  # as srun --mpi=none leaves it
    line = _refused(tmp_path / "command", 1, *train(yard / "plain.toml", tmp_path / "run", "--ranks", "3"))
    assert "promised 3 ranks, but this one is alone" in line


def test_a_world_of_less_than_a_rank_is_refused(yard: Path, tmp_path: Path) -> None:
    with Command(
        tmp_path / "command", 1, *train(yard / "plain.toml", tmp_path / "run", "--ranks", "0")
    ) as command:
        assert command.end().code == 2
    assert "--ranks" in command.err
    assert "Traceback" not in command.err


@pytest.mark.parametrize(
    "number",
    [TERM, *(pytest.param(number, marks=pytest.mark.slow) for number in (INT, USR1))],
    ids=lambda one: one.name,
)
def test_a_signal_to_the_command_ends_its_ranks_with_a_checkpoint(
    yard: Path, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run", "--ranks", "2")
    with Command(tmp_path / "command", 1, *arguments, trouble={"hold": 3}) as command:
        command.reached()
        os.kill(command.session, number)
        assert command.release().end().code == 75
    assert max(checkpoints(tmp_path / "run")) == 3
    assert f"--out {tmp_path / 'run'} --ranks 2 --resume" in command.out


def test_a_signal_that_the_launcher_hands_to_nobody_is_heard_by_ranks_that_come_later(
    yard: Path, tmp_path: Path
) -> None:
    """MPICH 5's drops one that comes before its ranks."""
    late, waits, heard = tmp_path / "mpirun", tmp_path / "waits", tmp_path / "heard"
    deaf = f"trap 'touch {heard}' USR1\ntouch {waits}\nwhile [ ! -e {heard} ]; do sleep 0.01; done\n"
    late.write_text(f'#!/bin/sh\n{deaf}exec "$@"\n')
    late.chmod(0o755)
    arguments = train(yard / "steady.toml", tmp_path / "run", "--ranks", "2")
    starts = shlex.join([str(late), *launcher()])
    with Command(tmp_path / "command", 1, *arguments, MPIFL_MPIRUN=starts) as command:
        command.until(waits.exists, "its launcher")
        os.kill(command.session, TERM)
        assert command.end().code == 75
    assert "stopped by a signal" in command.out + command.err
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_worker_that_is_killed_is_told_as_it_is_whatever_the_launcher_ends_with(
    yard: Path, tmp_path: Path
) -> None:
    """Open MPI's ends with 137, MPICH's with 9. The ranks' shared memory is gone with them."""
    run = tmp_path / "run"
    arguments = train(yard / "steady.toml", run, "--ranks", "2")
    with Command(tmp_path / "command", 1, *arguments, trouble={"hold": 3}) as command:
        command.reached()
        maps = Path(f"/proc/{pid_of(run, 1)}/maps").read_text()
        os.kill(pid_of(run, 1), signal.SIGKILL)
        assert command.release().end().code in (4, 137)
    shared = re.findall(r"/dev/shm/[^/\s]+$", maps, re.MULTILINE)  # a folder may hold shards
    assert not [name for name in shared if Path(name).exists()]
    assert own_lines(command.err)[-1] == (
        f"error: {run}: ranks died, and the training ended with them; continue with --resume"
    )


def test_a_command_that_is_killed_takes_its_ranks_along(yard: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = train(yard / "steady.toml", run, "--ranks", "2", "--set", "rounds=99999")
    with Command(tmp_path / "command", 1, *arguments) as command:
        command.until(lambda: lines_of(run) > 2, "some rounds")
        workers = [pid_of(run, rank) for rank in (0, 1)]
        os.kill(command.session, signal.SIGKILL)
        assert command.end().code == -signal.SIGKILL
        deadline = time.monotonic() + 180
        # MPICH gives them a session of their own
        while any(Path(f"/proc/{pid}").exists() for pid in workers):
            assert time.monotonic() < deadline, "ranks were left behind"
            time.sleep(0.01)


@pytest.mark.parametrize(("number", "ranks"), [pytest.param(TERM, "1", marks=pytest.mark.slow), (USR1, "2")])
def test_a_signal_before_the_training_begins_is_no_accident(
    yard: Path, tmp_path: Path, number: signal.Signals, ranks: str
) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run", "--ranks", ranks)
    with Command(tmp_path / "command", 1, *arguments, cold=True) as command:
        command.until(lambda: _listens(command.session), "its handlers")
        os.kill(command.session, number)
        assert command.end().code == 75
    assert "stopped by a signal" in command.out + command.err
    assert "Traceback" not in command.err
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_run_that_is_going_on_is_not_resumed(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Command(tmp_path / "first", 2, *train(yard / "steady.toml", run), trouble={"hold": 3}) as first:
        first.reached()
        before = tree(run)
        line = _refused(tmp_path / "second", 1, *train(yard / "steady.toml", run, "--resume"))
        assert line.startswith(f"error: {run} is in use by a training with pid ")
        assert tree(run) == before
        assert first.release().end().code == 0
    assert outcome(run) == outcome(untroubled / "whole")


def test_of_two_jobs_that_begin_in_one_folder_one_is_refused(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run")
    with Command(tmp_path / "one", 1, *arguments) as one, Command(tmp_path / "two", 1, *arguments) as two:
        codes = sorted([one.end().code, two.end().code])
    assert codes == [0, 2]
    assert outcome(tmp_path / "run") == outcome(untroubled / "whole")


@pytest.mark.slow
def test_a_killed_job_leaves_no_lock(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Command(tmp_path / "first", 1, *train(yard / "steady.toml", run), trouble={"hold": 3}) as first:
        first.reached().kill()
    with Command(tmp_path / "second", 1, *train(yard / "steady.toml", run, "--resume")) as second:
        assert second.end().code == 0
    assert outcome(run) == outcome(untroubled / "whole")


def test_resuming_nothing_starts_anew_and_says_so(yard: Path, tmp_path: Path) -> None:
    with Command(
        tmp_path / "command", 1, *train(yard / "plain.toml", tmp_path / "typo", "--resume")
    ) as command:
        assert command.end().code == 0
    assert own_lines(command.err) == [f"no run in {tmp_path / 'typo'}: starting from round 1"]


def test_a_forced_change_is_told_and_recorded(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(untroubled / "begun", run)
    arguments = train(yard / "steady.toml", run, "--resume", "--set", "local.lr=0.01")
    line = _refused(tmp_path / "1", 1, *arguments)
    assert "differs in local.lr; " in line
    assert line.endswith("or add --force")
    with Command(tmp_path / "2", 1, *arguments, "--force") as command:
        assert command.end().code == 0
    assert own_lines(command.err) == [f"{run}: continues with local.lr 0.02 -> 0.01"]
    environment = json.loads((run / "environment.json").read_text())
    assert environment["changes"] == ["local.lr 0.02 -> 0.01 after round 3"]
    whole = rounds_of(untroubled / "whole")
    assert rounds_of(run)[:3] == whole[:3]
    assert rounds_of(run)[4:] != whole[4:]


def test_a_read_only_run_folder_is_one_line_and_loses_nothing(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(untroubled / "begun", run)
    before = tree(run)
    plain: list[str] = []  # root's right to write everywhere has to be given up
    if os.geteuid() == 0:
        if not (setpriv := shutil.which("setpriv")):
            pytest.skip("root may write everywhere")
        plain = [
            setpriv,
            "--bounding-set=-dac_override,-dac_read_search",
            "--inh-caps=-dac_override,-dac_read_search",
        ]
    run.chmod(0o500)
    (run / ".lock").chmod(0o400)
    environment = rank_environment()
    environment["PYTHONPATH"] = f"{HERE}{os.pathsep}{environment['PYTHONPATH']}"
    command = [*plain, sys.executable, *train(yard / "steady.toml", run, "--resume")]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    finally:
        run.chmod(0o700)
    assert done.returncode == 2, done.stderr
    assert own_lines(done.stderr) == [
        f"error: {run}: cannot be written (Permission denied); name a folder that can by --out"
    ]
    assert tree(run) == before
