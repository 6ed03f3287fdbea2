"""Have everything that reads what others wrote read harmed inputs for a while, and count what becomes of
them.

    python scripts/fuzz.py --minutes 10
    python scripts/fuzz.py --minutes 60 --seed 3 --only shards checkpoints --keep harmed/
    python scripts/fuzz.py --inputs 2000                   # of each kind, however long it takes
    python scripts/fuzz.py --replay shards 17 --seed 3     # one of them again, with its traceback

An input is read as a *value*, or ends with the error that is *documented*. What must not be: a *traceback*, a
*hang* (more than 20 s), a *crash* of the process, or *too much* memory: 512 MiB above what the process held,
or in one that it started. Each kind is read in processes of their own; one that dies or falls silent costs
its input alone. The same seed gives the same inputs. Exit code 1: something was found; `--keep` makes those
inputs again in a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# harm the tree that this file stands in, whatever is installed
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

os.environ.update(OMP_NUM_THREADS="1", COLUMNS="120")
DEAF, SILENCE, START = 1.5, 2.0, 120.0
"""After how many times its patience a worker that hears no signal ends itself, and is ended where it does
not; and after how many seconds without a word at its start."""
ROOM = 4 << 30
"""Bytes of address space that a worker may take in addition to what it has after its imports."""
BAD = ("traceback", "hang", "crash", "memory")


@dataclass
class Tally:
    """What became of the inputs of one kind."""

    counts: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    """Numbers of the inputs by outcome, place and the error's type."""
    words: dict[tuple[str, str, str], str] = field(default_factory=dict)
    mib: float = 0.0
    seconds: float = 0.0

    @property
    def bad(self) -> int:
        return sum(self.counts[name] for name in BAD)

    def add(self, n: int, name: str, where: str = "", what: str = "", mib: float = 0.0) -> None:
        self.counts[name] += 1
        self.mib = max(self.mib, mib)
        if name in BAD:
            key = name, where, what.partition(":")[0] if name == "traceback" else ""
            self.found.setdefault(key, []).append(n)
            self.words.setdefault(key, " ".join(what.split())[-300:])


def main() -> int:
    options = _options()
    if options.worker:
        return work(options)
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        options.valid = options.valid or Path(scratch) / "valid"
        module = _kinds(options)
        module.make(options.valid)
        if options.replay:
            return replay(options, Path(scratch))
        kinds = [
            name
            for name in module.KINDS
            if not options.only or any(name.startswith(one) for one in options.only)
        ]
        tallies = {name: fuzz(name, options, 60 * options.minutes / len(kinds)) for name in kinds}
        show(tallies, options)
        for name, tally in tallies.items() if options.keep else ():
            keep(name, tally, options)
    return int(any(tally.found for tally in tallies.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, help="of each kind, in place of --minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="kinds, or how their names begin")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="make the inputs that were taken badly again there"
    )
    parser.add_argument("--replay", nargs=2, metavar=("KIND", "N"))
    parser.add_argument(
        "--patience", type=float, default=20.0, metavar="SECONDS", help="that one input may take"
    )
    parser.add_argument(
        "--kinds", default="fuzzing.kinds", metavar="MODULE", help="another module with KINDS"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--valid", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _kinds(options: argparse.Namespace) -> Any:
    """Return the module with the kinds of input,
    and with what makes the valid artefacts that they start from."""
    return importlib.import_module(options.kinds)


def _scratch() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def draw(seed: int, kind: str, n: int) -> Random:
    """Return what an input is drawn from."""
    return Random(f"{seed} {kind} {n}")


def work(options: argparse.Namespace) -> int:
    """Read inputs one after another, and say before and after each what it is and what became of it."""
    from fuzzing.outcomes import outcome_of

    kind, until, n = _kinds(options).KINDS[options.worker], time.monotonic() + options.seconds, options.start
    faulthandler.enable()
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is printed below Python's own output, too
    _bounded()
    while time.monotonic() < until and n != options.inputs:
        with tempfile.TemporaryDirectory(dir=options.valid.parent) as folder:
            print(json.dumps({"n": n}), file=said, flush=True)
            given = kind.make(draw(options.seed, options.worker, n), options.valid, Path(folder))
            faulthandler.dump_traceback_later(DEAF * options.patience, exit=True)
            outcome = outcome_of(kind, given, options.patience)
            faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"n": n, "outcome": vars(outcome)}), file=said, flush=True)
        n += 1
    return 0


def _bounded() -> None:
    """Bound the address space,
    so that an absurd size is refused and takes nothing from others on this machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def fuzz(name: str, options: argparse.Namespace, seconds: float) -> Tally:
    """Have workers read inputs of a kind until the time is over, or so many are done."""
    tally, began, n = Tally(), time.monotonic(), 0
    until = began + (1e9 if options.inputs else seconds)
    while time.monotonic() < until and n != options.inputs:
        n = _worker(name, options, until - time.monotonic(), n, tally)
    tally.seconds = time.monotonic() - began
    print(f"{name}: {sum(tally.counts.values())} inputs, {tally.bad} bad", file=sys.stderr, flush=True)
    return tally


def _worker(name: str, options: argparse.Namespace, seconds: float, start: int, tally: Tally) -> int:
    """Watch one worker until it ends, dies or falls silent; return the number of the next input."""
    command = [sys.executable, __file__, "--worker", name, "--start", str(start), "--seconds", str(seconds)]
    command += ["--seed", str(options.seed), "--valid", str(options.valid)]
    command += ["--patience", str(options.patience), "--kinds", options.kinds]
    command += ["--inputs", str(options.inputs)] if options.inputs else []
    n, reading = start - 1, False
    with tempfile.TemporaryFile() as errors:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(command, **pipes, start_new_session=True) as process:
            try:
                for line in _lines(process, SILENCE * options.patience):
                    n, reading = line["n"], "outcome" not in line
                    if not reading:
                        tally.add(n, **line["outcome"])
                code = process.poll()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # it, and what it has started
        errors.seek(0)
        told = errors.read().decode(errors="replace")
    if reading:
        tally.add(n, *_death(code, told))
    elif code != 0:
        raise SystemExit(f"{name}: its worker ended by itself: {told[-3000:]}")
    return n + 1


def _death(code: int | None, told: str) -> tuple[str, str, str]:
    """Say how a worker came to its end while it read an input,
    from its exit code and Python's own last words."""
    from fuzzing.outcomes import place_in

    *_, last = told.split("Fatal Python error: " if "Fatal Python error: " in told else "Timeout (")
    place = place_in("\n".join(reversed(last.splitlines())))
    if code is None or "Timeout (" in told:
        return "hang", place, "deaf to signals"
    return "crash", place, f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'}: {last[:100]}"


def _lines(process: subprocess.Popen, silence: float) -> Iterator[dict[str, Any]]:
    """Yield what a worker says until it closes its output, or says nothing for too long."""
    patience, rest = START, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(patience):
            if not (piece := os.read(process.stdout.fileno(), 1 << 16)):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(silence)
                return
            *lines, rest = (rest + piece).split(b"\n")
            yield from map(json.loads, lines)
            patience = silence


def show(tallies: dict[str, Tally], options: argparse.Namespace) -> None:
    """Print the counts, and every place that took an input badly."""
    names = ("values", "documented", "tracebacks", "hangs", "crashes", "too much")
    print(
        f"\n{'kind':<26}{'inputs':>8}"
        + "".join(f"{name:>12}" for name in names)
        + f"{'peak MiB':>10}{'seconds':>9}"
    )
    for name, tally in [*tallies.items(), ("all", _sum(tallies))]:
        counts = [tally.counts[one] for one in ("value", "documented", *BAD)]
        figures = "".join(f"{count:>12,}" for count in counts) + f"{tally.mib:>10.0f}{tally.seconds:>9.0f}"
        print(f"{name:<26}{sum(counts):>8,}{figures}")
    for name, tally in tallies.items():
        for (outcome, where, what), numbers in sorted(tally.found.items(), key=lambda item: -len(item[1])):
            again = f"--replay '{name}' {numbers[0]}"
            print(f"\n{name}: {outcome} {what} at {where or '?'}, {len(numbers)} times, such as {again}")
            print(f"    {tally.words[outcome, where, what]}")


def _sum(tallies: dict[str, Tally]) -> Tally:
    every = tallies.values()
    counts = sum((tally.counts for tally in every), Counter())
    return Tally(counts, mib=max(t.mib for t in every), seconds=sum(t.seconds for t in every))


def keep(name: str, tally: Tally, options: argparse.Namespace) -> None:
    """Make one input of each sort that was taken badly again, in the folder --keep."""
    for (outcome, *_), numbers in tally.found.items():
        folder = options.keep / f"{name.replace(', ', '-')}-{numbers[0]}-{outcome}"
        folder.mkdir(parents=True, exist_ok=True)
        given = _kinds(options).KINDS[name].make(draw(options.seed, name, numbers[0]), options.valid, folder)
        (folder / "input.txt").write_text(
            f"--replay '{name}' {numbers[0]} --seed {options.seed}\n{given!r}\n", errors="replace"
        )


def replay(options: argparse.Namespace, scratch: Path) -> int:
    """Read one input again, in this process, and let its error through."""
    name, n = options.replay[0], int(options.replay[1])
    kind = _kinds(options).KINDS[name]
    folder = options.keep or scratch / "case"
    folder.mkdir(parents=True, exist_ok=True)
    given = kind.make(draw(options.seed, name, n), options.valid, folder)
    print(repr(given)[:2000], flush=True)
    _bounded()
    kind.read(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
