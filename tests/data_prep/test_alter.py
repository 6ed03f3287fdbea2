"""The effects: noise, turns, light, drift; the same bytes in whatever pieces the examples come."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from data_prep.cli import main
from data_prep.dataset.dataset import Dataset
from data_prep.dataset.rows import fields
from data_prep.schemes.lookup import SCHEMES, resolve
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.data.targets import Targets

EFFECTS = {
    "feature-noise": {"sigma": 0.3},
    "rotation": {"angles": "0..90"},
    "brightness": {"factors": "1..0.2"},
    "concept-drift": {"drifted": 0.8, "concepts": 3},
    "mix": {"mix": "dirichlet + rotation angles=0,45 + feature-noise sigma=0.2 + concept-drift drifted=1"},
}
SILOS = 5


def dataset(n=40, dtype="uint8", shape=(1, 6, 6), scale=1 / 255, classes=7):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (n, *shape)).astype(dtype)
    y = rng.integers(0, classes, n)
    return Dataset("drawn", x, y, classes, {}, scale=scale, test=(x[:5], y[:5]))


def effect(name, data, **options):
    """Return the prepared data and `alter(silo, ids, seed)`."""
    scheme = SCHEMES[name]
    resolved = resolve(name, scheme, options)
    data = scheme.prepared(data, resolved)
    function = scheme.alter(data, resolved)
    return data, lambda silo, ids, seed=1, silos=SILOS: function(
        silo, silos, data.x[ids], data.y[ids], ids, seed
    )


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "float16"])
@given(cuts=st.lists(st.integers(0, 40), max_size=4), order=st.integers(0, 9), silo=st.integers(0, SILOS - 1))
@settings(max_examples=8, deadline=None)
def test_pieces_make_no_difference(name, dtype, cuts, order, silo):
    data, alter = effect(name, dataset(dtype=dtype), **EFFECTS[name])
    x, y = alter(silo, np.arange(40))
    assert x.dtype == data.x.dtype
    assert (x.shape, y.dtype) == (data.x.shape, np.int64)
    shuffled = np.random.default_rng(order).permutation(40)
    for piece in np.split(shuffled, sorted(cuts)):
        px, py = alter(silo, piece)
        assert px.tobytes() == x[piece].tobytes()
        assert np.array_equal(py, y[piece])


@pytest.mark.parametrize("name", EFFECTS)
def test_the_input_is_left_alone(name):
    data, _ = effect(name, dataset(dtype="float32"), **EFFECTS[name])
    x, y = data.x.copy(), data.y.copy()
    ids = slice(None)
    SCHEMES[name].alter(data, resolve(name, SCHEMES[name], EFFECTS[name]))(
        4, 5, data.x[ids], data.y, np.arange(40), 1
    )
    assert np.array_equal(x, data.x)
    assert np.array_equal(y, data.y)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "natural", "quantity"])
def test_schemes_without_an_effect_have_none(name):
    data, scheme = dataset(), SCHEMES[name]
    assert scheme.alter(data, scheme.options) is None
    assert scheme.prepared(data, scheme.options) is data
    mix = resolve("mix", SCHEMES["mix"], {"mix": name})
    assert SCHEMES["mix"].alter(data, mix) is None


@pytest.mark.parametrize(
    ("dtype", "scale"), [("uint8", 1 / 255), ("uint8", -0.5), ("float32", None), ("float64", 2.0)]
)
def test_noise_has_the_variance_of_the_formula_as_the_model_sees_it(dtype, scale):
    sigma = 0.5
    data, alter = effect("feature-noise", dataset(3000, dtype, scale=scale), sigma=sigma)
    for silo in range(SILOS):
        noise = (alter(silo, np.arange(3000))[0].astype(float) - data.x[:]) * (scale or 1)
        assert noise.var() == pytest.approx(sigma * (silo + 1) / SILOS, rel=0.02)
        assert noise.mean() == pytest.approx(0, abs=0.01)
        assert np.mean(noise**4) / noise.var() ** 2 == pytest.approx(3, abs=0.15)


def test_noise_differs_between_examples_pixels_and_seeds_and_is_the_same_example_s_everywhere():
    data, alter = effect("feature-noise", dataset(400, "float64", scale=None), sigma=1.0)
    ids = np.arange(400)
    noise = (alter(4, ids)[0] - data.x).reshape(400, -1)
    assert np.abs(np.corrcoef(noise[:300:10])[~np.eye(30, dtype=bool)]).mean() < 0.2
    assert np.abs(np.corrcoef(noise.T)[~np.eye(36, dtype=bool)]).max() < 0.25
    assert len(np.unique(noise)) == noise.size
    other = (alter(4, ids, seed=2)[0] - data.x).reshape(400, -1)
    assert np.abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.05


def test_noise_makes_floats_of_integers_and_leaves_the_test_set_as_the_model_saw_it():
    plain = dataset()
    data, _ = effect("feature-noise", plain, sigma=0.1)
    assert (data.features.dtype, data.features.scale) == ("float32", 1 / 255)
    assert data.test[0].dtype == data.x.dtype == np.float32
    assert np.array_equal(data.test[0][:], plain.test[0])
    assert np.array_equal(data.x[np.array([3, 1])], plain.x[[3, 1]])


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_right_angles_move_pixels(turns):
    data, alter = effect("rotation", dataset(shape=(2, 6, 6)), angles="0,90,180,270")
    x, y = alter(turns, np.arange(40), silos=4)
    assert np.array_equal(x, np.rot90(data.x, turns, axes=(2, 3)))
    assert np.array_equal(y, data.y)


def test_rotation_by_any_angle_is_that_of_the_pixels_centres():
    """A plane rising to the right, turned by 30 degrees, rises along (cos, sin) up to the edge."""
    size = 21
    down, right = np.mgrid[:size, :size] - (size - 1) / 2
    data = Dataset("plane", right[None, None] + np.zeros((3, 1, 1, 1)), np.zeros(3, int), 1, {})
    _, alter = effect("rotation", data, angles="30")
    turned = alter(0, np.arange(3), silos=1)[0][1, 0]
    inside = down**2 + right**2 < (size / 2 - 1.5) ** 2
    # counterclockwise: up is to the left of right
    expected = right * np.cos(np.pi / 6) - down * np.sin(np.pi / 6)
    assert turned[inside] == pytest.approx(expected[inside], abs=1e-9)
    assert (turned[0, 0], turned[-1, -1]) == (0, 0)


def test_a_rotation_near_a_right_angle_is_near_it():
    data = dataset(dtype="float64", shape=(6, 6), scale=None)
    near, exact = (
        effect("rotation", data, angles=angles)[1](0, np.arange(40))[0] for angles in ("89.9999", "90")
    )
    assert near[:, 1:-1, 1:-1] == pytest.approx(exact[:, 1:-1, 1:-1], abs=0.01)


def test_angles_and_factors_are_spread_over_the_silos():
    names = {"rotation": "0..40", "brightness": "1..0.5"}
    options = {"rotation": "angles", "brightness": "factors"}
    endings = {
        name: SCHEMES[name].endings(5, resolve(name, SCHEMES[name], {options[name]: text}))
        for name, text in names.items()
    }
    assert endings["rotation"] == [f", {angle} deg" for angle in (0, 10, 20, 30, 40)]
    assert endings["brightness"] == [f", brightness {factor}" for factor in (1, 0.875, 0.75, 0.625, 0.5)]
    four = SCHEMES["rotation"].endings(8, SCHEMES["rotation"].options)
    assert [ending.split()[1] for ending in four] == ["0", "0", "90", "90", "180", "180", "270", "270"]


def test_brightness_multiplies_rounds_and_stays_in_the_dtype():
    data, alter = effect("brightness", dataset(), factors="0.5,4")
    assert np.array_equal(alter(0, np.arange(40))[0], np.rint(data.x * np.float32(0.5)))
    assert np.array_equal(alter(4, np.arange(40))[0], np.minimum(data.x.astype(int) * 4, 255))


def test_drift_permutes_every_label_on_its_share_of_silos():
    data, alter = effect("concept-drift", dataset(400), drifted=0.6, concepts=2)
    seen = [
        dict(zip(data.y.tolist(), alter(silo, np.arange(400))[1].tolist(), strict=True)) for silo in range(5)
    ]
    assert seen[0] == seen[1] == {label: label for label in range(7)}
    assert seen[2] == seen[4] != seen[3]
    for drifted in (seen[2], seen[3]):
        assert sorted(drifted.values()) == list(range(7))
        assert all(old != new for old, new in drifted.items())
    assert all(seen[2][label] != seen[3][label] for label in range(7))
    assert np.array_equal(alter(3, np.arange(400))[0], data.x)


def test_a_sequence_of_labels_drifts_too():
    data = Dataset("text", np.zeros((4, 3), np.uint8), np.arange(12).reshape(4, 3) % 5, 5, {})
    _, alter = effect("concept-drift", data, drifted=1.0)
    y = alter(0, np.arange(4))[1]
    assert y.shape == (4, 3)
    assert not (y == data.y).any()


def test_the_effects_of_a_mix_follow_one_another():
    plain = dataset(dtype="float32", scale=None)
    _, mixed = effect(
        "mix", plain, mix="concept-drift drifted=1 + rotation angles=90 + brightness factors=0.5"
    )
    x, y = mixed(3, np.arange(40))
    assert np.array_equal(y, effect("concept-drift", plain, drifted=1.0)[1](3, np.arange(40))[1])
    assert np.array_equal(x, np.rot90(plain.x, axes=(2, 3)) * np.float32(0.5))


REFUSED = {
    "noise on tokens": ("feature-noise", {}, {"scale": None}, "without a scale"),
    "light on tokens": ("brightness", {}, {"scale": None}, "without a scale"),
    "sigma 0": ("feature-noise", {"sigma": 0.0}, {}, "--sigma: 0.0 given"),
    "sigma NaN": ("feature-noise", {"sigma": float("nan")}, {}, "--sigma: nan given"),
    "a table turned": ("rotation", {}, {"shape": (9,)}, "rotation is for images"),
    "angles": ("rotation", {"angles": "0,ninety"}, {}, "--angles: '0,ninety' given"),
    "a later angle": ("rotation", {"angles": "0,inf"}, {}, "--angles: '0,inf' given"),
    "sigma without end": (
        "feature-noise",
        {"sigma": 1e300},
        {},
        "--sigma: 1e+300 given; it must be above 0 and at most",
    ),
    "factors without end": (
        "brightness",
        {"factors": "1..1e300"},
        {},
        "'1..1e300' given; write numbers up to 1e+09",
    ),
    "angles without end": ("rotation", {"angles": "-1e300"}, {}, "--angles: '-1e300' given"),
    "factors": ("brightness", {"factors": "1..2..3"}, {}, "--factors: '1..2..3' given"),
    "a negative factor": ("brightness", {"factors": "1..-1"}, {}, "--factors: '1..-1' given"),
    "drift of none": ("concept-drift", {"drifted": 0.0}, {}, "--drifted: 0.0 given"),
    "drift of more": ("concept-drift", {"drifted": 1.5}, {}, "--drifted: 1.5 given"),
    "no concept": ("concept-drift", {"concepts": 0}, {}, "--concepts: 0 given"),
    "too many concepts": ("concept-drift", {"concepts": 7}, {}, "--concepts: 7 given; 7 classes have 1 to 6"),
    "in a mix": ("mix", {"mix": "iid + rotation angles=x"}, {}, "--angles: 'x' given"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_an_effect_cannot_do_is_refused_before_anything_is_written(fault):
    name, options, made, said = REFUSED[fault]
    with pytest.raises(InputError) as refusal:
        SCHEMES[name].prepared(dataset(**made), resolve(name, SCHEMES[name], options))
    assert said in str(refusal.value)


def partition(npz, out, *words):
    with pytest.raises(SystemExit) as stop:
        main(["partition", "npz", "--data", str(npz), "--out", str(out), "--silos", "5", *map(str, words)])
    assert stop.value.code == 0
    return read_federation(out)


def test_an_effect_that_leads_beyond_float32_is_refused(tmp_path, capsys):
    np.savez(tmp_path / "in.npz", x=np.full((20, 3), 1e35), y=np.arange(20) % 2)
    words = ["--scheme", "brightness", "--factors", "1,1,1,1,1e5", "--out", tmp_path / "out", "--silos", 5]
    with pytest.raises(SystemExit, match="2"):
        main(["partition", "npz", "--data", str(tmp_path / "in.npz"), *map(str, words)])
    said = "error: --scheme: silo_0004.h5: the scheme brings features beyond float32; use smaller factors"
    assert capsys.readouterr().err.startswith(said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [[], ["--valid", 0.2, "--test", 0.1], ["--public", 0.3]])
def test_shards_hold_what_the_effect_makes_of_the_source(tmp_path, words):
    """Every example is found again by what is left of it:
    its noise is what `alter` gives for its own position."""
    rng = np.random.default_rng(0)
    x, y = rng.random((200, 4, 4)), rng.integers(0, 4, 200)
    np.savez(tmp_path / "in.npz", x=x, y=y, x_test=x[:9], y_test=y[:9])
    mix = "feature-noise sigma=0.0001 + concept-drift drifted=0.5"
    spec = partition(
        tmp_path / "in.npz", tmp_path / "out", "--scheme", "mix", "--mix", mix, "--seed", 3, *words
    )
    _, alter = effect("mix", Dataset("in", x, y, 4, {}), mix=mix)
    found = []
    for entry in spec.silos:
        shard = open_shard(tmp_path / "out", entry, spec)
        for split in entry.examples:
            ids = ((shard[split].x[:, None] - x) ** 2).sum(axis=(2, 3)).argmin(axis=1)
            expected_x, expected_y = alter(entry.silo, ids, seed=3)
            assert np.array_equal(shard[split].x, expected_x)
            assert np.array_equal(shard[split].y, expected_y)
            found.extend(ids)
        assert np.bincount(shard["train"].y, minlength=4).tolist() == entry.labels
    shared = [(spec.test, "test")] + ([(spec.public, "public")] if spec.public else [])
    held = {split: open_shard(tmp_path / "out", entry, spec)[split] for entry, split in shared}
    assert np.array_equal(held["test"].x, x[:9])
    public = (
        [int(np.flatnonzero((x == row).all(axis=(1, 2)))[0]) for row in held["public"].x]
        if spec.public
        else []
    )
    assert sorted(found + public) == list(range(200))


@pytest.mark.parametrize("scheme", ["feature-noise", "rotation", "concept-drift"])
def test_the_number_of_threads_makes_no_difference(tmp_path, scheme):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "in.npz", x=rng.random((300, 4, 4)).astype("f4"), y=rng.integers(0, 4, 300))
    for jobs in (1, 3):
        partition(tmp_path / "in.npz", tmp_path / str(jobs), "--scheme", scheme, "--jobs", jobs)
    one, three = ({p.name: p.read_bytes() for p in (tmp_path / jobs).iterdir()} for jobs in "13")
    assert one == three


def masked(n=6, shape=(3, 8, 6), ignore=None):
    """Return images whose first channel is their mask."""
    x = np.random.default_rng(0).integers(0, 5, (n, *shape)).astype("uint8")
    targets = Targets(dtype="uint8", shape=shape[-2:], ignore=ignore)
    return Dataset("masked", x, x[:, 0].copy(), 5, {}, scale=1 / 255, targets=targets)


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize("shape", [(3, 6, 6), (3, 8, 6)])
def test_a_mask_turns_with_its_image(angle, shape):
    data, alter = effect("rotation", masked(shape=shape), angles=str(angle))
    x, y = alter(0, np.arange(6), silos=1)
    if shape[1] == shape[2] or angle in (0, 180):
        assert np.array_equal(y, x[:, 0])
    assert np.array_equal(y, data.y) == (angle == 0)


def test_a_mask_turned_by_any_angle_keeps_its_classes_and_ignores_what_it_did_not_see():
    half = np.zeros((1, 1, 21, 21), "float32")
    half[..., 11:] = 100
    targets = Targets(dtype="uint8", shape=(21, 21), ignore=255)
    y = (half[:, 0] / 100).astype("uint8")
    _, alter = effect("rotation", Dataset("half", half, y, 2, {}, targets=targets), angles="30")
    x, turned = alter(0, np.arange(1), silos=1)
    seen = turned != 255
    assert set(np.unique(turned)) == {0, 1, 255}
    assert not seen[0, 0, 0]
    down, right = np.mgrid[:21, :21] - 10
    inside = down**2 + right**2 < 9**2
    assert seen[0][inside].all()
    assert np.array_equal(turned[0][inside] == 1, x[0, 0][inside] > 50)


def test_named_targets_turn_where_they_are_of_pixels():
    plain = masked(shape=(3, 6, 6))
    kinds = np.dtype([("mask", "u1", (6, 6)), ("grade", "f4", ())])
    y = np.zeros(6, kinds)
    y["mask"], y["grade"] = plain.y, np.arange(6)
    aims = {
        "mask": Targets(dtype="uint8", shape=(6, 6), classes=5),
        "grade": Targets(dtype="float32", shape=()),
    }
    data = Dataset("named", plain.x, y, None, {}, scale=1 / 255, targets=aims)
    _, alter = effect("rotation", data, angles="90")
    x, turned = alter(0, np.arange(6), silos=1)
    found = fields(turned)
    assert np.array_equal(found["mask"], x[:, 0])
    assert found["grade"].tolist() == [0, 1, 2, 3, 4, 5]
