"""Run on every rank: combine known vectors by rules of columns, as an exchange does; rank 0 writes the
results.

    columns.py FOLDER [SPILL]

Silo k's vectors follow from k alone (`vectors_of`), so that a test can make them again. Some silos fail. The
server that hosts none of them also writes what it allocates for few and for many silos, to `memory.json`.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import profile

from mpifl.run.job.tables import AggregationSettings
from mpifl.wings.robust import WeightRule, aggregator_of, column_slices
from mpifl.wings.robust.column_rules_run import ColumnRule
from mpifl.wings.robust.robust_wing import built as built_of
from mpifl.wire.launching.joining import world
from mpifl.wire.messages import Header, Report, Verdict
from mpifl.wire.requests import Compute
from mpifl.wire.transport import Transport
from mpifl.wire.update import Update, uniform

CPU = torch.device("cpu")
LENGTHS = {"delta": 1003, "shift": 64, "none": 0}
SILOS, FAILING = 9, (4, 8)
RULES = {"median": None, "trimmed": 2, "columns:spread": None}
WEIGHTED = {
    "krum": {"rule": "krum", "byzantine": 2},
    "multikrum": {"rule": "multikrum", "byzantine": 0.29, "m": 3},
    "rfa": {"rule": "rfa"},
    "centered": {"rule": "centered", "tau": 1e39, "iterations": 2},
    "fltrust": {"rule": "fltrust"},
    "nnm-trimmed": {"rule": "trimmed", "byzantine": 2, "pre": "nnm"},
    "nnm-krum": {"rule": "krum", "byzantine": 1, "pre": "nnm"},
    "buckets-median": {"rule": "median", "pre": "bucketing"},
    "buckets-rfa": {"rule": "rfa", "pre": "bucketing", "s": 3},
    "own": {"rule": "columns:Shortest"},
}
"""Tables of rules that look at whole vectors."""
ROUNDS = 2
FEW, MANY, LARGE = 4, 32, 1 << 16
"""Silos, and elements of a vector of each, beside which all records are small."""


class Shortest(WeightRule):
    """A user's rule by weights: the shortest vector."""

    def weights(self, gram: np.ndarray, liars: int) -> np.ndarray:
        return np.eye(len(gram))[gram.diagonal().argmin()]


def reference_of(round: int, rule: str = "") -> dict[str, np.ndarray]:
    """The server's own vectors, once it has some."""
    return vectors_of(99, round) if round or rule == "fltrust" else {}


def spread(rows: torch.Tensor) -> torch.Tensor:
    """A user's rule, whose bits depend on how wide the block is that it sees."""
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return (total / len(rows)).clamp(-1e30, 1e30) + rows.shape[1]


def vectors_of(silo: int, round: int) -> dict[str, np.ndarray]:
    """A silo's vectors: ordinary, huge, equal, and both zeros."""
    draw = np.random.default_rng([silo, round])
    made = {name: draw.standard_normal(length).astype(np.float32) for name, length in LENGTHS.items()}
    made["delta"][:100] = draw.integers(-1, 2, 100)
    made["delta"][100:150] = np.float32(3e38) * draw.choice([-1, 1], 50)
    made["delta"][125:150] *= draw.uniform(0.1, 1, 25)
    made["delta"][150:200] = draw.choice([0.0, -0.0], 50)
    return made


def update_of(rule: ColumnRule, silo: int, round: int) -> Update:
    made = {name: torch.from_numpy(vector) for name, vector in vectors_of(silo, round).items()}
    lent = rule.lend(LENGTHS["delta"], torch.float32).copy_(made["delta"])
    return Update(1.0, {**made, "delta": lent, "shift": uniform(made["shift"].double())})


def large_update_of(rule: ColumnRule, silo: int, round: int) -> Update:
    return Update(1.0, {"delta": rule.lend(LARGE, torch.float32).fill_(silo)})


def combined(
    transport: Transport,
    rule: ColumnRule,
    round: int,
    silos: int = SILOS,
    update_of: Callable[[ColumnRule, int, int], Update] = update_of,
) -> dict[str, torch.Tensor]:
    """Combine the vectors of the silos that do not fail; each worker has some, the last none if it can be."""
    transport.broadcast_record(
        b"" if transport.is_server else None
    )  # as a request, which comes when all have done the last
    workers = list(transport.workers)
    hosts = workers[: max(len(workers) - 1, 1)]
    mine = [silo for silo in reversed(range(silos)) if hosts[silo % len(hosts)] == transport.rank]
    brought = reference_of(round, getattr(rule, "_as_given", rule._given).name)
    received = {f"reference {name}": torch.from_numpy(v) for name, v in brought.items()}
    rule.begin(Compute(round=round, work="train", cohort=list(range(silos))), received, mine)
    headers = []
    for silo in mine:
        if silo in FAILING:
            headers.append(Header(silo=silo, fault="no disk"))
            continue
        vectors = rule.accumulate(silo, update_of(rule, silo, round))
        headers.append(Header(silo=silo, weight=1.0, vectors=vectors))
    report = Report(headers=headers, parts=rule.parts())
    serial = 7 + round
    if not transport.is_server:
        transport.report(report.encode())
        rule.combine(transport, Verdict.model_validate_json(transport.broadcast_record()))
        return {}
    reports = {0: report} | {rank: Report.model_validate_json(record) for rank, record in transport.reports()}
    for rank, came in reports.items():
        rule.accept(transport, rank, came.parts, [header for header in came.headers if header.fault is None])
    told = Verdict(serial=serial, ranks=list(range(transport.size)), pieces=rule.place(reports)).encode()
    found = rule.combine(transport, Verdict.model_validate_json(transport.broadcast_record(told)))
    assert found.lost is None
    assert not rule.hanging
    return found.vectors


def aggregator(table: dict[str, Any], transport: Transport, disk_buffer: Path | None) -> ColumnRule:
    """What a job with this table combines updates by."""
    built = built_of(AggregationSettings.model_validate(table), 5, frozenset({"shift"}))
    made = aggregator_of(built, str(disk_buffer) if disk_buffer else None, transport.memory)
    assert isinstance(made, ColumnRule)
    return made


def combine_large(transport: Transport, disk_buffer: Path | None, rule: str, silos: int) -> None:
    combined(transport, aggregator({"rule": rule}, transport, disk_buffer), 0, silos, large_update_of)


def allocated(transport: Transport, disk_buffer: Path | None, rule: str, silos: int) -> int:
    """Combine large vectors of so many silos; return what this rank allocates for that at most, in bytes.

    These are all tensors, the peak of Python's and numpy's objects, and all shared memory that it has made.
    """
    with profile(profile_memory=True) as watched:
        tracemalloc.start()
        combine_large(transport, disk_buffer, rule, silos)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    memory = transport.memory
    segments = [*memory._lent.values(), *(one for free in memory._free.values() for one in free)]
    tensors = [event.nbytes() for event in watched.profiler.kineto_results.events()]
    return sum(max(nbytes, 0) for nbytes in tensors) + peak + sum(segment.nbytes for segment in segments)


def main() -> None:
    out, transport = Path(sys.argv[1]), world()
    disk_buffer = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    hosts_none = transport.rank not in transport.workers
    measure = allocated if hosts_none else combine_large
    # the first also imports what is imported when it is needed
    found = {
        rule: {silos: measure(transport, disk_buffer, rule, silos) for silos in (FEW, FEW, MANY)}
        for rule in ("median", "rfa")
    }
    if hosts_none:
        (out / "memory.json").write_text(json.dumps(found))
    column_slices.BLOCK, column_slices.LONGEST_CHUNK = 16, 48  # several shares, and several chunks in each
    tables = {
        name: {"rule": name, **({"byzantine": number} if number else {})} for name, number in RULES.items()
    }
    for name, table in (tables | WEIGHTED).items():
        made = aggregator(table, transport, disk_buffer)
        for round in range(ROUNDS):
            for vector, values in combined(transport, made, round).items():
                np.save(out / f"{name.replace(':', '-')}-{round}-{vector}.npy", values.numpy())
    if transport.is_server:
        (out / "done").touch()


if __name__ == "__main__":
    main()
