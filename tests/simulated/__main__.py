"""Try schedules for as long as there is time: python -m tests.simulated --hours 8.

A fault is shrunk, and told with the line that gives it again. A fresh process tries each few hundred.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.simulated import planted
from tests.simulated.drawing import drawn, every_death
from tests.simulated.judging import Verdict
from tests.simulated.schedule import OtherVersion, Schedule
from tests.simulated.shrinking import shrunk, verdict_of
from tests.simulated.trainings import RANKS, WAYS, Yard, yard

BATCH = 300
"""Schedules of a process: what it has of other worlds then is forgotten."""
SWEEP = 1_000_000
"""Seeds from here on stand for deaths at every call, as `swept` counts them."""
REPORT = 600.0
"""Seconds between two reports."""


def main() -> int:
    """Do what the arguments say; return 1 if a fault was found that should not be there."""
    options = _arguments()
    if options.batch is not None:
        return _batch(options.batch, options.count)
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
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=BATCH, help=argparse.SUPPRESS)
    return parser.parse_args()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what trainings print."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _night(seconds: float, seed: int) -> int:
    """Try schedules in processes of their own, and tell of them now and then."""
    until, told = time.monotonic() + seconds, time.monotonic()
    tally: collections.Counter[str] = collections.Counter()
    begun, faults = time.monotonic(), 0
    while time.monotonic() < until:
        command = [sys.executable, "-m", "tests.simulated", "--batch", str(seed), "--count", str(BATCH)]
        environment = os.environ | {"SIMULATED_SECONDS": str(max(until - time.monotonic(), 1.0))}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                tally.update(found["tally"])
                if "fault" in found:
                    faults += 1
                    print(found["fault"], flush=True)
        if process.returncode:
            print(f"the process of seeds from {seed} ended with {process.returncode}", flush=True)
            faults += 1
        seed += BATCH
        if time.monotonic() - told > REPORT:
            told = time.monotonic()
            _tell(tally, told - begun)
    _tell(tally, time.monotonic() - begun)
    return int(faults > 0)


def _tell(tally: collections.Counter[str], seconds: float) -> None:
    schedules, deaths = tally["schedules"], tally["deaths"]
    kinds = {name: count for name, count in sorted(tally.items()) if name not in ("schedules", "deaths")}
    print(f"{schedules} schedules with {deaths} deaths in {seconds:.0f} s: {kinds}", flush=True)


def _batch(seed: int, count: int) -> int:
    """Try the schedules of some seeds, and write a line of JSON for each."""
    until = time.monotonic() + float(os.environ.get("SIMULATED_SECONDS", "1e9"))
    out = sys.stdout
    with _quiet(), yard() as lent:
        for schedule in _schedules(lent, seed, count):
            if time.monotonic() > until:
                break
            found = verdict_of(lent, schedule)
            deaths = sum(rank.state == "dead" for rank in lent.last.ranks) if schedule.survive else 0
            line: dict[str, object] = {"tally": {"schedules": 1, "deaths": deaths, found.kind: 1}}
            if found.is_fault:
                line["fault"] = _told(lent, schedule, found)
            print(json.dumps(line), file=out, flush=True)
    return 0


def _schedules(lent: Yard, seed: int, count: int) -> Iterator[Schedule]:
    """Yield drawn schedules, and one in three times deaths at every few calls of one way."""
    if seed // BATCH % 3 != 2:
        yield from map(drawn, range(seed, seed + count))
        return
    ways = [name for name, way in WAYS.items() if way.survives]
    nth = seed // BATCH // 3
    way, numbers = ways[nth % len(ways)], sorted({*RANKS})
    ranks = numbers[nth // len(ways) % len(numbers)]
    nodes = (None, 1, 2)[nth % 3]
    ended = lent.tried(Schedule(seed=seed, way=way, ranks=ranks, nodes=nodes, survive=True))
    calls = [rank.calls for rank in ended.world.ranks]
    ended.world.close()
    step = max(sum(calls) // count, 1)
    yield from every_death(way, ranks, calls, step, seed=seed, nodes=nodes)


def _told(lent: Yard, schedule: Schedule, found: Verdict) -> str:
    """Say what is wrong, and the smallest schedule that shows it."""
    draws = lent.last.choices.drawn
    small = shrunk(schedule, lambda other: verdict_of(lent, other).kind == found.kind, draws)
    again = verdict_of(lent, small)
    replay = f"python -m tests.simulated --replay '{small.line}'"
    return f"{found.kind}: {again.what or found.what}\n  first {schedule.line}\n  {replay}"


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
