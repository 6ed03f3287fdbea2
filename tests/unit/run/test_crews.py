"""What a job whose batches are cut into parts may not ask, a line each; and what may change in a run."""

from __future__ import annotations

from typing import Any

import pytest

from mpifl.common import InputError
from mpifl.run.job.job import Job, check_job
from mpifl.run.job.outline import HARMLESS, differing_keys


def checked(**tables: Any) -> Job:
    table = {"name": "toy", "shards": "s", "rounds": 3, "model": {"name": "2nn"}, "silo": {"ranks": 2}}
    return check_job({**table, **tables}, "toy.toml")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no part each": ({"silo": {"ranks": 4, "parts": 6}}, r"\[silo\] parts = 6: .*; take a multiple of ranks"),
    "no rank": ({"silo": {"ranks": 0}}, r"\[silo\] ranks = 0"),
    "compile": ({"local": {"compile": True}}, r"\[silo\] parts = 2: .* \[local\] compile = true makes one"),
    "batched": ({"local": {"batched": True}}, r"\[local\] batched = true takes whole batches"),
    "accumulate": ({"local": {"accumulate": 3}}, r"\[local\] accumulate = 3 adds batches up instead"),
    "fp16": ({"local": {"precision": "fp16"}}, r"'fp16' scales the loss of a whole batch; take 'bf16'"),
    "examples": (
        {"privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}},
        r"\[privacy\] clips the gradient of each example",
    ),
    "comparing": ({"task": {"name": "survival"}}, r"the loss compares each example .*; leave \[silo\] out"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_parts_is_refused(what: str) -> None:
    tables, line = REFUSED[what]
    with pytest.raises(InputError, match=line) as refused:
        checked(**tables)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("what", [what for what in REFUSED if what not in ("no part each", "no rank")])
def test_a_whole_batch_takes_it(what: str) -> None:
    tables, _ = REFUSED[what]
    assert checked(**tables, silo={}).silo.parts == 1


def test_parts_are_as_many_as_ranks_and_stand_in_the_job() -> None:
    assert checked().silo.model_dump() == {"ranks": 2, "parts": 2}
    assert checked(silo={"parts": 4}).silo.ranks == 1


def test_a_run_may_go_on_with_other_ranks_but_not_with_other_parts() -> None:
    four, two = checked(silo={"ranks": 4}), checked(silo={"ranks": 2, "parts": 4})
    assert differing_keys(four, two, HARMLESS) == []
    assert differing_keys(four, checked(), HARMLESS) == ["silo.parts"]
