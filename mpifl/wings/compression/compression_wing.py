"""The wing for `[compression]`, and the codecs that a job asks for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mpifl.algorithms import Algorithm
from mpifl.data.shards import AnySpec
from mpifl.run.job import Job
from mpifl.run.job.tables import OWN_KEYS, CompressionSettings
from mpifl.training import Wing
from mpifl.transforms import Transform
from mpifl.wings.compression.codecs import CODECS, Cast, Codec
from mpifl.wings.compression.compressing_transform import Compression


class Compressing(Wing):
    """Encodes requests and updates as `[compression]` says."""

    def __init__(self, settings: CompressionSettings) -> None:
        self._settings = settings

    def transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return the transform that encodes and decodes."""
        return [compression_of(self._settings, algorithm.absolute, algorithm.accumulated)]


def wing(job: Job) -> Wing:
    """Return the wing for a job's `[compression]`."""
    return Compressing(job.compression)


def compression_of(
    settings: CompressionSettings, absolute: Collection[str], accumulated: Collection[str] = ()
) -> Compression:
    """Return the transform that a table asks for; `absolute` and `accumulated` as in `Compression`."""
    up, down = codec_of(settings, settings.upload), codec_of(settings, settings.download)
    return Compression(up, down, bool(settings.error_feedback), frozenset(absolute), frozenset(accumulated))


def codec_of(settings: CompressionSettings, name: str) -> Codec | None:
    """Return the codec of this name with a table's settings, None for "none"."""
    if name in ("float16", "bfloat16"):
        return Cast(name)  # type: ignore[arg-type]
    keys = {key: getattr(settings, key) for key in OWN_KEYS.get(name, {})}
    return CODECS[name](**keys) if keys else None
