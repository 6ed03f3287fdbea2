"""What the server is told of a fault: all, or its kind alone, while the site reads the rest."""

from __future__ import annotations

import errno
import re

import pytest
import torch
from unit.builders import make_worker, write_folder

from mpifl.algorithms import Algorithm
from mpifl.common import BudgetSpent, InputError, Names, ShardError, Unwritable, noted
from mpifl.data.shards import read_federation
from mpifl.exchange.disclosure import KindsAlone, Telling, kind_of
from mpifl.run.folder import CheckpointError
from mpifl.wire import Compute, Finish, Load, Open, Verdict

SECRET = 4.7132
"""A number of the data, which an error quotes."""


class Failing(Algorithm):
    """Fails in each silo as it is told to."""

    def round(self, server, cohort):
        raise NotImplementedError

    def fail(self, silo, how):
        if how == "well":
            return silo.update(weight=1.0, v=torch.ones(3))
        if how == "diverged":
            return silo.update(weight=1.0, v=torch.full((3,), float("inf")))
        if how == "beyond":
            return silo.update(weight=1e200, v=torch.full((3,), 1e200 * SECRET, dtype=torch.float64))
        if how == "itself":
            error = ValueError(f"{SECRET}")
            raise error from error
        raise {
            "memory": MemoryError(f"{SECRET}"),
            "words": RuntimeError(f"DefaultCPUAllocator: can't allocate memory: {SECRET} bytes"),
            "cuda": torch.cuda.OutOfMemoryError(f"{SECRET} GiB"),
            "input": InputError(f"age = {SECRET} is too much"),
            "spent": BudgetSpent(f"its privacy budget is spent: {SECRET}"),
            "bug": ZeroDivisionError(f"{SECRET} / 0\nand a line more"),
            "disk": OSError(errno.EIO, f"{SECRET}"),
            "shard": ShardError(f"silo.h5: {SECRET}"),
            "state": CheckpointError(f"silo.sealed: {SECRET}"),
        }[how]


KINDS = {
    "diverged": "diverged",
    "beyond": "beyond the range",
    "memory": "out of memory",
    "words": "out of memory",
    "cuda": "out of memory",
    "input": "refused",
    "spent": "privacy budget is spent",
    "bug": "failed",
    "disk": "failed",
    "shard": "a shard that cannot be read",
    "state": "a state that cannot be kept or read",
}


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path, [4, 5])
    return tmp_path


def make(folder, tells):
    return make_worker(folder, read_federation(folder), Failing(), tells=tells)


def ask(worker, how, round=0, cohort=(1,)):
    request = Compute(work="fail", scalars={"how": how}, round=round, cohort=list(cohort))
    report = worker.answer(request, {})
    worker.commit(request, Verdict(accepted=[], explain=list(cohort)))
    return report


@pytest.mark.parametrize("how", KINDS)
def test_the_server_is_told_the_kind_alone_and_the_site_reads_all(folder, capsys, how):
    report = ask(make(folder, KindsAlone), how)
    assert report.headers[0].fault == KINDS[how]
    assert "4.7" not in report.model_dump_json()
    said = capsys.readouterr().err
    assert said.startswith("silo 1: ")
    assert how == "diverged" or "4.7" in said
    assert ("Traceback" in said) == (how in ("memory", "words", "cuda", "bug", "disk"))
    assert "mpifl/exchange/worker_side/worker.py" not in said


@pytest.mark.parametrize("how", KINDS)
def test_whether_it_may_pass_is_told_either_way(folder, how):
    faults = [ask(make(folder, tells), how).headers[0] for tells in (Telling, KindsAlone)]
    assert faults[0].passing == faults[1].passing
    assert how == "diverged" or "4.7" in faults[0].fault


def in_a_circle(length):
    """Return errors that were each raised from the one before, and the first from the last."""
    errors = [ValueError(f"{SECRET}") for _ in range(length)]
    for one, cause in zip(errors, [errors[-1], *errors], strict=False):
        one.__cause__ = cause
    return errors


@pytest.mark.parametrize("length", [1, 2, 5])
def test_errors_that_were_raised_from_each_other_have_a_kind(length):
    errors = in_a_circle(length)
    assert kind_of(errors[0]) == "failed"
    errors[-1].__cause__ = MemoryError()
    assert kind_of(errors[0]) == "out of memory"


class Endless(RuntimeError):
    """Has another cause each time that it is asked."""

    @property
    def __cause__(self):
        return Endless()


def test_an_error_without_a_first_cause_has_a_kind():
    assert kind_of(Endless()) == "failed"


def test_a_silo_whose_code_raises_an_error_from_itself_fails(folder, capsys):
    report = ask(make(folder, KindsAlone), "itself")
    assert report.headers[0].fault == "failed"
    assert "4.7132" in capsys.readouterr().err


def test_the_site_reads_the_same_once_however_often_it_happens(folder, capsys):
    worker = make(folder, KindsAlone)
    for round in range(3):
        ask(worker, "bug", round, cohort=(0, 1))
    assert [capsys.readouterr().err.count(f"silo {k}: ZeroDivisionError") for k in (0,)] == [1]
    ask(worker, "input", 4)
    assert capsys.readouterr().err == f"silo 1: age = {SECRET} is too much\n"


def test_a_shard_and_a_state_that_cannot_be_read_are_kinds(folder, capsys):
    worker = make(folder, KindsAlone)
    (folder / "silo_0001.h5").write_bytes(b"no shard")
    opened = worker.answer(Open(cohort=[0, 1]), {}).headers
    assert [reply.fault for reply in opened] == [None, "a shard that cannot be read"]
    loaded = worker.answer(Load(cohort=[0], files={0: "0" * 64}), {}).headers
    assert [reply.fault for reply in loaded if reply.silo == 0] == ["a state that cannot be kept or read"]
    assert str(folder) in capsys.readouterr().err


def test_a_final_model_that_cannot_be_written_is_a_kind(folder, capsys, monkeypatch):
    worker = make(folder, KindsAlone)

    def full(*given):
        raise Unwritable(folder / "model", OSError(errno.ENOSPC, "the disk is full"))

    monkeypatch.setattr(worker._final, "leave", full)
    (reply,) = worker.answer(Finish(cohort=[0], sha256="0" * 64), {"w": torch.zeros(1)}).headers
    assert (reply.fault, reply.unwritten) == (None, "a file that cannot be written")
    assert "the disk is full" in capsys.readouterr().err


def test_times_are_told_to_two_digits(folder):
    report = ask(make(folder, KindsAlone), "well", cohort=(0, 1))
    for told in (report.seconds, *(reply.seconds for reply in report.headers)):
        assert told == float(f"{told:.1e}") > 0
    plain = ask(make(folder, Telling), "well", cohort=(0, 1))
    assert any(reply.seconds != float(f"{reply.seconds:.1e}") for reply in plain.headers)
    assert [KindsAlone.seconds(None, spent) for spent in (0.0, 12.449, 0.0123456, 987.6)] == [
        0,
        12,
        0.012,
        990,
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("no such column; use age"), "no such column; use age (round 7, step 17 of 60)"),
        (KeyError("depth"), "KeyError: 'depth' (test_disclosure.py:LINE, round 7, step 17 of 60)"),
    ],
    ids=["a user's", "another"],
)
def test_a_fault_in_a_training_ends_with_round_and_step(error, said, capsys):
    def fails():
        with noted(lambda: "round 7, step 17 of 60"):
            raise error

    with pytest.raises(type(error)) as raised:
        fails()
    telling = Telling(Names(["north"]))
    assert re.sub(r":\d+,", ":LINE,", telling.fault(0, raised.value)) == said
    telling.explain([0])
    told = capsys.readouterr().err
    assert not told if isinstance(error, InputError) else told.endswith("in round 7, step 17 of 60\n\n")
