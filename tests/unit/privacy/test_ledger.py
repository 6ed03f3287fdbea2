"""A ledger of lines of any kind: who may write when, and what a reader is told of."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from pydantic import BaseModel

from mpifl.privacy.ledger import Ledger


class Line(BaseModel):
    number: int


def test_no_other_process_can_write_while_a_line_is_made(tmp_path: Path):
    taken: list[Line] = []
    ledger = Ledger(tmp_path / "numbers.jsonl", Line, taken.append)

    def make() -> Line:
        with (tmp_path / "numbers.jsonl").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        ledger.catch_up()  # which the holder of the lock may do
        return Line(number=len(ledger.kept))

    ledger.record(make)
    ledger.record(make)
    assert taken == ledger.kept == [Line(number=0), Line(number=1)]
    with (tmp_path / "numbers.jsonl").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_each_line_is_told_once_and_in_its_order(tmp_path: Path):
    told: list[int] = []
    reader = Ledger(tmp_path / "numbers.jsonl", Line, lambda line: told.append(line.number))
    writer = Ledger(tmp_path / "numbers.jsonl", Line, lambda line: None)
    reader.catch_up()
    assert not (tmp_path / "numbers.jsonl").exists(), "to read makes no file"
    for number in (3, 1, 2):
        writer.record(lambda: Line(number=number))  # noqa: B023
        reader.catch_up()
    writer.record(lambda: None)
    reader.catch_up()
    assert told == [3, 1, 2]
