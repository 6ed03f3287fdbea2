"""What a training leaves to a script."""

import sys

import pytest
from unit.report.test_evaluate import make_run

from mpifl import Run
from mpifl.common.errors import InputError
from mpifl.run.job import read_job


@pytest.fixture
def trained(tmp_path):
    run, records = make_run(tmp_path, test=9)
    return Run(run, read_job(run / "job.toml"), True), records


def test_metrics_are_a_frame_with_a_row_for_each_round(trained):
    pytest.importorskip("pandas")
    run, records = trained
    frame = run.frame()
    assert frame.index.tolist() == [1, 2]
    assert frame.index.name == "round"
    assert frame["test_accuracy"].tolist() == [record["test_accuracy"] for record in records]
    assert frame["silos.1.loss"].tolist() == [record["silos"]["1"]["loss"] for record in records]


def test_a_frame_of_no_rounds_is_empty(trained):
    pytest.importorskip("pandas")
    run, _ = trained
    (run.folder / "metrics.jsonl").write_text("")
    assert run.frame().empty


def test_without_pandas_a_line_says_what_to_install(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas; pip install pandas, or take Run\.metrics"):
        trained[0].frame()
