"""The schemes as pure functions, and what a silo holds back."""

import hashlib

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from data_prep.dataset.dataset import Dataset
from data_prep.dataset.example_groups import Order
from data_prep.inspect.heterogeneity import gini, heterogeneity, jensen_shannon, total_variation
from data_prep.schemes.classes import classes as classes_each
from data_prep.schemes.holdout import Shares
from data_prep.schemes.iid import iid
from data_prep.schemes.labels import dirichlet, shards
from data_prep.schemes.lookup import SCHEMES, resolve
from data_prep.schemes.mix import parse
from data_prep.schemes.natural import natural
from data_prep.schemes.quantity import power_law, quantity
from mpifl.common.errors import InputError
from mpifl.common.rng import numpy_stream


def assert_partition(parts, n):
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


drawn = {
    "n": st.integers(1, 400),
    "classes": st.integers(1, 12),
    "silos": st.integers(1, 30),
    "seed": st.integers(0),
}


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
        # more than enough examples of near-even classes must not be refused
        assume(n < 20 * silos or alpha < 1)
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


def dataset(n, classes, seed, dtype="uint8"):
    """Make a data set of images with a natural silo each."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (n, 1, 4, 4)).astype(dtype)
    return Dataset(
        "drawn",
        x,
        labels_of(n, classes, seed),
        classes,
        {},
        scale=1 / 255,
        silo=rng.integers(0, 5, n),
        order=Order("age", rng.random(n)),
    )


MIXES = [
    "dirichlet alpha=0.5 + quantity alpha=2",
    "classes classes=1 + power-law exponent=0.5",
    "shards + quantity alpha=5 + concept-drift",
    "natural + rotation",
    "quantity alpha=3",
]
STATED = ("sizes", "counts")
"""Schemes that have to be told sizes, which test_given_sizes.py tries."""
EVERY = [
    (name, {}) for name, scheme in SCHEMES.items() if scheme.layout == "horizontal" and name not in STATED
] + [("mix", {"mix": mix}) for mix in MIXES]


@pytest.mark.parametrize(("name", "given_options"), EVERY)
@given(**drawn)
@settings(max_examples=15, deadline=None)
def test_every_scheme_makes_a_partition_with_the_minimum_or_refuses(
    name, given_options, n, classes, silos, seed
):
    scheme, data = SCHEMES[name], dataset(n, classes + 1, seed)
    options = resolve(name, scheme, {**given_options, "min_examples": 2})
    wanted = None if "natural" in (name, *given_options.get("mix", "").split()) else silos
    try:
        cut = scheme(data, wanted, np.random.default_rng(seed), options)
    except InputError:
        assume(n < 100 * silos or (classes + 1) > 2 * silos)
        return
    assert len(cut.parts) == (wanted or len(set(data.silo)))
    assert_partition(cut.parts, n)
    assert min(map(len, cut.parts)) >= 2
    assert cut.names is None or len(set(cut.names)) == len(cut.parts)


@given(c=st.integers(1, 12), **drawn)
@settings(max_examples=150, deadline=None)
def test_classes_are_exactly_so_many_and_every_class_is_owned_or_it_is_impossible(c, n, classes, silos, seed):
    labels = labels_of(n, classes, seed) ** 2 % 11  # classes of odd sizes, some empty
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    possible = c <= len(sizes) <= silos * c <= np.minimum(sizes, silos).sum()
    if not possible:
        with pytest.raises(InputError, match="--classes: "):
            classes_each(labels, silos, np.random.default_rng(seed), classes=c)
        return
    parts = classes_each(labels, silos, np.random.default_rng(seed), classes=c)
    assert_partition(parts, n)
    assert [len(set(labels[part])) for part in parts] == [c] * silos
    for label in set(labels):
        held = [count for part in parts if (count := np.count_nonzero(labels[part] == label))]
        assert np.ptp(held) <= 1


def test_classes_are_drawn_at_random_after_the_first():
    labels = np.repeat(np.arange(10), 500)
    parts = classes_each(labels, 200, np.random.default_rng(0), classes=3)
    seen = np.array([sorted(set(labels[part])) for part in parts])
    assert all(silo % 10 in seen[silo] for silo in range(200))
    assert len({tuple(row) for row in seen}) > 80
    owners = np.bincount(seen.ravel())
    assert owners.min() > 40
    assert owners.max() < 80


BITS = [(10, 2, "5206322e039a172b"), (23, 3, "479fca2df1c2e8d0")]
"""Of folders that were made before the classes beyond the silos were drawn."""


def test_classes_beyond_the_silos_are_dealt_at_random():
    labels = np.repeat(np.arange(10), 20)
    seen = []
    for seed in range(60):
        parts = classes_each(labels, 5, np.random.default_rng(seed), classes=2)
        seen.append([sorted(set(labels[part].tolist())) for part in parts])
    assert all(own[0] == silo for each in seen for silo, own in enumerate(each))
    beyond = np.array([[own[1] for own in each] for each in seen])
    assert (np.sort(beyond, axis=1) == np.arange(5, 10)).all()
    assert all(len(set(beyond[:, silo].tolist())) == 5 for silo in range(5))


@pytest.mark.parametrize(("silos", "c", "bits"), BITS)
def test_classes_of_no_fewer_silos_stay_as_they_were(silos, c, bits):
    parts = classes_each(np.repeat(np.arange(10), 20), silos, np.random.default_rng(3), classes=c)
    assert hashlib.sha256(b"".join(part.astype("int64").tobytes() for part in parts)).hexdigest()[:16] == bits


def test_quantity_has_the_moments_of_the_distribution_and_iid_labels():
    """Dir(alpha 1_K): mean 1/K, variance (1/K)(1 - 1/K)/(K alpha + 1)."""
    silos, alpha, n = 5, 0.8, 4000
    labels = labels_of(n, 4, 0)
    draws = [
        quantity(labels, silos, np.random.default_rng(seed), alpha=alpha, min_examples=0)
        for seed in range(800)
    ]
    shares = np.array([[len(part) for part in parts] for parts in draws]) / n
    assert shares.mean(axis=0) == pytest.approx(np.full(silos, 1 / silos), abs=0.02)
    assert shares.var(axis=0).mean() == pytest.approx(
        (1 / silos) * (1 - 1 / silos) / (silos * alpha + 1), rel=0.06
    )
    largest = max(draws[0], key=len)
    assert np.bincount(labels[largest]) / len(largest) == pytest.approx(np.full(4, 0.25), abs=0.06)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.7])
def test_power_law_sizes_have_the_exponent(exponent):
    silos, n = 60, 1_000_000
    sizes = np.array(
        [len(p) for p in power_law(np.zeros(n, int), silos, np.random.default_rng(0), exponent=exponent)]
    )
    ranks = np.arange(1, silos + 1.0)
    assert np.polyfit(np.log(ranks), np.log(sizes), 1)[0] == pytest.approx(-exponent, abs=0.002)
    assert sizes == pytest.approx(n * ranks**-exponent / (ranks**-exponent).sum(), abs=1)


def test_a_mix_of_sizes_and_no_labels_has_the_sizes_of_the_formula():
    data = dataset(9000, 6, 0)
    options = resolve("mix", SCHEMES["mix"], {"mix": "power-law exponent=1"})
    sizes = [len(part) for part in SCHEMES["mix"](data, 8, np.random.default_rng(0), options).parts]
    ranks = np.arange(1, 9.0)
    assert sizes == pytest.approx(9000 / ranks / (1 / ranks).sum(), abs=10)


def test_a_mix_weighs_every_class_by_the_formula():
    data = dataset(6000, 6, 0)
    mix = SCHEMES["mix"]
    alone, both = (
        mix(data, 4, np.random.default_rng(3), resolve("mix", mix, {"mix": text, "min_examples": 1})).parts
        for text in ("dirichlet alpha=0.6", "dirichlet alpha=0.6 + power-law exponent=2")
    )
    counts = np.stack([np.bincount(data.y[part], minlength=6) for part in alone], axis=1)
    weighed = counts * np.arange(1, 5.0) ** -2
    expected = weighed / weighed.sum(axis=1, keepdims=True) * counts.sum(axis=1, keepdims=True)
    assert np.stack([np.bincount(data.y[part], minlength=6) for part in both], axis=1) == pytest.approx(
        expected, abs=1
    )


def test_a_mix_reads_its_parts_and_their_options():
    first, second, third = parse("shards shards-per-silo=3+ quantity + feature-noise sigma=2")
    assert (first.name, first.options["shards_per_silo"], first.role) == ("shards", 3, "labels")
    assert (second.options["alpha"], second.role) == (0.5, "sizes")
    assert (third.options["sigma"], third.role) == (2.0, "effect")


BAD_MIXES = {
    "": "'' is not a scheme",
    "dirichlet + magic": "'magic' is not a scheme",
    "dirichlet + mix": "'mix' is not a scheme",
    "dirichlet beta=3": "dirichlet has no 'beta=3'; it takes alpha=",
    "dirichlet min-examples=3": "dirichlet has no 'min-examples=3'",
    "iid x": "iid has no 'x'; it takes no options",
    "classes classes=two": "'two' is not of type int",
    "dirichlet + classes": "dirichlet and classes are both schemes of labels",
    "quantity + power-law": "both schemes of sizes",
    "natural + quantity": "natural silos have their own sizes",
}


@pytest.mark.parametrize("mix", BAD_MIXES)
def test_a_bad_mix_is_named(mix):
    with pytest.raises(InputError, match="--mix: ") as refusal:
        parse(mix)
    assert BAD_MIXES[mix] in str(refusal.value)


@pytest.mark.parametrize("name", ["dirichlet", "quantity", "mix"])
def test_what_cannot_be_reached_is_refused_soon_and_in_full(name):
    """500 silos of Dir(0.01): no draw of 100 has the minimum; nothing is filled up in secret."""
    given_options = (
        {"mix": "dirichlet alpha=0.01 + quantity alpha=0.01"} if name == "mix" else {"alpha": 0.01}
    )
    options = resolve(name, SCHEMES[name], given_options)
    with pytest.raises(
        InputError, match=r"in 100 draws the smallest silo had \d+ .* fewer --silos or a lower --min-ex"
    ):
        SCHEMES[name](dataset(8000, 10, 0), 500, np.random.default_rng(0), options)


@pytest.mark.parametrize("name", ["shards", "dirichlet", "classes"])
def test_sequences_of_labels_are_cut_by_no_label(name):
    data = Dataset("text", np.zeros((50, 3), np.uint8), np.zeros((50, 3), np.int64), 4, {})
    with pytest.raises(InputError, match="an example has 3 labels"):
        SCHEMES[name](data, 2, np.random.default_rng(0), SCHEMES[name].options)
    assert_partition(
        SCHEMES["quantity"](data, 2, np.random.default_rng(0), SCHEMES["quantity"].options).parts, 50
    )


@pytest.mark.parametrize("cut", [iid, shards, dirichlet, classes_each, quantity, power_law])
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
    with pytest.raises(
        InputError, match=r"smallest silo had \d+ .* larger --alpha, fewer --silos or a lower --min-ex"
    ):
        dirichlet(labels_of(300, 3, 0), 20, np.random.default_rng(0), alpha=0.01)


def test_options_are_a_schemes_own():
    assert resolve("dirichlet", SCHEMES["dirichlet"], {"alpha": 0.1}) == {"alpha": 0.1, "min_examples": 10}
    assert resolve("iid", SCHEMES["iid"], {"alpha": None}) == {"min_examples": 1}
    with pytest.raises(
        InputError, match=r"--alpha: --scheme shards does not take it; it takes --shards-per-silo"
    ):
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


@given(n=st.integers(1, 200), share=st.integers(0, 99), of=st.integers(2, 9))
@settings(max_examples=40, deadline=None)
def test_what_is_public_is_a_share_of_the_examples_that_are_not_held_for_testing(n, share, of):
    held = np.arange(n) % of == 0
    data = Dataset("drawn", np.ones((n, 1)), np.zeros(n, int), 2, {}, held=held)
    private, public = Shares(public=share / 100).set_public_aside(data, seed=3, natural=False)
    assert np.array_equal(np.sort(np.concatenate([private, public])), np.arange(n))
    assert (np.diff(private) > 0).all()
    assert (np.diff(public) > 0).all()
    assert not held[public].any()
    assert len(public) == share * np.count_nonzero(~held) // 100


@pytest.mark.parametrize("held", [None, np.zeros(50, bool)])
def test_what_is_public_stays_as_it_was_where_nothing_is_held(held):
    data = Dataset("drawn", np.ones((50, 1)), np.zeros(50, int), 2, {}, held=held)
    _, public = Shares(public=0.3).set_public_aside(data, seed=3, natural=False)
    assert public.tolist() == sorted(numpy_stream(3, "public").permutation(50)[:15].tolist())


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


@pytest.mark.parametrize("labels", ["classes classes=2", "shards"])
def test_a_mix_gives_no_silo_a_class_that_it_did_not_have(labels):
    """Shares add up to 0.999... now and then; what is left belongs to the last owner."""
    mix = SCHEMES["mix"]
    for seed in range(60):
        data = dataset(1370 + 10 * seed, 10, seed)
        alone, both = (
            mix(data, 10, np.random.default_rng(seed), resolve("mix", mix, {"mix": text})).parts
            for text in (labels, f"{labels} + quantity alpha=2")
        )
        for before, after in zip(alone, both, strict=True):
            assert set(data.y[after]) <= set(data.y[before])


def test_a_silo_without_labels_that_count_is_not_far_from_others():
    counts = np.array([[10, 10], [0, 0], [5, 5]])
    found = heterogeneity(counts, np.array([20, 20, 10]))
    assert (found.total_variation, found.jensen_shannon) == (0, 0)
    assert heterogeneity(np.zeros((2, 3), int)).total_variation == 0
