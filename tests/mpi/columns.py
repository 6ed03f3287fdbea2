"""Run on every rank: combine known vectors by rules of columns, as an exchange does; rank 0 writes the
results.

    columns.py FOLDER [SPILL]

Silo k's vectors follow from k alone (`vectors_of`), so that a test can make them again. The last silos fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from mpifl.aggregation import rules, sharing
from mpifl.aggregation.columns import ColumnRule
from mpifl.aggregation.spill import Spill
from mpifl.wire.joining import world
from mpifl.wire.messages import Header, Report, Update, Verdict, uniform
from mpifl.wire.requests import Compute
from mpifl.wire.transport import Transport

LENGTHS = {"delta": 1003, "shift": 64, "none": 0}
SILOS, FAILING = 9, (4, 8)
RULES = {"median": None, "trimmed": 2, "columns:spread": None}
ROUNDS = 2


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
    made["delta"][150:200] = draw.choice([0.0, -0.0], 50)
    return made


def combined(transport: Transport, rule: ColumnRule, round: int) -> dict[str, torch.Tensor]:
    """Combine the vectors of the silos that do not fail; each worker has some, the last none if it can be."""
    transport.broadcast_record(
        b"" if transport.is_server else None
    )  # as a request, which comes when all have done the last
    workers = list(transport.workers)
    hosts = workers[: max(len(workers) - 1, 1)]
    mine = [silo for silo in reversed(range(SILOS)) if hosts[silo % len(hosts)] == transport.rank]
    rule.begin(Compute(work="train", cohort=list(range(SILOS))), {}, mine)
    headers = []
    for silo in mine:
        if silo in FAILING:
            headers.append(Header(silo=silo, fault="no disk"))
            continue
        made = {name: torch.from_numpy(vector) for name, vector in vectors_of(silo, round).items()}
        lent = rule.lend(LENGTHS["delta"], torch.float32).copy_(made["delta"])
        update = Update(1.0, {**made, "delta": lent, "shift": uniform(made["shift"].double())})
        headers.append(Header(silo=silo, weight=1.0, vectors=rule.accumulate(silo, update)))
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


def main() -> None:
    sharing.BLOCK, sharing.LONGEST_CHUNK = 16, 48  # several shares, and several chunks in each
    out, transport = Path(sys.argv[1]), world()
    spill = Spill(Path(sys.argv[2])) if len(sys.argv) > 2 else None
    for name, tolerate in RULES.items():
        rule = rules.rule_of(name, tolerate)
        assert rule is not None
        aggregator = ColumnRule(rule, torch.device("cpu"), transport.memory, spill)
        for round in range(ROUNDS):
            found = combined(transport, aggregator, round)
            for vector, values in found.items():
                np.save(out / f"{name.replace(':', '-')}-{round}-{vector}.npy", values.numpy())
    if transport.is_server:
        (out / "done").touch()


if __name__ == "__main__":
    main()
