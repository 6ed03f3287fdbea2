"""Trainings whose silos are protected: what is let out, what that costs, when they end, what they refuse."""

from __future__ import annotations

import importlib
import itertools
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
from mpifl.cli.privacy_command import privacy
from mpifl.common import InputError, RoundLost
from mpifl.report.pages import write_report
from mpifl.report.runs import read_run
from mpifl.run.job import read_job
from mpifl.training.beforehand.run_checks import plan_wings, validate_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.privacy import SiteFolder, Steps, epsilon_of

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
        train(path, run, tuple(overrides), resume, Alone(), wings_of=wings_of)
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
    """Solve Balle & Wang's delta = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), mu^2 = sum sigma^-2."""
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
    assert len(SiteFolder(half / "privacy").entries()) == 3
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
    assert len(SiteFolder(lost / "privacy").entries()) == 3


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
    assert len(SiteFolder(run / "privacy").entries()) == 4
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


def test_a_run_folder_with_the_ledger_of_another_run_is_refused(start):
    """Else epsilon would be what the other has spent, with ten times the noise here."""
    run = start("whole", checkpoint={"every": 1}, overrides=["rounds=2"])
    loud = start("other", privacy={**PRIVACY, "noise": 20.0})
    own, foreign = (one / "privacy" / "ledger.jsonl" for one in (run, loud))
    kept = own.read_text()
    own.write_text(foreign.read_text())
    model = (run / "model.safetensors").read_bytes()
    with pytest.raises(
        InputError, match=r"privacy/ledger\.jsonl: does not begin with the 2 answers that this"
    ):
        start("whole", checkpoint={"every": 1}, resume=True)
    assert own.read_text() == foreign.read_text()
    assert (run / "model.safetensors").read_bytes() == model
    own.write_text(kept + foreign.read_text().splitlines(keepends=True)[-1])  # more may be there
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
    with pytest.raises(RoundLost, match=r"another answer would pass \[privacy\] epsilon 2 at delta 0\.1"):
        start("spent", **tables, resume=True)
    assert len(SiteFolder(run / "privacy").entries()) == 3


def test_leaving_a_silo_out_moves_the_noiseless_mean_by_no_more_than_its_bound(start, monkeypatch):
    """With a vanishing multiplier; the divisor stays what was expected, though one silo fails."""
    monkeypatch.setenv("FAILING", str(start.folder / "told"))
    cohort, quiet = {"weights": "uniform", "quorum": 0.5}, {**PRIVACY, "noise": 0.01, "clip": 0.02}
    tables = {"algorithm": OWN, "cohort": cohort, "rounds": 2, "checkpoint": {"every": 1}, "privacy": quiet}
    whole = start("whole", **tables)
    (start.folder / "told").write_text("always")
    without = start("whole", out="without", **tables)
    after = [load_file(run / "checkpoints/round_000002/server.safetensors")["w"] for run in (whole, without)]
    noise = math.sqrt(len(after[0])) * 0.01 * 0.02 / SILOS
    moved = np.linalg.norm(after[0].astype(float) - after[1])
    assert 0.02 / SILOS - 5 * noise < moved < 0.02 / SILOS + 5 * noise


POISSON = {"weights": "uniform", "select": "poisson"}


def test_poisson_draws_are_secret_and_an_empty_one_is_answered_by_noise(start):
    """Of 8 silos each comes by 2%: most rounds have none, and look like all others."""
    tables = {"rounds": 4, "cohort": {**POISSON, "fraction": 0.02}}
    tables["checkpoint"] = {"every": 1, "keep": 4}
    run = start("empty", **tables)
    sizes = [record["bytes_received"] for record in records(run)]
    assert 0 in sizes, "use another secret"
    w = [load_file(run / f"checkpoints/round_{n:06d}/server.safetensors")["w"] for n in (1, 2, 3, 4)]
    deviation = 2.0 * 0.05 / (0.02 * SILOS)
    moved = np.concatenate([after - before for before, after in itertools.pairwise(w)]) / deviation
    assert 0.5 < moved.std() < 2
    assert records(run)[0]["noise_std"] == pytest.approx(deviation)
    library = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    one = library.from_gaussian_mechanism(2.0, sampling_prob=0.02, value_discretization_interval=1e-4)
    expected = one.self_compose(4).get_epsilon_for_delta(0.1)
    assert records(run)[-1]["epsilon"] == pytest.approx(expected, abs=1e-3)
    assert not same(run, start("empty", out="other", secret=b"t" * 32, **tables))


def test_many_silos_with_a_clip_that_follows_them(tmp_path):
    """Poisson cohorts of 100 of 125 silos; what is told of single silos is nothing."""
    write_folder(tmp_path / "shards", [4] * 125)
    adaptive = {"level": "silo", "clip": "adaptive", "clip_start": 2.0, "noise": 1.0, "delta": 0.008}
    adaptive["accountant"] = "rdp"
    cohort = {**POISSON, "fraction": 0.8}
    path, run = tmp_path / "job.toml", tmp_path / "run"
    path.write_text(tomli_w.dumps(job_of(tmp_path / "shards", privacy=adaptive, cohort=cohort, rounds=3)))
    train(path, run, (), False, Alone(), wings_of=wings_of)
    found = records(run)
    assert found[0]["clip_norm"] == 2.0
    for before, after in itertools.pairwise(found):
        right = before["clip_norm"] * math.exp(-0.2 * (1 - before["clipped"] - 0.5))
        if 0 < before["clipped"] < 1:
            assert after["clip_norm"] == pytest.approx(right)
        assert after["clip_norm"] < before["clip_norm"], "2 is more than any norm"
    update_noise = (1 - (2 * 100 / 20) ** -2) ** -0.5
    assert found[0]["noise_std"] == pytest.approx(update_noise * 2.0 / 100)
    assert found[-1]["epsilon"] == pytest.approx(epsilon_of([Steps(1.0, 0.8, 3)], 0.008, "rdp"))
    text = "".join(path.read_text() for path in (run / "metrics.jsonl", run / "environment.json"))
    assert "within clip" not in text


@pytest.mark.parametrize("masks", [True, False])
def test_a_clip_that_follows_silos_needs_no_more_than_the_sum_of_their_bits(start, monkeypatch, masks):
    """Under masks nobody sees a silo's bit. The noise of the share of bits has the deviation 1 / 20."""
    write_folder(start.folder / "many", [4] * 100)
    monkeypatch.setenv("MPIFL_SITE", str(start.folder / "site"))
    tables = {"security": {"masks": masks, "least": 1, "range": 1e6}, "rounds": 1, "shards": "many"}
    for name, clip, clipped in (("high", 1e6, 0.0), ("low", 1e-6, 1.0)):
        privacy = {**PRIVACY, "clip": "adaptive", "clip_start": clip, "delta": 0.01}
        (found,) = records(start(name, **tables, privacy=privacy))
        assert found["clipped"] == pytest.approx(clipped, abs=5 / 20)


@pytest.mark.parametrize("clip", [0.05, "adaptive"])
def test_masks_change_no_bit_of_what_a_server_of_one_secret_lets_out(start, monkeypatch, clip):
    monkeypatch.setenv("MPIFL_SITE", str(start.folder / "site"))
    if clip == "adaptive":
        write_folder(start.folder / "many", [4] * 100)
    tables = {"shards": "many", "rounds": 1} if clip == "adaptive" else {"rounds": 2}
    tables["privacy"] = {**PRIVACY, "clip": clip, "delta": 0.01}
    runs = [start(f"{masks}", **tables, security={"masks": masks, "least": 1}) for masks in (True, False)]
    one, other = ((run / "model.safetensors").read_bytes() for run in runs)
    assert one == other
    let_out = [[(one.question, one.answer) for one in SiteFolder(run / "privacy").entries()] for run in runs]
    assert let_out[0] == let_out[1]


def check(path: Path):
    job = read_job(path)
    plan_wings(job, validate_job(job, str(path), wings_of), str(path), wings_of(job))


NORMED = "unit.training.test_accounting:normed"
UNIFORM = {"weights": "uniform"}
REFUSED = [
    (
        {"privacy": {**PRIVACY, "epsilon": 2.5}},
        "and epsilon = 2.5 are given, and the one follows from the other",
    ),
    (
        {"privacy": {**PRIVACY, "noise_at": "silo"}},
        "[privacy] noise_at = 'silo': level = 'silo' has its noise",
    ),
    (
        {"privacy": {**PRIVACY, "level": "example", "noise_at": "server"}},
        "[privacy] noise_at = 'server': level = 'example' has its noise at the silo",
    ),
    ({"privacy": {**PRIVACY, "quantile": 0.5}}, "[privacy] quantile = 0.5: goes with clip = 'adaptive'"),
    ({"privacy": {**PRIVACY, "clip": "auto"}}, '[privacy] clip = "auto": should be'),
    ({"privacy": {**PRIVACY, "level": "example", "clip": "adaptive"}}, "follows silos' updates"),
    ({"privacy": {**PRIVACY, "clip": "adaptive"}}, "a round expects 8 silos, and of fewer than 100 its bit"),
    ({"privacy": {**PRIVACY, "delta": 0.2}}, "delta = 0.2: there are 8 silos, and above 1/8 delta allows"),
    ({"cohort": {"weights": "examples"}}, "[cohort] weights = 'examples': one silo's update would weigh"),
    ({"cohort": {}}, "[privacy] level = 'silo' takes 'uniform'"),
    ({"cohort": {**UNIFORM, "select": "examples"}}, "[cohort] select = 'examples': silos would be drawn by"),
    (
        {"cohort": {**UNIFORM, "select": "power-of-choice", "candidates": 8}},
        "[cohort] select = 'power-of-choice': silos would be drawn by what they hold",
    ),
    ({"cohort": {**POISSON, "fraction": 0.0}}, "[cohort] fraction = 0: poisson draws no silo"),
    (
        {"cohort": {**POISSON, "fraction": 0.5}, "security": {"masks": True}},
        "[cohort] select = 'poisson': each site draws a round's silos itself",
    ),
    ({"cohort": POISSON, "privacy": None}, "[cohort] select = 'poisson': draws silos in secret, which goes"),
    ({"cohort": POISSON, "privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.1}}, "draws silos in secret"),
    ({"aggregation": {"rule": "median"}}, "[aggregation] rule = 'median': [privacy] level = 'silo' adds"),
    ({"aggregation": {"clip": 1.0}}, "[aggregation] clip = 1: [privacy] clip bounds updates; leave"),
    (
        {"compression": {"upload": "bfloat16"}},
        "[compression] upload = 'bfloat16': a codec would change updates",
    ),
    ({"attack": {"kind": "sign_flip", "silos": [0]}}, "[attack] kind = 'sign_flip': what liars send"),
    ({"algorithm": {"name": "scaffold"}}, "'scaffold' does not go with it: server and silos both add up"),
    ({"algorithm": {"name": "feddyn"}}, "'feddyn' does not go with it: server and silos both add up"),
    ({"algorithm": {"name": "fsvrg"}}, "'fsvrg' does not go with it: 'gradient' is not a change"),
    ({"algorithm": {"name": "qfedavg"}}, "'qfedavg' does not go with it: its step is divided by h"),
    ({"algorithm": {"name": "qfedsgd"}}, "'qfedsgd' does not go with it: its step is divided by h"),
    ({"algorithm": {"name": "fednova"}}, "'fednova' does not go with it: its step is multiplied"),
    ({"algorithm": {"name": "fedprox", "adaptive": True}}, "leave adaptive out"),
    ({"algorithm": {"name": "fedprox", "measure_gamma": True}}, "leave measure_gamma out"),
    ({"model": {"name": NORMED}}, "running statistics ('1.running_mean')"),
]


@pytest.mark.parametrize(("tables", "line"), REFUSED, ids=[line for _, line in REFUSED])
def test_what_one_noise_does_not_protect_is_refused_in_a_line(tmp_path, tables, line):
    write_folder(tmp_path / "shards", [9] * SILOS)
    path = tmp_path / "job.toml"
    given = job_of(tmp_path / "shards", **tables)
    path.write_text(tomli_w.dumps({key: value for key, value in given.items() if value is not None}))
    with pytest.raises(InputError) as caught:
        check(path)
    assert line in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("evaluate", [{}, {"patience": 2}, {"keep_best": True}, {"target_accuracy": 0.9}])
def test_scoring_at_silos_is_refused_unless_the_job_says_that_it_is_unprotected(tmp_path, evaluate):
    write_folder(tmp_path / "shards", [9] * SILOS, silos_test=3)
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(job_of(tmp_path / "shards", evaluate=evaluate)))
    with pytest.raises(InputError, match=r"\[evaluate\] silos = true: scores on held-out rows"):
        check(path)
    unprotected = {**PRIVACY, "evaluate_unprotected": True}
    given = job_of(tmp_path / "shards", evaluate=evaluate, privacy=unprotected, rounds=1)
    path.write_text(tomli_w.dumps(given))
    train(path, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    (found,) = records(tmp_path / "run")
    assert "silo_accuracy_mean" in found
    assert 0 <= found["clipped"] <= 1


ALLOWED = [
    {"name": "fedprox", "mu": 0.1},
    {"name": "fedsgd"},
    {"name": "ditto"},
    {"name": "fedper", "personal": ["head.*"]},
    {"name": "moon"},
]


@pytest.mark.parametrize("algorithm", ALLOWED, ids=[one["name"] for one in ALLOWED])
def test_algorithms_of_which_only_the_mean_change_leaves_silos_are_as_they_were(start, algorithm):
    local = {"lr": 0.5} if algorithm["name"] == "fedsgd" else {"lr": 0.5, "steps": 2, "batch_size": 4}
    found = records(start(algorithm=algorithm, local=local, rounds=1, model={"name": "2nn"}))
    assert not found[-1]["faults"]
    assert found[-1]["noise_std"] == pytest.approx(2.0 * 0.05 / SILOS)


@pytest.mark.parametrize(
    ("library", "select", "what"),
    [
        ("dp_accounting", "poisson", "counting steps that draw examples needs dp-accounting"),
        ("cryptography.hazmat.primitives.ciphers", "uniform", "drawing in secret needs cryptography"),
    ],
)
def test_what_is_not_installed_is_said_before_anything_is_trained(start, monkeypatch, library, select, what):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{what}; install it: pip install 'mpifl\[privacy\]'"):
        start(cohort={"weights": "uniform", "select": select, "fraction": 0.5}, secret=None)
    assert not (start.folder / "toy").exists()


def test_batchnorm_that_stays_at_home_is_no_obstacle(start):
    found = records(start(algorithm={"name": "fedbn"}, model={"name": NORMED}, rounds=1))
    assert not found[-1]["faults"]


class Greedy(FedAvg):
    """Asks for more than is protected."""

    what: str

    def round(self, server, cohort):
        if self.what == "evaluation":
            return cohort.mean(self.evaluate, w=server.state["w"]).scalars
        mean = cohort.mean(self.train, w=server.state["w"])
        numbers = mean.scalars.copy()
        return {"loss": numbers.pop("train_loss") if self.what == "popped" else numbers["train_loss"]}

    def train(self, silo, w):
        update = super().train(silo, w)
        if self.what == "vector":
            update.vectors["more"] = update.vectors["delta"]
        if self.what == "wide":
            update.vectors["delta"] = update.vectors["delta"].double()
        return update


GREEDY = [
    (
        "vector",
        "bounds the float32 means delta alone, and it has 'more'; an algorithm names its own by `noised`",
    ),
    ("wide", "bounds the float32 means delta alone, and it has 'delta'"),
    ("evaluation", "protects training alone, and this is for evaluation"),
    *(
        (
            what,
            "[privacy] level = 'silo': 'unit.training.test_silo_level:Greedy' goes by the silos' number"
            " 'train_loss', which noise does not protect, so that it is withheld; use 'fedavg', or have your"
            " own go by vectors alone; numbers that came: 'clip_norm', 'noise_std'",
        )
        for what in ("loss", "popped")
    ),
]


@pytest.mark.parametrize(("what", "line"), GREEDY, ids=[what for what, _ in GREEDY])
def test_an_algorithm_of_ones_own_that_asks_for_more_is_refused(start, what, line, capsys):
    """The words of a silo's fault are its site's; what the server refuses itself it says."""
    own = {"name": "unit.training.test_silo_level:Greedy", "what": what}
    with pytest.raises((InputError, RoundLost)) as caught:
        start("greedy", algorithm=own)
    told, at_site = str(caught.value), capsys.readouterr().err
    at_server = what in ("loss", "popped")
    assert told == line if at_server else line in at_site
    assert at_server or "silo 0: refused" in told


def test_masked_sums_are_noised_as_any_other(start, monkeypatch):
    """The share of clipped updates comes from a sum of bits, whatever the server sees of single silos."""
    monkeypatch.setenv("MPIFL_SITE", str(start.folder / "site"))
    told = {"rounds": 1, "privacy": {**PRIVACY, "evaluate_unprotected": True, "clip": 0.6}}
    (bare,) = records(start("bare", **told))
    (masked,) = records(start("masked", **told, security={"masks": True, "least": 1}))
    assert 0 < bare["clipped"] < 1, "use another clip"
    assert {k: masked[k] for k in ("clipped", "noise_std")} == {k: bare[k] for k in ("clipped", "noise_std")}


def test_what_was_spent_is_seen_on_a_runs_page(start):
    run = start("seen")
    shown = Reader(write_report(run).read_text()).text
    expected = closed_form(0.1, *[2.0] * 3)
    assert f"{expected:.4f}" in shown
    assert "each silo, by noise at the server" in shown
    assert read_run(run).figures(None)["epsilon"] == pytest.approx(expected)


def test_the_command_says_what_a_job_would_cost(start):
    start("asked", rounds=1)
    path = start.folder / "asked.toml"
    told = start.folder / "told.json"
    privacy(path, ["rounds=20"], None, told)
    found = json.loads(told.read_text())
    times = 2 * math.sqrt(15) / SILOS
    assert found["noise_by_clip"] == pytest.approx(times)
    assert {k: found[k] for k in ("silos", "expected", "q", "noise", "parameters")} == {
        "silos": SILOS,
        "expected": 8.0,
        "q": 1.0,
        "noise": 2.0,
        "parameters": 15,
    }
    for rounds, epsilon in found["epsilon"].items():
        assert epsilon == pytest.approx(closed_form(0.1, *[2.0] * int(rounds)), abs=1e-6)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_bits_and_the_same_ledger(start):
    """By SIGKILL, at any moment: here as soon as the ledger has some lines."""
    tables = {"rounds": 40, "checkpoint": {"every": 10}, "evaluate": {"every": 40}}
    whole = start("killed", out="whole", **tables)
    folder, cut = start.folder, start.folder / "cut"
    give(cut, b"s" * 32)
    ledger = cut / "privacy" / "ledger.jsonl"
    code = "import sys, mpifl; mpifl.train(sys.argv[1], out=sys.argv[2])"
    paths = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", code, str(folder / "killed.toml"), str(cut)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL) as run:
        while run.poll() is None and not (ledger.exists() and len(ledger.read_bytes().splitlines()) > 12):
            time.sleep(0.002)
        run.kill()
    assert 12 < len(ledger.read_text().splitlines()) < 40, "it was killed too late to show anything"
    start("killed", out="cut", resume=True, **tables)
    assert same(cut, whole)
    assert ledger.read_text() == (whole / "privacy" / "ledger.jsonl").read_text()


def test_noise_that_drowns_a_few_silos_is_said_at_the_start(start, capsys):
    start("loud", model={"name": "mlp", "hidden": [100]}, rounds=1)
    said = capsys.readouterr().err
    times = 2 * math.sqrt(4 * 100 + 100 + 100 * 3 + 3) / SILOS
    assert f"[privacy] level = 'silo': the noise is {times:.3g} times as long as a clipped update" in said
    start("quiet", rounds=1)
    assert "times as long as" not in capsys.readouterr().err
