"""A rank of a crew dies or hangs: its crew is dead, the others go on, and nobody hangs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faults.processes import Command, outcome, rounds_of, train
from faults.test_survival import LONGEST, _what_counts, pytestmark  # noqa: F401

CREWS = ("--set", "silo.ranks=2")
CASES: dict[str, dict[str, Any]] = {
    "follower": {"share": [4, 40, "SIGKILL"]},
    "hanging": {"share": [4, 40, "SIGSTOP"]},
    "leader": {"die": {"3": ("asked", "learn", 3)}},
}


@pytest.fixture(scope="module")
def survivors(yard: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Command]]:
    """Runs of five ranks, two crews, in which one has died."""

    def survive(name: str) -> tuple[Path, Command]:
        folder = tmp_path_factory.mktemp(name)
        arguments = train(yard / "steady.toml", folder / "run", *CREWS)
        more = {"trouble": CASES[name], "survive": True, "MPIFL_TRANSFER_TIMEOUT": "3"}
        with Command(folder / "command", 5, *arguments, **more) as command:
            return folder / "run", command.end(LONGEST)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(survive, CASES), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_other_crew_goes_on_to_the_same_bits(
    survivors: dict[str, tuple[Path, Command]], untroubled: Path, name: str
) -> None:
    run, command = survivors[name]
    assert command.code == 0, command.err
    assert "finished without rank 3, which died" in command.err
    assert ("rank 3: rank 4 of its crew has died or hangs; the crew ends" in command.err) == (
        name != "leader"
    )
    assert _what_counts(run) == _what_counts(untroubled / "crews")


def test_without_survival_all_end_and_go_on_later(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = train(yard / "steady.toml", run, *CREWS)
    trouble = {"share": [2, 40, "SIGKILL"]}
    with Command(tmp_path / "killed", 3, *arguments, trouble=trouble) as command:
        assert command.end(LONGEST).code
    assert 0 < len(rounds_of(run)) < 6
    with Command(tmp_path / "resumed", 3, *arguments, "--resume") as command:
        assert command.end(LONGEST).code == 0, command.err
    assert outcome(run)["model"] == outcome(untroubled / "crews")["model"]
