"""Cut a data set into the shards of a federation."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.cut.held_out import with_untested
from data_prep.cut.origin import check_kept, keeping, numbered, of_public, of_testing, of_training, shard_of
from data_prep.dataset import Alter, Cut, Dataset, row_bytes
from data_prep.schemes import Options, Shares, check_groups, cut_whole, find_scheme, resolve
from data_prep.sources import Source, find_source
from data_prep.write import (
    FILE,
    Ledger,
    NewShard,
    Section,
    Writer,
    check_free,
    check_room,
    compression_of,
    default_jobs,
    digest_of,
    filters_of,
    make_shards,
    written_atomically,
)
from mpifl.common import InputError, ShardError, numpy_stream
from mpifl.data.shards import FederationSpec, read_federation, version_of

HEADER = 1 << 14
"""Bytes of a shard beside its rows, at most."""


@dataclass(frozen=True)
class WriteOptions:
    """How shards are written; what they hold does not depend on it.

    Attributes:
        jobs: How many threads write.
        compression: One of `COMPRESSIONS`.
        resume: Keep what is done when interrupted, and continue from there when asked again.
    """

    jobs: int = field(default_factory=default_jobs)
    compression: str = "none"
    resume: bool = False

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InputError(f"--jobs: {self.jobs} given; it must be 1 or more")


def _learnable(data: Dataset) -> Dataset:
    """Refuse data that nothing can be learned of."""
    if data.lacks:
        raise InputError(f"{data.where}: {data.lacks}; at least one row needs it")
    return data


def partition(
    source: str,
    data: Path | None,
    out: Path,
    scheme: str,
    silos: int | None,
    seed: int,
    *,
    options: Options,
    shares: Shares,
    name: str | None = None,
    source_options: Sequence[str] = (),
    manner: WriteOptions | None = None,
    keep: str | None = None,
) -> FederationSpec:
    """Read a source, cut it by a scheme and write a shard for every silo; return what `federation.json` says.

    The same source, seed and options give the same bytes. An option of None is not given.

    Raises:
        InputError: anything given is wrong; nothing is left of `out` then, unless it is to be resumed.
    """
    read, cut, manner = find_source(source, source_options), find_scheme(scheme), manner or WriteOptions()
    chosen, filters = resolve(scheme, cut, options), filters_of(manner.compression)
    if not (before := _finished(out) if manner.resume else None):
        check_free(out)
    dataset = cut.prepared(_learnable(keeping(read(data, seed), keep)), chosen)
    check_groups(dataset)
    private, public = shares.set_public_aside(dataset, seed, natural=_natural(cut.by(chosen), dataset, read))
    kept = dataset.pick(private) if len(public) else dataset
    parts = cut_whole(cut, kept, silos, numpy_stream(seed, "partition"), chosen)
    shards = _silos(dataset, private, parts.parts, names_of(parts, dataset, private), shares, seed)
    shards, shared = numbered(shards, _shared(dataset, public))
    train = [one.ids for shard in shards for one in shard.sections if one.split == "train"]
    dataset = with_untested(dataset.fitted(np.concatenate(train)), shards)
    cut_by = {"name": scheme, **chosen, **cut.told, **shares.told(dataset)}
    # the record of what was asked for has the files' digests; else they come while shards are written
    files = dataset.files if manner.resume else {}
    spec = described(dataset, name or f"{source}-{scheme}", seed, cut_by, source, source_options, files=files)
    if before:
        check_kept(out / before.silos[0].file, shards[0], keep)
        return _same(out, before, spec, len(shards), manner.compression)
    alter = cut.alter(dataset, chosen)
    writer = partial(Writer, alter=alter and _for_silos(alter, len(shards), seed), filters=filters)
    return write_folder(out, spec, shards, shared, writer, manner, files=dataset.files)


def _natural(column: str, data: Dataset, read: Source) -> bool:
    """Tell whether silos are natural; say what would name them if the source takes that, and nothing does."""
    takes = inspect.signature(read).parameters
    if column == "silo" and data.silo is None and ("silo" in takes or "spec" in takes):
        ways = (
            "--silo FIELD, or of folders --silo parent" if "silo" in takes else 'silo = "COLUMN" in its spec'
        )
        raise InputError(
            f"--scheme: natural, and {data.where} does not name the examples' silo; give it: {ways}"
        )
    return column == "silo"


def described(
    data: Dataset,
    name: str,
    seed: int,
    scheme: dict[str, Any],
    source: str,
    source_options: Sequence[str],
    files: Mapping[str, str] | None = None,
) -> FederationSpec:
    """Return what `federation.json` will say, without its shards; `files` may stand for the data's own."""
    more: dict[str, Any] = {"options": list(source_options)} if source_options else {}
    more |= {**data.told, **({"encoding": data.encoding} if data.encoding else {})}
    return FederationSpec(
        format_version=version_of(data.features, data.targets),
        name=name,
        features=data.features,
        classes=data.classes,
        targets=data.targets,
        seed=seed,
        scheme=scheme,
        source={"name": source, "files": dict(data.files if files is None else files), **more},
        silos=[],
        class_names=None if data.class_names is None else list(data.class_names),
        feature_names=None if data.feature_names is None else list(data.feature_names),
    )


def write_folder(
    out: Path,
    spec: FederationSpec,
    silos: Sequence[NewShard],
    shared: Sequence[NewShard],
    writer: Callable[..., Writer],
    manner: WriteOptions,
    files: Mapping[str, str],
) -> FederationSpec:
    """Write the shards of a federation and its `federation.json`, all or nothing; return what that says.

    It has the sha256 of `files`, which are asked for when the shards are written.
    """
    every = [*silos, *shared]
    asked = {**spec.model_dump(mode="json"), "compression": manner.compression}
    with _aside(out, manner, every) as (folder, keep):
        ledger = Ledger(keep, {**asked, "rows": digest_of([s for shard in every for s in shard.sections])})
        try:
            common = {"features": spec.features, "classes": spec.classes, "targets": spec.targets}
            ready = writer(folder=folder, resumed=keep is not None, **common)
            entries = {entry.file: entry for entry in make_shards(ready, every, manner.jobs, ledger)}
        finally:
            ledger.close()
        update: dict[str, Any] = {shard.name: entries[shard.file] for shard in shared}
        update |= {"silos": [entries[shard.file] for shard in silos]}
        spec = spec.model_copy(update={**update, "source": {**spec.source, "files": dict(files)}})
        spec.write(folder)
    (out / FILE).unlink(missing_ok=True)
    return spec


@contextmanager
def _aside(out: Path, manner: WriteOptions, shards: Sequence[NewShard]) -> Iterator[tuple[Path, Path | None]]:
    """Lend the folder to write to, and the same if it is to be kept when this is interrupted."""
    keep = out.resolve().with_name(f".{out.resolve().name}.resume") if manner.resume else None
    if not (keep and keep.exists()):
        check_room(out, room(shards))
    try:
        with written_atomically(out, keep) as folder:
            yield folder, keep
    except (KeyboardInterrupt, SystemExit):
        if keep:
            print(f"{keep} keeps what is done; the same command continues from there", file=sys.stderr)
        raise


def room(shards: Sequence[NewShard]) -> int:
    """Return the bytes that uncompressed shards take;
    twice for the largest, if it may be put into order in a file of its own."""
    sizes = [HEADER + sum(map(_bytes, shard.sections)) for shard in shards]
    return sum(sizes) + max(sizes) * any(section.swept for shard in shards for section in shard.sections)


def _bytes(section: Section) -> int:
    of_group = 0 if section.groups is None else section.groups.itemsize
    of_rows = 0 if section.given is None else section.given.bytes
    return len(section) * (row_bytes(section.rows) + row_bytes(section.labels) + of_group) + of_rows


def _silos(
    data: Dataset,
    private: np.ndarray,
    parts: Sequence[np.ndarray],
    names: Sequence[str],
    shares: Shares,
    seed: int,
) -> list[NewShard]:
    """Say what every silo's shard holds, by positions in the data set as its source read it."""
    digits = max(4, len(str(len(parts) - 1)))
    shards = []
    for silo, part in enumerate(parts):
        splits = shares.split(private[part], seed, silo, data, names[silo])
        file = f"silo_{silo:0{digits}d}.h5"
        shards.append(shard_of(file, names[silo], silo, of_training(data), splits))
    return shards


def _shared(data: Dataset, public: np.ndarray) -> list[NewShard]:
    """Describe the shards of no silo: the server's own test set, the public examples."""
    shards = []
    if tested := of_testing(data):
        shards.append(shard_of("test.h5", "test", None, tested, {"test": np.arange(len(tested.y))}))
    if len(public):
        shards.append(shard_of("public.h5", "public", None, of_public(data), {"public": public}))
    return shards


def names_of(cut: Cut, data: Dataset, private: np.ndarray) -> list[str]:
    """Name the silos: as the scheme does, or by the data's own ids where each has the examples of one."""
    if cut.names is not None:
        return list(cut.names)
    if data.silo is not None:
        ids = [data.silo[private[part]] for part in cut.parts]
        own = [int(found[0]) for found in ids if len(found) and (found == found[0]).all()]
        if len(set(own)) == len(ids):
            return [(data.silo_names or {}).get(number, str(number)) for number in own]
    return [f"silo {silo}" for silo in range(len(cut.parts))]


def _for_silos(alter: Alter, silos: int, seed: int) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    return lambda silo, x, y, ids: alter(silo, silos, x, y, ids, seed)


def _finished(out: Path) -> FederationSpec | None:
    """Return what a folder says that is there already; None if there is none, or an empty one."""
    return read_federation(out) if (out / "federation.json").exists() else None


def _same(
    out: Path, before: FederationSpec, asked: FederationSpec, silos: int, compression: str
) -> FederationSpec:
    """Return what a finished folder says, if it is what was asked for."""
    apart: dict[str, Any] = {"silos": [], "test": None, "public": None}
    # of a version that wrote none
    unknown = {"encoding", "notes", "factors"} - before.source.keys()
    source = {key: value for key, value in asked.source.items() if key not in unknown}
    asked = asked.model_copy(update={"source": source})
    if before.model_copy(update=apart) != asked or len(before.silos) != silos:
        raise ShardError(f"--out: {out} exists, made with other arguments or data; remove it or name another")
    if (found := compression_of(out / before.silos[0].file)) != compression:
        made = f"made with --compression {found}, now it is {compression}"
        raise ShardError(f"--out: {out} exists, {made}; remove it or name another")
    (out / FILE).unlink(missing_ok=True)
    return before
