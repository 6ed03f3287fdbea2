"""Rules by weights against the papers' formulas on the vectors themselves:
ours see their Gram matrix alone."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from jobs.papers.byzantine import KrumOfFourthPowers, RFAFromZero
from mpifl.wings.robust import weight_rules
from mpifl.wings.robust.mixing import bucketing, nearest_neighbours


def krum_scores(rows, f):
    """Blanchard et al. 2017, section 4: the squared distances to the n - f - 2 closest others, added up."""
    n = len(rows)
    distances = ((rows[:, None] - rows[None]) ** 2).sum(2)
    return np.array([np.sort(np.delete(distances[i], i))[: n - f - 2].sum() for i in range(n)])


def weiszfeld(rows, nu, iterations):
    """Pillutla et al. 2022, Algorithm 2, from the mean and with equal alpha_k."""
    v = rows.mean(0)
    for _ in range(iterations):
        beta = 1 / len(rows) / np.maximum(nu, np.linalg.norm(rows - v, axis=1))
        v = (beta[:, None] * rows).sum(0) / beta.sum()
    return v


def centered_clipping(rows, v, tau, iterations):
    """Karimireddy et al. 2021, CCLIP: v + mean_i (x_i - v) min(1, tau / ||x_i - v||), again and again."""
    for _ in range(iterations):
        away = rows - v
        norms = np.linalg.norm(away, axis=1)
        factors = np.array([min(1.0, tau / norm) if norm else 1.0 for norm in norms])
        v = v + (factors[:, None] * away).mean(0)
    return v


def fltrust(rows, own):
    """Cao et al. 2021, equations 3 to 5: ReLU'd cosines weigh updates that are as long as the server's."""
    length, total, trust = np.linalg.norm(own), np.zeros_like(own), 0.0
    for x in rows[np.linalg.norm(rows, axis=1) > 0] if length else ():
        score = max(x @ own / (np.linalg.norm(x) * length), 0.0)
        total, trust = total + score * length / np.linalg.norm(x) * x, trust + score
    return total / trust if trust else total


def mixed_by_nearest(rows, f):
    """Allouah et al. 2023, Algorithm 1: each vector becomes the mean of the n - f that are nearest to it."""
    found = []
    for x in rows:
        nearest = np.argsort(np.linalg.norm(rows - x, axis=1), kind="stable")[: len(rows) - f]
        found.append(rows[nearest].mean(0))
    return np.array(found)


def gram(rows):
    return rows @ rows.T


usual = st.integers(-8, 8).map(lambda v: v / 4) | st.sampled_from([0.0, -0.0])
"""Few values, so that ties are drawn; their products add up in float64 without an error."""


@st.composite
def matrices(draw, least=5, most=11):
    """Rows of equal length, even and odd counts, and one of them, perhaps, wild."""
    silos, length = draw(st.integers(least, most)), draw(st.integers(1, 5))
    row = st.lists(usual, min_size=length, max_size=length)
    rows = np.array(draw(st.lists(row, min_size=silos, max_size=silos)))
    rows[draw(st.integers(0, silos - 1))] *= draw(st.sampled_from([1.0, 1e12, -1e30]))
    return rows


def close(found, expected, rows):
    """To what float64 holds of the longest vector that has a part in it."""
    scale = np.abs(rows).max(initial=1e-300)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * min(scale, 1e3) + 1e-14 * scale)


@given(matrices(), st.integers(0, 4), st.integers(1, 12))
def test_krum_chooses_those_of_the_least_scores(rows, f, m):
    n = len(rows)
    assume(n >= 2 * f + 3 and m <= n - f)
    scores = krum_scores(rows, f)
    assume(np.isfinite(scores).all())
    found = weight_rules.Krum().weights(gram(rows), f)
    assert found.tolist().count(1.0) == 1
    assert found.sum() == 1
    assert scores[found.argmax()] <= scores.min() * (1 + 1e-9)
    many = weight_rules.MultiKrum(m=m).weights(gram(rows), f)
    assert np.count_nonzero(many) == m
    assert many.max() == pytest.approx(1 / m)
    np.testing.assert_allclose(np.sort(scores[many > 0]), np.sort(scores)[:m], rtol=1e-9)


@given(matrices(), st.integers(0, 4))
def test_krum_of_the_byzantine_tables_squares_twice(rows, f):
    """As the code does whose figures they are beside: epfml/byzantine-robust-noniid-optimizer, krum.py."""
    n = len(rows)
    assume(n >= 2 * f + 3 and np.abs(rows).max() < 1e30)
    distances = ((rows[:, None] - rows[None]) ** 2).sum(2)
    scores = np.array([np.sort(np.delete(one, i) ** 2)[: n - f - 2].sum() for i, one in enumerate(distances)])
    found = KrumOfFourthPowers().weights(gram(rows), f)
    assert sorted(found) == [0] * (n - 1) + [1]
    assert scores[found.argmax()] <= scores.min() * (1 + 1e-6) + 1e-12 * scores.max()


def test_of_equal_scores_krum_takes_the_first_silos():
    rows = np.ones((7, 2))
    assert weight_rules.Krum().weights(gram(rows), 1).tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert weight_rules.MultiKrum(m=2).weights(gram(rows), 1).tolist() == [0.5, 0.5, 0, 0, 0, 0, 0]


@given(matrices())
def test_rfa_of_the_byzantine_tables_begins_at_zero(rows):
    """As the code does whose figures they are beside: epfml/byzantine-robust-noniid-optimizer, rfa.py."""
    assume(np.abs(rows).max() < 1e3)
    z = np.zeros(rows.shape[1])
    for _ in range(8):
        beta = 1 / np.maximum(np.linalg.norm(rows - z, axis=1), 1e-3)
        z = beta @ rows / beta.sum()
    close(RFAFromZero().weights(gram(rows), 0) @ rows, z, rows)


@given(matrices(), st.sampled_from([1e-6, 0.1]), st.integers(1, 8))
def test_rfa_is_weiszfelds_algorithm_on_the_vectors(rows, nu, iterations):
    found = weight_rules.RFA(nu=nu, iterations=iterations).weights(gram(rows), 0)
    assert found.sum() == pytest.approx(1)
    assert (found > 0).all()
    assume(np.abs(rows).max() < 1e3)  # beyond, one liar's share of the mean hides the others at first
    close(found @ rows, weiszfeld(rows, nu, iterations), rows)


@pytest.mark.parametrize("far", [1e2, 1e6, 1e12, 1e30])
@pytest.mark.parametrize("silos", [5, 51, 100, 101])
def test_fewer_than_half_do_not_take_the_geometric_median_away_however_far_they_are(silos, far):
    """From the mean, 1000 steps leave some of a liar's pull, if liars are nearly half and very far."""
    rows = np.random.default_rng(silos).normal(size=(silos, 20))
    honest = rows[(silos - 1) // 2 :].copy()
    rows[: (silos - 1) // 2] = far
    found = weight_rules.RFA().weights(gram(rows), 0)
    radius = np.linalg.norm(honest - honest.mean(0), axis=1).max()
    assert np.linalg.norm(found @ rows - honest.mean(0)) < 5 * radius
    few = weight_rules.RFA(iterations=3).weights(gram(rows), 0)
    close(few @ rows, weiszfeld(rows, 1e-6, 3), rows)  # the paper's steps alone, where they are asked for


@given(matrices(), st.sampled_from([0.1, 1.0, 100.0]), st.integers(1, 4), st.booleans())
def test_centered_clipping_is_the_papers_step_from_the_last_aggregate(rows, tau, iterations, first):
    v = np.zeros(rows.shape[1]) if first else np.linspace(-1, 1, rows.shape[1])
    whole = np.vstack([rows, v])
    found = weight_rules.CenteredClipping(tau=tau, iterations=iterations).weights(gram(whole), 0)
    assert found.sum() == pytest.approx(1)
    expected = centered_clipping(rows, v, tau, iterations)
    close(found @ whole, expected, np.minimum(np.abs(whole), 10))
    assert np.linalg.norm(found @ whole - v) <= iterations * tau * (1 + 1e-9)


@given(matrices())
def test_fltrust_is_the_papers_equations(rows):
    own = np.linspace(-1, 2, rows.shape[1])
    whole = np.vstack([rows, own])
    found = weight_rules.FLTrust().weights(gram(whole), 0)
    assert found[-1] == 0
    close(found @ whole, fltrust(rows, own), own)


@given(matrices(), st.integers(0, 3))
def test_nearest_neighbours_are_mixed_as_in_the_paper(rows, f):
    assume(len(rows) > 2 * f)
    found = nearest_neighbours(gram(rows), f)
    assert found.sum(1) == pytest.approx(1)
    assert (found.diagonal() > 0).all()
    distances = ((rows[:, None] - rows[None]) ** 2).sum(2)
    for i, of_row in enumerate(found):  # ties may fall either way: the distances that were chosen count
        chosen = np.sort(distances[i][of_row > 0])
        np.testing.assert_allclose(chosen, np.sort(distances[i])[: len(rows) - f], rtol=1e-9)
        assert (of_row[of_row > 0] == 1 / (len(rows) - f)).all()
    apart = np.random.default_rng(len(rows)).normal(size=rows.shape)
    np.testing.assert_allclose(
        nearest_neighbours(gram(apart), f) @ apart, mixed_by_nearest(apart, f), atol=1e-12
    )


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
def test_buckets_are_means_of_s_silos_each_of_which_is_in_one(silos, s, round):
    found = bucketing(silos, s, np.random.default_rng(round))
    assert found.shape == (math.ceil(silos / s), silos)
    assert (np.count_nonzero(found, axis=0) == 1).all()
    sizes = np.count_nonzero(found, axis=1)
    assert (sizes[:-1] == s).all()
    np.testing.assert_allclose(found.sum(1), 1)
    other = bucketing(silos, s, np.random.default_rng(round))
    assert found.tobytes() == other.tobytes()


HONEST, LIARS = 11, 5


@pytest.fixture
def attacked():
    """Honest rows around one point, and five liars at 1e20."""
    draw = np.random.default_rng(0)
    rows = np.vstack([draw.normal(3, 1, (HONEST, 40)), draw.choice([-1e20, 1e20], (LIARS, 40))])
    return rows, np.linalg.norm(rows[:HONEST] - rows[:HONEST].mean(0), axis=1).max()


@pytest.mark.parametrize("rule", [weight_rules.Krum(), weight_rules.MultiKrum(m=HONEST)], ids=str)
def test_krum_gives_liars_nothing(attacked, rule):
    rows, _ = attacked
    assert (rule.weights(gram(rows), LIARS)[HONEST:] == 0).all()


@pytest.mark.parametrize("same", [True, False])
def test_the_geometric_median_stays_near_the_honest_vectors(attacked, same):
    """Its distance from theirs is bounded by 2 (1 - eps) / (1 - 2 eps) times their radius (Lopuhaa 1989)."""
    rows, radius = attacked
    if same:
        rows[HONEST:] = 1e20
    found = weight_rules.RFA().weights(gram(rows), 0) @ rows
    eps = LIARS / len(rows)
    assert np.linalg.norm(found - rows[:HONEST].mean(0)) <= 2 * (1 - eps) / (1 - 2 * eps) * radius


def test_a_clipped_liar_moves_the_result_by_tau_over_n_at_most(attacked):
    rows, _ = attacked
    whole = np.vstack([rows, np.full(40, 3.0)])
    found = weight_rules.CenteredClipping(tau=2.0).weights(gram(whole), 0) @ whole
    rows[HONEST:] = 3.0
    honest = weight_rules.CenteredClipping(tau=2.0).weights(gram(np.vstack([rows, whole[-1]])), 0) @ whole
    assert np.linalg.norm(found - whole[-1]) <= 2.0
    assert (
        np.linalg.norm(found - centered_clipping(rows, whole[-1], 2.0, 1)) <= LIARS / len(rows) * 2.0 * 1.01
    )
    assert honest is not found


def test_with_nearest_neighbours_mixed_a_liar_gets_no_share_of_an_honest_row(attacked):
    rows, _ = attacked
    assert (nearest_neighbours(gram(rows), LIARS)[:HONEST, HONEST:] == 0).all()


def test_one_liar_does_not_blind_krum_to_a_second():
    """With liars of 1e12 and 30 among vectors of length about 1, neither is chosen."""
    draw = np.random.default_rng(1)
    rows = np.vstack([draw.normal(0, 0.1, (9, 30)), np.full((1, 30), 1e12), np.full((1, 30), 5.0)])
    assert (weight_rules.MultiKrum(m=9).weights(gram(rows), 2) > 0).tolist() == [True] * 9 + [False] * 2
