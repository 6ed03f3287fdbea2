"""What `check` finds: one planted fault, one finding; and nothing in a folder that is as it should be."""

import json
import shutil

import h5py
import numpy as np
import pytest

from data_prep.check import checking
from data_prep.check.checking import Finite
from data_prep.check.duplicates import Hashes, duplicates
from data_prep.cli import main
from mpifl.common.files import sha256_of
from mpifl.data.shards.shards import Features, FederationSpec, read_federation
from scripts.write_shard import write_shard

FEATURES = Features(shape=(3,), dtype="float32")


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def rows(n, seed):
    rng = np.random.default_rng(seed)
    return rng.random((n, 3)).astype("f4"), np.arange(n) % 2


def write(folder, change=lambda arrays: None):
    """Write two silos with a validation split and a test set of the server's;
    `change` may plant something."""
    folder.mkdir()
    arrays = {
        "silo_0000.h5": {"train": rows(30, 0), "valid": rows(5, 1)},
        "silo_0001.h5": {"train": rows(20, 2)},
        "test.h5": {"test": rows(9, 3)},
    }
    change(arrays)
    entries = []
    for silo, (file, splits) in enumerate(arrays.items()):
        number = None if file == "test.h5" else silo
        common = {"silo": number, "name": file, "features": FEATURES, "classes": 2}
        entries.append(write_shard(folder / file, splits, **common))
    origin = {"seed": 0, "scheme": {}, "source": {}}
    spec = FederationSpec(
        name="n", features=FEATURES, classes=2, silos=entries[:2], test=entries[2], **origin
    )
    spec.write(folder)
    return folder


def found(folder, capsys, *more):
    """Return exit code and findings."""
    capsys.readouterr()
    code = command("check", folder, "--json", *more)
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == any(one["severity"] == "fault" for one in findings)
    return code, [(one["file"], one["kind"], one["what"]) for one in findings]


def test_a_folder_as_it_should_be_has_no_findings(tmp_path, capsys):
    assert found(write(tmp_path / "f"), capsys) == (0, [])
    assert command("check", tmp_path / "f") == 0
    assert "2 silos, nothing wrong" in capsys.readouterr().out


def copy(source, target, n=1, other_label=False):
    """Plant the first n examples of one split in another."""

    def change(arrays):
        (x, y), (file, split) = arrays[source[0]][source[1]], target
        there_x, there_y = arrays[file][split]
        there_x[3 : 3 + n], there_y[3 : 3 + n] = x[:n], 1 - y[:n] if other_label else y[:n]

    return change


A, V, B, T = (
    ("silo_0000.h5", "train"),
    ("silo_0000.h5", "valid"),
    ("silo_0001.h5", "train"),
    ("test.h5", "test"),
)


def set_row(value):
    def change(arrays):
        arrays[A[0]][A[1]][0][[7, 9], 1] = value

    return change


PLANTED = {
    "in a split": (
        copy(A, A),
        ("silo_0000.h5", "duplicates", "1 example more than once, first train 0 = train 3"),
    ),
    "in two splits": (
        copy(A, V, 2),
        ("silo_0000.h5", "held out", "2 examples trained on here are held out too, first train 0 = valid 3"),
    ),
    "in two silos": (
        copy(A, B, 4),
        ("silo_0000.h5", "duplicates", "4 examples also in silo_0001.h5, first train 0 = train 3 there"),
    ),
    "in the test set": (
        copy(B, T),
        (
            "silo_0001.h5",
            "held out",
            "1 example trained on here is held out in test.h5, first train 0 = test 3 there",
        ),
    ),
    "NaN": (
        set_row(np.nan),
        ("silo_0000.h5", "not finite", "train: 2 examples have NaN or infinite features, the first is 7"),
    ),
    "infinite": (
        set_row(-np.inf),
        ("silo_0000.h5", "not finite", "train: 2 examples have NaN or infinite features, the first is 7"),
    ),
}


@pytest.mark.parametrize(
    ("whose", "sites", "severity"),
    [
        (["group"], False, "warning"),
        (["id"], False, "warning"),
        (["group", "id"], True, "warning"),
        (["group"], True, "fault"),
        (["id"], "the same", "fault"),
    ],
)
def test_equal_rows_of_different_persons_are_no_fault(tmp_path, capsys, whose, sites, severity):
    """Sites number their groups each for itself, so ids alone tell persons of two sites apart, if these
    differ."""
    for name, first in (("t", 0), ("u", 0 if sites == "the same" else 24)):
        rows = "".join(f"p{n},{n % 3},{n % 2}\n" for n in range(first, first + 24))
        (tmp_path / f"{name}.csv").write_text(f"person,dose,ill\n{rows}")
    spec = "".join(f'{key} = "person"\n' for key in whose)
    (tmp_path / "t.toml").write_text(f'label = "ill"\n{spec}[features]\ndose = "numeric"\n')
    words = ["partition", "csv", "--data", tmp_path / "t.csv", "--scheme", "iid", "--silos", 2]
    if sites:
        words = ["sites", tmp_path / "t.csv", tmp_path / "u.csv"]
    for command in (
        [*words, "--spec", tmp_path / "t.toml", "--test", 0.25, "--out", tmp_path / "o"],
        ["check", tmp_path / "o", "--json"],
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*map(str, command)])
    assert bool(ended.value.code) is (severity == "fault")
    found = json.loads(capsys.readouterr().out)["findings"]
    held = [one for one in found if one["kind"] == "held out" and " there" in one["what"]]
    assert {one["severity"] for one in held} == {severity}
    assert all(one["what"].endswith("; of different persons") is (severity == "warning") for one in held)


@pytest.mark.parametrize("piece", [1 << 24, 40])
@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_wrong_with_the_examples_is_found_whatever_the_pieces(
    tmp_path, capsys, monkeypatch, fault, piece
):
    monkeypatch.setattr(checking, "PIECE", piece)
    plant, finding = PLANTED[fault]
    folder = write(tmp_path / "f", plant)
    assert found(folder, capsys) == (finding[1] != "duplicates", [finding])
    if finding[1] in ("duplicates", "held out"):
        assert found(folder, capsys, "--no-duplicates") == (0, [])


def test_the_same_features_with_another_label_are_no_duplicate(tmp_path, capsys):
    assert found(write(tmp_path / "f", copy(A, B, 3, other_label=True)), capsys) == (0, [])


def test_large_numbers_are_finite(tmp_path, capsys):
    assert found(write(tmp_path / "f", set_row(np.finfo("f4").max)), capsys) == (0, [])


def flip(folder):
    path = folder / "silo_0001.h5"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")


def relabel(folder):
    """Change a label, and the description so that size and sha256 fit."""
    path = folder / "silo_0001.h5"
    with h5py.File(path, "r+") as file:
        file["train/y"][0] = 1
    spec = read_federation(folder)
    entry = spec.silos[1].model_copy(update={"sha256": sha256_of(path), "bytes": path.stat().st_size})
    spec.model_copy(update={"silos": [spec.silos[0], entry]}).write(folder)


FILES = {
    "missing": (lambda folder: (folder / "silo_0001.h5").unlink(), "silo_0001.h5", "missing", "is missing"),
    "cut short": (
        lambda folder: (folder / "silo_0001.h5").write_bytes(b"x"),
        "silo_0001.h5",
        "damaged",
        "1 bytes",
    ),
    "altered": (flip, "silo_0001.h5", "damaged", "sha256"),
    "another's": (
        lambda folder: shutil.copy(folder / "silo_0000.h5", folder / "silo_0001.h5"),
        "silo_0001.h5",
        "damaged",
        "bytes, federation.json says",
    ),
    "label counts": (
        relabel,
        "silo_0001.h5",
        "label counts",
        "label 0 occurs 9 times, federation.json says 10",
    ),
    "extra": (
        lambda folder: (folder / "silo_0007.h5").write_bytes(b"x"),
        "silo_0007.h5",
        "extra",
        "does not name it",
    ),
    "half-written": (
        lambda folder: (folder / ".partial-7").mkdir(),
        ".partial-7",
        "extra",
        "does not name it",
    ),
}


@pytest.mark.parametrize("fault", FILES)
def test_what_is_wrong_with_the_files_is_found(tmp_path, capsys, fault):
    harm, file, kind, said = FILES[fault]
    folder = write(tmp_path / "f")
    harm(folder)
    code, findings = found(folder, capsys)
    assert (code, [one[:2] for one in findings]) == (1, [(file, kind)])
    assert said in findings[0][2]
    assert command("check", folder) == 1
    out = capsys.readouterr().out
    assert kind in out
    assert "1 thing wrong" in out


def test_several_faults_are_all_found(tmp_path, capsys):
    folder = write(tmp_path / "f", lambda arrays: (set_row(np.nan)(arrays), copy(A, T)(arrays)))
    (folder / "silo_0001.h5").unlink()
    code, findings = found(folder, capsys)
    assert (code, [one[1] for one in findings]) == (1, ["not finite", "missing", "held out"])


def test_a_folder_that_is_none_is_an_unusable_argument(tmp_path, capsys):
    assert command("check", tmp_path / "nowhere") == 2
    assert "federation.json: is not there" in capsys.readouterr().err


def test_hashes_find_what_a_dictionary_finds():
    rng = np.random.default_rng(0)
    hashes, seen, twice = Hashes(), {}, 0
    for file in "abc":
        x, y = rng.integers(0, 5, (200, 3)).astype(np.uint8), rng.integers(0, 2, 200)
        for part in (slice(0, 80), slice(80, 200)):
            hashes.add(file, "train", x[part], y[part])
        for row, label in zip(x, y, strict=True):
            twice += (row.tobytes(), label) in seen
            seen[row.tobytes(), label] = file
    counts = [int(one.what.split()[0]) for one in duplicates(hashes)]
    assert twice > 50
    assert sum(counts) == twice


def test_many_pairs_are_counted():
    hashes = Hashes()
    for file in range(40):
        hashes.add(f"{file:02d}", "train", np.zeros((1, 2)), np.zeros(1, int))
    findings = list(duplicates(hashes))
    assert len(findings) == 21
    assert "19 more pairs of shards" in findings[-1].what


def test_equal_rows_are_warned_of_and_only_those_both_trained_on_and_held_out_are_faults(tmp_path, capsys):
    def change(arrays):
        copy(A, A)(arrays)  # train 0 = train 3 of silo 0
        for source, target in ((A, B), (A, T), (B, V)):
            copy(source, target)(arrays)
        x, y = arrays["test.h5"]["test"]
        x[5], y[5] = x[6], y[6] = x[3], y[3]  # three times in the test set

    folder = write(tmp_path / "f", change)
    code, findings = found(folder, capsys)
    assert code == 1
    assert findings == [
        (
            "silo_0000.h5",
            "held out",
            "3 examples trained on here are held out in test.h5, first train 0 = test 3 there",
        ),
        (
            "silo_0001.h5",
            "held out",
            "1 example trained on here is held out in silo_0000.h5, first train 0 = valid 3 there",
        ),
        ("silo_0000.h5", "duplicates", "1 example more than once, first train 0 = train 3"),
        ("silo_0000.h5", "duplicates", "1 example also in silo_0001.h5, first train 3 = train 3 there"),
    ]


def test_equal_rows_of_held_out_splits_alone_are_warned_of(tmp_path, capsys):
    folder = write(tmp_path / "f", copy(V, T))
    warning = ("silo_0000.h5", "duplicates", "1 example also in test.h5, first valid 0 = test 3 there")
    assert found(folder, capsys) == (0, [warning])
    assert command("check", folder) == 0
    assert "2 silos, nothing wrong, 1 warning" in " ".join(capsys.readouterr().out.split())


def test_features_beyond_float32_are_found_as_a_model_sees_them():
    x = np.ones((6, 2))
    x[[2, 5], 1] = 1e39, 1e30
    for scale, rows in ((None, [2]), (1e10, [2, 5])):
        finite = Finite(Features(shape=(2,), dtype="float64", scale=scale))
        finite(10, x)
        wanted = f"train: {len(rows)} examples have NaN or infinite features in float32, the first is 12"
        assert finite.what("train") == wanted
