"""Schedules: every death of a calm world, and those that a seed draws."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

from tests.simulated.schedule import Schedule
from tests.simulated.trainings import RANKS, WAYS

USUAL_CALLS = 330
"""Calls of a rank in a training here, more or less."""
USUAL_WRITES = 25
"""Files that are written in one."""
KINDS = (
    *("calm", "halt", "power", "torn", "signal", "disk", "jump"),
    *("death", "death", "two", "node", "late", "late death", "disk death", "lies"),
)
"""Troubles; ranks that cannot outlive a death have only those before the first one."""
SLEEPS = (0.002, 0.05, 0.3, 0.8, 1.5, 3.0, 10.0)
"""Seconds that a rank is late by: some a deadline or a transfer's timeout, some far more."""


def drawn(seed: int, way: str | None = None, kind: str | None = None) -> Schedule:
    """Return the schedule of a seed: a world, and in it deaths, a halt, late ranks, or nothing of these."""
    draw = random.Random(f"schedule {seed}")
    name = way or draw.choices(list(WAYS), [one.share for one in WAYS.values()])[0]
    world = Schedule(
        seed=seed,
        way=name,
        ranks=draw.choice(RANKS),
        nodes=draw.choice((None, None, None, 1, 2, 2, 3)),
        eager=draw.choice((4096, 4096, 0, 1 << 30)),
        bell=draw.random() < 0.8,
        memory=draw.random() < 0.9,
        turns=draw.random() < 0.3,
    )
    kinds = KINDS if WAYS[name].survives else KINDS[:7]
    return dataclasses.replace(world, **_troubles(world, kind or draw.choice(kinds), draw))


def _troubles(world: Schedule, kind: str, draw: random.Random) -> dict[str, Any]:
    """Return the fields of a schedule that has the troubles of a kind; "late death" has two."""
    told: dict[str, Any] = {}

    def moment() -> tuple[int, str, int]:
        return draw.randrange(world.ranks), "", draw.randint(1, USUAL_CALLS)

    if kind in ("halt", "power", "torn", "signal", "disk"):
        told["resume"] = draw.choice((1, *RANKS))
    if kind in ("halt", "power", "torn"):
        told["halt"] = draw.randint(1, USUAL_CALLS * world.ranks)
    if kind == "power":
        told["power"] = draw.choice((0, 0, 1, 2, 5))
    if kind == "torn":
        told["torn"] = draw.randrange(100)
    if kind == "signal":
        told["signal"] = (moment(),)
    if kind == "jump":
        told["jump"] = ((*moment(), draw.choice((-1e9, -3600.0, 3600.0, 1e9))),)
    if kind == "lies":
        told["lies"] = draw.randrange(1, world.ranks), draw.randint(1, 60), draw.randrange(1 << 30)
        told["survive"] = draw.random() < 0.5
    if kind == "node":
        node = draw.randrange(world.ranks) // (world.nodes or world.ranks)
        told |= {"survive": True, "node": (node, draw.randint(1, USUAL_CALLS * world.ranks))}
    if "disk" in kind:
        first = draw.randint(1, USUAL_WRITES)
        told["disk"] = draw.choice(("full", "broken")), first, first + draw.choice((0, 1, 5, 1000))
    if "death" in kind or kind == "two":
        told |= {"survive": True, "kill": (moment(),)}
    if kind == "two":
        told["then"] = draw.randrange(world.ranks), draw.randint(1, 80)
    if "late" in kind:
        told["late"] = ((*moment(), draw.choice(SLEEPS)),)
    return told


def every_death(way: str, ranks: int, calls: list[int], step: int, **world: object) -> Iterator[Schedule]:
    """Yield a death at every so manieth call of each rank, in an order without a pattern.

    Args:
        calls: Of each rank in a world where nobody dies.
    """
    moments = [(rank, nth) for rank in range(ranks) for nth in range(1 + rank % step, calls[rank] + 30, step)]
    random.Random(f"{way} {ranks}").shuffle(moments)
    for rank, nth in moments:
        yield Schedule(way=way, ranks=ranks, survive=True, kill=((rank, "", nth),), **world)  # type: ignore[arg-type]
