"""A training in which the leader of a node, rank `LEADER`, lies to the ranks that it relays to: `RELAY` in
the environment says how.

    {"what": "request" | "verdict", "round": r, "as": NAME}
                                what it relays of the requests to train in round r, or of their verdicts
    {"what": "handle", "round": r, "as": NAME}
                                where it says that the model lies
    {"what": "job", "as": NAME} what it relays of the job before the training

Rounds count from 1. NAME is one of `FORGED`.
"""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable
from typing import Any

from mpifl import FedAvg
from mpifl.wire.transport import HANDLE, RECORD, Transport

LEADER = 2
PLAN: dict[str, Any] = json.loads(os.environ.get("RELAY", "{}"))


def _changed(**keys: Any) -> Callable[[bytes], bytes]:
    return lambda record: json.dumps({**json.loads(record), **keys}).encode()


def _other_job(record: bytes) -> bytes:
    told = json.loads(record)
    told["job"] = told["job"].replace('"relaying:Plain"', '"antigravity:Evil"')
    return json.dumps(told).encode()


FORGED: dict[str, Callable[[bytes], bytes]] = {
    "brace": lambda record: b"{",
    "nothing": lambda record: b"",
    "bytes": lambda record: bytes(range(256)) * 40,
    "deep": lambda record: b"[" * 1_000_000,
    "list": lambda record: b"[1]",
    "another kind": _changed(kind="shell"),
    "no dtype": _changed(vectors=[{"name": "w", "length": 5, "dtype": "bool"}]),
    "a vast vector": _changed(vectors=[{"name": "w", "length": 1 << 60, "dtype": "float32"}]),
    "another work": _changed(work="evaluate"),
    "another round": _changed(round=7),
    "nobody counts": _changed(accepted=[]),
    "ranks of nowhere": _changed(ranks=[77, 99]),
    "no rank": _changed(ranks=[]),
    "pieces of text": _changed(pieces=["all"]),
    "pieces of another vector": lambda record: record.replace(b'"delta"', b'"gamma"'),
    "none": lambda handle: b"",
    "not open": lambda handle: (9999).to_bytes(8, "little"),
    "long": lambda handle: b"\xff" * 5000,
    "another job": _other_job,
}


class Plain(FedAvg):
    """Trains as usual: only that this module is imported has ranks lie."""


_send_all = Transport._send_all
_told: dict[str, Any] = {}


def _is_due(record: bytes, tag: int) -> bool:
    if tag == HANDLE:
        return PLAN["what"] == "handle" and _told.get("round") == PLAN["round"] - 1
    heard = json.loads(record) if record.startswith(b"{") else {}
    if "kind" in heard:
        _told.clear()
        _told.update(heard if heard.get("work") == "train" else {})
    what = "request" if "kind" in heard else "verdict"
    return PLAN["what"] == what and _told.get("round") == PLAN["round"] - 1


def _relayed(transport: Any, record: bytes, ranks: Any, tag: int) -> None:
    if tag in (RECORD, HANDLE) and _is_due(record, tag):
        record = FORGED[PLAN["as"]](record)
    _send_all(transport, record, ranks, tag)


def _relayed_job(transport: Any, record: bytes, ranks: Any, tag: int) -> None:
    _send_all(transport, FORGED[PLAN["as"]](record) if tag == RECORD else record, ranks, tag)


LIES = PLAN and os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMIX_RANK")) == str(LEADER)
if LIES and (PLAN["what"] == "job") == (__name__ == "__main__"):  # once, and of the job before it is read
    Transport._send_all = _relayed_job if PLAN["what"] == "job" else _relayed  # type: ignore[method-assign]
if __name__ == "__main__":
    runpy.run_module("mpifl", run_name="__main__", alter_sys=True)
