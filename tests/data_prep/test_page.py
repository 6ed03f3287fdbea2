"""The pages, features and comparisons of `inspect`: whole in themselves,
true to the shards, safe with any name."""

import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pages import Reader, bytes_of, check_whole, decoded

import data_prep.inspect.feature_moments as features_module
from data_prep.cli import main
from data_prep.inspect.feature_moments import FeatureMoments, feature_skew, moments_of, total
from data_prep.inspect.page import page
from data_prep.inspect.summary import FolderSummary, summarise
from mpifl.common.pages import BLUES, DIVERGING, WORST_TO_BEST, coloured, encoded
from mpifl.data.shards.shards import Features, FederationSpec, ShardEntry, read_federation
from scripts.write_shard import write_shard


def command(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def described(counts, name="made up", **more):
    entries = [
        ShardEntry(
            silo=silo,
            name=f"clinic {silo}",
            file=f"silo_{silo}.h5",
            examples={"train": max(sum(labels), 1)},
            labels=labels,
            bytes=9,
            sha256="0" * 64,
        )
        for silo, labels in enumerate(counts)
    ]
    more = {"features": Features(shape=(2,), dtype="float32"), **more}
    return FederationSpec(
        name=name,
        classes=len(counts[0]),
        seed=4,
        scheme={"name": "iid"},
        source={"name": "npz"},
        silos=entries,
        **more,
    )


def summary(counts, name="made up", moments=None, **more):
    return FolderSummary(described(counts, name, **more), np.array(counts), moments)


def folder_of(path, xs, ys, scale=None, classes=3, offset=0.0, **more):
    """Write real shards of these features and labels, a silo each."""
    path.mkdir()
    seen = Features(shape=xs[0].shape[1:], dtype=xs[0].dtype.name, scale=scale, offset=offset)
    entries = [
        write_shard(
            path / f"silo_{silo:04d}.h5",
            {"train": (x, y)},
            silo=silo,
            name=f"ward {silo}",
            features=seen,
            classes=classes,
        )
        for silo, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    FederationSpec(
        name="real",
        features=seen,
        classes=classes,
        seed=0,
        scheme={"name": "iid"},
        source={"name": "npz"},
        silos=entries,
        **more,
    ).write(path)
    return path


SHAPES = [(1, 1), (2, 2), (12, 12), (13, 3), (400, 10), (7, 120)]


@pytest.mark.parametrize(("silos", "classes"), SHAPES)
def test_a_page_is_whole_in_itself_and_well_formed(silos, classes):
    counts = np.random.default_rng(0).integers(0, 90, (silos, classes))
    text = page(summary(counts.tolist()))
    reader = Reader(text)
    assert not {"link", "iframe", "object", "form", "a"} & {tag for tag, _ in reader.tags}
    sources = [
        value for _, given in reader.tags for key, value in given.items() if key in ("src", "href", "srcset")
    ]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    check_whole(text)
    metas = [given for tag, given in reader.tags if tag == "meta"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in metas
    assert ("clinic 0" in reader.text, f"clinic {silos - 1}" in reader.text) == (True, True)


def test_names_are_text_and_no_markup():
    odd = "<script>alert(1)</script>&\"'"
    spec = described([[1, 2], [3, 4]], odd, class_names=["<b>", "x"])
    spec = spec.model_copy(update={"silos": [entry.model_copy(update={"name": odd}) for entry in spec.silos]})
    once = FolderSummary(spec, np.array([[1, 2], [3, 4]]))
    reader = Reader(page(once))
    assert "b" not in [tag for tag, _ in reader.tags]
    check_whole(page(once))
    assert odd in "".join(reader.text)


def test_the_heat_map_is_to_scale():
    text = page(summary([[9, 0, 1], [0, 10, 0]]))
    image = next(given["href"] for tag, given in Reader(text).tags if tag == "image")
    pixels = decoded(bytes_of(image))
    shares = np.array([[0.9, 0, 0.1], [0, 1, 0]]).T[::-1]
    assert np.array_equal(pixels, coloured(shares, BLUES))
    assert (pixels[1, 1] == BLUES[-1]).all()
    assert (pixels[0, 1] == BLUES[0]).all()
    assert BLUES[0][3] == DIVERGING[2][3] == 0, "nothing is as dark or light as the page"
    for ground in ((255, 255, 255), (24, 31, 38)):
        for colour in (BLUES[-1], DIVERGING[0], DIVERGING[-1]):
            assert contrast(colour, ground) > 3
    assert contrast(WORST_TO_BEST[0], (24, 31, 38)) > 3, "the worst silo stands out in the dark"


def contrast(*colours):
    """Return the contrast of two colours (WCAG 2), alike colours having 1."""
    linear = [
        ((np.array(one[:3]) / 255 + 0.055) / 1.055) ** 2.4 @ (0.2126, 0.7152, 0.0722) for one in colours
    ]
    return (max(linear) + 0.05) / (min(linear) + 0.05)


@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0))
@settings(max_examples=20, deadline=None)
def test_images_come_back(height, width, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    assert np.array_equal(decoded(encoded(pixels)), pixels)


def test_matplotlib_reads_the_images(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    (tmp_path / "p.png").write_bytes(encoded(pixels))
    assert np.array_equal(np.rint(255 * image.imread(tmp_path / "p.png")[..., :3]), pixels)


@pytest.mark.parametrize("piece", [1, 10, 1 << 20])
@pytest.mark.parametrize("kept", [10, 1 << 20])
def test_features_are_those_of_the_shards_as_a_model_sees_them(tmp_path, monkeypatch, piece, kept):
    monkeypatch.setattr(features_module, "PIECE", piece)
    monkeypatch.setattr(features_module, "MOST_KEPT", kept)
    rng = np.random.default_rng(0)
    xs = [rng.integers(0, 200, (n, 1, 3, 4)).astype(np.uint8) for n in (40, 7)]
    folder = folder_of(tmp_path / "f", xs, [np.arange(len(x)) % 3 for x in xs], scale=0.01, offset=-1.0)
    for x, found in zip(xs, summarise(folder, features=True).moments, strict=True):
        seen = x.reshape(len(x), -1) * 0.01 - 1
        assert found.overall() == pytest.approx((seen.mean(), seen.std()))
        if kept > 24:
            assert found.mean == pytest.approx(seen.mean(axis=0))
            assert found.deviation == pytest.approx(seen.std(axis=0))


@given(cuts=st.lists(st.integers(1, 49), max_size=5, unique=True), offset=st.sampled_from([0.0, 1e6]))
def test_moments_put_together_are_those_of_all(cuts, offset):
    x = np.random.default_rng(0).normal(offset, 2, (50, 3))
    together = total(moments_of(piece) for piece in np.split(x, sorted(cuts)))
    assert together.count == 50
    assert together.mean == pytest.approx(x.mean(axis=0))
    assert together.deviation == pytest.approx(x.std(axis=0), rel=1e-9)


def test_feature_skew_is_the_distance_of_the_formula():
    def silo(mean, deviation):
        # the second is constant
        return FeatureMoments(100, np.array([mean, 5.0]), np.array([deviation**2 * 100, 0.0]))

    # means -1 and 1, deviations 1: pooled deviation sqrt(2), each silo sqrt(1 + (sqrt(2) - 1)^2) from it
    assert feature_skew([silo(-1, 1), silo(1, 1)]) == pytest.approx(np.hypot(1, np.sqrt(2) - 1) / np.sqrt(2))
    assert feature_skew([silo(3, 2), silo(3, 2)]) == 0
    assert feature_skew([silo(3, 1), silo(3, 3)]) > 0.4
    assert feature_skew([silo(2, 0), silo(2, 0)]) == 0


def test_alike_silos_are_apart_by_chance_only():
    rng = np.random.default_rng(0)
    silos = [moments_of(rng.normal(size=(400, 30))) for _ in range(10)]
    assert feature_skew(silos) == pytest.approx(400**-0.5, rel=0.25)


def test_the_table_has_the_features_and_the_page_their_figures(tmp_path, capsys):
    rng = np.random.default_rng(0)
    xs = [rng.normal(silo, 1, (30, 4)).astype(np.float32) for silo in range(3)]
    names = ["age", "height", "<sex>", "dose"]
    folder = folder_of(tmp_path / "f", xs, [np.arange(30) % 3] * 3, feature_names=names)
    assert command("inspect", folder, "--features", "--page", tmp_path / "p.html") == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "│ height" in line).split("│")
    pooled, means = np.concatenate(xs)[:, 1].astype(float), [x[:, 1].mean(dtype=float) for x in xs]
    figures = [
        f"{pooled.mean():.4g}",
        f"{pooled.std():.4g}",
        f"{means[0]:.4g} ward 0",
        f"{means[2]:.4g} ward 2",
    ]
    assert [cell.strip() for cell in row[2:-1]] == figures
    assert "mean" not in out.splitlines()[2], "of columns in units of their own there is no mean of all"
    assert "Feature skew" in out
    text = "".join(Reader((tmp_path / "p.html").read_text()).text)
    assert all(name in text for name in names)
    assert "Features, one by one" in text
    assert all(figure in text for figure in figures)
    assert "as a model sees them" not in text
    bare = folder_of(tmp_path / "g", xs, [np.arange(30) % 3] * 3)
    assert command("inspect", bare, "--features") == 0
    out = capsys.readouterr().out
    row = [cell.strip() for cell in next(line for line in out.splitlines() if "ward 1" in line).split("│")]
    assert {f"{xs[1].mean(dtype=float):.4g}", f"{xs[1].std(dtype=float):.4g}"} < {*row}


def test_texts_have_tokens_and_no_labels(tmp_path, capsys):
    for site, lines in (("a", 60), ("b", 90)):
        (tmp_path / "d" / site).mkdir(parents=True)
        (tmp_path / "d" / site / "one.txt").write_text(
            "the cat sat on the mat and ran over the hills\n" * lines
        )
    out = tmp_path / "s"
    cut = ("partition", "text", "--data", tmp_path / "d", "--out", out, "--scheme", "natural")
    assert command(*cut, "--option", "length=10") == 0
    spec = read_federation(out)
    many = [f"{10 * entry.examples['train']:,}" for entry in spec.silos]
    capsys.readouterr()
    assert command("inspect", out, "--page", tmp_path / "p.html") == 0
    said, text = capsys.readouterr().out, (tmp_path / "p.html").read_text()
    assert "<th>tokens</th>" in text
    assert "abels" not in text, "the next tokens of a text are no classes that silos have or lack"
    assert "Label divergence" not in said + text
    assert all(f"<td>{number}</td>" in text and number in said for number in many)


def test_tokens_have_no_mean(tmp_path, capsys):
    xs = [np.ones((5, 2), np.uint8)] * 2
    folder = folder_of(tmp_path / "f", xs, [np.zeros(5, int)] * 2)
    assert command("inspect", folder, "--features", "--page", tmp_path / "p.html") == 0
    assert "features are uint8 without a scale: tokens to a model" in capsys.readouterr().out
    assert "Features" not in (tmp_path / "p.html").read_text()


def test_without_features_no_shard_is_opened(tmp_path, capsys):
    xs = [np.ones((5, 2))] * 2
    folder = folder_of(tmp_path / "f", xs, [np.zeros(5, int)] * 2)
    (folder / "silo_0001.h5").unlink()
    assert command("inspect", folder, "--page", tmp_path / "p.html") == 0
    assert command("inspect", folder, "--features") == 2
    assert "silo_0001.h5" in capsys.readouterr().err


def test_two_folders_are_compared(tmp_path, capsys):
    for name, counts in (("a", [[30, 0], [0, 30]]), ("b", [[20, 20], [20, 20], [5, 5]])):
        (tmp_path / name).mkdir()
        described(counts, f"folder {name}").write(tmp_path / name)
    assert command("inspect", tmp_path / "a", tmp_path / "b") == 0
    out = capsys.readouterr().out
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:5]]
        for line in out.splitlines()
        if "│" in line
    }
    assert rows["Silos"] == ["2", "3", "+1"]
    assert rows["Smallest silo"] == ["30", "10", "-20"]
    assert rows["Size skew, Gini coefficient of the training sets"] == ["0.0000", "0.2222", "+0.2222"]
    assert rows["Label distance, mean earth mover's (total variation) distance"] == [
        "0.5000",
        "0.0000",
        "-0.5000",
    ]


FAULTS = {
    "ending": (["a", "--page", "p.pdf"], "--page p.pdf: ends in '.pdf'"),
    "folder": (["a", "--page", "no/where/p.html"], "--page no/where/p.html: cannot be written"),
    "two": (["a", "a", "--page", "p.html"], "--page p.html: is of one folder; two are compared here"),
    "three": (["a", "a", "a"], "DIR: 3 folders given"),
    "second": (["a", "b"], "b/federation.json: is not there"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_page_or_folder_is_named(tmp_path, capsys, monkeypatch, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    described([[1, 2]]).write(tmp_path / "a")
    words, said = FAULTS[fault]
    assert command("inspect", *words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_page_shows_groups_and_says_no_word_of_python(tmp_path):
    rows = [f"{n % 30},{n / 7},{'pq'[n % 2]}" for n in range(120)]
    (tmp_path / "t.csv").write_text("\n".join(["who,a,y", *rows]) + "\n")
    (tmp_path / "t.toml").write_text('group = "who"\nlabel = "y"\n[features]\na = "numeric"\n')
    words = ["partition", "csv", "--data", tmp_path / "t.csv", "--out", tmp_path / "o", "--scheme", "iid"]
    assert command(*words, "--silos", 3, "--test", 0.2) == 0
    assert command("inspect", tmp_path / "o", "--page", tmp_path / "o.html") == 0
    text = (tmp_path / "o.html").read_text()
    silos = summarise(tmp_path / "o").spec.silos
    many = {split: sum(entry.groups[split] for entry in silos) for split in ("train", "test")}
    each = f"{many['train']} train, {many['test']} test"
    assert f"Groups of who: 30, with 4 rows each on average: {each}" in text
    assert "<th>training examples</th><th>test examples</th><th>train groups</th><th>test groups</th>" in text
    owned = [(entry.examples["test"], entry.groups["train"], entry.groups["test"]) for entry in silos]
    assert all("".join(f"<td>{number}</td>" for number in of) in text for of in owned)
    assert not re.search(r"\b(True|False|None)\b", text)


def test_a_page_has_the_warnings_of_the_terminal(tmp_path, capsys):
    resized = "7 of 9 masks are resized to 8x8: <scores> are of masks of this size"
    source = {"name": "npz", "notes": {"sizes": resized}}
    (tmp_path / "a").mkdir()
    described([[40, 40]]).model_copy(update={"source": source}).write(tmp_path / "a")
    assert command("inspect", tmp_path / "a", "--page", tmp_path / "a.html") == 0
    printed = " ".join(capsys.readouterr().out.split())
    shown = "".join(Reader((tmp_path / "a.html").read_text()).text)
    assert all(f"Warning: {resized}" in text for text in (printed, shown))


def test_what_the_shards_show_is_told_on_the_page_too(tmp_path, capsys):
    rows = [f"{n % 40},{n / 7},{'pq'[n % 2]}" for n in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["who,a,y", *rows]) + "\n")
    (tmp_path / "t.toml").write_text('id = "who"\nlabel = "y"\n[features]\na = "numeric"\n')
    words = ["partition", "csv", "--data", tmp_path / "t.csv", "--out", tmp_path / "o", "--scheme", "iid"]
    assert command(*words, "--silos", 2, "--test", 0.5) == 0
    capsys.readouterr()
    assert command("inspect", tmp_path / "o", "--features", "--page", tmp_path / "o.html") == 0
    printed = " ".join(capsys.readouterr().out.split())
    shown = "".join(Reader((tmp_path / "o.html").read_text()).text)
    said = "ids of held-out rows are also trained on; if an id is a person's, keep its rows together: --group"
    assert (said in printed, said in shown) == (True, True)
