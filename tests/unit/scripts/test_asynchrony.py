"""The comparison of rounds that wait with rounds that do not: its figures are those of real runs."""

import json
import math

import numpy as np
import pytest

from mpifl.common import rng
from scripts.asynchrony import WAYS, main


def test_each_way_has_the_costs_to_the_target(tmp_path, capsys):
    main(["--seeds", "2", "--target", "0.5", "--out", str(tmp_path)])
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()][2:]
    rows = {way: [float(figure) for figure in figures] for way, *figures in lines}
    assert [*rows] == [*WAYS]
    assert len(rows) == 6
    for way, figures in rows.items():
        records = [json.loads(line) for line in (tmp_path / f"{way}-seed2" / "metrics.jsonl").open()]
        first = next(r for r in records if r["test_accuracy"] >= 0.5)
        sent = sum(r["bytes_sent"] + r["bytes_received"] for r in records) / 1e6
        assert first is records[-1]
        assert figures[:2] == [first["round"], pytest.approx(sent, abs=0.05)]
        assert figures[2] == pytest.approx(first["virtual_seconds"], abs=0.05)
    silos = json.loads((tmp_path / "digits-seed2" / "federation.json").read_text())["silos"]
    speeds = np.power(10, rng.numpy_stream(2, "speeds").random(len(silos)))
    took = max(
        math.ceil(one["examples"]["train"] / 16) / speed for one, speed in zip(silos, speeds, strict=True)
    )
    assert rows["FedAvg"][2] == pytest.approx(rows["FedAvg"][0] * took, abs=0.05)
