"""Is it worth it: each silo alone, all pooled and the federated model on the same test rows."""

import csv
import hashlib
import json
import math
import os
import random
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from pages import Reader, check_whole
from scipy import stats
from unit.builders import write_folder, write_vertical_folder

from mpifl.cli import main
from mpifl.cli.baseline import baseline_figures
from mpifl.cli.baseline.baseline_figures import BY_GROUPS, EXACT, Baseline, Scored
from mpifl.cli.baseline.baseline_run import beforehand, page as page_of
from mpifl.cli.baseline.baseline_words import cells, of_chance, outcome, record, verdict, warnings_of
from mpifl.cli.baseline.joined_shards import join_shards
from mpifl.cli.baseline.judged_models import JudgedSilo
from mpifl.cli.baseline.planned_runs import plan_of
from mpifl.cli.baseline.which_figure import which_figures
from mpifl.common import InputError
from mpifl.data.shards import open_shard, read_federation, write_groups
from mpifl.learning.metrics import ACCURACY, MetricInfo, computed, update_metrics
from mpifl.learning.tasks.binary import Binary
from mpifl.learning.tasks.classification import Classification
from mpifl.learning.tasks.regression import Regression
from mpifl.learning.tasks.survival import Survival
from mpifl.report.judging import by_draws, drawn, evaluate_shards, paired
from mpifl.report.judging.row_figures import RowFigures
from mpifl.report.pages import write_report
from mpifl.report.runs import Summary, chance, compare_runs, of_groups
from mpifl.report.runs.chance import by_right_answers
from mpifl.report.runs.silo_data import OF_GROUPS

JOB = """
name = "toy"
shards = "shards"
rounds = 3
device = "cpu"
[model]
name = "logreg"
[local]
lr = 0.1
[cohort]
fraction = 0.7
[tracking]
console = false
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "shards", [12, 13, 14], silos_test=20)
    (tmp_path / "toy.toml").write_text(JOB)
    return tmp_path / "toy.toml"


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 7), (7, 1), (5, 5), (0, 6), (20, 4), (50, 50)])
def test_right_and_wrong_answers_are_judged_by_the_exact_test_of_mcnemar(better, worse):
    found = by_right_answers(better, worse, 100)
    assert found.by == pytest.approx((better - worse) / 100)
    if better + worse:
        assert found.p == pytest.approx(stats.binomtest(better, better + worse).pvalue)
    else:
        assert found.p == 1


def test_the_interval_of_paired_shares_is_the_published_one():
    """Fagerland, Lydersen & Laake 2014, table 5, Tango's interval: 7 of 21 children better, 1 worse."""
    found = by_right_answers(7, 1, 21)
    assert (found.high, found.p) == (pytest.approx(0.517, abs=5e-4), pytest.approx(0.070, abs=5e-4))
    assert found.low == 0, "the exact test does not refuse 0, so the interval holds it"
    assert by_right_answers(0, 0, 100).high == pytest.approx(1 / (1 + 100 / stats.norm.ppf(0.975) ** 2))


def test_an_interval_leaves_out_nothing_where_a_difference_is_seen_and_only_there():
    for rows in (12, 40, 300):
        for better in range(0, 13):
            for worse in range(0, 13 - better):
                found = by_right_answers(better, worse, rows)
                assert found.seen == (not found.low <= 0 <= found.high)
                assert -1 <= found.low <= found.by + 1e-9
                assert found.by - 1e-9 <= found.high <= 1


def rows_of(task, outputs, y):
    return RowFigures(task, len(y), outputs=outputs, y=y)


def test_a_bootstrap_draws_the_same_rows_for_both_and_from_its_own_stream(monkeypatch):
    monkeypatch.setattr(paired, "DRAWS", 100)
    task, y = Survival(), torch.tensor([[1.0, 1], [2, 1], [3, 0], [4, 1], [5, 1], [6, 1]])
    risk = torch.tensor([[6.0], [5], [1], [4], [2], [3]])
    one = rows_of(task, risk, y)
    before, state = random.getstate(), torch.get_rng_state()
    found = drawn([one, one], 7, 0)
    assert np.array_equal(found[:, 0], found[:, 1], equal_nan=True)
    assert not np.array_equal(found[:, 0], drawn([one, one], 7, 1)[:, 0], equal_nan=True)
    assert np.array_equal(found, drawn([one, one], 7, 0), equal_nan=True)
    assert before == random.getstate()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", ["auroc", "average_precision"])
def test_an_area_of_drawn_and_exchanged_rows_has_the_bits_of_one_that_counts_them_anew(name):
    task = Binary(metrics=[name])
    noise = np.random.default_rng(5)
    y = torch.from_numpy(noise.integers(0, 2, 60))
    first, other = (torch.from_numpy(noise.normal(0, 1, 60).round(1)).float() for _ in range(2))
    one, counts = rows_of(task, first, y), torch.from_numpy(noise.integers(0, 3, 60))
    at, rows = torch.arange(60).repeat_interleave(counts), noise.random(60) < 0.5
    mixed = torch.where(torch.from_numpy(rows), other, first)
    wanted = [(first, y), (first[at], y[at]), (mixed, y)]
    exchanged = one.exchanged(rows_of(task, other, y), rows)
    for told, (outputs, targets) in zip(
        (one.value(), one.value(counts), exchanged.value()), wanted, strict=True
    ):
        update_metrics([metric := task.metrics()[name]], task, outputs, targets)
        assert told == computed(metric)


def test_the_interval_of_a_bootstrap_is_near_that_of_a_mean():
    """Of squared errors a paired difference is a mean, whose interval is known."""
    noise = np.random.default_rng(3)
    apart = noise.normal(0.3, 1.0, 200)
    states = [
        torch.from_numpy(np.stack([value, np.ones(200)], 1)) for value in (apart + 5, np.full(200, 5.0))
    ]

    class Mean(RowFigures):
        def value(self, counts=None):
            return float((counts.double() @ self.states)[0]) / self.rows

    draws = drawn([Mean(Regression(), 200, one) for one in states], 1, 0)
    found, error = by_draws(apart.mean(), draws[:, 0] - draws[:, 1]), apart.std() / math.sqrt(200)
    assert found.low == pytest.approx(apart.mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(apart.mean() + 1.96 * error, abs=0.15 * error)
    assert found.seen
    assert found.p < 0.01


def test_a_bootstrap_draws_whole_groups():
    """Ten rows of each group are equal, so the interval is that of the groups' mean, not of the rows'."""
    apart = np.random.default_rng(3).normal(0.3, 1.0, 100)
    rows, groups = np.repeat(apart, 10), np.repeat(np.arange(100) + 7, 10)
    task = Regression(metrics=["mae"])
    one = rows_of(task, torch.from_numpy(rows)[:, None], torch.full((1000, 1), -9.0, dtype=torch.float64))
    draws, error = drawn([one], 1, 0, groups)[:, 0], apart.std() / 10
    assert draws.std() == pytest.approx(error, rel=0.1)
    assert drawn([one], 1, 0)[:, 0].std() == pytest.approx(error / math.sqrt(10), rel=0.1)


def test_the_rows_of_the_rarer_answer_are_told_and_draws_without_one():
    found = Baseline(
        MetricInfo(name="auroc"), "a test",
        [replace(scored("a", 0.1, 0.9), events=2, undefined=250), scored("b", 0.1, 0.01)],
        scored("mean of silos by rows", 0.02, 0.3, 300), mean=True,
    )  # fmt: skip
    told = record(found)["silos"]["a"]
    assert (told["events"], told["draws_without"]) == (2, 250)
    said = "Only 2 rows of the rarer class: the interval and p are unreliable. "
    said += "250 of 2,000 draws had no auroc and are "
    assert warnings_of(found) == {"a": f"{said}left out."}
    assert record(found)["remarks"] == [f"Silo a: {said}left out."]
    assert "in the mean of 2 silos, by their 300 test rows: auroc 0.8200 against" in verdict(found)
    assert cells(found.silos[0], found)[:2] == ["100", "2"]


def test_intervals_are_doubted_where_groups_have_several_held_out_rows(tmp_path):
    (entry,) = write_folder(tmp_path, [12], silos_test=20).silos
    for test, said in ((19, OF_GROUPS), (20, "")):
        assert of_groups([None, entry.model_copy(update={"groups": {"train": 1, "test": test}})]) == said


def test_draws_without_a_figure_are_left_out_and_too_many_make_it_undefined():
    assert by_draws(0.1, np.array([0.1] * 60 + [math.nan] * 40)).seen
    assert by_draws(0.1, np.array([0.1] * 40 + [math.nan] * 60)) is None
    assert by_draws(0.0, np.zeros(100)).p == 1
    assert by_draws(0.1, np.full(99, 0.1)).p == pytest.approx(0.02)


def test_a_row_counts_as_often_as_it_is_drawn():
    y, outputs = torch.tensor([[1.0], [2], [4]]), torch.tensor([[1.5], [2], [2]])
    task = Regression(metrics=["rmse"])
    metric = task.metrics()["rmse"]
    metric.update(outputs.repeat_interleave(torch.tensor([2, 0, 1]), 0), y[[0, 0, 2]])
    assert rows_of(task, outputs, y).value(torch.tensor([2, 0, 1])) == pytest.approx(computed(metric))


def scored(name, by, p, rows=100):
    low, high = (by - 0.01, by + 0.01) if p <= 0.05 else (by - 0.1, by + 0.1)
    return Scored(
        name, rows, rows, 0.8, 0.8 + by, None, chance.Difference(by, p, True, lambda level: (low, high)), p
    )


def test_the_verdict_says_for_whom():
    silos = [scored("a", 0.05, 0.01), scored("b", -0.05, 0.01), scored("c", 0.01, 0.9)]
    found = Baseline(ACCURACY, "a test", silos, scored("all rows", 0.02, 0.03, 300))
    assert verdict(found) == (
        "Federation helped on all 300 test rows: accuracy 82.00% against 80.00% of silos alone, +2.00 points "
        "(95% interval +1.00 to +3.00); better for silo a, worse for silo b, no difference seen for silo c."
    )
    rare = [replace(one, events=3) for one in silos]
    few = replace(found, silos=rare, whole=replace(found.whole, events=9))
    of = "(rests on 3 rows of the rarer class)"
    assert verdict(few).endswith(
        "(95% interval +1.00 to +3.00), which rests on 9 rows of the rarer class; "
        f"better for silo a {of}, worse for silo b {of}, no difference seen for silo c."
    )
    assert record(few)["silos"]["a"]["outcome"] == "better; rests on 3 rows of the rarer class"
    assert verdict(replace(found, whole=replace(found.whole, events=10))) == verdict(found)
    alike = Baseline(ACCURACY, "a test", [silos[2]] * 7, scored("all rows", 0.01, 0.2, 300))
    assert verdict(alike).startswith("No difference seen on all 300")
    assert verdict(alike).endswith("; no difference seen for any of 7 silos by itself.")
    seeded = replace(found, seed=3)
    assert verdict(seeded).startswith("Federation helped with seed 3 on all 300 test rows: accuracy 82.00%")
    assert "and all models of seed 3 alone: another seed moves each figure, too; repeat" in of_chance(seeded)
    assert of_chance(found).startswith(
        "The intervals are of the test rows alone. p and interval of silos are corrected"
    )
    assert of_chance(found).endswith(" Rows count as independent.")
    assert of_chance(replace(found, test=BY_GROUPS)).endswith(
        " Patients (groups) count as independent; their rows do not."
    )
    of_errors = Baseline(MetricInfo(name="mae", higher_is_better=False), "a test", silos, found.whole)
    assert verdict(of_errors).startswith("Federation did harm on all 300")
    assert [one["judged"] for one in record(of_errors)["silos"].values()][:2] == ["worse", "better"]


def test_a_baseline_says_which_other_figures_the_page_of_its_federated_run_has(tmp_path):
    """Of an AUROC all rows together, the mean by rows and the mean over silos are three figures."""
    metric = MetricInfo(name="auroc", share=True)
    silos = [replace(scored(name, 0.1, 0.5), federated=of) for name, of in (("a", 0.7), ("b", 0.6))]
    whole = replace(scored("mean of silos by rows", 0.1, 0.5), federated=0.68)
    found = Baseline(metric, "a test", silos, whole, mean=True)
    last = {"round": 1, "silo_auroc_pooled": 0.69, "silo_auroc_mean": 0.65}
    last["silos"] = {"a": {"auroc": 0.7}, "b": {"auroc": 0.6}}
    told = " ".join(which_figures(found, Summary(tmp_path, [last], metric=metric)))
    assert "has the mean over silos, each weighted by its test rows: 68.00% of the federated model." in told
    ranked = "69.00%, all test rows as one set, so that rows of one silo are ranked against rows of another"
    assert f"same model and rows: {ranked}; and 65.00%, the mean over silos, each counted once." in told
    last["silos"]["b"]["auroc"] = 0.61
    assert "65.00%" not in " ".join(which_figures(found, Summary(tmp_path, [last], metric=metric)))


def test_a_silo_whose_rows_have_one_class_counts_by_accuracy_and_not_by_auroc(tmp_path):
    """Alone it has all 30 rows right by one answer; of the other two, the rarer class is another one."""
    task = Classification().for_federation(write_folder(tmp_path / "s", [4, 4], classes=2))

    def model(yes, no, right):
        y = torch.tensor([1] * yes + [0] * no)
        states = torch.stack([torch.arange(yes + no) < right, torch.ones(yes + no)], 1).double()
        return RowFigures(task, yes + no, states, y=y)

    judged = [
        JudgedSilo(nth, name, [model(yes, no, 9), model(yes, no, alone)])
        for nth, (name, yes, no, alone) in enumerate((("a", 8, 12, 4), ("b", 7, 3, 8), ("alike", 30, 0, 30)))
    ]
    silos, whole = baseline_figures._of_rights(judged)
    found = Baseline(ACCURACY, EXACT, silos, whole)
    assert [one.events for one in (*silos, whole)] == [8, 3, 0, 15]
    assert cells(silos[2], found)[-1] == "worse"
    assert silos[2].p == pytest.approx(3 * silos[2].difference.p), "of three tests"
    assert "on all 60 test rows: accuracy 45.00% against 70.00%" in verdict(found)
    said = "The rows of silo alike have one class. Accuracy counts them, although one answer is always right"
    assert any(one.startswith(said) for one in record(found)["remarks"])
    undefined = replace(silos[2], difference=None, p=None)
    assert cells(undefined, found)[-1] == "one class only", "as of AUROC"
    assert record(found)["silos"]["alike"]["outcome"] == "worse; one class only: AUROC is undefined"
    told = outcome(undefined, MetricInfo(name="average_precision"))
    assert told == "one class only: average precision is undefined"
    words = " ".join(Reader(page_of(found, "t")).titles())
    assert f"all {said}" in words
    assert "a Only 8 rows of the rarer class: the interval and p are unreliable. b Only 3 rows" in words, (
        "beside its silo"
    )
    assert "3 silos, 60 test rows" in words
    assert "95% interval p outcome" in words
    assert "most frequent class test rows" in words
    assert [one.guessing for one in (*silos, whole)] == [0.6, 0.7, 1.0, pytest.approx(45 / 60)]
    assert re.search(
        r"no difference seen; up to [\d.]+ points better or [\d.]+ points worse is not excluded", words
    )
    looks = {given.get("class", "") for _, given in Reader(page_of(found, "t")).tags}
    assert {look for look in looks if "worst" in look} == {"text worst"}, "at the left, as its heading"
    silos = [replace(one, over_pooled=one) for one in silos]
    beside = Baseline(
        ACCURACY, EXACT, silos, replace(whole, over_pooled=whole), rounds={"a": "7", "pooled": "9"}
    )
    words = " ".join(Reader(page_of(beside, "is it", ["what it is"])).titles())
    assert words.startswith("is it ")
    assert " is it what it is · 3 silos, 60 test rows " in words
    assert "silo rounds trained most frequent class" in words
    assert "a 7 60.00%" in words
    assert "The pooled model: 9." in words
    assert "Federated against pooled Difference: federated − pooled, in points" in words
    assert record(beside)["silos"]["alike"]["against_pooled"]["judged"] == "worse"
    assert re.search(r"difference and interval −\d+ 0 \+\d+ ", words), "the scale, with 0"
    assert page_of(found, "t").count('class="zero"') == 4


def test_joined_shards_hold_the_rows_of_all_in_their_order(tmp_path):
    spec = write_folder(tmp_path / "s", [3, 4], silos_test=2, test=5)
    join_shards(tmp_path / "all", tmp_path / "s", spec, spec.silos)
    joined = read_federation(tmp_path / "all")
    whole = open_shard(tmp_path / "all", joined.silos[0], joined)
    parts = [open_shard(tmp_path / "s", entry, spec) for entry in spec.silos]
    for split in ("train", "test"):
        for name in ("x", "y"):
            each = np.concatenate([part[split].arrays[name] for part in parts])
            assert np.array_equal(whole[split].arrays[name], each)
    assert len(open_shard(tmp_path / "all", joined.test, joined)["test"]) == 5


def run():
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.usefixtures("warm_python")
def test_a_baseline_of_three_silos_goes_on_and_says_the_same(job, tmp_path, monkeypatch, capsys):
    (tmp_path / "shards" / "silo_0002.h5").rename(tmp_path / "away.h5")
    words = ["mpifl", "baseline", "toy.toml", "--out", "b"]
    monkeypatch.setattr("sys.argv", words)
    assert run() != 0, "the federated training misses a shard"
    assert "silo 2 left out: " in capsys.readouterr().out
    assert not (tmp_path / "b" / "alone_0000").exists(), "nothing could be held against it"
    (tmp_path / "away.h5").rename(tmp_path / "shards" / "silo_0002.h5")
    tables = ["--latex", "b.tex", "--csv"]
    monkeypatch.setattr("sys.argv", [*words, *tables, "b.tex"])
    assert run() == 2
    assert "--csv b.tex: is the file of --latex, too; name another" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*words, *tables, "b/b.csv"])
    assert run() == 0
    monkeypatch.setattr("sys.argv", words)
    assert run() == 2
    assert "continue by --resume" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*words, "--resume"])
    first = (tmp_path / "b" / "baseline.json").read_bytes()
    told = json.loads(first)
    assert " with seed 0 on " in told["verdict"]
    assert list(told["silos"]) == ["0", "1", "2"]
    assert not list((tmp_path / "b").rglob("*.h5")), "no rows are left behind"
    for name, number in (("0", 0), ("2", 2)):
        alone = json.loads(
            (tmp_path / "b" / f"alone_000{number}" / "metrics.jsonl").read_text().split("\n")[2]
        )
        assert alone["silo_accuracy_pooled"] == pytest.approx(told["silos"][name]["alone"])
    own = json.loads((tmp_path / "b" / "federated" / "metrics.jsonl").read_text().splitlines()[-1])
    assert own["silo_accuracy_pooled"] == pytest.approx(told["all"]["federated"])
    pooled = json.loads((tmp_path / "b" / "pooled" / "metrics.jsonl").read_text().splitlines()[-1])
    assert pooled["silo_accuracy_pooled"] == pytest.approx(told["all"]["pooled"])
    lines = list(csv.DictReader((tmp_path / "b" / "b.csv").open()))
    assert [line["silo"] for line in lines] == ["0", "1", "2", "all rows"]
    for line, one in zip(lines, [*told["silos"].values(), told["all"]], strict=True):
        assert float(line["p_holm"]) == one["p_holm"]
        assert float(line["difference"]) == one["difference"]
        assert float(line["against_pooled_difference"]) == one["against_pooled"]["difference"]
        assert "{" not in "".join(line.values())
    table = (tmp_path / "b.tex").read_text()
    assert table.startswith(f"% {told['verdict']}"), "as every table, by the same writer"
    assert "−" not in table.partition("\n")[2]
    assert table.count(r" \\") == 5
    page = (tmp_path / "b" / "baseline.html").read_text()
    check_whole(page)
    assert told["verdict"] in " ".join(Reader(page).text)
    value = f"{told['all']['federated']:.2%}"
    assert (
        f"The row 'all rows' has all test rows as one set: {value} of the federated model." in told["figures"]
    )
    assert f"Which figure is which {' '.join(told['figures'])}" in " ".join(Reader(page).titles())
    alone = Reader(write_report(tmp_path / "b" / "federated", alone=tmp_path / "b").read_text())
    means = [f"{np.mean([one[of] for one in told['silos'].values()]):.2%}" for of in ("federated", "alone")]
    helped = f"The silos' mean is {means[0]} with this model and {means[1]} with a model trained alone ("
    assert helped in " ".join(alone.titles())
    assert f"The baseline, of its own federated run: {told['verdict']}" in " ".join(alone.titles())
    with pytest.raises(InputError, match=r"--alone b/federated: .* name the baseline's folder, b$"):
        write_report(tmp_path / "b" / "federated", alone=Path("b/federated"))
    about = " · lr 0.1 · epochs 1 · batch size 10 · 3 rounds · "
    assert about in " ".join(Reader(page).text), "what was trained, how long and when"
    compare_runs([tmp_path / "b" / "federated", tmp_path / "b" / "pooled"])
    told_of = " ".join(capsys.readouterr().out.split())
    assert "Both are of one baseline, which compares them on the same test rows:" in told_of
    for link in ("federated/report.html", "alone_0000/"):
        assert f'href="{link}"' in page
        assert (tmp_path / "b" / link).exists()
    capsys.readouterr()
    assert run() == 0
    out = capsys.readouterr().out
    assert out.count("done before") == 5
    assert (tmp_path / "b" / "baseline.json").read_bytes() == first
    spec = write_folder(tmp_path / "later", [16], silos_test=30)
    owned = spec.silos[0].model_copy(update={"groups": {"train": 16, "test": 10}})
    with h5py.File(tmp_path / "later" / "silo_0000.h5", "r+") as file:
        write_groups(file, {"train": np.arange(16), "test": np.arange(30) // 3})
    content = (tmp_path / "later" / "silo_0000.h5").read_bytes()
    owned = owned.model_copy(update={"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    spec.model_copy(update={"silos": [owned]}).write(tmp_path / "later")
    (tmp_path / "shards").rename(tmp_path / "gone")
    late = "--late", "later/silo_0000.h5", "--set", "evaluate.patience=1"
    monkeypatch.setattr("sys.argv", [*words, *late])
    assert run() == 2, "a later site needs no other shard, and a model that has learnt nothing is no ground"
    found = capsys.readouterr()
    assert "silo 0: patience ended the training in round 2 of 3, and its model is no better than" in found.err
    assert f"accuracy is 43.33%, {chance.ALWAYS} gives 50.00%, which is no ground for a " in found.err
    assert found.out.count("done before") == 1
    metrics = tmp_path / "b" / "late_0000" / "metrics.jsonl"
    first, *more = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([re.sub(r'("silo_accuracy_\w+": ?)[0-9.]+', r"\g<1>0.4", first), *more]))
    assert run() == 0, "one whose figure has moved is"
    out = capsys.readouterr().out
    assert out.count("done before") == 2
    cut = "Warning: patience ended the training alone of silo 0 (round 2 of 3, by 30 test"
    assert f"{cut} rows) early, which may flatter the federated model" in out
    late_page = " ".join(Reader((tmp_path / "b" / "late.html").read_text()).text)
    assert cut in late_page
    assert "Each silo alone, and the federated model" in late_page
    assert "1 silo, " in late_page
    assert not any("patience" in one for one in told["remarks"])
    late = json.loads((tmp_path / "b" / "late.json").read_text())
    assert "has not learned from these silos" in " ".join(late["remarks"])
    assert told["test"] == EXACT
    assert late["test"].startswith(BY_GROUPS)
    assert list(late["silos"]) == ["0"]
    alone = json.loads((tmp_path / "b" / "late_0000" / "metrics.jsonl").read_text().splitlines()[-1])
    assert alone["silo_accuracy_pooled"] == pytest.approx(late["silos"]["0"]["alone"])
    scored = tmp_path / "scored.json"
    evaluate_shards(tmp_path / "b" / "federated", tmp_path / "later", file=scored)
    own = json.loads(scored.read_text())["silos"]["0"]["accuracy"]
    assert own == pytest.approx(late["silos"]["0"]["federated"])
    monkeypatch.setattr("sys.argv", ["mpifl", "baseline", "toy.toml", "--out", "c", "--late", "later"])
    assert run() == 2
    assert "c/federated: is not a finished run; put the run folder of the" in capsys.readouterr().err
    (tmp_path / "gone").rename(tmp_path / "shards")
    monkeypatch.setattr("sys.argv", [*words, "--resume", "--set", "rounds=4"])
    assert run() == 0, "more rounds need the rows once more, in the same bytes"
    assert (tmp_path / "b" / "pooled" / "metrics.jsonl").read_text().count("\n") == 4
    write_folder(tmp_path / "shards", [15, 13, 14], silos_test=20)
    assert run() == 2
    assert "other shards" in capsys.readouterr().err


def stop_when_trained(run_folder, rounds):
    """Send this process a SIGTERM when a run has so many rounds."""

    def wait():
        for _ in range(1200):
            file = run_folder / "metrics.jsonl"
            if file.exists() and file.read_text().count("\n") > rounds:
                os.kill(os.getpid(), signal.SIGTERM)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.usefixtures("warm_python")
def test_a_baseline_that_a_signal_has_stopped_is_continued_by_the_same_command(
    job, tmp_path, monkeypatch, capsys
):
    words = ["mpifl", "baseline", "toy.toml", "--out", "s", "--set", "rounds=100000"]
    monkeypatch.setattr("sys.argv", words)
    rounds = -1
    for _ in range(2):
        thread = stop_when_trained(tmp_path / "s" / "federated", rounds + 1)
        assert run() == 75
        thread.join()
        said = capsys.readouterr()
        assert said.out.count("the same command continues") == 1
        assert "--resume" not in said.out + said.err
        before, rounds = rounds, (tmp_path / "s/federated/metrics.jsonl").read_text().count("\n")
        assert rounds > before


REFUSED = {
    "masks": ("[security]", "[security] masks: a baseline tells figures of single silos"),
    "privacy": ("[privacy]\nclip = 1.0\nnoise = 1.0\ndelta = 1e-5", "[privacy]: a baseline tells figures"),
    "own models": ('[algorithm]\nname = "ditto"\nlambda = 0.1', "'ditto': silos have models of their own"),
    "a part": (
        '[algorithm]\nname = "fedper"\npersonal = ["*bias"]',
        "'fedper': silos have models of their own",
    ),
}


@pytest.mark.parametrize(("table", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_held_against_silos_alone_is_refused(job, tmp_path, monkeypatch, capsys, table, said):
    job.write_text(JOB + table)
    monkeypatch.setattr("sys.argv", ["mpifl", "baseline", "toy.toml", "--out", "b"])
    assert run() == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "b").exists()


def test_columns_of_the_same_rows_are_refused(job, tmp_path, monkeypatch, capsys):
    write_vertical_folder(tmp_path / "columns", {"train": 8, "test": 4})
    job.write_text(JOB.replace('"shards"', '"columns"'))
    monkeypatch.setattr("sys.argv", ["mpifl", "baseline", "toy.toml", "--out", "b"])
    assert run() == 2
    assert "none could train alone; use shards whose silos have rows" in capsys.readouterr().err


def test_shards_without_test_rows_are_refused(job, tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "shards", [12, 13], valid=4, test=9)
    monkeypatch.setattr("sys.argv", ["mpifl", "baseline", "toy.toml", "--out", "b"])
    assert run() == 2
    assert "holds out test rows; partition with --test 0.2" in capsys.readouterr().err


def test_several_seeds_are_several_baselines(job, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mpifl", "baseline", "toy.toml", "--out", "b", "--set", "seed=1,2,3"])
    assert run() == 2
    said = "--set seed=1,2,3: a baseline is of one seed; run it once for each, as --set seed=1 with an"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "metrics.jsonl").touch()
    monkeypatch.setattr("sys.argv", ["mpifl", "baseline", "toy.toml", "--out", "b"])
    assert run() == 2
    assert "error: b: holds a run already (metrics.jsonl), and runs are to" in capsys.readouterr().err


def test_silos_that_hold_out_too_little_are_named_before_a_training(job, tmp_path):
    assert not beforehand(plan_of(job, [], tmp_path / "b"))
    write_folder(tmp_path / "few", [12, 13, 14], silos_test=6)
    (told,) = beforehand(plan_of(job, [f"shards='{tmp_path / 'few'}'"], tmp_path / "b"))
    assert told == (
        "warning: too little is held out to show a difference for one silo: "
        "0 (6 rows), 1 (6 rows), 2 (6 rows); "
        "it takes 7, so partition with a larger --test"
    )
    assert [3 * 2 / 2**n <= chance.LEVEL for n in (6, 7)] == [False, True]
