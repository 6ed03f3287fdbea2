"""What the sites of a federation agree on: a spec before there is data,
and one description when all have theirs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_prep.dataset import changes_together
from data_prep.site.table_readings import READING, read_apart, unlike_gaps
from data_prep.site.unlike_sites import OF_SITES
from data_prep.sources import SOURCES
from data_prep.tables import Encoder, TableSpec, is_needed, read_spec as read_table_spec, stated_columns
from data_prep.write import unwritable
from mpifl.common import InputError, write_atomic
from mpifl.data import Features, Targets, check_kind
from mpifl.data.shards import (
    UNLIKE_READINGS,
    FederationSpec,
    ShardEntry,
    differing_images,
    encoding_of,
    read_spec,
    shared_encoding,
    version_of,
)

DESCRIBED = ("features", "classes", "targets", "class_names", "feature_names")
"""What the sites of a federation must have in common."""

OF_TEXTS = ("jsonl", "text")
"""Sources that cut texts as the federation has them where an option does not say how."""


def as_agreed(source: str, words: Sequence[str], spec: FederationSpec) -> list[str]:
    """Return the options of a source, and for texts those not given as the federation's own shards have
    them."""
    if source not in OF_TEXTS:
        return list(words)
    named = spec.features if isinstance(spec.features, dict) else {"": spec.features}
    name, one = next(iter(named.items()))
    agreed = {"length": "".join(map(str, one.shape[:1])), "ragged": "true" if one.ragged else ""}
    agreed |= {"inputs": f"{name},{one.mask or ''}".strip(",")}
    agreed |= {"end": (encoding_of(spec.source) or {}).get("end") or "", "one_silo": "true"}
    given, by = {word.partition("=")[0] for word in words}, (encoding_of(spec.source) or {}).get("tokenizer")
    if source == "jsonl" and by not in (None, "bytes") and "tokenizer" not in given:
        what = "not given, and the federation's texts became tokens by a tokenizer.json"
        raise InputError(f"--tokenizer: {what} of sha256 {by[:12]}...; name its folder: --tokenizer FOLDER")
    left = (inspect.signature(SOURCES[source]).parameters.keys() & agreed) - given
    return [*words, *(f"{key}={agreed[key]}" for key in sorted(left) if agreed[key])]


def new_spec(
    path: Path,
    name: str,
    features: dict[str, Any],
    classes: int | None,
    targets: dict[str, Any] | None = None,
    encoding: dict[str, Any] | None = None,
    **names: list[str] | None,
) -> FederationSpec:
    """Write a spec of a federation whose silos are yet to come, on which the sites agree without data.

    Raises:
        InputError: the file is there already, or what is given does not fit together.
    """
    if os.path.lexists(path):
        raise InputError(f"{path}: is there already; remove it or name another")
    described = _described(features)
    aim = _aim(classes, targets) if targets else None
    if classes is not None and classes < 1:
        raise InputError(f"--classes: {classes} given; it must be 1 or more")
    _check_names("class-names", names.get("class_names"), classes or 0)
    _check_names("feature-names", names.get("feature_names"), described.shape[0])
    learned: dict[str, Any] = {"classes": classes, "targets": aim, **names}
    return describe(path, _agreed(name, described, encoding, **learned))


def spec_of_table(path: Path) -> FederationSpec:
    """Return what a federation of tables has in common, by the spec of a table; no table is read.

    Raises:
        InputError: the spec leaves levels or classes to the table.
    """
    spec = read_table_spec(path)
    columns, aim = stated_columns(path, spec), spec.label.targets
    names, features = columns.class_names and list(columns.class_names), list(columns.feature_names)
    encoding = None if is_needed(spec) else _stated(path, spec)
    seen = Features(shape=(len(features),), dtype="float32")
    learned: dict[str, Any] = {"classes": names and len(names), "class_names": names, "targets": aim}
    return _agreed(path.stem, seen, encoding, feature_names=features, **learned)


def _agreed(
    name: str, features: Features, encoding: dict[str, Any] | None, *, targets: Targets | None, **learned: Any
) -> FederationSpec:
    source, scheme = {"encoding": encoding} if encoding else {}, {"name": "import"}
    version = version_of(features, targets)
    common: dict[str, Any] = {"seed": 0, "scheme": scheme, "silos": [], "source": source}
    return FederationSpec(
        name=name, format_version=version, features=features, targets=targets, **common, **learned
    )


def _stated(path: Path, spec: TableSpec) -> dict[str, Any] | None:
    """Return the encoding of a spec that leaves nothing to a table; None where statistics are not there."""
    try:
        return Encoder("csv", path, spec).record
    except InputError:
        return None


def _aim(classes: int | None, given: dict[str, Any]) -> Targets:
    """Return the record of targets that is asked for."""
    try:
        made = Targets.model_validate(given)
        check_kind(classes, made)
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{first['loc'][0] if first['loc'] else 'names'}: {first['msg'].removeprefix('Value error, ')}"
        raise InputError(f"--target-dtype, --target-shape: {said}") from None
    except ValueError as error:
        raise InputError(f"--target-dtype: {error}") from None
    return made


def agreeing_on(found: Any, agreed: Any) -> str:
    """Say what would do where a site's targets are not the agreed ones; masks need a spec that has them."""
    if agreed is None and isinstance(found, Targets) and found.shape:
        shape = ",".join(map(str, found.shape))
        return (
            f"of masks the sites agree by: data-prep spec --target-dtype {found.dtype} --target-shape {shape}"
        )
    return "convert them, or see --option targets, target_names, ignore"


def _described(features: dict[str, Any]) -> Features:
    try:
        return Features.model_validate(features)
    except ValueError:
        said = f"shape {features['shape']} and dtype {features['dtype']} given"
        form = "a shape is as 1,28,28, a dtype as uint8 or float32"
        raise InputError(f"--shape, --dtype: {said}; {form}") from None


def _check_names(option: str, given: Sequence[str] | None, length: int) -> None:
    if given and (len(given) != length or len(set(given)) != length):
        raise InputError(f"--{option}: {len(set(given))} different names given; there must be {length}")


def assemble(folder: Path) -> FederationSpec:
    """Write the `federation.json` of a folder from the sites' `.json` entries in it; no shard is opened.

    Silos that its `federation.json` describes stay, and those join them that it does not know.

    Raises:
        InputError: the sites' entries do not fit each other, or a silo is missing or there twice.
    """
    paths = sorted(folder.glob("silo_*.json"))
    if (folder / "federation.json").exists():
        known, found = read_spec(folder / "federation.json"), {path: read_spec(path) for path in paths}
        there = _numbers_of(known, found)
        if new := {path: one for path, one in found.items() if one.silos and one.silos[0].silo not in there}:
            return _joined(folder, known, new)
        if cut := [one for one in sorted(folder.glob("silo_*.h5")) if not one.with_suffix(".json").exists()]:
            said = f"is a federation already, and no site's entry goes with {cut[0].name}"
            raise InputError(f"{folder}: {said}; train on it as it is, or cut all silos anew")
        raise InputError(f"{folder}: has a federation.json already; remove it to assemble another")
    if not paths:
        made = "every site makes its own with 'python -m data_prep import'"
        raise InputError(f"{folder}: holds no silo_*.json; {made}")
    of_server = [folder / "test.json"] if (folder / "test.json").exists() else []
    specs = {path: read_spec(path) for path in [*paths, *of_server]}
    if of_server and specs[of_server[0]].test is None:
        raise InputError(f"{of_server[0]}: has no test set; make it with 'import --server', or remove it")
    first = specs[paths[0]]
    for path, spec in specs.items():
        _check_alike(paths[0], first, path, spec)
    entries = [entry for path in paths for entry in specs[path].silos]
    entries.sort(key=lambda entry: entry.silo or 0)
    _check_numbers(folder, entries)
    test = specs[of_server[0]].test if of_server else None
    schemes = [specs[path].scheme for path in paths]
    common = {
        key: value for key, value in schemes[0].items() if all(one.get(key) == value for one in schemes)
    }
    seeds = {specs[path].seed for path in paths}
    seed = seeds.pop() if len(seeds) == 1 else 0  # what each site drew by is in its own entry
    update: dict[str, Any] = {"silos": entries, "test": test, "seed": seed, "scheme": common}
    source = {**first.source, **changes_together([specs[path] for path in paths])}
    update["source"] = _encoded(source, {path: specs[path] for path in paths})
    whole = first.model_copy(update=update)
    return describe(folder / "federation.json", whole)


def _numbers_of(known: FederationSpec, found: Mapping[Path, FederationSpec]) -> Collection[int | None]:
    """Return the numbers of a federation's silos. Raise InputError if another site has one of them."""
    free = max((one.silo or 0 for one in known.silos), default=-1) + 1
    entries = {one.silo: one for one in known.silos}
    for path, own in ((path, one) for path, spec in found.items() for one in spec.silos):
        if own.silo in entries and own.sha256 != entries[own.silo].sha256:
            what = f"is of silo {own.silo}, which is {entries[own.silo].name} in federation.json already"
            raise InputError(f"{path}: {what}; import it again with another number, as --silo {free}")
    return entries.keys()


def _joined(folder: Path, known: FederationSpec, new: Mapping[Path, FederationSpec]) -> FederationSpec:
    """Write the `federation.json` of a folder anew, with further silos."""
    for path, spec in new.items():
        _check_alike(folder / "federation.json", known, path, spec)
    entries = sorted([*known.silos, *(one for spec in new.values() for one in spec.silos)],
                     key=lambda entry: entry.silo or 0)  # fmt: skip
    _check_numbers(folder, entries)
    notes = {**(known.source.get("notes") or {}), **(changes_together([*new.values()])["notes"] or {})}
    source = {**known.source, **changes_together([known, *new.values()]), "notes": notes or None}
    source = _encoded(source, {folder / "federation.json": known, **new})
    scheme = {**known.scheme, "name": "import"}  # a site numbers its rows and groups by itself
    update = {"silos": entries, "source": source, "scheme": scheme}
    return describe(folder / "federation.json", known.model_copy(update=update))


def _encoded(source: Mapping[str, Any], specs: Mapping[Path, FederationSpec]) -> dict[str, Any]:
    """Return a `source` with the encoding that all sites have; note where they read images, or gaps of
    tables, in different ways."""
    records = {path.name: encoding_of(spec.source) for path, spec in specs.items()}
    found = {**source, "encoding": shared_encoding([*records.values()]), READING: None}
    found[UNLIKE_READINGS] = read_apart([*specs.values()]) or None
    if images := differing_images(records):
        to_do = "import again with the same options, or name shards by --data"
        images += f"; `mpifl predict --images` refuses runs on these shards: {to_do}"
    lines = dict(zip(OF_SITES, (images, unlike_gaps([*specs.values()])), strict=True))
    notes = {**(found.get("notes") or {}), **{kind: line for kind, line in lines.items() if line}}
    return {key: value for key, value in (found | {"notes": notes or None}).items() if value is not None}


def other_numbers(data: Path | None, path: Path, made: FederationSpec) -> list[str]:
    """Return a line if a site's table or images became other numbers than by the agreed spec, or by the
    federation in a folder."""
    agreed = encoding_of(read_spec(path / "federation.json" if path.is_dir() else path).source)
    told = encoding_of(made.source) or made.source["name"] not in ("csv", "parquet", "images", "nifti")
    what = f"{data}: became other numbers than by the spec that the sites agreed on"
    other = not told and agreed is not None
    return [f"{what}; use its levels, means, deviations, ground, colours"] if other else []


def _check_alike(path: Path, first: FederationSpec, other: Path, spec: FederationSpec) -> None:
    for what in ("name", *DESCRIBED):
        ours, theirs = getattr(first, what), getattr(spec, what)
        if ours != theirs:
            said = f"{what} {said_of(theirs)}, {path.name} has {said_of(ours)}"
            raise InputError(f"{other}: has {said}; import again by one spec")


def _check_numbers(folder: Path, entries: Sequence[ShardEntry]) -> None:
    for number, entry in enumerate(entries):
        if entry.silo != number:
            there = [other.file for other in entries if other.silo == entry.silo]
            twice = f"silo {entry.silo} is there twice ({' and '.join(there)})" if len(there) > 1 else None
            wrong, shard = twice or f"silo {number} is missing", f"silo_{number:04d}"
            if not twice and (folder / f"{shard}.h5").exists():
                to_do = f"put its {shard}.json, or the federation.json of its folder, there, too"
                raise InputError(
                    f"{folder}: {wrong}: {shard}.h5 is there, and what describes it is not; {to_do}"
                )
            raise InputError(f"{folder}: {wrong}; silos are numbered 0, 1, 2, ...")


def describe(path: Path, spec: FederationSpec) -> FederationSpec:
    """Write a spec to a file, with the folders above it; return it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, spec.model_dump_json(indent=1).encode() + b"\n")
    except OSError as error:
        raise unwritable(path, error) from None
    return spec


def said_of(value: Any) -> str:
    """Return a part of a spec as a message shows it."""
    if isinstance(value, Features | Targets):
        return " ".join(f"{key} {said_of(part)}" for key, part in value)
    return str(list(value) if isinstance(value, tuple) else value)
