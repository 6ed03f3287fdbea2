"""Small, real artefacts, made by the program itself: shard folders of both layouts, a run, messages."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import torch
from unit.builders import Alone

from data_prep.cli import app as data_prep
from fuzzing.new_rows import make_table
from fuzzing.sources import make_sources
from mpifl.sums.planning import PartialSum, ReductionPlan, Window, WindowPart
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.messages import Done, FileReply, Header, Report, VectorHeader, VectorSpec, Verdict
from mpifl.wire.nodes import Nodes
from mpifl.wire.requests import Compute, Migrate, Request

JOB = """
name = "fuzzed"
shards = "{shards}"
rounds = 2
seed = 1
[model]
name = "mlp"
hidden = [3]
[algorithm]
name = "scaffold"
[local]
batch_size = 8
[evaluate]
target_accuracy = 0.9
[checkpoint]
every = 1
"""
SHARDS = ("plain", "packed", "vertical", "ragged")


def make(folder: Path) -> Path:
    """Make shard folders `plain`, `packed` (gzip), `vertical` and `ragged`,
    `run`, two rounds on the first, `table`, a run on a table, and `sources`."""
    if (folder / "whole").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    own = {"x": draw.normal(size=(40, 2, 2)).astype("float32"), "y": np.arange(40) % 3}
    np.savez(folder / "own.npz", **own, x_test=own["x"][:9], y_test=own["y"][:9])
    cut = ["partition", "npz", "--data", str(folder / "own.npz"), "--jobs", "1"]
    held_out = ["--valid", "0.1", "--test", "0.2"]
    iid = ["--silos", "2", "--scheme", "iid", *held_out, "--public", "0.2"]
    schemes = {
        "plain": iid,
        "packed": [*iid, "--compression", "gzip"],
        "vertical": ["--silos", "2", "--scheme", "vertical", "--valid", "0.1"],
    }
    rows = {f"{part}.offsets": np.r_[0, np.cumsum(np.arange(40) % 4)] for part in "xy"}
    np.savez(folder / "ragged.npz", x=draw.normal(size=60), y=np.arange(60) % 3, **rows)
    uneven = ["npz", "--data", str(folder / "ragged.npz"), "--option", "ignore=-100", "--jobs", "1"]
    with contextlib.redirect_stdout(io.StringIO()):
        data_prep(["partition", *uneven, *iid, "--out", str(folder / "ragged")], standalone_mode=False)
        for name, scheme in schemes.items():
            data_prep([*cut, *scheme, "--out", str(folder / name)], standalone_mode=False)
        (folder / "job.toml").write_text(JOB.format(shards=folder / "plain"))
        train(folder / "job.toml", folder / "run", (), False, Alone(), wings_of=wings_of)
        data_prep(make_table(folder / "table"), standalone_mode=False)
        (folder / "table" / "job.toml").write_text(JOB.format(shards=folder / "table" / "shards"))
        train(folder / "table" / "job.toml", folder / "table" / "run", (), False, Alone(), wings_of=wings_of)
    (folder / "table" / "shards").rename(folder / "table" / "away")  # so that what the run keeps is asked
    make_sources(folder / "sources")
    (folder / "whole").touch()
    return folder


def reports() -> dict[str, Report]:
    """Return what a rank answers for silos 0 and 1,
    of which the latter has a fault, by the kind of the request."""
    vectors = {
        "delta": VectorHeader(length=20, window=-3),
        "c": VectorHeader(length=20, window=None, combined="uniform", bytes=40),
    }
    scalars = {"loss": 0.5, "n": 3, "ok": True}
    work = Header(silo=0, weight=12.0, scalars=scalars, vectors=vectors, seconds=0.1, keeps=True)
    saved = FileReply(silo=0, sha256="ab" * 32, keeps=True)
    parts = [PartialSum(name="delta", window=-3, handle=1, weight=12.0)]
    about = {"host": "here", "device": "cpu", "threads": "1", "silos": "2", "pid": "7"}
    faulty = Done(silo=1, fault="NaN in 'delta'")
    return {
        "compute": Report(serial=4, headers=[work, faulty], parts=parts, seconds=0.2),
        "save_status": Report(serial=4, headers=[saved, faulty]),
        "open": Report(serial=4, headers=[Done(silo=0), Done(silo=1)], about=about),
        "inventory": Report(serial=4, headers=[Done(silo=0), Done(silo=1)], interrupted=True),
    }


def records() -> list[Request | Verdict]:
    """Return what a server sends: a request to compute, one to migrate silos, and a verdict."""
    vectors = [VectorSpec(name="w", length=20, dtype="float32")]
    compute = Compute(work="train", round=3, cohort=[0, 1, 2], scalars={"lr": 0.1}, vectors=vectors, serial=4)
    migrate = Migrate(round=3, cohort=[0], assignment={0: 1}, files={0: "ab"}, checkpoint=2, serial=5)
    window = Window(number=-3, parts={0: [WindowPart(handle=1, weight=2.0)]})
    piece = ReductionPlan(name="delta", length=20, total=24.0, windows=[window])
    return [compute, migrate, Verdict(serial=4, accepted=[0, 2], ranks=[0, 1], pieces=[piece])]


class TwoNodes:
    """The server's end of a world whose rank 1 is on another node: of its memory nothing can be read."""

    rank = 0
    nodes = Nodes([0, 1, 1], 0)


def vector(draw_from: int, length: int) -> torch.Tensor:
    """Return a drawn vector."""
    return torch.randn(length, generator=torch.Generator().manual_seed(draw_from))
