"""Schedules: every death of a calm world, and those that a seed draws."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulated.schedule import Schedule
from tests.simulated.trainings import RANKS, WAYS

USUAL_CALLS = 500
"""Calls of a rank in a training here, more or less."""
KINDS = ("calm", "halt", "death", "death", "two", "late", "late death")
SLEEPS = (0.002, 0.05, 0.3, 0.8, 1.5, 3.0, 10.0)
"""Seconds that a rank is late by: some a deadline or a transfer's timeout, some far more."""


def drawn(seed: int, way: str | None = None, kind: str | None = None) -> Schedule:
    """Return the schedule of a seed: a world, and in it deaths, a halt, late ranks, or nothing of these."""
    draw = random.Random(f"schedule {seed}")
    name = way or draw.choice(list(WAYS))
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
    kinds = KINDS if WAYS[name].survives else KINDS[:2]
    return _troubled(world, kind or draw.choice(kinds), draw)


def _troubled(world: Schedule, kind: str, draw: random.Random) -> Schedule:
    told = dict(vars(world))
    moment = draw.randrange(world.ranks), "", draw.randint(1, USUAL_CALLS)
    if kind == "halt":
        halt = draw.randint(1, USUAL_CALLS * world.ranks)
        return Schedule(**told | {"halt": halt, "resume": draw.choice((1, *RANKS))})
    if "death" in kind or kind == "two":
        told |= {"survive": True, "kill": (moment,)}
    if kind == "two":
        told["then"] = draw.randrange(world.ranks), draw.randint(1, 80)
    if "late" in kind:
        sleep = draw.randrange(world.ranks), "", draw.randint(1, USUAL_CALLS), draw.choice(SLEEPS)
        told["late"] = (sleep,)
    return Schedule(**told)


def every_death(way: str, ranks: int, calls: list[int], step: int, **world: object) -> Iterator[Schedule]:
    """Yield a death at every so manieth call of each rank, in an order without a pattern.

    Args:
        calls: Of each rank in a world where nobody dies.
    """
    moments = [(rank, nth) for rank in range(ranks) for nth in range(1 + rank % step, calls[rank] + 30, step)]
    random.Random(f"{way} {ranks}").shuffle(moments)
    for rank, nth in moments:
        yield Schedule(way=way, ranks=ranks, survive=True, kill=((rank, "", nth),), **world)  # type: ignore[arg-type]
