"""A split network answers: all parties' parts together, or a line that says which is missing."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from pages import Reader
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner
from unit.builders import write_folder, write_vertical_folder

import mpifl
from mpifl.cli import app
from mpifl.common import InputError
from mpifl.data.shards import open_vertical, read_vertical
from mpifl.report.judging import evaluate_run
from mpifl.report.pages import write_report

ROWS = {"train": 20, "valid": 6, "test": 9}
WIDTHS = (2, 1, 3)


def run_of(folder, y=None, classes=3, **tables):
    """Train for two rounds with the label holder in the middle; tables replace the usual ones."""
    told = {"y": y, "classes": classes} if y else {}
    write_vertical_folder(folder / "shards", ROWS, WIDTHS, holder=1, **told)
    job = {
        "name": "split",
        "shards": str(folder / "shards"),
        "rounds": 2,
        "model": {"name": "mlp", "hidden": [4]},
        "split": {"cut_width": 3, "top": {"name": "mlp", "hidden": [5]}},
        "algorithm": {"name": "splitnn"},
        "local": {"lr": 0.1, "batch_size": 8},
        "evaluate": {"batch_size": 4},
        "tracking": {"console": False},
        "device": "cpu",
    }
    return mpifl.train(job | tables, out=folder / "run")


@pytest.fixture
def trained(tmp_path):
    return run_of(tmp_path)


def asked(*words):
    """Return what a command printed, or the error that ends it."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(done.exception, InputError):
        assert "\n" not in str(done.exception)
        return str(done.exception)
    assert done.exception is None, done.exception
    return done.output


def filled(module, path):
    """Give a module the weights of a file, in the order of their names."""
    weights = load_file(path)
    names = zip(sorted(module.state_dict()), sorted(weights), strict=True)
    module.load_state_dict({name: weights[stored] for name, stored in names})
    return module


def probabilities(trained, spec, split):
    """What the parts say of a split's rows, put together by hand."""
    lines = []
    for silo, entry in enumerate(spec.silos):
        x = torch.from_numpy(np.array(open_vertical(trained.job.shards, entry, spec)[split].x))
        bottom = nn.Sequential(nn.Linear(WIDTHS[silo], 4), nn.ReLU(), nn.Linear(4, 3))
        lines.append(filled(bottom, trained.folder / f"personal/silo_{silo:04d}.safetensors")(x))
    top = nn.Sequential(nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3))
    return filled(top, trained.folder / "model.safetensors")(torch.cat(lines, 1)).softmax(1).detach()


def test_the_figures_are_those_of_the_last_round(trained, tmp_path):
    said = asked("evaluate", trained.folder, "--json", tmp_path / "scores.json")
    last, found = trained.metrics[-1], json.loads((tmp_path / "scores.json").read_text())
    assert found["test"] == {"examples": 9, "loss": last["test_loss"], "accuracy": last["test_accuracy"]}
    assert said.startswith(f"test loss {last['test_loss']:.4f}, test accuracy ")
    assert asked("evaluate", trained.folder, "--split", "valid").endswith("%, 6 examples\n")


@pytest.mark.parametrize("split", ["test", None])
def test_each_row_has_its_number_and_what_all_parts_say_of_it(trained, tmp_path, split):
    out, spec = tmp_path / "predictions.npz", read_vertical(tmp_path / "shards")
    words = ["--split", split] if split else []
    said = asked("predict", trained.folder, "--data", tmp_path / "shards", "--out", out, *words)
    splits = [split] if split else list(ROWS)
    assert said == f"predictions: {out}, {sum(ROWS[name] for name in splits)} rows\n"
    found = np.load(out)
    assert list(found) == ["split", "id", "y", "p_0", "p_1", "p_2"]
    held = open_vertical(tmp_path / "shards", spec.silos[1], spec)
    for name in splits:
        here = found["split"] == name
        assert np.array_equal(found["id"][here], held[name].id)
        assert np.array_equal(found["y"][here], held[name].y)
        p = np.stack([found[f"p_{k}"][here] for k in range(3)], 1)
        np.testing.assert_allclose(p, probabilities(trained, spec, name), atol=1e-6)


def test_rows_that_were_not_trained_on_are_predicted_by_the_same_columns(trained, tmp_path):
    write_vertical_folder(tmp_path / "new", {"train": 3, "test": 2}, WIDTHS, holder=1)
    out = tmp_path / "predictions.csv"
    assert asked("predict", trained.folder, "--data", tmp_path / "new", "--out", out).endswith(", 5 rows\n")
    write_vertical_folder(tmp_path / "others", {"train": 3}, (3, 1, 2), holder=1)
    said = asked("predict", trained.folder, "--data", tmp_path / "others", "--out", out)
    assert re.search(r"others: silo 0 has other columns than .*run was trained on; give each party", said)
    write_vertical_folder(tmp_path / "held", {"train": 3}, WIDTHS, holder=0)
    said = asked("predict", trained.folder, "--data", tmp_path / "held", "--out", out)
    assert re.search(r"held: has holder = 0, .*run was trained with 1", said)
    write_folder(tmp_path / "whole", [8, 8])
    said = asked("predict", trained.folder, "--data", tmp_path / "whole", "--out", out)
    assert "its silos have examples, not columns" in said
    shard = tmp_path / "new" / "silo_0001.h5"
    said = asked("predict", trained.folder, "--data", shard, "--out", out)
    assert (
        said
        == f"--data {shard}: is one party's shard, and all parties answer together; name the shard folder"
    )


@pytest.mark.parametrize("missing", ["personal/silo_0002.safetensors", "model.safetensors"])
def test_half_a_network_is_no_model(trained, tmp_path, missing):
    (trained.folder / missing).unlink()
    said = asked("evaluate", trained.folder)
    assert said.startswith(f"{trained.folder / missing}: is not there")
    if missing.startswith("personal"):
        assert said.endswith(
            "half a network is not a model; have all parties answer together, each with its own half"
        )


def test_halves_of_two_trainings_are_no_model(trained, tmp_path):
    other = run_of(tmp_path / "other", rounds=3)
    half = "personal/silo_0002.safetensors"
    shutil.copy(other.folder / half, trained.folder / half)
    said = asked("evaluate", trained.folder)
    assert re.fullmatch(
        rf"{trained.folder / half}: was trained with another top, \w{{12}}, than model.safetensors at "
        r"rank 0, \w{12}; have each party bring its half of one training",
        said,
    )


def test_who_asks_one_party_alone_is_told_that_it_has_a_part(trained):
    with pytest.raises(InputError, match=r"here is the top, .* have all answer together by mpifl predict"):
        trained.model()
    with pytest.raises(InputError, match=r"have all answer together by mpifl evaluate or mpifl predict"):
        evaluate_run(trained.folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--silos"], "--silos: all silos have the same rows, and none has a model of its own"),
        (["--split", "public"], "has no rows of a split 'public'; it has train, valid, test"),
    ],
)
def test_what_a_split_network_cannot_be_asked_is_a_line(trained, words, said):
    assert said in asked("evaluate", trained.folder, *words)


def test_code_that_a_foreign_run_names_needs_to_be_trusted(trained):
    job = trained.folder / "job.toml"
    top = '[split.top]\nname = "nobody.knows:top"'
    job.write_text(job.read_text().replace('[split.top]\nname = "mlp"', top))
    said = asked("evaluate", trained.folder)
    assert "[split] top = 'nobody.knows:top': is code that this command would import and run" in said


def test_a_run_on_other_shards_is_not_scored(trained, tmp_path):
    shutil.rmtree(tmp_path / "shards")
    write_vertical_folder(tmp_path / "shards", {"train": 4, "test": 4}, WIDTHS, holder=1)
    assert "are not those that it was trained on" in asked("evaluate", trained.folder)


def test_the_page_and_the_script_have_the_figures_of_a_split_run(tmp_path):
    labels = {split: np.arange(n) % 2 for split, n in ROWS.items()}
    told = {"cut_width": 3, "top": {"name": "mlp", "hidden": [5]}, "protect": "max-norm"}
    run = run_of(tmp_path, y=labels, classes=2, split=told)
    last, found = run.metrics[-1], mpifl.Run.of(run.folder)
    assert run.finished
    assert found.finished
    assert found.metrics == run.metrics
    assert found.best == run.best == max(run.metrics, key=lambda one: one["test_accuracy"])
    assert list(found.frame()["norm_leak_auc"]) == [one["norm_leak_auc"] for one in run.metrics]
    said = asked("evaluate", run.folder)
    assert said.startswith(f"test loss {last['test_loss']:.4f}, test accuracy {last['test_accuracy']:.2%}")
    assert asked("report", run.folder) == f"report: {run.folder / 'report.html'}\n"
    words = " ".join(Reader((run.folder / "report.html").read_text()).titles())
    assert f"{last['test_accuracy']:.2%}" in words
    assert f"test set {last['test_loss']:.3g}" in words
    local = "seed 0 · lr 0.1 · epochs 1 · batch size 8 · 3 silos"
    assert f"splitnn · bottom mlp, top mlp · {tmp_path / 'shards'} · {local}" in words
    assert re.search(
        r"3 silos with 6 columns of the same 20 training rows; silo .*1.* holds the targets", words
    )
    leaks = [one["norm_leak_auc"] for one in run.metrics]
    assert f"label leak in the last round {leaks[-1]:.2%} highest label leak {max(leaks):.2%}" in words


def test_rounds_are_judged_by_valid_rows_and_the_test_rows_are_scored_once(tmp_path):
    run = run_of(tmp_path, evaluate={"split": "valid", "target": 1.0, "patience": 5})
    assert all("silo_accuracy_pooled" in one and "test_accuracy" not in one for one in run.metrics)
    assert ["final" in one for one in run.metrics] == [False, True]
    final = run.metrics[-1]["final"]
    said = asked("evaluate", run.folder, "--json", tmp_path / "scores.json")
    found = json.loads((tmp_path / "scores.json").read_text())["test"]
    assert (found["loss"], found["accuracy"]) == (final["test_loss"], final["test_accuracy"])
    said = asked("evaluate", run.folder, "--split", "valid")
    assert f"valid accuracy {run.metrics[-1]['silo_accuracy_pooled']:.2%}, 6 examples" in said
    page = Reader(write_report(run.folder).read_text())
    words = " ".join(page.titles())
    assert "splitnn · bottom mlp, top mlp · " in words
    assert "on the test rows of all silos, scored once at the end" in words
    assert "worst silo" not in words


@pytest.mark.parametrize("key", ["target", "patience"])
def test_a_training_over_columns_ends_when_it_is_good_enough(tmp_path, key):
    told = {"target": 0.01, "stop_at_target": True} if key == "target" else {"patience": 1}
    local = {"lr": 1e-9, "batch_size": 8}  # so that no round is better than the first
    run = run_of(tmp_path, rounds=9, evaluate=told, local=local)
    assert run.finished
    assert len(run.metrics) == (1 if key == "target" else 2)


def test_the_first_line_has_the_parameters_of_each_part(tmp_path, capfd):
    run_of(tmp_path, tracking={"console": "always"})
    first = " ".join(capfd.readouterr().out.split())
    sizes = ", ".join(str(4 * width + 4 + 4 * 3 + 3) for width in WIDTHS)
    assert (
        f"splitnn, top mlp with {9 * 5 + 5 + 5 * 3 + 3} parameters, bottoms mlp with {sizes}, 3 silos"
        in first
    )
