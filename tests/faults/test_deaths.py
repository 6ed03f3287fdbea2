"""Ranks that fail, die or are asked to end: the job ends soon,
its checkpoint whole, and continues to the same bits."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults.conftest import Batch
from faults.processes import (
    Command,
    checkpoints,
    lines_of,
    outcome,
    own_lines,
    pid_of,
    rounds_of,
    train,
    tree,
)

SOON = 100
"""Seconds in which a job ends after one of its ranks has failed, on a loaded machine; ranks wait for 300."""
TERM, USR1 = signal.SIGTERM, signal.SIGUSR1


@dataclass
class Wreck:
    """A run that came to grief in its third round: its folder, and the command that has ended."""

    run: Path
    command: Command
    checkpoints: list[int]
    rounds: int


def _signalled(
    folder: Path, yard: Path, ranks: int, rank: int, signals: list[int], job: str = "steady"
) -> Wreck:
    """Signal one rank in the midst of the third round."""
    run = folder / "run"
    held = Command(folder / "command", ranks, *train(yard / f"{job}.toml", run), trouble={"hold": 3})
    with held as command:
        command.reached()
        for number in signals:
            os.kill(pid_of(run, rank), number)
        if signal.SIGKILL not in signals:
            command.release()
        command.end(SOON)
    return Wreck(run, command, checkpoints(run), lines_of(run))


def _troubled(folder: Path, yard: Path, ranks: int, job: str = "steady", **trouble: Any) -> Wreck:
    run = folder / "run"
    with Command(folder / "command", ranks, *train(yard / f"{job}.toml", run), trouble=trouble) as command:
        command.end()
    return Wreck(run, command, checkpoints(run), lines_of(run))


DYING = {"die": {"1": ["judged", "take_part", 3]}}
KINDS = {
    "worker-killed": lambda *where: _signalled(*where, ranks=3, rank=1, signals=[signal.SIGKILL]),
    "worker-term": lambda *where: _signalled(*where, ranks=3, rank=2, signals=[TERM]),
    "worker-usr1-usr1": lambda *where: _signalled(*where, ranks=2, rank=1, signals=[USR1, USR1]),
    "party-killed": lambda *where: _signalled(*where, ranks=3, rank=1, signals=[signal.SIGKILL], job="split"),
    "party-term": lambda *where: _signalled(*where, ranks=3, rank=2, signals=[TERM], job="split"),
    "timed-killed": lambda *where: _signalled(*where, ranks=3, rank=1, signals=[signal.SIGKILL], job="timed"),
    "fedasync-killed": lambda *where: _troubled(*where, ranks=3, job="fedasync", **DYING),
    "fedbuff-killed": lambda *where: _troubled(*where, ranks=3, job="fedbuff", **DYING),
    "fedcompass-killed": lambda *where: _troubled(*where, ranks=3, job="fedcompass", **DYING),
    "alone-term": lambda *where: _signalled(*where, ranks=1, rank=0, signals=[TERM]),
    "alone-usr1-term": lambda *where: _signalled(*where, ranks=1, rank=0, signals=[USR1, TERM]),
    "server-fails": lambda *where: _troubled(*where, ranks=3, server=3),
    "exchange-fails": lambda *where: _troubled(*where, ranks=3, exchange=3),
    "silos-fail": lambda *where: _troubled(*where, ranks=2, silos=list(range(1, 7)), **{"from": 3}),
}
SHORT = (
    "worker-killed",
    "worker-term",
    "party-killed",
    "party-term",
    "fedbuff-killed",
    "alone-usr1-term",
    "server-fails",
    "silos-fail",
)
"""What the suite looks at; all of them by MPIFL_SLOW=1."""
if not os.environ.get("MPIFL_SLOW"):
    KINDS = {name: KINDS[name] for name in SHORT}
INTERRUPTED = [kind for kind in KINDS if kind.endswith(("-term", "-usr1"))]
FAILING = [kind for kind in ("server-fails", "exchange-fails") if kind in KINDS]


def job_of(kind: str) -> str:
    """The job whose training came to grief; a party's is that of a split network, amid a dialogue."""
    name = kind.partition("-")[0]
    return {"party": "split"}.get(name, name if name.startswith(("fed", "timed")) else "steady")


@pytest.fixture(scope="session")
def wrecks(yard: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wreck]:
    """Every kind of wreck, made two at a time."""
    with ThreadPoolExecutor(2) as pool:
        making = {
            kind: pool.submit(make, tmp_path_factory.mktemp(kind), yard) for kind, make in KINDS.items()
        }
    return {kind: made.result() for kind, made in making.items()}


@pytest.fixture(scope="session")
def mended(wrecks: dict[str, Wreck], yard: Path, batch: Batch) -> dict[str, Any]:
    """Every wreck gone on with, on two ranks; what the server said of each."""
    commands = {
        kind: train(yard / f"{job_of(kind)}.toml", wreck.run, "--resume")[2:]
        for kind, wreck in wrecks.items()
    }
    return batch(2, commands)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wreck_goes_on_to_the_bits_of_a_run_never_troubled(
    wrecks: dict[str, Wreck], mended: dict[str, Any], kind: str, untroubled: Path
) -> None:
    assert mended[kind]["code"] == 0
    assert not mended[kind]["err"]
    whole = job_of(kind).replace("steady", "whole")
    assert outcome(wrecks[kind].run) == outcome(untroubled / whole)


@pytest.mark.parametrize("kind", INTERRUPTED)
def test_a_signal_ends_a_run_after_its_round_with_a_checkpoint(wrecks: dict[str, Wreck], kind: str) -> None:
    wreck = wrecks[kind]
    assert wreck.command.code == 75
    assert (wreck.rounds, max(wreck.checkpoints)) == (3, 3)
    assert f"--out {wreck.run} --resume" in wreck.command.out
    assert own_lines(wreck.command.err) == []


def test_a_signal_where_no_checkpoint_can_be_written_says_so(yard: Path, tmp_path: Path) -> None:
    arguments, trouble = train(yard / "steady.toml", tmp_path / "run"), {"full": [3, "*"], "hold": 3}
    with Command(tmp_path / "command", 1, *arguments, trouble=trouble) as command:
        command.reached()
        os.kill(command.session, USR1)
        assert command.release().end().code == 75
    assert "stopped by a signal and no checkpoint could be written; continue with: " in command.out
    assert command.err.count("the checkpoint of round 3 could not be written") == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("-killed")])
def test_a_killed_worker_ends_the_job(wrecks: dict[str, Wreck], kind: str) -> None:
    wreck = wrecks[kind]
    assert wreck.command.code
    assert (wreck.rounds, max(wreck.checkpoints)) == (2, 2)


def test_a_shard_that_is_cut_while_it_is_mapped_stands_in_the_last_line_of_its_rank(
    yard: Path, digits: Path, tmp_path: Path
) -> None:
    shutil.copytree(digits / "many", tmp_path / "shards")
    arguments = train(yard / "steady.toml", tmp_path / "run", "--set", f"shards={tmp_path / 'shards'}")
    with Command(tmp_path / "command", 2, *arguments, trouble={"hold": 3}) as command:
        command.reached()
        for file in (tmp_path / "shards").glob("silo_*.h5"):
            os.truncate(file, 4096)
        assert command.release().end(SOON).code
    (said,) = {line.partition(": ")[2] for line in own_lines(command.err) if "silo_0001.h5" in line}
    assert re.fullmatch(r"was cut from \d+ to 4096 bytes while it was mapped; restore it", said)
    assert lines_of(tmp_path / "run") == 2


@pytest.mark.parametrize("silo", [1, 2])
def test_a_line_that_is_not_finite_ends_the_training_in_a_line(yard: Path, tmp_path: Path, silo: int) -> None:
    """Silo 1 is the label holder's own, silo 2 speaks over MPI."""
    run = tmp_path / "run"
    arguments = train(yard / "split.toml", run)
    with Command(tmp_path / "command", 2, *arguments, trouble={"nan": [silo, 3]}) as command:
        assert command.end().code == 3
    (line,) = [line for line in own_lines(command.err) if line.startswith("error: ")]
    assert "round 3 was lost" in line
    assert "a line is not finite; training diverged, use a lower [local] lr" in line
    assert (lines_of(run), max(checkpoints(run))) == (2, 2)
    assert not (run / "model.safetensors").exists()


def test_a_line_longer_than_any_is_its_silos_fault_and_nobody_waits_for_it(
    yard: Path, tmp_path: Path
) -> None:
    arguments = train(yard / "split.toml", tmp_path / "run")
    with Command(tmp_path / "command", 2, *arguments, trouble={"long": [2, 3]}) as command:
        assert command.end().code == 3
    (line,) = [line for line in own_lines(command.err) if line.startswith("error: ")]
    assert "a line has shape [20000000, 1]: 80000000 bytes, and at most 67108864" in line


def test_too_few_answers_end_the_job_with_a_checkpoint(wrecks: dict[str, Wreck]) -> None:
    wreck = wrecks["silos-fail"]
    assert wreck.command.code == 3
    (line,) = [line for line in own_lines(wreck.command.err) if line.startswith("error: ")]
    assert "round 3 was lost" in line
    assert "--resume" in line
    assert "the data base is down" in line
    assert re.search(r"silo [1-6]: ", line)
    assert (wreck.rounds, max(wreck.checkpoints)) == (2, 2)


@pytest.mark.parametrize("kind", FAILING)
def test_a_failing_server_says_where_in_a_line_and_ends_the_job(wrecks: dict[str, Wreck], kind: str) -> None:
    wreck = wrecks[kind]
    assert wreck.command.code
    assert wreck.command.err.count("ArithmeticError: the server stumbles") == 1
    own = kind == "server-fails"  # in code of the user's own
    assert wreck.command.err.count("Traceback") == (not own)
    assert ("Steady.round: ArithmeticError: the server stumbles; MPIFL_DEBUG=1 " in wreck.command.err) == own
    assert (wreck.rounds, max(wreck.checkpoints)) == (2, 2)


def test_a_failing_worker_says_where_in_a_line_and_leaves_the_run_as_it_was(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(untroubled / "begun", run)
    before = tree(run)
    arguments = train(yard / "steady.toml", run, "--resume")
    with Command(tmp_path / "command", 3, *arguments, trouble={"model": 1}) as command:
        assert command.end().code
    assert "Traceback" not in command.err
    assert command.err.count("KeyError: 'no such layer'") == 1
    assert "rank 1: error: " in command.err
    assert tree(run) == before


def test_an_evaluation_that_fails_costs_no_training(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    arguments = train(yard / "steady.toml", tmp_path / "run")
    with Command(tmp_path / "command", 1, *arguments, trouble={"evaluate": 3}) as command:
        assert command.end().code == 0
    assert "the data base is down" in command.err
    got, wanted = rounds_of(tmp_path / "run"), rounds_of(untroubled / "whole")
    assert got[:2] + got[3:] == wanted[:2] + wanted[3:]
    assert got[2]["train_loss"] == wanted[2]["train_loss"]
    assert "silo_accuracy_mean" not in got[2]


def test_kills_at_any_moment_do_no_harm(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    anew = random.SystemRandom().randrange(1 << 32) if os.environ.get("MPIFL_SLOW") else 0
    seed = int(os.environ.get("FAULT_SEED", anew))
    print(f"the moments were drawn from FAULT_SEED={seed}")
    moments = random.Random(seed)
    run = tmp_path / "run"
    arguments = train(yard / "steady.toml", run, "--set", "rounds=12")

    some, moment = moments.randint(1, 4), moments.uniform(0, 0.1)
    # in a round or in a checkpoint
    with Command(tmp_path / "1", 3, *arguments, trouble={"hold": 9}) as command:
        command.until(lambda: lines_of(run) >= some, "some rounds")
        command.wait(moment)
        command.kill()
    assert checkpoints(run) or lines_of(run) < 2

    for ranks, pattern in ((1, "silo_*"), (2, moments.choice(["server.safetensors", "checkpoint.json"]))):
        torn = max(checkpoints(run), default=0) + moments.randint(1, 2)
        nth = moments.randint(1, 2) if pattern == "silo_*" else 1
        trouble = {"write": [torn, pattern, nth]}
        with Command(
            tmp_path / f"{ranks}-{pattern[:4]}", ranks, *arguments, "--resume", trouble=trouble
        ) as command:
            command.reached().kill()
        assert list(run.glob(f"checkpoints/round_{torn:06d}/.*.partial"))
        assert max(checkpoints(run)) == torn - 1
        assert lines_of(run) == torn

    for folder in (run, max(run.glob("checkpoints/round_*"))):
        (folder / ".metrics.jsonl.1.partial").write_text('{"round": 1')
    with Command(tmp_path / "last", 1, *arguments, "--resume") as command:
        assert command.end().code == 0
    assert f"round_{torn:06d}/checkpoint.json: missing or torn" in command.err
    assert outcome(run) == outcome(untroubled / "long")


@pytest.mark.parametrize(
    ("when", "survive"),
    [
        ("judged", False),
        *(pytest.param("asked", survive, marks=pytest.mark.slow) for survive in (False, True)),
    ],
)
def test_a_rank_that_hangs_for_ever_holds_up_nothing_but_its_rounds(
    tmp_path: Path, yard: Path, untroubled: Path, when: str, survive: bool
) -> None:
    run, hurry = tmp_path / "run", ["--set", "cohort.deadline=1", "--set", "cohort.quorum=0.1"]
    arguments = [*train(yard / "steady.toml", run), *hurry, "--set", "rounds=4"]
    trouble = {"freeze": {"2": [when, "learn", 3]}}
    with Command(tmp_path / "command", 3, *arguments, trouble=trouble, survive=survive) as command:
        command.end()
        assert command.code == 0 if survive else command.ended_hanging_ranks, command.err
    late, faults = "no answer within 1.0 s", [set(record["faults"].values()) for record in rounds_of(run)]
    assert faults[2:] == ([set(), {late}] if when == "judged" else [{late}] * 2)
    assert f"not evaluated: {late}" in command.err
    assert "ended without rank 2: no answer" in command.err
    assert (run / "model.safetensors").exists()
    if when == "judged":  # the server has made its share of the sum
        assert rounds_of(run)[2]["test_loss"] == rounds_of(untroubled / "whole")[2]["test_loss"]


def test_a_rank_that_hangs_while_it_scores_costs_its_share_alone(
    tmp_path: Path, yard: Path, untroubled: Path
) -> None:
    """Its silos are missed by the next round, and no figure of the server's test set is."""
    run, hurry = tmp_path / "run", ["--set", "cohort.deadline=1", "--set", "cohort.quorum=0.1"]
    scored = ["--set", "evaluate.where=workers", "--set", "evaluate.batch_size=50", "--set", "rounds=3"]
    trouble = {"freeze": {"2": ["asked", "score_batches", 2]}}
    arguments = [*train(yard / "steady.toml", run), *hurry, *scored]
    with Command(tmp_path / "command", 3, *arguments, trouble=trouble) as command:
        assert command.end().ended_hanging_ranks, command.err
    assert command.err.count("the server scores what rank 2 was to: no answer") == 1
    records = rounds_of(run)
    assert [len(record["faults"]) > 0 for record in records] == [False, False, True]
    figures, wanted = (
        [one[1][name] for name in ("test_loss", "test_accuracy")]
        for one in (records, rounds_of(untroubled / "whole"))
    )
    assert figures[1] == wanted[1]
    assert figures[0] == pytest.approx(wanted[0], rel=1e-6)


def _hangs_on_the_way(folder: Path, yard: Path, when: str, hurry: tuple[str, ...]) -> list[dict[str, Any]]:
    """Have rank 3, which leads no node, stop for ever with pieces of a vector; return what rounds brought."""
    run = folder / "run"
    arguments = [*train(yard / "steady.toml", run), *hurry, "--set", "cohort.quorum=0.1"]
    trouble = {"freeze": {"3": [when, "learn", 3]}}
    variables = {"MPIFL_RANKS_PER_NODE": "2", "MPIFL_TRANSFER_TIMEOUT": "2"}
    with Command(folder / "command", 4, *arguments, trouble=trouble, **variables) as command:
        assert command.end(120).ended_hanging_ranks, command.err
    assert "ended without rank 3: no answer" in command.err
    assert (run / "model.safetensors").exists()
    return rounds_of(run)


HURRIES = [(), pytest.param(("--set", "cohort.deadline=3"), marks=pytest.mark.slow)]


@pytest.mark.parametrize("hurry", HURRIES, ids=["without-deadline", "deadline"])
def test_a_rank_that_hangs_with_its_pieces_of_a_sum_between_nodes_costs_an_attempt(
    tmp_path: Path, yard: Path, hurry: tuple[str, ...]
) -> None:
    """The rank that waits for its pieces goes on without them, and so does its node."""
    records = _hangs_on_the_way(tmp_path, yard, "carrying", hurry)
    (why,) = records[2]["attempts_lost"]
    # silos are dealt to ranks that are free: one that got none has no part in the mean, and is no suspect
    assert re.search(r"the mean of '\w+' is not finite; suspected: (rank 2|rank 3|ranks 2, 3)$", why)
    late = "no answer within 3.0 s" if hurry else "its rank fell silent"
    faults = [set(record["faults"].values()) for record in records]  # not every round asks its silos
    assert (faults[:2], set().union(*faults)) == ([set(), set()], {late})


@pytest.mark.parametrize("hurry", HURRIES, ids=["without-deadline", "deadline"])
def test_a_rank_that_hangs_with_pieces_of_a_request_costs_its_node_the_round(
    tmp_path: Path, yard: Path, hurry: tuple[str, ...]
) -> None:
    """Its neighbours say that the vectors did not come; from then on it carries nothing for them."""
    records = _hangs_on_the_way(tmp_path, yard, "receiving", hurry)
    late = "no answer within 3.0 s" if hurry else "its rank fell silent"
    faults = [set(record["faults"].values()) for record in records]
    undelivered = "the vectors of 'learn' did not come: a rank on their way hangs"
    assert faults[:2] == [set(), set()]
    assert undelivered in faults[2]
    assert not any(faults[3:]) or set().union(*faults[3:]) == {late}


def test_a_rank_that_stops_when_all_is_done_is_not_waited_for_by_survivors(
    tmp_path: Path, yard: Path
) -> None:
    run, hurry = tmp_path / "run", ["--set", "cohort.deadline=1", "--set", "rounds=1"]
    arguments = [*train(yard / "steady.toml", run), *hurry]
    trouble = {"freeze": {"2": ["leaving", "stop", 0]}}
    with Command(tmp_path / "command", 3, *arguments, trouble=trouble, survive=True) as command:
        assert command.end().code == 0, command.err
    assert (run / "model.safetensors").exists()


def test_a_late_rank_is_left_out_of_the_round_and_asked_again(tmp_path: Path, yard: Path) -> None:
    hurry = ["--set", "cohort.deadline=1", "--set", "cohort.quorum=0.1", "--set", "cohort.fraction=1.0"]
    arguments = [*train(yard / "steady.toml", tmp_path / "run"), *hurry]
    with Command(tmp_path / "command", 3, *arguments, trouble={"slow": [1, 3, 2.5]}) as command:
        assert command.end().code == 0, command.err
    faults = [record["faults"] for record in rounds_of(tmp_path / "run")]
    assert faults[2]["1"] == "no answer within 1.0 s"
    assert "1" not in faults[1]
    assert "1" not in faults[5]
    assert (tmp_path / "run" / "model.safetensors").exists()
