"""How lines of a dialogue are written: by codecs of the job, each row by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mpifl.common import Diverged, rng
from mpifl.run.job.tables import CompressionSettings
from mpifl.wings.compression import Codec, codec_of
from mpifl.wings.split.split_messages import floats

LONGEST = 8
"""Bytes of a payload for each number of a line, at most: a row of one number has a norm of its own."""


@dataclass(frozen=True)
class Writing:
    """How the lines of one dialogue are written, one way.

    Attributes:
        codec: By what; None for float32.
        way: The key of the job that names the codec.
        home: The silo at the server's own site: its lines go nowhere, and stay as they are.
        seed: The job's.
        work: The name of the silos' half.
        round: The round.
    """

    codec: Codec | None
    way: Literal["up", "down"]
    home: int | None
    seed: int
    work: str
    round: int

    def write(self, line: Tensor, silo: int, number: int) -> memoryview:
        """Return a line as bytes, row after row: the memory of the line itself where nothing encodes it.

        Args:
            line: Float32, shape [rows, width].
            silo: Whose dialogue it belongs to.
            number: Counts the lines of that silo.

        Raises:
            ValueError: the codec cannot write it.
        """
        plain = line.detach().cpu().contiguous()
        if (codec := self._codec(silo, plain.shape[1])) is None:
            return _bytes_of(plain)
        if not bool(plain.isfinite().all()):
            raise Diverged("a line is not finite; training diverged, take a lower [local] lr")
        draw = rng.torch_stream(self.seed, f"line {self.way} of {self.work}", silo, self.round, number)
        try:
            return _bytes_of(codec.encode(plain.view(-1), draw))
        except ValueError as error:
            raise type(error)(f"[compression] {self.way}load: a line {error}") from None

    def read(self, payload: memoryview, silo: int, rows: int, width: int) -> Tensor:
        """Return the line, float32 of shape [rows, width] on the CPU, that a payload stands for.

        Raises:
            ValueError: it stands for none.
        """
        if (codec := self._codec(silo, width)) is None:
            return _of_own(floats(payload, rows, width))
        written = torch.from_numpy(np.frombuffer(payload, np.uint8))
        try:
            return codec.decode(written, rows * width).view(rows, width)
        except ValueError as error:
            raise ValueError(f"[compression] {self.way}load: a line {error}") from None

    def carried(self, line: Tensor, silo: int, number: int) -> tuple[Tensor, int]:
        """Return what the other side reads of a line that stays on its rank, and how many bytes it would be.

        Raises:
            ValueError: the codec cannot write it.
        """
        if self.codec is None or silo == self.home:
            return _of_own(line), self.counted(silo, 4 * line.numel())
        payload = bytearray(self.write(line, silo, number))
        return self.read(memoryview(payload), silo, *line.shape).to(line.device), len(payload)

    def counted(self, silo: int, nbytes: int) -> int:
        """Return how many of a payload's bytes go from one site to another."""
        return 0 if silo == self.home else nbytes

    def _codec(self, silo: int, width: int) -> Codec | None:
        return None if self.codec is None or silo == self.home else self.codec.by_rows(width)


def _of_own(line: Tensor) -> Tensor:
    """Return a line in memory of its own, row after row: where numbers lie otherwise, products may round
    otherwise."""
    return line.clone(memory_format=torch.contiguous_format)


def _bytes_of(found: Tensor) -> memoryview:
    return found.numpy().reshape(-1).view(np.uint8).data


@dataclass(frozen=True)
class ActivationCodecs:
    """How lines of all dialogues of a job are written: to the server (up), and as its answers (down)."""

    upload: Codec | None = None
    download: Codec | None = None
    home: int | None = None
    seed: int = 0

    @classmethod
    def of(cls, settings: CompressionSettings, home: int, seed: int) -> ActivationCodecs:
        """Return what a job's `[compression]` asks for."""
        return cls(codec_of(settings, settings.upload), codec_of(settings, settings.download), home, seed)

    def writing(self, work: str, round: int) -> tuple[Writing, Writing]:
        """Return how lines to the server and its answers are written in a dialogue."""
        about = self.home, self.seed, work, round
        return Writing(self.upload, "up", *about), Writing(self.download, "down", *about)


PLAIN_LINES = ActivationCodecs()
"""All lines are float32."""
