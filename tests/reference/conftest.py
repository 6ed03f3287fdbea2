"""Shard folders that the reference tests train on, and a way to train many jobs in one subprocess."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ranks
from reference.oracles import network
from safetensors.torch import save_file

from mpifl.data.shards.shards import Features, FederationSpec, ShardEntry
from scripts.write_shard import write_shard

HERE = Path(__file__).parent
SIZES = (20, 5, 31, 12, 40, 18, 24)
PIXELS = Features(shape=(2, 3), dtype="uint8", scale=1 / 64, offset=-2.0)
COUNTS = Features(shape=(2, 3), dtype="uint8", scale=1 / 128)
CHARACTERS = Features(shape=(7,), dtype="uint8")
Examples = tuple[np.ndarray, np.ndarray]
Silos = Sequence[Examples]


def write_folder(
    folder: Path,
    silos: Silos,
    features: Features = PIXELS,
    classes: int = 3,
    names: str = "silo_{:04d}",
    public: Examples | None = None,
) -> None:
    """Write each (x, y) as a silo's shard, and `public` as one that is nobody's."""

    def entry(silo: int | None, name: str, **splits: Examples) -> ShardEntry:
        return write_shard(
            folder / f"{name}.h5", splits, silo=silo, name=name, features=features, classes=classes
        )

    folder.mkdir()
    FederationSpec(
        name="toy",
        features=features,
        classes=classes,
        seed=0,
        scheme={"name": "toy"},
        source={},
        silos=[entry(k, names.format(k), train=silo) for k, silo in enumerate(silos)],
        public=public and entry(None, "public", public=public),
    ).write(folder)


def toy_silos(sizes: Sequence[int] = SIZES, seed: int = 5) -> Silos:
    """Seven silos of different sizes, each with labels and features of its own kind."""
    draw = np.random.default_rng(seed)
    silos = []
    for k, n in enumerate(sizes):
        y = draw.choice(3, n, p=draw.dirichlet([0.6] * 3))
        centres = 100 + 50 * np.sin(np.arange(6) * (1 + y[:, None]) + 0.3 * k)
        silos.append((np.clip(draw.normal(centres, 30), 0, 255).astype(np.uint8).reshape(n, 2, 3), y))
    return silos


def sparse_silos(seed: int = 9) -> Silos:
    """The toy silos with zeros: all examples have feature 0,
    silo 2 alone has 4, none has 5, silos differ in 1 to 3."""
    draw = np.random.default_rng(seed)
    silos = []
    for k, (x, y) in enumerate(toy_silos()):
        often = np.array([1.0, 0.2 + 0.1 * k, 0.9 - 0.1 * k, 0.5 * (k % 3 > 0), 0.7 * (k == 2), 0.0])
        has = draw.random((len(y), 6)) < often
        silos.append((np.where(has.reshape(x.shape), np.maximum(x, 1), 0).astype(np.uint8), y))
    return silos


def text_silos(sizes: Sequence[int] = SIZES, seed: int = 7) -> Silos:
    """Silos whose characters, of four, continue by one or by three, each silo with a chance of its own."""
    draw = np.random.default_rng(seed)
    silos = []
    for k, n in enumerate(sizes):
        steps = 1 + 2 * (draw.random((n, 8)) < (1 + k) / 9)
        text = np.cumsum(steps, axis=1) % 4
        silos.append((text[:, :-1].astype(np.uint8), text[:, 1:]))
    return silos


def quadratic_silos(problems: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[Silos, Features]:
    """Silos for `problems:LeastSquares` from each silo's (A, b)."""
    silos = [(np.column_stack(p).astype(np.float32), np.zeros(len(p[1]), np.int64)) for p in problems]
    return silos, Features(shape=silos[0][0].shape[1:], dtype="float32")


def two_quadratics() -> list[tuple[np.ndarray, np.ndarray]]:
    """F_1 = (w - 1)^2 and F_2 = 0.05 (w + 1)^2: curvatures 2 and 0.1, one example each."""
    return [(np.array([[h**0.5]]), np.array([h**0.5 * a])) for h, a in ((2.0, 1.0), (0.1, -1.0))]


def unequal_quadratics() -> list[tuple[np.ndarray, np.ndarray]]:
    """F_1 = (w - 1)^2 / 2 of nine examples, F_2 = (w + 1)^2 / 2 of one:
    their mean by examples is least at 0.8."""
    return [(np.ones((n, 1)), np.full(n, a)) for n, a in ((9, 1.0), (1, -1.0))]


def regressions(silos: int = 3, n: int = 20, d: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Least-squares problems of different design and with different solutions."""
    draw = np.random.default_rng(8)
    problems = []
    for k in range(silos):
        a = draw.normal(size=(n, d)) * (0.5 + 0.5 * np.roll(np.arange(1, d + 1), k) / d)
        problems.append((a, a @ draw.normal(size=d) + 0.3 * draw.normal(size=n)))
    return problems


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shard folders by name."""
    base = tmp_path_factory.mktemp("reference")
    toy = toy_silos()
    (public,) = toy_silos(sizes=[50], seed=6)
    write_folder(base / "toy", toy, public=public)
    (public,) = text_silos(sizes=[50], seed=8)
    write_folder(base / "sparse", sparse_silos(), COUNTS)
    write_folder(base / "text", text_silos(), CHARACTERS, classes=4, public=public)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        save_file(network("logreg").float().state_dict(), base / "other.safetensors")
    write_folder(base / "renamed", toy, names="hospital-{}")
    write_folder(base / "reversed", toy[::-1])
    write_folder(base / "first", toy[:1])
    write_folder(base / "pooled", [tuple(np.concatenate(part) for part in zip(*toy, strict=True))])
    write_folder(base / "example", [(toy[0][0][:1], toy[0][1][:1])])
    write_folder(base / "quadratics", *quadratic_silos(two_quadratics()), classes=2)
    write_folder(base / "unequal", *quadratic_silos(unequal_quadratics()), classes=2)
    write_folder(base / "regressions", *quadratic_silos(regressions()), classes=2)
    return base


@pytest.fixture(scope="session")
def train_all(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[dict]], Path]:
    """Train jobs, whose `shards` name one of the folders,
    on one rank in one process; return where their runs are."""

    def act(jobs: Sequence[dict]) -> Path:
        out = tmp_path_factory.mktemp("runs")
        (out / "jobs.json").write_text(json.dumps(jobs))
        done = ranks(1, HERE / "drive.py", out / "jobs.json", out, timeout=400, cwd=folders)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return out

    return act
