"""Try schedules for as long as there is time: python -m tests.simulated --hours 8.

A fault is shrunk, and told with the line that gives it again. Each few hundred are tried by a process that is
forked from one in which all is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import io
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

from tests.simulated import planted
from tests.simulated.drawing import drawn, every_death
from tests.simulated.judging import Verdict
from tests.simulated.schedule import OtherVersion, Schedule
from tests.simulated.shrinking import shrunk, verdict_of
from tests.simulated.trainings import RANKS, WAYS, Yard, yard

BATCH = 300
"""Schedules of a process: what it has of other worlds then is forgotten."""
SHRUNK = 2
"""Faults of a kind that a process shrinks; of further ones there is the line."""
REPORT = 300.0
"""Seconds between two reports."""


def main() -> int:
    """Do what the arguments say; return 1 if a fault was found that should not be there."""
    options = _arguments()
    if options.replay:
        return _replay(options.replay)
    if options.planted is not None:
        return _planted(options.planted)
    return _night(3600 * options.hours + 60 * options.minutes, options.seed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulated", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="try schedules for so long")
    parser.add_argument("--minutes", type=float, default=0.0, help="and so long")
    parser.add_argument("--seed", type=int, default=0, help="the first schedule's; the next ones follow")
    parser.add_argument("--replay", metavar="LINE", help="try one schedule, and say what comes of it")
    parser.add_argument(
        "--planted", nargs="?", type=int, const=40, help="look for each planted fault so often"
    )
    return parser.parse_args()


def _night(seconds: float, seed: int) -> int:
    """Try schedules in processes that are forked from this one; tell of them now and then."""
    begun = told = time.monotonic()
    tally: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    with yard() as lent:
        with _quiet():
            for way in WAYS:
                lent.truth(way)
        gc.freeze()
        while (left := begun + seconds - time.monotonic()) > 0:
            for line in _forked(functools.partial(_batch, lent, seed, left)):
                found = json.loads(line)
                tally.update(found["tally"])
                if "fault" in found:
                    print(found["fault"], flush=True)
                    seen["faults"] += 1
            seed += BATCH
            if time.monotonic() - told > REPORT:
                told = time.monotonic()
                _tell(tally, told - begun, seed)
    _tell(tally, time.monotonic() - begun, seed)
    return int(seen.total() > 0)


def _forked(act: Callable[[Callable[[object], None]], None]) -> Iterator[str]:
    """Yield the lines of JSON that a child tells.

    Args:
        act: What the child does, given what it tells by.
    """
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            with os.fdopen(write, "w") as pipe, _quiet():
                act(lambda told: print(json.dumps(told), file=pipe, flush=True))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as pipe:
        yield from pipe
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        fault = f"the process of a batch ended with {code}"
        yield json.dumps({"tally": {"processes lost": 1}, "fault": fault})


def _tell(tally: Counter[str], seconds: float, seed: int) -> None:
    schedules, deaths = tally["schedules"], tally["deaths"]
    rest = {name: count for name, count in sorted(tally.items()) if name not in ("schedules", "deaths")}
    used = sum(os.times()[:4]) / max(schedules, 1)
    what = f"{schedules} schedules with {deaths} deaths in {seconds:.0f} s"
    print(f"{what}, {used:.3f} s of the processor each; next --seed {seed}: {json.dumps(rest)}", flush=True)


def _batch(lent: Yard, seed: int, seconds: float, tell: Callable[[object], None]) -> None:
    """Try the schedules of some seeds, and tell what came of each."""
    until = time.monotonic() + seconds
    told: Counter[str] = Counter()
    for schedule in _schedules(lent, seed):
        if time.monotonic() > until:
            break
        found = verdict_of(lent, schedule)
        deaths = sum(rank.state == "dead" for rank in lent.last.ranks) if schedule.survive else 0
        line: dict[str, object] = {
            "tally": {"schedules": 1, "deaths": deaths, found.kind: 1, f"way {schedule.way}": 1}
        }
        if found.is_fault:
            told[found.kind] += 1
            line["fault"] = f"{found.kind}: {found.what}\n  {schedule.line}"
            if told[found.kind] <= SHRUNK:
                line["fault"] += _smallest(lent, schedule, found)  # type: ignore[operator]
        tell(line)


def _schedules(lent: Yard, seed: int) -> Iterator[Schedule]:
    """Yield drawn schedules, and one in three times deaths at every few calls of one way."""
    if seed // BATCH % 3 != 2:
        yield from map(drawn, range(seed, seed + BATCH))
        return
    ways = [name for name, way in WAYS.items() if way.survives and way.share == 1]
    nth = seed // BATCH // 3
    way, numbers = ways[nth % len(ways)], sorted({*RANKS})
    ranks = numbers[nth // len(ways) % len(numbers)]
    nodes = (None, 1, 2)[nth % 3]
    ended = lent.tried(Schedule(seed=seed, way=way, ranks=ranks, nodes=nodes, survive=True))
    calls = [rank.calls for rank in ended.world.ranks]
    ended.world.close()
    step = max(sum(calls) // BATCH, 1)
    yield from every_death(way, ranks, calls, step, seed=seed, nodes=nodes)


def _smallest(lent: Yard, schedule: Schedule, found: Verdict) -> str:
    """Return the smallest schedule that shows a fault, and what it shows."""
    draws = lent.last.choices.drawn
    small = shrunk(schedule, lambda other: verdict_of(lent, other).kind == found.kind, draws)
    again = verdict_of(lent, small)
    return f"\n  python -m tests.simulated --replay '{small.line}'\n  {again.kind}: {again.what}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what trainings print."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _replay(line: str) -> int:
    try:
        schedule = Schedule.of(line)
    except OtherVersion as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with yard() as lent:
        found = verdict_of(lent, schedule)
        for rank in lent.last.ranks:
            lived = f"{rank.state} after {rank.calls} calls and {rank.clock:.4f} s"
            print(f"rank {rank.number}: {lived}. {rank.said}")
    print(f"{found.kind}: {found.what}" if found.what else found.kind)
    return int(found.is_fault)


def _planted(most: int) -> int:
    """Look for each planted fault."""
    found = 0
    for name in planted.FAULTS:
        with _quiet(), yard() as lent:
            shown = planted.looked_for(lent, name, most)
        found += shown is not None
        how = (
            "not found"
            if shown is None
            else f"found as '{shown[1].kind}' by schedule {shown[2]}: {shown[0].line}"
        )
        print(f"{name}: {how}", flush=True)
    print(f"{found} of {len(planted.FAULTS)} planted faults were found")
    return int(found < len(planted.FAULTS))


sys.exit(main())
