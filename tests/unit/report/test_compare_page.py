"""Runs side by side as a page: called by what differs, a grid of them drawn, each led to its own page."""

import csv
import itertools
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import Reader, check_whole
from scipy import stats
from unit.builders import write_folder

from mpifl.cli import app
from mpifl.common import InputError
from mpifl.common.pages import Mark, charts
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.findings import next_of_settings
from mpifl.report.pages.compared_silos import without_one_class
from mpifl.report.pages.comparison_page import write_best
from mpifl.report.pages.grid import Tried, grid, ordered
from mpifl.report.pages.run_page import write_report
from mpifl.report.pictures.curves import COLOURS, Curve, _look, group_looks
from mpifl.report.pictures.picture import draw
from mpifl.report.runs import chance, units
from mpifl.report.runs.compared_columns import NARROW, columns_of, fitting
from mpifl.report.runs.compared_files import Drawing, Output, escaped
from mpifl.report.runs.compared_runs import compare_runs
from mpifl.report.runs.curve_legends import legends, telling_keys
from mpifl.report.runs.run_summary import read_run
from mpifl.report.runs.seeds import Group, groups
from mpifl.report.runs.silo_data import Held
from mpifl.report.runs.standings import Standing, corrected, rivals, standings_of, verdict
from mpifl.report.runs.units import sizes
from mpifl.run.folder.environment import read_environment, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run, describe
from mpifl.run.job.job import check_job


def make_run(folder, accuracy, seed=1, silos=None, **more):
    table = {"name": "toy", "shards": "s", "rounds": 2, "seed": seed, "model": {"name": "logreg"}, **more}
    claim_run(folder, check_job(table, "toy.toml"))
    each = {"train_loss": 1.0, "seconds": 1.0, "bytes_sent": 500_000, "bytes_received": 500_000}
    each |= {"silos": {name: {"accuracy": score} for name, score in (silos or {}).items()}}
    rounds = table["rounds"]
    records = [{"round": n, "test_accuracy": accuracy * n / rounds, **each} for n in range(1, rounds + 1)]
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    (folder / "model.safetensors").touch()
    return folder


def grid_of(folder):
    """Two learning rates, two numbers of epochs, two seeds; the best is lr 0.1 with 5 epochs, seed 2."""
    for lr, epochs, seed in itertools.product((0.1, 0.3), (1, 5), (1, 2)):
        name = f"local.lr={lr},local.epochs={epochs},seed={seed}"
        accuracy = 0.5 + (lr == 0.1) * 0.2 + (epochs == 5) * 0.1 + seed * 0.01
        yield make_run(folder / name, accuracy, seed, local={"lr": lr, "epochs": epochs})


def written(runs, path):
    compare_runs(runs, output=Output(page=path))
    return path.read_text(), Reader(path.read_text())


def test_a_sweep_is_a_map_of_its_settings_and_the_best_run_is_linked(tmp_path, capsys):
    runs = list(grid_of(tmp_path))
    write_best(runs)
    _, reader = written(runs, tmp_path / "sweep.html")
    words = " ".join(reader.titles())
    assert "Accuracy by lr and epochs" in words
    assert "lr / epochs 1 5 0.1 71.50% 81.50% 0.3 51.50% 61.50%" in words  # means over the seeds
    third = make_run(tmp_path / "drop", 0.4, local={"lr": 0.1, "epochs": 5, "drop_last": True})
    assert "by lr and epochs" not in " ".join(written([*runs, third], tmp_path / "b.html")[1].titles())
    named = Output(page=tmp_path / "n.html", names=("lr 0.3, epochs 1=Bad",))
    compare_runs(runs, output=named)
    assert "Bad 51.50%" in " ".join(Reader((tmp_path / "n.html").read_text()).titles())
    link = "local.lr%3D0.1%2Clocal.epochs%3D5%2Cseed%3D2/report.html"
    assert {given["href"] for tag, given in reader.tags if tag == "a"} == {link, "#next"}
    assert (tmp_path / "local.lr=0.1,local.epochs=5,seed=2" / "report.html").exists()
    titles = ["Accuracy over rounds", "Accuracy over MB between server and silos", "Accuracy over seconds"]
    assert [title for title in reader.titles() if title.startswith("Accuracy over ")] == titles
    assert "lr 0.1, epochs 5 81.50%" in " ".join(words.split())
    assert "Each line is the mean over seeds. Each round is scored on the server's test set. Values" in words
    assert "sweep.html" in capsys.readouterr().out


def test_runs_are_called_by_all_settings_in_which_they_differ(tmp_path):
    found = groups([read_run(run) for run in grid_of(tmp_path / "grid")])
    assert telling_keys(found) == ["local.lr", "local.epochs"]
    more = [make_run(tmp_path / f"k{n}", 0.5, rounds=n, local={"lr": n / 10}) for n in (2, 3)]
    assert legends(groups([read_run(run) for run in more])) == ["rounds 2, lr 0.2", "rounds 3, lr 0.3"]
    again = make_run(tmp_path / "again", 0.5, rounds=2, local={"lr": 0.2})
    assert legends(groups([read_run(run) for run in [*more, again]])) == [
        "rounds 2, lr 0.2 (k2)", "rounds 3, lr 0.3", "rounds 2, lr 0.2 (again)"]  # fmt: skip
    other = {"name": "fedprox", "mu": 0.1}
    few = [make_run(tmp_path / "a", 0.5, name="x"), make_run(tmp_path / "b", 0.5, algorithm=other, name="y")]
    assert legends(groups([read_run(run) for run in few])) == ["fedavg", "fedprox, mu 0.1"]
    own = [make_run(tmp_path / f"d{n}", 0.5, algorithm={"name": "ditto", "lambda": n}) for n in (0.0, 1.0)]
    assert legends(groups([read_run(run) for run in [few[0], *own]])) == [
        "fedavg", "each silo alone", "ditto, lambda 1"]  # fmt: skip
    sums = make_run(tmp_path / "e", 0.5, algorithm={"name": "newton"}, local={"batch_size": 10})
    batches = make_run(tmp_path / "f", 0.5, local={"batch_size": 16})
    assert legends(groups([read_run(run) for run in [sums, batches]])) == ["newton", "fedavg, batch_size 16"]
    many = {"lr": 0.5, "epochs": 2, "momentum": 0.5, "drop_last": True, "weight_decay": 0.5}
    changed = make_run(tmp_path / "g", 0.5, algorithm=other, local=many, rounds=16)
    assert legends(groups([read_run(run) for run in [few[0], changed]]))[1].startswith("fedprox")
    same = [make_run(tmp_path / name, 0.5, seed=3) for name in ("c", "d")]
    assert legends(groups([read_run(run) for run in same])) == ["c", "d"]
    steps = [{}, {"momentum": 0.9}, {"name": "adam", "lr": 0.03}]
    served = [make_run(tmp_path / f"s{n}", 0.5, server_optimizer=of) for n, of in enumerate(steps)]
    assert legends(groups([read_run(run) for run in served])) == [
        "fedavg", "fedavg, server momentum 0.9", "fedavg, server adam, server lr 0.03"]  # fmt: skip
    both = make_run(tmp_path / "sm", 0.5, local={"momentum": 0.5}, server_optimizer=steps[1])
    assert legends(groups([read_run(run) for run in [served[0], both]])) == [
        "fedavg, momentum 0", "fedavg, momentum 0.5, server momentum 0.9"]  # fmt: skip
    far = {**many, "batch_size": 32, "optimizer": "sgd"}
    jobs = [{"name": "plain"}, {"name": "diloco", "server_optimizer": steps[1], "local": far, "rounds": 3}]
    apart = [make_run(tmp_path / f"far{n}", 0.5, **job) for n, job in enumerate(jobs)]
    assert legends(groups([read_run(run) for run in apart])) == ["plain", "diloco"], "too many keys differ"
    apart = [make_run(tmp_path / f"two{n}", 0.5, **{**job, "name": "x"}) for n, job in enumerate(jobs)]
    assert legends(groups([read_run(run) for run in apart])) == ["two0", "two1"]
    two = [Group("", [read_run(run)] * 2) for run in apart]
    assert telling_keys(two) == ["local.lr"], "and not rounds, which stand first in the job"
    scored = [make_run(tmp_path / f"e{n}", 0.5, evaluate={"every": n}, local={"lr": n / 10}) for n in (1, 2)]
    assert legends(groups([read_run(run) for run in scored])) == ["lr 0.1", "lr 0.2"], "of the models alone"
    masks = {"security": {"masks": True, "least": 3}, "evaluate": {"silos": False}}
    hidden = [make_run(tmp_path / "m0", 0.5), make_run(tmp_path / "m1", 0.5, **masks)]
    named = legends(groups([read_run(run) for run in hidden]))
    assert named[0].endswith(", no masks"), named
    assert "no security" not in named[0]
    long = [make_run(tmp_path / f"{'x' * 50}{end}", 0.5, seed=3) for end in "yz"]
    assert legends(groups([read_run(run) for run in long])) == ["x" * 50 + "y", "x" * 50 + "z"]
    wide = [{"name": f"{'m' * 50}{end}:net"} for end in "yz"]
    runs = [make_run(tmp_path / f"w{n}", 0.5, model=model, seed=n % 2) for n, model in enumerate(wide * 2)]
    told = legends(groups([read_run(run) for run in [*runs, make_run(tmp_path / "w", 0.5, model=wide[0])]]))
    assert len({*told}) == len(told)


def test_more_keys_are_parallel_axes_and_a_lower_value_may_be_the_better():
    tried = [Tried((a, b, c), float(n)) for n, (a, b, c) in enumerate(itertools.product("12", "12", "12"))]
    drawn = grid(["a", "b", "c"], tried, "error", "{:g}".format, min)
    (plot,) = drawn.blocks
    assert [tick.text for tick in plot.ticks] == ["a", "b", "c", "result"]
    assert len(plot.marks) == 8
    best = Mark("line best", "M0 100.0L333 100.0L667 100.0L1000 100.0", "a 1, b 1, c 1: 0", 1.0)
    assert plot.marks[-1] == best
    assert "a 2, b 2, c 2: 7" in [mark.title for mark in plot.marks]
    assert grid(["a", "b", "c"], tried[:7], "error", "{:g}".format, min) is None, "the table says as much"
    assert grid(["a"], tried, "error", "{:g}".format, min) is None, "a row of the table says as much"
    assert ordered(["10", "9", "adam", "1e-3", "sgd"]) == ["1e-3", "9", "10", "adam", "sgd"]


def test_a_folder_with_the_name_of_a_program_is_no_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [make_run(Path("javascript:alert(1)"), 0.5), make_run(Path("<b>"), 0.9, seed=2)]
    for run in runs:
        (run / "report.html").touch()
    _, reader = written(runs, Path("page.html"))
    found = {given["href"] for tag, given in reader.tags if tag == "a"}
    assert found == {"javascript%3Aalert%281%29/report.html", "%3Cb%3E/report.html"}
    assert "<b>" in reader.text
    check_whole(Path("page.html").read_text())


def test_a_page_that_is_none_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(InputError, match=r"--page .*p\.pdf: ends in '\.pdf'; it must be \.html"):
        compare_runs([tmp_path / "none"], output=Output(page=tmp_path / "p.pdf"))


def settings_of(folder, *ends, **more):
    """A setting for each list of ends, one seed for each of them."""
    return [
        make_run(folder / f"{nth}-{seed}", end, seed, local={"lr": 0.1 * (nth + 1)}, **more)
        for nth, of in enumerate(ends)
        for seed, end in enumerate(of, 1)
    ]


SEEN = "lr 0.1 is best: accuracy 81.33 ± 1.53% on the server's test set, the mean ± standard deviation "
LEVEL = "No difference is seen between the two settings. lr 0.1 has the best mean: accuracy 82.00 ± 2.83% on "
SINGLE = (
    "No setting is known to be best. lr 0.1 has the best figure: accuracy 90.00% on the server's test set, "
)
NEXT = (
    "lr 0.2 (71.67 ± 1.53%) is next, 9.67 points behind: 95% interval 8.23 to 11.10 points, p = 0.001 by a "
    "paired t-test over 3 seeds."
)
APART = (
    "1.00 points behind: 95% interval −113.36 to 115.36 points, p = 0.930 by a paired t-test over 2 seeds."
)
UNTOLD = "lr 0.2 (75.00 ± 7.07%) is next, 15.00 points behind; a single seed cannot show"
TOLD = [
    (([0.80, 0.81, 0.83], [0.70, 0.72, 0.73]), SEEN, NEXT),
    (([0.8, 0.84], [0.7, 0.92]), LEVEL, APART),
    (([0.9], [0.7, 0.8]), SINGLE, UNTOLD),
    (
        ([0.8, 0.8], [0.8, 0.8]),
        "No difference is seen between the two settings. lr 0.1 and lr 0.2 are equal: accuracy 80.00",
        "at the same value: 95% interval 0.00 to ",
    ),
    (
        ([0.8], [0.8]),
        "No setting is known to be best. lr 0.1 and lr 0.2 are equal: accuracy 80.00% on the server's test",
        "A single seed cannot show whether they differ.",
    ),
]
"""How settings ended, and what is said first and next of them."""


@pytest.mark.parametrize(
    ("ends", "first", "then"), TOLD, ids=["seen", "within", "one seed", "the same", "one seed the same"]
)
def test_settings_are_told_apart_only_by_more_than_seeds_make(tmp_path, capsys, ends, first, then):
    runs = settings_of(tmp_path, *ends)
    _, reader = written(runs, tmp_path / "c.html")
    found = verdict(standings_of([read_run(run) for run in runs]))
    assert found[0].startswith(first)
    assert then in found[1]
    assert set(found) <= set(reader.text), "the page and the terminal say the same"
    printed = " ".join(capsys.readouterr().out.split())
    assert all(" ".join(one.split()) in printed for one in found)
    assert ("behind the first" in printed) == ("A t-test over the seeds compares" in " ".join(reader.text))


def test_a_difference_that_other_rows_may_turn_is_best_on_these_rows_alone(tmp_path):
    """On 20 rows one wrong answer is 5 points, so gaps of 1 and 2 points are none beyond chance."""
    ends = [0.90, 0.95, 1.0], [0.89, 0.941, 0.99], [0.88, 0.931, 0.98]
    runs = settings_of(tmp_path, *ends, shards=str(tmp_path / "shards"))
    said = verdict(standings_of([read_run(run) for run in runs]))
    assert said[0].startswith("lr 0.1 is best: accuracy 95.00"), "how many rows judge is not known"
    spec = write_folder(tmp_path / "shards", [4], test=20)
    for run in runs:
        write_environment(run, data=describe(spec))
    found = standings_of([read_run(run) for run in runs])
    said, (first, second) = verdict(found), (one.rows.reach for one in rivals(found))
    assert said[0].startswith("lr 0.1 is best on these rows: accuracy 95.00")
    assert first[0] < 0 < first[1] < second[1], "each gap has an interval of its own"
    reach = units.between(*first, ACCURACY)
    assert f"interval by rows of lr 0.2, {reach}, includes 0, as that of lr 0.3" in said[1]
    assert {one.rows.level for one in rivals(found)} == {0.05 / 3}, "its first step fails"
    assert corrected(found), "which is said once"
    _, reader = written(runs, tmp_path / "all.html")
    looks = [given.get("class") for tag, given in reader.tags if tag == "td"]
    assert "worst" not in looks, "no gap is red whose interval includes 0"
    assert " ".join(reader.titles()).count(corrected(found)[0]) == 1
    advice = "Take lr 0.1 for rows like these; more test rows would tell whether it is best on others, too."
    assert f"What to do next: {advice}" in " ".join(reader.titles())
    even = settings_of(tmp_path / "even", ends[0], [0.89, 0.94, 0.99], shards=str(tmp_path / "shards"))
    for run in even:
        write_environment(run, data=describe(spec))
    words = " ".join(written(even, tmp_path / "c.html")[1].titles())
    (last,) = rivals(standings_of([read_run(run) for run in even]))
    reach = units.between(*last.rows.reach, ACCURACY)
    by_rows = f"so seeds give no interval; report the interval by rows, {reach}."
    assert f"1.00 points behind for each of 3 seeds, {by_rows}" in words
    assert "1.00 same for all seeds −" in words, "no interval of no width"


def judged_run(folder, valid, test=None, silos=None, seed=1, data="one", own=False, **more):
    """A run with rounds scored on validation rows, and its end on the server's or the silos' test rows."""
    evaluate = {"split": "valid"}
    make_run(folder, 0.5, seed, evaluate=evaluate, **more)
    records = [{"round": n, "train_loss": 1.0, "seconds": 1.0, "silo_accuracy_pooled": valid} for n in (1, 2)]
    final = {} if test is None else {"test_accuracy": test}
    final |= {} if silos is None else {"silo_accuracy_pooled": silos}
    records[-1] |= {"final": final} if final else {}
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    write_environment(folder, data={"sha256": data, "test": data, "form": "f", "public": ""}, own_models=own)
    return folder


def judged(*runs):
    found = standings_of([read_run(run) for run in runs])
    said = found[0].judged.words() if found else ""
    return [one.name for one in found], said, " ".join(verdict(found))


def test_the_figure_that_stands_first_is_of_test_rows_where_all_have_them(tmp_path):
    """By validation rows the first is better, by test rows the second."""
    one = judged_run(tmp_path / "one", 0.93, 0.91, 0.94, local={"lr": 0.1})
    other = judged_run(tmp_path / "two", 0.92, 0.92, 0.93, local={"lr": 0.2})
    names, said, _ = judged(one, other)
    assert (names, said) == (["lr 0.2", "lr 0.1"], "accuracy on the server's test set, after round 2")
    valid = judged_run(tmp_path / "three", 0.99, local={"lr": 0.3})
    names, said, told = judged(one, other, valid)
    assert names == ["lr 0.3", "lr 0.1", "lr 0.2"]
    assert said == "accuracy on the silos' validation rows, after round 2"
    assert "not ranked" not in told


def test_a_search_is_judged_by_valid_rows_and_says_what_its_choice_has_on_test_rows(tmp_path, capsys):
    """By validation rows the first is better, by test rows the second."""
    runs = [judged_run(tmp_path / "one", 0.93, 0.91, local={"lr": 0.1})]
    runs.append(judged_run(tmp_path / "two", 0.92, 0.92, local={"lr": 0.2}))
    page = tmp_path / "sweep.html"
    write_best(runs, search=True)
    assert [(run / "report.html").exists() for run in runs] == [True, False]
    compare_runs(runs, output=Output(page=page), search=True)
    said = "lr 0.1 has accuracy 91.00% on test rows, scored once at the end."
    for text in (capsys.readouterr().out, " ".join(Reader(page.read_text()).text)):
        assert said in text
        assert "lr 0.1 has the best figure: accuracy 93.00%" in text
        assert "Settings are ranked by accuracy on the silos' validation rows, after round 2." in text
    compare_runs(runs)
    out = capsys.readouterr().out
    assert "lr 0.2 has the best figure: accuracy 92.00%" in out
    assert "On test rows" not in out
    runs.append(make_run(tmp_path / "three", 0.9, local={"lr": 0.3}))
    compare_runs(runs, search=True)
    assert "Settings are ranked by accuracy on the server's test set" in capsys.readouterr().out, (
        "one has no validation rows"
    )


def scored_at_end(folder, valid, test, **more):
    """A run whose silos, a and b, have these values in every round, and those at the end."""

    def told(*values):
        mean = round(sum(values) / 2, 3)
        figures = {"mean": mean, "worst": min(values), "pooled": mean}
        silos = {name: {"accuracy": one} for name, one in zip("ab", values, strict=True)}
        return {f"silo_accuracy_{name}": one for name, one in figures.items()} | {"silos": silos}

    judged_run(folder, 0.5, **more)
    rounds = [{"round": n, "train_loss": 1.0, "seconds": 1.0, **told(*valid)} for n in (1, 2)]
    rounds[-1] |= {"final": told(*test)} if test else {}
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, rounds)))
    return folder


def test_figures_of_silos_are_of_test_rows_where_the_end_was_scored_on_them(tmp_path, capsys):
    run = scored_at_end(tmp_path / "one", [0.9, 0.8], [0.6, 0.7], local={"lr": 0.1})
    other = scored_at_end(tmp_path / "two", [0.9, 0.8], [0.5, 0.6], local={"lr": 0.2})
    files = {name: tmp_path / f"c.{name}" for name in ("csv", "json", "page", "latex")}
    files["page"] = tmp_path / "c.html"
    compare_runs([run, other], output=Output(**files))
    assert "a silo's figures are on its test rows at the end." in capsys.readouterr().out
    heads, first, _ = cells_of(files["latex"].read_text())
    found = dict(zip(heads, first, strict=True))
    assert found[r"accuracy (\%)"] == "$65.00$"
    assert found[r"worst silo, test rows (\%)"] == "$60.00$"
    assert "on the silos' held-out examples, after round 2" in files["latex"].read_text().splitlines()[0]
    told = next(csv.DictReader(files["csv"].open()))
    assert (told["silo_accuracy_worst"], told["silo_accuracy_mean"], told["silo_rows"]) == (
        "0.6", "0.65", "test rows")  # fmt: skip
    assert json.loads(files["json"].read_text())["runs"][0]["worst_silo"] == "a"
    words = " ".join(Reader(files["page"].read_text()).titles())
    assert "worst silo, test rows" in words, "of one seed"
    held = {"a": Held(5, 10, {1: 10}), "b": Held(5, 10, {0: 4, 1: 6})}
    standings = standings_of([read_run(run), read_run(other)])
    said = ["Without the rows of silo a, lr 0.1 has 70.00% and lr 0.2 has 60.00%."]
    assert without_one_class(standings, held) == said
    assert without_one_class(standings, {"a": held["b"], "b": held["b"]}) == [], "both have two classes"
    assert "Each round is scored on validation rows." in words
    page = " ".join(Reader(write_report(run).read_text()).text)
    assert "on test rows. Silo a is the worst of 2 silos, with 60.00%" in page
    assert "silo a; the mean over silos is 65.00%; test rows" in page
    assert (
        "Scores are on the test rows of each silo, once at the end. Each round is scored on validation rows."
        in page
    )
    assert "worst silo, validation rows" in page, "of every round"
    assert "80.00%" in page


def test_settings_of_which_some_have_no_end_are_all_told_by_valid_rows(tmp_path, capsys):
    run = scored_at_end(tmp_path / "one", [0.9, 0.8], [0.6, 0.7], local={"lr": 0.1})
    alone = {"name": "ditto", "lambda": 0.0}
    other = scored_at_end(tmp_path / "two", [0.8, 0.7], None, algorithm=alone)
    compare_runs([run, other], output=Output(latex=tmp_path / "c.tex"))
    assert "figures are on its test rows at the end or its validation rows" in capsys.readouterr().out
    heads, *rows = cells_of((tmp_path / "c.tex").read_text())
    assert r"worst silo, validation rows (\%)" in heads
    assert [row[2] for row in rows] == ["$80.00$", "$70.00$"]
    page = " ".join(Reader(write_report(other).read_text()).text)
    assert "Accuracy is 75.00% on the silos' validation rows, taken together as one set." in page
    assert "Scores after round 2, on each silo's validation rows." in page
    with pytest.raises(InputError, match=r"--alone .*two: has figures of silos on validation rows alone"):
        write_report(run, None, other)


def test_silos_with_models_of_their_own_are_judged_by_these(tmp_path):
    alone = {"name": "ditto", "lambda": 0.0}
    one = judged_run(tmp_path / "one", 0.93, 0.93, 0.94, local={"lr": 0.1})
    own = judged_run(tmp_path / "own", 0.92, 0.92, 0.95, own=True, algorithm=alone)
    names, said, _ = judged(one, own)
    assert names[0].startswith("each silo alone")
    assert said == (
        "accuracy on the silos' held-out examples, after round 2, "
        "by the model of each silo where it has its own"
    )
    none = judged_run(tmp_path / "none", 0.5, 0.9, local={"lr": 0.4})
    rounds = [encode_record({"round": n, "train_loss": 1.0}) for n in (1, 2)]
    (none / "metrics.jsonl").write_bytes(b"".join(rounds))
    lack, gives = f"These runs lack this figure and are not ranked: {none}", f"mpifl evaluate {none} --silos"
    assert judged(one, own, none)[2].endswith(f"{lack}; {gives} scores a model so.")


def test_runs_on_other_rows_are_not_ranked(tmp_path):
    runs = [judged_run(tmp_path / f"{name}-{seed}", 0.9, 0.5 + 0.1 * (name == "b") + 0.01 * seed, seed=seed,
                       data=name, shards=name) for name in "ab" for seed in (1, 2)]  # fmt: skip
    assert judged(*runs)[2] == "The runs are scored on different rows, so they are not ranked."


def test_repeats_over_partitions_are_paired_where_all_settings_have_the_same(tmp_path, capsys):
    runs = {
        (name, seed): judged_run(
            tmp_path / f"{name}-{seed}", 0.9, 0.5 + 0.1 * (name == "scaffold") + 0.01 * seed**2, seed=seed,
            data=f"p{seed}", shards=f"sh/p{seed}", algorithm={"name": name},
        )
        for name in ("fedavg", "scaffold") for seed in (1, 2, 3)
    }  # fmt: skip
    names, _, said = judged(*runs.values())
    assert names == ["scaffold", "fedavg"]
    assert said.startswith("scaffold is best: accuracy 64.67 ± 4.04% on the server's test set, the mean ± ")
    assert "10.00 points behind for each of 3 seeds, so seeds give no interval. Each" in said
    assert "Each seed has shards of its own, the same for all settings." in said
    other = judged_run(
        tmp_path / "other", 0.9, 0.5, seed=1, data="all", shards="sh", algorithm={"name": "newton"}
    )
    compare_runs([*runs.values(), other])
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "other: each seed of the other settings has shards of its own, and this run is not on all of th"
        in said
    )
    last = runs.pop(("fedavg", 3))
    compare_runs(list(runs.values()), output=Output(page=tmp_path / "p.html"))
    printed, page = " ".join(capsys.readouterr().out.split()), Reader((tmp_path / "p.html").read_text())
    for said in (printed, " ".join(page.text)):
        assert (
            "scaffold is best: accuracy 62.50 ± 2.12% on the server's test set, the mean ± standard" in said
        )
        assert "Settings are compared by seeds 1 and 2 alone, which all of them have." in said
        assert "different rows" not in said
        assert "other shards" not in said
    assert "4 of 5 runs are ranked. Left out: scaffold-3 (not every setting has a run of its seed and" in said
    for run in (*runs.values(), last):
        data = read_environment(run)["data"]
        write_environment(run, code={"own": ("b" if run == last else "a") * 64}, data=data)
    compare_runs([*runs.values(), last])
    said = " ".join(capsys.readouterr().out.split())
    assert f"{last}: by another code of own than {runs['fedavg', 1]}, by the same job" in said
    assert "other shards" not in said
    assert "Settings are compared by seeds 1 and 2 alone" in said
    assert "Not ranked, since fewer than two seeds, which have shards of their own, in common with" in said
    each = {0.1: (1, 2, 3, 4), 0.2: (1, 2), 0.3: (3, 4)}
    few = [
        judged_run(tmp_path / f"{lr}-{seed}", 0.9, 0.5, seed=seed, data=str(seed), shards=str(seed),
                   local={"lr": lr})
        for lr, seeds in each.items() for seed in seeds
    ]  # fmt: skip
    assert judged(*few)[2] == (
        "The runs are scored on different rows: each seed has shards of its own, and fewer than two "
        "seeds are common to all, so they are not ranked."
    )


def test_runs_of_other_code_of_ones_own_are_another_setting(tmp_path, capsys):
    runs = [make_run(tmp_path / f"{seed}", 0.5 + seed / 100, seed) for seed in (1, 2, 3, 4, 5)]
    for run, code in zip(runs, "aaabb", strict=True):
        write_environment(run, code={"own": code * 64})
    first, other = groups([read_run(run) for run in runs])
    assert [len(first.runs), len(other.runs)] == [3, 2]
    assert "(code as of 4)" in other.name
    compare_runs(runs)
    said = " ".join(capsys.readouterr().out.split())
    assert f"{runs[3]}: by another code of own than {runs[0]}, by the same job" in said
    assert "code as of 4" in said


def test_of_many_settings_it_is_said_whether_one_is_best(tmp_path, capsys):
    ends = [0.80, 0.81, 0.83, 0.82], [0.80, 0.812, 0.828, 0.82], [0.5, 0.51, 0.53, 0.52], [0.7]
    found = verdict(standings_of([read_run(run) for run in settings_of(tmp_path, *ends)]))
    assert found[0].startswith("No single setting is best. lr 0.1 has the best mean")
    assert found[1].endswith("by a paired t-test over 4 seeds.")
    told = standings_of([read_run(run) for run in settings_of(tmp_path / "again", *ends)])
    assert corrected(told)[0].startswith("Intervals of differences and p are corrected by Holm for all pairs")
    assert corrected(told[:2]) == [], "two settings are one test"
    compare_runs([tmp_path / "again"], output=Output(latex=tmp_path / "c.tex", page=tmp_path / "c.html"))
    texts = (tmp_path / "c.tex").read_text(), capsys.readouterr().out
    assert all(" ".join(text.split()).count(corrected(told)[0]) == 1 for text in texts)
    words = " ".join(Reader((tmp_path / "c.html").read_text()).titles())
    near = "What to do next: Take the simplest of lr 0.1; lr 0.2; and lr 0.4"
    assert f"{near}, or run more seeds of each, and compare all again: mpifl sweep " in words, (
        "they are not told apart"
    )
    more = (
        f"mpifl sweep {tmp_path}/again/3-1/job.toml --set seed=2,3,4,5,6,7 --out {tmp_path}/again/3-1-seeds"
    )
    assert more in words, "also the seeds that others have"
    assert "Predict by the model of lr 0.1, with seed 1, not chosen by its figure: mpifl predict " in words
    assert ": 95% interval " in found[1]
    assert len(found) == 2, "the table has the rest"
    (tmp_path / "fewer").mkdir()
    of_one = standings_of([read_run(run) for run in settings_of(tmp_path / "fewer", *ends[::2], ends[3])])
    best = "lr 0.1 is the best of the 2 settings with several seeds: accuracy 81.50"
    assert verdict(of_one)[0].startswith(best)
    (which, commands), *_ = next_of_settings(of_one)
    better = f"to tell whether it is better than lr {0.1 + 0.2}, run more seeds of both"
    assert which == f"Take lr 0.1; {better}, and compare all again:"
    *sweeps, again = commands.splitlines()
    assert [one.split()[1] for one in sweeps] == ["sweep"] * 2
    outs = [one.split()[-1] for one in sweeps]
    assert again.split() == ["mpifl", "compare", str(tmp_path / "fewer"), *outs]


def test_differences_over_seeds_are_those_of_scipy():
    one, other = [0.81, 0.79, 0.84, 0.8], [0.78, 0.8, 0.79, 0.77]
    found = chance.over_seeds(dict(enumerate(one)), dict(enumerate(other)))
    told = stats.ttest_rel(one, other)
    assert found.paired
    assert (found.p, found.low, found.high) == pytest.approx((told.pvalue, *told.confidence_interval()))
    found = chance.over_seeds(dict(enumerate(one)), dict(enumerate(other[:3], 9)))
    told = stats.ttest_ind(one, other[:3], equal_var=False)
    assert not found.paired
    assert (found.p, found.low, found.high) == pytest.approx((told.pvalue, *told.confidence_interval()))
    assert chance.over_seeds({1: 0.5}, {1: 0.4, 2: 0.5}) is None
    assert chance.over_seeds({1: 0.5, 2: 0.5}, {1: 0.4, 2: 0.4}).p == pytest.approx(0)
    tests = [replace(found, p=p) for p in (0.01, 0.04, 0.03, 0.005)]
    assert [p for _, p in chance.holm(tests)] == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_an_interval_never_contradicts_its_corrected_p():
    """The least p of the first case is refused by nobody, so neither is a later one at a milder level."""
    draws, met = np.random.default_rng(3), set()
    for spread in (0.0, 0.5, 1.0, 2.0) * 25:
        values = draws.normal(draws.normal(0, spread, (6, 1)), 1, (6, 5))
        tests = [chance.over_seeds(dict(enumerate(of)), dict.fromkeys(range(5), 0.0)) for of in values]
        tests.append(chance.by_right_answers(*draws.integers(0, 30, 2).tolist(), 100))
        for (test, p), alone in zip(chance.holm(tests), tests, strict=True):
            assert (p <= chance.LEVEL) == (test.low > 0 or test.high < 0)
            assert test.low <= alone.low <= alone.high <= test.high, "no narrower than of one test alone"
            met.add((alone.seen, p <= chance.LEVEL))
    assert met == {(False, False), (True, False), (True, True)}
    ps = [0.2, 0.001, 0.017, 0.013, 0.03]  # the first step is seen alone
    tests = [replace(tests[0], p=p) for p in ps]
    levels = [test.level for test, _ in chance.holm(tests)]
    textbook = {p: 0.05 / (len(ps) - nth) for nth, p in enumerate(sorted(ps))}
    assert [textbook[p] for p in ps] == pytest.approx([0.05, 0.01, 0.05 / 3, 0.0125, 0.025])
    assert levels == pytest.approx([textbook[p] for p in ps])
    (_, (second, p)) = chance.holm([replace(tests[0], p=p) for p in (0.03, 0.04)])
    assert (second.level, p) == (0.025, 0.06), "the first step failed at 0.025, so the second ends there"
    ((only, p),) = chance.holm(tests[:1])
    assert (only.low, only.high, p) == (tests[0].low, tests[0].high, tests[0].p)


def equal_settings(draws, settings, seeds, same):
    """Settings that differ by chance alone; those of the same seeds have a part in common."""
    for drawn in np.random.default_rng(5).normal(size=(draws, settings + 1, seeds)):
        ends = drawn[1:] + (drawn[0] if same else 0)
        each = [
            Standing(
                f"s{nth}", Group("", []), ACCURACY, of.tolist(), [(nth * (not same), s) for s in range(seeds)]
            )
            for nth, of in enumerate(ends)
        ]
        yield sorted(each, key=lambda one: -one.mean)


@pytest.mark.parametrize(
    ("settings", "seeds", "same"),
    [
        (2, 3, True),
        (2, 3, False),
        pytest.param(2, 5, True, marks=pytest.mark.slow),
        (2, 5, False),
        (6, 5, True),
        pytest.param(6, 5, False, marks=pytest.mark.slow),
    ],
)
def test_equal_settings_are_told_apart_in_about_one_case_of_twenty(settings, seeds, same):
    """With Holm's correction at most so often; Welch's test keeps below its level where seeds are few."""
    draws = 1500
    told = [rivals(found) for found in equal_settings(draws, settings, seeds, same)]
    false = sum(any(one.seen for one in of) for of in told) / draws
    assert false < 0.065
    assert settings > 2 or false > (0.035 if same else 0.02)


def test_a_lower_value_may_be_the_better():
    loss = MetricInfo(name="rmse", higher_is_better=False)
    low, high = (
        Standing(str(ends[0]), Group("", []), loss, ends, [1, 2, 3]) for ends in ([1, 1.1, 1.3], [3, 3, 3.3])
    )
    (rival,) = rivals([low, high])
    assert rival.seen
    assert rival.test.low > 0, "how far behind is positive"
    assert (
        verdict([low, high])[0]
        == "1 is best: RMSE 1.1333 ± 0.1528, the mean ± standard deviation over 3 seeds."
    )


def test_a_single_lucky_run_is_not_best_and_the_files_have_each_runs_setting(tmp_path):
    runs = settings_of(tmp_path, [0.95, 0.55], [0.8, 0.82])
    compare_runs(runs, output=Output(csv=tmp_path / "c.csv", json=tmp_path / "c.json"))
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert [row["setting"] for row in rows] == ["lr 0.1", "lr 0.1", "lr 0.2", "lr 0.2"]
    assert [float(row["setting_mean"]) for row in rows] == pytest.approx([0.75, 0.75, 0.81, 0.81])
    assert [float(row["setting_behind"]) for row in rows] == pytest.approx([0.06, 0.06, 0, 0])
    told = stats.ttest_rel([0.8, 0.82], [0.95, 0.55])
    for name, value in zip(("p", "low", "high"), (told.pvalue, *told.confidence_interval()), strict=True):
        assert float(rows[0][f"setting_{name}"]) == pytest.approx(value)
        assert rows[2][f"setting_{name}"] == ""
    assert [(row["setting_test"], row["setting_seen"]) for row in rows[1:3]] == [
        ("paired", "false"),
        ("", ""),
    ]
    assert [row["setting_seeds"] for row in rows] == ["2"] * 4
    assert {row["setting_low_by_rows"] for row in rows} == {""}, "how many rows judge is not known"
    first, second = json.loads((tmp_path / "c.json").read_text())["settings"]
    assert (first["setting"], first["setting_p"]) == ("lr 0.2", None)
    assert (second["setting_seen"], second["setting_p_holm"]) == (False, pytest.approx(told.pvalue))


def test_a_setting_has_a_dot_for_each_seed_and_a_line_of_its_deviation(tmp_path):
    _, reader = written(settings_of(tmp_path, [0.8, 0.9], [0.5, 0.6], [0.7]), tmp_path / "c.html")
    lines = [given for tag, given in reader.tags if tag == "line" and "x1" in given]
    assert [(given["x1"], given["x2"]) for given in lines] == [("63.2%", "86.8%"), ("13.2%", "36.8%")]
    places = [float(given["cx"].rstrip("%")) for tag, given in reader.tags if tag == "circle"]
    assert places == pytest.approx([66.7, 83.3, 50, 16.7, 33.3])  # the best first


def test_silos_gain_over_those_that_train_alone_where_it_is_more_than_chance(tmp_path):
    spec = write_folder(tmp_path / "shards", [4, 4, 4], silos_test=100, test=100)
    alone = {"name": "ditto", "lambda": 0.0}
    runs = [
        *(make_run(tmp_path / f"a{n}", 0.9, n, {"0": 0.9, "1": 0.6, "2": 0.7}, shards=tmp_path / "shards")
          for n in (1, 2)),
        make_run(tmp_path / "b", 0.5, 1, {"0": 0.7, "1": 0.9, "2": 0.69}, shards=tmp_path / "shards",
                 algorithm=alone),
    ]  # fmt: skip
    for run in runs:
        write_environment(run, data=describe(spec))
    _, reader = written(runs, tmp_path / "c.html")
    words = " ".join(reader.titles())
    assert "with fedavg and 76.33% with each silo alone (" in words
    assert "of silos: 1 does better, 1 does worse, and 1 shows no difference." in words
    beside = "On each silo's held-out examples, not on the server's test set, the silos' mean is 73.33% with "
    assert beside in words
    assert words.index("the silos' mean is") < words.index("Settings are ranked by"), "who pays is told early"
    assert "To tell whether it helped" not in words, "silos that train alone are there"
    assert (
        "silo each silo alone fedavg, change −50 0 +50 fedavg 2 69.00% +1.00 70.00% "
        "0 70.00% +20.00 90.00% +20.00 1 90.00% −30.00 60.00% −30.00" in words
    ), "what the first setting changes is drawn"
    assert "behind the first, points" in words
    collapsed = "Warning: silo 1 is bad with fedavg: 60.00%, and 90.00% with the others. Why: no cause"
    assert f"{collapsed} is known, and no round left it out. To do: see What to do next ." in words
    assert "Choose another setting than fedavg for silo 1; its page says when it fell: mpifl report " in words
    assert words.count("is bad with") == 1, "20 points are no collapse"
    assert [given.get("class") for _, given in reader.tags].count("lead") <= 3
    assert "accuracy ± deviation over seeds" in words
    compare_runs(runs, output=Output(csv=tmp_path / "c.csv"))
    rows = [*csv.DictReader((tmp_path / "c.csv").open())]
    assert [row["setting"] for row in rows] == ["fedavg", "fedavg", "each silo alone"]
    low, high = (float(rows[2][f"setting_{end}_by_rows"]) for end in ("low", "high"))
    behind = float(rows[2]["setting_behind"])
    assert low < behind < high
    assert rows[0]["setting_low_by_rows"] == "", "of the first there is no difference"
    assert float(rows[2]["setting_level_by_rows"]) == 0.05
    for run, worst, gone in zip(runs, (0.6, 0.6, 0.69), ({"2": {"loss": 0.5}}, {}, {}), strict=True):
        rounds = [*map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]
        rounds = [
            one
            | {"silo_accuracy_worst": worst, "silo_accuracy_mean": 0.1 + worst, "silos": one["silos"] | gone}
            for one in rounds
        ]
        (run / "metrics.jsonl").write_bytes(b"".join(map(encode_record, rounds)))
    told = " ".join(written(runs, tmp_path / "c.html")[1].titles())
    assert "Left out, since their rows have no accuracy: silo 2." in told
    table = told[told.index("Which silos gain?") :]
    assert "2 69.00% – –" in table, "a silo without a value has no change"
    assert "60.00% at silo 1, seed 1" in told, "the worst silo, and by which seed"
    other = "For the silos' own rows look at each silo alone, too: the mean over silos is 79.00%"
    assert f"{other}, and 70.00% with fedavg." in told
    assert "69.00%, silo 2" in told, "of a single run"
    write_environment(runs[2], data=describe(write_folder(tmp_path / "others", [5, 4, 4])))
    assert "Which silos gain?" not in written(runs, tmp_path / "c.html")[1].text, "they hold other data"


def test_a_gain_is_held_against_chance_over_seeds_where_there_are_several(tmp_path):
    """Silo 1 gains in each of three seeds alike, and silo 0 in one alone: by examples, both gain."""
    spec = write_folder(tmp_path / "shards", [4, 4], silos_test=1000)
    runs = [
        make_run(
            tmp_path / f"{name}{seed}", 0.5 + 0.1 * shift, seed, {"0": first, "1": 0.6 + shift + seed / 100},
            shards=tmp_path / "shards", algorithm={"name": name, **more},
        )
        for name, shift, firsts, more in (
            ("fedavg", 0, (0.5, 0.5, 0.5), {}), ("fedprox", 0.2, (0.5, 0.5, 0.9), {"mu": 0.1}))
        for seed, first in enumerate(firsts)
    ]  # fmt: skip
    for run in runs:
        write_environment(run, data=describe(spec))
    words = " ".join(written(runs, tmp_path / "c.html")[1].titles())
    assert "of silos: 1 does better, none does worse, and 1 shows no difference." in words
    said = (
        "held-out examples, as means over seeds. The first column, fedavg, is the reference of all changes, "
    )
    said += "since it is the only setting of fedavg, the usual algorithm."
    assert (
        "To tell whether it helped, train each silo alone, and one model on all rows, by the job of" in words
    )
    assert "--set seed=1,2,3 --out " not in words, "the setting has three seeds"
    assert " The chart has all changes of fedprox, mu 0.1." in words
    assert f"Scores are on each silo's {said}" in words
    assert "exceeds chance over the seeds and over the held-out examples, for each silo by itself." in words
    assert "6 runs · 2 settings · logreg" in words
    assert "Traffic and time are means per run." in words
    assert "0 50.00% +13.33 63.33% 1 61.00% +20.00 81.00% +20.00" in words
    words = " ".join(written([runs[0], runs[5]], tmp_path / "c.html")[1].titles())
    assert "0 50.00% +40.00 90.00% +40.00" in words
    assert "over the held-out examples, for each silo by itself." in words
    assert "How this is computed A setting with one seed shows no spread over seeds." in words


def test_without_a_clear_reference_no_silo_gains_and_one_may_be_named(tmp_path):
    runs = [
        make_run(tmp_path / f"{nth}", 0.5 + nth / 10, 1, {"0": 0.5 + nth / 10, "1": 0.6}, local={"lr": lr})
        for nth, lr in enumerate((0.1, 0.2, 0.3))
    ]
    words = " ".join(written(runs, tmp_path / "c.html")[1].titles())
    assert (
        "Scores of each silo Scores are on each silo's held-out examples. No setting is a clear reference"
        in words
    )
    assert "Beyond chance" not in words
    assert "silo lr 0.3 lr 0.2 lr 0.1 1 60.00% 60.00% 60.00% 0 70.00% 60.00% 50.00%" in words
    compare_runs(runs, output=Output(page=tmp_path / "c.html", against="lr 0.2"))
    words = " ".join(Reader((tmp_path / "c.html").read_text()).titles())
    assert (
        "is the reference of all changes, since --against names it. Chance is not known for single" in words
    )
    told, p = [0.1, 0.0], stats.ttest_1samp([0.1, 0.0], 0).pvalue
    assert stats.ttest_1samp([-one for one in told], 0).pvalue == p == pytest.approx(0.5)
    said = (
        "p = 1.000 by a paired t-test over the silos, both corrected by Holm for the 2 settings held against"
    )
    assert f"{said} lr 0.2)" in words, "the setting that the results chose is tested with all others"
    with pytest.raises(InputError, match=r"--against lr 9: .* they are: lr 0\.3; lr 0\.2; lr 0\.1$"):
        compare_runs(runs, output=Output(page=tmp_path / "c.html", against="lr 9"))


def test_a_page_says_what_was_left_out_and_who_missed_the_target(tmp_path, capsys):
    runs = [make_run(tmp_path / f"{lr}-{seed}", end, seed, local={"lr": lr}, evaluate={"target": 0.7})
            for lr, seed, end in ((0.1, 1, 0.8), (0.1, 2, 0.6), (0.2, 1, 0.5))]  # fmt: skip
    words = " ".join(written(runs, tmp_path / "c.html")[1].titles())
    assert "3 of 3 runs are ranked." in words
    assert words.count("reached by 1 of 2 seeds") == 1
    assert "not reached" in words
    assert "No setting reached" not in words
    words = " ".join(written(runs[2:], tmp_path / "c.html")[1].titles())
    assert "No setting reached the target, 70%." in words
    (runs[2] / "model.safetensors").unlink()
    again = make_run(tmp_path / "again", 0.9, 1, local={"lr": 0.1}, evaluate={"target": 0.7})
    words = " ".join(written([*runs, again, tmp_path / "gone"], tmp_path / "c.html")[1].titles())
    said = "Left out: gone (is not a folder), 0.2-1 (unfinished), again (repeats a seed)."
    assert f"2 of 5 runs are ranked. {said}" in words
    assert "5 runs · 1 setting ·" in words
    assert "0.2-1 unfinished: " in words, "among the remarks"
    capsys.readouterr()
    compare_runs(runs, output=Output(latex=tmp_path / "c.tex"))
    line = f"Not ranked, since unfinished: {runs[2]}."
    for told in (capsys.readouterr().out.splitlines(), (tmp_path / "c.tex").read_text().splitlines()):
        assert sum(line in one for one in told) == 1
    for run in runs[:2]:
        (run / "model.safetensors").unlink()
    compare_runs(runs)
    out = capsys.readouterr().out
    assert "lr 0.1" in out
    assert line not in out, "where none is finished, all are ranked as far as they are"


def test_a_setting_of_which_a_run_diverged_is_not_ranked(tmp_path, capsys):
    """Its other seed would be the best of all."""
    runs = settings_of(tmp_path, [0.8, 0.81], [0.9, 0.9], [0.7, 0.72])
    (runs[3] / "metrics.jsonl").write_bytes(
        b"".join(encode_record({"round": n, "test_accuracy": 0.9, "train_loss": None}) for n in (1, 2))
    )
    files = {"csv": tmp_path / "c.csv", "page": tmp_path / "c.html"}
    compare_runs(runs, output=Output(**files))
    words = " ".join(Reader(files["page"].read_text()).titles())
    for text in (words, " ".join(capsys.readouterr().out.split())):
        assert "Not ranked, since this setting has a run that diverged: lr 0.2." in text
    assert (
        "lr 0.1 (80.50 ± 0.71%)" in words or "lr 0.1 has the best mean" in words or "lr 0.1 is best" in words
    )
    assert "Left out: 1-1 (another seed of its setting diverged), 1-2 (its loss diverged)." in words
    assert "6 runs · 3 settings" in words
    assert [row["setting"] for row in csv.DictReader(files["csv"].open())][2:4] == ["", ""]
    assert "corrected by Holm for" not in words, "two settings are one test"
    (tmp_path / "all").mkdir()
    said = " ".join(written([runs[3]], tmp_path / "c.html")[1].titles())
    assert "No run is ranked: all have diverged." in said
    write_best(runs)  # of all that did not diverge, also of a setting of which another did
    assert [(run / "report.html").exists() for run in runs] == [False, False, True, False, False, False]


def test_a_setting_has_one_colour_on_the_page_and_in_the_picture(tmp_path):
    """Whatever order the runs come in; and the colours of pictures are those of the pages."""
    pytest.importorskip("matplotlib")
    runs = [
        make_run(tmp_path / f"{lr}", end, local={"lr": lr})
        for lr, end in ((0.1, 0.5), (0.2, 0.9), (0.3, 0.7))
    ]
    style = (Path(charts.__file__).parent / "templates" / "page.css").read_text().partition("@media")[0]
    assert tuple(re.search(rf"--{name}: (#\w+);", style)[1] for name in charts.COLOURS) == COLOURS
    for order in (runs, runs[::-1]):
        compare_runs(order, output=Output(page=tmp_path / "c.html", plot=tmp_path / "c.svg"))
        drawn = re.findall(r"stroke: (#\w+); stroke-width: 1\.5", (tmp_path / "c.svg").read_text())
        page = (tmp_path / "c.html").read_text()
        first = page[page.index("Accuracy over rounds") :]
        assert re.findall(r'class="(s\d)"></i><bdi>lr (0\.\d)', first)[:3] == [
            ("s0", "0.2"),
            ("s1", "0.3"),
            ("s2", "0.1"),
        ]
        assert list(dict.fromkeys(drawn)) == list(COLOURS[:3])
        found = groups([read_run(run) for run in order])
        looks = zip(found, group_looks(found), strict=True)
        assert {one.runs[0].run.name: look.page for one, look in looks} == {
            "0.2": "s0", "0.3": "s1", "0.1": "s2"}  # fmt: skip
    many = [_look(rank) for rank in range(24)]
    assert len({(look.colour, look.style) for look in many}) == 24, "each line has a look of its own"


def test_settings_are_called_as_asked_and_a_curve_under_another_shows(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    runs = settings_of(tmp_path, [0.80, 0.81, 0.83], [0.80, 0.81, 0.83])
    files = {"csv": tmp_path / "c.csv", "json": tmp_path / "c.json", "latex": tmp_path / "c.tex"}
    files |= {"page": tmp_path / "c.html", "plot": tmp_path / "c.svg"}
    named = ("lr 0.1=Slow_1", "local.lr = 0.2=a = b")
    compare_runs(runs, output=Output(**files, names=named, against="Slow_1"))
    told = capsys.readouterr().out
    assert "over Slow_1" in told
    assert "a = b" in told
    assert [row[0] for row in cells_of((tmp_path / "c.tex").read_text())[1:]] == [r"Slow\_1", "a = b"]
    found = json.loads((tmp_path / "c.json").read_text())
    assert {one["setting"] for one in found["settings"]} == {"Slow_1", "a = b"}
    drawn, page = (tmp_path / "c.svg").read_text(), (tmp_path / "c.html").read_text()
    assert "<!-- Slow_1 -->" in drawn
    assert "stroke-width: 3.75" in drawn, "the line below is wider"
    assert "Slow_1 and a = b lie on each other." in page
    for name, said in (
        ("lr 0.3=x", "is no name for a setting; write --name SETTING=NAME, the settings are: lr 0.1; lr 0.2"),
        ("lr 0.1=", "is no name for a setting"),
        ("lr 0.1", "is no name for a setting"),
        ("lr 0.1=lr 0.2", "gives a second name, or the name of another"),
    ):
        with pytest.raises(InputError, match=f"--name {name}: {said}"):
            compare_runs(runs, output=Output(names=(name,)))
    with pytest.raises(InputError, match="gives a second name"):
        compare_runs(runs, output=Output(names=("lr 0.1=a", "lr 0.1=b")))


def cells_of(latex):
    """Return the rows of a LaTeX table, its headings first, as lists of cells."""
    rows = [line.removesuffix(r" \\") for line in latex.splitlines() if line.endswith(r" \\")]
    return [row.split(" & ") for row in rows]


def test_a_table_for_latex_has_the_best_in_bold_only_where_it_is_ahead(tmp_path, capsys):
    runs = settings_of(tmp_path / "a", [0.80, 0.81, 0.83], [0.70, 0.72, 0.73], evaluate={"target": 0.9})
    compare_runs(runs, output=Output(latex=tmp_path / "c.tex"))
    text = (tmp_path / "c.tex").read_text()
    heads, first, second = cells_of(text)
    assert heads[:4] == ["setting", "seeds", r"accuracy (\%)", "sent + received (MB)"], (
        "no silo was scored, and none is at the target"
    )
    assert first == ["lr 0.1", "3", r"$\mathbf{81.33 \pm 1.53}$", "2.0", "", "", ""]
    assert second == ["lr 0.2", "3", r"$71.67 \pm 1.53$", "2.0", "$-9.67$", "$-$11.10 to $-$8.23", "$0.001$"]
    assert text.startswith(
        "% lr 0.1 is best: accuracy 81.33 ± 1.53% on the server's test set, the mean ± standard deviation "
        "over 3 seeds. lr 0.2 "
    )
    assert r"\begin{tabular}{lrrrrrr}" in text
    compare_runs(
        settings_of(tmp_path / "b", [0.8, 0.84], [0.7, 0.92]), output=Output(latex=tmp_path / "c.tex")
    )
    assert "mathbf" not in (tmp_path / "c.tex").read_text()
    assert "latex: " in capsys.readouterr().out


def test_each_setting_is_tested_against_one_that_is_named_in_every_output(tmp_path, capsys):
    third = "lr 0.30000000000000004"
    ends = [0.80, 0.81, 0.83], [0.70, 0.72, 0.73], [0.75, 0.76, 0.74]
    runs = settings_of(tmp_path / "a", *ends, evaluate={"target": 0.4})
    files = {"json": tmp_path / "c.json", "latex": tmp_path / "c.tex", "csv": tmp_path / "c.csv"}
    compare_runs(runs, output=Output(**files, page=tmp_path / "c.html", against="lr 0.2"))
    told = json.loads(files["json"].read_text())
    with (tmp_path / "c-pairs.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    shown = [{key: "" if of is None else str(of) for key, of in one.items()} for one in told["pairs"]]
    assert rows == shown, "the second file of --csv"
    assert [(one["setting"], one["other"]) for one in told["pairs"]] == [
        ("lr 0.1", third), ("lr 0.1", "lr 0.2"), (third, "lr 0.2")]  # fmt: skip
    tested = {one["setting"]: one for one in told["against"]["settings"]}
    plain = [float(stats.ttest_rel(ends[nth], ends[1]).pvalue) for nth in (0, 2)]
    assert [tested[name]["p"] for name in ("lr 0.1", third)] == pytest.approx(plain)
    low, high = sorted(plain)
    assert sorted(one["p_holm"] for one in tested.values()) == pytest.approx([2 * low, max(2 * low, high)])
    assert tested["lr 0.1"]["difference"] == pytest.approx(0.29 / 3)
    said = " ".join(capsys.readouterr().out.split())
    assert "over lr 0.2" in said
    assert "Interval and p are corrected by Holm for the 2 settings held against lr 0.2." in said
    assert "Each setting against lr 0.2" in " ".join(Reader((tmp_path / "c.html").read_text()).titles())
    heads, first, *_, last = cells_of(files["latex"].read_text())
    assert heads[-3:] == ["over lr 0.2 (points)", "95\\% interval (points, Holm)", "$p$ (Holm)"]
    assert "Levels of the intervals: lr 0.1 0.025; lr 0.30000000000000004 0.05." in files["latex"].read_text()
    assert {one["level"] for one in tested.values()} == {0.025, 0.05}
    assert {float(row["level"]) for row in rows} == {0.05 / 3, 0.025, 0.05}
    comment = files["latex"].read_text().splitlines()[0]
    assert "for the 2 settings held against lr 0.2." in comment
    assert (first[-3], last[-3:]) == ("$+9.67$", ["", "", ""])
    assert r"\pm" in first[heads.index(r"rounds to 40\%")]
    compare_runs(runs, 0.72, Output(latex=tmp_path / "d.tex"))
    (heads, *cells), at = cells_of((tmp_path / "d.tex").read_text()), r"rounds to 72\%"
    assert [row[heads.index(at)] for row in cells][1:] == [r"$2 \pm 0$", "2 of 3"]
    rows = list(csv.DictReader(files["csv"].open()))
    assert float(rows[0]["against_p"]) == pytest.approx(plain[0])
    assert (rows[3]["against"], rows[3]["against_p"]) == ("lr 0.2", "")
    with pytest.raises(InputError, match=r"--against lr 9: is not a setting of these runs; they are: lr 0.1"):
        compare_runs(runs, output=Output(against="lr 9"))


def test_bytes_of_a_column_have_the_unit_of_the_largest():
    assert sizes([8192.0, None, 31.0]) == ("kB", ["8.2", "--", "0.0"])
    assert sizes([2e6, 999_999.0]) == ("MB", ["2.0", "1.0"])
    assert sizes([3e15]) == ("TB", ["3,000.0"])
    assert sizes([None]) == ("kB", ["--"])


def test_names_are_text_to_latex(tmp_path):
    assert escaped(r"a_b & 50% #1 {x} ~^\ <$>") == (
        r"a\_b \& 50\% \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} "
        r"\textless{}\$\textgreater{}"
    )
    runs = [make_run(tmp_path / name, 0.5, seed=3) for name in ("a_1", "b\nc")]
    compare_runs(runs, output=Output(latex=tmp_path / "c.tex"))
    assert {row[0] for row in cells_of((tmp_path / "c.tex").read_text())[1:]} == {r"a\_1", "b c"}


def test_runs_that_no_metric_ranks_have_no_table_for_latex(tmp_path):
    run = make_run(tmp_path / "a", 0.5)
    (run / "metrics.jsonl").write_bytes(encode_record({"round": 1, "train_loss": 1.0}))
    with pytest.raises(InputError, match="--latex: the runs have no main metric in common"):
        compare_runs([run], output=Output(latex=tmp_path / "c.tex"))


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draw settings of three seeds whose loss falls a hundredfold; return the figure."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    runs = settings_of(tmp_path, [0.8, 0.82, 0.81], [0.7, 0.7, 0.72])
    for run in runs:
        each = {"seconds": 0.2, "bytes_sent": 1000, "bytes_received": 10}
        records = [
            {"round": n, "test_accuracy": 0.2 * n, "train_loss": 3 / n**3, **each} for n in range(1, 5)
        ]
        (run / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    found = groups([read_run(run) for run in runs])

    def draw_and_keep(**how):
        kept = []
        monkeypatch.setattr(pyplot, "close", kept.append)
        draw(found, tmp_path / "c.png", 0.5, Drawing(**how))
        monkeypatch.undo()
        (figure,) = kept
        figure.canvas.draw()
        pyplot.close(figure)
        return figure

    return draw_and_keep


def labels_of(figure):
    return [(axes.get_xlabel(), axes.get_ylabel().replace("\n", " ")) for axes in figure.axes]


@pytest.mark.parametrize("size", [None, (3.3, 2.5)])
@pytest.mark.parametrize("many", [3, 11, 20])
def test_nothing_of_a_picture_is_cut_and_no_two_settings_look_alike(tmp_path, monkeypatch, many, size):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    local = [{"lr": 0.001 * (nth + 1)} for nth in range(many)]
    runs = [make_run(tmp_path / f"{n}", 0.5 + n / 99, local=one) for n, one in enumerate(local)]
    found, drawing = groups([read_run(run) for run in runs]), Drawing(panels=["test/rounds"], size=size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if size and many > 11:
            wanted = r"--size 3.3x2.5: is too small for 1 panel and the names; use [\d.]+x[\d.]+, or shorter"
            with pytest.raises(InputError, match=wanted):
                draw(found, tmp_path / "c.svg", None, drawing)
            return
        draw(found, tmp_path / "c.svg", None, drawing)
    (figure,) = kept
    (axes,), box, (width, height) = figure.axes, figure.get_tightbbox(), figure.get_size_inches()
    assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= width, box.y1 <= height) == (True,) * 4
    assert axes.bbox.height / figure.dpi > 0.7
    told = [text.get_text() for text in (figure.legends[0].get_texts() if figure.legends else axes.texts)]
    assert len(set(told)) == len(told) == many
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.get_lines()]
    assert len(set(looks)) == many
    assert len({colour for colour, _ in looks}) == min(many, 11)


def test_a_picture_has_the_panels_and_the_size_that_are_asked_for(drawn):
    figure = drawn(all_panels=True)
    assert labels_of(figure)[::3] == [("round", "test accuracy (%)"), ("round", "training loss")]
    assert len({round(axes.yaxis.label.get_window_extent().x0) for axes in figure.axes[::3]}) == 1, "aligned"
    figure = drawn(panels=["test/rounds"], size=(3.5, 2.5))
    assert labels_of(figure) == [("round", "test accuracy (%)")]
    assert figure.get_size_inches().tolist() == [3.5, 2.5]
    assert "target 50%" in [text.get_text() for text in figure.axes[0].texts]
    figure = drawn(panels=["loss", "bytes", "seconds"])
    assert labels_of(figure) == [("MB between server and silos", "training loss"), ("seconds", "")]
    figure = drawn(panels=["test/rounds", "loss/bytes"])
    two = [("round", "test accuracy (%)"), ("MB between server and silos", "training loss")]
    assert labels_of(figure) == two, "the two that are named, and not the cross"
    assert labels_of(drawn(panels=["loss/bytes", "test/rounds"])) == two[::-1]
    with pytest.raises(
        InputError, match=r"--panel virtual: .* they are test, loss, rounds, bytes, seconds, or"
    ):
        drawn(panels=["virtual"])
    with pytest.raises(InputError, match=r"--panel tset: 'tset' is not one .* did you mean 'test'\?"):
        drawn(panels=["tset"])


def test_without_a_test_set_a_picture_begins_with_what_judges(tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    kept = []
    monkeypatch.setattr(pyplot, "close", kept.append)
    run = scored_at_end(tmp_path / "one", [0.9, 0.8], [0.6, 0.7])
    found = groups([read_run(run)])
    draw(found, tmp_path / "c.svg", 0.5)
    assert labels_of(kept[0])[0] == ("round", "accuracy on all validation rows (%)")
    assert "target 50%" in [text.get_text() for text in kept[0].axes[0].texts]
    draw(found, tmp_path / "c.svg", None, Drawing(panels=["pooled/rounds", "silos"]))
    assert labels_of(kept[1]) == [
        ("round", "accuracy on all validation rows (%)"),
        ("round", "silos' mean accuracy, validation rows (%)"),
    ]
    there = "they are pooled, silos, loss, rounds, bytes, seconds, or two of them as pooled/rounds"
    with pytest.raises(InputError, match=f"'test' is not one of the panels of these runs; {there}$"):
        draw(found, tmp_path / "c.svg", None, Drawing(panels=["test/rounds"]))


WRONG = [
    ({"plot": "c.gif"}, "--plot .*: ends in '.gif'"),
    ({"plot": "c.svg", "drawing": Drawing(panels=["none"])}, "--panel none: "),
    ({"plot": "c.svg", "drawing": Drawing(style="none")}, "--style none: "),
    ({"page": "c.pdf"}, "--page .*: ends in '.pdf'"),
    ({"page": "c.html", "against": "none"}, "--against none: is not a setting"),
    ({"against": "none"}, "--against none: is not a setting"),
    ({"json": "none/c.json"}, "--json .*c.json: cannot be written .*none is not a folder"),
    ({"latex": "c.csv"}, "--latex .*c.csv: is the file of --csv, too"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[said for _, said in WRONG])
def test_all_outputs_are_checked_before_the_first_is_written(tmp_path, capsys, given, said):
    pytest.importorskip("matplotlib")
    runs = [make_run(tmp_path / "runs" / f"{lr}", 0.5, local={"lr": lr}) for lr in (0.1, 0.2)]
    out = tmp_path / "out"
    out.mkdir()
    named = {
        key: out / value if key in ("plot", "page", "json", "latex") else value
        for key, value in given.items()
    }
    with pytest.raises(InputError, match=said):
        compare_runs(runs, output=Output(csv=out / "c.csv", **named))
    assert not list(out.iterdir())
    assert not (said.startswith("--panel") and capsys.readouterr().out), "before the tables are printed"


def test_the_marks_of_a_picture_are_plain_numbers(drawn):
    (axes,) = drawn(panels=["loss/rounds"]).axes
    assert axes.get_yscale() == "log"
    marks = [label.get_text() for label in axes.get_yticklabels()]
    assert marks == ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5"]
    assert not axes.get_yticklabels(minor=True)
    assert all(label.get_text().isdecimal() for label in axes.get_xticklabels())


def test_a_picture_is_drawn_in_a_style_of_matplotlib(drawn, tmp_path):
    before = dict(pytest.importorskip("matplotlib").rcParams)
    assert drawn(style="dark_background").get_facecolor()[:3] == (0, 0, 0)
    (tmp_path / "own.mplstyle").write_text("figure.facecolor: red\n")
    assert drawn(style=str(tmp_path / "own.mplstyle")).get_facecolor()[:3] == (1, 0, 0)
    with pytest.raises(
        InputError, match=r"--style ggplo: is not a style of matplotlib; did you mean 'ggplot'\?"
    ):
        drawn(style="ggplo")
    assert dict(pytest.importorskip("matplotlib").rcParams) == before


def test_how_a_picture_is_drawn_is_told_by_options(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("mpifl.report.runs.compare_runs", lambda *all: given.append(all[2]))
    how = ["--panel", "test", "--panel", "rounds", "--size", "3.5x2", "--style", "x"]
    app(["compare", "a", "--plot", "c.pdf", *how], standalone_mode=False)
    assert given[0] == Output(Path("c.pdf"), drawing=Drawing(False, ["test", "rounds"], (3.5, 2.0), "x"))
    for wrong in ("3", "3x", "0.5x2", "ax2", "100x2"):
        with pytest.raises(
            InputError, match=f"--size {wrong}: is not a width and height from 1 to 99 inches"
        ):
            app(["compare", "a", "--plot", "c.pdf", "--size", wrong], standalone_mode=False)
    monkeypatch.undo()
    with pytest.raises(InputError, match="are for --plot FILE; give that, too"):
        compare_runs([tmp_path], output=Output(drawing=Drawing(size=(1, 1))))


def test_a_table_of_all_runs_has_the_columns_for_which_a_desk_has_room(tmp_path):
    """What matters least is left out first, and is named."""
    each = {"silo_accuracy_mean": 0.5, "silo_accuracy_pooled": 0.5, "silo_accuracy_worst": 0.25}
    record = {
        "round": 1,
        "test_accuracy": 0.5,
        "test_loss": 1.0,
        "seconds": 1.0,
        "bytes_sent": 1e6,
        "bytes_received": 1e6,
        **each,
    }
    keys, runs = ("lr", "momentum", "weight_decay"), []
    for nth, values in enumerate(itertools.product((0.1, 0.2), repeat=3)):
        runs.append(make_run(tmp_path / f"{nth}{'x' * 40}", 0.5, local=dict(zip(keys, values, strict=True))))
        (runs[-1] / "metrics.jsonl").write_bytes(encode_record(record))
    columns = columns_of([read_run(run) for run in runs])
    figures = [read_run(run).figures(None) for run in runs]
    assert fitting(columns, figures, 1000, [ACCURACY]) == columns
    few = fitting(columns, figures, 80, [ACCURACY])
    gone = {column.figure for column in columns if column not in few}
    assert gone
    assert gone == {name.format("accuracy") for name in NARROW if name.format("accuracy") in gone}
    assert "accuracy" in {column.heading for column in fitting(columns, figures, 0, [ACCURACY])}
    words = " ".join(written(runs, tmp_path / "c.html")[1].titles())
    gone = re.search("Not shown for lack of space: (.*). The file of --csv", words)[1].split(", ")
    assert "received" in gone
    assert not {"accuracy", "worst silo"} & {*gone}
    words = " ".join(written(runs[:2], tmp_path / "c.html")[1].titles())
    assert "Left out" not in words, "one key tells them apart"


def test_the_band_of_a_share_stays_within_0_and_100():
    found = Curve(np.zeros((4, 2)), np.array([99.0, 2.0]), np.array([3.0, 3.0]))
    assert [end.tolist() for end in found.band(100.0)] == [[96.0, 0.0], [100.0, 5.0]]
    assert [end.tolist() for end in found.band(1.0)] == [[96.0, -1.0], [102.0, 5.0]]


def test_runs_are_judged_by_another_metric_of_theirs_and_files_have_all(tmp_path, capsys):
    own = {"name": "worst_class", "share": True, "higher_is_better": True}
    runs = settings_of(tmp_path / "a", [0.80, 0.81, 0.83], [0.70, 0.72, 0.73], evaluate={"target": 0.9})
    for run in runs:
        rounds = [*map(json.loads, (run / "metrics.jsonl").read_text().splitlines())]
        for record in rounds:
            record["test_worst_class"] = 1 - record["test_accuracy"]
        (run / "metrics.jsonl").write_bytes(b"".join(map(encode_record, rounds)))
        write_environment(run, metrics=[ACCURACY.model_dump(), own])
    files = {"csv": tmp_path / "c.csv", "latex": tmp_path / "c.tex", "page": tmp_path / "c.html"}
    compare_runs(runs, output=Output(**files))
    with files["csv"].open(newline="") as file:
        assert [float(row["test_worst_class"]) for row in csv.DictReader(file)] == pytest.approx(
            [0.2, 0.19, 0.17, 0.3, 0.28, 0.27]
        )
    capsys.readouterr()
    app(["compare", *map(str, runs), "--metric", "worst_class", *itertools.chain.from_iterable(
        (f"--{option}", str(path)) for option, path in files.items())], standalone_mode=False)  # fmt: skip
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "lr 0.2 is best: worst class 28.33 ± 1.53% on the server's test set, the mean ± standard deviation "
        "over 3 seeds." in " ".join(out.split())
    )
    assert "to 90%" not in out, "the target is of the main metric"
    assert cells_of(files["latex"].read_text())[0][2] == r"worst\_class (\%)"
    assert "Worst class over rounds" in " ".join(Reader(files["page"].read_text()).titles())
    with pytest.raises(InputError, match=r"has accuracy, worst_class; mpifl evaluate .*0-1 --metric f1 "):
        compare_runs(runs, output=Output(metric="f1"))
