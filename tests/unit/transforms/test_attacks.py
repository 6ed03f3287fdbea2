"""Silos that lie on purpose: what is sent, on one rank."""

import json
from statistics import NormalDist

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from unit.builders import Alone, arrays, write_folder

from mpifl.common.errors import InputError
from mpifl.run.folder import checkpoint
from mpifl.run.job.tables.transform_tables import AttackSettings
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.attacks.backdoor import Backdoor
from mpifl.wings.attacks.colluding_attacks import Forging, usual_z

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
    assert forged(kind="mimic", mimicked=5)[1].tobytes() == ROWS[5].tobytes()
    assert forged(kind="mimic", mimicked=9)[0].tobytes() == ROWS[2].tobytes()  # no part in this round


def test_a_lie_about_some_columns_is_that_of_all():
    whole = forged(kind="alie")
    assert forged(ROWS[:, 5:11].copy(), kind="alie").tobytes() == whole[:, 5:11].tobytes()


def farthest(rows, p):
    """Return mean + gamma p, with the largest gamma such that no honest row is farther from it than two
    honest ones from each other (Shejwalkar & Houmansadr 2021, equation 10): by bisection."""
    most = max(np.linalg.norm(a - b) for a in rows for b in rows)
    low, high = 0.0, 1e9
    for _ in range(200):
        gamma = (low + high) / 2
        ok = max(np.linalg.norm(rows.mean(0) + gamma * p - row) for row in rows) <= most
        low, high = (gamma, high) if ok else (low, gamma)
    return rows.mean(0) + low * p


@pytest.mark.parametrize("direction", ["unit", "std", "sign"])
def test_min_max_goes_as_far_as_the_honest_are_from_each_other(direction):
    mean = HONEST.mean(0)
    p = {"unit": -mean / np.linalg.norm(mean), "std": -HONEST.std(0), "sign": -np.sign(mean)}[direction]
    first = forged(kind="min_max", direction=direction).astype(float)
    lie = Forging(kind="min_max", silos=frozenset({0, 1}), direction=direction)
    fitted = lie.fitted(list(range(7)), first @ first.T)
    found = np.stack([row.numpy() for row in fitted(list(range(7)), [torch.from_numpy(row) for row in ROWS])])
    np.testing.assert_allclose(found[0], farthest(HONEST, p), rtol=1e-4, atol=1e-5)
    assert found[0].tobytes() == found[1].tobytes()
    assert found[2:].tobytes() == ROWS[2:].tobytes()


@pytest.fixture
def run(tmp_path):
    """Train over five silos of which number 3 lies; return how the model moved, the records and the words."""
    write_folder(tmp_path / "shards", [20] * 5, test=5)

    def act(name, **tables):
        job = {"name": "toy", "rounds": 2, "shards": str(tmp_path / "shards"), "model": {"name": "logreg"}}
        tables = {"cohort": {"weights": "uniform"}, "checkpoint": {"every": 1, "keep": 3}, **tables}
        (tmp_path / "job.toml").write_text(tomli_w.dumps({**job, **tables}))
        train(tmp_path / "job.toml", tmp_path / name, (), False, Alone(), wings_of=wings_of)
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


def test_liars_whose_optimizers_begin_anew_have_no_worker_momentum(run):
    """m = 0.9 m + g begins with g: they send what silos without momentum do, where the others send more."""
    everyone = {"kind": "sign_flip", "silos": [0, 1, 2, 3, 4]}
    local = {"lr": 0.1, "batch_size": "full"}
    momentum = local | {"momentum": 0.9, "keep_optimizer_state": True}
    plain, _ = run("plain", local=local, attack=everyone)
    anew, _ = run("again", local=momentum, attack=everyone | {"keep_optimizer_state": False})
    kept, _ = run("kept", local=momentum, attack=everyone)
    for one in (0, 1):
        np.testing.assert_array_equal(anew[one], plain[one])
    np.testing.assert_array_equal(kept[0], plain[0])
    assert np.abs(kept[1] - plain[1]).max() > 1e-3


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


SEEN = []


def seen(rows):
    """A rule of columns that remembers what it was given."""
    SEEN.append(rows.double().numpy())
    return rows.mean(0)


def test_a_lie_that_follows_from_whole_vectors_is_written_before_the_rule(run):
    SEEN.clear()
    lie = {"kind": "min_max", "direction": "sign", "silos": [1, 3]}
    run("farthest", aggregation={"rule": f"{__name__}:seen"}, attack=lie)
    honest = SEEN[-1][[0, 2, 4]]
    expected = farthest(honest, -np.sign(honest.mean(0)))
    for liar in (1, 3):
        np.testing.assert_allclose(SEEN[-1][liar], expected, rtol=1e-4, atol=1e-7)


def test_who_sends_noise_is_at_an_edge_of_every_column(run):
    noise = {"kind": "gaussian", "std": 1e4, **LIAR}
    _, records = run("noisy", aggregation={"rule": "trimmed", "byzantine": 1}, attack=noise)
    for record in records:
        assert record["outside"]["3"] == 1
        assert sum(record["outside"].values()) == pytest.approx(2, abs=1e-3)
    _, records = run("mixed", aggregation={"rule": "trimmed", "byzantine": 1, "pre": "nnm"}, attack=noise)
    assert "outside" not in records[0]


def test_a_backdoor_is_taught_by_a_share_of_the_examples():
    """Gu et al. 2017: patched examples with another label; by hand, on rows that were never 9."""
    silo, x, y = Poisoned(), np.random.default_rng(1).normal(size=(10, 2, 4, 4)), np.arange(10) % 3
    silo.x, silo.y = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)
    Backdoor(target=2, patch=2, value=9.0, share=0.4).teach(silo, seed=5)
    patched = (silo.x[:, :, 2:, 2:] == 9).all(-1).all(-1).all(-1).numpy()
    assert patched.sum() == 4
    assert (silo.y.numpy() == np.where(patched, 2, y)).all()
    expected = x.astype(np.float32)
    expected[patched, :, 2:, 2:] = 9
    assert silo.x.numpy().tobytes() == expected.tobytes()


class Poisoned:
    """A silo as far as a backdoor sees it."""

    id, examples = 3, 10

    def rewrite(self, act):
        act(self.x, self.y)


def test_a_backdoor_opens_as_often_as_the_model_is_deceived(run, tmp_path):
    """The attack success rate, anew by numpy from the model and the test set; a rule of columns bars it."""
    backdoor = {"kind": "backdoor", "silos": [0, 3], "target": 1, "patch": 1, "value": 8.0}
    local = {"lr": 0.5, "epochs": 20, "batch_size": "full"}
    _, records = run("opened", local=local, attack=backdoor | {"factor": 3.0})
    _, clean = run("clean", local=local, attack={"kind": "scale", "factor": 1.0, **LIAR})
    weights = load_file(tmp_path / "opened" / "model.safetensors")
    bias, matrix = sorted((w.numpy() for w in weights.values()), key=np.ndim)
    x, y = arrays(5)  # the folder's test set
    x[:, -1] = 8.0
    taken = (x @ matrix.T + bias).argmax(1) == 1
    assert 0 < (y != 1).sum() < len(y)
    assert records[-1]["backdoor_success"] == pytest.approx(taken[y != 1].mean())
    assert records[-1]["backdoor_success"] > 0.5
    assert "backdoor_success" not in clean[-1]


def test_lies_are_told_before_a_rule_and_said_at_the_start(run, capsys):
    krum = {"rule": "multikrum", "m": 3, "byzantine": 1}
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
        ({"kind": "mimic", "mimicked": 5, **LIAR}, r"mimicked = 5: there is no silo 5, the last is 4"),
        (
            {"kind": "mimic", "silos": [1, 2], "mimicked": 2},
            "mimicked = 2: it is one of those that lie",
        ),
        ({"kind": "ipm", "mimicked": 0, **LIAR}, "mimicked = 0: goes with kind = 'mimic', not with 'ipm'"),
        ({"kind": "backdoor", "target": 3, **LIAR}, "there is no class 3, the last is 2"),
        ({"kind": "backdoor", "patch": 5, **LIAR}, r"patch = 5 is beyond examples of shape \[4\]"),
        (
            {"kind": "ipm", "factor": 2.0, **LIAR},
            "factor = 2.0: goes with kind = 'scale' or 'backdoor', not with 'ipm'",
        ),
        ({"kind": "sign_flip"}, "name kind, what liars send, and silos, who they are"),
        (
            {"kind": "mimic", "silos": [1], "keep_optimizer_state": False},
            "keep_optimizer_state = False: goes with kind = 'label_flip' or 'sign_flip' or 'scale'",
        ),
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
    assert AttackSettings().warning == ""
