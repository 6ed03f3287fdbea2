"""What a rule of columns takes each rank of one node, in CPU seconds, and what it allocates for that.

    python scripts/bench/rule_at_ranks.py --silos 16 --numbers 11000000 --ranks 4 --json result.json

Workers hold the silos' float32 vectors in shared memory, as training leaves them. Each makes its slice of the
result from all vectors, where they lie. The figure is a worker's CPU time in `combine`, without the waiting
for others, and the bytes of all tensors that it allocates there. Its slice of the result is as large as
`slice`; a copy of the vectors would be `silos` times as large.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import save, start_ranks
from torch.profiler import ProfilerActivity, profile

from mpifl.run.job.tables import AggregationSettings
from mpifl.wings.robust import aggregator_of
from mpifl.wings.robust.robust_wing import built
from mpifl.wire.launching.joining import world
from mpifl.wire.messages import Header, Report, Verdict
from mpifl.wire.requests import Compute
from mpifl.wire.transport import Transport
from mpifl.wire.update import Update

LIMIT = 300.0


def fill(transport: Transport, rule: Any, silos: int, numbers: int) -> Report:
    """Have this rank's silos answer with vectors of normal numbers; return its report."""
    workers = list(transport.workers)
    mine = [silo for silo in range(silos) if workers[silo % len(workers)] == transport.rank]
    rule.begin(Compute(work="train", cohort=list(range(silos))), {}, mine)
    headers = []
    for silo in mine:
        vector = rule.lend(numbers, torch.float32)
        vector.normal_(generator=torch.Generator().manual_seed(silo))
        vectors = rule.accumulate(silo, Update(1.0, {"delta": vector}))
        headers.append(Header(silo=silo, weight=1.0, vectors=vectors))
    return Report(headers=headers, parts=rule.parts())


def verdict_of(transport: Transport, rule: Any, report: Report) -> Verdict:
    """Return the verdict by which all vectors count, as the server gives it."""
    if not transport.is_server:
        transport.report(report.encode())
        return Verdict.model_validate_json(transport.broadcast_record())
    reports = {0: report} | {rank: Report.model_validate_json(record) for rank, record in transport.reports()}
    told = Verdict(serial=1, ranks=list(range(transport.size)), pieces=rule.place(reports))
    return Verdict.model_validate_json(transport.broadcast_record(told.encode()))


def as_rank(options: argparse.Namespace) -> None:
    """Combine again and again; each rank writes its seconds, and the bytes that it allocated once more."""
    transport = world()
    settings = built(AggregationSettings.model_validate({"rule": options.rule}))
    rule: Any = aggregator_of(settings, None, transport.memory)
    taken, allocated = [], 0
    for repeat in range(options.repeats + 2):
        transport.broadcast_record(b"" if transport.is_server else None)  # comes when all have done the last
        verdict = verdict_of(transport, rule, fill(transport, rule, options.silos, options.numbers))
        if repeat > options.repeats:
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
                rule.combine(transport, verdict)
            events = watched.profiler.kineto_results.events()
            allocated = sum(max(event.nbytes(), 0) for event in events)
            continue
        start = time.process_time()
        rule.combine(transport, verdict)
        taken.append(time.process_time() - start)
    found = {"seconds": taken[1:], "allocated": allocated, "slice": 4 * options.numbers // options.ranks}
    (options.rank / f"{transport.rank}.json").write_text(json.dumps(found))


def measure(rule: str, silos: int, numbers: int, ranks: int, repeats: int) -> dict[int, dict[str, Any]]:
    """Start the ranks, one more than workers, and return what each worker measured."""
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        words = ["--rank", scratch, "--rule", rule, "--silos", silos, "--numbers", numbers, "--ranks", ranks]
        program = [__file__, *map(str, words), "--repeats", str(repeats)]
        start_ranks(program, ranks + 1, LIMIT, Path(scratch) / "log")
        files = {rank: Path(scratch) / f"{rank}.json" for rank in range(1, ranks + 1)}
        return {rank: json.loads(file.read_text()) for rank, file in files.items()}


def show(found: dict[int, dict[str, Any]]) -> None:
    """Print what each worker took."""
    for rank, one in found.items():
        least, typical = min(one["seconds"]), median(one["seconds"])
        megabytes = f"allocated {one['allocated'] / 1e6:.1f} MB, its slice is {one['slice'] / 1e6:.1f} MB"
        print(f"rank {rank}: {typical:.3f} s of CPU (least {least:.3f}), {megabytes}", flush=True)


def main() -> None:
    """Measure, and print a line for each worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rule", default="median")
    parser.add_argument("--silos", type=int, default=16)
    parser.add_argument("--numbers", type=int, default=11_000_000)
    parser.add_argument("--ranks", type=int, default=4, help="workers (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two repeats of short vectors")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.numbers, options.repeats = 10_000, 2
    if options.rank:
        return as_rank(options)
    found = measure(options.rule, options.silos, options.numbers, options.ranks, options.repeats)
    show(found)
    save(options.json, {"ranks": found})


if __name__ == "__main__":
    main()
