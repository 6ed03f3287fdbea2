"""FLamby's data sets in small: what is made has their centres, and every job trains on it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT

import mpifl
from data_prep.cli import main as data_prep
from mpifl.data.shards.shards import read_federation
from mpifl.run.job.job import read_job
from scripts import flamby_like
from scripts.flamby_like import SETS

JOBS = ROOT / "jobs" / "flamby"
HEART = Path(os.environ.get("MPIFL_DATA", "no-data-folder")) / "heart-disease"
SMALLEST = ("--scale=0.001", "--share=0.001")
MADE = {
    "tcga-brca": ("--share=0.5",),
    "camelyon16": ("--scale=0.02",),
    "ixi": ("--scale=0.2", "--share=0.1"),
}
"""What of a set is made where it is more than the least."""
LONGER = {
    "tcga-brca": ("rounds=3",),
    "camelyon16": ("rounds=3", "local.steps=20", "local.lr=0.003"),
    "ixi": ("rounds=3", "local.steps=6", "local.lr=0.01"),
}
"""What trains until it is better than a constant."""
NAIVE = {"tcga-brca": 0.5, "camelyon16": 0.5, "ixi": 0.0}
"""What a constant reaches: equal risks, one class, no voxel of a brain."""


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def cut(words):
    with pytest.raises(SystemExit) as ended:
        data_prep([*words, "--jobs", "1"])
    assert ended.value.code == 0


def made(name, folder, *more):
    """Make a set at the smallest scale, cut it, and return the folder of its shards."""
    flamby_like.main([name, "--out", str(folder / name), *more])
    cut(flamby_like.partition(name, folder / name, str(folder / "shards")))
    return folder / "shards"


def trained(name, shards, folder, *overrides):
    """Train a job of the folder; return its main metric, and that of each silo."""
    job = read_job(JOBS / f"{name}.toml", [f"shards={json.dumps(str(shards))}", *overrides])
    run = mpifl.train(job, out=folder / "run")
    metric = job.build_algorithm().task.main_metric.name
    record = run.metrics[-1]
    assert set(record["silos"]) == {entry.name for entry in read_federation(shards).silos}
    weighted = record.get(f"silo_{metric}_pooled", record[f"silo_{metric}_weighted"])
    return weighted, [silo[metric] for silo in record["silos"].values()]


@pytest.mark.parametrize("name", SETS)
def test_each_job_trains_on_its_set(tmp_path, name):
    shards = made(name, tmp_path, *MADE.get(name, SMALLEST))
    reached, silos = trained(name, shards, tmp_path, *LONGER.get(name, ("rounds=1", "local.steps=2")))
    assert len(silos) == len(SETS[name].centres)
    assert 0 <= reached <= 1
    if name in NAIVE:
        assert reached > NAIVE[name] + 0.1


def test_centres_have_the_sizes_of_flamby(tmp_path):
    spec = read_federation(made("tcga-brca", tmp_path))
    assert [(e.name, e.examples["train"], e.examples["test"]) for e in spec.silos] == [
        (name, *size) for name, size in SETS["tcga-brca"].centres.items()
    ]
    assert spec.features.shape == (39,)


@pytest.mark.parametrize(
    ("name", "scale", "shape"),
    [
        ("isic2019", 1, (3, 224, 224)),
        ("camelyon16", 1, (10_000, 2048)),
        ("camelyon16", 0.02, (200, 41)),
        ("ixi", 1, (1, 48, 60, 48)),
        ("ixi", 0.375, (1, 16, 24, 16)),
        ("kits19", 1, (1, 64, 192, 192)),
    ],
)
def test_scale_1_has_the_shapes_of_flamby(name, scale, shape):
    assert SETS[name].shape_at(scale) == shape


def test_the_seed_decides_what_is_made(tmp_path):
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        flamby_like.main(
            ["ixi", "--out", str(tmp_path / folder), "--share=0.01", "--scale=0.1", f"--seed={seed}"]
        )
    a, b, c = (np.load(tmp_path / folder / "x.npy") for folder in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_a_scale_beyond_1_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        flamby_like.main(["ixi", "--out", str(tmp_path), "--scale", "2"])
    assert "--scale: 2.0 given; it must be above 0 and at most 1" in capsys.readouterr().err


@pytest.mark.skipif(not HEART.is_dir(), reason="needs the heart disease data")
def test_the_job_of_hearts_trains_on_real_data(tmp_path):
    shards = tmp_path / "shards"
    cut(["partition", "heart-disease", "--out", str(shards), "--scheme", "natural", "--test", "0.34"])
    reached, silos = trained("heart", shards, tmp_path, "rounds=8", "local.lr=0.01")
    assert len(silos) == 4
    assert reached > 0.7


def test_a_tile_of_zeros_is_padding():
    from jobs.flamby.models import DeepMil

    bags = torch.from_numpy(np.random.default_rng(0).random((3, 7, 5), np.float32))
    model = DeepMil((7, 5), 1)
    padded = torch.cat([bags, torch.zeros(3, 4, 5)], 1)
    assert torch.allclose(model(padded), model(bags), atol=1e-6)


def test_a_tumour_is_a_part_of_its_kidney():
    from jobs.flamby.metrics import KidneyDice

    metric = KidneyDice()
    for answers, y in (([0, 1, 2, 2], [0, 1, 1, 2]), ([1, 0], [2, 0])):
        metric.update(torch.eye(3)[answers], torch.tensor(y))
    assert metric.compute() == pytest.approx((2 * 4 / 8 + 2 * 1 / 4) / 2)


@pytest.mark.parametrize("sides", [(9, 10, 11), (16, 8, 4)])
def test_a_u_net_takes_any_sides_and_a_v_net_says_which(sides):
    from jobs.flamby.models import UNet3d, VNet

    x = torch.zeros(2, 1, *sides)
    assert UNet3d((1, *sides), 3, channels=2)(x).shape == (2, 3, *sides)
    if sides == (16, 8, 4):
        assert VNet((1, *sides), 2, channels=2, levels=3)(x).shape == (2, 2, *sides)
    else:
        with pytest.raises(
            ValueError, match="are no multiples of 4; make other patches, or give fewer levels"
        ):
            VNet((1, *sides), 2, channels=2, levels=3)
