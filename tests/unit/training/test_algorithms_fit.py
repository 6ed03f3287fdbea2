"""Each algorithm is trained for a round on each way that the page of fits says it goes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from unit.builders import Alone, write_folder

from mpifl.algorithms import ALGORITHMS
from mpifl.run.folder import read_metrics
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.fits import ABOUT

PRIVACY = {"clip": 1.0, "noise": 1.0, "delta": 0.01}
WAYS: dict[str, dict[str, Any]] = {
    "rule": {"aggregation": {"rule": "median"}},
    "clip": {"aggregation": {"clip": 0.1}},
    "private": {"privacy": PRIVACY},
    "silo": {"privacy": {**PRIVACY, "level": "silo"}, "cohort": {"weights": "uniform"}},
    "clock": {"clock": {}},
}
"""What asks for each way of the page; `augment` is not tried, since it needs pictures."""
KEYS = {"fedper": {"personal": ["*bias"]}, "fedrep": {"personal": ["*bias"], "head_epochs": 1}}
SHORT = {"feddf": {"distill_steps": 1, "distill_batch": 4}}
SPECIAL = {name for name, kind in ALGORITHMS.items() if not hasattr(kind, "train")}
"""They train no model by steps of silos: each has its own reference."""


def goes(name: str, way: str) -> bool:
    return not ABOUT[way](ALGORITHMS[name](**KEYS.get(name, {})))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fits") / "shards"
    write_folder(folder, [9, 6, 8], test=5, public=4)
    return folder


TRIED = [(name, way) for name in ALGORITHMS for way in WAYS if name not in SPECIAL and goes(name, way)]


def test_each_way_of_the_page_is_tried() -> None:
    assert {*WAYS} | {"augment"} == {*ABOUT}
    assert {"splitnn", "newton", "cox", "kaplanmeier", "tableone", "dptable"} == SPECIAL


@pytest.mark.parametrize(("name", "way"), TRIED)
def test_an_algorithm_trains_where_the_page_says_yes(
    name: str, way: str, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    tables = {
        "name": "toy",
        "shards": str(shards),
        "rounds": 1,
        "model": {"name": "unit.training.test_accounting:normed" if name == "fedbn" else "mlp"},
        "local": {"lr": 0.1, "batch_size": 3},
        "algorithm": {"name": name, **KEYS.get(name, {}), **SHORT.get(name, {})},
        "tracking": {"console": False},
        **({"clock": {}} if ALGORITHMS[name].timed else {}),
        **WAYS[way],
    }
    (tmp_path / "job.toml").write_text(tomli_w.dumps(tables))
    train(tmp_path / "job.toml", tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    (record,) = read_metrics(tmp_path / "run")
    assert record["faults"] == {}
