"""Reproducing the papers' tables: the rounds are counted as the papers do,
every cell is a job, and quick ones run."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.report.runs.run_summary import Summary
from mpifl.run.folder.run_folder import claim_run

pytestmark = pytest.mark.usefixtures("warm_python")
DATA = Path(os.environ.get("MPIFL_DATA", "no-data-folder"))
QUICK = {
    "mcmahan-2nn": "non-IID, B = 10, C = 0.1",
    "mcmahan-cnn": "non-IID, E = 1, B = full",
    "mcmahan-shakespeare": "IID, E = 1, B = 50",
    "mcmahan-cifar10": "C = 0.1, E = 5, B = 50, to 80 %",
    "fedprox": "(1, 1), 50 %, FedProx, mu = 1",
    "qfedavg": "q > 0",
    "niid-mnist": "Dir(0.5), SCAFFOLD",
    "niid-fashion": "#C = 2, FedAvg",
    "niid-adult": "#C = 1, FedNova",
    "niid-cifar10": "#C = 3, FedProx",
    "flamby-heart": "FedYogi",
    "byzantine-mnist": "RFA + s2, beta = 0.9, ALIE",
    "flamby-heart-private": "epsilon 1",
    "flamby-tcga-brca": "FedAdam",
    "mcmahan-why": "IID, pixels -1 to 1",
    "opacus-mnist": "z = 1.3, 10 silos",
    "vflair-mnist": "split, sum",
    "vflair-adult": "split, linear top",
    "vertibench-letter": "in one place",
    "pfedme-mnist": "pFedMe, R = 10",
}
"""A cell of every table."""
READ = {
    "flamby-heart": "heart-disease",
    "flamby-heart-private": "heart-disease",
    "flamby-tcga-brca": "tcga-brca",
    "mcmahan-shakespeare": "tinyshakespeare",
}
"""What quick cells read beside the digits that are built in."""


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # which the script adds to


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all reproduce, so that data are cut once."""
    return tmp_path_factory.mktemp("papers")


def run_of(*accuracies):
    records = [{"round": nth, "test_accuracy": a} for nth, a in enumerate(accuracies, 1) if a is not None]
    return Summary(Path("run"), records)


@pytest.mark.parametrize(
    ("accuracies", "rounds"),
    [
        ((0.5, 0.9), 1.75),  # between the points, linearly
        ((0.5, 0.6, 0.4, 0.9), 3 + 0.2 / 0.3),  # from the best so far, 0.6, not from 0.4
        ((0.5, None, None, 0.9), 1 + 3 * 0.75),  # over rounds that were not evaluated
        ((0.5, 0.8), 2),  # at a point
        ((0.9, 0.5), 1),  # before any point to start from
        ((0.5, 0.7), None),
        ((), None),
    ],
)
def test_rounds_to_a_target_are_read_off_a_monotone_curve(accuracies, rounds):
    from scripts.reproduce.scores import rounds_to

    assert rounds_to(run_of(*accuracies), 0.8) == (None if rounds is None else pytest.approx(rounds))


def test_deviations_are_those_of_a_sample():
    from scripts.reproduce.scores import percent

    assert percent([0.5]) == "50.0"
    assert percent([0.4, 0.5, 0.6]) == "50.0 ± 10.0"


def test_every_cell_of_every_table_is_a_job_of_its_own_and_says_that_it_was_not_run(tmp_path):
    from scripts.reproduce.__main__ import TABLES
    from scripts.reproduce.cells import Reproduction

    assert set(QUICK) == set(TABLES)
    for table in TABLES.values():
        names = [cell.name for cell in table.cells]
        assert len(set(names)) == len(names)
        head, _, *lines = Reproduction(table, tmp_path).markdown().splitlines()
        assert [line.split(" | ")[1] for line in lines] == ["not run"] * len(names)
        assert {len(line.split("|")) for line in lines} == {len(head.split("|"))}
        assert ("| chosen |" in head) == any(cell.tried != ((),) for cell in table.cells)
        assert ("| of that |" in head) == (table.title.startswith("McMahan") and "| chosen |" in head)


LONG = (
    *("mcmahan-2nn", "mcmahan-shakespeare", "mcmahan-cnn", "mcmahan-cifar10"),
    *("niid-mnist", "niid-fashion", "niid-cifar10", "byzantine-mnist", "flamby-heart-private", "fedprox"),
    *("vflair-adult", "vertibench-letter"),
)
"""Tables whose like is among the others, and which take longest."""


@pytest.mark.parametrize(
    "table", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in QUICK]
)
def test_a_quick_cell_runs_once_and_is_read_again(table, folder, monkeypatch, capsys):
    from scripts.reproduce.__main__ import main

    if table in READ and not (DATA / READ[table]).is_dir():
        pytest.skip(f"set MPIFL_DATA to a folder that has {READ[table]}/")
    monkeypatch.chdir(folder)
    command = [table, "--quick", "--cell", QUICK[table]]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "say nothing about the paper" in told.out
    row = next(line for line in told.out.splitlines() if line.startswith(f"| {QUICK[table]} "))
    assert "not run" not in row
    assert row.split(" | ")[-2] == "2"
    runs = list((folder / "runs" / "papers-quick" / table).glob("*/metrics.jsonl"))
    written = [run.stat().st_mtime_ns for run in runs]
    assert written
    assert main(command) == 0
    assert [run.stat().st_mtime_ns for run in runs] == written
    assert row in capsys.readouterr().out


@pytest.mark.parametrize("table", ["mcmahan-2nn", "flamby-heart"])
def test_without_the_data_it_is_a_line(table, folder, monkeypatch, capfd):
    from scripts.reproduce.__main__ import main

    monkeypatch.chdir(folder)
    monkeypatch.delenv("MPIFL_DATA", raising=False)
    with pytest.raises(SystemExit) as end:
        main([table, "--out", str(folder / "none")])
    assert end.value.code == 2
    assert capfd.readouterr().err.startswith("error: --data: not given")


def test_of_several_settings_the_one_with_fewest_rounds_is_shown_and_later_ones_go_no_further(
    folder, monkeypatch
):
    from scripts.reproduce.__main__ import TABLES
    from scripts.reproduce.cells import Cell, Cut, Reproduction, Table
    from scripts.reproduce.scores import rounds_to

    monkeypatch.chdir(folder)
    digits = Cut("searched", "digits --silos 4 --scheme iid", "")
    tried = (("local.lr=0.1",), ("local.lr=0.0001",))
    settings = ("local.compile=false", "evaluate.target_accuracy=0.9", "cohort.fraction=1.0")
    cell = Cell("a cell", "9", digits, settings, 20, tried)
    cost = partial(rounds_to, target=0.9)
    job = TABLES["mcmahan-2nn"].job
    table = Table("", job, (cell,), ("rounds",), lambda runs: (f"{cost(runs[0])}",), cost)
    reproduction = Reproduction(table, folder / "searched")
    assert reproduction.train(cell) == 0
    _, took, paper, ratio, chosen, rounds, _ = reproduction.row(cell)
    assert (paper, chosen) == ("9", "lr=0.1")
    assert float(ratio) * 9 == pytest.approx(float(took), abs=0.1)
    assert 1 < float(took) <= float(rounds) < 20
    slow = folder / "searched" / "acell_local.lr=0.0001_seed7" / "metrics.jsonl"
    assert len(slow.read_text().splitlines()) == float(rounds)


@pytest.mark.slow
def test_of_several_settings_the_most_accurate_is_shown_where_accuracy_counts(folder, monkeypatch):
    from scripts.reproduce.__main__ import TABLES
    from scripts.reproduce.cells import Cell, Cut, Reproduction, Table
    from scripts.reproduce.niid import errors, figures

    monkeypatch.chdir(folder)
    digits = Cut("accurate", "digits --silos 4 --scheme iid", "")
    tried = (("local.lr=0.0001",), ("local.lr=0.1",))
    cells = (
        Cell(
            "a cell", "98.9", digits, ("local.compile=false", "cohort.fraction=1.0", "rounds=3"), tried=tried
        ),
        Cell("another", "99.1", digits),
    )
    table = Table("", TABLES["mcmahan-2nn"].job, cells, ("test accuracy %", "best %"), figures, errors)
    reproduction = Reproduction(table, folder / "accurate")
    assert reproduction.train(cells[0]) == 0
    lines = [line.strip("| ").split(" | ") for line in reproduction.markdown().splitlines()]
    assert lines[0] == ["test accuracy %", "best %", "the paper", "chosen", "rounds", "seconds"]
    _, last, best, paper, chosen, rounds, _ = lines[2]
    assert (paper, chosen, rounds) == ("98.9", "lr=0.1", "3")
    assert 20 < float(last) <= float(best) <= 100
    assert lines[3][:4] == ["another", "not run", "", "99.1"]


def test_niid_bench_counts_the_best_round_as_the_published_tables_do():
    from scripts.reproduce.niid import errors, figures

    runs = [run_of(0.1, 0.6, 0.2), run_of(0.3, 0.4, 0.4)]
    assert [errors(one) for one in runs] == pytest.approx([0.4, 0.6])
    assert figures(runs) == ("30.00 ± 14.14", "50.00 ± 14.14")


def test_a_run_that_diverged_is_not_run_again_unless_asked(folder, monkeypatch):
    from scripts.reproduce.__main__ import TABLES
    from scripts.reproduce.cells import Cell, Cut, Reproduction, Table

    monkeypatch.chdir(folder)
    digits = Cut("lost", "digits --silos 4 --scheme iid", "")
    settings = ("local.compile=false", "local.lr=1e30", "cohort.fraction=1.0")
    cell = Cell("a cell", "", digits, settings, 2)
    table = Table("", TABLES["mcmahan-2nn"].job, (cell,), ("rounds",), lambda runs: ("",))
    reproduction = Reproduction(table, folder / "lost")
    assert reproduction.row(cell)[1] == "not run"
    assert reproduction.train(cell) == 0
    log = folder / "lost" / "acell_seed7" / "log.txt"
    before = log.read_bytes()
    assert reproduction.row(cell)[1] == "lost"
    assert reproduction.train(cell) == 0
    assert log.read_bytes() == before
    assert Reproduction(table, folder / "lost", retry=True).train(cell) == 0
    assert log.read_bytes() != before


def test_a_run_of_settings_that_were_changed_since_is_not_taken_for_the_cells(folder, monkeypatch, capsys):
    from scripts.reproduce import __main__ as script
    from scripts.reproduce.cells import Cell, Cut, Reproduction, Table

    monkeypatch.chdir(folder)
    digits = Cut("changed", "digits --silos 4 --scheme iid", "")
    settings = ("local.compile=false", "local.lr=0.1", "cohort.fraction=1.0")

    def table_of(*changed, rounds=2):
        cell = Cell("a cell", "", digits, settings + changed, rounds)
        return Table(
            "", script.TABLES["mcmahan-2nn"].job, (cell,), ("rounds",), lambda runs: (f"{runs[0].rounds}",)
        )

    def run(table):
        monkeypatch.setitem(script.TABLES, "qfedavg", table)
        code = script.main(["qfedavg", "--out", "changed"])
        return code, capsys.readouterr()

    digits.make(7, quick=False)
    task = Reproduction(table_of(), folder / "changed")._task(table_of().cells[0], (), 7, 2)
    claim_run(task.run, task.job)
    (task.run / "metrics.jsonl").write_bytes(b'{"round": 1}\n{"round": 2}\n')
    (task.run / "model.safetensors").write_bytes(b"")
    code, told = run(table_of())
    assert (code, "| a cell | 2 |" in told.out) == (0, True)
    code, told = run(table_of("local.momentum=0.9"))
    said = "changed/acell_seed7: is a run of another job, it differs in local.momentum; remove it, or"
    assert (code, told.err.startswith(f"error: {said}")) == (2, True)
    changed = table_of("local.momentum=0.9")
    assert Reproduction(changed, folder / "changed").row(changed.cells[0])[1] == "other settings"
    code, told = run(table_of(rounds=1))
    assert (code, "has done 2 rounds, more than the 1 that are asked for; remove it" in told.err) == (2, True)


def test_data_that_were_cut_otherwise_are_not_taken_for_the_cells(folder, monkeypatch):
    from scripts.reproduce.cells import Cut

    monkeypatch.chdir(folder)
    words = "digits --silos 4 --scheme dirichlet --alpha 0.5 --test 0.2"
    Cut("otherwise", words, "").make(7, quick=False)
    Cut("otherwise", words.replace("0.5", "0.50"), "").make(7, quick=False)
    for old, new, key in (("0.5", "0.1", "alpha"), (" --test 0.2", "", "test"), ("4", "5", "silos"),
                          ("digits", "mnist", "source"), ("4", "4 --option a=1", "option")):  # fmt: skip
        with pytest.raises(
            InputError, match=rf"otherwise-seed7: was cut otherwise, by another {key}; remove it"
        ):
            Cut("otherwise", words.replace(old, new, 1), "").make(7, quick=False)


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="set MPIFL_DATA to a folder that has mnist/")
def test_silos_of_two_digits_have_the_rows_of_the_authors_curves():
    from data_prep.sources.mnist import read_mnist
    from scripts.reproduce.dinh import deal

    data = read_mnist("mnist", None, 7)
    images, labels, silos, tested = deal(labels_of := np.concatenate([data.y[:], data.test[1][:]]))
    # the points of the curves are multiples of 1 / 52,470 and 1 / 17,499
    assert (np.sum(~tested), np.sum(tested)) == (52_470, 17_499)
    assert len(np.unique(images)) < len(images)
    wrong = labels != labels_of[images]
    assert set(np.bincount(silos, wrong)) == {0, 1}
    for silo in range(20):
        assert set(labels_of[images[silos == silo]]) == {silo % 10, (silo + 1) % 10}


@pytest.mark.skipif(
    not (DATA / "heart-disease").is_dir(), reason="set MPIFL_DATA to a folder that has heart-disease/"
)
def test_hospitals_hold_out_flambys_rows_and_are_standardised_by_the_others(tmp_path, monkeypatch):
    from scripts.reproduce.flamby import OWN

    monkeypatch.chdir(tmp_path)
    OWN.make(7, quick=False)
    folder = OWN.folder(7, quick=False)
    spec = read_federation(folder)
    # what FLamby's figures are multiples of: 0.798076... is 83 of 104
    assert [entry.examples["test"] for entry in spec.silos] == [104, 89, 16, 45]
    for entry in spec.silos:
        train = open_shard(folder, entry, spec)["train"].x
        varied = train.std(axis=0) > 0
        assert varied.sum() >= 10
        np.testing.assert_allclose(train[:, varied].std(axis=0, ddof=1), 1, atol=1e-4)
        np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-4)
