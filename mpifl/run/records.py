"""`metrics.jsonl` of a run folder: a line for each round."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from mpifl.common import InputError, read_whole, write_needed

LARGEST = 1e100
"""What figures of a round are below; there are sums of them."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rounds in `metrics.jsonl`, without lines that are torn or tell of no round.

    Raises:
        InputError: it cannot be read.
    """
    path = folder / "metrics.jsonl"
    try:
        lines = read_whole(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return [record for line in lines if (record := _record(line)) is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError):
        record = from_json(line, allow_inf_nan=False)
        round = record.get("round") if isinstance(record, dict) else None
        return record if type(round) is int and 0 <= round < LARGEST else None
    return None


def number(record: Mapping[str, Any], name: str) -> float | None:
    """Return a figure of a round; None where it is missing, no number or not finite (a diverged loss)."""
    value: Any = record.get(name)
    return float(value) if type(value) in (int, float) and abs(value) < LARGEST else None


def trim_metrics(folder: Path, round: int) -> None:
    """Drop torn lines, and what `metrics.jsonl` says of rounds after `round`: they will be done again.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    records = [record for record in read_metrics(folder) if record["round"] <= round]
    write_needed(folder / "metrics.jsonl", b"".join(encode_record(record) for record in records))


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return one line of `metrics.jsonl`; a figure that is not finite (a diverged loss) is null there."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, allow_nan=False).encode() + b"\n"
