"""Cut a data set into the shards of a federation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset
from data_prep.folder import check_free, signals_held, written_aside
from data_prep.holdout import Shares
from data_prep.schemes import Options, Scheme, find_scheme, resolve
from data_prep.sources import find_source
from mpifl.rng import numpy_stream
from mpifl.shards import Arrays, FederationSpec, ShardEntry, write_shard


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
) -> FederationSpec:
    """Read a source, cut it by a scheme and write a shard for every silo; return what `federation.json` says.

    The same source, seed and options give the same bytes. `options` are those of the scheme; None is not given.

    Raises:
        InputError: anything given is wrong; nothing is left of `out` then.
    """
    read, cut = find_source(source), find_scheme(scheme)
    chosen = resolve(scheme, cut, options)
    check_free(out)
    dataset, public = _without_public(read(data, seed), shares, seed)
    parts = cut(dataset, silos, numpy_stream(seed, "partition"), chosen)
    with written_aside(out) as folder:
        entries = _write_silos(folder, dataset, parts, _names(cut, dataset, parts), shares, seed)
        spec = FederationSpec(
            name=name or f"{source}-{scheme}",
            features=dataset.features,
            classes=dataset.classes,
            seed=seed,
            scheme={"name": scheme, **chosen, **_given(shares)},
            source={"name": source, "files": dataset.files},
            silos=entries,
            test=_write_shared(folder, dataset, "test", dataset.test),
            public=_write_shared(folder, dataset, "public", public),
        )
        spec.write(folder)
    return spec


def _names(scheme: Scheme, data: Dataset, parts: Sequence[np.ndarray]) -> list[str]:
    """Name the silos: by the data's own ids where it was cut by them."""
    if scheme.column == "silo" and data.silo is not None:
        return [str(data.silo[part[0]]) for part in parts]
    return [f"silo {silo}" for silo in range(len(parts))]


def _given(shares: Shares) -> dict[str, Any]:
    return {name: share for name, share in vars(shares).items() if share}


def _write_silos(
    folder: Path, data: Dataset, parts: Sequence[np.ndarray], names: Sequence[str], shares: Shares, seed: int
) -> list[ShardEntry]:
    digits = max(4, len(str(len(parts) - 1)))
    entries = []
    for silo, part in enumerate(_progress(parts)):
        splits = {split: (data.x[at], data.y[at]) for split, at in shares.split(part, seed, silo).items()}
        entries.append(_write(folder / f"silo_{silo:0{digits}d}.h5", data, splits, silo, names[silo]))
    return entries


def _without_public(data: Dataset, shares: Shares, seed: int) -> tuple[Dataset, tuple[np.ndarray, np.ndarray] | None]:
    """Take the public examples out of a dataset; return what is left, and them if there are any."""
    private, public = shares.set_public_aside(len(data), seed)
    if not len(public):
        return data, None
    silo = None if data.silo is None else data.silo[private]
    return replace(data, x=data.x[private], y=data.y[private], silo=silo), (data.x[public], data.y[public])


def _write_shared(
    folder: Path, data: Dataset, split: str, arrays: tuple[np.ndarray, np.ndarray] | None
) -> ShardEntry | None:
    """Write a shard of no silo, if there is something for it: the server's own test set, the public examples."""
    return _write(folder / f"{split}.h5", data, {split: arrays}, None, split) if arrays else None


@signals_held()
def _write(path: Path, data: Dataset, splits: Arrays, silo: int | None, name: str) -> ShardEntry:
    return write_shard(path, splits, silo=silo, name=name, features=data.features, classes=data.classes)


def _progress(parts: Sequence[np.ndarray]) -> Iterable[np.ndarray]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(parts, "Writing shards", console=console, transient=True, disable=not sys.stderr.isatty())
