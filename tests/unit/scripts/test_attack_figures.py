"""The picture of rules under attack: what is trained for a cell, and what is drawn of the cells."""

import json
from pathlib import Path

import pytest

from scripts import attack_figures
from scripts.attack_figures import ATTACKS, RULES, SUCCESS, draw, markdown, trained

pytestmark = pytest.mark.usefixtures("warm_python")


@pytest.fixture
def cells():
    names = [*ATTACKS, SUCCESS]
    return {(rule, name): 10.0 * nth + at for nth, rule in enumerate(RULES) for at, name in enumerate(names)}


def test_a_cell_is_the_mean_of_the_last_rounds_over_the_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(attack_figures, "RULES", {"median": RULES["median"]})
    monkeypatch.setattr(attack_figures, "ATTACKS", {"backdoor": ATTACKS["backdoor"]})
    found = trained(tmp_path, [7], rounds=2)
    assert found.keys() == {("median", "backdoor"), ("median", SUCCESS)}
    lines = (tmp_path / "median_backdoor_seed7" / "metrics.jsonl").read_text().splitlines()
    both = [json.loads(line)["test_accuracy"] for line in lines]
    assert found["median", "backdoor"] == pytest.approx(50 * sum(both))
    assert trained(tmp_path, [7], rounds=2) == found  # nothing is trained again


def test_the_table_has_a_line_for_each_rule_and_the_picture_the_same_bytes(cells, tmp_path: Path):
    lines = markdown(cells).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {rule}" for rule in RULES]
    assert lines[2].endswith(f"| {len(ATTACKS):.1f} |")
    for name in ("one.svg", "other.svg"):
        draw(cells, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
