"""The same jobs on 1, 2, 3 and 5 ranks: the same bits, whatever happens."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scenarios
import scored
import torch
from conftest import RANKS, ranks
from safetensors.torch import load_file
from torchmetrics.classification import MulticlassAUROC, MulticlassCalibrationError, MulticlassF1Score

from mpifl.algorithms.algorithm_registry import ALGORITHMS
from mpifl.common import Names, rng
from mpifl.data.batches import Batches
from mpifl.data.shards import open_shard, read_federation, read_vertical
from mpifl.learning import models
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs

HERE = Path(__file__).parent
COSTS = (
    "time",
    "seconds",
    "rank_seconds",
    "examples_per_second",
    "tokens_per_second",
    "wire_",
    "server_rss_mb",
    "joules_processors",
    "joules_gpus",
    "parties",
)
"""Figures of a round that may differ from run to run."""
DIFFERENCES = {5: {"MPIFL_KERNELS": "tensors", "MPIFL_RANKS_PER_NODE": "2"}}
"""What else than the number of ranks must not matter: a world of three nodes without a compiler."""


WORLDS = {n: [pytest.mark.slow] * (n == 2) for n in RANKS}
"""Two ranks train in most other tests, too."""
SEVERAL = [n for n in WORLDS if n > 1]
ALONE = pytest.mark.parametrize("world", [1], indirect=True, ids=["1ranks"])
"""For what a run brought: on any number of ranks it is the same."""
COLD = {5: 1}
"""How many ranks Python starts for itself, with a seed of hashes of their own: bits must not depend on it."""


def trained(jobs: Sequence[scenarios.Job], *worlds: int) -> list[Any]:
    """Of these jobs, those that train on so many ranks each, as parameters `world` and `name`."""
    return [
        pytest.param(n, job["name"], marks=WORLDS[n], id=f"{n}ranks-{job['name']}")
        for n in worlds or WORLDS
        for job in scenarios.jobs_on(n)
        if job in jobs
    ]


@pytest.fixture(scope="session", params=[pytest.param(n, marks=WORLDS[n], id=f"{n}ranks") for n in WORLDS])
def world(request: pytest.FixtureRequest, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folders of the scenarios on so many ranks, beside those of one rank."""
    for n in {1, request.param}:
        out = tmp_path_factory.getbasetemp() / f"world{n}"
        if not out.exists():
            arguments = HERE / "drive.py", digits, out
            done = ranks(n, *arguments, timeout=400, cold=COLD.get(n, 0), **DIFFERENCES.get(n, {}))
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return tmp_path_factory.getbasetemp() / f"world{request.param}"


def ranks_of(world: Path) -> int:
    found: int = json.loads((world / "done.json").read_text())["ranks"]
    return found


def rounds_of(run: Path) -> list[dict]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if not k.startswith(COSTS)} for record in records]


def kept(run: Path) -> dict[str, str]:
    """The sha256 of the server's state and of every silo's, as the last checkpoint has them."""
    last = max((run / "checkpoints").glob("round_*"))
    body = json.loads((last / "checkpoint.json").read_text())
    return {"server": body["server"], **body["silos"]}


@pytest.mark.parametrize(("world", "name"), trained(scenarios.JOBS, *SEVERAL), indirect=["world"])
def test_any_number_of_ranks_gives_the_same_bits(world: Path, name: str) -> None:
    alone = world.parent / "world1"
    assert (world / name / "model.safetensors").read_bytes() == (
        alone / name / "model.safetensors"
    ).read_bytes()
    assert rounds_of(world / name) == rounds_of(alone / name)
    assert kept(world / name) == kept(alone / name)


def brought(record: dict) -> dict:
    """A round but for words of faults, of which masks leave the kind, answers at silos, and speed."""
    dropped = ("examples_trained", "answers", "bytes_received", "bytes_of_silo_max")
    told = {"answers": test} if (test := record.get("answers", {}).get("test")) else {}
    pooled = "silo_auroc"  # of counts under masks, and of single scores without
    record = {k: v for k, v in record.items() if k not in dropped and not k.startswith(pooled)}
    lost = {"attempts_lost": len(record["attempts_lost"])} if "attempts_lost" in record else {}
    return {**record, "faults": sorted(record["faults"]), **lost, **told}


@pytest.mark.parametrize(("world", "name"), trained(scenarios.MASKED), indirect=["world"])
def test_masks_change_no_bit(world: Path, name: str) -> None:
    """Neither the model, nor what rounds brought, nor what the server keeps; what silos keep is sealed."""
    masked, plain = world / name, world.parent / "world1" / name.replace("masked", "open")
    assert (masked / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    assert [brought(record) for record in rounds_of(masked)] == [
        brought(record) for record in rounds_of(plain)
    ]
    assert kept(masked)["server"] == kept(plain)["server"]
    assert kept(masked).keys() == kept(plain).keys()
    assert (masked / "released.jsonl").exists()
    assert not (plain / "released.jsonl").exists()
    if name == "masked-adam":
        (last, exact), key = (rounds_of(run)[-1] for run in (masked, plain)), "silo_auroc_pooled"
        assert abs(last[key] - exact[key]) <= last["answers"]["silos"]["within"]["auroc"] < 0.001
        assert last["silos"] == {}
        assert "within" not in exact["answers"]["silos"]


def test_every_algorithm_that_averages_is_tried_under_masks() -> None:
    averaging = {
        name
        for name, kind in ALGORITHMS.items()
        if kind.layout == "horizontal" and not kind.why_not_masked(kind.model_construct())
    }
    assert averaging <= {name for _, name, _ in (*scenarios._MASKED, *scenarios._MASKED_SLOW)}


def test_a_masked_round_that_is_lost_before_it_is_released_is_asked_again(world: Path) -> None:
    lost = rounds_of(world / "masked-lost")
    assert ["attempts_lost" in record for record in lost] == [False, True, False]
    rounds = [json.loads(line) for line in (world / "masked-lost/released.jsonl").read_text().splitlines()]
    asked = [(one["round"], one["work"]) for one in rounds if one["work"] != "evaluate"]
    assert asked == [(nth, work) for nth in range(3) for work in ("look", "learn")]


def test_under_masks_no_figure_is_of_a_single_silo(world: Path) -> None:
    names = [job["name"] for job in scenarios.jobs_on(ranks_of(world)) if job in scenarios.MASKED]
    assert set(names) >= {*scenarios.UNDER_MASKS}
    for name in names:
        for record in rounds_of(world / name):
            assert not record.get("silos")
            assert not record.keys() & {"examples_trained", "step_losses"}
            endings = ("_worst", "_best", "_std", "_worst10")
            assert not [name for name in record if name.startswith("silo_") and name.endswith(endings)]


RESUMED = [
    pytest.param(n, job["name"], marks=slow, id=f"{n}ranks-{job['name']}")
    for n, slow in WORLDS.items()
    for job in scenarios.JOBS
    if scenarios.resumes(job)
]


STOPPED = [
    param
    for n in (3, 5)
    for param in trained([job for job in scenarios.jobs_on(n) if scenarios.stops(job, n)], n)
]


@pytest.mark.parametrize(("world", "name"), STOPPED, indirect=["world"])
def test_what_is_stopped_went_on_after_that_round(world: Path, name: str) -> None:
    """Its bits are held to those of one rank that was never stopped, as those of all are."""
    about = json.loads((world / name / "environment.json").read_text())
    (job,) = (job for job in scenarios.JOBS if job["name"] == name)
    assert about["resumed_after_round"] == scenarios.half(job) < job["rounds"]
    alone = json.loads((world.parent / "world1" / name / "environment.json").read_text())
    assert alone["resumed_after_round"] == 0


@pytest.mark.parametrize(("world", "name"), RESUMED, indirect=["world"])
def test_resuming_gives_the_bits_of_a_run_never_stopped(world: Path, name: str) -> None:
    whole, resumed = world / name, world / f"{name}-resumed"
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert rounds_of(resumed) == rounds_of(whole)
    assert kept(resumed) == kept(whole)


def test_a_dialogue_that_is_cut_short_changes_nothing(world: Path) -> None:
    """One silo fails in line 7 of a round: it is asked again, with the bits of one that never failed."""
    lost, whole = rounds_of(world / "split-lost"), rounds_of(world / "split")
    (why,) = lost[1].pop("attempts_lost")
    assert "the disk is gone" in why
    for record in (lost[1], whole[1]):
        for key in ("bytes_sent", "bytes_received", "bytes_of_silo_max"):
            del record[key]
    assert lost == whole
    assert kept(world / "split-lost") == kept(world / "split")
    assert (world / "split-lost/model.safetensors").read_bytes() == (
        world / "split/model.safetensors"
    ).read_bytes()


def test_bytes_of_lines_are_those_of_payloads(world: Path, digits: Path) -> None:
    """Two silos send lines: qsgd takes 4 bytes and 6 halves of one for a row, float16 takes 12."""
    rows = read_vertical(digits / "columns").rows["train"] // 64 * 64
    for line in (world / "split-qsgd/metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert 0 < record["bytes_received"] - 2 * 7 * rows < 2000
        assert 0 < record["bytes_sent"] - 2 * 12 * rows < 2000
        assert 0 < record["bytes_of_silo_max"] - 19 * rows < 1000


@ALONE
def test_metrics_of_all_silos_are_torchmetrics_of_their_predictions_in_one_place(
    world: Path, digits: Path
) -> None:
    """Held to torchmetrics itself, of the run's model, its best, on what every silo holds out."""
    rounds = rounds_of(world / "metrics")
    last = rounds[rounds[-1]["model_round"] - 1]
    spec = read_federation(digits / "many")
    module = models.build("mlp", {"hidden": [16]}, spec.features, 10, 3)
    module.load_state_dict(load_file(world / "metrics" / "model.safetensors"))
    probabilities, labels = [], []
    for entry in spec.silos:
        split = Batches(open_shard(digits / "many", entry, spec)["test"], spec.features, torch.device("cpu"))
        with torch.no_grad():
            for x, y in split.in_order(1000):
                probabilities.append(module.eval()(x).softmax(1))
                labels.append(y)
    p, y = torch.cat(probabilities), torch.cat(labels)
    assert last["silo_accuracy_pooled"] == int((p.argmax(1) == y).sum()) / len(y)
    f1 = MulticlassF1Score(10, average="none")(p, y)
    assert last["silo_f1_pooled"] == pytest.approx(float(f1[y.unique()].mean()), abs=1e-6)
    auroc = MulticlassAUROC(10, average="none")(p, y)
    assert last["silo_auroc_pooled"] == pytest.approx(float(auroc[y.unique()].mean()), abs=1e-6)
    error = MulticlassCalibrationError(10, n_bins=15, norm="l1")(p, y)
    assert last["silo_calibration_error_pooled"] == pytest.approx(float(error), abs=1e-6)
    assert last["silos"].keys() == {str(k) for k in range(7)}


@ALONE
def test_the_perplexity_of_texts_of_unequal_lengths_is_that_of_each_text_by_itself(
    world: Path, digits: Path
) -> None:
    """No padding counts: the texts are scored one after another by PyTorch, and none is padded."""
    spec = read_federation(digits / "ragged")
    module = models.build("gpt", {"width": 8, "layers": 1, "heads": 2}, spec.features, 257, 3).eval()
    module.load_state_dict(load_file(world / "ragged" / "model.safetensors"))
    logits, labels = [], []
    for entry in spec.silos:
        split = open_shard(digits / "ragged", entry, spec)["test"]
        for row in range(len(split)):
            x, y = (torch.from_numpy(column[row].astype("int64")) for column in (split.x, split.y))
            with torch.no_grad():
                logits.append(module(x[None])[0].T)
            labels.append(y)
    loss = torch.nn.functional.cross_entropy(torch.cat(logits).double(), torch.cat(labels), ignore_index=-100)
    found = rounds_of(world / "ragged")[-1]["silo_perplexity_pooled"]
    assert found == pytest.approx(float(loss.exp()), rel=1e-6)


SCORED = [
    pytest.param(n, label, marks=WORLDS[n], id=f"{n}ranks-{label}")
    for n in WORLDS
    for label in scored.LABELS
    if f"scored-{label}" in {job["name"] for job in scenarios.jobs_on(n)}
]


@pytest.mark.parametrize(("world", "label"), SCORED, indirect=["world"])
def test_the_workers_find_the_servers_own_figures_of_its_test_set(world: Path, label: str) -> None:
    here, found = rounds_of(world.parent / "world1" / f"here-{label}"), rounds_of(world / f"scored-{label}")
    assert found == here
    assert [name for name in here[-1] if name.startswith("test_")]
    notes = world / f"scored-{label}" / "notes.txt"
    lines = notes.read_text().splitlines() if notes.exists() else []
    told = [line.partition(": ")[2] for line in lines if "the server scores what" in line]
    failed = label == "failing" and ranks_of(world) > 1
    assert told == [f"the server scores what rank {scored.ODD} was to: KeyError: 'no such layer'"] * failed


def test_all_parties_together_say_what_they_said_in_training(world: Path) -> None:
    """Their figures are those of the last round, and what they predict has the same bits on any ranks."""
    last, found = rounds_of(world / "split")[-1], json.loads((world / "split/scores.json").read_text())
    assert {name: found["test"][name] for name in ("loss", "accuracy")} == {
        name: last[f"test_{name}"] for name in ("loss", "accuracy")
    }
    predicted = (world / "split/predictions.csv").read_bytes()
    assert predicted == (world.parent / "world1/split/predictions.csv").read_bytes()
    assert predicted.startswith(b"split,id,y,p_0,")


def test_parties_of_different_alignments_are_refused_by_name(world: Path) -> None:
    """Each rank is asked what its own files carry: rank 0 cannot read those of the others."""
    done = json.loads((world / "done.json").read_text())
    if done["ranks"] == 1:
        assert done["refused"] == ""
        return
    spec = json.loads((world / "here/columns/federation.json").read_text())
    names, tag = Names([one["name"] for one in spec["silos"]]), spec["silos"][0]["alignment"]
    assert "the shards are of different alignments, " in done["refused"]
    assert f"silo {names[1]} of '{tag[:8]}...'" in done["refused"]
    assert f"silos {names[0]} and {names[2]} of 'ffffffff...'" in done["refused"]
    assert not (world / "apart/metrics.jsonl").exists()


@ALONE
def test_runs_are_compared_by_the_virtual_time_to_a_target(world: Path, tmp_path: Path) -> None:
    runs = {name: world / f"all-{name}" for name in ("fedasync", "fedbuff", "fedavg")}
    told = {name: [r for r in rounds_of(run) if "test_accuracy" in r] for name, run in runs.items()}
    target = min(max(r["test_accuracy"] for r in records) for records in told.values())
    compare_runs([*runs.values()], target, Output(csv=tmp_path / "runs.csv"))
    with (tmp_path / "runs.csv").open() as file:
        found = {line["run"].rpartition("-")[2]: line for line in csv.DictReader(file)}
    for name, records in told.items():
        first = next(r for r in records if r["test_accuracy"] >= target)
        clock, line = first.get("virtual_seconds"), found[name]
        assert float(line["rounds_to_target"]) == first["round"]
        assert line["virtual_seconds_to_target"] == ("" if clock is None else repr(clock))
        assert (clock is None) == (name == "fedavg")
        page = write_report(world / f"all-{name}", tmp_path / f"{name}.html").read_text()
        assert ("Accuracy over virtual seconds" in page) == (name != "fedavg")


def test_where_time_went_adds_up(world: Path) -> None:
    records = [json.loads(line) for line in (world / "fedavg" / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        ranks = record["rank_seconds"].values()
        assert {round(rank["training"] + rank["waiting"], 9) for rank in ranks} == {
            round(record["seconds_training"], 9)
        }
        assert sum(rank["waiting"] for rank in ranks) / len(ranks) == pytest.approx(record["seconds_waiting"])
        assert record["seconds_training"] + record["seconds_communication"] <= record["seconds"]
    evaluated = ["silo_accuracy_mean" in record or "test_accuracy" in record for record in records]
    assert ["seconds_evaluation" in record for record in records] == evaluated
    assert any(evaluated)
    saved = {record["round"] for record in records if record.get("seconds_checkpoint", 0.0) > 0}
    assert saved == {3}  # every second round; what comes after the last round stands in none


@pytest.mark.parametrize("compressed", ["", "-compressed"])
def test_a_lost_round_changes_nothing(world: Path, compressed: str) -> None:
    lost, untroubled = world / f"lost{compressed}", world / f"stateful{compressed}"
    assert (lost / "model.safetensors").read_bytes() == (untroubled / "model.safetensors").read_bytes()
    assert kept(lost) == kept(untroubled)
    records = rounds_of(lost)
    assert not any(record["faults"] for record in records), "no silo was left out in the end"
    assert ["attempts_lost" in record for record in records] == [n == 1 for n in range(len(records))]
    assert "the disk is gone" in records[1]["attempts_lost"][0]


def test_a_silo_with_other_vectors_is_named_and_left_out_and_costs_one_attempt(world: Path) -> None:
    odd = {record["round"]: record for record in rounds_of(world / "odd")}
    assert [len(record.get("attempts_lost", ())) for record in odd.values()] == [1, *[0] * (len(odd) - 1)]
    assert [sorted(record["faults"]) for record in odd.values()] == [["1", "2", "4"]] * len(odd)
    assert odd[1]["faults"] == {
        "1": "its update was refused: it did not send 'delta', other than most silos",
        "2": "its update was refused: it sent 'more', other than most silos",
        "4": "its update was refused: 'delta' is uniform, and weighted by most silos",
    }


def test_an_update_with_nan_is_named_and_left_out(world: Path) -> None:
    for record in rounds_of(world / "nan"):
        assert list(record["faults"]) == ["2"]
        assert "'delta' holds NaN" in record["faults"]["2"]
    assert all(v.isfinite().all() for v in load_file(world / "nan" / "model.safetensors").values())


@pytest.mark.parametrize(("world", "name"), trained(scenarios.COMPRESSED), indirect=["world"])
def test_silos_keep_what_compression_left_out(world: Path, name: str) -> None:
    last, keys = max((world / name / "checkpoints").iterdir()), (world / name / "job.toml").read_text()
    names = {key for file in last.glob("silo_*.safetensors") for key in load_file(file)}
    assert ("unsent delta" in names or "unsent delta_w" in names) == ("error_feedback = true" in keys)
    assert "unsent logits" not in names


def summed(deltas: list[np.ndarray], weights: list[int]) -> np.ndarray:
    """The weighted mean in numpy, each summand rounded to its grid (`sums/exact.py`)."""
    sums: dict[int, np.ndarray] = {}
    for delta, weight in zip(deltas, weights, strict=True):
        product = weight * delta.astype(np.float64)
        window = -(-math.frexp(np.abs(product).max())[1] // 16)
        anchor = 1.5 * 2.0 ** (16 * window + max(1, math.ceil(math.log2(len(deltas)))))
        sums[window] = sums.get(window, 0) + ((product + anchor) - anchor)
    return (sum(sums[window] for window in sorted(sums, reverse=True)) * (1 / sum(weights))).astype(
        np.float32
    )


@ALONE
def test_power_of_choice_and_clipping_are_as_numpy_has_them(world: Path, digits: Path) -> None:
    run, job = world / "known", next(job for job in scenarios.JOBS if job["name"] == "known")
    sizes = [
        silo["examples"]["train"]
        for silo in json.loads((digits / "many/federation.json").read_text())["silos"]
    ]
    first = load_file(run / "initial.safetensors")
    w = np.concatenate([first[name].numpy().ravel() for name in ("head.weight", "head.bias")])
    losses, bound = [math.inf] * 7, job["aggregation"]["clip"]
    for t, record in enumerate(rounds_of(run)):
        stream = rng.numpy_stream(job["seed"], "cohort", t)
        drawn = stream.choice(7, 5, replace=False, p=np.array(sizes) / sum(sizes)).tolist()
        cohort = sorted(sorted(drawn, key=lambda k: -losses[k])[:3])
        deltas, told = zip(*(scenarios.known(k, t, len(w)) for k in cohort), strict=True)
        norms = [np.sqrt(np.square(delta.astype(np.float64)).sum()) for delta in deltas]
        shorter = [d * np.float32(min(1.0, bound / norm)) for d, norm in zip(deltas, norms, strict=True)]
        w = w + summed(shorter, [sizes[k] for k in cohort])
        losses = [told[cohort.index(k)] if k in cohort else losses[k] for k in range(7)]
        assert record["clipped"] == sum(norm > bound for norm in norms) / 3
    state = load_file(max((run / "checkpoints").iterdir()) / "server.safetensors")
    assert state["w"].numpy().tobytes() == w.tobytes()
    assert state["last losses"].tolist() == losses
    assert {record["clipped"] for record in rounds_of(run)} >= {1 / 3, 2 / 3}


def ledger(world: Path) -> list[dict]:
    """The lines of the trainings that are trained on any number of ranks."""
    lines = map(json.loads, (world / "site/ledger.jsonl").read_text().splitlines())
    asked = (one for one in lines if not one["job"].endswith("dptable"))
    return sorted(asked, key=lambda entry: (entry["job"], entry["round"], entry["shard"]))


def test_a_ledger_has_each_answer_once_whoever_asked_and_how_often(world: Path) -> None:
    entries = ledger(world)
    asked = {scenarios.PRIVATE["name"]: math.floor(0.6 * 7), scenarios.NOISED_SUM["name"]: 7}
    rounds = {job["name"]: job["rounds"] for job in (scenarios.PRIVATE, scenarios.NOISED_SUM)}
    found = Counter(entry["job"] for entry in entries)
    assert found == {name: rounds[name] * silos for name, silos in asked.items()}, (
        "the resumed run asked again"
    )
    assert entries == ledger(world.parent / "world1")


def test_a_servers_ledger_is_the_same_on_any_ranks_and_resumed(world: Path) -> None:
    name = scenarios.PRIVATE_SILOS["name"]
    runs = (world.parent / "world1" / name, world / name, world / f"{name}-resumed")
    first, *others = ((run / "privacy/ledger.jsonl").read_bytes() for run in runs)
    assert len(first.splitlines()) == scenarios.PRIVATE_SILOS["rounds"]
    assert all(other == first for other in others)


def test_silos_keep_their_state_at_home(world: Path) -> None:
    assert "silos" in json.loads(
        (max((world / "stateful" / "checkpoints").iterdir()) / "checkpoint.json").read_text()
    )
    server = load_file(max((world / "stateful" / "checkpoints").iterdir()) / "server.safetensors")
    assert set(server) == {"w", "c"}


@ALONE
def test_the_model_loads_without_mpifl(world: Path) -> None:
    module = scenarios.normalised((1, 8, 8), 10)
    module.load_state_dict(load_file(world / "batchnorm" / "model.safetensors"))
    assert module[2].num_batches_tracked.dtype.is_floating_point is False
    assert int(module[2].num_batches_tracked) > 0
