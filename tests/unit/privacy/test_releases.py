"""The ledger of what was released under masks: what may be released again, and what must not be."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpifl.common import InputError
from mpifl.wings.masked import Released, Releases


def entry(**more):
    given = {
        "run": "r",
        "round": 7,
        "work": "work",
        "message": "m",
        "set": ["a", "b", "c"],
        "grids": "g",
        "shares": 3,
        "silos": ["a"],
        "answers": {"a": "x"},
        "terms": "t",
        "data": {"a": "1"},
        "job": "demo",
    }
    return Released(**(given | more))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "site"


def lines(folder: Path) -> list[str]:
    return (folder / "released.jsonl").read_text().splitlines()


def test_the_same_sum_may_be_released_again_and_is_noted_once(folder: Path):
    Releases(folder).record(entry())
    again = Releases(folder)
    again.check(entry(job="renamed", set=["c", "b", "a"]))
    again.record(entry(job="renamed", set=["c", "b", "a"]))
    assert len(lines(folder)) == 1
    assert Released.model_validate_json(lines(folder)[0]) == entry()


OTHER = {"a": "y"}
ALLOWED = [
    {"round": 8, "message": "n", "set": ["a", "b"], "answers": OTHER},
    {"work": "realign", "message": "n", "set": ["a", "b"], "answers": OTHER},
    {"run": "s", "message": "n", "answers": OTHER},
    {"round": 8},
    {"run": "s", "answers": OTHER, "grids": "h", "noise": "z"},
    {"run": "s", "terms": "u", "shares": 2},
    {"run": "s", "round": 8, "shares": 2},
    {"run": "s", "shares": 0},
    {"silos": ["b"], "answers": {"b": "y"}},
    {"run": "s", "terms": "u", "data": {"a": "2"}},
    {"run": "s", "message": "n", "data": {"a": "2"}},
    {"silos": ["a", "b"], "answers": {"a": "x", "b": "y"}},
]


@pytest.mark.parametrize("other", ALLOWED, ids=str)
def test_other_questions_are_other_sums(folder: Path, other):
    releases = Releases(folder)
    releases.record(entry())
    releases.record(entry(**other))
    assert len(lines(folder)) == 2


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"message": "n"}, "asked with another model"),
        ({"set": ["a", "b"]}, r"other silos \(without 'c'\), so both sums would tell them apart"),
        ({"set": ["a", "b", "d", "e"], "message": "n"}, r"without 'c', with 'd', 'e'"),
        ({"grids": "h"}, "rounded otherwise"),
        ({"answers": OTHER}, "the answer of silo 'a' is another now"),
        ({"silos": ["a", "b"], "answers": {"b": "x", "a": "y"}}, "the answer of silo 'a' is another now"),
        ({"noise": "z"}, "asked with other noise"),
        ({"silos": ["b"], "message": "n"}, "asked with another model"),
        ({"silos": ["b"], "set": ["b", "c"]}, "without 'a'"),
        ({"silos": ["b"], "grids": "h"}, "rounded otherwise"),
        ({"round": 8, "set": ["a", "b"]}, r"round 8 of job 'demo' was asked the same.*without 'c'"),
        ({"run": "s", "round": 1, "set": ["a", "b"]}, "was asked the same"),
        ({"run": "s", "set": ["d"], "silos": ["d"]}, "without 'a', 'b', 'c', with 'd'"),
        ({"run": "s", "shares": 2}, "asked the same, and its noise is to be of 2 shares, where it was of 3"),
        ({"run": "s", "data": {"a": "2"}}, "asked the same, and silo 'a' has other examples now"),
    ],
    ids=str,
)
def test_what_would_tell_silos_apart_is_refused_and_not_noted(folder: Path, other, why):
    Releases(folder).record(entry())
    for releases in (Releases(folder), Releases(folder)):
        with pytest.raises(InputError, match=f"is not released.*{why}.*; continue with the run from its own"):
            releases.check(entry(**other))
        with pytest.raises(InputError, match=why):
            releases.record(entry(**other))
    assert len(lines(folder)) == 1


WITHOUT_C = {"set": ["a", "b"], "grids": "h", "noise": "z"}


def test_a_sum_that_was_never_whole_may_be_made_without_the_silos_that_are_gone(folder: Path):
    Releases(folder).record(entry(shares=0))
    for releases in (Releases(folder), Releases(folder)):
        releases.record(entry(shares=0, **WITHOUT_C), ["c"])
    assert len(lines(folder)) == 2


@pytest.mark.parametrize(
    ("before", "other", "gone"),
    [
        ({}, {}, []),
        ({}, {}, ["b"]),
        ({}, {}, ["b", "c"]),
        ({}, {"set": ["a", "b", "d"]}, ["c"]),
        ({}, {"answers": OTHER}, ["c"]),
        ({}, {"message": "n"}, ["c"]),
        ({"shares": 3}, {"shares": 3}, ["c"]),
        ({}, {"run": "s"}, ["c"]),
        ({}, {"round": 8}, ["c"]),
    ],
    ids=str,
)
def test_no_other_sum_is_made_without_silos_that_are_gone(folder: Path, before, other, gone):
    """In another run or round the silos that are gone may have handed over their part of the same message."""
    releases = Releases(folder)
    releases.record(entry(**{"shares": 0} | before))
    with pytest.raises(InputError, match="is not released"):
        releases.record(entry(**{"shares": 0} | WITHOUT_C | other), gone)
    assert len(lines(folder)) == 1


def test_a_sum_without_silos_that_are_gone_is_the_last_of_its_message(folder: Path):
    """In another run or round the silos are back, and the whole sum would tell theirs."""
    releases = Releases(folder)
    releases.record(entry(shares=0))
    releases.record(entry(shares=0, **WITHOUT_C), ["c"])
    for other in ({"run": "s"}, {"round": 8}, {}):
        with pytest.raises(InputError, match=r"is not released.*with 'c'"):
            Releases(folder).check(entry(shares=0, **other))


@pytest.mark.parametrize("other", [{"message": "n"}, {"answers": OTHER}], ids=str)
def test_bits_of_another_processor_name_both(folder: Path, other):
    Releases(folder).record(entry(processor="old (AVX2)"))
    with pytest.raises(
        InputError, match=r"computed on old \(AVX2\), and this is new \(AVX512\); continue with"
    ):
        Releases(folder).check(entry(processor="new (AVX512)", **other))
    with pytest.raises(InputError) as same:
        Releases(folder).check(entry(processor="old (AVX2)", **other))
    assert "computed on" not in str(same.value)


def test_of_two_ranks_that_come_at_once_the_second_sees_what_the_first_has_released(folder: Path):
    ranks = [Releases(folder) for _ in range(8)]
    for rank in ranks:
        rank.check(entry())

    def record(k: int) -> bool:
        try:
            ranks[k].record(entry(set=["a", "b", "c", str(k)], silos=[str(k)]))
        except InputError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(record, range(8))) == 1
    assert len(lines(folder)) == 1


def test_a_torn_line_was_never_released_and_a_wrong_one_ends_it(folder: Path):
    Releases(folder).record(entry())
    whole = (folder / "released.jsonl").read_bytes()
    (folder / "released.jsonl").write_bytes(whole + whole[:-9])
    releases = Releases(folder)
    releases.record(entry(round=8, message="n"))
    assert [Released.model_validate_json(line).round for line in lines(folder)] == [7, 8]
    (folder / "released.jsonl").write_bytes(whole + b"{}\n")
    with pytest.raises(InputError, match=r"released\.jsonl: line 2 is not a line of a ledger"):
        Releases(folder).check(entry())


def test_many_silos_are_named_by_the_first(folder: Path):
    names = [f"s{k}" for k in range(9)]
    Releases(folder).record(entry(set=names))
    with pytest.raises(InputError, match=r"without 's1', 's2', 's3' and 5 more"):
        Releases(folder).check(entry(set=["s0"]))


def test_nothing_is_released_before_its_line_is_on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    for _ in range(2):  # the line may be in the file by now, and is not on the disk for all that
        with monkeypatch.context() as broken:
            broken.setattr("os.fsync", fails)
            with pytest.raises(InputError, match=r"cannot be written \(Input/output error\)"):
                Releases(folder).record(entry())
    Releases(folder).record(entry())
    assert len(lines(folder)) == 1


def test_a_ledger_that_cannot_be_written_releases_nothing(folder: Path):
    releases = Releases(folder)
    (folder / "released.jsonl").symlink_to(folder / "elsewhere")
    with pytest.raises(InputError, match=r"released\.jsonl: cannot be written .*; nothing is answered"):
        releases.record(entry())


@pytest.mark.parametrize(("work", "shown"), [("train", 8), ("evaluate_test", 7)])
def test_people_read_rounds_from_1_and_an_evaluation_is_of_the_round_before_it(folder: Path, work, shown):
    releases = Releases(folder, ["evaluate", "evaluate_test"])
    releases.record(entry(work=work))
    assert '"round":7' in lines(folder)[0]
    with pytest.raises(InputError, match=f"round {shown} of job 'demo' is not released"):
        releases.check(entry(work=work, answers=OTHER))
    with pytest.raises(
        InputError, match=f"round {shown + 1} of .* round {shown} of job 'demo' was asked the"
    ):
        releases.check(entry(work=work, round=8, set=["a", "b"]))
