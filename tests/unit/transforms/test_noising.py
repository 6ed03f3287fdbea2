"""Privacy of silos, with updates that are given: what is let out, beside the papers' formulas in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats
from unit.builders import make_silo, net

from mpifl.algorithms.server import Server
from mpifl.common import RoundLost
from mpifl.run.job.tables import PrivacySettings
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.wings.privacy import Account, SiloMechanism, Steps, epsilon_of
from mpifl.wings.privacy.silo_level_noise import Noising
from mpifl.wire.update import Mean, Update, uniform

MODEL = FlatModel(net())
SILO = make_silo(MODEL)


def noising(folder, expected, noise, names=("delta",), **settings):
    """Return the transform over so many silos, and a server with a secret that is given."""
    (folder / "privacy").mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "privacy" / "key").write_bytes(b"s" * 32)
    given = {"level": "silo", "clip": 1.0, "noise": noise, "delta": 0.001, **settings}
    table = PrivacySettings.model_validate(given)
    quantile = (table.quantile or 0.5) if table.is_adaptive else None
    mechanism = SiloMechanism(expected, 1.0, noise, quantile)
    account = Account(folder, table, "job", "digest", 1000)
    return Noising(table, names, lambda: mechanism, account, "fedavg"), Server([MODEL])


def round_of(transform, server, updates, w=None):
    """Have the updates, a dict by silo, answer one message; return the mean."""
    message = transform.request(server, {"w": torch.zeros(3) if w is None else w})
    answered, told = {}, {}
    for silo, vectors in updates.items():
        SILO.received.clear()
        assert set(transform.receive(SILO, message)) == {"w"}
        made = transform.update(SILO, Update(1.0, dict(vectors), {"train_loss": 3.0}))
        answered[silo], told[silo] = made.vectors, made.scalars
    means = {
        name: torch.stack([one[name] for one in answered.values()]).mean(0)
        for name in (next(iter(answered.values())) if answered else ())
    }
    names = next(iter(told.values()), {})
    numbers = {name: np.mean([one[name] for one in told.values()]) for name in names}
    mean = transform.mean(server, Mean(means, numbers, told, {}, float(len(updates))))
    server.round += 1
    return mean


def clipped_mean(updates, bound, expected):
    """sum_k d_k min(1, C / ||d_k||) / m."""
    whole = [np.concatenate([v.numpy().astype(float) for v in one.values()]) for one in updates.values()]
    return sum(d * min(1.0, bound / np.linalg.norm(d)) for d in whole) / expected


def drawn(n, seed, scale=1.0):
    return scale * torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("told", [-1.0, 100.0, float("nan"), "nan"])
def test_a_server_that_tells_another_clip_changes_nothing_where_the_noise_is_in_the_sum(tmp_path, told):
    """A negative or no number had the sum go without noise."""
    transform, server = noising(tmp_path, 4, 1.0, noise_at="sum")
    message = transform.request(server, {"w": torch.zeros(3)})
    transform.receive(SILO, {**message, "clip of [privacy]": told})
    made = transform.update(SILO, Update(1.0, {"delta": torch.tensor([30.0, 40.0])}))
    assert made.vectors["delta"].tolist() == pytest.approx([0.6, 0.8])
    assert made.noise["delta"] == SiloMechanism(4, 1.0, 1.0, None).noise_of_updates > 0


@given(st.integers(1, 6), st.sampled_from([0.1, 1.0, 30.0]), st.sampled_from([5, 8.5]))
def test_the_mean_is_that_of_clipped_updates_over_the_silos_expected(
    tmp_path_factory, silos, scale, expected
):
    """Their joint norm counts, however an update is cut into vectors; the noise is next to nothing."""
    folder = tmp_path_factory.mktemp("server")
    transform, server = noising(folder, expected, 1e-2, ("delta", "more"), clip=2.0)
    updates = {k: {"delta": drawn(40, k, scale), "more": drawn(30, 100 + k, scale)} for k in range(silos)}
    found = round_of(transform, server, updates)
    assert np.allclose(
        np.concatenate([found.vectors["delta"], found.vectors["more"]]),
        clipped_mean(updates, 2.0, expected),
        atol=6 * 0.01 * 2.0 / expected,
    )
    assert found.scalars == {"clip_norm": 2.0, "noise_std": pytest.approx(0.01 * 2.0 / expected)}
    assert not any(found.silos.values())


def test_noise_has_the_stated_deviation_and_every_round_and_set_its_own(tmp_path):
    count, (transform, server) = 200_000, noising(tmp_path, 20, 1.5, clip=0.5)
    updates = {k: {"delta": drawn(count, k, 0.001)} for k in range(20)}
    answers = [round_of(transform, server, updates)["delta"].double().numpy() for _ in range(2)]
    server.round = 1
    fewer = {k: updates[k] for k in range(19)}
    answers.append(round_of(transform, server, fewer)["delta"].double().numpy())
    noise = [(answer - clipped_mean(updates, 0.5, 20)) * 20 / (1.5 * 0.5) for answer in answers[:2]]
    noise.append((answers[2] - clipped_mean(fewer, 0.5, 20)) * 20 / (1.5 * 0.5))
    for one in noise:
        assert stats.kstest(one, "norm").pvalue > 1e-4
        assert one.var() == pytest.approx(1, abs=5 * np.sqrt(2 / count))
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert abs(np.corrcoef(noise[one], noise[other])[0, 1]) < 5 / np.sqrt(count)


def test_the_same_question_has_the_same_bits_and_another_sum_has_noise_of_its_own(tmp_path):
    updates = {k: {"delta": drawn(5000, k)} for k in range(4)}
    transform, server = noising(tmp_path, 4, 1.0)
    first = round_of(transform, server, updates)["delta"]
    events = server.state["privacy events"]
    server.round = 0
    again = round_of(transform, server, updates)["delta"]
    assert torch.equal(first, again)
    assert server.state["privacy events"] == events == 1
    server.round = 0
    updates[3]["delta"] = updates[3]["delta"] + 1e-3
    moved = round_of(transform, server, updates)["delta"]
    assert float((moved - first).norm()) > 10 * 1e-3, "a silo that answers otherwise would be seen"
    assert server.state["privacy events"] == 2


def test_a_round_that_is_answered_twice_counts_as_one_with_less_noise(tmp_path):
    """Its silos are drawn once: two independent draws would cost less than it does."""
    settings = PrivacySettings.model_validate({"level": "silo", "clip": 1.0, "noise": 1.0, "delta": 1e-5})
    account, step = Account(tmp_path, settings, "job", "digest", 20), Steps(1.0, 0.1, 1)
    for round in range(20):
        account.release(f"question {round}", "answer", round, step)
    assert account.epsilon() == pytest.approx(epsilon_of([Steps(1.0, 0.1, 20)], 1e-5))
    for round in range(20):
        account.release(f"question {round} over others", "answer", round, step)
    assert account.epsilon() == pytest.approx(epsilon_of([Steps(0.5**0.5, 0.1, 20)], 1e-5))
    assert account.epsilon() > 1.4 * epsilon_of([Steps(1.0, 0.1, 40)], 1e-5)


def test_a_budget_counts_a_second_answer_to_a_round_as_what_it_tells(tmp_path):
    most = epsilon_of([Steps(1.0, 0.1, 1), Steps(0.5**0.5, 0.1, 1)], 1e-5)
    for folder, budget, allowed in (("low", most - 0.01, False), ("high", most + 0.01, True)):
        table = {"level": "silo", "clip": 1.0, "epsilon": budget, "delta": 1e-5}
        account = Account(tmp_path / folder, PrivacySettings.model_validate(table), "job", "digest", 2)
        for round in range(2):
            account.release(f"question {round}", "answer", round, Steps(1.0, 0.1, 1))
        if allowed:
            account.release("another", "answer", 1, Steps(1.0, 0.1, 1))
            assert account.epsilon() == pytest.approx(most)
        else:
            with pytest.raises(RoundLost, match="another answer would pass"):
                account.release("another", "answer", 1, Steps(1.0, 0.1, 1))


def test_what_an_older_edition_has_answered_costs_again_and_had_noise_of_its_own(tmp_path, monkeypatch):
    updates = {k: {"delta": drawn(100_000, k)} for k in range(4)}
    transform, server = noising(tmp_path, 4, 1.0)
    answers = [round_of(transform, server, updates)["delta"].double().numpy()]
    monkeypatch.setattr("mpifl.wings.privacy.silo_level_noise.EDITION", 1)
    server.round = 0
    answers.append(round_of(transform, server, updates)["delta"].double().numpy())
    noise = [answer - clipped_mean(updates, 1.0, 4) for answer in answers]
    assert abs(np.corrcoef(noise)[0, 1]) < 5 / np.sqrt(100_000)
    assert server.state["privacy events"] == 2


def test_another_multiplier_has_noise_of_its_own(tmp_path):
    """Two answers that scale one draw would tell the sum."""
    updates = {k: {"delta": drawn(100_000, k)} for k in range(4)}
    answers = []
    for z in (1.0, 2.0):
        transform, server = noising(tmp_path, 4, z)
        answers.append(round_of(transform, server, updates)["delta"].double().numpy())
    noise = [answer - clipped_mean(updates, 1.0, 4) for answer in answers]
    assert abs(np.corrcoef(noise)[0, 1]) < 5 / np.sqrt(100_000)
    assert server.state["privacy events"] == 2


def test_no_silo_at_all_looks_like_noise_alone(tmp_path):
    transform, server = noising(tmp_path, 0.5, 1.0)
    found = round_of(transform, server, {})["delta"]
    assert found.shape == MODEL.shared.shape
    assert 0.5 < float(found.std()) / (1.0 / 0.5) < 1.5


def test_the_adaptive_clip_follows_the_quantile(tmp_path):
    """Andrew et al. 2021, Algorithm 1, with 120 silos whose norms do not change."""
    silos, z, quantile = 120, 0.8, 0.7
    settings = {"clip": "adaptive", "clip_start": 8.0, "quantile": quantile}
    transform, server = noising(tmp_path, silos, z, **settings)
    norms = np.random.default_rng(0).lognormal(0.0, 0.6, silos)
    updates = {k: {"delta": drawn(400, k) / drawn(400, k).norm() * float(norms[k])} for k in range(silos)}
    sigma_b = silos / 20
    of_updates = (z**-2 - (2 * sigma_b) ** -2) ** -0.5
    clips, bit_noise, noise = [8.0], [], []
    for _ in range(120):
        found = round_of(transform, server, updates)
        clip = found.scalars["clip_norm"]
        assert clip == pytest.approx(clips[-1], rel=1e-12)
        clips.append(server.state["clip of [privacy]"])
        share = quantile - np.log(clips[-1] / clip) / 0.2
        assert found.scalars["clipped"] == pytest.approx(min(max(1 - share, 0), 1), abs=1e-9)
        bit_noise.append((share - np.mean(norms <= clip)) * silos / sigma_b)
        deviation = of_updates * clip / silos
        assert found.scalars["noise_std"] == pytest.approx(deviation)
        noise.append((found["delta"].numpy() - clipped_mean(updates, clip, silos)) / deviation)
    assert stats.kstest(bit_noise, "norm").pvalue > 1e-3
    assert np.var(noise) == pytest.approx(1, abs=0.03)
    assert np.mean(clips[60:]) == pytest.approx(np.quantile(norms, quantile), rel=0.1)


def test_an_absent_silo_moves_the_bits_by_a_half(tmp_path):
    """80 of 120 silos, all within the clip: the share is 1/2 + 80 / 240, as one that is absent counts 0."""
    transform, server = noising(tmp_path, 120, 1.0, clip="adaptive", clip_start=1e6)
    updates = {k: {"delta": drawn(5, k)} for k in range(80)}
    shares = []
    for _ in range(60):
        before = round_of(transform, server, updates).scalars["clip_norm"]
        shares.append(0.5 - np.log(server.state["clip of [privacy]"] / before) / 0.2)
    assert np.mean(shares) == pytest.approx(0.5 + 80 / 240, abs=5 / 20 / np.sqrt(60))


def test_vectors_marked_uniform_are_clipped_as_all_others(tmp_path):
    transform, server = noising(tmp_path, 2, 1e-2, clip=1.0)
    message = transform.request(server, {"w": torch.zeros(2)})
    transform.receive(SILO, message)
    update = transform.update(SILO, Update(1.0, {"delta": uniform(torch.tensor([3.0, 4.0]))}, {"x": 1.0}))
    assert torch.allclose(update.vectors["delta"], torch.tensor([0.6, 0.8]))
    assert update.scalars == {}
