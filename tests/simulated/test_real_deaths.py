"""Deaths of simulated worlds, once more under a real mpirun: both come to the same end."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tomli_w
from faults.processes import Command
from faults.test_survival import pytestmark as pytestmark

from tests.simulated.schedule import Moment, Schedule
from tests.simulated.shrinking import verdict_of
from tests.simulated.trainings import WAYS, Yard, yard as lent

HERE = Path(__file__).parent
RANKS, LONGEST = 3, 100
DEATHS = 100 if os.environ.get("MPIFL_SLOW") else 3
TRIED = ("fedavg", "momentum", "median", "krum", "mirror", "workers")
"""Ways whose bits no death changes."""


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with lent() as found:
        yield found


def drawn_deaths(yard: Yard) -> Iterator[tuple[str, Moment]]:
    """Yield ways and moments at which a rank is about to send something, after all have met."""
    draw = random.Random(7)
    for nth in range(DEATHS):
        way = TRIED[nth % len(TRIED)]
        calm = yard.tried(Schedule(way=way, ranks=RANKS, survive=True, surprises=0))
        rank = draw.randrange(RANKS)
        sent = {
            what: times for what, times in calm.world.ranks[rank].done.items() if what.startswith("Isend")
        }
        calm.world.close()
        what = draw.choice(sorted(sent))
        yield way, (rank, what, draw.randint(1, sent[what]))


def really(yard: Yard, folder: Path, way: str, moment: Moment) -> tuple[int | None, str, str]:
    """Return the exit code, the model's digest and the messages of a real training with this death."""
    job, run = folder / "job.toml", folder / "run"
    job.write_text(tomli_w.dumps(yard.job(WAYS[way])))
    arguments = (
        HERE / "dying.py",
        f'[[{moment[0]}, "{moment[1]}", {moment[2]}]]',
        "train",
        job,
        "--out",
        run,
    )
    with Command(folder / "command", RANKS, *arguments, survive=True) as command:
        code = command.end(LONGEST).code
    model = run / "model.safetensors"
    digest = hashlib.sha256(model.read_bytes()).hexdigest()[:16] if model.exists() else ""
    return code, digest, command.err


def test_a_real_death_ends_as_the_simulated_one_does(yard: Yard, tmp_path: Path) -> None:
    deaths = list(drawn_deaths(yard))
    folders = [tmp_path / str(nth) for nth in range(len(deaths))]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        came = list(pool.map(lambda one: really(yard, one[0], *one[1]), zip(folders, deaths, strict=True)))
    for (way, moment), (_, digest, said) in zip(deaths, came, strict=True):
        schedule = Schedule(way=way, ranks=RANKS, survive=True, kill=(moment,), surprises=0)
        simulated = verdict_of(yard, schedule)
        assert simulated.kind == "same", (schedule.line, simulated)
        assert digest == yard.truth(way).model, (schedule.line, said)
    assert (
        sum(
            f"rank {moment[0]} died" in said or "which died" in said or "is the server now" in said
            for (_, moment), (*_, said) in zip(deaths, came, strict=True)
        )
        > len(deaths) / 2
    )
