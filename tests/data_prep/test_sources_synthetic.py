"""Synthetic sets against the formulas of their papers."""

import numpy as np
import pytest

from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError


def synthetic(*options, seed=0):
    return find_source("synthetic", options)(None, seed)


def silos(dataset):
    return [dataset.x[dataset.silo == silo] for silo in range(dataset.silo.max() + 1)]


def test_its_shape_is_the_papers():
    dataset = synthetic("alpha=1", "beta=1")
    assert dataset.x.shape[1:] == (60,)
    assert (dataset.x.dtype, dataset.classes, dataset.y.dtype) == (np.float32, 10, np.int64)
    assert len(silos(dataset)) == 30
    assert 0 <= dataset.y.min() <= dataset.y.max() <= 9


def test_sizes_are_lognormal():
    sizes = np.bincount(synthetic("silos=400").silo) - 50
    logs = np.log(sizes + 0.5)
    assert sizes.min() >= 0
    assert np.median(logs) == pytest.approx(4, abs=0.3)
    assert np.subtract(*np.percentile(logs, [75, 25])) == pytest.approx(1.349 * 2, abs=0.5)


@pytest.mark.parametrize("option", ["beta=1", "iid=true"])
def test_features_spread_by_sigma_inside_a_silo(option):
    x = [silo - silo.mean(axis=0) for silo in silos(synthetic(option)) if len(silo) > 200]
    variances = np.concatenate(x).var(axis=0)
    assert variances == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.2)


@pytest.mark.parametrize("beta", [0.0, 4.0, 100.0])
def test_the_silos_means_spread_by_beta(beta):
    """An entry of v_k is N(B_k, 1), and B_k is N(0, beta)."""
    means = np.array([x.mean(axis=0) for x in silos(synthetic(f"beta={beta}", "silos=150"))])
    assert means.std(axis=1).mean() == pytest.approx(1, abs=0.05)
    assert means.mean(axis=1).var() == pytest.approx(beta + 1 / 60, rel=0.35)


def test_iid_has_one_model_and_centred_features():
    dataset = synthetic("iid=true")
    x, y = dataset.x.astype(float), dataset.y
    assert np.abs(x.mean(axis=0)).max() < 0.1
    held = dataset.silo >= 15
    # what some silos teach holds for the others
    assert agreement(x[~held], y[~held], x[held], y[held]) > 0.75
    other = synthetic("alpha=1", "beta=0")
    held = other.silo >= 15
    assert agreement(other.x[~held], other.y[~held], other.x[held], other.y[held]) < 0.5


def agreement(x, y, x_test, y_test):
    """Return how often a linear model fitted to one half predicts the other."""
    design, test = (np.hstack([part, np.ones((len(part), 1))]) for part in (x, x_test))
    weights = np.linalg.lstsq(design, np.eye(10)[y], rcond=None)[0]
    return np.mean(np.argmax(test @ weights, axis=1) == y_test)


def test_every_silo_labels_by_a_linear_model_of_its_own():
    largest = max(range(30), key=lambda silo: (synthetic("alpha=1", "beta=1").silo == silo).sum())
    dataset = synthetic("alpha=1", "beta=1")
    mine = dataset.silo == largest
    x, y = dataset.x[mine], dataset.y[mine]
    half = len(x) // 2
    assert agreement(x[:half], y[:half], x[half:], y[half:]) > 0.7


def test_alpha_is_the_variance_of_the_models_means():
    from data_prep.sources import synthetic as module

    drawn = []

    class Recorded:
        def __init__(self, rng):
            self.rng = rng

        def normal(self, *given):
            drawn.append(given)
            return self.rng.normal(*given)

    streams = module.numpy_stream
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "numpy_stream", lambda *name: Recorded(streams(*name)))
        module._draw_silo(0, 3, 5, alpha=4.0, beta=9.0, iid=False)
    (u, w, b, centre, v, x) = drawn
    assert u == (0, 2.0)
    assert w[1:] == (1, (10, 60))
    assert (b[0], b[1:]) == (w[0], (1, 10))
    assert centre == (0, 3.0)
    assert v[1:] == (1, 60)
    assert x[2] == (5, 60)
    assert np.allclose(x[1] ** 2, np.arange(1, 61) ** -1.2)


def test_a_silo_does_not_depend_on_how_many_there_are():
    few, many = synthetic("silos=3", "alpha=1"), synthetic("silos=30", "alpha=1")
    for silo in range(3):
        n = min((few.silo == silo).sum(), (many.silo == silo).sum())
        assert np.array_equal(few.y[few.silo == silo][:n], many.y[many.silo == silo][:n])
    assert not np.array_equal(few.x[:50], synthetic("silos=3", "alpha=1", seed=1).x[:50])


def test_fcube_has_two_opposite_octants_a_silo_and_labels_by_the_plane():
    dataset = find_source("fcube")(None, 0)
    assert (dataset.x.shape, dataset.x.dtype, dataset.classes) == ((4000, 3), np.float32, 2)
    assert np.abs(dataset.x).max() <= 1
    assert (dataset.x != 0).all()
    octants = (dataset.x < 0) @ [4, 2, 1]
    assert np.bincount(octants).tolist() == [500] * 8
    for silo in range(4):
        mine = dataset.silo == silo
        assert np.bincount(octants[mine], minlength=8).nonzero()[0].tolist() == [silo, 7 - silo]
        assert np.bincount(dataset.y[mine]).tolist() == [500, 500]
    assert np.array_equal(dataset.y, (dataset.x[:, 0] < 0).astype(int))
    assert len(dataset.test[1]) == 1000
    assert np.array_equal(dataset.test[1], (dataset.test[0][:, 0] <= 0).astype(int))
    assert dataset.silo_names == {
        0: "octants +++ and ---", 1: "octants ++- and --+", 2: "octants +-+ and -+-",
        3: "octants +-- and -++",
    }  # fmt: skip


def test_fcube_is_uniform_inside_an_octant():
    x = np.abs(find_source("fcube", ["examples=40000"])(None, 0).x)
    assert x.mean(axis=0) == pytest.approx([0.5] * 3, abs=0.01)
    assert x.var(axis=0) == pytest.approx([1 / 12] * 3, rel=0.03)


def test_bags_of_words_are_sparse_with_words_that_few_silos_have():
    dataset = find_source("bag-of-words", ["silos=40", "words=500"])(None, 0)
    assert dataset.x.shape == (len(dataset), 500)
    assert set(np.unique(dataset.x)) == {0, 1}
    assert 1 <= dataset.x.sum(1).min() <= dataset.x.sum(1).max() <= 20
    present = np.array([x.max(axis=0) for x in silos(dataset)])
    assert present[:, :3].mean() > 0.9
    assert 0 < present[:, 250:].mean() < 0.4
    share = np.array([x.mean(axis=0) for x in silos(dataset)])[:, :10]
    assert (share.std(axis=0) > 0.05).any()
    assert 0.2 < dataset.y.mean() < 0.8
    again = find_source("bag-of-words", ["silos=40", "words=500"])(None, 0)
    assert (again.x == dataset.x).all()


@pytest.mark.parametrize("option", ["silos=0", "words=0", "length=0", "variety=0", "variety=inf"])
def test_bags_of_words_take_nothing_else(option):
    with pytest.raises(InputError, match=option.partition("=")[0]):
        find_source("bag-of-words", [option])(None, 0)


@pytest.mark.parametrize("source", ["synthetic", "fcube", "bag-of-words"])
def test_they_take_no_data(source, tmp_path):
    with pytest.raises(InputError, match="is drawn from the seed; leave it out"):
        find_source(source)(tmp_path, 0)


@pytest.mark.parametrize("option", ["examples=7", "test=-1"])
def test_too_small_a_cube_is_refused(option):
    with pytest.raises(InputError, match="use at least 8 and 0"):
        find_source("fcube", [option])(None, 0)


def test_fcube_without_a_test_set():
    assert find_source("fcube", ["test=0"])(None, 0).test is None
