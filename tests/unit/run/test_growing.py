"""`metrics.jsonl` of a run that continues: read on, whatever state its end is in."""

import pytest

from mpifl.common import LARGEST_FIGURE, InputError
from mpifl.run.folder.metrics_file import GrowingMetrics, encode_record, number, read_metrics, trim_metrics


def test_lines_count_when_they_are_whole_and_the_file_may_appear_later_or_be_written_anew(tmp_path):
    metrics, path = GrowingMetrics(tmp_path), tmp_path / "metrics.jsonl"

    def add(content):
        with path.open("ab") as file:
            file.write(content)

    def rounds():
        return [record["round"] for record in metrics.look()]

    assert rounds() == []
    first, second = encode_record({"round": 1, "a": "é"}), encode_record({"round": 2})
    add(first + second[:5])
    assert rounds() == [1]
    add(second[5:-1])
    assert rounds() == [1]
    add(b"\ntorn\n" + encode_record({"round": 3}))
    assert rounds() == [1, 2, 3]
    trim_metrics(tmp_path, 2)
    assert rounds() == [1, 2]
    path.write_bytes(first)
    assert rounds() == [1]
    path.unlink()
    assert rounds() == []
    path.mkdir()
    with pytest.raises(InputError, match=r"metrics\.jsonl: cannot be read"):
        metrics.look()


@pytest.mark.parametrize("value", [LARGEST_FIGURE, -LARGEST_FIGURE, 2.0**499, 1e120, -1e308, 10**120])
def test_what_silos_may_say_can_be_read_and_larger_figures_are_written_as_none(value, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(encode_record({"round": 1, "train_loss": value}))
    (record,) = read_metrics(tmp_path)
    assert record["train_loss"] == (value if abs(value) <= LARGEST_FIGURE else None)
    assert number(record, "train_loss") == record["train_loss"]
