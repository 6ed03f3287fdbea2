"""What travels between ranks: records as JSON,
reports that the server does not believe, and codecs' payloads."""

from __future__ import annotations

import functools
from pathlib import Path
from random import Random

import torch

from fuzzing import artefacts
from fuzzing.mutations import harmed_bytes, harmed_json
from fuzzing.outcomes import Undocumented
from mpifl.cli.doctor.condition import Plan
from mpifl.common.errors import RoundLost
from mpifl.common.names import Names
from mpifl.exchange.server_side.admission import ExpectedUpdates, screened
from mpifl.exchange.server_side.faults import Judge
from mpifl.exchange.server_side.report_reading import Refused, read
from mpifl.sums.aggregator import headers_of, updates_of
from mpifl.sums.mean import WeightedMean
from mpifl.wings.compression.codecs import QSGD, Cast, Codec, TopK
from mpifl.wire.memory import Memory
from mpifl.wire.messages import Header, Report, Verdict
from mpifl.wire.requests import Compute, Inventory, Open, Request, SaveStatus

ASKED = {"round": 3, "cohort": [0, 1, 2], "serial": 4}
REQUESTS: dict[str, Request] = {
    "compute": Compute(work="train", **ASKED),
    "save_status": SaveStatus(checkpoint=3, wait=True, **ASKED),
    "open": Open(**ASKED),
    "inventory": Inventory(**ASKED),
}


def messages(draw: Random, valid: Path, folder: Path) -> tuple[type, bytes]:
    records = [*artefacts.reports().values(), *artefacts.records(), Plan(spec="{}", folder="a", run="b")]
    record = draw.choice(records)
    return type(record), harmed_json(draw, record.encode())


def decode(given: tuple[type, bytes]) -> None:
    given[0].model_validate_json(given[1])


def reports(draw: Random, valid: Path, folder: Path) -> tuple[str, bytes]:
    """Return a kind of request and a harmed answer, mostly to a request of that kind."""
    honest = artefacts.reports()
    kind = draw.choice(("compute", "compute", "compute", *honest))
    return draw.choice((kind, kind, kind, *honest)), harmed_json(draw, honest[kind].encode())


def take_report(given: tuple[str, bytes]) -> None:
    """Have the server make of a report what it makes of it,
    beside another rank's; raise what it refuses it by."""
    came = read(given[1])
    request, expected = REQUESTS[given[0]], ExpectedUpdates({0: 12.0}, 20, {})
    mean = WeightedMean(torch.device("cpu"), Memory(shared=False))
    accept = functools.partial(mean.accept, artefacts.TwoNodes(), 1)
    taken = screened(came, request, "rank 1", {0, 1}, expected, accept)
    other = Report(
        serial=4,
        headers=[Header(silo=2, weight=3.0, vectors=artefacts.reports()["compute"].headers[0].vectors)],
    )
    headers = headers_of({1: taken, 2: other})
    Judge(0.5, Names()).reason_to_lose(request, headers)
    try:
        pieces = mean.place({1: taken, 2: other})
    except RoundLost:
        pieces = []
    mean.scalars(updates_of(headers))
    Verdict(serial=4, accepted=[header.silo for header in headers], ranks=[1, 2], pieces=pieces).encode()
    if isinstance(came, Refused) or any("was refused" in (header.fault or "") for header in headers):
        raise Refused


CODECS: tuple[Codec, ...] = (
    *(Cast("float16"), Cast("bfloat16"), QSGD(), QSGD(2, 7, "l2"), QSGD(5, 1), QSGD(8, 10**9), QSGD(3, 512)),
    *(TopK(), TopK(1e-9), TopK(1.0), TopK(0.5), TopK(0.0001)),
)


def payloads(draw: Random, valid: Path, folder: Path) -> tuple[Codec, bytes, int]:
    codec = draw.choice(CODECS)
    length = draw.choice((0, 1, 2, 7, 20, 100, 513, 70_000)) or 1
    written = codec.encode(artefacts.vector(draw.randrange(9), length), torch.Generator().manual_seed(0))
    wrong = (
        length,
        length,
        length,
        length + 1,
        length - 1,
        0,
        -1,
        2 * length,
        2**31,
        2**40,
        2**63 - 1,
        -(2**63),
    )
    return (
        codec,
        harmed_bytes(draw, bytes(written.numpy())) if draw.random() < 0.8 else bytes(written.numpy()),
        draw.choice(wrong),
    )


def decode_payload(given: tuple[Codec, bytes, int]) -> None:
    codec, payload, length = given
    vector = codec.decode(
        torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        if payload
        else torch.empty(0, dtype=torch.uint8),
        length,
    )
    if vector.dtype != torch.float32 or tuple(vector.shape) != (length,):
        raise Undocumented(
            f"{type(codec).__name__}: {vector.dtype} {list(vector.shape)} for a length of {length}"
        )
