"""Trainings whose silos are protected: what is let out, what that costs, when they end, what they refuse."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from pages import Reader
from safetensors.numpy import load_file
from scipy import special, stats
from unit.builders import Alone, write_folder

from mpifl import FedAvg
from mpifl.common import InputError, RoundLost
from mpifl.privacy import Site, Steps, epsilon_of
from mpifl.report import read_run, write_report
from mpifl.run import check_run, read_job
from mpifl.training.loop import train
from mpifl.training.validation import check_privacy, validate_job

SILOS = 8
PRIVACY = {"level": "silo", "clip": 0.05, "noise": 2.0, "delta": 0.1}


@pytest.fixture
def start(tmp_path: Path):
    """Train a small job serially; tables replace the usual ones."""
    write_folder(tmp_path / "shards", [9] * SILOS, test=20)

    def act(name="toy", out=None, resume=False, overrides=(), secret=b"s" * 32, shards="shards", **tables):
        path = tmp_path / f"{name}.toml"
        path.write_text(tomli_w.dumps(job_of(tmp_path / shards, name, **tables)))
        run = tmp_path / (out or name)
        if secret:
            give(run, secret)
        train(path, run, tuple(overrides), resume, Alone())
        return run

    act.folder = tmp_path
    return act


def give(run: Path, secret: bytes):
    """Give a server its secret beforehand, by which two runs can be compared."""
    (run / "privacy").mkdir(parents=True, exist_ok=True, mode=0o700)
    (run / "privacy").chmod(0o700)
    (run / "privacy" / "key").write_bytes(secret)


def job_of(shards: Path, name="toy", **tables):
    usual = {
        "rounds": 3,
        "device": "cpu",
        "model": {"name": "logreg"},
        "local": {"lr": 0.5, "batch_size": "full", "steps": 2},
        "cohort": {"weights": "uniform"},
        "privacy": PRIVACY,
    }
    return {"name": name, "shards": str(shards), **usual, **tables}


def records(run: Path):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def same(one: Path, other: Path):
    return (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def flat(run: Path, name="model"):
    return np.concatenate([v.ravel() for _, v in sorted(load_file(run / f"{name}.safetensors").items())])


def closed_form(delta, *sigmas):
    """Solve delta = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) for e, mu^2 = sum sigma^-2 (Balle & Wang 2018)."""
    mu = math.sqrt(sum(s**-2 for s in sigmas))
    low, high = 0.0, 500.0
    for _ in range(200):
        e = (low + high) / 2
        found = special.ndtr(mu / 2 - e / mu) - math.exp(e + special.log_ndtr(-mu / 2 - e / mu))
        low, high = (e, high) if found > delta else (low, e)
    return low


def test_a_round_says_what_it_cost_and_nothing_of_single_silos(start):
    found = records(start())
    for nth, record in enumerate(found, 1):
        assert record["epsilon"] == pytest.approx(closed_form(0.1, *[2.0] * nth), abs=1e-6)
        assert record["noise_std"] == pytest.approx(2.0 * 0.05 / SILOS)
        assert record["clip_norm"] == 0.05
        assert not {"train_loss", "clipped", "budget_left", "epsilon_silos", "within clip"} & record.keys()
    assert "test_accuracy" in found[-1]


def test_the_first_noise_is_normal_of_the_stated_deviation_and_other_rounds_have_their_own(start):
    """A model of 30,003 numbers; the noiseless way is that of a run with a vanishing multiplier."""
    wide = {"model": {"name": "mlp", "hidden": [3750]}, "rounds": 2, "evaluate": {"every": 2}}
    noised = start("noised", **wide, checkpoint={"every": 1})
    silent = start("silent", **wide | {"rounds": 1}, privacy={**PRIVACY, "noise": 0.01}, secret=b"t" * 32)
    first = load_file(noised / "checkpoints/round_000001/server.safetensors")["w"]
    bare = load_file(silent / "checkpoints/round_000001/server.safetensors")["w"]
    deviation, count = 2.0 * 0.05 / SILOS, len(first)
    assert count > 30_000
    drawn = (first.astype(float) - bare) / deviation
    assert drawn.var() == pytest.approx(1 + (0.01 / 2) ** 2, abs=5 * math.sqrt(2 / count))
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    begun = load_file(noised / "initial.safetensors")
    second = load_file(noised / "checkpoints/round_000002/server.safetensors")["w"].astype(float) - first
    assert abs(np.corrcoef(second, drawn)[0, 1]) < 5 / math.sqrt(count)
    assert sum(v.size for v in begun.values()) == count


def test_the_same_job_with_the_same_secret_is_the_same_and_with_another_is_not(start):
    first, again, other = start("a"), start("a", out="b"), start("a", out="c", secret=b"t" * 32)
    assert same(first, again)
    assert not same(first, other)
    made = start("a", out="d", secret=None)
    key = made / "privacy" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    assert not same(first, made)


@pytest.mark.parametrize("stopped", [1, 2])
def test_a_run_that_goes_on_has_the_bits_and_the_cost_of_one_never_stopped(start, stopped):
    """After the checkpoint of round 2, or of none, rounds are asked again: they add no event."""
    start("whole", out="half", checkpoint={"every": 2}, overrides=[f"rounds={stopped}"])
    for name in ("model.safetensors", f"checkpoints/round_{stopped:06d}/checkpoint.json"):
        (start.folder / "half" / name).unlink(missing_ok=True)
    half = start("whole", out="half", checkpoint={"every": 2}, resume=True)
    whole = start("whole", checkpoint={"every": 2})
    assert same(half, whole)
    assert len(Site(half / "privacy").entries()) == 3
    assert records(half)[-1]["epsilon"] == records(whole)[-1]["epsilon"]


class Failing(FedAvg):
    """Silo 3 fails in round 2, as long as a file says so."""

    def train(self, silo, w):
        told = Path(os.environ["FAILING"])
        if (silo.id, silo.round) == (3, 1) and told.exists():
            if told.read_text() == "once":
                told.unlink()
            raise OSError("the disk is gone")
        return super().train(silo, w)


OWN = {"name": "unit.training.test_silo_level:Failing"}


def test_a_lost_round_costs_nothing(start, monkeypatch):
    told = start.folder / "told"
    monkeypatch.setenv("FAILING", str(told))
    untroubled = start("own", out="untroubled", algorithm=OWN)
    told.write_text("once")
    lost = start("own", out="lost", algorithm=OWN)
    assert "attempts_lost" in records(lost)[1]
    assert same(lost, untroubled)
    assert len(Site(lost / "privacy").entries()) == 3


def test_the_same_round_over_another_set_has_noise_of_its_own_and_is_an_event(start, monkeypatch):
    """The round is asked once with all silos and, after a crash, without one."""
    told = start.folder / "told"
    monkeypatch.setenv("FAILING", str(told))
    cohort = {"weights": "uniform", "quorum": 0.5}
    tables = {"algorithm": OWN, "cohort": cohort, "checkpoint": {"every": 1}}
    run = start("sets", **tables, overrides=["rounds=2"])
    with_all = load_file(run / "checkpoints/round_000002/server.safetensors")["w"]
    (run / "checkpoints/round_000002/checkpoint.json").unlink()
    told.write_text("always")
    start("sets", **tables, resume=True)
    without = load_file(run / "checkpoints/round_000002/server.safetensors")["w"]
    away = with_all.astype(float) - without
    assert np.abs(away).max() > 0.05 / SILOS, "no single silo accounts for that: the noise is another"
    assert len(Site(run / "privacy").entries()) == 4
    assert records(run)[-1]["epsilon"] == pytest.approx(closed_form(0.1, *[2.0] * 4), abs=1e-6)


def test_a_run_folder_without_its_secret_or_with_a_shorter_ledger_is_refused(start):
    run = start("whole", checkpoint={"every": 1}, overrides=["rounds=2"])
    ledger, key = run / "privacy" / "ledger.jsonl", run / "privacy" / "key"
    lines = ledger.read_text()
    ledger.write_text(lines[: lines.index("\n") + 1])
    with pytest.raises(InputError, match="has fewer answers than the 2 that this run has let out"):
        start("whole", checkpoint={"every": 1}, resume=True)
    ledger.write_text(lines)
    secret = key.read_bytes()
    key.unlink()
    with pytest.raises(InputError, match="has not the secret that this run began with"):
        start("whole", checkpoint={"every": 1}, resume=True, secret=None)
    assert not key.exists()
    with pytest.raises(InputError, match="has not the secret that this run began with"):
        start("whole", checkpoint={"every": 1}, resume=True, secret=b"t" * 32)
    key.write_bytes(secret)
    start("whole", checkpoint={"every": 1}, resume=True)


def test_a_budget_takes_the_least_noise_and_ends_where_it_is_spent(start, capsys):
    budget = {"level": "silo", "clip": 0.05, "epsilon": 2.0, "delta": 0.1}
    found = records(start("budget", privacy=budget))
    assert [record["budget_left"] for record in found] == [2, 1, 0]
    assert 1.999 < found[-1]["epsilon"] <= 2.0
    assert closed_form(0.1, *[found[0]["noise_std"] * SILOS / 0.05] * 3) == pytest.approx(2.0, abs=2e-3)


def test_another_set_ends_a_run_before_it_passes_its_budget(start, monkeypatch, capsys):
    told = start.folder / "told"
    monkeypatch.setenv("FAILING", str(told))
    budget = {"level": "silo", "clip": 0.05, "epsilon": 2.0, "delta": 0.1}
    cohort = {"weights": "uniform", "quorum": 0.5}
    tables = {"algorithm": OWN, "cohort": cohort, "checkpoint": {"every": 1}, "privacy": budget}
    run = start("spent", **tables)
    for round in (2, 3):
        (run / f"checkpoints/round_{round:06d}/checkpoint.json").unlink()
    told.write_text("always")
    with pytest.raises(RoundLost, match="another answer would pass \\[privacy\\] epsilon 2 at delta 0.1"):
        start("spent", **tables, resume=True)
    assert len(Site(run / "privacy").entries()) == 3


def test_leaving_a_silo_out_moves_the_noiseless_mean_by_no_more_than_its_bound(start):
    """With a vanishing multiplier; the divisor stays what was expected, though one silo fails."""
    os.environ["FAILING"] = str(start.folder / "told")
    cohort, quiet = {"weights": "uniform", "quorum": 0.5}, {**PRIVACY, "noise": 0.01, "clip": 0.02}
    tables = {"algorithm": OWN, "cohort": cohort, "rounds": 2, "checkpoint": {"every": 1}, "privacy": quiet}
    whole = start("whole", **tables)
    (start.folder / "told").write_text("always")
    without = start("whole", out="without", **tables)
    after = [load_file(run / "checkpoints/round_000002/server.safetensors")["w"] for run in (whole, without)]
    noise = math.sqrt(len(after[0])) * 0.01 * 0.02 / SILOS
    moved = np.linalg.norm(after[0].astype(float) - after[1])
    assert 0.02 / SILOS - 5 * noise < moved < 0.02 / SILOS + 5 * noise
