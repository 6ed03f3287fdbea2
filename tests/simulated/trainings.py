"""Trainings in simulated worlds: the ways that are tried, and what comes of a schedule."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from mpifl.common import DeviceLost, InputError, Misled, RoundLost, StartLost, Unwritable
from mpifl.data.shards import open_shard, open_vertical
from mpifl.run.folder import checkpoint, serialization
from mpifl.silo import ALONE
from mpifl.training.beforehand import about_bits, about_plain
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching import met
from tests.simulated.disks import Disk
from tests.simulated.schedule import Schedule
from tests.simulated.simulated_platform import Leaves, SimulatedPlatform, installed
from tests.simulated.world import Rank, World
from tests.unit.builders import write_folder, write_vertical_folder

SIZES = [6, 9, 14, 7, 20]
ROUNDS = 3
WRONG, TOO_FEW, CUT_OFF, ABORTED = 2, 3, 4, 1
TURNS = {"LONG": 8, "PIECE": 16}
"""Bytes from which on a vector goes by turns, and of a piece, so that 15 parameters are long."""


@dataclass(frozen=True)
class Way:
    """What is trained.

    Attributes:
        keys: Of the job, beside the usual.
        columns: Whether silos have columns of the same rows.
        stateful: Whether silos keep what a death may lose, so that other bits may come of one.
        mean: A vector of the server's state, and one of silos', of which it must stay the mean.
        survives: Whether it may be started so that ranks outlive others.
        loses: Whether a death may end it with a line: silos stay where they are, or a deadline passes before
            the death is noticed.
        patches: Constants, by their dotted name.
        share: How often it is drawn; a way that traces its steps takes four times as long.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    columns: bool = False
    stateful: bool = False
    mean: tuple[str, str] | None = None
    survives: bool = True
    loses: bool = False
    patches: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0


RANKS = (2, 3, 3, 3, 4, 4, 5)
"""How many ranks a training may have beside one; what stands there thrice is drawn as often."""
MOVES = {
    "mpifl.exchange.server_side.placement.WORTH": 0.0,
    "mpifl.exchange.server_side.placement.GAIN": 0.0,
    "mpifl.exchange.server_side.workload.MEASURED": 1,
}
"""Has silos move whenever one rank took longer than another."""
MOMENTUM = {"name": "sgd", "lr": 0.7, "momentum": 0.9}
SPLIT = {
    "algorithm": {"name": "splitnn"},
    "model": {"name": "mlp", "hidden": [4]},
    "split": {"cut_width": 5, "top": {"name": "mlp", "hidden": [6]}},
    "rounds": 2,
}
MASKED = {"security": {"least": 1}, "seed": 77, "cohort": {"quorum": 0.5}}
WAYS = {
    "fedavg": Way(),
    "momentum": Way({"server_optimizer": MOMENTUM, "cohort": {"fraction": 0.6}}),
    "scaffold": Way({"algorithm": {"name": "scaffold"}}, stateful=True, mean=("c", "c")),
    "median": Way({"aggregation": {"rule": "median"}}),
    "krum": Way({"aggregation": {"rule": "krum", "byzantine": 1}}),
    "masks": Way(MASKED, stateful=True, loses=True),
    "accumulated": Way({"local": {"accumulate_batches": 2, "batch_size": 4}}),
    "batched": Way({"local": {"batch_silos": True}}, share=0.2),
    "mirror": Way({"checkpoint": {"mirror": True, "every": 2}, "server_optimizer": MOMENTUM}),
    "workers": Way({"evaluate": {"every": 1, "where": "workers", "batch_size": 5}}),
    "columns": Way(SPLIT, columns=True, survives=False),
    "moves": Way(patches=MOVES),
    "deadline": Way({"cohort": {"deadline": 0.5, "quorum": 0.4}}, loses=True),
}


@dataclass
class Ended:
    """How a simulated training ended.

    Attributes:
        world: The last of its worlds, whose threads still stand.
        model: The model's sha256, "" if there is none.
        rounds: The rounds of metrics.jsonl.
        late: How many silos' answers were missing.
        notes: What is wrong with the state that a way keeps, "" if nothing.
    """

    world: World
    model: str
    rounds: list[int]
    late: int
    notes: str


class Yard:
    """A folder in memory where trainings of one process run, one after another."""

    def __init__(self, root: Path) -> None:
        self.root = root = root.resolve()
        self.run = root / "run"
        write_folder(root / "rows", SIZES, test=12)
        write_vertical_folder(root / "columns", {"train": 12, "test": 6})
        self.site = root / "site"
        self._opened: dict[Any, Any] = {}
        self._bits: dict[str, dict[str, str]] = {}
        self._way = ""
        self.last: World

    def job(self, way: Way) -> dict[str, Any]:
        """Return the job of a way."""
        usual: dict[str, Any] = {
            "name": "simulated",
            "shards": str(self.root / ("columns" if way.columns else "rows")),
            "rounds": ROUNDS,
            "threads": 1,
            "device": "cpu",
            "model": {"name": "logreg"},
            "algorithm": {"name": "fedavg"},
            "local": {"lr": 0.1, "batch_size": 8},  # in an order that a round draws
            "evaluate": {"every": 2},
            "checkpoint": {"every": 1},
        }
        for name, value in way.keys.items():
            usual[name] = (
                {**usual.get(name, {}), **value} if isinstance(value, dict) and name != "algorithm" else value
            )
        return usual

    @functools.cached_property
    def truths(self) -> dict[str, Ended]:
        """What each way comes to in a calm world of one rank, as it is asked for."""
        return {}

    def truth(self, way: str) -> Ended:
        """Return what a way comes to in a calm world of one rank."""
        if way not in self.truths:
            found = self.tried(Schedule(way=way, ranks=1, surprises=0))
            found.world.close()
            said = found.world.hang or found.world.ranks[0].said
            assert found.model, f"{way} does not come to its end in a calm world of one rank: {said}"
            self.truths[way] = found
        return self.truths[way]

    def tried(self, schedule: Schedule) -> Ended:
        """Run a schedule; whoever asks looks at what came of it and closes its world."""
        way, self._way = WAYS[schedule.way], schedule.way
        shutil.rmtree(self.run, ignore_errors=True)
        self._clear_site()
        with self._settled(schedule, way):
            world = World(schedule, schedule.ranks, halt=schedule.halt)
            world.disk = Disk(self.run, schedule.disk, schedule.power is not None)
            world.run(functools.partial(self._live, world, way, False))
            if schedule.resume and self._stopped(world):
                world = self._gone_on(world, schedule, way)
            self.last = world
            return self._ended(world, way)

    def _stopped(self, world: World) -> bool:
        """Whether a world has ended before its time, as it may: by a kill, a signal or a full disk."""
        errors = [rank.error for rank in world.ranks if rank.error is not None]
        if world.hang or not all(isinstance(error, LINES) for error in errors):
            return False
        return world.halted or bool(errors) or not (self.run / "model.safetensors").exists()

    def _gone_on(self, killed: World, schedule: Schedule, way: Way) -> World:
        """Continue with the run folder as it was when all were killed: unwinding stacks write no more."""
        left = self.run.with_name("left")
        shutil.rmtree(left, ignore_errors=True)
        if self.run.exists():
            shutil.copytree(self.run, left)
        killed.close()
        shutil.rmtree(self.run, ignore_errors=True)
        if killed.halted and schedule.power is not None:
            killed.disk.restore(schedule.power)
        elif left.exists():
            left.rename(self.run)
        files = sorted((self.run / "checkpoints").rglob("*.*"))
        if killed.halted and schedule.torn is not None and files:
            torn = files[schedule.torn % len(files)]
            torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
        assert schedule.resume is not None
        plain = dataclasses.replace(schedule, kill=(), then=None, late=(), survive=False, **CALM)
        world = World(plain, schedule.resume, stream=1)
        world.disk, world.faults = Disk(self.run, None, False), list(killed.faults)
        world.run(functools.partial(self._live, world, way, True))
        return world

    def _clear_site(self) -> None:
        shutil.rmtree(self.site, ignore_errors=True)
        self.site.mkdir(mode=0o700)
        (self.site / "key").write_bytes(bytes(range(32)))
        (self.site / "key").chmod(0o600)

    @contextlib.contextmanager
    def _settled(self, schedule: Schedule, way: Way) -> Iterator[None]:
        variables = {
            "OMPI_MCA_mpi_ft_enable": "1" if schedule.survive else "0",
            "MPIFL_TRANSFER_TIMEOUT": str(schedule.timeout),
            "MPIFL_SITE": str(self.site),
        }
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, variables))
            os.environ.pop("MPIFL_RANKS_PER_NODE", None)
            if schedule.turns:
                for name, value in TURNS.items():
                    stack.enter_context(mock.patch(f"mpifl.wire.relayed_broadcast.{name}", value))
            for name, value in way.patches.items():
                stack.enter_context(mock.patch(name, value))
            yield

    @contextlib.contextmanager
    def _settled_for_all(self) -> Iterator[None]:
        """Have what holds of all schedules: what is simulated, and what would be the same each time."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch("mpifl.training.build.open_shard", self._once(open_shard)))
            stack.enter_context(
                mock.patch("mpifl.wings.split.split_training.open_vertical", self._once(open_vertical))
            )
            hosting = "mpifl.training.hosting"
            stack.enter_context(mock.patch(f"{hosting}.about_bits", self._about_bits))
            stack.enter_context(mock.patch(f"{hosting}.about_plain", functools.cache(about_plain)))
            stack.enter_context(mock.patch("mpifl.training.build.lanes_of", return_value=ALONE))
            # the same where no accelerator is, whose streams it would note with a stack of calls each time
            stack.enter_context(mock.patch.object(torch, "manual_seed", torch.default_generator.manual_seed))
            stack.enter_context(installed())
            yield

    def _about_bits(self, model: Any, *of: Any) -> dict[str, str]:
        """Say what this processor rounds, which it tries once for each way."""
        if self._way not in self._bits:
            self._bits[self._way] = about_bits(model, *of)
        return self._bits[self._way]

    def _once(self, opens: Callable[..., Any]) -> Callable[..., Any]:
        """Open each shard once a process: HDF5 is parsed by another."""

        def opened(folder: Path, entry: Any, *more: Any, **options: Any) -> Any:
            key = str(folder), entry.file
            if key not in self._opened:
                self._opened[key] = opens(folder, entry, *more, **options)
            return self._opened[key]

        return opened

    def _live(self, world: World, way: Way, resume: bool, rank: Rank) -> int:
        """Live as a rank of `mpifl train` does, to its exit code."""
        platform = SimulatedPlatform(world, rank)
        try:
            code = self._code(world, way, resume, rank, platform)
            platform.leave(code)
        except Leaves as leaves:
            return leaves.code

    def _code(self, world: World, way: Way, resume: bool, rank: Rank, platform: SimulatedPlatform) -> int:
        try:
            rank.transport = met(platform)
            train(self.job(way), self.run, (), resume, rank.transport, wings_of=wings_of)
            return 0
        except (InputError, RoundLost, StartLost, Misled, DeviceLost) as error:
            rank.error, rank.said = error, str(error)
            if isinstance(error, Misled | DeviceLost):
                world.die(rank)
            if isinstance(error, StartLost):
                world.aborted = True
                platform.end_launcher()
            return WRONG if isinstance(error, InputError) else TOO_FEW
        except Exception as error:
            rank.error, rank.said = error, traceback.format_exc()
            world.aborted = True
            platform.end_launcher()

    def _ended(self, world: World, way: Way) -> Ended:
        model, metrics = self.run / "model.safetensors", self.run / "metrics.jsonl"
        records = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
        return Ended(
            world,
            hashlib.sha256(model.read_bytes()).hexdigest()[:16] if model.exists() else "",
            [record["round"] for record in records],
            sum(len(record.get("faults") or ()) for record in records),
            self._off_the_mean(way) if model.exists() and way.mean else "",
        )

    def _off_the_mean(self, way: Way) -> str:
        """Say by how much the server's vector is not the mean, by examples, of what silos keep in the last
        checkpoint. A rank that lies may see to it that there is none."""
        assert way.mean is not None
        (at_server, at_silo), rounds = way.mean, checkpoint.committed(self.run)
        if not rounds:
            return ""
        round = max(rounds)
        state = serialization.unpack(checkpoint.server_file(self.run, round).read_bytes())
        files = {silo: checkpoint.silo_file(self.run, round, silo) for silo in range(len(SIZES))}
        kept = [
            n * serialization.unpack(files[silo].read_bytes())[at_silo]
            for silo, n in enumerate(SIZES)
            if files[silo].exists()
        ]
        mean = torch.stack(kept).sum(0) / sum(SIZES)
        off = float((state[at_server] - mean).abs().max())
        return (
            f"{at_server} of round {round} is {off:.2g} off the mean of what silos keep" if off > 1e-5 else ""
        )


@contextlib.contextmanager
def yard() -> Iterator[Yard]:
    """Lend a yard, in memory where there is such a file system."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mpifl-simulated-", dir=where) as folder:
        torch.set_num_threads(1)
        found = Yard(Path(folder))
        with found._settled_for_all():
            yield found


CALM: Any = {"signal": (), "jump": (), "disk": None, "node": None, "lies": None}
"""No troubles, beside those of the past."""
LINES = (InputError, RoundLost, StartLost, Misled, DeviceLost, Unwritable)
"""What a rank may end by, with a line."""
