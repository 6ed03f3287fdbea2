"""One rank sends whatever it likes: no model is wrong, no run hangs, no other rank dies, and the fault names
it.

A world trains with an attack in each round. What it comes to is held against a training in which the same
silos merely failed in the same rounds: the exact mean of the others, to the bit.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from faults.attacks import (
    ATTACKS,
    DEADLINE,
    FOLLOWER,
    HARMLESS,
    LEADER,
    MEDIAN,
    MEDIAN_NODES,
    MISPLACED,
    ONCE,
    ONE_NODE,
    RFA,
    RFA_NODES,
    STOPPED,
    Attack,
)
from faults.conftest import Batch
from faults.processes import Command, checkpoints, rounds_of, train
from safetensors.torch import load_file
from scenarios import job
from unit.builders import make_worker, write_folder

from mpifl.algorithms.algorithm import Algorithm
from mpifl.exchange.server_side.placement import place
from mpifl.wire.requests import Compute
from mpifl.wire.update import Update

ONLY = os.environ.get("ATTACKS", "")
"""To try some attacks alone: a regular expression that their names fit."""
NEAR = "part-alone-weighs-(double|nothing)"
"""What a follower is not tried with: it means nothing on its node."""
EVERY = 5
"""Rounds between checkpoints."""
SLOW = bool(os.environ.get("MPIFL_SLOW"))
LONGEST = 500
"""Characters that a fault may have."""
LATE = f"no answer within {DEADLINE} s"


@dataclass(frozen=True)
class World:
    """Some ranks, one of them hostile."""

    name: str
    ranks: int
    hostile: int
    per_node: int | None = None
    rule: str = "mean"

    @property
    def environment(self) -> dict[str, str]:
        return {"MPIFL_RANKS_PER_NODE": str(self.per_node)} if self.per_node else {}

    @property
    def attacks(self) -> list[Attack]:
        where = {self.name, LIKE.get(self.name)}
        found = [one for one in ATTACKS if re.search(ONLY, one.name) and where & {*one.where}]
        return [one for one in found if self.name != FOLLOWER or not re.match(NEAR, one.name)]

    @property
    def shares(self) -> bool:
        """Whether the hostile rank has a neighbour who reads its sums."""
        return self.name != LEADER and self.rule == "mean"


WORLDS = {
    ONE_NODE: World(ONE_NODE, 3, hostile=1),
    FOLLOWER: World(FOLLOWER, 4, hostile=3, per_node=2),
    LEADER: World(LEADER, 3, hostile=2, per_node=2),
    MEDIAN: World(MEDIAN, 3, hostile=1, rule="median"),
    MEDIAN_NODES: World(MEDIAN_NODES, 4, hostile=3, per_node=2, rule="median"),
    RFA: World(RFA, 3, hostile=1, rule="rfa"),
    RFA_NODES: World(RFA_NODES, 4, hostile=3, per_node=2, rule="rfa"),
}
LIKE = {FOLLOWER: ONE_NODE, RFA: MEDIAN, RFA_NODES: MEDIAN_NODES}
"""Worlds that are tried with what others are tried with."""
PLAYED = [name for name in WORLDS if SLOW or name not in LIKE]
"""The worlds that the suite plays; all of them by MPIFL_SLOW=1."""
CASES = [
    pytest.param(name, attack, id=f"{name}-{attack.name}")
    for name in PLAYED
    for attack in WORLDS[name].attacks
]


@dataclass
class Plan:
    """Which attack is made in which round, and who is asked then."""

    world: World
    shards: Path
    attacks: Sequence[Attack]

    def __post_init__(self) -> None:
        federation = json.loads((self.shards / "federation.json").read_text())
        placed = place(
            [silo["examples"]["train"] for silo in federation["silos"]], range(1, self.world.ranks)
        )
        self.own = placed[self.world.hostile]
        self.others = sorted({silo for silos in placed.values() for silo in silos} - set(self.own))
        self.spared = self.own[-1]
        self.rounds: dict[int, Attack] = {}
        self.last = 3  # two rounds without an attack, so that everybody has mapped everybody's memory
        for attack in self.attacks:
            if attack.at in ("save", "save_status"):
                self.last += -self.last % EVERY
            if attack.at not in ONCE:
                self.rounds[self.last] = attack
                self.last += 1
        self.once = {attack.at: attack for attack in self.attacks if attack.at in ONCE}

    def asked(self, round: int) -> list[int]:
        """The silos of a round."""
        how = self.rounds[round].asked if round in self.rounds else "some"
        own = [silo for silo in self.own if silo != self.spared]
        return sorted(
            {"some": own + self.others, "one": own[:1] + self.others, "most": own + self.others[:1]}[how]
        )

    def round_of(self, attack: Attack) -> int:
        """The round that the request is of which an attack answers."""
        if attack.at in ONCE:
            return {"finish": self.last, "start": -1}.get(attack.at, 0)
        return next(round for round, other in self.rounds.items() if other is attack)

    def hostile(self, made: Path, **more: Any) -> str:
        """What the hostile rank is to do."""
        rounds: defaultdict[str, list[str]] = defaultdict(list)
        for round, attack in [
            *self.rounds.items(),
            *((self.round_of(one), one) for one in self.once.values()),
        ]:
            rounds[str(round)].append(attack.name)
        who = {"rank": self.world.hostile, "foreign": self.others[0], "spared": self.spared}
        return json.dumps({**who, "rounds": rounds, "made": str(made), **more})

    def names_the_hostile(self, why: str) -> bool:
        """Whether a line says who is to blame."""
        own = "|".join(map(str, self.own))
        return re.search(rf"\branks? (\d+, )*{self.world.hostile}\b|\bsilo ({own})\b", why) is not None

    def job(self, folder: Path, **algorithm: Any) -> Path:
        """Write the job, whose algorithm has these keys besides."""
        table = job(
            self.world.name,
            shards=str(self.shards),
            rounds=self.last,
            model={"name": "plugins:perceptron"},
            algorithm={
                "name": "hostile:Attacked",
                "cohorts": [self.asked(round) for round in range(1, self.last + 1)],
                **algorithm,
            },
            local={"lr": 0.02, "batch_size": 32},
            cohort={"quorum": 0.1},
            aggregation={"rule": self.world.rule},
            checkpoint={"every": EVERY},
        )
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.world.name}.toml"
        file.write_text(tomli_w.dumps(table))
        return file


@dataclass
class Played:
    """A training under attack, and how it ended."""

    plan: Plan
    run: Path
    command: Command

    @cached_property
    def records(self) -> dict[int, dict[str, Any]]:
        return {record["round"]: record for record in map(json.loads, (self.run / "metrics.jsonl").open())}

    @cached_property
    def made(self) -> list[str]:
        """What the hostile rank says that it did: a round and a name each."""
        return (self.command.folder / "made").read_text().splitlines()

    @cached_property
    def unscored(self) -> dict[int, dict[int, str]]:
        """Why silos were not evaluated, in each round."""
        lines = (self.command.folder / "made.scores").read_text().splitlines()
        scored = [(one["round"], one["unscored"]) for one in map(json.loads, lines)]
        return {round: {int(silo): fault for silo, fault in faults.items()} for round, faults in scored}

    @property
    def said(self) -> str:
        return self.command.out + self.command.err

    def failing(self) -> dict[str, Any]:
        """The keys of the algorithm with which the same silos fail in the same rounds."""
        faults = {
            str(n): [int(k) for k in record["faults"]]
            for n, record in self.records.items()
            if record["faults"]
        }
        return {"failing": faults, "unscored": {str(n): list(silos) for n, silos in self.unscored.items()}}


def _play(
    plan: Plan, folder: Path, deadline: float | None = DEADLINE, patience: int = 2, **more: Any
) -> Played:
    hurry = ["--set", f"cohort.deadline={deadline}"] if deadline else []
    arguments = train(plan.job(folder), folder / "run", *hurry)
    made = folder / "command" / "made"
    environment = {
        **plan.world.environment,
        "HOSTILE": plan.hostile(made, **more),
        "MPIFL_TRANSFER_TIMEOUT": str(patience),
    }
    with Command(folder / "command", plan.world.ranks, *arguments, **environment) as command:
        command.end(240)
    return Played(plan, folder / "run", command)


@pytest.fixture(scope="session")
def played(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """The worlds after all attacks, played two at a time."""
    folder = tmp_path_factory.mktemp("attacks")
    plans = {name: Plan(WORLDS[name], digits / "many", WORLDS[name].attacks) for name in PLAYED}
    # a leader whose sum is late once is asked for none any more: one that merely sleeps must be in time
    patience = {LEADER: 20}
    with ThreadPoolExecutor(2) as pool:
        playing = {
            name: pool.submit(_play, plan, folder / name, patience=patience.get(name, 2))
            for name, plan in plans.items()
        }
    return {name: one.result() for name, one in playing.items() if not one.exception()}


@pytest.fixture(scope="session")
def harmless(played: dict[str, Played], batch: Batch) -> dict[str, Path]:
    """For each world the run in which the silos fail that were left out under attack,
    and nobody is hostile."""
    runs = {name: one.run.with_name("harmless") for name, one in played.items()}
    jobs = {name: one.plan.job(one.run.parent / "failing", **one.failing()) for name, one in played.items()}
    (done,) = batch(1, {name: train(jobs[name], runs[name])[2:] for name in runs})
    assert [result["code"] for result in done.values()] == [0] * len(runs), done
    return runs


def _told(one: Played, attack: Attack) -> list[str]:
    """What was said of an attack: why silos were left out,
    an attempt was lost, a checkpoint came to nothing."""
    round = one.plan.round_of(attack)
    made = f"{round} {attack.name}" in one.made
    assert made, f"the attack was not made; the world ended with {one.command.code} after {one.made[-1:]}"
    if attack.at == "open":
        return re.findall(r"^continuing without silo \d+ while it is broken: (.*)$", one.said, re.M)
    if attack.at in ("save", "save_status"):
        return re.findall(
            rf"^the checkpoint of round {round} could not be written \((.*)\); training", one.said, re.M
        )
    if attack.at == "evaluate":
        return list(one.unscored[round].values())
    if attack.at == "train":
        return [*one.records[round]["faults"].values(), *one.records[round].get("attempts_lost", ())]
    return []


@pytest.mark.parametrize(("world", "attack"), CASES)
def test_an_attack_costs_the_hostile_rank_its_updates_and_nobody_else_anything(
    played: dict[str, Played], world: str, attack: Attack
) -> None:
    one = played[world]
    told = _told(one, attack)
    if attack.ends != HARMLESS:
        assert told, "all that it said counted"
        assert re.search(attack.word, told[0], re.I) or told[0] == LATE, told
    for why in told:
        assert len(why) <= LONGEST
        assert why.isprintable()
    record = one.records.get(one.plan.round_of(attack), {}) if attack.at not in ONCE else {}
    faults = {*map(int, record.get("faults", ())), *one.unscored.get(record.get("round", 0), ())}
    assert faults <= set(one.plan.own), "silos of others were left out"
    for why in record.get("attempts_lost", ()):
        assert attack.ends in (STOPPED, HARMLESS) or (attack.ends, WORLDS[world].per_node) == (
            MISPLACED,
            2,
        ), why
        assert one.plan.names_the_hostile(why), why


def _brought(record: dict[str, Any]) -> dict[str, Any]:
    """What a round brought, without what lost attempts cost, and why, without a number that the attacker
    alone sends, and without what each rank counted in the columns that it made, which is its own word."""
    costs = ("faults", "attempts_lost", "bytes_sent", "extra_", "means_over", "outside")
    return {name: value for name, value in record.items() if not name.startswith(costs)}


@pytest.mark.parametrize("world", PLAYED)
def test_all_attacks_together_end_at_the_mean_of_those_who_counted(
    played: dict[str, Played], harmless: dict[str, Path], world: str
) -> None:
    one = played[world]
    assert one.command.code == 0, one.said[-2000:]
    for attacked, untroubled in zip(rounds_of(one.run), rounds_of(harmless[world]), strict=True):
        assert _brought(attacked) == _brought(untroubled), one.plan.rounds.get(attacked["round"])
    model = "model.safetensors"
    assert (one.run / model).read_bytes() == (harmless[world] / model).read_bytes()


@pytest.mark.parametrize("world", PLAYED)
def test_what_is_said_under_attack_is_lines_of_text(played: dict[str, Played], world: str) -> None:
    _only_lines_of_text(played[world].said)


def _only_lines_of_text(said: str) -> None:
    assert "Traceback" not in said
    lines = said.replace("\0", "").splitlines()  # the launcher's own block may end with one
    assert [line for line in lines if not line.isprintable()] == []
    assert max(map(len, lines)) < 2 * LONGEST


@pytest.mark.parametrize("world", PLAYED)
def test_what_a_round_cost_is_a_figure_that_it_can_have_cost(played: dict[str, Played], world: str) -> None:
    for record in played[world].records.values():
        for name, value in _numbers(record):
            assert math.isfinite(value), name
            assert not name.startswith("seconds") or 0 <= value < 3600, (
                f"round {record['round']}: {name} = {value}"
            )
        assert 0 <= record["bytes_received"] < 1e9


def _numbers(record: dict[str, Any]) -> Iterator[tuple[str, float]]:
    spent = {f"seconds {k} {rank}": v for rank, one in record["rank_seconds"].items() for k, v in one.items()}
    yield from (
        (name, value) for name, value in {**record, **spent}.items() if isinstance(value, int | float)
    )


def _alone(digits: Path, world: str, *names: str) -> Plan:
    return Plan(WORLDS[world], digits / "many", [attack for attack in ATTACKS if attack.name in names])


def _finite(run: Path) -> bool:
    states = [load_file(path) for path in run.glob("checkpoints/round_*/server.safetensors")]
    return bool(states) and all(
        bool(vector.isfinite().all()) for state in states for vector in state.values()
    )


AGAIN = [(ONE_NODE, "sum-nan"), pytest.param(LEADER, "sum-between-nodes-nan", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("world", "name"), AGAIN)
def test_a_rank_that_sends_nan_again_and_again_ends_the_run_with_its_name(
    digits: Path, tmp_path: Path, world: str, name: str
) -> None:
    one = _play(_alone(digits, world, name), tmp_path, always=True)
    assert one.command.code == 3
    assert "Traceback" not in one.said
    assert re.search(rf"error: round 3 was lost: .*\brank {one.plan.world.hostile}\b", one.command.err)
    assert not (one.run / "model.safetensors").exists()
    assert checkpoints(one.run) == [2]
    assert _finite(one.run)


def test_a_model_beyond_all_numbers_is_never_written(digits: Path, tmp_path: Path, batch: Batch) -> None:
    job, run = Plan(WORLDS[ONE_NODE], digits / "many", []).job(tmp_path, far=True), tmp_path / "run"
    (done,) = batch(1, {"far": train(job, run, "--set", "checkpoint.every=1")[2:]})
    assert done["far"]["code"] == 3
    assert "Traceback" not in done["far"]["err"]
    assert not (run / "model.safetensors").exists()
    assert _finite(run)


SILENT = [MEDIAN, *(pytest.param(one, marks=pytest.mark.slow) for one in (LEADER, ONE_NODE, FOLLOWER))]


@pytest.mark.parametrize("world", SILENT)
def test_a_rank_that_falls_silent_when_it_has_only_to_hand_over_is_given_up(
    digits: Path, tmp_path: Path, batch: Batch, world: str
) -> None:
    made = ["0 opening-control-characters", "3 stopped-when-judged"]
    one = _play(_alone(digits, world, *(name.split()[1] for name in made)), tmp_path, deadline=None)
    assert one.command.ended_hanging_ranks, one.said
    _only_lines_of_text(one.said)
    assert f"ended without rank {one.plan.world.hostile}: no answer" in one.said
    assert one.made == made
    (done,) = batch(
        1, {"plain": train(one.plan.job(tmp_path / "plain", **one.failing()), tmp_path / "harmless")[2:]}
    )
    assert done["plain"]["code"] == 0
    model = "model.safetensors"
    assert (one.run / model).read_bytes() == (tmp_path / "harmless" / model).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["starting-control-characters", "starting-unreadable", "finishing-control-characters"]
)
def test_what_ends_a_run_at_a_ranks_word_is_one_line(digits: Path, tmp_path: Path, name: str) -> None:
    one = _play(_alone(digits, ONE_NODE, name), tmp_path)
    assert len(one.made) == 1
    assert one.command.code == 2
    assert one.command.err.startswith("error: ")
    _only_lines_of_text(one.said)


class Offering(Algorithm):
    """Offers `train` as work, and has what a hostile server would rather call."""

    def round(self, server: Any, cohort: Any) -> dict[str, float]:
        raise AssertionError("called at a worker")

    def train(self, silo: Any) -> Update:
        return silo.update(weight=float(silo.examples), v=torch.ones(3))

    def _secret(self, silo: Any) -> Update:
        raise AssertionError("called by its private name")


NO_WORK = [
    "",
    "round",
    "begin",
    "check",
    "personal_model",
    "model_dump",
    "copy",
    "__init__",
    "__class__",
    "_secret",
]


@pytest.mark.parametrize(
    "name", [*NO_WORK, "local", "server_optimizer", "train.__func__", "x" * 100_000, "\x1b[2J"]
)
def test_a_hostile_server_has_a_worker_call_nothing_but_work(tmp_path: Path, name: str) -> None:
    worker = make_worker(tmp_path, write_folder(tmp_path, [4]), Offering())
    (header,) = worker.answer(Compute(work=name, cohort=[0]), {}).headers
    assert header.fault is not None
    assert "work" in header.fault
    assert len(header.fault) <= LONGEST
    assert header.fault.isprintable()
