"""SplitNN held against tests/reference/split.py, written from the papers and without mpifl."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from reference import split
from safetensors.torch import load_file
from torch import nn
from unit.builders import write_vertical_folder

import mpifl
from mpifl.common import InputError, RoundLost, rng
from mpifl.data.shards import read_vertical
from mpifl.data.shards.column_shards import open_vertical
from mpifl.data.targets import Targets
from mpifl.run.job.job import check_job
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.split.network_part import order
from mpifl.wings.split.top_and_bottoms import bottom_of, top_of

ROWS = {"train": 57, "test": 11}
WIDTHS = (4, 7, 2)


def job(folder, rounds=2, **tables):
    usual = {
        "model": {"name": "mlp", "hidden": [5]},
        "split": {"cut_width": 3, "top": {"name": "mlp", "hidden": [6]}},
        "local": {"lr": 0.1, "batch_size": 10, "epochs": 2},
        "algorithm": {"name": "splitnn"},
        "tracking": {"console": False},
        "device": "cpu",
    }
    return {"name": "split", "shards": str(folder), "rounds": rounds, "seed": 5, **usual, **tables}


def trained(tmp_path, given):
    """Train; return the modules that were learned, the oracle's network as it starts, and what rows hold."""
    run = mpifl.train(given, out=tmp_path / "run")
    resolved = check_job(given, "the job")
    spec = read_vertical(resolved.shards)
    algorithm = resolved.build_algorithm().for_federation(spec)
    net = split.Network(
        [bottom_of(resolved, spec, silo) for silo in range(len(spec.silos))],
        top_of(resolved, spec, algorithm),
        resolved.split.merge,
    )
    opened = [open_vertical(resolved.shards, entry, spec) for entry in spec.silos]
    ends = [load_file(run.folder / f"personal/silo_{k:04d}.safetensors") for k in range(len(opened))]
    return run, net, opened, spec, [*ends, load_file(run.folder / "model.safetensors")], resolved


def oracle(net, opened, spec, resolved, loss, **more):
    xs = [torch.from_numpy(np.array(one["train"].x)) for one in opened]
    y = torch.from_numpy(np.array(opened[spec.holder]["train"].y))
    batches = [
        rows for t in range(resolved.rounds) for rows in order(resolved.local, len(y), resolved.seed, t)
    ]
    local = resolved.local

    def optimizer(parameters):
        if local.optimizer == "sgd":
            return torch.optim.SGD(
                parameters, local.lr, local.momentum, weight_decay=local.weight_decay, nesterov=local.nesterov
            )
        made = torch.optim.Adam if local.optimizer == "adam" else torch.optim.AdamW
        return made(parameters, local.lr, weight_decay=local.weight_decay)

    seen = split.split(net, xs, y, batches, loss, optimizer, holder=spec.holder, **more)
    return seen, [len(rows) for rows in batches]


def agree(net, ends, tolerance=1e-6):
    for module, found in zip([*net.bottoms, net.top], ends, strict=True):
        for name, value in module.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance)


LOCALS = {
    "sgd": {"lr": 0.1, "batch_size": 10, "epochs": 2},
    "momentum": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "batch_size": 10},
    "adam": {"optimizer": "adam", "lr": 0.01, "batch_size": 10, "steps": 9, "weight_decay": 0.01},
    "adamw": {"optimizer": "adamw", "lr": 0.01, "batch_size": 16, "weight_decay": 0.1, "drop_last": True},
    "full": {"optimizer": "adam", "lr": 0.01, "batch_size": "full", "steps": 3},
}


@pytest.mark.parametrize("merge", ["concat", "sum"])
@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("holder", [0, 2])
def test_split_training_is_that_of_the_paper(tmp_path, merge, local, holder):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS, holder=holder)
    vertical = {"cut_width": 3, "merge": merge, "top": {"name": "mlp", "hidden": [6]}}
    given = job(tmp_path / "shards", split=vertical, local=LOCALS[local])
    run, net, opened, spec, ends, resolved = trained(tmp_path, given)
    seen, sizes = oracle(net, opened, spec, resolved, nn.functional.cross_entropy)
    agree(net, ends)
    half = len(sizes) // 2
    told = [
        np.average(seen.losses[:half], weights=sizes[:half]),
        np.average(seen.losses[half:], weights=sizes[half:]),
    ]
    assert [one["train_loss"] for one in run.metrics] == pytest.approx(told, abs=1e-6)
    logits = net.predict([torch.from_numpy(np.array(one["test"].x)) for one in opened])
    y = torch.from_numpy(np.array(opened[holder]["test"].y))
    last = run.metrics[-1]
    assert last["test_loss"] == pytest.approx(float(nn.functional.cross_entropy(logits, y)), abs=1e-6)
    assert last["test_accuracy"] == pytest.approx(float((logits.argmax(1) == y).float().mean()))


@pytest.mark.parametrize("local", ["sgd", "adam"])
def test_further_steps_are_those_of_fedbcd(tmp_path, local):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS, holder=1)
    given = job(tmp_path / "shards", algorithm={"name": "splitnn", "local_steps": 4}, local=LOCALS[local])
    _, net, opened, spec, ends, resolved = trained(tmp_path, given)
    oracle(net, opened, spec, resolved, nn.functional.cross_entropy, local_steps=4)
    agree(net, ends)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("holder", [0, 1])
def test_codecs_act_on_all_lines_but_the_holders(tmp_path, steps, holder):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS, holder=holder)
    made = {"name": "splitnn", "local_steps": steps}
    given = job(
        tmp_path / "shards", algorithm=made, compression={"upload": "float16", "download": "bfloat16"}
    )
    run, net, opened, spec, ends, resolved = trained(tmp_path, given)
    codecs = {"up": split.float16, "down": lambda line: line.bfloat16().float()}
    oracle(net, opened, spec, resolved, nn.functional.cross_entropy, local_steps=steps, **codecs)
    agree(net, ends)
    record, headers = run.metrics[0], 2000
    lines = 2 * 2 * ROWS["train"] * 3 * 2  # two epochs, two silos, each row three halves
    for key in ("bytes_sent", "bytes_received"):
        assert lines < record[key] < lines + headers
    assert lines < record["bytes_of_silo_max"] < lines + headers  # both ways, of one silo


def test_a_line_beyond_its_codec_loses_the_round_in_a_line_that_says_what_would_do(tmp_path):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS)
    given = job(tmp_path / "shards", local={"lr": 1e8, "batch_size": 10}, compression={"upload": "float16"})
    with pytest.raises(RoundLost, match=r"\[compression\] upload: a line reaches .*; use bfloat16"):
        mpifl.train(given, out=tmp_path / "run")


def test_vertical_logistic_regression_is_that_of_the_joined_table(tmp_path):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS)
    given = job(
        tmp_path / "shards",
        model={"name": "logreg", "bias": False},
        split={"cut_width": 3, "merge": "sum", "top": "none"},
    )
    _, net, opened, _, ends, resolved = trained(tmp_path, given)
    whole = nn.Linear(sum(WIDTHS), 3)
    with torch.no_grad():
        whole.weight.copy_(torch.cat([bottom.head.weight for bottom in net.bottoms], 1))
        whole.bias.zero_()
    x = torch.cat([torch.from_numpy(np.array(one["train"].x)) for one in opened], 1)
    y = torch.from_numpy(np.array(opened[0]["train"].y))
    step = torch.optim.SGD(whole.parameters(), 0.1)
    for t in range(2):
        for rows in order(resolved.local, len(y), resolved.seed, t):
            step.zero_grad()
            nn.functional.cross_entropy(whole(x[rows]), y[rows]).backward()
            step.step()
    found = torch.cat([one["head.weight"] for one in ends[:-1]], 1)
    torch.testing.assert_close(found, whole.weight.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ends[-1]["bias"], whole.bias.detach(), rtol=1e-6, atol=1e-6)


def test_cox_regression_is_that_of_the_joined_table(tmp_path):
    draw = np.random.default_rng(1)
    times = {split: np.ceil(draw.exponential(5, n)) for split, n in ROWS.items()}  # with ties
    y = {k: np.stack([t, draw.random(len(t)) < 0.6], 1).astype(np.float32) for k, t in times.items()}
    targets = Targets(shape=(2,), dtype="float32")
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS, y=y, targets=targets)
    given = job(
        tmp_path / "shards",
        task={"name": "survival"},
        model={"name": "logreg", "bias": False},
        split={"cut_width": 1, "merge": "sum", "top": "none"},
        local={"lr": 0.1, "batch_size": "full", "steps": 4},
    )
    _, net, opened, spec, ends, resolved = trained(tmp_path, given)
    oracle(net, opened, spec, resolved, split.cox)
    agree(net, ends, 1e-5)


def test_an_epoch_has_each_row_once_and_another_order_each_round():
    local = LocalTraining(batch_size=10, epochs=2)
    first, second = ([rows.tolist() for rows in order(local, 57, 5, t)] for t in (0, 1))
    assert [len(rows) for rows in first] == [10, 10, 10, 10, 10, 7] * 2
    epochs = [sorted(row for rows in part for row in rows) for part in (first[:6], first[6:])]
    assert epochs == [list(range(57))] * 2
    assert first[:6] != first[6:] != second[:6]
    expected = torch.randperm(57, generator=rng.torch_stream(5, "rows", 0))
    assert first[0] == expected[:10].tolist()


REFUSED = [
    ({"algorithm": {"name": "fedavg"}, "split": None}, "is for silos with examples"),
    ({"split": None}, "it needs cut"),
    ({"algorithm": {"name": "fedavg"}}, "leave [split] out"),
    ({"cohort": {"fraction": 0.5}}, "[cohort] fraction = 0.5: every silo holds columns of every row"),
    ({"cohort": {"quorum": 0.5}}, "[cohort] quorum = 0.5"),
    ({"cohort": {"deadline": 3.0}}, "[cohort] deadline = 3"),
    ({"cohort": {"select": "examples"}}, "[cohort] select = 'examples'"),
    ({"cohort": {"weights": "uniform"}}, "[cohort] weights = 'uniform'"),
    ({"local": {"straggler_chance": 0.5, "epochs": 2}}, "[local] straggler_chance = 0.5"),
    ({"local": {"epochs_by_silo": [1, 2]}}, "[local] epochs_by_silo"),
    ({"local": {"deadline": 1.0}}, "[local] deadline = 1"),
    ({"local": {"compile": True}}, "[local] compile = true"),
    ({"local": {"accumulate_batches": 2}}, "[local] accumulate_batches = 2"),
    ({"server_optimizer": {"name": "adam"}}, "[server_optimizer]"),
    ({"server_optimizer": {"lr": 0.5}}, "[server_optimizer]"),
    ({"aggregation": {"rule": "median"}}, "[aggregation]"),
    ({"attack": {"kind": "sign_flip", "silos": [1]}}, "[attack] kind = 'sign_flip'"),
    ({"privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-3}}, "[privacy]"),
    ({"security": {}}, "[security]"),
    ({"data": {"augment": "flip"}}, "[data] augment = 'flip'"),
    ({"evaluate": {"keep_best": True}}, "[evaluate] keep_best"),
    ({"checkpoint": {"mirror": True}}, "[checkpoint] mirror"),
    (
        {"split": {"cut_width": [3, 3], "top": {"name": "logreg"}}},
        "cut_width has 2 numbers, there are 3 silos",
    ),
    ({"split": {"cut_width": [3, 3, 2], "merge": "sum"}}, "are unequal; use 'concat'"),
    ({"split": {"cut_width": 3, "top": "none"}}, "top = 'none' takes the sum of lines"),
    ({"split": {"cut_width": 4, "merge": "sum", "top": "none"}}, "use cut_width = 3, or a top"),
    ({"split": {"cut_width": 3, "bottoms": {"3": {"name": "logreg"}}}}, "there is no silo 3"),
    ({"split": {"cut_width": 3, "bottoms": {"2": {"name": "cnn"}}}}, "[split] bottoms.2: name = 'cnn'"),
    ({"split": {"cut_width": 3, "top": {"name": "mlp", "wide": 1}}}, "no key 'wide'"),
    ({"model": {"name": "logreg"}, "algorithm": {"name": "splitnn", "local_steps": 2}}, "is linear"),
]


@pytest.mark.parametrize(("tables", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_has_no_meaning_is_refused_in_a_line(tmp_path, tables, said):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS)
    given = {k: v for k, v in job(tmp_path / "shards", **tables).items() if v is not None}
    with pytest.raises(InputError) as refused:
        mpifl.train(given, out=tmp_path / "run")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_split_network_needs_silos_with_columns_and_two_of_them(tmp_path):
    write_vertical_folder(tmp_path / "one", ROWS, (4,))
    with pytest.raises(InputError, match="has one silo"):
        mpifl.train(job(tmp_path / "one"), out=tmp_path / "run")


@pytest.mark.parametrize("merge", ["concat", "sum"])
def test_a_training_that_diverges_ends_in_one_line(tmp_path, merge):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS)
    given = job(tmp_path / "shards", rounds=5, local={"lr": 1e20, "batch_size": 10})
    given["split"] = {"cut_width": 3, "merge": merge}
    with pytest.raises(RoundLost, match="not finite"):
        mpifl.train(given, out=tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_the_top_stays_with_the_holder_and_each_bottom_with_its_silo(tmp_path):
    write_vertical_folder(tmp_path / "shards", ROWS, WIDTHS)
    mpifl.train(job(tmp_path / "shards"), out=tmp_path / "run")
    last = max((tmp_path / "run" / "checkpoints").glob("round_*"))
    assert sorted(json.loads((last / "checkpoint.json").read_text())["silos"]) == ["0", "1", "2"]
    shapes = [load_file(path)["w"].shape for path in sorted(last.glob("silo_*.safetensors"))]
    assert [shape[0] for shape in shapes] == [5 * w + 5 + 5 * 3 + 3 for w in WIDTHS]
    assert load_file(last / "server.safetensors")["w"].shape[0] == 9 * 6 + 6 + 6 * 3 + 3
