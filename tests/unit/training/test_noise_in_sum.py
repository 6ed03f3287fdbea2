"""Trainings whose noise is in the sum over all silos, against the formulas."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from torch.nn import functional
from unit.builders import CLASSES, FEATURES, Alone, arrays

from mpifl.common import InputError
from mpifl.data.shards.shards import FederationSpec
from mpifl.run.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.privacy import Draws, SiteFolder, Steps, epsilon_of, noise_for
from mpifl.wings.site import make_identity
from scripts.write_shard import write_shard

UNION = 120
X, Y = arrays(UNION, seed=5)
LR, CLIP, BATCH = 0.5, 0.3, 24
SIZES = {1: [120], 4: [50, 10, 20, 40], 10: [12, 30, 5, 5, 8, 20, 10, 10, 19, 1]}


def write(folder: Path, sizes: list[int]) -> None:
    """Deal the first examples to silos of these sizes, one after another."""
    folder.mkdir(parents=True)
    ends = np.cumsum(sizes)
    about = {"features": FEATURES, "classes": CLASSES}
    silos = [
        write_shard(
            folder / f"{k}.h5", {"train": (X[end - n : end], Y[end - n : end])}, silo=k, name=f"s{k}", **about
        )
        for k, (n, end) in enumerate(zip(sizes, ends, strict=True))
    ]
    spec = FederationSpec(
        name="toy", seed=0, scheme={"name": "toy"}, source={}, silos=silos, test=None, **about
    )
    spec.write(folder)


def job_of(folder: Path, **tables: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "name": "toy",
        "shards": str(folder / "shards"),
        "rounds": 1,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [5]},
        "algorithm": {"name": "fedsgd"},
        "local": {"lr": LR, "batch_size": BATCH},
        "privacy": {"noise_at": "sum", "clip": CLIP, "noise": 1.0, "delta": 1e-3},
        "security": {"least": 1},
    }
    return {key: value for key, value in {**usual, **tables}.items() if value is not None}


def train_over(folder: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], **tables: Any) -> Path:
    monkeypatch.setenv("MPIFL_SITE", str(folder / "site"))
    if not (folder / "shards").exists():
        write(folder / "shards", sizes)
    (folder / "job.toml").write_text(tomli_w.dumps(job_of(folder, **tables)))
    train(folder / "job.toml", folder / "run", (), False, Alone(), wings_of=wings_of)
    return folder / "run"


def step_of(run: Path) -> dict[str, torch.Tensor]:
    """How far a round has moved each parameter."""
    first, last = load_file(run / "initial.safetensors"), load_file(run / "model.safetensors")
    return {name: last[name].double() - first[name].double() for name in first}


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Draws, "whole_normal", lambda self, count, deviation: torch.zeros(count, dtype=torch.int64)
    )


def clipped_sum(run: Path, rows: list[int]) -> dict[str, torch.Tensor]:
    """sum_i g_i min(1, C / ||g_i||), an example after the other, in float64."""
    weights = {name: w.double() for name, w in load_file(run / "initial.safetensors").items()}
    (w1, b1), (w2, b2) = [
        (weights[name], weights[name.replace("weight", "bias")])
        for name in sorted(weights)
        if "weight" in name
    ]
    total = {name: torch.zeros_like(w) for name, w in weights.items()}
    for row in rows:
        given = [one.clone().requires_grad_() for one in (w1, b1, w2, b2)]
        x = torch.from_numpy(X[row : row + 1]).double()
        hidden = torch.relu(functional.linear(x, given[0], given[1]))
        logits = functional.linear(hidden, given[2], given[3])
        loss = functional.cross_entropy(logits, torch.tensor([int(Y[row])]))
        gradients = torch.autograd.grad(loss, given)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        names = sorted(n for n in weights if "weight" in n)
        order = [names[0], names[0].replace("weight", "bias"), names[1], names[1].replace("weight", "bias")]
        for name, gradient in zip(order, gradients, strict=True):
            total[name] += gradient * min(1.0, CLIP / norm)
    return total


@pytest.mark.parametrize("silos", SIZES)
def test_without_noise_a_round_is_a_step_of_dp_sgd_on_the_union(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silos: int
) -> None:
    quiet(monkeypatch)
    drawn: list[int] = []
    at, real = [0], Draws.chosen

    def noted(self: Draws, count: int, rate: float) -> torch.Tensor:
        assert rate == pytest.approx(BATCH / UNION)
        found = real(self, count, rate)
        drawn.extend(at[0] + int(i) for i in found)
        at[0] += count
        return found

    monkeypatch.setattr(Draws, "chosen", noted)
    run = train_over(tmp_path, monkeypatch, SIZES[silos])
    assert at == [UNION]
    assert 5 < len(drawn) < 60
    expected = clipped_sum(run, drawn)
    for name, step in step_of(run).items():
        assert torch.allclose(step, -LR / BATCH * expected[name], rtol=0, atol=1e-6), name


def test_one_example_moves_the_sum_by_no_more_than_the_clip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    monkeypatch.setattr(Draws, "chosen", lambda self, count, rate: torch.arange(count))
    found = [step_of(train_over(tmp_path / str(n), monkeypatch, [50, 40, n])) for n in (30, 29)]
    moved = torch.cat([((one - found[1][name]) * BATCH / LR).flatten() for name, one in found[0].items()])
    assert 0.1 * CLIP < float(moved.norm()) <= CLIP * (1 + 1e-5)


@pytest.mark.parametrize("silos", [1, 10])
def test_the_noise_of_a_round_is_that_of_the_sum_by_the_expected_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silos: int
) -> None:
    """At a clip of nearly nothing a step is noise alone: lr z C sqrt(n / (n - c)) / B."""
    privacy = {"noise_at": "sum", "clip": 1e-2, "noise": 50.0, "delta": 1e-3}
    run = train_over(
        tmp_path, monkeypatch, SIZES[silos], model={"name": "mlp", "hidden": [3000]}, privacy=privacy
    )
    steps = torch.cat([one.flatten() for one in step_of(run).values()])
    shares = silos / (silos - math.floor(silos / 3))
    expected = LR * 50.0 * 1e-2 / BATCH * math.sqrt(shares)
    assert float(steps.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(steps)))
    record = json.loads((run / "metrics.jsonl").read_text())
    assert record["noise_std"] == pytest.approx(50.0 * 1e-2 / BATCH)


def test_epsilon_and_the_ledgers_are_those_of_the_union(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    run = train_over(tmp_path, monkeypatch, SIZES[4], rounds=3)
    rate = BATCH / UNION
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for rounds, record in enumerate(records, 1):
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1.0))
        accountant = dp_accounting.pld.PLDAccountant(
            dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4
        )
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
        assert record["epsilon"] == pytest.approx(accountant.get_epsilon(1e-3), rel=1e-3)
        assert set(record["epsilon_silos"].values()) == {record["epsilon"]}
    for silo in ("s0", "s1", "s2", "s3"):
        taken = [one.taken for one in SiteFolder(tmp_path / "site").entries(silo)]
        assert taken == [[(1.0, pytest.approx(rate), 1)]] * 3


def test_epsilon_in_place_of_noise_is_met_by_all_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    privacy = {"noise_at": "sum", "clip": CLIP, "epsilon": 2.0, "delta": 1e-3, "accountant": "rdp"}
    run = train_over(tmp_path, monkeypatch, SIZES[4], rounds=4, privacy=privacy)
    noise = noise_for(2.0, 1e-3, BATCH / UNION, 4, "rdp")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["epsilon"] == pytest.approx(epsilon_of([Steps(noise, BATCH / UNION, 4)], 1e-3, "rdp"))
    assert 1.9 < last["epsilon"] <= 2.0


def test_a_site_whose_own_budget_is_too_small_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    site = tmp_path / "site"
    site.mkdir(mode=0o700)
    (site / "budget.toml").write_text("epsilon = 0.05\ndelta = 1e-3\n")
    with pytest.raises(InputError, match="the other sites' part of the noise on the server's word"):
        train_over(tmp_path, monkeypatch, SIZES[4], rounds=2)
    own = make_identity(site, "own")
    (site / "sites.toml").write_text(own.listing([f"s{k}" for k in range(len(SIZES[4]))]))
    with pytest.raises(InputError, match=r"^silo s0: privacy budget is spent \(and \d more silos?\)"):
        train_over(tmp_path, monkeypatch, SIZES[4], rounds=2)
    assert not SiteFolder(site).entries()


@pytest.mark.parametrize("silos", [1, 10])
def test_at_the_level_of_silos_a_round_is_the_clipped_sum_and_noise_by_the_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silos: int
) -> None:
    """(sum_k clip(d_k) + N(0, (z C)^2 n / (n - c))) / m."""
    level = {"level": "silo", "noise_at": "sum", "clip": 1e-3, "noise": 2.0, "delta": 1e-3}
    more = {
        "algorithm": {"name": "fedavg"},
        "local": {"lr": LR, "steps": 2, "batch_size": 8},
        "cohort": {"weights": "uniform"},
        "model": {"name": "mlp", "hidden": [3000]},
        "privacy": level,
    }
    noisy = step_of(train_over(tmp_path / "noisy", monkeypatch, SIZES[silos], **more))
    quiet(monkeypatch)
    clear = step_of(train_over(tmp_path / "clear", monkeypatch, SIZES[silos], **more))
    norm = math.sqrt(sum(float(one.square().sum()) for one in clear.values()))
    assert 0 < norm <= 1e-3 * (1 + 1e-4)  # a mean of silos, each clipped to C
    noise = torch.cat([(noisy[name] - one).flatten() for name, one in clear.items()])
    expected = 2.0 * 1e-3 / silos * math.sqrt(silos / (silos - math.floor(silos / 3)))
    assert float(noise.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(noise)))


PRIVACY = {"noise_at": "sum", "clip": 1.0, "noise": 1.0, "delta": 1e-3}
SILOS = {"level": "silo", **PRIVACY}
UNIFORM = {"algorithm": {"name": "fedavg"}, "cohort": {"weights": "uniform"}, "privacy": SILOS}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no security": ({"security": None}, "noise_at = 'sum': each site's own sum would .* add a table"),
    "masks off": ({"security": {"masks": False}}, r"noise_at = 'sum': each site's own sum .*\[security\]"),
    "fedavg": ({"algorithm": {"name": "fedavg"}}, "'fedavg' takes steps of its own at silos; use 'fedsgd'"),
    "a part of the silos": ({"cohort": {"fraction": 0.5}}, "leave .cohort. fraction and weights out"),
    "told whether it was clipped": ({"aggregation": {"clip": 2.0}}, "clip = 2 says of each silo whether"),
    "silos alike": ({"cohort": {"weights": "uniform"}}, "leave .cohort. fraction and weights out"),
    "adaptive": ({"privacy": {**SILOS, "clip": "adaptive"}}, "the bits that it follows get no noise"),
    "silos, no security": ({**UNIFORM, "security": None}, "noise_at = 'sum': each silo's own update would"),
    "silos, masks off": ({**UNIFORM, "security": {"masks": False}}, "noise_at = 'sum': each silo's own"),
    "silos, by examples": (
        {**UNIFORM, "cohort": {"weights": "examples"}},
        "one silo's update would weigh more than the noise hides",
    ),
    "silos, poisson": ({**UNIFORM, "cohort": {"weights": "uniform", "select": "poisson"}}, "poisson"),
    "augmented": ({"data": {"augment": "flip-crop"}}, "takes examples as they are|augment"),
    "momentum": ({"local": {"lr": 0.1, "momentum": 0.9}}, "one plain gradient step a round"),
    "precision": ({"local": {"lr": 0.1, "precision": "bf16"}}, "precision = 'bf16'"),
    "compile": ({"local": {"lr": 0.1, "compile": True}}, "compile"),
    "batched": ({"local": {"lr": 0.1, "batch_silos": True}}, "batch_silos"),
}


def test_delta_is_at_most_one_by_the_examples_of_all_silos(tmp_path: Path) -> None:
    """Those of the largest, 50, would allow 0.02."""
    write(tmp_path / "shards", SIZES[4])
    job = job_of(tmp_path, privacy={**PRIVACY, "delta": 0.01})
    with pytest.raises(
        InputError, match=r"delta = 0\.01: all silos have 120 examples, and above 1/120 delta"
    ):
        train(job, tmp_path / "run", (), False, Alone(), wings_of=wings_of)


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_go_with_noise_in_a_sum_is_a_line(tmp_path: Path, what: str) -> None:
    tables, line = REFUSED[what]
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(job_of(tmp_path, **tables)))
    with pytest.raises(InputError, match=line):
        read_job(path)
