"""Silos that lie on purpose: what is sent, on one rank."""

import json
from statistics import NormalDist

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from unit.builders import Alone, write_folder

from mpifl.aggregation.forging import Forging, usual_z
from mpifl.common.errors import InputError
from mpifl.run import checkpoint
from mpifl.training.loop import train
from mpifl.transforms.attacks import AttackSettings

ROWS = np.random.default_rng(0).normal(size=(7, 30)).astype(np.float32)
HONEST = ROWS[2:].astype(float)


def forged(rows=ROWS, **table):
    settings = Forging(silos=frozenset({0, 1}), **table)
    found = settings(list(range(len(rows))), [torch.from_numpy(row) for row in rows])
    return np.stack([row.numpy() for row in found])


def test_alie_is_the_mean_less_z_standard_deviations():
    """Baruch et al. 2019, algorithm 3: s = floor(n / 2 + 1) - f, z = Phi^-1((n - f - s) / (n - f))."""
    n, f = 7, 2
    z = NormalDist().inv_cdf((n - f - (n // 2 + 1 - f)) / (n - f))
    found = forged(kind="alie")
    np.testing.assert_allclose(found[0], HONEST.mean(0) - z * HONEST.std(0), rtol=1e-5, atol=1e-6)
    assert found[0].tobytes() == found[1].tobytes()
    assert found[2:].tobytes() == ROWS[2:].tobytes()
    assert usual_z(25, 5) == pytest.approx(0.253, abs=1e-3)


def test_ipm_is_a_part_of_the_negative_mean_and_mimic_an_honest_silo():
    np.testing.assert_allclose(
        forged(kind="ipm", epsilon=0.5)[0], -0.5 * HONEST.mean(0), rtol=1e-5, atol=1e-6
    )
    assert forged(kind="mimic")[1].tobytes() == ROWS[2].tobytes()


def test_a_lie_about_some_columns_is_that_of_all():
    whole = forged(kind="alie")
    assert forged(ROWS[:, 5:11].copy(), kind="alie").tobytes() == whole[:, 5:11].tobytes()


@pytest.fixture
def run(tmp_path):
    """Train over five silos of which number 3 lies; return how the model moved, the records and the words."""
    write_folder(tmp_path / "shards", [20] * 5, test=5)

    def act(name, **tables):
        job = {"name": "toy", "rounds": 2, "shards": str(tmp_path / "shards"), "model": {"name": "logreg"}}
        tables = {"cohort": {"weights": "uniform"}, "checkpoint": {"every": 1, "keep": 3}, **tables}
        (tmp_path / "job.toml").write_text(tomli_w.dumps({**job, **tables}))
        train(tmp_path / "job.toml", tmp_path / name, (), False, Alone())
        states = [checkpoint.read(tmp_path / name, round)[0]["w"].double().numpy() for round in (1, 2)]
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return states, [json.loads(line) for line in lines]

    return act


LIAR = {"silos": [3]}


def test_a_flipped_or_scaled_update_is_five_times_the_mean_less_that_of_the_others(run):
    """All silos but one are honest: the mean tells what that one has sent."""
    honest, _ = run("honest")
    flipped, _ = run("flipped", attack={"kind": "sign_flip", **LIAR})
    scaled, _ = run("scaled", attack={"kind": "scale", "factor": 4.0, **LIAR})
    own = 5 * (honest[0] - flipped[0]) / 2
    assert np.abs(own).max() > 1e-3
    np.testing.assert_allclose(5 * (scaled[0] - honest[0]), 3 * own, atol=1e-5)


def test_noise_has_its_deviation_and_is_another_in_each_round(run):
    honest, _ = run("honest")
    noisy, _ = run("noisy", attack={"kind": "gaussian", "std": 1e4, **LIAR})
    first, second = 5 * (noisy[0] - honest[0]), 5 * (noisy[1] - noisy[0])
    assert 3e3 < first.std() < 3e4
    assert np.abs(np.corrcoef(first, second)[0, 1]) < 0.9


def test_a_free_rider_sends_how_the_model_moved_last(run, tmp_path):
    riding, _ = run("riding", attack={"kind": "free_rider", "silos": [0, 1, 2, 3, 4]})
    np.testing.assert_array_equal(riding[1], riding[0])  # nobody trains, and nothing has moved
    mixed, _ = run("mixed", local={"lr": 0.1, "batch_size": "full"}, attack={"kind": "free_rider", **LIAR})
    silent = {"kind": "scale", "factor": 1e-30, **LIAR}
    stay, _ = run("stay", local={"lr": 0.1, "batch_size": "full"}, rounds=2, attack=silent)
    np.testing.assert_allclose(mixed[0], stay[0], atol=1e-6)  # it has seen no step yet
    w0 = load_file(tmp_path / "mixed" / "initial.safetensors")
    step = stay[0] - np.concatenate([w0[name].flatten().numpy() for name in sorted(w0, reverse=True)])
    np.testing.assert_allclose(5 * (mixed[1] - stay[1]), step, atol=1e-5)


def test_labels_are_turned_round_in_training_alone(run, tmp_path):
    run("learned", local={"lr": 0.5, "epochs": 50, "batch_size": "full"})
    again = {
        "local": {"lr": 1e-9, "batch_size": "full"},
        "model": {"name": "logreg", "weights": str(tmp_path / "learned" / "model.safetensors")},
    }
    _, honest = run("honest", **again)
    _, flipped = run("flipped", attack={"kind": "label_flip", "silos": [0, 1, 2, 3, 4]}, **again)
    assert flipped[0]["train_loss"] > honest[0]["train_loss"] + 0.03
    assert flipped[0]["test_loss"] == pytest.approx(honest[0]["test_loss"])


def test_lies_are_told_before_a_rule_and_said_at_the_start(run, capsys):
    krum = {"rule": "multikrum", "m": 3, "tolerate": 1}
    _, records = run("krum", aggregation=krum, attack={"kind": "ipm", "epsilon": 50.0, **LIAR})
    assert all(record["weights"]["3"] == 0 for record in records)
    said = "[attack] kind = 'ipm': SILOS 3 LIE ON PURPOSE, for tests and tables alone"
    assert capsys.readouterr().err.count(said) == 1


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (
            {"kind": "ipm", "silos": [3]},
            "'ipm': is written over single vectors, which the mean does not keep",
        ),
        ({"kind": "sign_flip", "silos": [5]}, r"silos = \[5\]: there is no silo 5, the last is 4"),
        ({"kind": "sign_flip"}, "name kind, what liars send, and silos, who they are"),
        (
            {"kind": "sign_flip", "silos": [1], "z": 1.0},
            "z = 1.0: goes with kind = 'alie', not with 'sign_flip'",
        ),
    ],
)
def test_an_attack_that_cannot_be_made_is_refused_in_one_line(run, table, why):
    with pytest.raises(InputError, match=why):
        run("refused", attack=table)


def test_without_the_table_nobody_lies():
    settings = AttackSettings()
    assert settings.warning == ""
    assert settings.transforms(0, 10) == []
    assert settings.forged(None) is None
