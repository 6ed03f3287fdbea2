"""A silo of one's own: its data becomes its one shard,
by a description that the sites agree on and nobody's data."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.cut import (
    WriteOptions,
    keeping,
    numbered,
    of_testing,
    of_training,
    room,
    section_of,
    shard_of,
    with_untested,
)
from data_prep.dataset import Dataset, padded_to
from data_prep.schemes import Shares, check_groups
from data_prep.site.agreement import agreeing_on, as_agreed, describe, said_of
from data_prep.site.converting import converted
from data_prep.site.table_readings import read_by
from data_prep.sources import find_source
from data_prep.write import Ledger, NewShard, Writer, check_room, filters_of, make_shards, scratch
from mpifl.common import InputError, suggested
from mpifl.data import Targets, aims_by_path, flat
from mpifl.data.shards import FederationSpec, arrays_of, by_path, encoding_of, read_spec, unlike


@dataclass(frozen=True)
class Site:
    """Whose shard it is.

    Attributes:
        silo: The silo's number, which the sites agree on; None is the server, with its own test set.
        name: What the silo is called; the server's test set has no name.
    """

    silo: int | None
    name: str | None = None

    @property
    def stem(self) -> str:
        """Return the name of its files, but for their endings."""
        return "test" if self.silo is None else f"silo_{self.silo:04d}"


def import_site(
    source: str,
    data: Path | None,
    spec: Path,
    out: Path,
    site: Site,
    seed: int,
    *,
    shares: Shares,
    source_options: Sequence[str] = (),
    manner: WriteOptions | None = None,
    keep: str | None = None,
) -> FederationSpec:
    """Turn a site's own data into its shard in `out`, and beside it a `.json` with the entry that others may
    see.

    Args:
        source: The name of the source that reads the data.
        data: The source's file or folder.
        spec: A `federation.json`, or one without silos, as `new_spec` makes it.
        out: The folder for the shard; others' files in it are left alone.
        site: Whose it is.
        seed: What the hold-out is drawn by.
        shares: What is held out. Without `--test` the source's own test set is the silo's.
        source_options: `KEY=VALUE` words for the source; texts are else cut as the federation's are.
        manner: How it is written.
        keep: One of `KEEPS`.

    Raises:
        InputError: something given is wrong, or the data is not what the federation's spec says.
    """
    common = read_spec(spec / "federation.json" if spec.is_dir() else spec)
    manner, read = manner or WriteOptions(), find_source(source, as_agreed(source, source_options, common))
    filters = filters_of(manner.compression)
    _check(site, shares, out)
    dataset = _unscaled(fitted(keeping(read(data, seed), keep), common))
    ((shard,),) = numbered([_shard(dataset, site, shares, seed)])
    check_room(out, room([shard]))
    common = common.model_copy(update=_own_facts(source, _noted(dataset, site, shard), common, shares, seed))
    with scratch(out) as folder:
        writer = Writer(folder, common.features, common.classes, common.targets, filters=filters)
        described = _written(writer, common, site, shard, manner.jobs)
        for name in (f"{site.stem}.h5", f"{site.stem}.json"):
            os.replace(folder / name, out / name)
    return described


def _noted(data: Dataset, site: Site, shard: NewShard) -> Dataset:
    """Note which classes a silo trains on and lacks in the test split of its own rows."""
    return with_untested(data, [shard]) if site.silo is not None and data.test is None else data


def _unscaled(data: Dataset) -> Dataset:
    """Refuse statistics of one site's rows: no two sites would be standardised alike. Say what rows lack."""
    if data.scaling is not None:
        what = f"{data.where}: standardised by its own rows, so that sites differ"
        raise InputError(f"{what}; tables share statistics (data-prep statistics), standardise arrays before")
    if data.by_own:
        name, say = next(iter(data.by_own.items()))
        what = f"{data.where}: column {name} would become numbers by this site's rows, and sites differ"
        raise InputError(f"{what}; say in the spec {say}")
    if data.lacks:
        what = "newton, cox and kaplanmeier take such a silo, and a training by steps does not"
        print(f"warning: {data.where}: {data.lacks}; {what}", file=sys.stderr)
    return data


def _own_facts(
    source: str, data: Dataset, agreed: FederationSpec, shares: Shares, seed: int
) -> dict[str, Any]:
    """Say where a site's data comes from, and what was done to it: no file's name or digest, and none of its
    own statistics. So its encoding stands there only if it is the agreed one, or says options alone."""
    encoding, own = encoding_of(agreed.source), encoding_of({"encoding": data.encoding})
    if encoding is None and own is not None and own["kind"] in ("images", "volumes"):
        encoding = own
    alike = encoding is not None and own is not None and unlike(own, encoding) is None
    origin = {"name": source, **data.told, **read_by(own), **({"encoding": encoding} if alike else {})}
    scheme = {"name": "import", **shares.told(data)}
    return {"silos": [], "test": None, "public": None, "seed": seed, "scheme": scheme, "source": origin}


def _written(
    writer: Writer, common: FederationSpec, site: Site, shard: NewShard, jobs: int
) -> FederationSpec:
    """Write a shard, and the spec with its entry beside it; return that spec."""
    (entry,) = make_shards(writer, [shard], jobs, Ledger(None, {}))
    described = common.model_copy(update={"test": entry} if site.silo is None else {"silos": [entry]})
    return describe(writer.folder / f"{site.stem}.json", described)


def fitted(data: Dataset, spec: FederationSpec) -> Dataset:
    """Return a site's data as a federation's spec has it: its labels by the spec's names, its scale and
    offset.

    Raises:
        InputError: it is something else: another shape or dtype, a class or column that the spec has not.
    """
    wanted, found = by_path("x", spec.features), by_path("x", data.features)
    if odd := sorted(wanted.keys() ^ found.keys()):
        raise InputError(f"{data.where}: only the data or the federation has {odd[0]}; name arrays as agreed")
    agreed, own = encoding_of(spec.source), encoding_of({"encoding": data.encoding})
    if own and own["kind"] == "tokens" and (apart := unlike(own, agreed)):
        said = apart.replace("the model learned from", "the federation has")
        raise InputError(f"{data.where}: {said}; give --tokenizer and --end as the sites agreed")
    if data.feature_names is not None:  # a column too few says more than a shape
        _check_columns(data, spec)
    data = _recoded(_lengthened(data, spec), spec)
    found = by_path("x", data.features)
    for path, one in wanted.items():
        if found[path].ragged != one.ragged:
            told = ["one length", "unequal lengths"]
            said = f"{path} of {told[found[path].ragged]}, the federation has {told[one.ragged]}"
            raise InputError(f"{data.where}: {said}; convert them as the sites agreed")
    for path, what in ((path, what) for path in wanted for what in ("shape", "dtype")):
        ours, theirs = getattr(found[path], what), getattr(wanted[path], what)
        if ours != theirs:
            of = "features" if path == "x" else path
            said = f"{of} of {what} {said_of(ours)}, the federation has {said_of(theirs)}"
            raise InputError(f"{data.where}: {said}; {converted(data, what, ours, theirs)}")
    for what in ("scale", "offset") if data.scale is not None else ():
        ours, theirs = getattr(found["x"], what), getattr(wanted["x"], what)
        if ours != theirs:
            raise InputError(f"{data.where}: {what} {ours}, the federation has {theirs}; agree on one spec")
    _check_columns(data, spec)
    data = _aimed(data, spec)
    data = _relabelled(data, spec)
    seen = {"scale": wanted["x"].scale, "offset": wanted["x"].offset} if "x" in wanted else {}
    data = data.noting(features="") if seen.get("scale") else data
    return replace(data, **seen, classes=spec.classes)


def _lengthened(data: Dataset, spec: FederationSpec) -> Dataset:
    """Return data whose ragged examples may be as long as those of the federation; they are as they were.
    Raise InputError if one is longer."""
    arrays, found = arrays_of(spec.features, spec.targets), arrays_of(data.features, data.targets)
    longest = {path: one.shape[0] for path, one in arrays.items() if one is not None and one.ragged}
    for path, most in longest.items():
        own = found.get(path)
        if own is not None and own.ragged and own.shape[0] > most:
            has = f"examples of {path} with up to {own.shape[0]} rows, the federation has {most} at most"
            raise InputError(f"{data.where}: {has}; cut them as the sites agreed")
    x, y = (padded_to(part, rows, longest) for part, rows in (("x", data.x), ("y", data.y)))
    test = data.test and (padded_to("x", data.test[0], longest), padded_to("y", data.test[1], longest))
    return replace(data, x=x, y=y, test=test)


def _recoded(data: Dataset, spec: FederationSpec) -> Dataset:
    """Renumber features that are class numbers, as characters are, by the order of the spec's class names."""
    if not data.coded or data.class_names is None or spec.class_names is None:
        return data
    number, dtype = _numbers(data, data.class_names, spec.class_names), np.dtype(spec.single.dtype)
    if np.can_cast(np.min_scalar_type(int(number.max())), dtype):  # another is refused for what it is
        number = number.astype(dtype)
    test = data.test and (number[np.asarray(data.test[0])], data.test[1])
    return replace(data, x=number[np.asarray(data.x)], test=test)


def _aimed(data: Dataset, spec: FederationSpec) -> Dataset:
    """Return data whose targets are those of the spec."""
    aims, wanted = (aims_by_path(one.classes, one.targets) for one in (data, spec))
    alike = aims.keys() == wanted.keys() and all(_alike(*aims[path], *wanted[path]) for path in wanted)
    if not alike:
        said = f"targets are {data.aim}, the federation has {spec.aim}"
        raise InputError(f"{data.where}: {said}; {agreeing_on(data.targets, spec.targets)}")
    return replace(data, targets=spec.targets)


def _alike(classes: int | None, ours: Targets | None, agreed: int | None, theirs: Targets | None) -> bool:
    """Tell whether targets are those that are agreed on, whatever classes occur;
    a site need not name their columns."""
    if ours is None or theirs is None or (classes is None) != (agreed is None):
        return ours is theirs and (classes is None) == (agreed is None)
    update: dict[str, Any] = {"names": ours.names or theirs.names, "classes": theirs.classes}
    if ours.ragged and theirs.ragged:  # that none is longer, has been seen to
        update["shape"] = (*theirs.shape[:1], *ours.shape[1:])
    return ours.model_copy(update=update) == theirs


def _check_columns(data: Dataset, spec: FederationSpec) -> None:
    ours, theirs = data.feature_names, spec.feature_names
    if theirs is None or list(ours or ()) == theirs:
        return
    if ours is None:
        named = f"has no names of columns, the federation has {', '.join(theirs[:5])}"
        more = f" and {len(theirs) - 5:,} more" if len(theirs) > 5 else ""
        raise InputError(f"{data.where}: {named}{more}; say --option feature_names=..., in the order of x")
    for has, some, others in (("no", theirs, ours), ("a", ours, theirs)):
        if odd := [name for name in some if name not in others]:
            more = f" and {len(odd) - 1:,} more" if len(odd) > 1 else ""
            found = f"has {has} column '{odd[0]}'{more}, which the federation has{' not' * (has == 'a')}"
            raise InputError(f"{data.where}: {found}; name and order them alike")
    if len(ours) != len(theirs):
        found = f"{len(ours)} columns, the federation names {len(theirs)}"
        raise InputError(f"{data.where}: {found}; name and order them alike")
    pairs = enumerate(zip(ours, theirs, strict=True))
    at, (mine, wanted) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
    found = f"column {at} is '{mine}', the federation has '{wanted}'"
    raise InputError(f"{data.where}: {found}; name and order them alike")


def _relabelled(data: Dataset, spec: FederationSpec) -> Dataset:
    """Renumber labels by the order of the spec's class names."""
    if spec.classes is None:
        return data
    if data.class_names is not None and spec.class_names is not None:
        return _renumbered(data, data.class_names, spec.class_names)
    if data.class_names is not None and len(data.class_names) != spec.classes:
        given = f"{len(data.class_names)} classes by name ({', '.join(data.class_names[:5])})"
        found = f"{given}, the federation has {spec.classes}"
        raise InputError(f"{data.where}: {found}; put their names in its spec")
    ignore = spec.targets.ignore if isinstance(spec.targets, Targets) else None
    for y in (data.y, *(data.test or ())[1:]):
        y = flat(y)
        y = y if ignore is None else y[y != ignore]
        if y.size and not 0 <= y.min() <= y.max() < spec.classes:
            said = f"labels from {y.min()} to {y.max()}, the federation's {spec.classes} classes take"
            raise InputError(f"{data.where}: {said} 0 to {spec.classes - 1}; number them as the sites agreed")
    return data


def _renumbered(data: Dataset, own: Sequence[str], names: Sequence[str]) -> Dataset:
    number = _numbers(data, own, names)
    test = data.test and (data.test[0], number[data.test[1]])
    return replace(data, y=number[data.y], test=test, class_names=tuple(names))


def _numbers(data: Dataset, own: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Return the number that each of a site's own names has among the federation's, int64."""
    if unknown := [name for name in own if name not in names]:
        there = f"the federation has {', '.join(names)}{suggested(unknown[0], names)}"
        raise InputError(f"{data.where}: has a class '{unknown[0]}', {there}")
    return np.array([names.index(name) for name in own], np.int64)


def _shard(data: Dataset, site: Site, shares: Shares, seed: int) -> NewShard:
    """Describe the shard: everything, split by the shares; the source's own test set stays one."""
    file, everything = f"{site.stem}.h5", np.arange(len(data))
    if not len(data):
        raise InputError(f"{data.where}: has no examples; a silo needs at least 1")
    check_groups(data)
    tested = of_testing(data)
    if site.silo is None:
        of = tested or of_training(data)
        return shard_of(file, "test", None, of, {"test": np.arange(len(of.y))})
    splits = shares.split(everything, seed, site.silo, data, site.name)
    shard = shard_of(file, site.name or f"silo {site.silo}", site.silo, of_training(data), splits)
    if tested and "test" not in splits:
        own = section_of(file, "test", site.silo, tested, np.arange(len(tested.y)))
        return replace(shard, sections=[*shard.sections, own])
    return shard


def _check(site: Site, shares: Shares, out: Path) -> None:
    """Refuse options of silos for the server, a wrong number of a silo, and files that exist."""
    parts = {"valid": shares.valid, "test": shares.test, "test-last": shares.test_last, "name": site.name}
    for option, given in parts.items():
        if site.silo is None and given:
            why = "--server's test set has no parts nor name"
            raise InputError(f"--{option}: {given} given, but {why}; leave it out")
    if site.silo is not None and not 0 <= site.silo < 1 << 31:
        raise InputError(f"--silo: {site.silo} given; silos are numbered 0, 1, 2, ...")
    for path in (out / f"{site.stem}.h5", out / f"{site.stem}.json"):
        if os.path.lexists(path) and site.silo is None:
            raise InputError(f"--out: {path} exists; remove it or name another folder")
        if os.path.lexists(path):
            to_do = (
                "give the number that the sites agreed on for this one, or remove the file to import it anew"
            )
            raise InputError(f"--silo {site.silo}: is taken, by {path}; {to_do}")
