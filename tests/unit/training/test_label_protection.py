"""Split training with labels that are protected: what it reports, refuses, and repeats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from pages import Reader, check_whole
from unit.builders import Alone, arrays, write_vertical_folder

from mpifl.common import InputError, RoundLost
from mpifl.data import Features
from mpifl.data.shards import read_any
from mpifl.data.targets import Targets
from mpifl.report.pages import write_report
from mpifl.run.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.split.split_training import assemble_vertical

ROWS = {"train": 1500, "test": 300}
ADAM = {"optimizer": "adam", "lr": 0.01, "batch_size": 50}
LABEL_DP = {"protect": "label-dp", "epsilon": 1.0}


def rare(split: str) -> np.ndarray:
    """Labels, of which one in five is 1; columns of all silos tell something of them."""
    x, _ = arrays(ROWS[split], list(ROWS).index(split), Features(shape=(6,), dtype="float32"))
    score = x.sum(1) + np.random.default_rng(0).normal(size=len(x))
    return (score > np.quantile(score, 0.8)).astype(np.uint8)


@pytest.fixture
def start(tmp_path: Path, monkeypatch):
    """Train a small job serially on two classes, one of them rare; tables replace the usual ones."""
    monkeypatch.delenv("MPIFL_SITE", raising=False)
    labels = {split: rare(split) for split in ROWS}
    write_vertical_folder(tmp_path / "shards", ROWS, y=labels, holder=1, classes=2)

    def act(name, resume=False, shards="shards", vertical=None, rounds=3, key=None, **tables):
        cut = {"cut_width": 4, "top": {"name": "mlp", "hidden": [8]}, **(vertical or {})}
        told = {"name": name, "shards": str(tmp_path / shards), "seed": 3, "rounds": rounds, "device": "cpu"}
        told |= {"model": {"name": "mlp", "hidden": [8]}, "algorithm": {"name": "splitnn"}}
        told |= {"split": cut, "local": ADAM, "checkpoint": {"every": 1}}
        path, run = tmp_path / f"{name}.toml", tmp_path / name
        path.write_text(tomli_w.dumps({**told, **tables}))
        if key is not None:
            (run / "privacy").mkdir(parents=True, mode=0o700)
            (run / "privacy" / "key").write_bytes(key)
        train(path, run, (), resume, Alone(), wings_of=wings_of)
        return run

    act.folder = tmp_path
    return act


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def leaks(run: Path) -> list[float]:
    return [record["norm_leak_auc"] for record in records(run)]


def states(run: Path) -> dict[str, str]:
    """The sha256 of what the last checkpoint holds, of the server and of each silo."""
    body = json.loads((run / "checkpoints" / "round_000003" / "checkpoint.json").read_text())
    return {"server": body["server"], **body["silos"]}


def test_lengths_of_gradients_tell_a_rare_label_and_max_norm_hides_it(start):
    assert min(leaks(start("plain"))) > 0.8
    hidden = leaks(start("hidden", vertical={"protect": "max-norm"}, key=b"k" * 32))
    assert max(hidden) < 0.6
    assert hidden[-1] < 0.55


def test_the_leak_is_of_the_true_labels(start):
    """Randomised ones tell less of them; the true ones are what silos are not to learn."""
    told = leaks(start("told", vertical=LABEL_DP, key=b"k" * 32))
    assert 0.5 <= max(told) < 0.75


def test_there_is_no_leak_to_tell_where_there_are_not_two_classes(start):
    write_vertical_folder(start.folder / "three", ROWS)
    assert "norm_leak_auc" not in records(start("three", shards="three"))[0]


@pytest.mark.parametrize("vertical", [{"protect": "max-norm"}, LABEL_DP], ids=["max-norm", "label-dp"])
def test_a_training_that_goes_on_has_the_bits_of_one_never_stopped(start, vertical):
    whole = start("whole", vertical=vertical, key=b"k" * 32)
    start("half", rounds=2, vertical=vertical, key=b"k" * 32)
    assert states(start("half", resume=True, vertical=vertical)) == states(whole)
    other = start("other", vertical=vertical)  # by a secret of its own
    assert states(other)["0"] != states(whole)["0"]


@pytest.mark.parametrize("vertical", [{"protect": "max-norm"}, LABEL_DP], ids=["max-norm", "label-dp"])
def test_a_training_does_not_go_on_without_its_secret(start, vertical):
    run = start("run", rounds=1, vertical=vertical)
    shutil.rmtree(run / "privacy")
    with pytest.raises(InputError, match="has not the secret that this run began with"):
        start("run", resume=True, vertical=vertical)


def test_training_labels_alone_are_randomised(start):
    run = start("run", vertical=LABEL_DP)
    job, spec = read_job(start.folder / "run.toml"), read_any(start.folder / "shards")
    server, _ = assemble_vertical(job, spec, run, Alone())
    flipped = server.held["train"].targets(torch.arange(1500)).numpy() != rare("train")
    assert abs(flipped.mean() - 1 / (1 + np.e)) < 0.05
    assert (server.held["test"].targets(torch.arange(300)).numpy() == rare("test")).all()
    assert (server.gate.ones.numpy() == rare("train")).all()


def test_a_trained_network_is_scored_on_true_labels_and_makes_no_secret(start):
    run = start("run", vertical=LABEL_DP)
    shutil.rmtree(run / "privacy")
    job, spec = read_job(start.folder / "run.toml"), read_any(start.folder / "shards")
    server, _ = assemble_vertical(job, spec, run, Alone(), trained="")
    assert (server.held["train"].targets(torch.arange(1500)).numpy() == rare("train")).all()
    assert not (run / "privacy").exists()


def test_a_site_randomises_its_labels_once_for_all_its_runs(start, monkeypatch):
    monkeypatch.setenv("MPIFL_SITE", str(start.folder / "site"))
    one, other = start("one", vertical=LABEL_DP), start("other", vertical=LABEL_DP)
    assert states(one) == states(other)
    assert not (one / "privacy").exists()


def test_a_round_that_is_lost_is_answered_alike(start, monkeypatch):
    """The gradients of the second attempt are those of the first, and so is their noise."""
    from mpifl.wings.split import dialogue

    whole = start("whole", vertical={"protect": "max-norm"}, key=b"k" * 32)
    hear, heard = dialogue.Dialogue.hear, []

    def once(self, *given):
        heard.append(given)
        if len(heard) == 35:  # of the second round
            raise RoundLost("for once")
        return hear(self, *given)

    monkeypatch.setattr(dialogue.Dialogue, "hear", once)
    lost = start("lost", vertical={"protect": "max-norm"}, key=b"k" * 32)
    assert [len(record.get("attempts_lost", [])) for record in records(lost)] == [0, 1, 0]
    assert states(lost) == states(whole)
    assert leaks(lost) == leaks(whole)


@pytest.mark.parametrize(
    ("vertical", "said"),
    [
        ({"protect": "label-dp"}, r"\[split\] protect = 'label-dp' needs epsilon"),
        ({"epsilon": 1.0}, r"\[split\] epsilon = 1 is of label-dp; use protect = 'label-dp'"),
        ({"protect": "max-norm", "epsilon": 1.0}, "epsilon = 1 is of label-dp"),
        ({"protect": "label-dp", "epsilon": 0.0}, r"\[split\] epsilon = 0.0: "),
        ({"protect": "marvell"}, r"\[split\] protect = \"marvell\": "),
    ],
)
def test_what_cannot_protect_is_refused(start, vertical, said):
    with pytest.raises(InputError, match=said):
        start("toy", vertical=vertical)


def test_label_dp_is_refused_where_rows_have_values(start):
    y = {split: np.linspace(0, 1, n, dtype=np.float32) for split, n in ROWS.items()}
    targets = Targets(shape=(), dtype="float32")
    write_vertical_folder(start.folder / "values", ROWS, y=y, classes=None, targets=targets)
    with pytest.raises(InputError, match="the class of each row, and the shards have float32 values"):
        start("toy", shards="values", task={"name": "regression"}, vertical=LABEL_DP)
    run = start("v", shards="values", rounds=1, task={"name": "regression"}, vertical={"protect": "max-norm"})
    assert "norm_leak_auc" not in records(run)[0]


def test_the_page_of_a_split_network_says_whose_rows_and_columns_and_how_labels_are_protected(start):
    run = start("page", vertical=LABEL_DP, rounds=2)
    page = write_report(run).read_text()
    check_whole(page)
    for told in ("randomised once, before training", ">1</td>", f">{leaks(run)[1]:.2%}</td>"):
        assert told in page
    words = " ".join(Reader(page).titles())
    assert f"Accuracy is {records(run)[1]['test_accuracy']:.2%} (95% interval " in words
    assert "Silos There are no scores of single silos: all hold columns of the same rows." in words
    assert " · 3 silos · " in words
    assert " · labels at silo 'party 1' · " in words
    assert "of the same 1,500 training rows; silo 'party 1' holds the targets" in words
    assert "worst silo" not in words
    run = start("open", rounds=1)
    said = "Warning: labels are not protected: silos can tell them from the norms of the gradients that "
    said += f"they receive, with a label leak of up to {max(leaks(run)):.2%} in a round (50% reveals none); "
    said += "to hide them, set [split] protect = 'label-dp', or 'max-norm' without a guarantee."
    assert "are not protected" not in words
    assert said in " ".join(Reader(write_report(run).read_text()).titles())


def test_the_console_tells_the_leak():
    from mpifl.report.observers.console import figures_of

    assert figures_of({"train_loss": 1.0, "norm_leak_auc": 0.7349}) == "loss 1.0000  label leak 73.49%"
