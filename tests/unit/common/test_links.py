"""What lies in a run folder before a run takes it:
links are not written through, and what is others' stays."""

import contextlib
import os

import pytest

from mpifl.cli.sweep.running import run_task
from mpifl.cli.sweep.settings_grid import GridRun
from mpifl.common import lock
from mpifl.common.errors import InputError, Unwritable
from mpifl.common.files import write_atomic
from mpifl.report.observers.jsonlines import JsonLines
from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.environment import note_lost, write_environment
from mpifl.run.folder.metrics_file import trim_metrics
from mpifl.run.folder.run_folder import claim_run
from mpifl.run.job.job import check_job

JOB = check_job({"name": "toy", "shards": "s", "rounds": 3, "model": {"name": "2nn"}}, "toy.toml")
KEPT = b'{"pid": 1}'


@pytest.fixture
def victim(tmp_path):
    """A file elsewhere, and an empty run folder."""
    (tmp_path / "victim").write_bytes(KEPT)
    (tmp_path / "run").mkdir()
    return tmp_path / "victim"


def hold(run):
    with lock.hold(run):
        pass


WRITERS = {
    ".lock": hold,
    "job.toml": lambda run: claim_run(run, JOB),
    ".job.toml.PID.partial": lambda run: claim_run(run, JOB),
    "environment.json": write_environment,
    ".environment.json.PID.partial": lambda run: note_lost(run, "why"),
    "metrics.jsonl": lambda run: JsonLines(run).round({"round": 1}),
    ".metrics.jsonl.PID.partial": lambda run: trim_metrics(run, 3),
    "model.safetensors": lambda run: serialization.write_tensors(run / "model.safetensors", {}),
    "log.txt": lambda run: run_task(GridRun(0, "t", run, (), JOB), run / "none.toml", 1),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_elsewhere_is_not_written_through_a_link(victim, name, capfd):
    run = victim.parent / "run"
    (run / name.replace("PID", str(os.getpid()))).symlink_to(victim)
    with contextlib.suppress(InputError):
        WRITERS[name](run)
    assert victim.read_bytes() == KEPT


def test_a_log_of_rounds_that_became_a_link_is_told_and_training_goes_on(victim, capfd):
    run = victim.parent / "run"
    (run / "metrics.jsonl").symlink_to(victim)
    JsonLines(run).round({"round": 1})
    assert (
        "metrics.jsonl: cannot be written (metrics.jsonl is a link); training continues"
        in capfd.readouterr().err
    )


def test_a_lock_that_is_a_link_is_one_line(victim):
    run = victim.parent / "run"
    (run / ".lock").symlink_to(victim)
    for look in (hold, lock.check):
        with pytest.raises(
            InputError, match=r"run: cannot be written \(\.lock is a link\); name a folder that can"
        ):
            look(run)


def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(victim, capfd):
    run = victim.parent / "run"
    for name in ("metrics.jsonl", ".lock"):
        os.mkfifo(run / name)
    JsonLines(run).round({"round": 1})
    assert "metrics.jsonl: cannot be written" in capfd.readouterr().err
    with pytest.raises(InputError, match="cannot be written"):
        hold(run)
    with pytest.raises(InputError, match=r"metrics\.jsonl: cannot be read \(it is not a file\)"):
        trim_metrics(run, 3)


def test_a_run_folder_that_is_itself_a_link_is_one(victim):
    run, scratch = victim.parent / "run", victim.parent / "scratch"
    run.rmdir()
    scratch.mkdir()
    run.symlink_to(scratch)
    with lock.hold(run):
        claim_run(run, JOB)
        trim_metrics(run, 0)
    assert sorted(path.name for path in scratch.iterdir()) == [".lock", "job.toml", "metrics.jsonl"]
    assert run.is_symlink()


def test_what_a_killed_run_left_half_written_goes_and_nothing_else(tmp_path):
    run = tmp_path / "runs"
    own = [
        ".job.toml.7.partial",
        ".model.safetensors.12.partial",
        "personal/.silo_0003.safetensors.7.partial",
    ]
    own += [
        "checkpoints/round_000010/.server.safetensors.9.partial",
        "checkpoints/round_000010/.checkpoint.json.9.partial",
    ]
    others = [
        ".mine.7.partial",
        ".job.toml.x.partial",
        "other/.job.toml.7.partial",
        "other/checkpoints/.a.7.partial",
    ]
    others += [
        "checkpoints/mine/.server.safetensors.9.partial",
        ".job.toml.7.partial.old",
        "job.toml.7.partial",
    ]
    for name in own + others:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    (run / ".report.html.3.partial").symlink_to(run / "job.toml.7.partial")
    claim_run(run, JOB)
    left = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() or path.is_symlink()}
    assert left == {*others, "job.toml"}


def test_a_checkpoint_that_is_a_link_goes_without_what_it_leads_to(tmp_path):
    other, run = tmp_path / "other", tmp_path / "run"
    serialization.write_state(checkpoint.server_file(other, 10), {"n": 1})
    (checkpoint.round_folder(other, 10) / "checkpoint.json").write_text("{}")
    (run / "checkpoints").mkdir(parents=True)
    checkpoint.round_folder(run, 10).symlink_to(checkpoint.round_folder(other, 10))
    checkpoint.discard(run, 10)
    assert checkpoint.rounds(run) == []
    assert len(list(checkpoint.round_folder(other, 10).iterdir())) == 2


def test_a_folder_in_the_way_of_a_file_is_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(InputError, match=r"metrics\.jsonl: cannot be read \(Is a directory\)"):
        trim_metrics(tmp_path, 3)
    (tmp_path / "environment.json").mkdir()
    with pytest.raises(Unwritable):
        write_environment(tmp_path)


def test_what_is_written_has_the_rights_that_it_always_had(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"a")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
