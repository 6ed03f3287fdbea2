"""The server's test set at the workers: a rank keeps and scores it, and the server checks the shares.

This is an aggregator of figures: a rank's part is its share of a score, and the server checks what it can. If
a rank cannot score its batches, this is not a fault of a silo.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from mpifl.common import one_line
from mpifl.common.machine import accelerators
from mpifl.data.batches import Batches
from mpifl.data.shards import FederationSpec, split_of
from mpifl.exchange.worker_side import WorkerContext
from mpifl.learning.metrics import are_codes
from mpifl.silo import short_of_memory
from mpifl.sums import Combined, read_records
from mpifl.wings.scoring.test_shares import ScoreShare, share_of, width_of
from mpifl.wire import (
    Count,
    Header,
    KeepTestSet,
    Message,
    Report,
    Request,
    ScoreBatches,
    Text,
    Transport,
    Update,
    VectorHeader,
    Verdict,
)

SPLIT = "test"
_DTYPES = {"int64": torch.int64, "float32": torch.float32, "float64": torch.float64}
_MOST = 2.0**53
"""Float64 represents whole numbers exactly up to here."""

COLUMNS = "^[1-9][0-9]{0,6}$"
"""A number of columns as a key of JSON, which has texts alone."""


class ScorePart(Message):
    """A rank's share of a score, as a message.

    Attributes:
        rows: The numbers of each batch, float64, little-endian, in base64.
        whole: Whole numbers over all batches, in the same format.
        single: Codes of single examples' probabilities by the number of columns, int32, little-endian, in
            base64.
        examples: How many examples were scored.
        counted: The dtype of the divisor of losses.
        fault: Why the rank could not score; the other fields do not count then.
        short: Whether the rank ran out of memory.
    """

    rows: str = ""
    whole: str = ""
    single: dict[Annotated[str, Field(pattern=COLUMNS)], str] = Field(default={})
    examples: Count = 0
    counted: Literal["int64", "float32", "float64"] = "int64"
    fault: Text | None = None
    short: bool = False


_PARTS = TypeAdapter(list[ScorePart])


class Arrays:
    """Arrays that came as vectors of bytes, by their names in a shard."""

    path = Path("the server's test set")

    def __init__(self, request: KeepTestSet, received: Mapping[str, Tensor]) -> None:
        self._specs, self._received = {one.name: one for one in request.arrays}, received

    def array(self, name: str) -> np.ndarray:
        """Return an array in the memory of its vector, without a copy."""
        one = self._specs[name]
        if (dtype := np.dtype(one.dtype)).kind not in "biuf":
            raise ValueError(f"{name}: {one.dtype[:100]} is not a dtype of numbers")
        array: np.ndarray = self._received[name].numpy().view(dtype).reshape(one.shape)
        return array


class Scores:
    """Keeps the test set at a rank and scores its batches; see `Aggregator`.

    Attributes:
        shares: At the server, the accepted shares by rank, each with the numbers of its batches.
        faults: At the server, why other ranks have no share.
        short: At the server, whether one of these ranks ran out of memory.
    """

    sealed: ClassVar[bool] = False

    def __init__(self, context: WorkerContext, transport: Transport) -> None:
        self._context, self._transport = context, transport
        self._request: Request = KeepTestSet(arrays=[])
        self._parts: list[ScorePart] = []
        self._test: Batches | None = None
        self._why = "no test set came"
        self.hanging: set[int] = set()
        self.shares: dict[int, tuple[range, ScoreShare]] = {}
        self.faults: dict[int, str] = {}
        self.short = False

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Keep the test set, or score this rank's batches of it."""
        self._request, self._parts, self.short = request, [], False
        self.shares, self.faults = {}, {}
        if isinstance(request, KeepTestSet):
            self._keep(request, received)
        elif isinstance(request, ScoreBatches) and (mine := request.of(self._transport.rank)):
            self._parts = [self._scored(request, received, mine)]

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return plain memory; no silo asks for it."""
        return torch.empty(length, dtype=dtype)

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Add nothing: no silo answers."""
        return {}

    def parts(self) -> Sequence[Message]:
        """Return this rank's share, if it has batches."""
        return self._parts

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check a rank's share at the server; raise ValueError if it is not valid."""
        if not isinstance(self._request, ScoreBatches):
            if parts:
                raise ValueError("it sends figures that it was not asked for")
            return
        numbers = self._request.of(rank)
        try:
            found = read_records(_PARTS, parts, "its figures")
            if len(found) != bool(numbers):
                raise ValueError(f"it sends {len(found)} shares of the score, not {int(bool(numbers))}")
            if not found:
                return
            if found[0].fault is not None:
                self.faults[rank], self.short = found[0].fault, self.short or found[0].short
                return
            self.shares[rank] = numbers, self._checked(found[0], self._request, numbers)
        except ValueError as wrong:
            self.faults[rank] = f"its report was refused: {wrong}"
            raise

    def place(self, reports: Mapping[int, Report]) -> Sequence[Message]:
        """Return nothing: no vectors follow."""
        return []

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Return nothing: `AtWorkers` adds up the shares."""
        return Combined()

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Return nothing: there are no numbers of silos."""
        return {}

    def _keep(self, request: KeepTestSet, received: Mapping[str, Tensor]) -> None:
        spec, device = self._context.spec, self._context.models[0].device
        self._test = None
        try:
            assert isinstance(spec, FederationSpec)
            split = split_of(Arrays(request, received), SPLIT, spec)
            self._test = Batches(split, spec.features, device)
        except Exception as error:  # after any error the server scores this rank's batches
            accelerators.check(device, error)
            self._why = _told(error)

    def _scored(self, request: ScoreBatches, received: Mapping[str, Tensor], mine: range) -> ScorePart:
        device = self._context.models[0].device
        try:
            return _packed(self._share(request, received, mine))
        except Exception as error:
            accelerators.check(device, error)
            return ScorePart(fault=_told(error), short=short_of_memory(error))

    def _share(self, request: ScoreBatches, received: Mapping[str, Tensor], mine: range) -> ScoreShare:
        if self._test is None:
            raise ValueError(self._why)
        if (found := len(self._test)) != request.examples or self._test.bounded(request.size) < request.size:
            what = f"{request.examples} examples, {request.size} at a time"
            raise ValueError(f"has a test set of {found} examples, and was asked for {what}")
        model, algorithm = self._context.models[0], self._context.algorithm
        model.shared.copy_(received["w"])
        model.put_back(received.get("statistics"))
        own = algorithm.own_objective
        return share_of(model, algorithm.task, self._test, request.size, mine, own)

    def _checked(self, part: ScorePart, request: ScoreBatches, numbers: range) -> ScoreShare:
        """Return a rank's share, if it is valid; otherwise raise ValueError."""
        width, wholes = width_of(self._context.algorithm.task)
        rows = _unpacked(part.rows, len(numbers) * width, "numbers of batches").view(len(numbers), width)
        whole = _unpacked(part.whole, wholes, "whole numbers")
        sizes = request.sizes
        if part.examples != (examples := sum(sizes[number] for number in numbers)):
            raise ValueError(f"it has scored {part.examples} examples, and was asked for {examples}")
        if not bool((whole == whole.round()).all()) or not bool((whole.abs() <= _MOST).all()):
            raise ValueError("its whole numbers are none")
        counts = rows[:, 1]
        if bool((counts < 0).any()) or (part.counted == "int64" and bool((counts != counts.round()).any())):
            raise ValueError("what losses are divided by is not a count")
        single = {int(columns): _codes(text, int(columns)) for columns, text in part.single.items()}
        return ScoreShare(rows, whole, part.examples, _DTYPES[part.counted], single)


def _told(error: Exception) -> str:
    return one_line(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")


def _packed(share: ScoreShare) -> ScorePart:
    if not (bool(share.rows.isfinite().all()) and bool(share.whole.isfinite().all())):
        return ScorePart(fault="its figures are not finite")
    name = str(share.counted).removeprefix("torch.")
    counted: Any = name if name in _DTYPES else "float64"
    rows, whole = _text(share.rows), _text(share.whole)
    single = {str(columns): _text(one) for columns, one in share.single.items()}
    return ScorePart(rows=rows, whole=whole, single=single, examples=share.examples, counted=counted)


def _text(tensor: Tensor) -> str:
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def _codes(text: str, columns: int) -> Tensor:
    """Decode codes of probabilities, int32 [n, columns]; raise ValueError if they are none."""
    content, what = _bytes(text, "codes"), "its codes of probabilities"
    if not columns or not content or len(content) % (4 * columns):
        raise ValueError(f"{what} have {len(content)} bytes, which is no number of rows of {columns}")
    found = torch.frombuffer(content, dtype=torch.int32).view(-1, columns)
    if not are_codes(found):
        raise ValueError(f"{what} are none")
    return found


def _unpacked(text: str, length: int, what: str) -> Tensor:
    """Decode `length` numbers; raise ValueError if there are more or fewer, or one is not finite."""
    content = _bytes(text, what)
    if len(content) != 8 * length:
        raise ValueError(f"its {what} have {len(content)} bytes, not {8 * length}")
    found = torch.frombuffer(content, dtype=torch.float64) if length else torch.zeros(0).double()
    if not bool(found.isfinite().all()):
        raise ValueError(f"its {what} are not finite")
    return found


def _bytes(text: str, what: str) -> bytearray:
    try:
        return bytearray(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise ValueError(f"its {what} cannot be read") from None
