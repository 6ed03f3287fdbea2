"""What is made of runs' rounds: figures, tables, curves, files; and what is wrong with a folder."""

import contextlib
import csv
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from statistics import mean, stdev

import h5py
import numpy as np
import pytest
from unit.builders import CLASSES, FEATURES, write_folder

from mpifl.common.errors import InputError
from mpifl.learning import models
from mpifl.learning.metrics import MetricInfo
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.pages.run_page import write_report
from mpifl.report.pictures.curves import curve
from mpifl.report.pictures.picture import draw
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs, show_run
from mpifl.report.runs.run_summary import Summary, read_run
from mpifl.report.runs.seeds import groups
from mpifl.report.terminal.watched_run import watch_run
from mpifl.run.folder import checkpoint
from mpifl.run.folder.environment import note_lost, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run, describe
from mpifl.run.job.job import check_job
from mpifl.silo.parameters.flat_model import FlatModel

RECORDS = [
    {
        "round": 1,
        "train_loss": 2.0,
        "test_loss": 1.5,
        "test_accuracy": 0.5,
        "seconds": 1.0,
        "bytes_sent": 2e6,
        "bytes_received": 1e6,
    },
    {"round": 2, "train_loss": 1.5, "seconds": 2.0, "bytes_sent": 2e6, "bytes_received": 1e6},
    {
        "round": 3,
        "train_loss": 1.0,
        "test_loss": 0.5,
        "test_accuracy": 0.9,
        "seconds": 3.0,
        "bytes_sent": 2e6,
        "bytes_received": 1e6,
    },
    {
        "round": 4,
        "train_loss": 0.9,
        "test_loss": 0.625,
        "test_accuracy": 0.8125,
        "seconds": 4.0,
        "silo_accuracy_worst": 0.25,
        "silo_accuracy_std": 0.125,
    },
    {"round": 5, "train_loss": 0.8, "seconds": 5.0},
]


def write(folder, records=RECORDS):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    return folder


def table_of(printed):
    """Return the rows of a printed table, its headings first, as lists of cells."""
    lines = [line for line in printed.splitlines() if line.startswith(("┃", "│"))]
    return [[cell.strip() for cell in line.strip("┃│ ").replace("│", "┃").split("┃")] for line in lines]


@pytest.fixture
def summary():
    return Summary(Path("run"), RECORDS)


def test_the_figures_are_those_of_the_last_round_that_was_evaluated(summary):
    assert summary.of_model["round"] == 4
    assert summary.figure("test_accuracy") == 0.8125
    assert summary.figure("silo_accuracy_worst") == 0.25
    assert summary.figure("no such figure") is None
    assert summary.best() == 0.9


def test_a_round_that_was_judged_on_all_that_silos_hold_out_was_evaluated():
    summary = Summary(Path("run"), [{"round": 1, "silo_accuracy_pooled": 0.5}, {"round": 2}])
    assert summary.figures(None)["silo_accuracy_pooled"] == 0.5


def test_a_run_that_was_never_evaluated_is_told_by_its_last_round():
    summary = Summary(Path("run"), [{"round": 1}, {"round": 2, "train_loss": 1.0}])
    assert summary.of_model["round"] == 2
    assert summary.best() is None
    assert summary.figure("test_accuracy") is None
    assert summary.reached(0.0) is None


def test_totals_add_up_over_rounds_and_up_to_one(summary):
    assert summary.total("seconds") == 15.0
    assert summary.total("bytes_sent", "bytes_received") == 9e6
    assert summary.total("seconds", until=3) == 6.0
    assert summary.total("bytes_sent", until=2) == 4e6


@pytest.mark.parametrize(("target", "round"), [(0.5, 1), (0.51, 3), (0.9, 3), (0.91, None)])
def test_a_target_is_reached_in_the_first_round_that_has_it(summary, target, round):
    assert summary.reached(target) == round


def test_a_folder_without_rounds_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"no rounds in metrics\.jsonl; name the folder of a run"):
        read_run(tmp_path)


def test_a_comparison_has_a_row_for_every_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compare_runs([write(Path("a")), write(Path("b"), RECORDS[:2])], 0.9)
    out = capsys.readouterr().out
    headings, one, other = table_of(out)
    found = dict(zip(headings, one, strict=True))
    assert "Figures: accuracy on the server's test set; a silo's figures are on its held-out examples." in out
    assert found == {
        "run": "a",
        "rounds": "5",
        "accuracy": "81.25%",
        "best": "90.00%",
        "loss": "0.6250",
        "worst silo": "25.00%",
        "variance": "156.25",
        "seconds": "15.0",
        "sent": "6 MB",
        "received": "3 MB",
        "to 90%": "3 rounds, 6.0 s, 9 MB",
    }
    assert other[:3] + other[-1:] == ["b", "2", "50.00%", "not reached in 2 rounds"]
    assert other[5] == "-"


def test_a_target_is_named_to_the_digit_that_was_given(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compare_runs([write(Path("a"))], 0.975)
    assert table_of(capsys.readouterr().out)[0][-1] == "to 97.5%"


def test_a_comparison_without_a_target_has_no_column_for_it(tmp_path, capsys):
    compare_runs([write(tmp_path / "a")])
    assert table_of(capsys.readouterr().out)[0][-1] == "received"


def test_a_run_without_test_accuracy_is_compared_by_its_silos(tmp_path, capsys):
    blind = [{k: v for k, v in record.items() if not k.startswith("test")} for record in RECORDS]
    blind[3]["silo_accuracy_mean"] = 0.5
    compare_runs([write(tmp_path / "a", blind), write(tmp_path / "b")], 0.9)
    headings, one, _ = table_of(capsys.readouterr().out)
    found = dict(zip(headings, one, strict=True))
    assert (found["accuracy"], found["worst silo"], found["to 90%"]) == ("-", "25.00%", "-")


@pytest.mark.parametrize("target", [97, 0, -0.5])
def test_a_target_that_is_no_share_is_refused(tmp_path, target):
    with pytest.raises(InputError, match=r"--target-accuracy .*: is a share .* 0\.97 is 97%"):
        compare_runs([write(tmp_path / "a")], target)


@pytest.mark.parametrize("target", [math.nan, math.inf])
def test_a_target_that_is_not_finite_is_refused(tmp_path, target):
    run = make_run(tmp_path / "run")
    write_environment(run, metric={"name": "rmse", "higher_is_better": False})
    with pytest.raises(InputError, match=r"--target (nan|inf): is not a value of a metric"):
        compare_runs([run], target, Output(json=tmp_path / "out.json"))


def test_the_target_is_that_of_the_jobs_if_they_agree(tmp_path, capsys):
    runs = [
        make_run(tmp_path / str(n), evaluate={"target_accuracy": t}) for n, t in enumerate((0.9, 0.9, 0.8))
    ]
    compare_runs(runs[:2])
    assert table_of(capsys.readouterr().out)[0][-1] == "to 90%"
    compare_runs(runs)
    assert table_of(capsys.readouterr().out)[0][-1] == "received"


def make_run(folder, records=RECORDS, finished=True, **more):
    """Write a run folder with a job; the run is finished if it has a model."""
    folder.mkdir(parents=True)
    claim_run(folder, make_job(folder, **{"rounds": records[-1]["round"], **more}))
    job = folder / "job.toml"
    job.write_text(job.read_text().replace(f'shards = "{folder}/shards"', 'shards = "s"'))
    if finished:
        (folder / "model.safetensors").write_bytes(b"")
    return write(folder, records)


def scaled(factor):
    return [{k: v * factor if k == "test_accuracy" else v for k, v in record.items()} for record in RECORDS]


def test_what_is_wrong_with_a_run_is_said(tmp_path):
    whole = make_run(tmp_path / "whole")
    assert (read_run(whole).finished, read_run(whole).remarks) == (True, ())
    for name, spoil, remark in [
        ("cut", lambda run: (run / "model.safetensors").unlink(), "unfinished: 5 of 5 rounds"),
        (
            "longer",
            lambda run: edit(run / "job.toml", "rounds = 5", "rounds = 9"),
            "unfinished: 5 of 9 rounds",
        ),
        (
            "torn",
            lambda run: edit(run / "metrics.jsonl", '{"round": 3,', '{"rou'),
            "rounds missing in metrics.jsonl: 3; sums over the rounds are not shown",
        ),
        ("late", lambda run: write(run, RECORDS[3:]), "rounds missing in metrics.jsonl: 1 to 3; sums"),
        (
            "forced",
            lambda run: forced(run, "local.lr 0.1 -> 0.5 after round 2"),
            "changed by --force: local.lr 0.1 -",
        ),
        (
            "old",
            lambda run: (run / "environment.json").write_text('{"versions": {"mpifl": "0.0.1"}}'),
            "mpifl 0.0.1",
        ),
        ("blind", lambda run: write(run, [{"round": 5, "train_loss": 1.0}]), "without test accuracy"),
        ("lost", lambda run: write(run, [*RECORDS[:4], {"round": 5, "train_loss": None}]), "diverged"),
        ("ended", lambda run: note_lost(run, "round 6 was lost: 0 of 2"), "round 6 was lost: 0 of 2"),
        ("jobless", lambda run: (run / "job.toml").unlink(), "job.toml cannot be read"),
        ("job", lambda run: (run / "job.toml").write_text("rounds = "), "job.toml is torn"),
        ("other", lambda run: (run / "job.toml").write_text("rounds = 'all'"), "job.toml is not as mpifl"),
        ("evaluate", lambda run: (run / "job.toml").write_text("evaluate = 3"), "job.toml is not as mpifl"),
        *(
            (f"patience {n}", lambda run, v=value: patient(run, v), "job.toml is not as mpifl")
            for n, value in enumerate(('"a"', "[1]", "2020-01-01", "true"))
        ),
    ]:
        run = make_run(tmp_path / name)
        spoil(run)
        remarks = read_run(run).remarks
        assert any(remark in one for one in remarks), (name, remarks)


def test_a_run_that_lost_its_first_round_is_left_out_with_the_reason(tmp_path, capsys):
    make_run(tmp_path / "whole")
    write(make_run(tmp_path / "none"), [])
    compare_runs([tmp_path / "whole", tmp_path / "none"])
    assert "none: no rounds in metrics.jsonl" in capsys.readouterr().out
    note_lost(tmp_path / "none", "round 1 was lost: 0 of 2 silos answered")
    compare_runs([tmp_path / "whole", tmp_path / "none"])
    assert "none: round 1 was lost: 0 of 2 silos answered" in capsys.readouterr().out


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def patient(run, value):
    (run / "job.toml").write_text(f"[evaluate]\npatience = {value}\n")


def forced(run, *changes):
    write_environment(run, changes=list(changes))


def test_what_was_forced_before_the_first_round_or_trains_the_same_is_no_change(tmp_path):
    run = make_run(tmp_path / "a")
    forced(
        run,
        "local.lr 0.1 -> 0.5 after round 0",
        'shards "s" -> "moved" after round 2',
        'name "a" -> "b" after round 2',
    )
    assert read_run(run).remarks == ()
    forced(run, "shards of sha256 abc -> def after round 2")
    assert read_run(run).forced == ("shards of sha256 abc -> def after round 2",)


def test_where_rounds_are_missing_nothing_is_summed_up(tmp_path, capsys):
    gaps = write(tmp_path / "gaps", [RECORDS[0], *RECORDS[2:]])
    summary = read_run(gaps)
    assert summary.missing == [(2, 2)]
    figures = summary.figures(0.9)
    summed = (
        "seconds",
        "bytes_sent",
        "bytes_received",
        "rounds_to_target",
        "seconds_to_target",
        "bytes_to_target",
    )
    assert {figures[name] for name in summed} == {None}
    assert (figures["test_accuracy"], figures["best_accuracy"]) == (0.8125, 0.9)
    compare_runs([gaps], 0.9)
    printed = capsys.readouterr().out
    assert table_of(printed)[1][-1] == "-"
    assert f"{gaps}: rounds missing in metrics.jsonl: 2;" in printed
    assert np.isnan(curve(groups([summary])[0], "test_accuracy").at[1:]).all()


def test_a_torn_last_line_alone_is_no_fault(tmp_path):
    run = make_run(tmp_path / "a")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 6, "te')
    assert read_run(run).remarks == ()


def test_a_run_that_stopped_at_its_target_is_finished(tmp_path):
    stop = {"target_accuracy": 0.8, "stop_at_target": True}
    assert read_run(make_run(tmp_path / "a", RECORDS[:4], rounds=99, evaluate=stop)).finished
    assert not read_run(
        make_run(tmp_path / "b", RECORDS[:4], rounds=99, evaluate=stop | {"target_accuracy": 0.9})
    ).finished


UNREADABLE = {
    "another shape": b'{"epoch": 3}\n',
    "no object": b"5\n",
    "text": b'{"round": 1, "test_accuracy": "0.9"}\n',
    "faults": b'{"round": 1, "faults": ["2"]}\n',
    "twice": b'{"round": 1}\n{"round": 1}\n',
    "noise": b"\xff\xfe\x00",
    "empty": b"",
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_folder_that_cannot_be_read_is_named_and_the_rest_compared(tmp_path, capsys, content):
    good, bad = make_run(tmp_path / "good"), tmp_path / "bad"
    bad.mkdir()
    (bad / "metrics.jsonl").write_bytes(content)
    compare_runs([bad, good, tmp_path / "nowhere"])
    printed = capsys.readouterr().out
    assert len(table_of(printed)) == 2
    left_out = [line for line in printed.splitlines() if line.startswith("left out: ")]
    assert [str(bad) in left_out[0], str(tmp_path / "nowhere") in left_out[1]] == [True, True]
    with pytest.raises(InputError, match="bad"):
        compare_runs([bad])


@pytest.mark.parametrize("final", ["text", [1], 0.5])
def test_a_last_score_that_is_no_table_takes_no_comparison_down(tmp_path, capsys, final):
    whole, harmed = make_run(tmp_path / "whole"), make_run(tmp_path / "harmed")
    write(harmed, [*RECORDS[:-1], {**RECORDS[-1], "final": final}])
    compare_runs([whole, harmed])
    assert f"left out: {harmed}/metrics.jsonl: round 5 is not as mpifl" in capsys.readouterr().out


@pytest.mark.parametrize("figures", [(5e-324, 5e-324), (0.0, 5e-324)])
def test_figures_next_to_nothing_have_a_page(tmp_path, figures):
    run = make_run(
        tmp_path / "run", [{**RECORDS[0], "round": n + 1, "test_accuracy": figures[n]} for n in (0, 1)]
    )
    write_report(run)
    compare_runs([run, make_run(tmp_path / "whole")], output=Output(page=tmp_path / "page.html"))


def test_a_seed_that_is_not_finite_is_text_in_the_file(tmp_path):
    runs = [make_run(tmp_path / name) for name in ("nan", "inf")]
    for run in runs:
        path = run / "job.toml"
        path.write_text(re.sub("(?m)^seed = .*$", f"seed = {run.name}", path.read_text()))
    compare_runs(runs, output=Output(json=tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text())["over_seeds"][0]["seeds"] == ["NaN", "Infinity"]


def test_what_a_run_folder_says_reaches_no_terminal_as_commands(tmp_path, capsys):
    escape = "\x1b]0;owned\x07\x1b[2J"
    silos = {"silos": {f"{escape}far": {"accuracy": 0.1}}, "silo_accuracy_worst": 0.1}
    harmed, whole = make_run(tmp_path / "harmed", [{**RECORDS[0], **silos}]), make_run(tmp_path / "whole")
    lost = {"lost": escape, "changes": [f"{escape} after round 2"], "versions": {"mpifl": escape}}
    (harmed / "environment.json").write_text(json.dumps(lost))
    job = 'name = "{0}"\nshards = "{0}"\nseed = "{0}"\n[algorithm]\nname = "{0}"\n[model]\nname = "{0}"\n'
    (harmed / "job.toml").write_text(job.format("\\u001b[2J"))
    compare_runs([harmed, whole])
    watch_run(harmed, once=True)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "far" in printed


def test_runs_that_differ_by_seed_alone_are_taken_together(tmp_path, capsys):
    runs = [
        make_run(tmp_path / f"a{seed}", scaled(factor), seed=seed)
        for seed, factor in enumerate((1, 0.9, 0.8))
    ]
    runs += [make_run(tmp_path / f"b{seed}", seed=seed, local={"lr": 0.5}) for seed in (0, 1)]
    runs += [
        make_run(tmp_path / "again", seed=0),  # the same seed twice is no second draw
        make_run(tmp_path / "cut", seed=9, finished=False),
        make_run(tmp_path / "other", seed=9, cohort={"fraction": 0.5}),
        make_run(tmp_path / "named", scaled(0.7), seed=4, name="other", tracking={"console": False}),
    ]
    found = groups([read_run(run) for run in runs])
    assert [(group.name, [run.run.name for run in group.runs]) for group in found] == [
        ("local.lr = 0.1", ["a0", "a1", "a2", "named"]),
        ("local.lr = 0.5", ["b0", "b1"]),
        ("other", ["other"]),
    ]
    values = [0.8125 * factor for factor in (1, 0.9, 0.8, 0.7)]
    assert found[0].spread(None)["test_accuracy"] == pytest.approx((mean(values), stdev(values)))
    assert found[0].spread(0.6)["rounds_to_target"] == pytest.approx((3, 0))
    assert found[0].spread(0.9)["rounds_to_target"] is None
    compare_runs(runs, 0.9)
    rows = table_of(capsys.readouterr().out)
    row = next(row for row in rows if len(row) > 2 and row[1] == "4" and row[2].endswith("%"))
    assert "lr 0.1" in row[0]
    assert row[1:3] == ["4", f"{100 * mean(values):.2f} ± {100 * stdev(values):.2f}%"]
    assert row[-1] == "reached by 1 of 4"


def test_runs_on_other_shards_or_changed_by_force_are_not_taken_together(tmp_path, capsys):
    one, other = ({"form": "2 silos", "sha256": digest * 64, "public": "", "test": ""} for digest in "ab")
    older = {key: one[key] for key in ("form", "sha256")}
    runs = [make_run(tmp_path / f"a{seed}", seed=seed) for seed in range(6)]
    for run, data in zip(runs, (one, one, other, other, older, one), strict=True):
        write_environment(run, data=data)
    write_environment(runs[5], ["local.lr 0.1 -> 0.5 after round 2"], data=one)
    compare_runs(runs, output=Output(json=tmp_path / "c.json"))
    printed = capsys.readouterr().out
    found = groups([read_run(run) for run in runs])
    assert [(group.name, [run.run.name for run in group.runs]) for group in found] == [
        ("toy (shards of a0)", ["a0", "a1", "a4"]),
        ("toy (shards of a2)", ["a2", "a3"]),
        ("a5", ["a5"]),
    ]
    assert f"{runs[2]}: on other shards than {runs[0]}, by the same job" in printed
    assert f"{runs[1]}: on other shards" not in printed
    assert f"{runs[5]}: changed by --force: local.lr 0.1 -> 0.5 after round 2" in printed
    remarks = [run["remarks"] for run in json.loads((tmp_path / "c.json").read_text())["runs"]]
    assert remarks[3] == [f"on other shards than {runs[0]}, by the same job"]


def test_the_files_hold_every_figure_in_full(tmp_path, capsys):
    runs = [make_run(tmp_path / f"a{seed}", scaled(1 - seed / 7), seed=seed) for seed in (0, 1)]
    runs += [make_run(tmp_path / "b", local={"lr": 0.5}), tmp_path / "none"]
    compare_runs(runs, 0.75, Output(csv=tmp_path / "c.csv", json=tmp_path / "c.json"))
    lines = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert [line["run"] for line in lines] == [str(run) for run in runs[:3]]
    assert [(line["seed"], line["local.lr"]) for line in lines] == [("0", "0.1"), ("1", "0.1"), ("0", "0.5")]
    assert float(lines[1]["test_accuracy"]) == 0.8125 * (1 - 1 / 7)
    assert [line["rounds_to_target"] for line in lines] == ["3.0", "3.0", "3.0"]
    assert float(lines[0]["silo_accuracy_variance"]) == 0.125**2
    found = json.loads((tmp_path / "c.json").read_text())
    assert [run["test_accuracy"] for run in found["runs"]] == [float(line["test_accuracy"]) for line in lines]
    assert found["runs"][2]["settings"] == {"local.lr": 0.5, "seed": 0}
    (group,) = found["over_seeds"]
    assert group["seeds"] == [0, 1]
    assert group["mean"]["test_accuracy"] == pytest.approx(0.8125 * (1 - 1 / 14))
    assert [one["run"] for one in found["left_out"]] == [str(tmp_path / "none")]
    with pytest.raises(InputError, match=r"--csv .*: cannot be written"):
        compare_runs(runs, None, Output(csv=tmp_path / "no" / "c.csv"))


def test_curves_go_over_rounds_bytes_and_seconds(tmp_path):
    runs = [read_run(make_run(tmp_path / f"a{seed}", scaled(1 - seed / 5), seed=seed)) for seed in (0, 1)]
    (group,) = groups(runs)
    found = curve(group, "test_accuracy", 100)
    assert found.at[:3].tolist() == [[1, 3, 4], [3, 9, 9], [1, 6, 10]]
    assert np.isnan(found.at[3]).all(), "no virtual clock"
    assert found.mean == pytest.approx([45, 81, 73.125])
    assert found.deviation == pytest.approx([stdev((50, 40)), stdev((90, 72)), stdev((81.25, 65))])
    assert curve(group, "no such figure") is None


def test_a_virtual_clock_is_told_of_runs_that_have_one(tmp_path, capsys):
    timed = [[{**r, "virtual_seconds": late + 2.5 * r["round"]} for r in RECORDS] for late in (0, 1)]
    runs = [make_run(tmp_path / f"a{seed}", records, seed=seed) for seed, records in enumerate(timed)]
    runs += [make_run(tmp_path / "b", local={"lr": 0.5})]
    compare_runs(runs, 0.9, Output(csv=tmp_path / "c.csv", page=tmp_path / "c.html"))
    printed = capsys.readouterr().out
    told = "Virtual times differ, from 12.5 to 13.5 s: equal rounds are unequal times; "
    assert f"{told}see the virtual seconds in the column 'to 90%'." in printed
    rows = [row for row in table_of(printed) if "rounds," in row[-1]]
    found = [row[-1].partition(" MB")[2] for row in rows]
    assert found == [", 7.5 virtual s", ", 8.5 virtual s", "", ", 8.0 ± 0.7 virtual s"]
    lines = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert [line["virtual_seconds_to_target"] for line in lines] == ["7.5", "8.5", ""]
    assert [line["virtual_seconds"] for line in lines] == ["12.5", "13.5", ""]
    page = (tmp_path / "c.html").read_text()
    assert "Accuracy over virtual seconds" in page
    assert "3 rounds, 6.0 s, 9 MB, 7.5 virtual s" in page
    assert curve(groups([read_run(runs[0])])[0], "test_accuracy").at[3].tolist() == [2.5, 7.5, 10]
    compare_runs(runs[:2])
    assert f"{told}give --target for the virtual seconds to it." in capsys.readouterr().out
    compare_runs(runs[2:], None, Output(page=tmp_path / "c.html"))
    assert "Virtual times" not in capsys.readouterr().out
    assert "virtual seconds" not in (tmp_path / "c.html").read_text()
    capsys.readouterr()
    compare_runs([make_run(tmp_path / "c", RECORDS[:1])], 0.9)
    assert table_of(capsys.readouterr().out)[1][-1] == "not reached in 1 round"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_curves_are_drawn_into_a_file(tmp_path, ending):
    pytest.importorskip("matplotlib")
    runs = [
        read_run(write(tmp_path / name, records)) for name, records in (("a", RECORDS), ("b", RECORDS[:1]))
    ]
    draw(groups(runs), tmp_path / f"curves.{ending}", 0.9)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert (tmp_path / f"curves.{ending}").read_bytes().startswith(begins)


NAMES = ["[/t]", "a b [x] é", "[bold]z", ":smile:", r"a$\x$c", "$_{$"]


def test_names_are_text_and_no_markup(tmp_path, capsys):
    runs = [make_run(tmp_path / name, seed=nth // 2) for nth, name in enumerate(NAMES)]
    for name, run in zip(NAMES, runs, strict=True):
        show_run(run)
        printed = capsys.readouterr().out
        assert table_of(printed)[1][0] == str(run)
        assert f"model: {run}/model" in printed, name
    shutil.rmtree(runs[0])
    compare_runs(runs, output=Output(tmp_path / "[i].png", tmp_path / "[i].csv"))
    printed = capsys.readouterr().out
    assert [row[0] for row in table_of(printed)[1:6]] == [str(run) for run in runs[1:]]
    assert f"left out: {runs[0]}: is not a folder" in printed
    assert f"curves: {tmp_path}/[i].png" in printed
    assert f"csv: {tmp_path}/[i].csv" in printed


def test_a_picture_that_cannot_be_drawn_is_one_line(tmp_path):
    pytest.importorskip("matplotlib")
    found = groups([read_run(write(tmp_path / "a"))])
    with pytest.raises(InputError, match=r"--plot .*: cannot be written"):
        draw(found, tmp_path / "nowhere" / "curves.png")
    with pytest.raises(InputError, match=r"ends in '\.gif'; it must be"):
        draw(found, tmp_path / "curves.gif")


def test_a_finished_run_is_shown_with_its_target_and_where_its_model_lies(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Path("run")
    claim_run(run, make_job(tmp_path, evaluate={"target_accuracy": 0.9}))
    show_run(run)
    assert "no round was run" in capsys.readouterr().out
    write(run)
    show_run(run)
    printed = capsys.readouterr().out
    assert table_of(printed)[1][-1] == "3 rounds, 6.0 s, 9 MB"
    assert f"model: {run / 'model.safetensors'}" in printed


def test_a_run_that_kept_no_metrics_is_shown_by_its_model(tmp_path, capsys):
    write_folder(tmp_path / "shards", [4], test=20)
    write(tmp_path, RECORDS[:2])  # by a first part of the run, which kept them
    claim_run(tmp_path, make_job(tmp_path, rounds=9, tracking={"jsonl": False}))
    show_run(tmp_path)
    assert "no round was run" in capsys.readouterr().out
    make_model(tmp_path)
    show_run(tmp_path)
    assert capsys.readouterr().out == f"model: {tmp_path}/model.safetensors\n"
    evaluate_run(tmp_path)
    assert "20 examples" in capsys.readouterr().out


def make_job(folder, **more):
    table = {
        "name": "toy",
        "shards": str(folder / "shards"),
        "rounds": 1,
        "model": {"name": "logreg"},
        **more,
    }
    return check_job(table, "toy.toml")


def make_model(run, label=1):
    """Leave a model that answers with one label always."""
    model = FlatModel(models.build("logreg", {}, FEATURES, CLASSES, 0))
    model.trained.zero_()
    model.trained[label - CLASSES] = 1.0  # its bias
    checkpoint.write_model(run / "model.safetensors", model)


def test_the_model_of_a_run_is_scored_on_the_test_set(tmp_path, capsys):
    write_folder(tmp_path / "shards", [4], test=20)
    claim_run(tmp_path, make_job(tmp_path))
    with pytest.raises(
        InputError, match=r"model\.safetensors: is not there; the run has not come to its end"
    ):
        evaluate_run(tmp_path)
    make_model(tmp_path)
    evaluate_run(tmp_path)
    share = read_labels(tmp_path / "shards").count(1) / 20
    assert f"test accuracy {share:.2%}, 20 examples" in capsys.readouterr().out


def read_labels(folder):
    with h5py.File(folder / "test.h5") as file:
        return file["test/y"][:].tolist()


@pytest.mark.parametrize("rounds", [[], [{"round": 1}]], ids=["no metrics", "one of two rounds"])
def test_a_model_of_an_earlier_end_is_not_scored(tmp_path, rounds):
    write_folder(tmp_path / "shards", [4], test=20)
    claim_run(tmp_path, make_job(tmp_path))
    make_model(tmp_path)
    claim_run(tmp_path, make_job(tmp_path, rounds=2))
    model = (tmp_path / "model.safetensors").stat().st_mtime
    os.utime(tmp_path / "job.toml", (model + 1, model + 1))
    write(tmp_path, rounds)
    with pytest.raises(
        InputError, match=r"model\.safetensors: is of an earlier end; the run has not come to its own"
    ):
        evaluate_run(tmp_path)


def test_a_run_with_personal_parameters_has_no_accuracy_of_its_own(tmp_path):
    write_folder(tmp_path / "shards", [4], test=20)
    claim_run(tmp_path, make_job(tmp_path, algorithm={"name": "fedper", "personal": ["*bias"]}))
    make_model(tmp_path)
    with pytest.raises(InputError, match=r"fedper leaves .*bias at the silos, which have a model each"):
        evaluate_run(tmp_path)


def test_a_run_is_scored_on_its_own_shards_alone_wherever_the_command_runs(tmp_path, capsys, monkeypatch):
    spec = write_folder(tmp_path / "shards", [4], test=20)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    claim_run(Path("run"), make_job(Path()))
    write_environment(Path("run"), data=describe(spec))
    make_model(Path("run"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    evaluate_run(Path("../run"))
    assert "20 examples" in capsys.readouterr().out
    write_folder(tmp_path / "shards", [4], test=21)
    with pytest.raises(InputError, match=r"the shards at .*shards are not those that it was trained on"):
        evaluate_run(Path("../run"))
    write_folder(tmp_path / "shards", [5], test=20)
    with pytest.raises(InputError, match=r"the shards at .*shards are not those that it was trained on"):
        evaluate_run(Path("../run"))


def test_a_model_that_was_cut_is_one_line(tmp_path):
    write_folder(tmp_path / "shards", [4], test=20)
    claim_run(tmp_path, make_job(tmp_path))
    make_model(tmp_path)
    os.truncate(tmp_path / "model.safetensors", 40)
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read: "):
        evaluate_run(tmp_path)


HELD_OUT = [
    {"round": n, "train_loss": 1.0, "seconds": 1.0, "bytes_sent": 1e6, "silo_accuracy_mean": 0.2, **figures}
    for n, figures in enumerate([{"silo_accuracy_weighted": 0.5}, {}, {"silo_accuracy_weighted": 0.75}], 1)
]


def test_without_a_test_set_the_target_is_for_what_the_silos_hold_out_and_this_is_said(tmp_path, capsys):
    stop = {"target_accuracy": 0.7, "stop_at_target": True}
    runs = [make_run(tmp_path / "a", HELD_OUT, rounds=9, evaluate=stop), write(tmp_path / "b")]
    summary = read_run(runs[0])
    assert [summary.reached(target) for target in (0.5, 0.6, 0.8)] == [1, 3, None]
    assert summary.finished
    compare_runs(runs, 0.7)
    lines = capsys.readouterr().out.splitlines()
    (own,), (other,) = ([line for line in lines if line.startswith(f"\u2502 {run}")] for run in runs)
    assert "3 rounds, 3.0 s, 3 MB, on the silos' held-out examples" in own
    assert "75.00%" in own
    assert "3 rounds" in other
    assert "held-out" not in other
    compare_runs(runs[:1], 0.9)
    assert "not reached in 3 rounds, on the silos' held-out examples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "target", "share", "told"),
    [
        (0.89998, 0.9, True, "89.998%"),
        (0.9, 0.9, True, "90.00%"),
        (0.900001, 0.9, True, "90.00%"),
        (0.8999, 0.9, True, "89.99%"),
        (math.nextafter(0.29, 0), 0.29, True, "29.00%"),
        (0.2899999999, 0.29, True, "28.99999999%"),
        (0.699996, 0.7, False, "0.699996"),
        (math.nan, 0.7, True, "nan%"),
    ],
)
def test_what_misses_a_target_is_not_written_as_reaching_it(tmp_path, capsys, value, target, share, told):
    metric = MetricInfo(name="accuracy", share=share)
    assert metric.write(value, target) == told
    assert MetricInfo(name="loss", higher_is_better=False).write(0.500001, 0.5) == "0.500001"
    if share and told == "89.998%":
        rounds = [{**record, "silo_accuracy_weighted": value} for record in HELD_OUT]
        run = make_run(tmp_path / "a", rounds, evaluate={"target_accuracy": target})
        compare_runs([run], target)
        said = capsys.readouterr().out
        assert told in said
        assert "90.00%" not in said
        assert "not reached" in said
        page = write_report(run).read_text()
        assert f"Accuracy is {told}" in page
        assert "the target, 90%, was not reached" in page
        assert "90.00%" not in page
        assert "not reached" in page


def test_no_test_set_is_a_remark_only_where_other_runs_have_one(tmp_path, capsys):
    without = [make_run(tmp_path / name, HELD_OUT) for name in "ab"]
    compare_runs(without)
    assert "without test" not in capsys.readouterr().out
    compare_runs([*without, make_run(tmp_path / "c")])
    assert f"{without[0]}: without test accuracy" in capsys.readouterr().out
    compare_runs([write(tmp_path / "d", [{"round": 1, "train_loss": 1.0}])])
    assert "without test accuracy" in capsys.readouterr().out, "nothing else judges it"


def test_whose_rows_figures_are_of_is_said_once(tmp_path, capsys):
    tested = [write(tmp_path / name) for name in "ab"]
    without = [make_run(tmp_path / name, HELD_OUT) for name in "cd"]
    of_silos = "a silo's figures are on its held-out examples."
    said = {
        f"Figures: accuracy on the server's test set; {of_silos}": tested,
        f"Figures: {of_silos}": without,
        "Figures: nothing was scored.": [write(tmp_path / "e", [{"round": 1, "train_loss": 1.0}])],
    }
    for line, runs in said.items():
        compare_runs(runs)
        printed = capsys.readouterr().out.splitlines()
        assert [one for one in printed if one in said] == [line]


def test_a_folder_of_runs_stands_for_all_runs_in_it(tmp_path, capsys):
    runs = [make_run(tmp_path / "sweep" / name, HELD_OUT) for name in "ba"]
    (tmp_path / "sweep" / "sweep.html").touch()
    compare_runs([tmp_path / "sweep"], output=Output(json=tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert [one["run"] for one in found["runs"]] == sorted(map(str, runs))
    assert found["left_out"] == []
    with pytest.raises(InputError, match=f"{tmp_path}/none: is not a folder"):
        compare_runs([tmp_path / "none"])


def test_a_folder_that_may_not_be_entered_is_named(tmp_path, capsys, monkeypatch):
    make_run(tmp_path / "sweep" / "open")
    make_run(tmp_path / "sweep" / "shut")
    (tmp_path / "sweep" / "shut").chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with nobody():
        compare_runs([Path("sweep")])
        assert "left out: sweep/shut/metrics.jsonl: cannot be read (Permission" in capsys.readouterr().out
        with pytest.raises(InputError, match=r"sweep/shut/metrics\.jsonl: cannot be read"):
            compare_runs([Path("sweep/shut")])
    (tmp_path / "sweep" / "shut").chmod(0o755)


@contextlib.contextmanager
def nobody():
    """Be no user who may enter every folder."""
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)


def test_a_comparison_says_in_which_keys_the_jobs_differ(tmp_path, capsys):
    more = [
        {"local": {"lr": 0.1}},
        {"local": {"lr": 0.2}, "algorithm": {"name": "fedprox", "mu": 0.5}},
        {"local": {"lr": 0.2}, "name": "other", "checkpoint": {"every": 7}},
    ]
    runs = [make_run(tmp_path / str(n), **keys) for n, keys in enumerate(more)]
    compare_runs([*runs, write(tmp_path / "jobless")])
    rows = table_of(capsys.readouterr().out)
    own = rows[rows.index(["run", "settings in which the jobs differ"]) + 1 :]
    assert [row[0] for row in own] == [str(run) for run in runs]
    assert own[0][1] == "algorithm.name = fedavg, local.lr = 0.1"
    assert own[1][1] == "algorithm.name = fedprox, local.lr = 0.2, algorithm.mu = 0.5"
    assert own[2][1] == "algorithm.name = fedavg, local.lr = 0.2"


def test_runs_of_one_job_have_no_table_of_differences(tmp_path, capsys):
    compare_runs([make_run(tmp_path / str(n)) for n in range(2)])
    compare_runs([make_run(tmp_path / "2", local={"lr": 0.3})])
    assert "the jobs differ" not in capsys.readouterr().out


def test_a_plot_without_matplotlib_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"--plot: needs matplotlib; pip install 'mpifl\[plots\]'"):
        draw([], tmp_path / "p.png")
