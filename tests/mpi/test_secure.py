"""Masked sums in a world of three nodes whose wire is tapped: what the server and the leaders of nodes can
read, and what a server or a party that cheats comes to."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from conftest import ranks
from torch import Tensor
from unit.builders import write_folder

from mpifl.run.folder import read_metrics
from mpifl.wings.masked.fixed_point import digits_of
from mpifl.wings.privacy import Steps, epsilon_of
from mpifl.wire.stamped_vectors import SHARE
from mpifl.wire.transport import REPORT, SUM

HERE = Path(__file__).parent
RANKS = range(5)
LEADERS = (0, 2, 4)
STAMP = 16
"""Bytes before what a rank hands over."""


@pytest.fixture(scope="session")
def played(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenes of `secure.py`."""
    out = tmp_path_factory.mktemp("secure") / "out"
    done = ranks(5, HERE / "secure.py", digits, out, timeout=240, MPIFL_RANKS_PER_NODE="2")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return out


@pytest.fixture(scope="session")
def said(played: Path) -> dict[str, str]:
    """Why each scene came to nothing, if so."""
    found: dict[str, str] = json.loads((played / "said.json").read_text())
    return found


def tap(played: Path, scene: str, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads((played / f"{scene}.{rank}.pickle").read_bytes())
    return found


def answers(played: Path, scene: str) -> list[dict[str, Any]]:
    """What all silos answered when they trained."""
    found = [one for rank in RANKS for one in tap(played, scene, rank)["answers"]]
    return [one for one in found if one["work"] == "train"]


def tails(played: Path, scene: str, rank: int) -> list[bytes]:
    """The numbers that a rank was handed over."""
    told = [content[STAMP:] for way, content in tap(played, scene, rank)["told"] if way == f"tag {SHARE}"]
    return [content for content in told if not content.startswith(b"{")]


def sums(played: Path, scene: str, rank: int) -> list[bytes]:
    """What a rank took in of vectors that are added up: from its node's memory, and from other nodes."""
    return [content for way, content in tap(played, scene, rank)["told"] if way in ("memory", f"tag {SUM}")]


def whole_numbers(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.int64)


def correlations(played: Path, scene: str) -> Iterator[float]:
    """Yield how much each buffer that the server or a leader took in is like each silo's answer."""
    deltas = [one["vectors"]["delta"].double().numpy() for one in answers(played, scene)]
    for rank in LEADERS:
        for content in sums(played, scene, rank):
            values = whole_numbers(content)[:-2].double().numpy()
            assert len(values) == len(deltas[0])
            yield from (abs(np.corrcoef(values, delta)[0, 1]) for delta in deltas)


def unevenness(content: bytes) -> float:
    """Return by how many standard deviations the chi-square statistic of some bytes is above its mean."""
    counts = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
    expected = len(content) / 256
    return float((np.square(counts - expected).sum() / expected - 255) / math.sqrt(2 * 255))


def test_what_the_server_and_leaders_take_in_is_noise(played: Path) -> None:
    parameters = len(answers(played, "masked")[0]["vectors"]["delta"])
    found = list(correlations(played, "masked"))
    # each of 7 silos in two rounds, held against two sums of neighbours and two of nodes a round
    assert len(found) == 14 * 4 * 2
    assert max(found) < 7 / math.sqrt(parameters)  # by chance in one of 10^9 runs, whose masks are new
    buffers = [content for rank in LEADERS for content in sums(played, "masked", rank)]
    buffers.append(b"".join(tails(played, "masked", 0)))
    assert max(map(unevenness, buffers)) < 8


def test_without_masks_the_same_look_sees_the_silos(played: Path) -> None:
    assert max(correlations(played, "open")) > 0.999
    buffers = [content for rank in LEADERS for content in sums(played, "open", rank)]
    assert min(map(unevenness, buffers)) > 100
    assert unevenness(b"".join(tails(played, "open", 0))) > 100


def _texts(played: Path, scene: str) -> bytes:
    told = [content for rank in RANKS for _, content in tap(played, scene, rank)["told"]]
    return b"\n".join(told)


def test_no_number_of_a_single_silo_is_told(played: Path) -> None:
    def seen(scene: str) -> set[int]:
        told = _texts(played, scene)
        return {
            one["silo"]
            for one in answers(played, scene)
            for value in one["scalars"].values()
            if repr(float(value)).encode() in told
        }

    assert seen("masked") == seen("open") == set()


def _lone(played: Path, scene: str) -> list[bytes]:
    """The digits of weight * loss of the party that hosts one silo alone, in each round."""
    hosted = [
        [one for one in tap(played, scene, rank)["answers"] if one["work"] == "train"] for rank in RANKS
    ]
    (alone,) = [one for one in hosted if len({each["silo"] for each in one}) == 1]
    losses = [one["weight"] * float(one["scalars"]["train_loss"]) for one in alone]
    return [digits_of(torch.tensor([loss], dtype=torch.float64)).numpy().tobytes() for loss in losses]


def test_the_numbers_of_a_party_of_one_silo_are_hidden(played: Path) -> None:
    for scene, visible in (("masked", False), ("open", True)):
        told = b"".join(tails(played, scene, 0))
        assert [digits in told for digits in _lone(played, scene)] == [visible] * 2


def test_no_rank_can_open_an_answer_in_the_memory_of_another(played: Path) -> None:
    """Shared memory never holds what is not masked: neither while silos train, nor after."""
    for rank in RANKS[1:]:
        looks = tap(played, "masked", rank)["open_memory"]
        assert {moment for moment, _ in looks} == {
            "before the verdict",
            "getting ready",
            "released",
            "noted",
            "about to mask",
            "after the sum",
        }
        assert max(alike for _, alike in looks) < 0.5, f"rank {rank}"


def test_without_masks_a_sum_lies_in_memory_that_others_open(played: Path) -> None:
    """Else the look at memory would see nothing."""
    looks = [look for rank in RANKS[1:] for look in tap(played, "open", rank)["open_memory"]]
    assert max(alike for moment, alike in looks if moment == "after the sum") > 0.9


ALTERED = ("told-w", "told-set", "told-plan", "told-range", "told-key")


def nothing_left(played: Path, scene: str) -> None:
    """See that no party has handed anything over."""
    assert [tap(played, scene, rank)["handed"] for rank in RANKS] == [0] * 5
    assert sums(played, scene, 0) == tails(played, scene, 0) == []
    assert not (played / scene / "released.jsonl").exists()
    assert not (played / scene / "model.safetensors").exists()


@pytest.mark.parametrize("scene", ALTERED)
def test_a_rank_that_is_told_something_else_is_named_and_nothing_leaves(
    played: Path, said: dict[str, str], scene: str
) -> None:
    assert "round 1 was lost: parties were told 2 different things, rank 3 other than most" in said[scene]
    nothing_left(played, scene)


def test_a_server_that_tells_all_of_a_set_without_a_silo_of_the_sum_gets_nothing(
    played: Path, said: dict[str, str]
) -> None:
    assert (
        "rank 3 hands over no sum: silo 'silo 0' is in this site's sum, and is not to count"
        in said["counted-out"]
    )
    nothing_left(played, "counted-out")


def test_a_server_that_asks_twice_takes_a_silos_answer_out_of_sums_in_clear(
    played: Path, said: dict[str, str]
) -> None:
    """The attack itself: over all silos, and over all but one, with the same w."""
    assert said["asks-twice-open"] == ""
    first, second = tap(played, "asks-twice-open", 0)["totals"][:2]
    stolen = (first["delta"] - second["delta"])[:-2]
    (victim,) = (one for one in answers(played, "asks-twice-open") if one["silo"] == 6 and one["round"] == 0)
    heaviest = max(one["weight"] for one in answers(played, "asks-twice-open"))
    grid = 2.0 ** (math.ceil(math.log2(128 * heaviest)) - 62 + 3)
    delta = victim["vectors"]["delta"].double().numpy()
    assert stolen.tolist() == np.rint(victim["weight"] * delta / grid).astype(np.int64).tolist()
    assert np.array_equal((stolen.numpy() * (grid / victim["weight"])).astype(np.float32), delta.astype("f4"))


def test_a_server_that_asks_twice_gets_no_second_sum_under_masks(played: Path, said: dict[str, str]) -> None:
    assert re.search(
        r"round 1 was lost: rank \d hands over no sum: \S*site/released\.jsonl: round 1 of job 'secure' is "
        r"not released \(train\): the round was released before, and is now to be over other silos "
        r"\(without 'silo 6'\), so both sums would tell them apart; continue with the run from its own last",
        said["asks-twice"],
    )
    assert len(tap(played, "asks-twice", 0)["totals"]) == 1
    assert [tap(played, "asks-twice", rank)["handed"] for rank in RANKS] == [0, 1, 1, 1, 1]
    assert not (played / "asks-twice" / "model.safetensors").exists()


def test_another_job_with_the_same_seed_asks_the_same_of_fewer_in_vain(
    played: Path, said: dict[str, str]
) -> None:
    assert re.search(
        r"round 1 of job 'secure' was asked the same, .*use another seed", said["another-cohort"]
    )
    nothing_left(played, "another-cohort")


def test_a_number_of_fewer_parties_than_least_is_not_added_up(played: Path, said: dict[str, str]) -> None:
    figures = {
        scene: [json.loads(line) for line in (played / scene / "metrics.jsonl").read_text().splitlines()]
        for scene in ("lone", "lone-open")
    }
    assert [one.get("lone") for one in figures["lone-open"]] == [0.75] * 2, "one silo's number as it is"
    assert not any("lone" in one for one in figures["lone"])
    assert all("train_loss" in one for one in figures["lone"])
    assert (
        "[security] least = 3: the number 'lone' is of too few parties (1); have the job ask for least = 3"
        in said["lone-asked"]
    )
    nothing_left(played, "lone-asked")
    assert "hands over no sum: the server tells of other numbers than this party has" in said["lone-lied"]
    nothing_left(played, "lone-lied")


def test_a_key_that_the_server_swaps_is_refused_by_its_sites_signature(
    played: Path, said: dict[str, str]
) -> None:
    line = r"rank 1 hands over no sum: site 'hospital 2' \(silos .*\): its offer is not signed for this run"
    assert re.search(
        rf"{line} by the key that \S*/site1/sites\.toml has for it; ask that site", said["swapped"]
    )
    nothing_left(played, "swapped")
    assert re.search(r"the party of silos .*: its offer is not signed, and \S* lists sites", said["unsigned"])
    nothing_left(played, "unsigned")


def test_who_lists_no_sites_takes_offers_without_a_signature(played: Path, said: dict[str, str]) -> None:
    assert said["masked"] == said["signed"] == ""
    reports = {
        scene: b"".join(content for way, content in tap(played, scene, 0)["told"] if way == f"tag {REPORT}")
        for scene in ("masked", "signed")
    }
    assert b'"signature":""' in reports["masked"]
    assert b'"signature":""' not in reports["signed"]
    assert b'"site":"hospital 3"' in reports["signed"]
    model = "model.safetensors"
    assert (played / "masked" / model).read_bytes() == (played / "signed" / model).read_bytes()
    assert (played / "masked" / model).read_bytes() == (played / "open" / model).read_bytes()


def test_a_party_that_hands_over_too_little_is_named(said: dict[str, str]) -> None:
    line = "rank 3 handed over no sum; it was released, and can be asked for over no other silos"
    assert line in said["tail-short"]


@pytest.mark.parametrize("scene", ["tail-garbage", "room-garbage"])
def test_a_party_that_hands_over_garbage_spoils_the_sum_and_is_noticed(
    played: Path, said: dict[str, str], scene: str
) -> None:
    line = (
        "round 1 was lost: the sums are not whole; it was released, and can be asked for over no other silos"
    )
    assert line in said[scene]
    assert not (played / scene / "model.safetensors").exists()


def test_a_party_whose_sum_would_lie_in_an_empty_file_ends_nobody_elses_rank(
    played: Path, said: dict[str, str]
) -> None:
    """It is not on the server's node: the leader of its node looks there when the sum is released."""
    assert "round 1 was lost: the sums are not whole; it was released" in said["room-empty"]
    assert not (played / "room-empty" / "model.safetensors").exists()


def test_a_rank_that_gets_ready_too_late_is_asked_again(played: Path, said: dict[str, str]) -> None:
    assert said["late"] == ""
    records = [json.loads(line) for line in (played / "late" / "metrics.jsonl").read_text().splitlines()]
    assert records[0]["attempts_lost"] == ["rank 3 did not get ready"]
    assert [record["faults"] for record in records] == [{}, {}]
    assert [tap(played, "late", rank)["handed"] for rank in RANKS] == [0, 2, 2, 2, 2]
    released = [json.loads(line) for line in (played / "late" / "released.jsonl").read_text().splitlines()]
    assert [one["round"] for one in released] == [0, 1]


@pytest.mark.skipif(not os.environ.get("MPIFL_SLOW"), reason="slow: MPIFL_SLOW=1 runs it")
def test_a_rank_that_is_late_when_it_was_released_ends_the_run(said: dict[str, str]) -> None:
    assert "rank 3 handed over no sum; it was released" in said["late-when-released"]


def test_a_sites_ledger_has_each_sum_once(played: Path) -> None:
    lines = [json.loads(line) for line in (played / "site/released.jsonl").read_text().splitlines()]
    asked = [(one["run"], one["round"], one["work"], tuple(one["silos"])) for one in lines]
    assert len(asked) == len(set(asked)) > 0


def test_a_run_under_masks_ends_with_its_model_when_one_silo_has_spent_its_budget(tmp_path):
    write_folder(tmp_path / "shards", [20, 30, 25], test=20)
    site, run = tmp_path / "site", tmp_path / "run"
    site.mkdir(mode=0o700)
    budget = epsilon_of([Steps(5.0, 1.0, 5)], 0.001)
    (site / "budget.toml").write_text(f"epsilon = {budget}\ndelta = 0.001\n")
    job = {
        "name": "toy",
        "shards": str(tmp_path / "shards"),
        "rounds": 9,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [5]},
        "local": {"lr": 0.5, "batch_size": "full", "steps": 2},
        "privacy": {"clip": 1.0, "noise_of": {"0": 50.0, "1": 5.0, "2": 50.0}, "delta": 0.01},
        "security": {"least": 2},
    }
    (tmp_path / "job.toml").write_text(tomli_w.dumps(job))
    given = ["-m", "mpifl", "train", tmp_path / "job.toml", "--out", run]
    for more in ([], ["--resume"]):
        done = ranks(4, *given, *more, timeout=120, MPIFL_SITE=str(site))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        why = "another round would pass a privacy budget; "
        assert done.stderr.count(f"stopped early, after round 2 of 9: {why}") == 1
    records = read_metrics(run)
    assert [record.get("budget_left") for record in records] == [None, 0], "and no number before the end"
    assert (run / "model.safetensors").exists()
    assert len((site / "ledger.jsonl").read_text().splitlines()) == 6, "nobody paid for a round that was lost"
