"""The leader of a node lies to those whom it relays to: they notice before what they are told counts, or end
in a line, and the server says whose silos stay out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli_w
from faults.processes import HERE, Command, rounds_of, train
from scenarios import job

FOLLOWER = 3
ENDING = {
    "request": [
        "brace",
        "nothing",
        "bytes",
        "deep",
        "list",
        "another kind",
        "no dtype",
        "a vast vector",
    ],
    "verdict": ["brace", "list", "pieces of text"],
    "handle": ["none", "not open", "long"],
    "job": ["another job"],
}
"""What the rank that is lied to cannot follow."""
USUAL = {("request", "brace"), ("handle", "long"), ("verdict", "pieces of text")}
"""What the suite tries; all of them by MPIFL_SLOW=1."""
CASES = [
    pytest.param(what, how, id=f"{what}-{how}", marks=() if (what, how) in USUAL else pytest.mark.slow)
    for what, names in ENDING.items()
    for how in names
]


def _play(digits: Path, folder: Path, **lie: object) -> tuple[Command, Path]:
    table = job(
        "relayed",
        shards=str(digits / "many"),
        rounds=3,
        model={"name": "plugins:perceptron"},
        algorithm={"name": "relaying:Plain"},
        local={"lr": 0.02, "batch_size": 32},
        cohort={"quorum": 0.1},
    )
    (folder / "job.toml").write_text(tomli_w.dumps(table))
    told = {"RELAY": json.dumps(lie), "MPIFL_RANKS_PER_NODE": "2", "MPIFL_TRANSFER_TIMEOUT": "5"}
    _, _, *arguments = train(folder / "job.toml", folder / "run")
    with Command(folder / "command", 4, HERE / "relaying.py", *arguments, trouble={}, **told) as command:
        command.end()
    return command, folder / "run"


@pytest.mark.parametrize(("what", "how"), CASES)
def test_a_rank_that_cannot_follow_what_its_leader_tells_it_ends_in_a_line(
    digits: Path, tmp_path: Path, what: str, how: str
) -> None:
    command, _ = _play(digits, tmp_path, what=what, round=2, **{"as": how})
    said = command.out + command.err
    assert command.code != 0
    assert "Traceback" not in said
    lines = [line for line in command.err.splitlines() if line.startswith(f"rank {FOLLOWER}: ")]
    assert len(lines) == 1, said[-2000:]
    assert "rank 2" in lines[0]
    assert len(lines[0]) < 600


LIES = [("request", "another work"), ("verdict", "nobody counts")]
MORE_LIES = [
    ("request", "another round"),
    ("verdict", "pieces of another vector"),
    ("verdict", "no rank"),
    ("verdict", "ranks of nowhere"),
]


@pytest.mark.parametrize(
    ("what", "how"), [*LIES, *(pytest.param(*lie, marks=pytest.mark.slow) for lie in MORE_LIES)]
)
def test_a_rank_that_is_told_other_than_the_server_said_stays_out(
    digits: Path, tmp_path: Path, what: str, how: str
) -> None:
    command, run = _play(digits, tmp_path, what=what, round=2, **{"as": how})
    assert command.code == 0, command.out + command.err
    assert "Traceback" not in command.out + command.err
    records = rounds_of(run)
    told = f"the report of rank {FOLLOWER} was refused: it was told other than what the server said"
    for record in records[1 if what == "request" else 2 :]:
        assert record["faults"], record
        assert {why.split(";")[0] for why in record["faults"].values()} == {told}
        assert all(why.endswith("rank 2 relayed it") for why in record["faults"].values())
    assert records[0]["faults"] == {}
