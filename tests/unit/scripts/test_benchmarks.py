"""The benchmarks run, and what they compute from their times is right; how long anything takes is no test."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import ROOT, launcher
from torch import nn


@pytest.fixture
def bench(monkeypatch, warm_python):
    """The folder of the benchmarks to import from, which start ranks as the tests do."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))
    import common

    monkeypatch.setattr(common, "MPIRUN", launcher())


@pytest.mark.parametrize("silos", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_aggregation_gives_bandwidths_of_what_was_timed(bench, silos):
    import aggregation

    (case,) = aggregation.measure(silos, [0.1], 2)
    aggregation.show(case)
    typical = {name: np.median(values) for name, values in case["seconds"].items()}
    assert case["gbs"]["add_"] == pytest.approx(1e-4 / typical["add_"])
    assert case["gbs"]["mpifl mean"] == pytest.approx(silos * 1e-4 / typical["mpifl mean"])


def test_exchanges_between_nodes_are_timed_in_turns_with_plain_mpi(bench):
    import argparse

    import nodes

    options = argparse.Namespace(parameters=[10_000], beside=None, worlds=1, repeats=2)
    (case,) = nodes.compare("2x2", options).values()
    assert {row: len(values) for row, values in case["here"].items()} == dict.fromkeys(nodes.ROWS, 2)
    figures = nodes.show("2x2", "10000", case)
    assert figures["up"]["least busy"] == min(busy for _, busy in case["here"]["up"])


def test_kernels_of_rules_are_timed_in_turns(bench):
    import robust

    taken = robust.measure(silos=5, columns=1000, repeats=2)
    assert {name: len(seconds) for name, seconds in taken.items()} == dict.fromkeys(robust.kernels(5), 2)


def test_a_rule_of_columns_is_timed_at_each_rank_and_copies_no_vector(bench):
    import rule_at_ranks

    found = rule_at_ranks.measure("median", silos=32, numbers=200_000, ranks=2, repeats=2)
    assert {rank: len(one["seconds"]) for rank, one in found.items()} == {1: 2, 2: 2}
    for one in found.values():
        assert one["slice"] <= one["allocated"] < 4 * one["slice"], "of 32 vectors"


def test_batched_steps_are_timed_in_turns_with_single_ones(bench):
    import batched

    case = batched.Case("logreg", batched.TABLE, {}, silos=3, examples=20)
    taken = batched.measure(case, [2], repeats=2)
    assert {way: len(times) for way, times in taken.items()} == {"singly": 2, "2": 2}
    rows = batched.show("logistic", case, taken)
    assert rows["parameters"] == 1010
    assert rows["2"]["apart"] < 1e-5


def test_an_alignment_is_timed_at_each_rank(bench):
    pytest.importorskip("nacl")
    import align

    case = align.measure(parties=2, ids=60, plain=False, threads=2)
    align.show(case)
    assert case["cpu of a party"] > 0
    assert case["us an id"] == pytest.approx(1e6 * case["cpu of a party"] / 60)


def test_masks_are_timed_in_turns_with_sums_without_them(bench):
    import masks

    taken = masks.measure(numbers=1000, neighbours=[1, 2], repeats=2)
    assert {name: len(times) for name, times in taken.items()} == {
        "add": 2,
        "without masks": 2,
        "1 neighbours": 2,
        "2 neighbours": 2,
    }
    made = {"without masks": [1.0, 2.0, 3.0], "2 neighbours": [5.0, 8.0, 3.0]}
    assert masks.each(made, 2)[0] == 2.0


def test_exact_sums_are_timed_in_turns_with_numpy_which_finds_the_same(bench):
    import gram_and_moments

    result = gram_and_moments.measure(rows=9000, columns=3, repeats=2)
    assert {len(times) for times in result["seconds"].values()} == {2}
    result["seconds"] = {"read": [1.0, 2.0], "numpy gram": [4.0, 4.0], "gram": [8.0, 4.0]}
    result["seconds"] |= {"numpy moments": [1.0, 1.0], "moments": [2.0, 2.0]}
    gram_and_moments.judge(result)
    assert result["shares"]["gram"] == 0.3125
    assert result["ratios"]["gram"]["ratio"] == 1.5


def test_the_bare_loop_is_federated_averaging(bench):
    import bare

    task = bare.Task("two silos, one batch each", silos=2, drawn=2, hidden=(5,), steps=1)
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(0, 256, (2 * bare.BATCH, 1, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 2 * bare.BATCH),
    )
    data = torch.tensor(x) / 255, torch.tensor(y)
    start = nn.utils.parameters_to_vector(bare.perceptron(task.hidden).parameters()).detach()
    slots, ends = torch.zeros(2, bare.WORKERS, len(start)), torch.zeros(3, dtype=torch.float64)
    barrier = threading.Barrier(bare.WORKERS)
    with ThreadPoolExecutor(bare.WORKERS) as pool:  # threads share tensors as the processes do
        workers = [
            pool.submit(bare.work, r, task, data, start, slots, ends, barrier) for r in range(bare.WORKERS)
        ]
    assert [worker.result() for worker in workers] == [None, None]
    assert (ends.diff() > 0).all()
    end = slots[1].sum(0)  # of the second round
    model = bare.perceptron(task.hidden)
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    descent = torch.optim.SGD(model.parameters(), lr=bare.LR)
    for _ in range(2):  # one step from all examples at once is the mean of a step from either half
        descent.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        descent.step()
    torch.testing.assert_close(
        end, nn.utils.parameters_to_vector(model.parameters()).detach(), rtol=1e-5, atol=1e-6
    )


ROWS = [
    {"per_worker": n, "worker_steps": n * s, "megabytes": v, "drawn": k, "ranks": r}
    for n, s, v, k, r in [
        (1, 1, 0.8, 2, 3),
        (3, 4, 0.8, 6, 3),
        (2, 1, 7.0, 2, 2),
        (5, 2, 44.0, 10, 3),
        (1, 9, 44.0, 1, 2),
    ]
]


def test_what_a_checkpoint_holds_up_is_the_time_between_rounds(bench, tmp_path):
    import checkpoint

    now, lines = 100.0, []
    for round in range(1, 8):
        # a checkpoint after rounds 2, 4 and 6 takes 3 s, a round 10 s
        now += 3.0 * (round in (3, 5, 7)) + 10.0
        plain = {"plain_seconds": 2.0, "plain_bytes": 7} if round % 2 else {}
        lines.append(json.dumps({"round": round, "time": now, "seconds": 10.0, **plain}))
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    found = checkpoint.read(tmp_path)
    assert found == {"held_up": [3.0] * 3, "pair": [23.0] * 2, "plain": [2.0] * 3, "bytes": [7]}


def test_the_model_finds_the_terms_that_made_the_times_and_leaves_negative_ones_out(bench):
    import model

    true = {"t1 a silo": 1e-3, "t2 a silo and MB": 2e-3, "t3 a step": 3e-4, "t4 a step and MB": 4e-4}
    times = [model.value(true, model.TRAINING, row) for row in ROWS]
    assert model.fit(ROWS, model.TRAINING, times) == pytest.approx(true)
    found = model.fit(
        ROWS, model.TRAINING, [1e-2 * row["worker_steps"] / row["per_worker"] ** 0.1 for row in ROWS]
    )
    assert min(found.values()) >= 0


def test_the_model_is_held_against_points_that_it_was_not_fitted_to(bench):
    import model

    training, rest = dict.fromkeys(model.TRAINING, 0.0), dict.fromkeys(model.REST, 0.0)
    training["t3 a step"], rest["r1 a round"] = 1e-3, 2e-3
    about = {"workers": 2, "drawn": 3, "steps": 4, "megabytes": 1.0, "ranks": 3}
    right, wrong = ({**about, "least": {"training": t, "rest": 2e-3}} for t in (8e-3, 3e-3))
    crowd = {**right, "workers": 9}
    measured = {"cores": 2, "parts": {"size": [right, crowd], model.UNSEEN: [wrong]}}
    (seen,), (unseen,) = model.usable(measured), model.usable(measured, unseen=True)
    assert (seen["per_worker"], seen["worker_steps"]) == (2, 8)
    off = model.show([seen], [unseen], training, rest)
    assert off["largest"] == pytest.approx(0)
    assert off["unseen"] == [pytest.approx(1.0)]


def test_settings_with_a_name_of_capitals_go_to_the_environment(bench):
    from common import told_apart

    assert told_apart(["local.lr=0.5", "A_B=c=d", "x.y=[1]"]) == (
        ["--set", "local.lr=0.5", "--set", "x.y=[1]"],
        {"A_B": "c=d"},
    )


def test_harm_that_an_own_job_knows_nothing_of_is_refused(warm_python):
    command = [
        sys.executable,
        ROOT / "scripts" / "faults.py",
        "--job",
        ROOT / "jobs" / "demo.toml",
        "--only",
        "nan",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 2
    assert done.stderr.endswith("--only nan: with --job, no silo stumbles\n")


def test_a_silo_of_one_class_comes_to_the_same_model_with_and_without_subnormals(bench, tmp_path):
    import subnormals

    epochs = 150  # until gradients are so small: a repeat took 0.6 s, and 0.75 with subnormals
    # that models differ is an AssertionError
    taken = subnormals.measure(tmp_path / "shards", 600, epochs, repeats=1)
    assert [len(times) for times in taken.values()] == [1, 1]
    assert not torch.tensor(1e-39).eq(0)  # as it was before


def test_pooling_puts_the_same_model_on_both_sides(bench):
    import pooling

    from mpifl.learning.models.image_models import cnn

    module = pooling.as_named(cnn((1, 28, 28), 10))
    layers = [type(layer).__name__ for layer in module.modules()]
    assert "MaxPool2x2" not in layers
    assert layers.count("MaxPool2d") == 2
    assert layers.index("ReLU") < layers.index("MaxPool2d")
    assert all(len(times) == 2 and min(times) > 0 for times in pooling.measure("lenet", 2, passes=1).values())


def test_metrics_are_timed_beside_accuracy_alone(bench, monkeypatch):
    import metrics

    monkeypatch.setattr(metrics, "SIDES", {side: metrics.SIDES[side] for side in ("accuracy", "all of them")})
    result = metrics.measure(20, 1)
    metrics.judge(result)
    (alone,), (all_of_them,) = (result["ms"][side] for side in metrics.SIDES)
    assert result["ratios"]["all of them"]["ratio"] == pytest.approx(all_of_them / alone)


def test_padded_batches_train_the_same_model_on_every_side(bench):
    import padded_batches

    for name in padded_batches.CASES:
        taken = padded_batches.measure(name, 40, 2)  # raises where the sides end at other parameters
        ratios = padded_batches.compared(taken)
        assert set(ratios) == {"by hand", "DataLoader"}
        assert ratios["by hand"]["of_best"] == pytest.approx(min(taken["mpifl"]) / min(taken["by hand"]))


def test_figures_of_a_device_are_those_of_its_sections(bench, monkeypatch, tmp_path, capsys):
    import gpu

    file = tmp_path / "gpu.json"
    monkeypatch.setattr(gpu, "LENGTHS", (1000,))
    monkeypatch.setattr(sys, "argv", ["gpu.py", "sums", "copies", "--device", "cpu", "--json", str(file)])
    gpu.main()
    found = json.loads(file.read_text())
    assert [*found["sums"]] == ["1,000: add, ms", "1,000: add, GB/s of 20 bytes a number", "1,000: peak, ms"]
    seconds = found["sums"]["1,000: add, ms"] / 1e3
    assert found["sums"]["1,000: add, GB/s of 20 bytes a number"] == pytest.approx(20e-6 / seconds)
    assert all(figure > 0 for figure in found["copies"].values())
