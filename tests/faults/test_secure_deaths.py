"""Ranks that are killed amid a masked sum: the run continues to the same bits, or says who must return."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faults.conftest import Batch
from faults.processes import Command, checkpoints, lines_of, outcome, own_lines, train

SECURE = ["security.least=1", "seed=77", "cohort.quorum=0.5"]
"""What has the job `steady` add up under masks."""
BEATS = {
    "server-ready": (0, "ready"),
    "party-released": (2, "released"),
    "party-readying": (1, "readying"),
    "party-ready": (1, "ready"),
    "server-released": (0, "released"),
    "party-noted": (2, "noted"),
    "party-handed": (2, "handed"),
    "server-handed": (0, "handed"),
    "party-asked": (2, "asked"),
    "party-worked": (1, "worked"),
    "server-asked": (0, "asked"),
}
BEFORE = ("asked", "worked")
"""What comes before the phases of the sum."""
SHORT = ("server-ready", "party-released")
"""What the suite looks at; all of them by MPIFL_SLOW=1."""
if not os.environ.get("MPIFL_SLOW"):
    BEATS = {name: BEATS[name] for name in SHORT}
ROUND, WORK = 3, "learn"


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A site that all ranks share; no longer than this file, for its rules hold for every job."""
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPIFL_SITE", str(folder))
        yield folder


def _secure(yard: Path, run: Path, *more: str) -> list[str]:
    return train(yard / "steady.toml", run, *(word for key in SECURE for word in ("--set", key)), *more)


@pytest.fixture(scope="module")
def wrecks(yard: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The runs in which a rank was killed, by the beat; made two at a time."""

    def made(name: str) -> Path:
        rank, when = BEATS[name]
        folder = tmp_path_factory.mktemp(name)
        trouble: dict[str, Any] = {"beat": [rank, when, WORK, ROUND]}
        if when in BEFORE:
            trouble = {"die": {str(rank): [when, WORK, ROUND]}}
        with Command(folder / "command", 3, *_secure(yard, folder / "run"), trouble=trouble) as command:
            assert command.end().code
        assert (lines_of(folder / "run"), max(checkpoints(folder / "run"))) == (ROUND - 1, ROUND - 1)
        return folder / "run"

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(BEATS, pool.map(made, BEATS), strict=True))


def released(run: Path) -> dict[tuple[int, str], list[int]]:
    """What was released, by round and work; rounds count from 1."""
    lines = [json.loads(line) for line in (run / "released.jsonl").read_text().splitlines()]
    return {(one["round"] + 1, one["work"]): one["silos"] for one in lines}


@pytest.fixture(scope="module")
def lacking(wrecks: dict[str, Path], yard: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """A silo that has not come back when the first wreck goes on, and what is said then."""
    run = next(iter(wrecks.values()))
    missing = released(run)[ROUND, WORK][0]
    trouble = {"silos": [missing], "from": ROUND}
    folder = tmp_path_factory.mktemp("lacking") / "command"
    with Command(folder, 1, *_secure(yard, run, "--resume"), trouble=trouble) as command:
        assert command.end().code == 3
    (line,) = [line for line in own_lines(command.err) if line.startswith("error: ")]
    return missing, line


@pytest.fixture(scope="module")
def mended(
    wrecks: dict[str, Path], lacking: tuple[int, str], yard: Path, batch: Batch
) -> tuple[dict[str, Any], Path]:
    """Every wreck gone on with on two ranks, and a run that was never troubled."""
    whole = yard / "untroubled-secure"
    commands = {name: _secure(yard, run, "--resume")[2:] for name, run in wrecks.items()}
    commands["whole"] = _secure(yard, whole)[2:]
    return batch(2, commands)[0], whole


def test_a_released_round_whose_silo_is_missing_says_who_has_to_come_back(lacking: tuple[int, str]) -> None:
    missing, line = lacking
    assert f"round {ROUND} was lost: " in line
    assert re.search(rf"(without|silo) '?silo {missing}'?", line), line
    assert "continue with" in line


def test_a_masked_sum_needs_no_buffers_of_mpi(
    mended: tuple[dict[str, Any], Path], yard: Path, tmp_path: Path
) -> None:
    run, trouble = tmp_path / "run", {"unbuffered": True}
    with Command(tmp_path / "command", 3, *_secure(yard, run), trouble=trouble) as command:
        assert command.end().code == 0
    assert outcome(run) == outcome(mended[1])


@pytest.mark.parametrize("name", BEATS)
def test_a_kill_in_any_beat_leaves_the_same_bits(
    wrecks: dict[str, Path], mended: tuple[dict[str, Any], Path], name: str
) -> None:
    done, whole = mended
    assert done[name]["code"] == done["whole"]["code"] == 0, done[name]["err"]
    assert "without" not in done[name]["err"], "all silos came back"
    assert outcome(wrecks[name]) == outcome(whole)
    assert released(wrecks[name]) == released(whole)


def test_a_site_has_released_each_question_once(mended: tuple[dict[str, Any], Path], site: Path) -> None:
    lines = [json.loads(line) for line in (site / "released.jsonl").read_text().splitlines()]
    sets = {(one["round"], one["work"], tuple(one["set"]), one["message"]) for one in lines}
    assert len(sets) == len({(round, work) for round, work, *_ in sets})


@pytest.mark.slow
@pytest.mark.parametrize("when", ["readying", "ready", "released", "noted", "handed"])
def test_survivors_of_a_party_go_on_without_it_or_say_that_it_has_to_come_back(
    yard: Path, tmp_path: Path, mended: tuple[dict[str, Any], Path], batch: Batch, when: str
) -> None:
    run, trouble = tmp_path / "run", {"beat": [2, when, WORK, ROUND]}
    with Command(tmp_path / "command", 5, *_secure(yard, run), trouble=trouble, survive=True) as command:
        command.end()
    assert "Traceback" not in command.err
    assert command.code == 3
    assert "2 of 3 parties have a part in the sum, too few; bring back 'silo 4'" in command.err
    (done,) = [batch(2, {"resumed": _secure(yard, run, "--resume")[2:]})[0]]
    assert done["resumed"]["code"] == 0, done["resumed"]["err"]
    assert outcome(run)["model"] == outcome(mended[1])["model"]


@pytest.mark.slow
def test_survivors_of_the_server_end_at_once_and_a_resume_has_the_same_bits(
    yard: Path, tmp_path: Path, mended: tuple[dict[str, Any], Path], batch: Batch
) -> None:
    run, trouble = tmp_path / "run", {"beat": [0, "ready", WORK, ROUND]}
    with Command(tmp_path / "command", 3, *_secure(yard, run), trouble=trouble, survive=True) as command:
        command.end()
    assert command.code == 3
    (line,) = [line for line in own_lines(command.err) if line.startswith("error: ")]
    assert line.startswith("error: rank 1 cannot take the dead server's place: ")
    assert "was lost" not in command.err
    (done,) = [batch(2, {"resumed": _secure(yard, run, "--resume")[2:]})[0]]
    assert done["resumed"]["code"] == 0, done["resumed"]["err"]
    assert outcome(run)["model"] == outcome(mended[1])["model"]
