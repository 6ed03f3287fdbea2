"""The schemes as pure functions, and what a silo holds back."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from data_prep.heterogeneity import gini, heterogeneity, jensen_shannon, total_variation
from data_prep.holdout import Shares
from data_prep.schemes import SCHEMES, resolve
from data_prep.schemes.iid import iid
from data_prep.schemes.labels import dirichlet, shards
from data_prep.schemes.natural import natural
from mpifl.errors import InputError


def assert_partition(parts, n):
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


drawn = {"n": st.integers(1, 400), "classes": st.integers(1, 12), "silos": st.integers(1, 30), "seed": st.integers(0)}


def labels_of(n, classes, seed):
    return np.random.default_rng(seed).integers(0, classes, n)


@given(**drawn)
@settings(max_examples=60, deadline=None)
def test_iid_is_a_partition_into_near_equal_sizes(n, classes, silos, seed):
    parts = iid(labels_of(n, classes, seed), silos, np.random.default_rng(seed))
    assert len(parts) == silos
    assert_partition(parts, n)
    assert np.ptp([len(part) for part in parts]) <= 1


@given(per_silo=st.integers(1, 5), **drawn)
@settings(max_examples=60, deadline=None)
def test_shards_is_a_partition_into_equal_shards(n, classes, silos, seed, per_silo):
    assume(n >= silos * per_silo)
    parts = shards(labels_of(n, classes, seed), silos, np.random.default_rng(seed), shards_per_silo=per_silo)
    assert len(parts) == silos
    assert_partition(parts, n)
    assert np.ptp([len(part) for part in parts]) <= per_silo


@given(alpha=st.floats(0.01, 100), **drawn)
@settings(max_examples=60, deadline=None)
def test_dirichlet_is_a_partition_with_the_minimum_or_a_refusal(n, classes, silos, seed, alpha):
    labels = labels_of(n, classes, seed)
    try:
        parts = dirichlet(labels, silos, np.random.default_rng(seed), alpha=alpha, min_examples=2)
    except InputError:
        assume(n < 20 * silos or alpha < 1)  # more than enough examples of near-even classes must not be refused
        return
    assert len(parts) == silos
    assert_partition(parts, n)
    assert min(len(part) for part in parts) >= 2


@given(**drawn)
@settings(max_examples=60, deadline=None)
def test_natural_keeps_every_id_together(n, classes, silos, seed):
    ids = np.random.default_rng(seed).integers(-silos, silos, n)
    parts = natural(ids, None, np.random.default_rng(seed))
    assert_partition(parts, n)
    assert [set(ids[part]) for part in parts] == [{one} for one in sorted(set(ids))]


@pytest.mark.parametrize("cut", [iid, shards, dirichlet])
def test_the_generator_alone_decides(cut):
    labels = labels_of(2000, 10, 3)
    first, same, other = (cut(labels, 8, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_shards_of_balanced_classes_show_a_silo_at_most_two_labels():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
    parts = shards(labels, 100, np.random.default_rng(1))
    seen = [len(set(labels[part])) for part in parts]
    assert max(seen) == 2
    assert np.mean(seen) > 1.8
    assert {len(part) for part in parts} == {60}


def test_shards_are_dealt_at_random_not_in_order():
    labels = np.repeat(np.arange(10), 100)
    parts = shards(labels, 50, np.random.default_rng(0))
    neighbours = sum(np.ptp(part) < 40 for part in parts)
    assert neighbours < 10


def test_dirichlet_proportions_have_the_moments_of_the_distribution():
    """Dir(alpha 1_K): mean 1/K, variance (1/K)(1 - 1/K)/(K alpha + 1), covariance -1/K^2/(K alpha + 1)."""
    silos, alpha, classes, size = 4, 0.7, 600, 400
    labels = np.repeat(np.arange(classes), size)
    parts = dirichlet(labels, silos, np.random.default_rng(5), alpha=alpha)
    shares = np.stack([np.bincount(labels[part], minlength=classes) for part in parts]) / size
    covariance = np.cov(shares)
    off_diagonal = covariance[~np.eye(silos, dtype=bool)]
    spread = silos * alpha + 1
    assert shares.mean(axis=1) == pytest.approx(np.full(silos, 1 / silos), abs=0.03)
    assert np.diag(covariance).mean() == pytest.approx((1 / silos) * (1 - 1 / silos) / spread, rel=0.06)
    assert off_diagonal.mean() == pytest.approx(-1 / silos**2 / spread, rel=0.06)


def test_dirichlet_draws_the_members_of_a_class_at_random():
    part = dirichlet(np.zeros(1000, int), 2, np.random.default_rng(0), alpha=100.0)[0]
    assert 350 < part.mean() < 650
    assert len(part) > 300


def test_dirichlet_cuts_every_class_by_its_own_shares():
    labels = np.repeat([0, 1, 2], [20, 2000, 200])
    parts = dirichlet(labels, 2, np.random.default_rng(0), alpha=1e6)
    assert np.stack([np.bincount(labels[part]) for part in parts]) == pytest.approx(
        np.array([[10, 1000, 100]] * 2), rel=0.1
    )


def test_dirichlet_that_cannot_reach_the_minimum_says_what_would_do():
    with pytest.raises(InputError, match=r"smallest silo had \d+ .* larger --alpha, fewer --silos or a lower --min-ex"):
        dirichlet(labels_of(300, 3, 0), 20, np.random.default_rng(0), alpha=0.01)


def test_options_are_a_schemes_own():
    assert resolve("dirichlet", SCHEMES["dirichlet"], {"alpha": 0.1}) == {"alpha": 0.1, "min_examples": 10}
    assert resolve("iid", SCHEMES["iid"], {"alpha": None}) == {"min_examples": 1}
    with pytest.raises(InputError, match=r"--alpha: --scheme shards has no use for it; it takes --shards-per-silo"):
        resolve("shards", SCHEMES["shards"], {"alpha": 0.5})


@given(
    n=st.integers(1, 300),
    valid=st.integers(0, 99).map(lambda p: p / 100),
    test=st.integers(0, 99).map(lambda p: p / 100),
)
@example(n=100, valid=0.29, test=0.57)
@settings(max_examples=80, deadline=None)
def test_what_is_held_out_is_a_share_and_leaves_something_to_train_on(n, valid, test):
    assume(round(100 * valid) + round(100 * test) < 100)
    part = np.arange(1000, 1000 + n)
    splits = Shares(valid, test).split(part, seed=1, silo=0)
    assert np.array_equal(np.sort(np.concatenate(list(splits.values()))), part)
    assert len(splits["train"]) >= 1
    assert len(splits.get("valid", ())) == round(100 * valid) * n // 100
    assert len(splits.get("test", ())) == round(100 * test) * n // 100


def test_silos_hold_out_by_streams_of_their_own():
    part = np.arange(50)
    split = {silo: Shares(valid=0.5).split(part, 1, silo)["valid"].tolist() for silo in (0, 1)}
    assert split[0] != split[1]
    assert split[0] == Shares(valid=0.5).split(part, 1, 0)["valid"].tolist()


def test_measures_at_their_ends():
    alike, apart = heterogeneity(np.full((3, 4), 5)), heterogeneity(np.diag([7, 7]))
    assert (alike.jensen_shannon, alike.total_variation, alike.gini) == (0, 0, 0)
    assert apart.total_variation == pytest.approx(0.5)
    # H(3/4, 1/4) - (0 + 1) / 2
    assert apart.jensen_shannon == pytest.approx(0.8112781 - 0.5)
    assert gini(np.array([0, 0, 0, 12])) == pytest.approx(0.75)


def test_rounding_makes_no_negative_divergence():
    p = np.array([7, 6, 5, 3]) / 21
    assert jensen_shannon(p, np.nextafter(p, 1)) == 0


@given(counts=st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=2, max_size=6))
def test_measures_against_the_plain_formulas(counts):
    counts = np.array(counts) + 1
    p, q = counts / counts.sum(1, keepdims=True), counts.sum(0) / counts.sum()
    middle = (p + q) / 2
    divergence = ((p * np.log2(p / middle)).sum(1) + (q * np.log2(q / middle)).sum(1)) / 2
    assert jensen_shannon(p, q) == pytest.approx(divergence, abs=1e-12)
    assert total_variation(p, q) == pytest.approx(np.maximum(p - q, 0).sum(1))
    sizes = counts.sum(1)
    assert gini(sizes) == pytest.approx(np.abs(np.subtract.outer(sizes, sizes)).mean() / 2 / sizes.mean())
