"""FLamby's breast cancer patients: the rows, regions and split that its authors have, and what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest

from data_prep.sources.tcga_brca import REGIONS, read_tcga_brca
from mpifl.common.errors import InputError

REAL = Path(os.environ.get("MPIFL_DATA", "no-data-folder")) / "tcga-brca"
FILES = {
    "brca.csv": "pid,age,female,E,T\na,50,1,0.0,100.0\nb,60.5,0,1.0,20.0\nc,70,1,1.0,30.0\n",
    "train_test_split.csv": "pid,fold,fold2\nc,test,test_5\na,train,train_0\n",
}


def folder_of(folder, **other):
    folder.mkdir()
    for name, content in {**FILES, **{f"{key}.csv": value for key, value in other.items()}}.items():
        (folder / name).write_text(content)
    return folder


@pytest.mark.skipif(not REAL.is_dir(), reason="set MPIFL_DATA to a folder that has tcga-brca/")
def test_the_regions_hold_out_the_patients_that_flamby_does():
    data = read_tcga_brca(REAL, 0)
    sizes = [
        (int((~data.held[data.silo == k]).sum()), int(data.held[data.silo == k].sum())) for k in range(6)
    ]
    assert [data.silo_names[k] for k in range(6)] == list(REGIONS)
    assert sizes == [(248, 63), (156, 40), (164, 42), (129, 33), (129, 33), (40, 11)]
    assert data.x.shape == (1088, 39)
    assert data.done["dropped"]["rows"] == 8  # in no fold


def test_rows_are_found_by_their_patient_and_who_is_in_no_fold_is_left_out(tmp_path):
    data = read_tcga_brca(folder_of(tmp_path / "in"), 0)
    np.testing.assert_array_equal(data.x[:], np.array([[50, 1], [70, 1]], np.float32))
    assert data.y["time"].tolist() == [100, 30]
    assert data.y["event"].tolist() == [0, 1]
    assert data.held.tolist() == [False, True]
    assert [data.silo_names[k] for k in data.silo] == ["northeast", "canada"]
    assert data.done["dropped"] == {"rows": 1, "of": 3, "columns": {"fold2": 1}, "silos": {}}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"brca": FILES["brca.csv"].replace("50", "old")}, "brca.csv: age"),
        ({"brca": FILES["brca.csv"].replace("pid", "id", 1)}, "brca.csv: has no column 'pid'"),
        ({"train_test_split": "pid,fold,fold2\na,train,train_9\n"}, "patient a has fold2 = 'train_9'"),
        ({"train_test_split": "pid,fold\na,train\n"}, "has no column 'fold2'"),
        ({"brca": 'pid,E,T\na,"0,1'}, "brca.csv: not a table"),
        ({"brca": "pid,E,T\n"}, "brca.csv: has no column 'pid'"),
    ],
)
def test_what_is_no_such_file_is_told_in_a_line(tmp_path, other, said):
    with pytest.raises(InputError, match=said):
        read_tcga_brca(folder_of(tmp_path / "in", **other), 0)
    with pytest.raises(InputError, match=r"brca.csv: cannot be read"):
        read_tcga_brca(tmp_path, 0)
