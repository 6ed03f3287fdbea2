"""What a job with `[security]` may not ask, a line each; and the file of what was released."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpifl.common import InputError
from mpifl.run.job.job import Job, check_job
from mpifl.wings.masked.released_file import ReleasedFile

FILE = "released.jsonl"
TORN = '{"run": "r", "round": 1, "work": "train", "silos": [1, 2]}'


def checked(**tables: Any) -> Job:
    table = {"name": "toy", "shards": "s", "rounds": 3, "model": {"name": "2nn"}, "security": {}}
    return check_job({**table, **tables}, "toy.toml")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a rule": (
        {"aggregation": {"rule": "median"}},
        r"\[aggregation\] rule = 'median': a rule that compares silos must see them, .*use 'mean', or leave",
    ),
    "krum": (
        {"aggregation": {"rule": "krum", "byzantine": 1}},
        r"\[aggregation\] rule = 'krum': a rule that compares silos",
    ),
    "a codec": (
        {"compression": {"upload": "qsgd"}},
        r"\[compression\] upload = 'qsgd': masked vectors do not shrink; use 'none', or leave ",
    ),
    "a liar": (
        {"attack": {"kind": "sign_flip", "silos": [1]}},
        r"\[attack\] kind = 'sign_flip': who lies is to be seen, and masks hide it; leave one of them out",
    ),
}
UNDER_MASKS: dict[str, tuple[dict[str, Any], str]] = {
    "by losses": (
        {"cohort": {"fraction": 0.5, "select": "power-of-choice", "candidates": 3}},
        r"\[cohort\] select = 'power-of-choice': each site draws a round's silos itself, .*use 'uniform' or",
    ),
    "a selection of one's own": (
        {"cohort": {"fraction": 0.5, "select": "scenarios:in_turn"}},
        r"\[cohort\] select = 'scenarios:in_turn': each site draws",
    ),
    "steps until a deadline": (
        {"local": {"deadline": 2.0}},
        r"\[local\] deadline = 2: a silo asked again would answer otherwise, .*leave it out",
    ),
    "another server": (
        {"checkpoint": {"mirror": True}},
        r"\[checkpoint\] mirror = true: another site's rank would become the server; leave it out",
    ),
    "other architectures": (
        {"algorithm": {"name": "feddf", "prototypes": [{"name": "mlp", "hidden": [4]}]}},
        r"\[algorithm\] name = 'feddf': silos send vectors that others do not, .*\[security\] masks out",
    ),
}


@pytest.mark.parametrize("what", [*REFUSED, *UNDER_MASKS])
def test_what_masks_cannot_hide_is_refused(what: str) -> None:
    tables, line = {**REFUSED, **UNDER_MASKS}[what]
    with pytest.raises(InputError, match=rf"^toy\.toml: {line}") as refused:
        checked(**tables)
    assert "\n" not in str(refused.value)
    without = {name: table for name, table in {**tables, "security": None}.items() if table is not None}
    table = {"name": "toy", "shards": "s", "rounds": 3, "model": {"name": "2nn"}}
    assert check_job({**table, **without}, "toy.toml").security is None, "masks are the reason"


@pytest.mark.parametrize("what", [*REFUSED, *UNDER_MASKS])
def test_without_masks_the_sums_alone_set_limits(what: str) -> None:
    tables, line = {**REFUSED, **UNDER_MASKS}[what]
    if what in UNDER_MASKS:
        assert checked(**tables, security={"masks": False}).security is not None
    else:
        with pytest.raises(InputError, match=line):
            checked(**tables, security={"masks": False})


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"masks": "yes"}, "masks"),
        ({"range": 0}, "range"),
        ({"range": -128.0}, "range"),
        ({"range": 2.0**41}, "range"),
        ({"range": float("inf")}, "range"),
        ({"least": 0}, "least"),
        ({"least": 2.5}, "least"),
        ({"colluding": 1.0}, "colluding"),
        ({"colluding": -0.1}, "colluding"),
        ({"keys": "sites.toml"}, "keys"),
    ],
    ids=str,
)
def test_a_key_that_cannot_be_is_named(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=rf"toy\.toml: .*{named}"):
        checked(security=keys)


def test_what_was_released_is_read_by_the_server_that_follows(tmp_path: Path) -> None:
    first = ReleasedFile(tmp_path)
    assert first.of(0, "train") is None
    assert first.id != ReleasedFile(tmp_path).id, "the same job begun twice is two runs"
    assert ReleasedFile(tmp_path, "told").id == "told"
    assert not (tmp_path / FILE).exists()
    first.note(0, "train", [2, 5])
    first.note(0, "train", [2, 5])
    first.note(0, "evaluate", [0, 1, 2])
    first.note(1, "train", [1])
    assert len((tmp_path / FILE).read_text().splitlines()) == 3
    assert ReleasedFile(tmp_path).id == ReleasedFile(tmp_path, first.id).id == first.id
    with pytest.raises(InputError, match=r"released\.jsonl: is that of another run; put back this run's own"):
        ReleasedFile(tmp_path, "another")
    for file in (first, ReleasedFile(tmp_path)):
        assert file.of(0, "train") == [2, 5]
        assert file.of(0, "evaluate") == [0, 1, 2]
        assert file.of(1, "train") == [1]
        assert file.of(2, "train") is None
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("torn", ["", "{", TORN, "\x00\x00"])
def test_a_line_that_was_cut_short_was_never_released(tmp_path: Path, torn: str) -> None:
    ReleasedFile(tmp_path).note(0, "train", [2, 5])
    with (tmp_path / FILE).open("a") as file:
        file.write(torn)
    again = ReleasedFile(tmp_path)
    assert again.of(0, "train") == [2, 5]
    assert again.of(1, "train") is None
    again.note(1, "train", [3])
    assert ReleasedFile(tmp_path).of(1, "train") == [3], "what is noted after a crash is read"
    assert ReleasedFile(tmp_path).of(0, "train") == [2, 5]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "{}",
        "\x00\x00",
        '{"run": "r", "round": 1, "work": "train"}',
        '{"run": "r", "round": "x", "work": "train", "silos": []}',
        '{"run": "r", "round": 1, "work": "train", "silos": 5}',
        '{"run": "r", "round": 1, "work": "train", "silos": ["a"]}',
        '{"run": "r", "round": 1e400, "work": "train", "silos": [1]}',
        "[" * 100_000,
    ],
    ids=lambda line: line[:30],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, line: str) -> None:
    told = json.dumps({"run": "r", "round": 0, "work": "train", "silos": [1]})
    (tmp_path / FILE).write_text(f"{told}\n{line}\n{told}\n")
    with pytest.raises(
        InputError, match=r"released\.jsonl: line 2 is not a line of a ledger; put back a copy"
    ):
        ReleasedFile(tmp_path)


def test_a_file_that_is_a_link_or_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"released\.jsonl: cannot be written"):
        ReleasedFile(tmp_path).note(0, "train", [1])
