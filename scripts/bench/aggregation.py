"""What it takes to add up the silos' vectors on one node, beside memory's speed and beside plain MPI calls.

    python scripts/bench/aggregation.py --silos 2 4 8 16 --megabytes 1 10 100 400 --json result.json

S workers hold a float32 vector each, and the server ends with their mean. In each repeat all rows take turns:
np.copyto and an in-place add on one thread of rank 0 while the others sleep; MPI's blocking Bcast and Reduce;
mpifl's own way of sending a vector to all and of making the mean. A time runs from the first rank's start to
the last one's end. The figure is silos x bytes / time in GB/s, for the first two rows bytes / time; "of add"
is its share of the add's.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch
from common import save, start_ranks
from torch import Tensor

from mpifl.sums.mean import WeightedMean
from mpifl.wire.launching.joining import world
from mpifl.wire.messages import Header, Report, Verdict
from mpifl.wire.transport import Transport
from mpifl.wire.update import Update

ALONE = ("np.copyto", "add_")
"""What rank 0 does while the others sleep."""
REPEATS, CASE_GB = (3, 30), 16
"""The fewest and most repeats, and the bytes of all silos that a row moves in a case between these, in GB."""
COPIES, RANK_GB = 4, 0.3
"""Vectors that a rank holds at most, and its memory beside them: a case that would not fit is left out."""
LIMIT, NAP = 300.0, 1e-3


def ours(transport: Transport, mean: WeightedMean, vector: Tensor) -> Tensor | None:
    """Return the mean of the workers' vectors at the server, None at a worker, as an exchange makes it.

    Whoever changes how `Federation.exchange` moves vectors changes this function, and nothing else here.
    """
    mean.expect(len(transport.workers), here=1)
    if not transport.is_server:
        header = Header(
            silo=transport.rank - 1, weight=1.0, vectors=mean.accumulate(0, Update(1.0, {"delta": vector}))
        )
        transport.report(Report(headers=[header], parts=mean.parts()).encode())
        mean.combine(transport, Verdict.model_validate_json(transport.broadcast_record()))
        return None
    reports = {rank: Report.model_validate_json(record) for rank, record in transport.reports()}
    accepted = [header.silo for report in reports.values() for header in report.headers]
    verdict = Verdict(accepted=accepted, ranks=[0, *reports], pieces=mean.place(reports))
    transport.broadcast_record(verdict.encode())
    return mean.combine(transport, verdict).vectors["delta"]


def rows(comm: Any, transport: Transport, length: int) -> dict[str, Callable[[], Any]]:
    """Return what is timed; every rank calls each row, rank 0 alone those of ALONE."""
    from mpi4py import MPI

    vector = transport.memory.empty(length, torch.float32)  # as local training makes a delta
    vector.copy_(torch.rand(length, generator=torch.Generator().manual_seed(transport.rank)))
    received = torch.zeros(length)
    total = np.zeros(length if transport.is_server else 0, np.float32)
    sent = MPI.IN_PLACE if transport.is_server else vector.numpy()
    mean = WeightedMean(torch.device("cpu"), transport.memory)
    model = transport.memory.move_to_shared_memory(received)
    comm.Reduce(sent, total, root=0)
    if (found := ours(transport, mean, vector)) is not None:
        expected = torch.from_numpy(total) / len(transport.workers)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    return {
        "np.copyto": lambda: np.copyto(received.numpy(), vector.numpy()),
        "add_": lambda: received.add_(vector),
        "Bcast": lambda: comm.Bcast(received.numpy(), 0),
        "Reduce": lambda: comm.Reduce(sent, total, root=0),
        "mpifl send": lambda: transport.broadcast_vector(
            model if transport.is_server else None, length, torch.float32
        ),
        "mpifl mean": lambda: ours(transport, mean, vector),
    }


def seconds_of(comm: Any, act: Callable[[], Any], alone: bool) -> float:
    """Return the seconds from the first start to the last end;
    all ranks are of one node, so their clocks are one."""
    from mpi4py import MPI

    comm.Barrier()
    start, end = time.perf_counter(), 0.0
    if not alone or comm.Get_rank() == 0:
        act()
        end = time.perf_counter()
    else:
        start = float("inf")
    over = comm.Ibarrier()
    while not over.Test():  # a blocking wait would take time from the one that works
        time.sleep(NAP)
    return float(comm.allreduce(end, MPI.MAX) - comm.allreduce(start, MPI.MIN))


def as_rank(megabytes: list[float], out: Path, most: int) -> None:
    """Time all rows for vectors of these sizes; rank 0 writes the seconds of each repeat."""
    transport = world()
    from mpi4py import MPI

    comm, cases = MPI.COMM_WORLD, []
    for size in megabytes:
        timed = rows(comm, transport, int(size * 1e6) // 4)
        silos = len(transport.workers)
        repeats = min(max(int(CASE_GB * 1e3 / size / silos), REPEATS[0]), REPEATS[1], most)
        seconds: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(1 + repeats):
            for name, act in timed.items():
                seconds[name].append(seconds_of(comm, act, name in ALONE))
        warm = {name: values[1:] for name, values in seconds.items()}
        cases.append({"silos": silos, "megabytes": size, "seconds": warm})
        del timed
    if transport.is_server:
        out.write_text(json.dumps(cases))


def gb_needed(silos: int, size: float) -> float:
    """Return the memory in GB that a case takes over all its ranks."""
    return (1 + silos) * (RANK_GB + COPIES * size / 1e3)


def available_gb() -> float:
    """Return the memory in GB that Linux says can be taken without swapping."""
    found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) * 1024 / 1e9 if found else 0.0


def measure(silos: int, megabytes: list[float], most: int) -> list[dict[str, Any]]:
    """Start the ranks and return what they measured."""
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        out = Path(scratch) / "cases.json"
        program = [__file__, "--rank", str(out), "--repeats", str(most), "--megabytes", *map(str, megabytes)]
        start_ranks(program, silos + 1, LIMIT, out.with_suffix(".log"))
        cases: list[dict[str, Any]] = json.loads(out.read_text())
    return cases


def show(case: dict[str, Any]) -> None:
    """Print a case's median times and what they come to; the figures go into it, too."""
    silos, size, seconds = case["silos"], case["megabytes"], case["seconds"]
    add = median(seconds["add_"])
    print(f"{silos} silos x {size:g} MB, {len(seconds['add_'])} repeats")
    case["gbs"] = {}
    for name, values in seconds.items():
        typical, moved = median(values), size / 1e3 * (1 if name in ALONE else silos)
        low, _, high = quantiles(values, n=4)
        case["gbs"][name] = moved / typical
        share = moved / typical / (size / 1e3 / add)
        times = f"{1e3 * typical:10.2f} ms ({1e3 * low:.2f} - {1e3 * high:.2f})"
        print(f"  {name:12}{times:34}{moved / typical:8.2f} GB/s{share:8.2f} of add", flush=True)
    for part, (one, other) in {"send": ("mpifl send", "Bcast"), "mean": ("mpifl mean", "Reduce")}.items():
        case[part] = median(o / t for o, t in zip(seconds[one], seconds[other], strict=True))
    print(f"  {'mpifl / MPI':12}send {case['send']:.2f}, mean {case['mean']:.2f} (medians over the repeats)")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--silos", type=int, nargs="+", default=[2, 4, 8, 16], help="(%(default)s)")
    parser.add_argument(
        "--megabytes", type=float, nargs="+", default=[1.0, 10.0, 100.0, 400.0], help="(%(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS[1], help="at most (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one small case: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.silos, options.megabytes, options.repeats = [2], [0.1], 3
    if options.repeats < 2 or min(options.silos) < 1:
        parser.error("--repeats must be at least 2 and --silos at least 1")
    return options


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    if options.rank:
        as_rank(options.megabytes, options.rank, options.repeats)
        return
    free, cases = available_gb(), []
    for silos in options.silos:
        fitting = [size for size in options.megabytes if gb_needed(silos, size) < free]
        for size in sorted(set(options.megabytes) - set(fitting)):
            print(
                f"{silos} silos x {size:g} MB: left out, "
                f"{gb_needed(silos, size):.0f} GB of {free:.0f} are needed"
            )
        for case in measure(silos, fitting, options.repeats) if fitting else []:
            show(case)
            cases.append(case)
    save(options.json, {"cases": cases})


if __name__ == "__main__":
    main()
