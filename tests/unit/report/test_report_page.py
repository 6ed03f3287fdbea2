"""A run's page: whole in itself, true to the rounds, safe with any name."""

import base64
import json
import random
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pages import Reader, bytes_of, check_whole, decoded
from scipy import stats
from unit.builders import write_folder, write_vertical_folder

import mpifl
from mpifl.common.errors import InputError
from mpifl.common.pages import charts, neighbours
from mpifl.common.pages.glossary import WORDS
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.findings.silo_gains import Gain, gained, gains
from mpifl.report.pages.comparison_page import compare_page
from mpifl.report.pages.happened import verdict
from mpifl.report.pages.run_figures import over_steps
from mpifl.report.pages.run_page import write_report
from mpifl.report.pages.silos_section import _map, _outcome
from mpifl.report.pictures.fitted_names import apart
from mpifl.report.runs import Held, chance, compare_runs, data, headline, read_run, show_run, units
from mpifl.report.terminal.coefficient_table import show_coefficients
from mpifl.run.folder.environment import note_lost, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run, describe
from mpifl.run.job.job import check_job


def record(round, **more):
    return {
        "round": round, "time": 1e9 + round, "train_loss": 2 / round, "test_loss": 3 / round,
        "test_accuracy": 1 - 0.5 / round, "seconds": 1.0, "seconds_training": 0.5, "seconds_waiting": 0.25,
        "seconds_communication": 0.3, "bytes_sent": 1000, "bytes_received": 500, "silo_accuracy_mean": 0.5,
        "silo_accuracy_worst": 0.25, "silo_accuracy_best": 0.75, "silo_accuracy_worst10": 0.25, "faults": {},
        **more,
    }  # fmt: skip


def make_run(folder, records, shards="s", **more):
    table = {"name": "toy", "shards": str(shards), "rounds": 4, "model": {"name": "logreg"}, **more}
    claim_run(folder, check_job(table, "toy.toml"))
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    write_environment(folder, mpi="Open MPI", ranks={"0": {"host": "<here>"}, "1": {"host": "there"}})
    return folder


def read(run, out=None):
    text = write_report(run, out).read_text()
    return text, Reader(text)


SHAPES = {
    "one round": [record(1)],
    "some": [record(n) for n in range(1, 5)],
    "many": [record(n) for n in range(1, 1001)],
    "diverged": [record(1), record(2, train_loss=float("nan"), test_loss=float("inf"))],
    "bare": [{"round": 1}, {"round": 2}],
    "zero": [record(1, train_loss=0.0, test_loss=0.0, test_accuracy=0.0, seconds_training=0.0)],
    "gaps": [record(1), {"round": 2, "train_loss": 1.0}, record(5)],
    "steps": [record(n, step_losses={"a": [2.0, None, 0.5], "b": [1.0]}) for n in (1, 2)],
    "one silo": [record(1, silos={"only": {"accuracy": 0.5}})],
    "odd steps": [record(1, step_losses={"a": 3, "b": ["x"]}), record(2, step_losses=[1.0])],
}


@pytest.mark.parametrize("records", SHAPES.values(), ids=SHAPES)
def test_a_page_is_whole_in_itself_and_well_formed(tmp_path, records):
    text, reader = read(make_run(tmp_path, records))
    assert not {"link", "iframe", "img", "form"} & {tag for tag, _ in reader.tags}
    assert {given["href"] for tag, given in reader.tags if tag == "a"} <= {"#next"}
    assert not re.search(r"nan|inf\b", text)
    check_whole(text)
    metas = [given for tag, given in reader.tags if tag == "meta"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in metas


def test_losses_by_step_and_the_speed_stand_on_the_page(tmp_path):
    told = {"examples_trained": 100, "step_losses": {"a": [2.0, 1.0], "b": [4.0]}}
    run = make_run(tmp_path, [record(1, **told), record(2, **told, tokens_per_second=600.0), record(3)])
    _, reader = read(run)
    words = " ".join(reader.text)
    assert "training: 300 tokens a second" in words
    told = over_steps(read_run(run)).blocks[0].told
    assert told["heads"] == ["rounds 0.5", "rounds 1", "rounds 1.5", "rounds 2"]
    assert told["lines"][0]["said"] == ["3", "1", "3", "1"], "the silos' means"
    assert "Training loss by step" in words
    assert "Training loss by step" not in read(make_run(tmp_path / "other", [record(1), record(2)]))[0]


def test_the_figures_stand_on_the_page(tmp_path):
    _, reader = read(make_run(tmp_path, SHAPES["some"], evaluate={"target_accuracy": 0.75}))
    words = " ".join(reader.titles())
    assert "4 of 4 rounds · no model is saved yet" in words
    assert "accuracy The share of right answers." in words
    assert "no 95% interval, since the number of scored rows is not known here;" in words
    assert "ditto" not in words, "no word is told that the page has not"
    assert "87.50%" in words
    assert "rounds to 75% 2 2 s for these rounds, 3 kB" in words
    assert [given.get("class") for _, given in reader.tags].count("card") == 4
    assert (
        "training 25% · waiting for the slowest 25% · communication 30% · "
        "other: the server between exchanges 20%" in words
    )
    assert "Warning: unfinished: 4 of 4 rounds." in words
    told = told_on(reader)["Accuracy over rounds"]
    assert told["heads"][1] == "round 2"
    assert told["lines"] == [
        {"look": "test", "name": "test set", "said": ["50%", "75%", "83.33%", "87.5%"]},
        {"look": "mean", "name": "silos' mean", "said": ["50%"] * 4},
    ]
    assert "Sent to silos: 4 kB, received: 2 kB." in words
    assert "Bytes per round" not in words, "they are the same in all"
    assert [word for word in reader.titles() if word.startswith("The data")] == ["The data"]
    assert "Not shown" in words


def told_on(reader):
    """Return what the program tells of each chart, by the chart's title."""
    found, title = {}, ""
    texts = iter([text for text in reader.text if text.startswith('{"heads"')])
    for tag, attributes in reader.tags:
        title = attributes["aria-label"] if attributes.get("class") == "plot" else title
        if tag == "script" and attributes.get("type"):
            found[title] = json.loads(next(texts))
    return found


def silos(**scores):
    return {"silos": {name: {"loss": 1.0, "accuracy": score} for name, score in scores.items()}}


def test_every_silo_stands_by_its_name_the_worst_first_and_a_table_is_sorted_by_the_only_program(tmp_path):
    given = silos(cleveland=0.9, budapest=0.25, bern=None) | {"train_loss": 1.0}
    text, reader = read(make_run(tmp_path, [record(1, **given)]))
    words = reader.titles()
    first = words.index("budapest", words.index("Silos, the worst first"))
    assert words[first : first + 9] == [
        *("budapest", "25.00%", "1.0000", "cleveland", "90.00%", "1.0000", "bern", "–", "1.0000"),
    ]
    assert text.count('<table class="sort silos">') == 1


def test_a_silo_has_the_interval_of_its_held_out_examples_and_the_rounds_that_it_missed(tmp_path):
    spec = write_folder(tmp_path / "shards", [4, 9], silos_test=10, test=40)
    given = {"silos": {"0": {"accuracy": 0.9}, "1": {"accuracy": 1.0}}}
    records = [record(n, **given, faults={"1": "late"} if n == 2 else {}) for n in (1, 2)]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    write_environment(run, data=describe(spec))
    reader = read(run)[1]
    spans = [given["aria-label"] for _, given in reader.tags if given.get("class") == "span"]
    assert spans == ["59.58% to 98.21%", "72.25% to 100.00%"]  # Wilson's, of 9 and of 10 among 10
    words = reader.titles()
    first = words.index("rounds missed") + 1
    assert words[first : first + 12] == [
        *("0", "90.00%", *["59.58% to 98.21%"] * 2, "10", "4"),  # of the drawing, and beside it
        *("1", "100.00%", *["72.25% to 100.00%"] * 2, "10", "9"),
    ]
    interval = words.index("95% interval")
    assert words[interval : interval + 3] == ["95% interval", "40%", "100%"], "the ends of its axis"
    assert words[first + 12] == "1", "that it missed"
    sure = "95% interval 59.81% to 85.81%, by chance of these 40 rows alone; best of all rounds: 75.00%"
    assert f"accuracy 75.00% {sure}" in " ".join(words)
    told = " ".join(words)
    answer = "To tell whether it helped, train each silo alone, and one model on all rows: mpifl baseline"
    assert f"{answer} {run}/job.toml --out {run}-baseline" in told
    assert "This page cannot tell, since no silo was trained alone. See What to do next ." in told
    told = tmp_path / "federated"
    shutil.copytree(run, told)
    content = {"verdict": "Federation helped with seed 1."}
    (tmp_path / "baseline.json").write_text(json.dumps(content))
    words = " ".join(read(told)[1].titles())
    helped = "Did it help a silo? Federation helped with seed 1."
    assert f"{helped} {tmp_path}/baseline.html has each silo." in words
    (tmp_path / "baseline.json").write_text("[1")
    assert "This page cannot tell, since" in " ".join(read(told)[1].titles())
    text = read(run)[0]
    assert '<span class="option">--out</span>' in text
    assert ".option { white-space: nowrap; }" in text, "no line breaks within an option"
    write_folder(tmp_path / "shards", [4, 9], silos_test=11)
    assert 'class="span"' not in read(run)[0], "nobody knows how many examples there were"


FIT = {"log_likelihood": -1.5, "aic": 7.0, "rows": 4, "decrement": 0.0, "coefficients": [
    {"name": "a name of a column, as long as names of columns in clinics may be", "estimate": -0.000143219,
     "error": 0.00012346, "statistic": -1.16, "p": 0.246, "low": -0.00038519, "high": 9.8766e-05,
     "odds_ratio": 0.99985679, "ratio_low": 0.99961488, "ratio_high": 1.00009877},
    {"name": "sex=f", "left_out": True, "reference": True}]}  # fmt: skip


def test_a_fit_has_its_table_on_the_page_and_whole_figures_in_a_narrow_terminal(
    tmp_path, capsys, monkeypatch
):
    """What its way of training does not use is not told, and no command is advised that refuses it."""
    spec = write_folder(tmp_path / "shards", [4], silos_test=10)
    newton = {"algorithm": {"name": "newton"}, "task": {"name": "binary"}}
    run = make_run(
        tmp_path / "run", [record(1, **FIT, silos={"0": {}})], shards=tmp_path / "shards", **newton
    )
    write_environment(run, data=describe(spec))
    words = " ".join(read(run)[1].titles())
    told = "-0.00014322 0.0001235 -1.160 0.2460 -0.0003852 9.877e-05 0.9999 (0.9996 to 1) sex=f reference"
    assert "odds ratio (95 %)" in words
    assert told in words
    assert "lr 0.1" not in words
    assert "mpifl baseline" not in words
    said = (
        "Logistic regression: 1 coefficient of 4 rows at 1 silo. The fit has converged. No coefficient has a"
    )
    assert said in words
    doubt = "errors, p and intervals take rows as independent; rows of one group are not"
    assert doubt not in words
    (entry,) = spec.silos
    spec = spec.model_copy(update={"silos": [entry.model_copy(update={"groups": {"train": 2, "test": 10}})]})
    spec.write(tmp_path / "shards")
    write_environment(run, data=describe(spec))
    assert doubt in " ".join(read(run)[1].titles())
    monkeypatch.delenv("COLUMNS", raising=False)
    show_coefficients(run)
    assert "no room here" not in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    show_coefficients(run, tmp_path / "c.csv", tmp_path / "c.tex")
    printed = capsys.readouterr().out
    assert "-0.00014322" in printed
    assert "…" not in printed
    assert "no room here for statistic, 95 %: low, high, error: widen the terminal" in printed
    assert doubt in " ".join(printed.split())
    assert FIT["coefficients"][0]["name"][:26] in printed
    assert all(len(line.rstrip()) <= 80 for line in printed.splitlines())
    assert r"0.9999 (0.9996 to 1) \\" in (tmp_path / "c.tex").read_text()
    assert r"sex=f & \multicolumn{1}{c}{reference} &" in (latex := (tmp_path / "c.tex").read_text())
    assert "with: sex=f. 4 rows, log-likelihood" in latex
    monkeypatch.setenv("COLUMNS", "160")
    show_coefficients(run)
    assert FIT["coefficients"][0]["name"] in (printed := capsys.readouterr().out)
    assert "9.877e-05" in printed
    with pytest.raises(InputError, match=r"--latex .*none/c.tex: cannot be written"):
        show_coefficients(run, None, tmp_path / "none" / "c.tex")


def test_the_table_of_who_is_in_the_data_stands_on_the_page_of_its_run(tmp_path):
    """A real run of the algorithm."""
    write_folder(tmp_path / "shards", [30, 40], classes=2)
    job = {"name": "who", "shards": str(tmp_path / "shards"), "rounds": 1, "device": "cpu",
           "model": {"name": "logreg"}, "algorithm": {"name": "tableone", "by_silo": True}}  # fmt: skip
    mpifl.train(job, out=tmp_path / "run")
    text, reader = read(tmp_path / "run")
    words = " ".join(reader.titles())
    assert re.search(r"Table 1 all \(70\) \S+ \(30\) \S+ \(40\) SMD between silos ", words), words
    assert re.search(r"x0, mean \(SD\) -?[\d.]+ \([\d.]+\) ", words)
    assert ">  median [quartiles]</th>" in text, "what is of a column stands below its name"
    assert "outcome, n (%)" in words
    assert ("no model is trained" in text, "saved model" in text) == (True, False)
    assert "Table 1 describes 70 rows at 2 silos by " in words
    assert "There are no scores" not in words, "and none are expected"
    assert "This is one run with seed" not in words, "of exact sums"
    check_whole(text)


def test_a_private_run_leads_with_what_it_has_spent(tmp_path, monkeypatch):
    """A real short run: its epsilon is of the accountant, and the page holds what the record does."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    (tmp_path / "site").mkdir(mode=0o700)
    write_folder(tmp_path / "shards", [30, 60], classes=2, test=20, silos_test=5)
    job = {"name": "private", "shards": str(tmp_path / "shards"), "rounds": 2, "device": "cpu", "seed": 3,
           "model": {"name": "logreg"}, "local": {"lr": 0.01, "batch_size": 10},
           "privacy": {"clip": 1.0, "noise": 1.1, "delta": 1e-4}, "evaluate": {"silos": False}}  # fmt: skip
    mpifl.train(job, out=tmp_path / "run")
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    each = last["epsilon_silos"]
    assert each["0"] > each["1"] > 0, "of fewer rows a batch takes a larger share"
    words = " ".join(read(tmp_path / "run")[1].titles())
    spent = f"Each example has spent at most epsilon {last['epsilon']:.4g} at delta 0.0001 in 2 rounds; no "
    assert spent + "budget was set." in words
    assert f"silo epsilon 0 {each['0']:.4f} 1 {each['1']:.4f}" in words, "the table of Trust"
    assert words.index(spent) < words.index("This is one run with seed 3: another seed gives another figure.")
    assert "not protected by noise" not in words
    assert "Silos Withheld: differential privacy protects the scores on a silo's own examples" in words
    assert f"epsilon {last['epsilon']:.4f} clip 1.0 noise 1.1 delta 0.0001" in words or (
        f"epsilon {last['epsilon']:.4f} delta 0.0001 clip 1.0 noise 1.1" in words
    )


def test_a_page_says_what_its_intervals_are_of_and_which_round_is_saved(tmp_path):
    spec = write_folder(tmp_path / "shards", [4], test=40)
    spec = spec.model_copy(update={"test": spec.test.model_copy(update={"groups": {"test": 20}})})
    spec.write(tmp_path / "shards")
    records = [
        record(n, test_accuracy=0.5 + 0.3 * (n % 2), test_dice=0.5, model_round=11) for n in range(1, 13)
    ]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    dropped = {"rows": 3, "of": 43, "silos": {"bern": 2, "0": 1}}
    spec = spec.model_copy(update={"source": {"dropped": dropped}})
    spec.write(tmp_path / "shards")
    write_environment(run, data=describe(spec))
    words, doubt = " ".join(read(run)[1].titles()), "intervals take rows as independent"
    assert "The last 3 scored rounds lie from 50.00% to 80.00%. One run does not show how far" in words
    assert "4 rounds · saved model: round 11, the best" in words
    assert "are of the last round; figures above are of the best round, 11." in words
    assert f"Warning: {doubt}" in words
    gone = "he partition left out 3 of 43 rows, which lack values: bern 2, 0 1."
    assert f"T{gone}" in words
    page = compare_page([read_run(run)], {}, None, tmp_path / "compare.html", "runs")
    assert f"T{gone}" in " ".join(Reader(page).titles())
    images = {"silos": {"a": {"dice": 0.5}, "b": {"dice": 0.75}}}
    write_environment(run, metric={"name": "dice", "higher_is_better": True})
    (run / "metrics.jsonl").write_bytes(encode_record(record(1, test_dice=0.5, **images)))
    words = " ".join(read(run)[1].titles())
    assert doubt not in words, "there is no interval"
    asks = f"do not count; 'mpifl evaluate {run} --silos --json FILE' counts the others, for --scores FILE."
    assert f"Images without a target {asks}" in words


def test_a_run_over_sites_says_how_many_and_what_its_words_mean(tmp_path):
    told = {"north": {"letters_sent": 2, "bytes_sent": 2000}, "south": {"letters_sent": 1}}
    why = "site 'south' is away since 10:22; ask the coordinator"
    run = make_run(tmp_path, [record(1, sites=told, faults={"1": why}, **silos(a=0.5, b=0.5))])
    words = " ".join(read(run)[1].titles())
    assert " · 2 silos · 2 sites · 2 ranks · " in words
    assert "Sites (2)" in words
    for word in ("silo", "site", "coordinator", "server", "letter"):
        assert f" {word} {WORDS[word]}" in words


def test_what_a_single_silo_scored_is_said_once(tmp_path, capsys):
    more = {"silo_accuracy_pooled": 0.5, "silo_auroc_mean": 0.625, "silo_auroc_pooled": 0.625}
    told = [record(n, **silos(a=0.5), **more) for n in (1, 2)]
    for one in told:
        del one["test_accuracy"]
        one["silos"]["a"]["auroc"] = 0.625
    words = " ".join(read(make_run(tmp_path, told))[1].titles())
    for gone in ("silos' mean", "worst silo", "worst to best", "counts each silo alike"):
        assert gone not in words
    show_run(tmp_path)
    printed = capsys.readouterr().out
    assert ("all examples" in " ".join(printed.split()), "worst" in printed) == (True, False)
    several = [one | silos(a=0.5, b=0.5) for one in told]
    words = " ".join(read(make_run(tmp_path / "b", several))[1].titles())
    assert words.count("silos' mean") > 2


def test_a_silo_of_one_class_counts_by_accuracy_and_not_by_auroc_as_in_the_record(tmp_path, capsys):
    told = {"silos": {"a": {"accuracy": 0.5, "auroc": None}, "b": {"accuracy": 0.75, "auroc": 0.5}}}
    told["silos"]["c"] = {"accuracy": 1.0, "auroc": 0.9}
    told |= {"silo_accuracy_mean": 0.75, "silo_accuracy_worst": 0.5, "silo_accuracy_std": 0.2}
    run = make_run(tmp_path, [record(1, **told)])
    words = " ".join(read(run)[1].titles())
    assert "a 50.00% one class only b 75.00% 0.5000 c 100.00% 0.9000" in words
    assert "'one class only': the silo's rows have one class, so AUROC is undefined." in words
    rule = (
        "The rows of silo a have one class. Accuracy counts them, although one answer is always right there."
    )
    assert rule in words
    assert "leave them out" not in words, "of AUROC the table says it"
    held = {name: Held(4, rows, {0: rows}) for name, rows in (("a", 10), ("b", 30), ("c", 10))}
    of_silos = verdict(read_run(run), held={**held, "b": Held(4, 30, {0: 15, 1: 15})})[-1]
    assert "Silo c (rows of one class) is the best, with 100.00%." in of_silos
    assert of_silos.endswith("is always right there; on the other silos' 30 rows it is 75.00%.")
    assert (
        "The mean over silos, each counted once, is 75.00%. Silo a (rows of one class) is the worst" in words
    )
    assert "worst silo 50.00% silo a; the mean over silos is 75.00%" in words
    compare_runs([run])
    printed = capsys.readouterr().out
    assert "75.00% │ 50.00% silo a │" in printed


def test_200_silos_are_seen_at_once_and_of_more_it_is_said_that_the_table_scrolls(tmp_path):
    for many in (200, 201):
        given = silos(**{f"s{n}": n / 300 for n in range(many)})
        _, reader = read(make_run(tmp_path / str(many), [record(1, **given), record(2, **given)]))
        assert ("The table has 201 rows. Scroll in it to see all." in reader.titles()) is (many > 200)
        assert "One name in 4 is shown." in " ".join(reader.titles()), "beside the map"
        words = " ".join(reader.titles())
        assert words.index("Every silo in every round") < words.index("The 5 worst silos, then the 5 best:")
        assert f"All {many} silos" in words


def map_of(reader):
    """Return the pixels of the map of silos over rounds, [silos, columns, 4]."""
    (drawn,) = [given["href"] for tag, given in reader.tags if tag == "image"]
    return decoded(bytes_of(drawn))


def test_every_silo_in_every_round_is_a_pixel_the_worst_silo_at_the_top(tmp_path):
    given = [silos(a=0.5, b=0.0), silos(a=1.0), silos(a=1.0, b=0.5)]
    records = [record(n, **each) for n, each in enumerate(given, 1)]
    records[1]["faults"] = {"0": "late"}
    run = make_run(tmp_path, records)
    write_environment(run, silos=["a", "b"])
    reader = read(run)[1]
    pixels = map_of(reader)
    below = [given["x"] for _, given in reader.tags if "below" in given.get("class", "").split()]
    assert {"16.67%", "50.00%", "83.33%"} <= {*below}, "a round's number is below the middle of its cell"
    assert pixels.shape == (2, 3, 4)
    assert pixels[1, 1].tolist() == [213, 94, 0, 255], "left out"
    assert pixels[0, 1, 3] == 0, "not scored"
    assert pixels[1, 2].tolist() == [253, 231, 55, 255], "the best"
    assert pixels[0, 0].tolist() == [54, 107, 180, 255], "the worst"


def test_a_silo_that_the_last_round_has_not_scored_keeps_its_row(tmp_path):
    given = [silos(a=0.5, b=0.25), silos(a=1.0)]
    run = make_run(tmp_path, [record(n, **each) for n, each in enumerate(given, 1)])
    write_environment(run, silos=["a", "b", "c"])
    (run / "metrics.jsonl").write_bytes(
        encode_record(record(1, **given[0])) + encode_record(record(2, **given[1], faults={"2": "late"}))
    )
    _, reader = read(run)
    titles = [given["title"] for tag, given in reader.tags if tag == "th" and "title" in given]
    assert [title for title in titles if title in "abc"] == ["a", "b", "c"]
    map = told_on(reader)["Accuracy of every silo in every round"]
    codes = np.frombuffer(base64.b64decode(map["values"]), "<u2").reshape(3, 2).tolist()
    assert (map["rows"], map["heads"]) == (["a", "b", "c"], ["round 1", "round 2"])
    assert (map["low"], map["high"], map["share"]) == (0.25, 1.0, True)
    assert codes == [[21845, 65534], [0, 65535], [65535, 65535]], "two bytes a value; 65535 is none"


def test_a_run_that_diverged_has_a_page_whatever_it_has_recorded(tmp_path):
    run = make_run(tmp_path, [record(1)])
    note_lost(
        run,
        "the model's parameters are not finite after round 2, and are not written; there is no checkpoint",
    )
    words = " ".join(read(run)[1].titles())
    assert "diverged" in words
    assert "no model is saved" in words
    assert "no model is saved yet" not in words
    (run / "metrics.jsonl").write_bytes(b"")
    text, reader = read(run)
    check_whole(text)
    assert {"toy", "diverged"} <= {*reader.titles()}
    assert "Warning: the model&#39;s parameters are not finite after round 2" in text
    assert "No round has a usable model." in text
    assert "No round was finished" not in text


def test_a_fall_of_one_round_in_thousands_is_on_the_map_and_on_the_small_curve(tmp_path):
    records = [record(n, **silos(a=0.9, b=0.1 if n == 1777 else 0.8)) for n in range(1, 5001)]
    reader = read(make_run(tmp_path, records))[1]
    pixels = map_of(reader)
    assert pixels.shape[1] <= 240
    assert [row.tolist().count([54, 107, 180, 255]) for row in pixels] == [1, 0]
    falling, level = [given["d"] for tag, given in reader.tags if tag == "path" and "class" not in given]
    assert falling.count("V") == 1
    assert "V" not in level
    assert "each cell has the worst score of 21 rounds" in " ".join(reader.titles()).lower()


@pytest.mark.parametrize("span", [(0.4, 0.93), (0, 1.2), (7.31, 7.34), (0, 3.0e6), (1, 2)])
def test_an_axis_of_seconds_or_bytes_has_marks_enough(span):
    points = [(span[0], 0.1), (span[1], 0.9)]
    (plot,) = charts.lines("t", [charts.Line("a", points)], along="seconds").blocks
    assert 3 <= len(plot.ticks) <= 13
    for tick in plot.ticks:
        value = float(tick.text.replace(",", ""))
        assert tick.at == pytest.approx(100 * (value - span[0]) / (span[1] - span[0]), abs=0.01)
    (plot,) = charts.lines("t", [charts.Line("a", [(1, 0.1), (2, 0.9)])]).blocks
    assert [tick.text for tick in plot.ticks] == ["1", "2"], "rounds are whole"


@pytest.mark.parametrize(
    ("many", "rounds", "most"),
    [(100, 1000, 500_000), pytest.param(200, 5000, 900_000, marks=pytest.mark.slow)],
)
def test_a_page_of_many_silos_and_rounds_stays_small(tmp_path, many, rounds, most):
    draw = random.Random(0)
    names = [f"hospital-{n}" for n in range(many)]
    records = [record(n, **silos(**{name: draw.random() for name in names})) for n in range(1, rounds + 1)]
    write_environment(make_run(tmp_path, records), silos=names)
    assert write_report(tmp_path).stat().st_size < most


CUT = {"algorithm": {"name": "splitnn"}, "model": {"name": "mlp", "hidden": [4]}, "split": {"cut_width": 2}}


@pytest.mark.parametrize(("job", "more"), [({}, ""), (CUT, " --ranks 2")])
def test_a_page_has_the_commands_for_its_model(tmp_path, monkeypatch, job, more):
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("a"), [record(n) for n in range(1, 5)], rounds=8, **job)
    going = "Continue the training: mpifl train a/job.toml --resume --out a --ranks 2"
    words = " ".join(read(run)[1].titles())
    assert f"What to do next: {going} 1 more step" in words, "it stands below the verdict"
    assert f"What to do next {going}" in words
    (run / "model.safetensors").touch()
    (run / "metrics.jsonl").write_bytes(b"".join(encode_record(record(n)) for n in range(1, 9)))
    words = " ".join(read(run)[1].titles())
    for said in (
        f"Score the model on the test set: mpifl evaluate a{more}",
        f"each silo's examples: mpifl predict a --data s --out predictions.csv{more}",
        "The last round is the best one. Train for as many rounds again: mpifl train a/job.toml "
        "--set rounds=16 --resume --out a --ranks 2",
    ):
        assert said in words
    assert ("all silos take part in each command" in words) == bool(more)
    (run / "metrics.jsonl").write_bytes(encode_record(record(8, sites={"north": {}})))
    assert "mpifl predict" not in read(run)[0], "no user has all ranks"


def test_scores_that_masks_withhold_are_said_to_be_withheld(tmp_path):
    run = make_run(tmp_path, [record(1, silos={})])
    (run / "job.toml").write_text("rounds = 1\n[security]\nmasks = true\n")
    (run / "model.safetensors").touch()
    words = " ".join(read(run)[1].titles())
    assert "Silos Withheld: sums are masked" in words
    asked = f"mpifl evaluate {tmp_path} --data SHARD"
    owner = rf"(?s)What to do next: The owner of a silo scores .* {asked} \d more"
    assert re.search(owner, words), "it stands below the verdict"
    (steps,) = re.findall(r"(?s)The owner of a silo scores .*mpifl evaluate alone --data OWN", words)
    for word in set(re.findall(r"\b[A-Z]{3,}\b", steps)):
        told = rf"{word}[A-Z, and]* (is|are) |a new folder {word}\."
        assert re.search(told, steps), f"{word} has no explanation"
    assert "federation.json are known to the server and are not protected." in words
    assert "Every silo in every round" not in words


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9))
def test_labels_at_the_ends_of_lines_do_not_lie_over_each_other(tops):
    found = apart(sorted(tops), 11.0)
    assert all(later - one >= 11.0 - 1e-9 for one, later in pairwise(found))
    assert -1e-9 <= found[0] <= found[-1] <= 100 + 1e-9
    if all(b - a >= 11 for a, b in pairwise(sorted(tops))):
        assert found == sorted(tops)


def test_lines_are_to_scale():
    drawn = charts.lines("t", [charts.Line("a", [(1, 0.0), (2, 0.5), (3, 1.0)])])
    assert marks(drawn) == [("line test", "M0.0 200.00L500.0 100.00L1000.0 0.00")]
    flat = charts.lines("t", [charts.Line("a", [(1, 0.855), (2, 0.856)])], covers=units.two_points(0.856))
    assert marks(flat)[0][1] == "M0.0 120.00L1000.0 112.00", "a tenth of a point is no climb"
    assert charts.lines("t", [charts.Line("a", [(7, 0.5)])]).blocks == [], "a dot is not a curve"
    assert units.axis([0.935, 0.935], ACCURACY)[1] == ["92%", "95%"], "and no axis up to 200%"
    many = charts.lines("t", [charts.Line("a", [(1, 0.1), (5000, 0.2)])]).blocks[0].ticks
    told = ["1,000", "2,000", "3,000", "4,000", "5,000"]
    assert [(one.text, one.spare) for one in many] == list(zip(told, (False, True) * 3, strict=False))
    bars = charts.columns([1, 9, 3], "Columns", 9)
    assert [(one.at, one.text) for one in bars.levels] == [(100, "0"), (50, "5"), (0, "10")]
    drawn = charts.lines("t", [charts.Line("a", [(1, 0.01), (2, None), (3, 1.0)])], log=True)
    assert marks(drawn) == [("dot test", "M0.0 200.00h0M1000.0 0.00h0")]
    assert drawn.note == "The vertical axis is logarithmic."


def marks(figure):
    return [(mark.look, mark.path) for mark in figure.blocks[0].marks]


@given(st.lists(st.floats(0, 1e6), min_size=1).filter(any))
def test_whole_per_cents_of_parts_add_up_to_a_hundred(parts):
    found = units.shares(parts)
    assert sum(found) == 100
    for share, part in zip(found, parts, strict=True):
        assert abs(share - 100 * part / sum(parts)) < 1 + 1e-9


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.booleans())
def test_levels_enclose_what_is_drawn(low, span, log):
    _, levels = charts.levelled([low, low + span], log)
    close = 1e-9 * (1 + abs(low) + span)
    assert levels[0] <= low + close
    assert levels[-1] >= low + span - close


def test_a_loss_over_many_powers_of_ten_has_few_levels_that_enclose_it():
    levels = charts.ticks_log(0.5, 3e13)
    assert (levels[0], levels[-1], len(levels) <= 9) == (0.1, pytest.approx(1e15), True)


@pytest.mark.parametrize(("first", "cut"), [(4.0, False), (40.0, True)])
def test_a_first_round_that_would_flatten_the_others_is_cut_and_its_time_told(first, cut):
    times = charts.Line("a", list(enumerate([first, *[2.0] * 5], 1)))
    longer = charts.Line("b", [(n, 5.5) for n in range(1, 7)])
    both = charts.lines("t", [times, longer], write=units.seconds, marked=units.clock)
    assert both.blocks[0].scales[1].high >= 5.5, "no line leaves the drawing"
    drawn = charts.lines("t", [times], write=units.seconds, marked=units.clock)
    heights = [float(up) for up in re.findall(r" ([\d.]+)", marks(drawn)[0][1])]
    assert min(heights) >= 0  # none leaves the drawing
    assert (heights[1] < 80) is cut
    assert ("The first round took 40 s, more than the axis shows." in drawn.note) is cut


def test_rounds_in_which_something_went_wrong_are_marked_below_and_told(tmp_path):
    wrong = charts.Under("left out", {2: "bern", 3: "bern", 5: "ranks 4"})
    drawn = charts.lines("t", [charts.Line("a", [(n, 0.5 * n) for n in range(1, 6)])], under=wrong)
    assert ("under", "M250.0 200H500.0M1000.0 200H1000.0") in marks(drawn)
    assert drawn.keys[-1].name == "left out"
    assert drawn.blocks[0].told["lines"][-1]["said"] == ["", "bern", "bern", "", "ranks 4"]


def test_the_curve_marks_falls_silos_left_out_and_lost_ranks_of_every_round(tmp_path):
    records = [record(n, test_accuracy=0.2 if n == 1777 else 0.9) for n in range(1, 5001)]
    records[2999] |= {"faults": {"1": "late"}, "ranks_lost": [3]}
    del records[2999]["test_accuracy"]  # not scored in that round
    run = make_run(tmp_path, records)
    write_environment(run, silos=["bern", "basel"])
    text, reader = read(run)
    assert len(re.findall('class="dot fall" d="M[0-9.]+ [0-9.]+h0"', text)) == 1
    assert len(re.findall('class="under" d="M599.9 200H599.9"', text)) == 1
    told = told_on(reader)["Accuracy over rounds"]
    at = told["heads"].index("round 1777")
    assert {line["name"]: line["said"][at] for line in told["lines"] if line["said"][at]} == {
        **{"test set": "20%", "silos' mean": "50%", "falls": "20%"},
    }
    assert "basel; ranks 3" in told["lines"][-1]["said"]


def test_of_many_rounds_times_are_medians_between_the_lowest_and_the_highest():
    points = [(float(n), 9.0 if n == 500 else float(n % 3)) for n in range(1, 1001)]
    drawn = charts.lines("t", [charts.Line("a", points), charts.Line("b", points)], most=100)
    assert drawn.note == "Each point is the median of about 10 rounds."
    assert [key.name for key in drawn.keys] == ["a", "b", "a, lowest to highest"]
    (area,) = [path for look, path in marks(drawn) if look == "area band"]
    (line, _) = [path for look, path in marks(drawn) if look.startswith("line")]
    tops = [float(y) for y in re.findall(r" ([0-9.]+)", line)]
    assert (len(tops), min(tops) > 100) == (100, True), "a single slow round moves no median"
    assert " 20.00" in area, "but the range has it"
    timed = {"most": 100, "write": "{:g} s".format, "marked": lambda top: ([0.0, top], str)}
    drawn = charts.lines("t", [charts.Line("a", points)], **timed)
    (line,) = [path for look, path in marks(drawn) if look.startswith("line")]
    assert min(float(y) for y in re.findall(r" ([0-9.]+)", line)) >= 100, "the axis has the usual range"
    assert drawn.note.endswith(" Some took up to 9 s, more than the axis shows.")
    assert charts.lines("t", [charts.Line("a", points[:100])], most=100).note == ""


@pytest.mark.parametrize("target", [0.05, 0.3, 0.98])
def test_the_target_is_drawn_wherever_it_lies(target):
    drawn = charts.lines("t", [charts.Line("a", [(1, 0.2), (2, 0.41)])], target=target)
    (path,) = [path for look, path in marks(drawn) if look == "target"]
    assert 0 <= float(re.fullmatch(r"M0 (.*)H1000", path)[1]) <= 200


@given(st.integers(1, 4000), st.integers(2500, 9000))
def test_a_fall_of_one_round_among_thousands_is_drawn(at, rounds):
    at = min(at, rounds)
    points = [(float(n), 0.1 if n == at else 0.9) for n in range(1, rounds + 1)]
    found = neighbours.thinned(points)
    assert len(found) <= neighbours.MOST_POINTS
    assert (float(at), 0.1) in found
    assert [x for x, _ in found] == sorted(x for x, _ in found)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.29, 0.96), (-3, 1e9), (1e-7, 2e-7), (5, 5), (0, 0), (99.99, 100), (1, 3)]
)
def test_ticks_are_few_and_round_and_cover_the_figures(low, high):
    found = charts.ticks(low, high)
    steps = {round((b - a) / (found[1] - found[0]), 6) for a, b in pairwise(found)}
    assert (2 <= len(found) <= 7, steps) == (True, {1})
    assert found[0] <= low + 1e-12
    assert found[-1] >= high - 1e-12


@pytest.mark.parametrize(
    ("most", "written"),
    [
        (0.9, ["0 ms", "200 ms", "400 ms", "600 ms", "800 ms", "1000 ms"]),
        (5, ["0 s", "1 s", "2 s", "3 s", "4 s", "5 s"]),
        (590, ["0 min", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (14400, ["0 h", "1 h", "2 h", "3 h", "4 h"]),
        (8e6, ["0 h", "500 h", "1000 h", "1500 h", "2000 h", "2500 h"]),
    ],
)
def test_durations_beside_bars_are_round_in_one_unit_and_short(most, written):
    levels, tell = units.clock(most)
    assert [tell(level) for level in levels] == written
    (plot,) = charts.lines(
        "t", [charts.Line("a", [(1, 0.0), (2, most)])], write=units.seconds, marked=units.clock
    ).blocks
    assert [level.text for level in plot.levels] == written
    assert plot.told["lines"] == [{"look": "test", "name": "a", "said": ["0 ms", units.seconds(most)]}]


def test_the_data_are_shown_where_the_run_was_started(tmp_path, monkeypatch):
    write_folder(tmp_path / "work" / "shards", [4, 9, 12])
    monkeypatch.chdir(tmp_path / "work")
    run = make_run(tmp_path / "work" / "run", SHAPES["some"], "shards")
    monkeypatch.chdir(tmp_path)
    _, reader = read(run, tmp_path / "page.html")
    words = " ".join(reader.titles())
    assert "toy: 3 silos, 25 training examples; scheme toy." in words
    assert [tag for tag, _ in reader.tags].count("image") == 1


def test_data_that_the_run_was_not_trained_on_are_not_shown(tmp_path):
    spec = write_folder(tmp_path / "shards", [4, 9])
    run = make_run(tmp_path / "run", SHAPES["some"], tmp_path / "shards")
    write_environment(run, ["local.lr 0.1 -> 0.5 after round 2"], data=describe(spec))
    words = " ".join(read(run)[1].titles())
    assert "toy: 2 silos, 13 training examples; scheme toy." in words
    assert words.count("local.lr 0.1 -> 0.5 after round 2") == 2  # above, and among the environment
    write_folder(tmp_path / "shards", [5, 8])
    words = " ".join(read(run)[1].titles())
    assert f"Not shown: the shards at {tmp_path}/shards are not those that it was trained on" in words
    assert "toy: 2 silos" not in words


def test_a_page_of_missing_rounds_has_no_sums(tmp_path):
    _, reader = read(make_run(tmp_path, SHAPES["gaps"], evaluate={"target_accuracy": 0.4}))
    words = " ".join(reader.titles())
    assert "rounds missing in metrics.jsonl: 3 to 4" in words
    assert not any(sum in words for sum in ("rounds to 40%", "between server and silos", "What it cost"))


def test_the_sites_of_a_run_stand_with_their_letters_and_what_was_late(tmp_path):
    letters = {"letters_sent": 2, "letters_received": 1, "bytes_sent": 9e6, "bytes_received": 2e4}
    told = [{"ulm": letters}, {"ulm": {"away_since": "today"}}, {"ulm": {**letters, "late_round": 2}}]
    records = [record(n, sites=one) for n, one in enumerate(told, 1)]
    titles = read(make_run(tmp_path / "run", records))[1].titles()
    at = titles.index("late sums")
    assert titles[at - 1 : at + 8] == ["rounds away", "late sums", "ulm", "4", "2", "18,000", "40", "1", "1"]


def test_each_rank_and_each_silo_that_was_left_out_is_shown(tmp_path):
    times = {"1": {"training": 1.0, "waiting": 0.0}, "2": {"training": 0.25, "waiting": 0.75}}
    records = [record(n, rank_seconds=times, faults={"7": f"<torn {n}>"}) for n in (1, 2)]
    text, reader = read(make_run(tmp_path, records))
    words = " ".join(reader.titles())
    assert "rank host training waiting 0 <here> 1 there 2 s 0 ms 2 500 ms 1.5 s" in words
    assert "Warning: silo 7 was left out of 2 rounds: 1-2 (<torn 2>)." in words
    assert "Silo 7 is left out (2 rounds: 1-2) <torn 2>" in words
    assert "<torn" not in text


def test_a_rank_that_takes_most_of_the_time_is_named(tmp_path):
    for slow, told in ((9.0, True), (5.0, False)):
        spent = {"0": {"training": 3.0, "waiting": slow - 3}, "1": {"training": slow, "waiting": 0.0}}
        run = make_run(tmp_path / str(slow), [record(n, seconds=10.0, rank_seconds=spent) for n in (1, 2)])
        said = "Rank 1 alone takes more than half of the rounds' time: it trains for 18 s, the next slowest"
        assert (f"{said} rank for 6 s." in " ".join(read(run)[1].titles())) is told


def test_scoring_and_checkpoints_stand_beside_the_rounds(tmp_path):
    records = [record(1, seconds_evaluation=1.0), record(2, seconds_evaluation=2.0, seconds_checkpoint=1.0)]
    _, reader = read(make_run(tmp_path, records))
    words = " ".join(reader.titles())
    slowest = "waiting for the slowest 8% · communication 10% · scoring 50% · checkpoints 17%"
    assert f"training 8% · {slowest} · other: the server between exchanges 7%" in words, (
        "as the legend calls them"
    )
    assert "time of rounds 2 s 4 s more for scoring and checkpoints" in words, "as the rounds to a target"
    assert "checkpoints 1 s" in reader.titles()
    told = {line["name"]: line["said"][1] for line in told_on(reader)["Time per round"]["lines"]}
    assert told == {
        **{"whole round": "1 s", "training, slowest rank": "500 ms", "communication": "300 ms"},
        "other: the server between exchanges": "200 ms",
        **{"scoring after the round": "2 s", "checkpoint before the round": "1 s"},
    }


def test_names_are_text_and_no_markup(tmp_path):
    run = make_run(tmp_path, SHAPES["some"])
    (run / "job.toml").write_text('name = "<script>alert(1)</script>"\nshards = "<b>"\n')
    (run / "environment.json").write_text(json.dumps({"mpi": "<script>", "command": ["<i>"], "ranks": [1],
             "changes": ["local.lr 0.1 -> <0.5>"]}))  # fmt: skip
    _, reader = read(run)
    check_whole(read(run)[0])
    assert "<script>alert(1)</script>" in reader.text
    assert "Warning: changed by --force: local.lr 0.1 -> <0.5>." in reader.text


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    run = make_run(tmp_path / "run", SHAPES["some"])
    for out, said in (
        (tmp_path / "p.pdf", "must be .html"),
        (tmp_path / "no" / "p.html", "cannot be written"),
    ):
        with pytest.raises(InputError, match=said):
            write_report(run, out)
    with pytest.raises(InputError, match="is not a folder"):
        write_report(tmp_path / "none")


def test_a_target_without_a_test_set_is_shown_with_what_it_is_for(tmp_path):
    records = [record(n) | {"silo_accuracy_weighted": 0.2 * n, "silo_accuracy_mean": 0.1} for n in (1, 2, 3)]
    for each in records:
        each.pop("test_accuracy", None)
    page, _ = read(make_run(tmp_path, records, evaluate={"target_accuracy": 0.4}))
    assert "on the silos&#39; held-out examples" in page
    assert "rounds to 40%" in page
    assert 'class="target"' in page


NAMED = [(["<b>", "a\x1bb"], ["'<b>'", "ab"]), ("torn", ["0", "1"]), (None, ["0", "1"])]


@pytest.mark.parametrize(("silos", "shown"), NAMED, ids=str)
def test_silos_that_were_left_out_are_shown_by_name(tmp_path, silos, shown):
    run = make_run(tmp_path, [record(1, faults={"0": "late", "1": "torn"}), record(2, faults={"7": "gone"})])
    write_environment(run, **({} if silos is None else {"silos": silos}))
    _, reader = read(run)
    words = [text for text in reader.titles() if " is left out" in text]
    assert [text.removeprefix("Silo ").partition(" is left")[0] for text in words] == [*shown, "7"]


def test_the_silos_that_are_drawn_are_named(tmp_path):
    spec = write_folder(tmp_path / "shards", [4, 5])
    named = [
        entry.model_copy(update={"name": name})
        for entry, name in zip(spec.silos, ("ohio", "<b>"), strict=True)
    ]
    spec = spec.model_copy(update={"silos": named})
    spec.write(tmp_path / "shards")
    run = make_run(tmp_path / "run", SHAPES["some"], shards=tmp_path / "shards")
    write_environment(run, data=describe(spec))
    _, reader = read(run)
    words = " ".join(reader.titles())
    assert "ohio '<b>' silo" in words, "below the bars"
    assert "From the left" not in words
    named = [
        entry.model_copy(update={"name": f"hospital of town {nth}"})
        for nth, entry in enumerate(spec.silos * 6)
    ]
    drawn = data(spec.model_copy(update={"silos": named}))
    assert "From the left: 'hospital of town 0', 'hospital of town 1'," in drawn.blocks[0].text
    ticks = drawn.blocks[1].ticks
    assert [tick.text for tick in ticks] == [
        *("'hospi…wn 0'", "'hospi…wn 2'", "'hospi…wn 4'", "'hospi…wn 6'", "'hospi…wn 8'", "'hospi…n 10'")
    ], "their ends tell them apart"
    assert [tick.spare for tick in ticks] == [False, True, True, True, True, False], (
        "a phone has room for two"
    )


def test_what_is_beside_the_main_metric_is_written_as_it_is_everywhere(tmp_path):
    """In per cent if it is a share, as in `mpifl evaluate`; a run that notes nothing of it has numbers."""
    silos = {"a": {"accuracy": 0.5, "f1": 0.7297, "mae": 2.0, "<b>": 0.5}, "b": {"accuracy": 1.0, "f1": 0.25}}
    more = {"test_mae": 2.0, "silo_auroc_mean": 0.75, "test_<b>": 0.5, "test_my_own": 3.0, "silos": silos}
    run = make_run(tmp_path, [record(n, test_f1=0.5 + n / 8, **more) for n in (1, 2)])
    text, reader = read(run)
    check_whole(text)
    titles = [word for word in reader.titles() if word in ("F1", "MAE", "<b>", "My own", "AUROC")]
    titled = ["MAE", "<b>", "F1", "MAE", "<b>", "My own", "AUROC"]
    assert titles == [*titled, "AUROC"], "columns, a chart each, and a word that is told"
    words = " ".join(read(run)[1].titles())
    assert "0.7297 2.0000" in words
    noted = [
        {"name": "f1", "higher_is_better": True, "share": True},
        {"name": "mae", "higher_is_better": False},
    ]
    write_environment(run, metrics=noted)
    words = " ".join(read(run)[1].titles())
    assert "72.97% 2.0000" in words
    assert re.search(r"F1 test set 75.00% .*62.5%", words), "its chart"
    for wrong in ([{"name": "a b"}], ["f1"], {"f1": 1}):
        write_environment(run, metrics=wrong)
        assert "0.7297 2.0000" in " ".join(read(run)[1].titles())


def test_the_columns_of_vertical_silos_are_drawn(tmp_path):
    spec = write_vertical_folder(tmp_path / "shards", {"train": 40, "test": 9}, holder=2)
    run = make_run(tmp_path / "run", SHAPES["some"], shards=tmp_path / "shards")
    write_environment(run, data=describe(spec))
    _, reader = read(run)
    words = " ".join(reader.titles())
    counts = ", ".join(f"{label}: {count}" for label, count in enumerate(spec.silos[2].labels))
    assert "The data: columns of every silo" in words
    assert "3 silos with 6 columns of the same 40 training rows" in words
    assert f"; silo 'party 2' holds the targets ({counts})." in words
    paths = [given["d"] for tag, given in reader.tags if given.get("class") == "area one"]
    assert paths == ["M0.15 100V33.33H0.85V100ZM1.15 100V66.67H1.85V100ZM2.15 100V0.00H2.85V100Z"]


def test_the_same_run_gives_the_same_bytes(tmp_path):
    times = {"1": {"training": 1.0, "waiting": 0.0}, "2": {"training": 0.25, "waiting": 0.75}}
    run = make_run(tmp_path / "run", [record(n, rank_seconds=times) for n in range(1, 9)])
    first = write_report(run, tmp_path / "a.html").read_bytes()
    page = "import sys; from mpifl.report.pages import write_report as w; from pathlib import Path as P; "
    page += "w(P(sys.argv[1]), P(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", page, run, tmp_path / "b.html"], check=True)
    assert (tmp_path / "b.html").read_bytes() == first


@pytest.mark.parametrize(
    ("imported", "spared"),
    [
        ("mpifl.report.pages.run_page", ["torch", "jinja2", "mpifl.algorithms.algorithm"]),
        ("mpifl.training.start", ["jinja2", "mpifl.common.pages.rendering"]),
        ("data_prep.cli", ["jinja2"]),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(imported, spared):
    code = f"import importlib, sys; importlib.import_module({imported!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not set(spared) & set(done.stdout.split())


ALONE = {"algorithm": {"name": "ditto", "lambda": 0.0}}


def held_against(folder, served, alone, out=100, metric="accuracy", **more):
    """Leave two runs of the same shards, of which each silo holds out `out` examples, with these scores."""
    spec = write_folder(folder / "shards", [4] * len(served), silos_test=out)
    runs = []
    for name, scores in (("run", served), ("alone", alone)):
        records = [record(1, silos={str(n): {"loss": 1.0, metric: one} for n, one in enumerate(scores)})]
        table = {**more, **(ALONE if name == "alone" else {})}
        runs.append(make_run(folder / name, records, shards=folder / "shards", **table))
        told = {"name": metric, "higher_is_better": True, "share": True}
        write_environment(runs[-1], data=describe(spec), metric=told)
    return runs


def test_a_gain_is_a_number_and_it_is_said_which_exceed_chance(tmp_path):
    run, alone = held_against(tmp_path, [0.9, 0.7, 0.55, 0.3], [0.7, 0.9, 0.5, 0.1 + 0.2])
    words = " ".join(Reader(write_report(run, None, alone).read_text()).titles())
    assert "Beyond chance, not corrected for the number of silos: 1 does better, 1 does worse," in words
    assert re.search(r"30.00% ±0.00 −\S+ to \S+ the same", words)
    outcomes = "helped", "harmed", "may be chance"
    for other, one, came in zip((0.7, 0.9, 0.5), (0.9, 0.7, 0.55), outcomes, strict=True):
        reach = units.between(*chance.apart(one, other, 100), ACCURACY).removesuffix(" points")
        assert (
            f"{other:.2%} {'+' if one > other else '−'}{100 * abs(one - other):.2f} {reach} {came}" in words
        )
    assert "chance is that of pairs (Tango's interval)" in words
    assert "Rows count as independent." in words
    assert "alone gain, points gain, 95% interval, points outcome" in words
    reach = units.between(*chance.apart(0.7, 0.9, 100), ACCURACY)
    lost = f"−20.00 points, 95% interval {reach} (4 training examples, 100 held out)"
    assert f"Silo 1 loses most beyond chance: {lost}. Why is not known." in words
    run, alone = held_against(tmp_path / "few", [0.9, 0.7, 0.55], [0.7, 0.9, 0.5], out=10)
    words = " ".join(Reader(write_report(run, None, alone).read_text()).titles())
    assert "Of 3 silos, 2 are higher, 1 is lower, none beyond chance by itself." in words
    assert "Beyond chance" not in " ".join(read(run)[1].titles())
    rare = Held(9, 100, {0: 97, 1: 3})
    found = gains({"a": 0.97, "b": 0.97}, {"a": 0.5, "b": 0.97}, ACCURACY, dict.fromkeys("ab", rare))
    assert gained(found, ACCURACY).endswith(
        "and 1 shows no difference. Of these, silo a rests on 3 rows of the rarer class."
    )
    assert _outcome(found["a"]).text == "helped; rests on 3 rows of the rarer class"


def test_gains_too_small_to_be_seen_singly_are_seen_together(tmp_path):
    run, alone = held_against(tmp_path, [0.8, 0.81, 0.82, 0.83, 0.84, 0.85, 0.86, 0.87], [0.79] * 8)
    words = " ".join(Reader(write_report(run, None, alone).read_text()).titles())
    test = stats.ttest_1samp([n / 100 for n in range(1, 9)], 0)
    low, high = (f"{100 * end:.2f}" for end in test.confidence_interval())
    said = "The silos' mean is 83.50% with this model and 79.00% with a model trained alone (+4.50 points; "
    said += f"95% interval {low} to {high} points, p = {test.pvalue:.3f} by a paired t-test over the silos)."
    assert f"{said} Of 8 silos, 8 are higher, none beyond chance by itself." in words
    assert "t-test" not in gained({"0": Gain(0.5, 0.1, False)}, ACCURACY), "one silo has no spread"


def test_a_headline_names_what_a_training_does_otherwise_than_fedavg():
    job = {"algorithm": {"name": "fedavg"}, "model": {"name": "gpt"}, "seed": 0}
    job |= {
        "local": {"optimizer": "adamw", "lr": 0.003, "steps": 20, "batch_size": 8, "accumulate_batches": 4}
    }
    job |= {"server_optimizer": {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}}
    said = [
        "fedavg",
        "server sgd lr 0.7 momentum 0.9 nesterov",
        "gpt",
        "seed 0",
        "optimizer adamw",
        "lr 0.003",
    ]
    assert headline(job) == [*said, "steps 20", "batch size 8", "accumulate batches 4"]
    job |= {"server_optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.0, "nesterov": False}}
    assert "server" not in " ".join(headline(job))


@pytest.mark.parametrize(("higher", "said"), [(False, ": 1 cell is worse, up to 900.0000."), (True, "")])
def test_a_map_says_where_its_colours_end(higher, said):
    metric = MetricInfo(name="perplexity", higher_is_better=higher, share=higher)
    values = np.array([[900.0, *([9.0] * 99)], [*np.linspace(9.0, 4.0, 100)]]) / (1000 if higher else 1)
    (drawn,) = _map(metric, ["a", "b"], [*range(1, 101)], values, {})
    assert drawn.note.endswith(said or "Empty cells have no score.")
    assert ("Colours end at" in drawn.note) is not higher


def test_what_chance_makes_of_other_metrics_nobody_can_tell(tmp_path):
    error = MetricInfo(name="mae", higher_is_better=False)
    found = gains({"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.5, "c": 1.0}, error, {"a": Held(9, 10**6)})
    assert found == {"a": Gain(2.0, 1.0, None), "b": Gain(2.5, -0.5, None)}
    assert [gain.write(error) for gain in found.values()] == ["+1.0000", "−0.5000"]
    assert [gain.look for gain in found.values()] == ["", ""]
    assert gained(found, error).endswith("Chance is not known for single silos.")
    run, alone = held_against(tmp_path, [0.9, 0.7], [0.7, 0.9], metric="auroc")
    text = write_report(run, None, alone).read_text()
    words = " ".join(Reader(text).titles())
    assert "90.00% −20.00" in words
    assert "Chance is not known for single silos, so no gain is bold." in words
    assert "Tango" not in words
    assert 'class="worst" data-value="-0.2' not in text
    assert "No confidence interval is given for AUROC." in words
    told = {"columns": [[[0.5, 2, 4]]], "intervals": {"auroc": [0.8125, 0.9375]}}
    content = {"run": "run", "silos": {"0": {"answers": told}, "1": {}}, "answers": told}
    (tmp_path / "scores.json").write_text(json.dumps(content))
    words = " ".join(Reader(write_report(run, scores=[tmp_path / "scores.json"]).read_text()).titles())
    assert "0 90.00% 81.25% to 93.75%" in words
    assert "Bars are 95% intervals (DeLong)." in words
    assert "No confidence interval" not in words
    last = record(1, silo_auroc_pooled=0.875, silos={"0": {"auroc": 0.9}, "1": {"auroc": 0.7}})
    del last["test_accuracy"]
    (run / "metrics.jsonl").write_bytes(encode_record(last | {"answers": {"silos": told}}))
    words = " ".join(Reader(write_report(run, scores=[tmp_path / "scores.json"]).read_text()).titles())
    assert "AUROC is 87.50% (95% interval 81.25% to 93.75%) on the silos' held-out" in words, "DeLong's"


def test_the_images_that_count_stand_beside_the_dice_of_each_silo(tmp_path):
    run, _ = held_against(tmp_path, [0.9, 0.7], [0.7, 0.9], out=40, metric="dice")
    content = {"run": "run", "silos": {"0": {"examples": 40, "dice_examples": 9}, "1": {"examples": 40}}}
    (tmp_path / "s.json").write_text(json.dumps(content | {"answers": {}}))
    words = " ".join(Reader(write_report(run, scores=[tmp_path / "s.json"]).read_text()).titles())
    assert "rows that count" in words
    assert "0 90.00% 9 " in words
    assert "1 70.00% 40 " in words
    assert "No confidence interval is given for dice. Images without a target do not count." in words


@given(st.integers(1, 500), st.data())
def test_intervals_hold_the_share_and_a_difference_is_seen_only_beyond_both(many, data):
    one, other = (data.draw(st.integers(0, many)) / many for _ in range(2))
    low, high = chance.interval(one, many)
    assert -1e-9 <= low <= one + 1e-9
    assert one - 1e-9 <= high <= 1 + 1e-9
    assert chance.differ(one, other, many) == chance.differ(other, one, many)
    low, high = chance.apart(one, other, many)
    assert low - 1e-9 <= one - other <= high + 1e-9
    assert chance.differ(one, other, many) == (not low <= 0 <= high)
    assert not chance.differ(one, one, many)


@pytest.mark.parametrize(
    ("one", "other", "seen"), [(2, 0, False), (5, 0, False), (6, 0, True), (10, 4, True), (10, 5, False)]
)
def test_a_difference_is_seen_where_the_exact_test_of_pairs_sees_it_however_rows_changed(one, other, seen):
    """p of six rows that all turned is 2 / 2^6."""
    rows = max(one, 6)
    assert chance.differ(one / rows, other / rows, rows) is seen
    fewest = chance.by_right_answers(one - other, 0, rows)
    assert not seen or fewest.seen


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shards": 5}, "was trained on other shards"),
        ({"evaluate": {"split": "valid"}}, "is judged on another split"),
        ({"scores": []}, "tells no silo's score"),
        ({"alone": {}}, "its silos do not train alone, as those of algorithm 'ditto' with lambda = 0 do"),
    ],
    ids=str,
)
def test_a_run_that_is_none_to_be_held_against_is_refused(tmp_path, change, said):
    run, _ = held_against(tmp_path, [0.9], [0.7])
    spec = write_folder(tmp_path / "s", [change.get("shards", 4)], silos_test=100)
    scores = {"0": 0.7} if change.get("scores", True) else {}
    table = {"evaluate": change["evaluate"]} if "evaluate" in change else {}
    table |= change.get("alone", ALONE)
    alone = make_run(tmp_path / "other", [record(1, **silos(**scores))], **table)
    write_environment(alone, data=describe(spec))
    with pytest.raises(InputError, match=f"--alone .*other: {said}"):
        write_report(run, None, alone)
