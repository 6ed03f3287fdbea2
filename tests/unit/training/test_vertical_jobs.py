"""What a job over silos with columns is refused for, before any rank trains."""

import re
from types import SimpleNamespace

import h5py
import pytest
import tomli_w
from torch import nn
from unit.builders import Alone, write_folder, write_vertical_folder

from mpifl.common import InputError
from mpifl.data.shards.vertical_spec import read_vertical
from mpifl.run.job import read_job, read_kept
from mpifl.training.beforehand import validate_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.split.split_training import placement
from mpifl.wire.launching.deaths import _LAUNCHERS_WORD as SURVIVABLE

ROWS = {"train": 12, "test": 6}


def job_of(folder, **tables):
    """Write a job over a vertical folder of three silos; tables replace the usual ones, None leaves out."""
    usual = {
        "name": "split",
        "shards": str(folder / "shards"),
        "rounds": 2,
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "splitnn"},
        "split": {"cut_width": 5, "top": {"name": "mlp", "hidden": [6]}},
        "local": {"lr": 0.1, "batch_size": 4},
    }
    found = {key: value for key, value in {**usual, **tables}.items() if value is not None}
    path = folder / "split.toml"
    path.write_text(tomli_w.dumps(found))
    return path


def refusal_of(path):
    """Return the line by which a job is refused."""
    with pytest.raises(InputError) as refused:
        validate_job(read_job(path), str(path), wings_of)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def yard(tmp_path):
    write_vertical_folder(tmp_path / "shards", ROWS)
    return tmp_path


def test_a_job_over_columns_is_found_good_without_ranks(yard):
    path = job_of(yard)
    spec = validate_job(read_job(path), str(path), wings_of)
    assert (spec.layout, len(spec.silos)) == ("vertical", 3)


MLP = {"name": "mlp", "hidden": [6]}
ALL = "every silo holds columns of every row"
REFUSED = {
    "fraction": ({"cohort": {"fraction": 0.5}}, f"[cohort] fraction = 0.5: {ALL}"),
    "quorum": ({"cohort": {"quorum": 0.5}}, f"[cohort] quorum = 0.5: {ALL}"),
    "deadline": ({"cohort": {"deadline": 9.0}}, f"[cohort] deadline = 9: {ALL}"),
    "weights": ({"cohort": {"weights": "uniform"}}, f"[cohort] weights = 'uniform': {ALL}"),
    "epochs_by_silo": ({"local": {"epochs_by_silo": [1, 2]}}, "[local] epochs_by_silo: "),
    "straggler_chance": (
        {"local": {"straggler_chance": 0.5, "epochs": 3}},
        "[local] straggler_chance = 0.5: ",
    ),
    "slow": ({"local": {"deadline": 3.0}}, "[local] deadline = 3: "),
    "accumulate_batches": (
        {"local": {"accumulate_batches": 2}},
        "[local] accumulate_batches = 2: each batch is a step",
    ),
    "compile": ({"local": {"compile": True}}, "[local] compile = true: "),
    "batched": ({"local": {"batch_silos": True}}, "[local] batch_silos = true: "),
    "precision": ({"local": {"precision": "bf16"}}, "[local] precision = 'bf16': lines are float32"),
    "server": ({"server_optimizer": {"name": "adam", "lr": 0.1}}, "[server_optimizer]: there is no mean"),
    "step": ({"server_optimizer": {"name": "sgd", "lr": 0.5}}, "[server_optimizer]: there is no mean"),
    "rule": ({"aggregation": {"rule": "median"}}, "[aggregation]: lines are not averaged"),
    "clip": ({"aggregation": {"clip": 1.0}}, "[aggregation]: lines are not averaged"),
    "up": ({"compression": {"upload": "topk", "share": 0.1}}, "[compression] upload = 'topk': "),
    "memory": (
        {"compression": {"upload": "qsgd", "error_feedback": True}},
        "[compression] error_feedback = true: each line is of other rows than the last; leave it out",
    ),
    "bucket": (
        {"compression": {"download": "qsgd", "bucket": 100}},
        "[compression] bucket = 100: each row is a bucket; leave it out",
    ),
    "attack": ({"attack": {"kind": "sign_flip", "silos": [0]}}, "[attack] kind = 'sign_flip': "),
    "privacy": (
        {"privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-5}},
        "[privacy]: clips and noises updates",
    ),
    "security": ({"security": {"masks": True}}, "[security]: sums updates"),
    "augment": ({"data": {"augment": "flip-crop"}}, "[data] augment = 'flip-crop': "),
    "best": ({"evaluate": {"keep_best": True}}, "[evaluate] keep_best = true: bottoms stay"),
    "scored": (
        {"evaluate": {"where": "workers"}},
        "[evaluate] where = 'workers': no worker has the whole network",
    ),
    "mirror": ({"checkpoint": {"mirror": True}}, "[checkpoint] mirror = true: "),
    "unsplit": ({"split": None}, "[algorithm] name = 'splitnn': the network is split by [split]"),
    "one model": (
        {"algorithm": {"name": "fedavg"}},
        "[algorithm] name = 'fedavg': 'fedavg' trains one model",
    ),
    "whole": (
        {"algorithm": {"name": "fedavg"}, "split": None},
        "[algorithm] name = 'fedavg': is for silos with examples, and those of ",
    ),
    "cuts": ({"split": {"cut_width": [5, 5]}}, "[split] cut_width has 2 numbers, there are 3 silos"),
    "sum": ({"split": {"cut_width": [5, 5, 4], "merge": "sum"}}, "[split] merge = 'sum' adds lines up"),
    "no top": ({"split": {"cut_width": 3, "top": "none"}}, "[split] top = 'none' takes the sum of lines"),
    "outputs": ({"split": {"cut_width": 5, "merge": "sum", "top": "none"}}, "; use cut_width = 3, or a top"),
    "foreign": ({"split": {"cut_width": 5, "bottoms": {"3": MLP}}}, "[split] bottoms: there is no silo 3"),
    "top": ({"split": {"cut_width": 5, "top": {"name": "mpl"}}}, "[split] top: name = 'mpl': unknown"),
    "key": (
        {"split": {"cut_width": 5, "top": {"name": "mlp", "hiden": [6]}}},
        "[split] top: has no key 'hiden'",
    ),
    "bottom": (
        {"split": {"cut_width": 5, "bottoms": {"1": {"name": "cnn"}}}},
        "[split] bottoms.1: name = 'cnn' does not take",
    ),
    "linear": (
        {"algorithm": {"name": "splitnn", "local_steps": 2}, "model": {"name": "logreg"}},
        "[algorithm] local_steps = 2: the bottom of silo 0 is linear",
    ),
    "valid": ({"evaluate": {"split": "valid"}}, "[evaluate] split = 'valid': no silo has such a split"),
}


def normed(shape, classes):
    """A half that needs two rows to train on."""
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, classes))


NORMED = {"name": f"{__name__}:normed"}
ONE_LEFT = {"lr": 0.1, "batch_size": 11}  # of 12 rows


@pytest.mark.parametrize(
    ("tables", "where"),
    [
        ({"model": NORMED}, "[model]"),
        ({"split": {"cut_width": 5, "bottoms": {"1": NORMED}}}, "[split] bottoms.1"),
        ({"split": {"cut_width": 5, "top": NORMED}}, "[split] top"),
    ],
)
def test_a_last_batch_of_one_row_is_refused_where_a_half_cannot_train_on_it(yard, tables, where):
    line = refusal_of(job_of(yard, **tables, local=ONE_LEFT))
    what = f"[local] batch_size = 11: of 12 rows the last batch has one, and {where} cannot train on one row"
    assert f"{what} (BatchNorm1d); use drop_last = true, or another size" in line
    every = refusal_of(job_of(yard, **tables, local={"lr": 0.1, "batch_size": 1, "drop_last": True}))
    assert f"[local] batch_size = 1: each batch has one row, and {where} cannot" in every
    assert every.endswith(" (BatchNorm1d); use another size")


@pytest.mark.parametrize(
    "local", [{"drop_last": True}, {"steps": 1}, {"batch_size": 4}, {"batch_size": "full"}]
)
def test_a_last_batch_of_one_row_that_is_never_drawn_is_none(yard, local):
    path = job_of(yard, model=NORMED, local=ONE_LEFT | local)
    validate_job(read_job(path), str(path), wings_of)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_over_columns_is_refused_in_a_line(yard, name):
    tables, said = REFUSED[name]
    path = job_of(yard, **tables)
    line = refusal_of(path)
    assert said in line
    assert line.startswith(f"{path}: ")


def test_rows_of_two_alignments_are_not_trained_on(yard):
    spec = read_vertical(yard / "shards")
    other = spec.silos[2].model_copy(update={"alignment": "f" * 32})
    spec.model_copy(update={"silos": [*spec.silos[:2], other]}).write(yard / "shards")
    line = refusal_of(job_of(yard))
    assert "silos 0 and 2 are of two alignments, so that their rows may be different people" in line


def test_what_has_no_effect_over_columns_is_said(yard):
    job = read_job(job_of(yard, evaluate={"silos": False}))
    assert job.idle(job.build_algorithm()) == ["[algorithm] name = 'splitnn': does not use evaluate.silos"]
    job = read_job(job_of(yard))
    assert job.idle(job.build_algorithm()) == []
    kept = read_job(job_of(yard, local={"optimizer": "adam", "keep_optimizer_state": True}))
    assert job.idle(kept.build_algorithm()) == []
    assert kept.idle(kept.build_algorithm()) == [
        "[algorithm] name = 'splitnn': does not use local.keep_optimizer_state"
    ]


def test_one_silo_is_no_split_network(tmp_path):
    write_vertical_folder(tmp_path / "shards", ROWS, widths=(4,))
    assert "has one silo, and a split network needs two" in refusal_of(job_of(tmp_path))


def test_a_split_network_is_not_for_silos_with_examples(tmp_path):
    write_folder(tmp_path / "shards", [8, 8])
    line = refusal_of(job_of(tmp_path))
    assert re.search(r"'splitnn': is for silos with columns, and those of .* have examples; partition", line)


def test_code_that_vertical_names_is_a_plugin_which_reading_a_run_does_not_import(yard):
    bottoms = {"1": {"name": "no_such:bottom"}}
    vertical = {"cut_width": 5, "top": {"name": "no_such:top"}, "bottoms": bottoms}
    job = read_kept(job_of(yard, split=vertical))
    assert job.plugins == {"split.bottoms.1": "no_such:bottom", "split.top": "no_such:top"}


def test_no_rank_may_take_the_place_of_a_party_that_died(yard, monkeypatch):
    monkeypatch.setenv(SURVIVABLE, "1")
    with pytest.raises(
        InputError, match=r"--survive: a party whose columns another rank may read is not a party"
    ):
        train(job_of(yard), yard / "run", (), False, Alone(), wings_of=wings_of)
    assert not (yard / "run" / "metrics.jsonl").exists()


def test_a_party_whose_shard_is_missing_stops_all(yard):
    (yard / "shards" / "silo_0001.h5").unlink()
    with pytest.raises(InputError, match=r"silo_0001\.h5: is missing; federation\.json names it$"):
        train(job_of(yard), yard / "run", (), False, Alone(), wings_of=wings_of)


@pytest.mark.parametrize(("widths", "holder"), [((3, 1, 5), 0), ((5, 1, 3), 1), ((1, 5, 3), 2)])
def test_each_party_is_at_the_rank_that_it_starts(tmp_path, widths, holder):
    spec = write_vertical_folder(tmp_path, ROWS, widths, holder=holder)
    others = [silo for silo in range(3) if silo != holder]
    for ranks in (3, 5):  # the parties' order, however wide their tables are
        placed = placement(spec, SimpleNamespace(size=ranks))
        assert [placed.get(rank, []) for rank in range(3)] == [[holder], *([silo] for silo in others)]
    two = placement(spec, SimpleNamespace(size=2))
    assert sorted([*two[0], *two[1]]) == [0, 1, 2]


def test_files_of_two_alignments_in_one_folder_are_refused_by_name(yard):
    with h5py.File(yard / "shards" / "silo_0002.h5", "r+") as file:
        file.attrs["alignment"] = "f" * 32
    said = "silos 'party 0' and 'party 1' of '00112233...', silo 'party 2' of 'ffffffff...'; align again"
    with pytest.raises(InputError, match=re.escape(f"different alignments, {said}")):
        train(job_of(yard), yard / "run", (), False, Alone(), wings_of=wings_of)
