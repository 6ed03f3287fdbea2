"""What a training leaves to a script."""

import sys

import pytest
from unit.report.test_compare_page import settings_of
from unit.report.test_evaluate import make_run

from mpifl import Run, Sweep
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
    with pytest.raises(InputError, match=r"needs pandas; pip install pandas, or use Run\.metrics"):
        trained[0].frame()


@pytest.fixture
def sweep(tmp_path):
    """Two settings of a list, with two seeds each, and a folder that is no run."""
    for nth, hidden in enumerate(([8], [8, 8])):
        model = {"name": "mlp", "hidden": hidden}
        settings_of(tmp_path / "sweep", [0.8 + nth / 10, 0.82 + nth / 10], model=model, name=f"m{nth}")
        for run in list((tmp_path / "sweep").glob("0-*")):
            run.rename(run.with_name(f"{nth + 1}-{run.name[2:]}"))
    broken = tmp_path / "sweep" / "broken"
    broken.mkdir()
    (broken / "job.toml").touch()
    return Sweep.of(tmp_path / "sweep")


def test_a_sweep_is_a_frame_with_a_row_for_each_run(sweep):
    pytest.importorskip("pandas")
    frame = sweep.frame()
    assert frame.index.tolist() == ["1-1", "1-2", "2-1", "2-2"]
    assert frame["model.hidden"].tolist() == [[8], [8], [8, 8], [8, 8]]
    assert frame["seed"].tolist() == [1, 2, 1, 2]
    assert frame["algorithm.name"].tolist() == ["fedavg"] * 4
    assert frame["judged"].tolist() == frame["test_accuracy"].tolist()
    assert set(frame["judged_by"]) == {"accuracy on the server's test set, after round 2"}
    assert frame["test_accuracy"].tolist() == pytest.approx([0.8, 0.82, 0.9, 0.92])
    assert frame.groupby("setting")["test_accuracy"].mean().tolist() == pytest.approx([0.91, 0.81])
    assert frame["setting_behind"].tolist() == pytest.approx([0.1, 0.1, 0, 0])
    assert sweep.frame(target=0.81)["rounds_to_target"].fillna(0).tolist() == [0, 2, 2, 2]
    assert list(sweep.left_out) == [sweep.folder / "broken"]


def test_a_sweep_is_a_frame_with_a_row_for_each_round_of_each_run(sweep):
    pytest.importorskip("pandas")
    frame = sweep.frame(rounds=True)
    assert frame.index.names == ["run", "round"]
    assert frame.loc[("2-1", 1), "test_accuracy"] == pytest.approx(0.45)
    assert frame["model.hidden"].tolist() == [[8]] * 4 + [[8, 8]] * 4
    assert frame["local.lr"].tolist() == [0.1] * 8, "told always"
    assert sorted(frame.groupby("setting").groups) == sorted({*sweep.frame()["setting"]})
    assert "local.epochs" not in frame, "all runs have the same"


def test_sweeps_in_a_folder_are_taken_too(tmp_path, sweep):
    pytest.importorskip("pandas")
    settings_of(tmp_path / "deep" / "other", [0.7])
    settings_of(tmp_path, [0.6])
    found = Sweep.of(tmp_path)
    names = ["0-1", "deep/other/0-1", "sweep/1-1", "sweep/1-2", "sweep/2-1", "sweep/2-2"]
    assert found.frame().index.tolist() == names
    assert list(found.left_out) == [sweep.folder / "broken"]


def test_a_folder_without_a_run_is_no_sweep(tmp_path, sweep, monkeypatch):
    with pytest.raises(InputError, match="name the folder of a run"):
        Sweep.of(sweep.folder / "broken")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert [row["seed"] for row in sweep.rows()] == [1, 2, 1, 2]
    with pytest.raises(InputError, match=r"Sweep.frame needs pandas; .* or use Sweep\.rows\(\)"):
        sweep.frame()
