"""Encoding of a dialogue's messages by the job's codecs, each row separately."""

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
"""The most payload bytes for a number of a message: a row of one number also has a norm."""


@dataclass(frozen=True)
class Writing:
    """Encodes the messages of one dialogue in one direction.

    Attributes:
        codec: The codec; None for plain float32.
        way: "upload" to the server, "download" for its answers.
        home: The silo at the server's own site. Its messages stay there and are not encoded.
        seed: The job's seed.
        work: The name of the client method.
    """

    codec: Codec | None
    way: Literal["upload", "download"]
    home: int | None
    seed: int
    work: str
    round: int

    def write(self, line: Tensor, silo: int, number: int) -> memoryview:
        """Return a message as bytes, row after row. Without a codec it may share the tensor's memory.

        Args:
            line: The message, float32 of shape [rows, width].
            silo: The silo whose dialogue it belongs to.
            number: Its number in this dialogue.

        Raises:
            ValueError: the codec cannot encode it.
        """
        plain = line.detach().cpu().contiguous()
        if (codec := self._codec(silo, plain.shape[1])) is None:
            return _bytes_of(plain)
        if not bool(plain.isfinite().all()):
            raise Diverged("a line is not finite; training diverged, use a lower [local] lr")
        way = self.way.removesuffix("load")  # the stream is older than the key's name, and its bits stay
        draw = rng.torch_stream(self.seed, f"line {way} of {self.work}", silo, self.round, number)
        try:
            return _bytes_of(codec.encode(plain.view(-1), draw))
        except ValueError as error:
            raise type(error)(f"[compression] {self.way}: a line {error}") from None

    def read(self, payload: memoryview, silo: int, rows: int, width: int) -> Tensor:
        """Decode a payload; return float32 of shape [rows, width] on the CPU.

        Raises:
            ValueError: it cannot be decoded.
        """
        if (codec := self._codec(silo, width)) is None:
            return _of_own(floats(payload, rows, width))
        written = torch.from_numpy(np.frombuffer(payload, np.uint8))
        try:
            return codec.decode(written, rows * width).view(rows, width)
        except ValueError as error:
            raise ValueError(f"[compression] {self.way}: a line {error}") from None

    def carried(self, line: Tensor, silo: int, number: int) -> tuple[Tensor, int]:
        """Encode and decode a message that stays on its rank; return the result and its bytes between sites.

        Raises:
            ValueError: the codec cannot encode it.
        """
        if self.codec is None or silo == self.home:
            return _of_own(line), self.counted(silo, 4 * line.numel())
        payload = bytearray(self.write(line, silo, number))
        return self.read(memoryview(payload), silo, *line.shape).to(line.device), len(payload)

    def counted(self, silo: int, nbytes: int) -> int:
        """Return how many of a payload's bytes travel between sites."""
        return 0 if silo == self.home else nbytes

    def _codec(self, silo: int, width: int) -> Codec | None:
        return None if self.codec is None or silo == self.home else self.codec.by_rows(width)


def _of_own(line: Tensor) -> Tensor:
    """Return a contiguous copy of a message: with another memory layout products may round differently."""
    return line.clone(memory_format=torch.contiguous_format)


def _bytes_of(found: Tensor) -> memoryview:
    return found.numpy().reshape(-1).view(np.uint8).data


@dataclass(frozen=True)
class ActivationCodecs:
    """The codecs of a job's dialogues: for messages to the server (upload) and for its answers (download)."""

    upload: Codec | None = None
    download: Codec | None = None
    home: int | None = None
    seed: int = 0

    @classmethod
    def of(cls, settings: CompressionSettings, home: int, seed: int) -> ActivationCodecs:
        """Return the codecs that a job's `[compression]` asks for."""
        return cls(codec_of(settings, settings.upload), codec_of(settings, settings.download), home, seed)

    def writing(self, work: str, round: int) -> tuple[Writing, Writing]:
        """Return the encoders of one dialogue: for messages to the server, and for its answers."""
        about = self.home, self.seed, work, round
        return Writing(self.upload, "upload", *about), Writing(self.download, "download", *about)


PLAIN_LINES = ActivationCodecs()
"""No codec: all messages are plain float32."""
