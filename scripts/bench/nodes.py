"""What an exchange between nodes takes: a vector to all ranks and the mean of theirs back, beside plain MPI.

    python scripts/bench/nodes.py --layouts 2x4 4x4 8x2 --parameters 100000 50000000 --beside OLDER

One machine plays several nodes (`MPIFL_RANKS_PER_NODE`; 2x4 is 2 nodes of 4 ranks): ranks of one share
memory, and what crosses from node to node goes by MPI's messages. In each repeat all rows take turns: mpifl's
way down, its way up, `MPI_Bcast`, `MPI_Reduce` of float32, and `MPI_Reduce_scatter` with `MPI_Gatherv`. A row
has two figures: seconds from the first rank's start to the last one's end, and the processor's seconds of the
busiest rank, which hold where ranks outnumber cores. Worlds of this checkout, and of another one that is
named (`--beside FOLDER`), take turns, too.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

if "--tree" in sys.argv:  # another checkout's package, measured by this file
    sys.path.insert(0, sys.argv[sys.argv.index("--tree") + 1])
    import mpifl.wire  # noqa: F401

import numpy as np
import torch
from common import save, start_ranks
from torch import Tensor

from mpifl.common.machine.tuning import keep_memory
from mpifl.sums.mean import WeightedMean
from mpifl.wire.launching.joining import abort_world, world
from mpifl.wire.messages import Header, Report, Verdict
from mpifl.wire.requests import Compute
from mpifl.wire.transport import Transport
from mpifl.wire.update import Update

try:
    from mpifl.wire.relayed_broadcast import Spreading
except ImportError:  # an older checkout
    Spreading = None

ROWS = ("down", "up", "Bcast", "Reduce", "Reduce_scatter, Gatherv")
LIMIT = 600.0
REPEATS, WORLDS = (5, 40), 3
"""Repeats in a world, of large vectors and of small ones; worlds of each checkout."""
LARGE = 5_000_000
"""Elements from which on a vector is large."""
PERIOD = 100_003
"""Elements of a vector that are drawn; the others repeat them."""
Act = Callable[[], Any]


def settled(transport: Transport, mean: WeightedMean) -> Callable[[Tensor], Tensor | None]:
    """Return what brings the mean of the workers' vectors to the server, as an exchange does.

    Only the work up to the reports and from the verdict on is what moves vectors.
    """
    serial = iter(range(1, 1 << 30))

    def up(vector: Tensor) -> Tensor | None:
        number = next(serial)
        request = Compute(work="train", cohort=list(transport.workers), serial=number)
        mean.begin(request, {}, [transport.rank])
        if not transport.is_server:
            update = Update(float(transport.rank), {"delta": vector})
            folded = mean.accumulate(transport.rank, update)
            header = Header(silo=transport.rank, weight=update.weight, vectors=folded)
            transport.report(Report(headers=[header], parts=mean.parts()).encode())
            mean.combine(transport, Verdict.model_validate_json(transport.broadcast_record()))
            return None
        reports = {0: Report()} | {rank: Report.model_validate_json(one) for rank, one in transport.reports()}
        verdict = Verdict(serial=number, ranks=list(range(transport.size)), pieces=mean.place(reports))
        transport.broadcast_record(verdict.encode())
        return mean.combine(transport, verdict).vectors["delta"]

    return up


def rows(comm: Any, transport: Transport, length: int) -> dict[str, Act]:
    """Return what is timed; every rank calls each row."""
    from mpi4py import MPI

    size, rank = transport.size, transport.rank
    vector = transport.memory.empty(length, torch.float32)  # as local training makes a delta
    vector.copy_(drawn(rank, length))
    model = transport.memory.empty(length, torch.float32).zero_() if transport.is_server else None
    up = settled(transport, WeightedMean(torch.device("cpu"), transport.memory))
    received = np.zeros(length, np.float32)
    widths = [length // size + (nth < length % size) for nth in range(size)]
    part = np.zeros(widths[rank], np.float32)
    weighted = vector.numpy() if rank else np.zeros(length, np.float32)

    def scatter_and_gather() -> None:
        comm.Reduce_scatter(weighted, part, widths, MPI.SUM)
        comm.Gatherv(part, [received, widths] if rank == 0 else None, 0)

    check(up, vector, length, size)
    return {
        "down": lambda: sent_down(transport, model, length),
        "up": lambda: up(vector),
        "Bcast": lambda: comm.Bcast(received, 0),
        "Reduce": lambda: comm.Reduce(weighted, received if rank == 0 else None, MPI.SUM, 0),
        "Reduce_scatter, Gatherv": scatter_and_gather,
    }


def sent_down(transport: Transport, model: Tensor | None, length: int) -> Tensor:
    """Send a vector to all ranks, as a request has it."""
    if Spreading is None or len(transport.nodes) == 1:
        return transport.broadcast_vector(model, length, torch.float32)
    under_way = Spreading(transport, 0, ())
    here = under_way.deliver(model, length, torch.float32)
    assert under_way.end()
    return here


def drawn(rank: int, length: int) -> Tensor:
    """Return a rank's vector."""
    few = torch.randn(PERIOD, generator=torch.Generator().manual_seed(rank))
    return few.repeat(-(-length // PERIOD))[:length]


def check(up: Callable[[Tensor], Tensor | None], vector: Tensor, length: int, size: int) -> None:
    """See that the mean is that of the workers' vectors."""
    found = up(vector)
    if found is not None:
        head = min(length, 2 * PERIOD)
        expected = sum(one * drawn(one, head).double() for one in range(1, size)) / (size * (size - 1) / 2)
        torch.testing.assert_close(found[:head].double(), expected, rtol=1e-5, atol=1e-6)


def timed(comm: Any, act: Act) -> tuple[float, float]:
    """Return the seconds from the first start to the last end, and the busiest rank's of the processor."""
    from mpi4py import MPI

    meet(comm)
    start, before = time.perf_counter(), processor()
    kept = act()  # what was received is let go when all have it
    end, after = time.perf_counter(), processor()
    meet(comm)
    del kept
    wall = comm.allreduce(end, MPI.MAX) - comm.allreduce(start, MPI.MIN)
    return float(wall), float(comm.allreduce(after - before, MPI.MAX))


def meet(comm: Any) -> None:
    """Wait for all ranks; a blocking wait would take time from those that work."""
    over = comm.Ibarrier()
    while not over.Test():
        time.sleep(1e-3)


def processor() -> float:
    """Return the seconds of the processor that this rank has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def as_rank(parameters: list[int], out: Path, repeats: int | None) -> None:
    """Time all rows; rank 0 writes the figures of each repeat."""
    keep_memory()
    transport = world()
    from mpi4py import MPI

    comm, cases = MPI.COMM_WORLD, {}
    for length in parameters:
        acts = rows(comm, transport, length)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in acts}
        for _ in range(1 + (repeats or REPEATS[length < LARGE])):
            for name, act in acts.items():
                found[name].append(timed(comm, act))
        cases[str(length)] = {name: values[1:] for name, values in found.items()}
        del acts
    if transport.is_server:
        out.write_text(json.dumps(cases))


def measure(layout: str, options: argparse.Namespace, tree: Path | None) -> dict[str, Any]:
    """Start a world of so many nodes and ranks; return what it measured."""
    nodes, ranks = map(int, layout.split("x"))
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        out = Path(scratch) / "cases.json"
        sizes = [str(length) for length in options.parameters]
        program = [__file__, "--rank", str(out), "--parameters", *sizes]
        program += ["--repeats", str(options.repeats)] if options.repeats else []
        program += ["--tree", str(tree)] if tree else []
        variables = {"MPIFL_RANKS_PER_NODE": str(ranks)}
        start_ranks(program, nodes * ranks, LIMIT, out.with_suffix(".log"), variables=variables)
        found: dict[str, Any] = json.loads(out.read_text())
    return found


def compare(layout: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure worlds of both checkouts in turns; return every repeat of each, by size and row."""
    trees = {"here": None, **({"beside": options.beside} if options.beside else {})}
    found: dict[str, Any] = {}
    for _ in range(options.worlds):
        for name, tree in trees.items():
            for length, case in measure(layout, options, tree).items():
                into = found.setdefault(length, {}).setdefault(name, {row: [] for row in ROWS})
                for row, values in case.items():
                    into[row] += values
    return found


def show(layout: str, length: str, case: dict[str, Any]) -> dict[str, Any]:
    """Print a case, milliseconds of the wall and of the busiest rank's processor, and return the figures."""
    print(f"{layout} nodes x ranks, {int(length):,} parameters, ms: wall (least), busiest rank (least)")
    figures: dict[str, Any] = {}
    for tree, rows_ in case.items():
        for row, values in rows_.items():
            wall, busy = zip(*values, strict=True)
            name = row if tree == "here" else f"{row}, {tree}"
            figures[name] = {
                "wall": median(wall),
                "least wall": min(wall),
                "busy": median(busy),
                "least busy": min(busy),
            }
            one = {key: f"{1e3 * value:9.2f}" for key, value in figures[name].items()}
            walls, busys = f"{one['wall']} ({one['least wall']})", f"{one['busy']} ({one['least busy']})"
            print(f"  {name:34}{walls}{busys}")
    if "beside" in case:
        for key in ("wall", "least wall", "busy", "least busy"):
            both = [sum(figures[row + more][key] for row in ("down", "up")) for more in ("", ", beside")]
            ups = [figures["up" + more][key] for more in ("", ", beside")]
            print(f"  {key}: up {ups[0] / ups[1]:.2f}, down and up {both[0] / both[1]:.2f} of the other's")
    sys.stdout.flush()
    return figures


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    layouts, sizes = ["2x4", "4x4", "8x2"], [100_000, 50_000_000]
    parser.add_argument("--layouts", nargs="+", default=layouts, help="nodes x ranks of each (%(default)s)")
    parser.add_argument("--parameters", type=int, nargs="+", default=sizes, help="(%(default)s)")
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--worlds", type=int, default=WORLDS, help="of each checkout (%(default)s)")
    parser.add_argument("--repeats", type=int, help="in each world")
    parser.add_argument("--quick", action="store_true", help="one small case: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.layouts, options.parameters = ["2x2"], [10_000]
        options.worlds, options.repeats = 1, 2
    return options


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    if options.rank:
        try:
            as_rank(options.parameters, options.rank, options.repeats)
        except Exception:
            traceback.print_exc()
            abort_world(1)  # the others would wait
        return
    cases = {}
    for layout in options.layouts:
        for length, case in compare(layout, options).items():
            cases[f"{layout} {length}"] = show(layout, length, case)
    save(options.json, {"cases": cases})


if __name__ == "__main__":
    main()
