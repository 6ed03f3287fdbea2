"""Rules of columns against a few lines of numpy, to the bit, on any number of ranks and nodes."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import columns
import numpy as np
import pytest
from conftest import ranks
from unit.aggregation import test_weights as weighted

from mpifl.common import rng
from mpifl.wings.robust.mixing import bucketing

HERE = Path(__file__).parent
WORLDS = [
    (1, None, False),
    (3, None, False),
    (5, 2, False),
    (2, None, True),
    *(
        pytest.param(world, marks=pytest.mark.slow)
        for world in ((2, None, False), (5, None, False), (3, 1, False), (5, 1, True))
    ),
]
"""Ranks, ranks to a node, and whether vectors lie in files."""


def oracle(name: str, rows: np.ndarray) -> np.ndarray:
    """What a rule makes of rows [K, n], float32."""
    if name == "columns:spread":
        blocks = [rows[:, start : start + 16] for start in range(0, rows.shape[1], 16)]
        means = [functools.reduce(np.add, block) / np.float32(len(rows)) for block in blocks]
        return np.concatenate([np.clip(mean, -1e30, 1e30) + np.float32(mean.shape[0]) for mean in means])
    silos = len(rows)
    first, last = ((silos - 1) // 2, silos // 2 + 1) if name == "median" else (2, silos - 2)
    chosen = np.sort(rows, axis=0)[first:last].astype(np.float64)
    return (functools.reduce(np.add, chosen) / (last - first)).astype(np.float32) + np.float32(0)


@pytest.fixture(scope="module", params=WORLDS, ids=str)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    n, per_node, spilled = request.param
    out, files = tmp_path_factory.mktemp("columns"), tmp_path_factory.mktemp("disk_buffer")
    more = {"MPIFL_RANKS_PER_NODE": str(per_node)} if per_node else {}
    done = ranks(n, HERE / "columns.py", out, *([files] if spilled else []), timeout=100, **more)
    assert (out / "done").exists(), done.stdout + done.stderr
    assert not list(files.iterdir()), "a file of a vector has a name"
    return out


@pytest.mark.parametrize("name", columns.RULES)
def test_a_rule_gives_the_bits_of_numpy_on_any_ranks(found: Path, name: str) -> None:
    there = [silo for silo in range(columns.SILOS) if silo not in columns.FAILING]
    for round in range(columns.ROUNDS):
        vectors = [columns.vectors_of(silo, round) for silo in there]
        for vector, length in columns.LENGTHS.items():
            made = np.load(found / f"{name.replace(':', '-')}-{round}-{vector}.npy")
            rows = np.stack([one[vector] for one in vectors])
            expected = oracle(name, rows) if length else np.empty(0, np.float32)
            assert made.dtype == np.float32
            assert made.tobytes() == expected.tobytes(), (round, vector)


def joint(vectors: dict[str, np.ndarray]) -> np.ndarray:
    """The part of an update that rules by weights look at: all but what is set apart."""
    return np.concatenate([vectors[name] for name in columns.LENGTHS if name != "shift"]).astype(np.float64)


def expected_of(name: str, rows: np.ndarray, reference: np.ndarray, round: int) -> np.ndarray:
    """What a rule makes of joint vectors, by the oracles of the papers."""
    if name in ("krum", "multikrum"):
        scores, most = weighted.krum_scores(rows, 2), 3 if name == "multikrum" else 1
        return rows[np.argsort(scores)[:most]].mean(0)
    if name == "rfa":
        return weighted.weiszfeld(rows, 1e-6, 1000)
    if name == "centered":
        return weighted.centered_clipping(rows, reference, 1e39, 2)
    if name == "fltrust":
        return weighted.fltrust(rows, reference)
    if name == "nnm-krum":
        mixed = weighted.mixed_by_nearest(rows, 1)
        return mixed[weighted.krum_scores(mixed, 1).argmin()]
    if name == "nnm-trimmed":
        return np.sort(weighted.mixed_by_nearest(rows, 2).astype(np.float32), 0)[2:-2].mean(0, np.float64)
    if name == "own":
        return rows[np.linalg.norm(rows, axis=1).argmin()]
    size = 3 if name == "buckets-rfa" else 2
    mixed = bucketing(len(rows), size, rng.numpy_stream(5, "bucketing", round)) @ rows
    return np.median(mixed, 0) if name == "buckets-median" else weighted.weiszfeld(mixed, 1e-6, 1000)


SEEN: dict[tuple[str, int, str], bytes] = {}
"""The bits of the first world that made a result."""


@pytest.mark.parametrize("name", columns.WEIGHTED)
def test_a_rule_by_weights_is_its_papers_and_the_same_bits_on_any_ranks(found: Path, name: str) -> None:
    there = [silo for silo in range(columns.SILOS) if silo not in columns.FAILING]
    for round in range(columns.ROUNDS):
        made = {v: np.load(found / f"{name}-{round}-{v}.npy") for v in columns.LENGTHS}
        for vector, values in made.items():
            bits = SEEN.setdefault((name, round, vector), values.tobytes())
            assert values.tobytes() == bits, (round, vector)
        rows = np.stack([joint(columns.vectors_of(silo, round)) for silo in there])
        brought = columns.reference_of(round, name)
        reference = joint(brought) if brought else np.zeros(rows.shape[1])
        expected = expected_of(name, rows, reference, round)
        np.testing.assert_allclose(joint(made), expected, rtol=1e-5, atol=1e-6 * np.abs(rows).max())
        apart = np.stack([columns.vectors_of(silo, round)["shift"] for silo in there])
        assert made["shift"].tobytes() == oracle("median", apart).tobytes()


@pytest.mark.parametrize("rule", ["median", "rfa"])
def test_what_the_server_allocates_does_not_grow_with_the_silos_of_others(found: Path, rule: str) -> None:
    if not (found / "memory.json").exists():
        pytest.skip("the only rank hosts all silos")
    few, many = json.loads((found / "memory.json").read_text())[rule].values()
    vector = 4 * columns.LARGE
    assert few >= vector, "the result at least"
    assert many - few < vector
