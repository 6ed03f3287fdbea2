"""Ranks that die under Open MPI's fault tolerance: the others continue, to the bits of an undisturbed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import launcher
from faults.conftest import CHOICE
from faults.processes import HERE, Command, lines_of, outcome, own_lines, pid_of, ranks_of, rounds_of, train

from mpifl.exchange.server_side.placement import place

LONGEST = 150
"""Seconds, on a loaded machine, after which a run hangs."""
AT_WORKERS = ("--set", "evaluate.where=workers", "--set", "evaluate.batch_size=50")
MIRROR = ("--set", "checkpoint.mirror=true", "--set", "checkpoint.every=6")
BEHIND = (*MIRROR, "--set", "evaluate.behind=true")


def _has_ulfm() -> bool:
    said = subprocess.run(
        [*launcher(), "--version"], capture_output=True, text=True, timeout=180, check=False
    ).stdout
    return said.startswith("mpirun (Open MPI) ") and int(said.split()[3].partition(".")[0]) >= 5


pytestmark = pytest.mark.skipif(not _has_ulfm(), reason="needs Open MPI 5")


@dataclass
class Case:
    """Who dies when, in a job on 4 ranks, and what must be said of it.

    Attributes:
        restless: Whether silos move after every checkpoint.
        same: Whether all that was kept is still there, so that the bits must be those of a run never
            troubled.
        like: The run of `untroubled` that they must be those of.
    """

    die: dict[str, Sequence[Any]]
    says: str
    more: tuple[str, ...] = ()
    nodes_of: str | None = None
    same: bool = True
    like: str = "whole"
    restless: bool = False
    job: str = "steady"


SERVER = "rank 1 is the server now and continues"
CASES = {
    "asked": Case({"2": ("asked", "learn", 3)}, "rank 2 died", restless=True),
    "judged": Case({"2": ("judged", "learn", 3)}, ", with what was kept in round 2"),
    "saving": Case({"3": ("asked", "save", 3)}, ", with what was kept in round 2", same=False),
    "evaluating": Case({"3": ("worked", "evaluate", 3)}, ", with what was kept in round 2", same=False),
    "opening": Case({"1": ("worked", "open", 0)}, "rank 1 died"),
    "finishing": Case({"1": ("asked", "finish", 6)}, "finished without rank 1, which died"),
    "scoring": Case({"2": ("worked", "score_batches", 3)}, "rank 2 died", AT_WORKERS, same=False),
    "test-set": Case({"3": ("asked", "keep_test_set", 1)}, "rank 3 died", AT_WORKERS, same=False),
    "two": Case(
        {"1": ("judged", "learn", 3), "3": ("asked", "learn", 4)}, "finished without ranks 1, 3, which died"
    ),
    "server": Case(
        {"0": ("judged", "learn", 4)},
        f"{SERVER} from the last checkpoint, after round 3",
        CHOICE,
        like="choice",
    ),
    "server-early": Case({"0": ("worked", "learn", 1)}, f"{SERVER} from the start, after round 0"),
    "server-finishing": Case(
        {"0": ("worked", "finish", 6)}, f"{SERVER} from the last checkpoint, after round 6"
    ),
    "mirror": Case({"0": ("judged", "learn", 4)}, f"{SERVER} from the mirror, after round 3", MIRROR),
    "behind": Case(
        {"0": ("judged", "learn", 4)}, f"{SERVER} from the mirror, after round 3", BEHIND, same=False
    ),
    "mirror-half": Case(
        {"0": ("worked", "replicate", 3)}, f"{SERVER} from the mirror, after round ", MIRROR
    ),  # round 3, or 2 where its last bytes had not left it
    "mirror-twice": Case(
        {"0": ("judged", "learn", 4), "1": ("asked", "learn", 5)},
        "rank 2 is the server now",
        MIRROR,
        same=False,
    ),
    "fedasync": Case({"2": ("judged", "take_part", 6)}, "rank 2 died", job="fedasync", like="fedasync"),
    "fedbuff": Case(
        {"0": ("judged", "take_part", 3)},
        f"{SERVER} from the last checkpoint, after round 2",
        job="fedbuff",
        like="fedbuff",
    ),
    "fedbuff-mirror": Case(
        {"0": ("judged", "take_part", 3)},
        f"{SERVER} from the mirror, after round 2",
        MIRROR,
        job="fedbuff",
        like="fedbuff",
    ),
    "leader": Case({"2": ("judged", "learn", 3)}, "rank 2 died", CHOICE, nodes_of="2", like="choice"),
    "pipeline": Case({"3": ("carrying", "learn", 3)}, "rank 3 died", nodes_of="2"),
    "pipeline-down": Case({"3": ("receiving", "learn", 3)}, "rank 3 died", nodes_of="2"),
    "pipeline-leader": Case({"2": ("carrying", "learn", 3)}, "rank 2 died", nodes_of="2"),
    "leader-serving": Case({"0": ("judged", "learn", 3)}, f"{SERVER} from the mirror", MIRROR, nodes_of="2"),
}


SHORT = ("asked", "server", "mirror", "fedbuff", "leader", "pipeline", "scoring", "behind")
"""What the suite looks at; all of them by MPIFL_SLOW=1."""
if not os.environ.get("MPIFL_SLOW"):
    CASES = {name: CASES[name] for name in SHORT}


@dataclass
class Survivor:
    """A run in which ranks died: its folder and what it said."""

    run: Path
    command: Command


def _survive(folder: Path, yard: Path, case: Case) -> Survivor:
    run = folder / "run"
    variables = {"MPIFL_RANKS_PER_NODE": case.nodes_of} if case.nodes_of else {}
    arguments = train(yard / f"{case.job}.toml", run, *case.more)
    trouble = {"die": case.die, "restless": case.restless}
    with Command(folder / "command", 4, *arguments, trouble=trouble, survive=True, **variables) as command:
        command.end(LONGEST)
    return Survivor(run, command)


def _what_counts(run: Path) -> dict[str, Any]:
    """The outcome, but for the bytes that asking again costs."""
    whole = outcome(run)
    rounds = [
        {name: value for name, value in record.items() if name != "bytes_sent"} for record in whole["rounds"]
    ]
    return {**whole, "rounds": rounds}


@pytest.fixture(scope="module")
def survivors(yard: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Survivor]:
    with ThreadPoolExecutor(2) as pool:
        going = {
            name: pool.submit(_survive, tmp_path_factory.mktemp(name), yard, case)
            for name, case in CASES.items()
        }
    return {name: gone.result() for name, gone in going.items()}


@pytest.mark.parametrize("name", CASES)
def test_survivors_come_to_the_bits_of_a_run_never_troubled(
    survivors: dict[str, Survivor], untroubled: Path, name: str
) -> None:
    survivor = survivors[name]
    assert survivor.command.code == 0, survivor.command.err
    assert CASES[name].says in survivor.command.err
    unharmed = untroubled / CASES[name].like
    if CASES[name].same:
        assert _what_counts(survivor.run) == _what_counts(unharmed)
    else:
        assert lines_of(survivor.run) == len(rounds_of(unharmed))


def test_a_choice_by_losses_is_another_than_by_chance(untroubled: Path) -> None:
    """Else the runs that choose by them would show nothing of what becomes of losses."""
    assert outcome(untroubled / "choice")["model"] != outcome(untroubled / "whole")["model"]


def test_the_dead_stand_in_the_metrics(survivors: dict[str, Survivor]) -> None:
    records = [
        json.loads(line) for line in (survivors["asked"].run / "metrics.jsonl").read_text().splitlines()
    ]
    assert [record.get("ranks_lost") for record in records] == [None, None, [2], [2], [2], [2]]
    # as the world began
    assert [sorted(record["rank_seconds"]) for record in records[3:]] == [["1", "3"]] * 3


def test_what_the_dead_server_had_said_of_a_round_stands(
    survivors: dict[str, Survivor], untroubled: Path
) -> None:
    runs = (survivors["mirror"].run, untroubled / "whole")
    third, wanted = (json.loads((run / "metrics.jsonl").read_text().splitlines()[2]) for run in runs)
    assert third["bytes_sent"] == wanted["bytes_sent"] > 0
    assert sorted(third["rank_seconds"]) == ["1", "2", "3"]


def test_a_death_amid_scoring_changes_no_figure_of_its_round(
    survivors: dict[str, Survivor], untroubled: Path
) -> None:
    found, wanted = (rounds_of(run)[2] for run in (survivors["scoring"].run, untroubled / "whole"))
    assert found["test_accuracy"] == wanted["test_accuracy"]
    assert found["test_loss"] == pytest.approx(wanted["test_loss"], rel=1e-6)  # by other batches
    assert "the server scores what" not in survivors["scoring"].command.err


def test_a_score_behind_the_round_that_died_with_the_server_is_computed_again(
    survivors: dict[str, Survivor], untroubled: Path
) -> None:
    runs = survivors["behind"].run, untroubled / "whole"
    names = ("round", "train_loss", "test_loss", "test_accuracy", "silos")
    found, wanted = ([[one[name] for name in names] for one in rounds_of(run)] for run in runs)
    assert found == wanted
    assert outcome(runs[0])["model"] == outcome(runs[1])["model"]


@pytest.mark.parametrize(("rank", "told"), [(0, [0]), (2, []), pytest.param(0, [1], marks=pytest.mark.slow)])
def test_a_death_amid_the_last_word_on_who_is_ready_puts_nobody_out_of_step(
    yard: Path, untroubled: Path, tmp_path: Path, rank: int, told: list[int]
) -> None:
    """Some ranks have heard that all are ready and begin, and others would make ready again."""
    run, nodes, trouble = tmp_path / "run", {"MPIFL_RANKS_PER_NODE": "2"}, {"agreed": [rank, told]}
    arguments = train(yard / "steady.toml", run)
    with Command(tmp_path / "command", 4, *arguments, trouble=trouble, survive=True, **nodes) as command:
        assert command.end(LONGEST).code == 0, command.err
    assert f"finished without rank {rank}, which died" in command.err
    assert _what_counts(run) == _what_counts(untroubled / "whole")


def test_a_rank_that_hung_past_the_deadline_may_die_then(yard: Path, tmp_path: Path) -> None:
    run, hurry = tmp_path / "run", ["--set", "cohort.deadline=1", "--set", "cohort.quorum=0.1"]
    trouble = {"freeze": {"2": ["asked", "learn", 2]}}
    arguments = [*train(yard / "steady.toml", run), *hurry]
    with Command(tmp_path / "command", 3, *arguments, trouble=trouble, survive=True) as command:
        command.until(lambda: lines_of(run) >= 3, "two rounds without rank 2")
        os.kill(pid_of(run, 2), signal.SIGKILL)
        assert command.end(LONGEST).code == 0, command.err
    faults = [record["faults"] for record in rounds_of(run)]
    assert faults[1]
    assert not faults[5], "other ranks have its silos"
    assert "finished without rank 2, which died" in command.err


@pytest.mark.slow
def test_a_silo_that_no_other_rank_reads_is_left_out(yard: Path, digits: Path, tmp_path: Path) -> None:
    sizes = [
        silo["examples"]["train"]
        for silo in json.loads((digits / "many" / "federation.json").read_text())["silos"]
    ]
    silo = place(sizes, range(1, 4))[2][0]
    trouble = {"die": {"2": ("asked", "learn", 3)}, "blind": [[0, 1, 3], silo]}
    alone = ["--set", "cohort.fraction=0.2", "--set", "rounds=20", "--set", "checkpoint.every=10"]
    # a silo a round, and never the one left out
    arguments = train(yard / "steady.toml", tmp_path / "run", *alone)
    with Command(tmp_path / "c", 4, *arguments, trouble=trouble, survive=True) as command:
        assert command.end(LONGEST).code == 0, command.err
    assert " was lost: " not in command.err
    assert f"silo {silo} is left out, no rank can host it: " in command.err
    assert "is not on this machine" in command.err
    assert lines_of(tmp_path / "run") == 20


def test_the_ranks_option_starts_ranks_that_survive(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    run, trouble = tmp_path / "run", {"die": {"1": ("judged", "learn", 2)}}
    arguments = train(yard / "steady.toml", run, "--ranks", "3", "--survive")
    with Command(tmp_path / "command", 1, *arguments, trouble=trouble) as command:
        assert command.end(LONGEST).code == 0
    assert _what_counts(run) == _what_counts(untroubled / "whole")


def test_surviving_is_refused_where_the_launcher_ends_all(yard: Path, tmp_path: Path) -> None:
    with Command(
        tmp_path / "command", 2, *train(yard / "steady.toml", tmp_path / "run", "--survive")
    ) as command:
        assert command.end().code == 2
    (line,) = own_lines(command.err)
    assert line.startswith("error: --survive: the launcher ends all ranks when one dies")


@pytest.mark.slow
def test_a_fault_of_the_program_ends_all_survivors(yard: Path, tmp_path: Path) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run")
    trouble = {"server": 3}
    with Command(tmp_path / "command", 4, *arguments, trouble=trouble, survive=True, cold=True) as command:
        assert command.end(LONGEST).code
    assert command.err.count("ArithmeticError: the server stumbles") == 1
    assert len(rounds_of(tmp_path / "run")) == 2


@pytest.mark.parametrize("rank", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_death_among_ranks_that_meet_is_one_line(yard: Path, tmp_path: Path, rank: int) -> None:
    arguments = [HERE / "meeting.py", str(rank), *train(yard / "plain.toml", tmp_path / "run")[2:]]
    with Command(tmp_path / "command", 3, *arguments, survive=True) as command:
        assert command.end(LONGEST).code
    (line,) = own_lines(command.err)
    assert line == f"error: rank {rank} died before all ranks had met; run the same command again"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_death_before_there_is_a_world_ends_the_job(yard: Path, tmp_path: Path) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run", "--ranks", "3", "--survive")
    with Command(tmp_path / "command", 1, *arguments, cold=True, MPIFL_JOIN_SECONDS="3") as command:
        command.until(lambda: 1 in ranks_of(command.session), "its ranks")
        os.kill(ranks_of(command.session)[1], signal.SIGKILL)
        assert command.end(LONGEST).code
    assert own_lines(command.err)[-1].endswith("before the training began; run the same command again")
