"""What parties of an alignment agree on and tell rank 0, with harm done to it."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

from fuzzing.mutations import harmed_json, harmed_toml
from mpifl.cli.align.align_records import AlignedLabels, Answer, Common, Hello, Made, answer_of
from mpifl.cli.align.align_server import Comparer
from mpifl.common import sha256_of
from mpifl.data import Features
from mpifl.data.shards import VerticalEntry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TERMS = 'name = "credit"\nparties = ["bank", "shop"]\nlabels = "bank"\nseed = 1\nvalid = 0.1\ntest = 0.2\n'
TAG = "0123456789abcdef" * 2


def terms(draw: Random, valid: Path, folder: Path) -> Path:
    path = folder / "terms.toml"
    path.write_bytes(harmed_toml(draw, TERMS.encode(), tomllib.loads(TERMS)))
    return path


def answers(draw: Random, valid: Path, folder: Path) -> tuple[Path, int, type, bytes]:
    """Return the terms, and which party has sent which harmed answer."""
    (folder / "terms.toml").write_text(TERMS)
    party, kind = draw.randrange(2), draw.choice((Hello, Made))
    honest = said(folder / "terms.toml", kind, party)
    record = Answer(said=honest).encode()  # a whole one now and then, as harm seldom leaves one
    return folder / "terms.toml", party, kind, harmed_json(draw, record) if draw.random() < 0.8 else record


def judge(given: tuple[Path, int, type, bytes]) -> None:
    """Have rank 0 make of an answer what it makes of it, beside another party's."""
    path, party, kind, record = given
    hellos, made = ([said(path, one, silo) for silo in range(2)] for one in (Hello, Made))
    heard = answer_of(kind, record).said
    if heard is not None:
        (hellos if kind is Hello else made)[party] = heard
    comparer = Comparer(SimpleNamespace(size=3), path, path.parent / "out")
    comparer._ready()
    start = comparer._begin(hellos)
    comparer._described(made, start, Common(rows=10, alignment=TAG))


def said(path: Path, kind: type, party: int) -> Hello | Made:
    """Return what an honest party says: the bank has two columns and the labels, the shop one column."""
    columns = [[0, 1], [2]][party]
    if kind is Hello:
        learned = AlignedLabels(classes=2, class_names=["no", "yes"]) if party == 0 else None
        return Hello(terms=sha256_of(path), ids=20 + party, width=len(columns), learned=learned)
    features = Features(shape=(len(columns),), dtype="float32")
    rows = {"examples": {"train": 7, "valid": 1, "test": 2}, "labels": [[3, 4], None][party]}
    file = {"file": f"silo_{party:04d}.h5", "bytes": 9, "sha256": "ab" * 32}
    about = {"silo": party, "name": ["bank", "shop"][party], "alignment": TAG}
    return Made(entry=VerticalEntry(**about, **rows, **file, features=features, columns=columns))
