"""The four hospitals: what a model sees of them,
that no held-out row has a part in it, and what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.heart import HOSPITALS, read_heart
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation

REAL = Path(os.environ.get("MPIFL_DATA", "no-data-folder")) / "heart-disease"
ROW = "63.0,1.0,4.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,?,?,?,3"
OTHER = "28,0,1,130,132,0,0,185,1,.5,1,?,7,0"


def write(folder, **more):
    """Write four hospitals of a few rows; `more` replaces the lines of some."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in HOSPITALS:
        drawn = rng.integers((30, 0, 1, 90, 0, 0, 70, 0, 0), (70, 2, 5, 180, 2, 3, 190, 2, 5), (20, 9))
        rows = ["{},{},{},{},200.5,{},{},{},{},-1.5,?,?,?,{}".format(*row) for row in drawn]
        (folder / f"processed.{name}.data").write_text("\n".join(more.get(name, rows)) + "\n")
    return folder


def partition(data, out, *more):
    words = ("partition", "heart-disease", "--data", data, "--out", out, "--scheme", "natural", *more)
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.mark.skipif(not REAL.is_dir(), reason="set MPIFL_DATA to a folder that has heart-disease/")
def test_the_real_hospitals_have_flambys_rows_and_labels(tmp_path):
    assert partition(REAL, tmp_path / "out", "--test", 0.34, "--seed", 7) == 0
    spec = read_federation(tmp_path / "out")
    assert [entry.name for entry in spec.silos] == list(HOSPITALS)
    splits = [open_shard(tmp_path / "out", entry, spec) for entry in spec.silos]
    held = [(len(split["train"].y), len(split["test"].y)) for split in splits]
    assert held == [(200, 103), (173, 88), (31, 15), (86, 44)]
    assert (spec.classes, spec.features.shape, spec.features.dtype, spec.test) == (2, (13,), "float32", None)


@pytest.mark.skipif(not REAL.is_dir(), reason="set MPIFL_DATA to a folder that has heart-disease/")
def test_the_files_hold_the_diagnoses_that_their_publisher_counts():
    found = []
    for name in HOSPITALS:
        last = [line.split(",")[-1] for line in (REAL / f"processed.{name}.data").read_text().split()]
        found.append((len(last), sum(int(value) > 0 for value in last)))
    assert found == [(303, 139), (294, 106), (123, 115), (200, 149)]
    data = read_heart(REAL, 0)
    complete = [int(data.y[data.silo == k].sum()) for k in range(4)]
    assert complete == [139, 98, 45, 101]
    assert [int((data.silo == k).sum()) for k in range(4)] == [303, 261, 46, 130]


def test_training_rows_have_mean_0_and_deviation_1_and_held_out_rows_no_part_in_that(tmp_path):
    folder = write(tmp_path / "in")
    assert partition(folder, tmp_path / "out", "--test", 0.34, "--seed", 3) == 0
    spec = read_federation(tmp_path / "out")
    train = np.concatenate([open_shard(tmp_path / "out", entry, spec)["train"].x for entry in spec.silos])
    varied = np.ptp(train, axis=0) > 0
    assert np.flatnonzero(~varied).tolist() == [6, 12]  # chol and oldpeak, the same in all rows
    assert train.mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-6)
    assert train.std(axis=0)[varied] == pytest.approx(np.ones(11), abs=1e-6)


def test_with_flamby_each_hospital_is_standardised_by_its_own_rows_that_it_does_not_hold_out(
    tmp_path, capsys
):
    folder, out = write(tmp_path / "in", switzerland=[ROW] * 19 + [OTHER]), tmp_path / "out"
    assert partition(folder, out, "--flamby", "--test", 0.34) == 2
    assert "--test: 0.34 given, but the source itself says what is for testing" in capsys.readouterr().err
    assert partition(folder, out, "--flamby") == 0
    spec = read_federation(out)
    for entry in spec.silos:
        assert entry.examples == {"train": 13, "test": 7}
        train = open_shard(out, entry, spec)["train"].x
        varied = np.ptp(train, axis=0) > 0
        assert train.mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-6)
        assert train.std(axis=0, ddof=1)[varied] == pytest.approx(np.ones(varied.sum()), abs=1e-6)


def test_categories_become_columns_of_zeros_and_ones_but_the_lowest(tmp_path):
    one = [ROW] * 3 + [OTHER] * 3
    x = read_heart(write(tmp_path / "in", **dict.fromkeys(HOSPITALS, one)), 0).x
    high, low = x[0], x[3]
    assert x.shape == (24, 13)
    assert [bool(difference) for difference in high != low] == [
        *[True, True],  # age, sex
        *[False, False, True],  # cp = 2, 3, 4: one row has 4, the other 1
        *[True, True, True],  # trestbps, chol, fbs
        *[False, True],  # restecg = 1, 2: one row has 2, the other 0
        *[True, True, True],  # thalach, exang, oldpeak
    ]


def test_incomplete_rows_are_left_out_and_the_label_is_disease_or_none(tmp_path):
    lacking = ROW.replace("145.0", "?")
    data = read_heart(write(tmp_path / "in", va=[ROW, lacking, OTHER, ROW]), 0)
    assert data.y[data.silo == HOSPITALS.index("va")].tolist() == [1, 0, 1]
    assert np.isfinite(data.x).all()


def test_incomplete_rows_are_told_by_column_and_hospital(tmp_path, capsys):
    lacking = ROW.replace("145.0,233.0", "?,?")
    folder = write(tmp_path / "in", va=[ROW, lacking, OTHER, OTHER.replace("28,0", "28,?")])
    assert partition(folder, tmp_path / "out") == 0
    spec = read_federation(tmp_path / "out")
    rows = sum(sum(entry.examples.values()) for entry in spec.silos) + 2
    told = {"rows": 2, "of": rows, "columns": {"sex": 1, "trestbps": 1, "chol": 1}, "silos": {"va": 2}}
    assert spec.source["dropped"] == told
    said = f"warning: 2 of {rows:,} rows were left out because a value is missing: chol 1, sex 1, trestbps 1"
    assert f"{said}; by silo: va 2" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_bytes_and_another_other_statistics(tmp_path):
    folder = write(tmp_path / "in")
    first, again, other = (read_heart(folder, seed) for seed in (1, 1, 2))
    assert first.x.tobytes() == again.x.tobytes()
    assert first.x.tobytes() != other.x.tobytes()
    assert first.files == again.files
    assert set(first.files) == {f"processed.{name}.data" for name in HOSPITALS}


FAULTS = {
    "truncated": ([ROW, ROW[:40]], "line 2: 9 values, there must be 14"),
    "ragged": ([ROW + ",1"], "line 1: 15 values"),
    "a word": ([ROW.replace("233.0", "high")], "line 1: chol is 'high'"),
    "nothing": ([ROW.replace("233.0", "")], "line 1: chol is ''"),
    "infinite": ([ROW.replace("233.0", "inf")], "line 1: chol is 'inf'"),
    "nan": ([ROW.replace("233.0", "nan")], "line 1: chol is 'nan'"),
    "sex": ([OTHER, ROW.replace("63.0,1.0", "63.0,2.0")], "line 2: sex is 2; it must be one of 0, 1"),
    "cp": ([ROW.replace("4.0,145", "5.0,145")], "line 1: cp is 5"),
    "diagnosis": ([ROW[:-1] + "5"], "line 1: diagnosis is 5; it must be one of 0, 1, 2, 3, 4"),
    "no diagnosis": ([ROW[:-1] + "?"], "line 1: diagnosis is missing"),
    "cut in the diagnosis": ([ROW[:-1]], "line 1: diagnosis is ''"),
    "no complete row": ([ROW.replace("63.0", "?")], "has no row without a '?'"),
    "empty": ([], "has no row without a '?'"),
    "not text": (["\u0142"], "is not a text"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_row_is_named(tmp_path, capsys, fault):
    lines, said = FAULTS[fault]
    folder = write(tmp_path / "in", hungarian=lines)
    assert partition(folder, tmp_path / "out") == 2
    captured = capsys.readouterr()
    assert f"{folder / 'processed.hungarian.data'}: {said}" in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_named(tmp_path, capsys):
    folder = write(tmp_path / "in")
    (folder / "processed.va.data").unlink()
    assert partition(folder, tmp_path / "out") == 2
    assert "processed.va.data: cannot be read (No such file or directory)" in capsys.readouterr().err


def test_the_folder_may_come_from_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "heart-disease")
    monkeypatch.setenv("MPIFL_DATA", str(tmp_path))
    assert len(read_heart(None, 0)) == 80
    monkeypatch.delenv("MPIFL_DATA")
    with pytest.raises(InputError, match="--data: not given"):
        read_heart(None, 0)
