"""What a run's page says in sentences: the verdict, and what happened in which round."""

import pytest
from pages import Reader
from unit.report.test_report_page import make_run, record, silos

from mpifl.common import Names
from mpifl.report.pages.happened import events, spans, verdict
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs.runs import read_run


def happened(run, names=()):
    return [tuple(one) for one in events(read_run(run), Names(names))]


def test_the_verdict_names_the_metric_the_target_and_the_worst_silo(tmp_path):
    given = silos(cleveland=0.9, bern=0.25, basel=0.5)
    run = make_run(tmp_path, [record(1), record(2, **given)], evaluate={"target_accuracy": 0.75})
    assert verdict(read_run(run)) == [
        "Accuracy is 75.00% on the server's test set; the target, 75%, was reached in round 2.",
        "Silo bern is the worst of 3 silos, with 25.00%. Silo cleveland is the best, with 90.00%. "
        "Half of the silos have 50.00% or more.",
    ]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([{"round": 1}], ["No round was scored."]),
        (
            [{"round": 1, "silo_accuracy_pooled": 0.5}],
            ["Accuracy is 50.00% on the silos' held-out examples."],
        ),
        (
            [{"round": 1, "silo_accuracy_weighted": 0.5}],
            ["Accuracy is 50.00% as the silos' mean, weighted by examples."],
        ),
        (
            [record(1, **silos(a=0.5, b=0.5))],
            ["Accuracy is 50.00% on the server's test set.", "All 2 silos have 50.00%."],
        ),
        ([record(1, **silos(alone=0.5))], ["Accuracy is 50.00% on the server's test set."]),
    ],
    ids=["nothing", "pooled", "weighted", "alike", "one silo"],
)
def test_the_verdict_says_by_what_a_run_is_judged(tmp_path, records, said):
    assert verdict(read_run(make_run(tmp_path, records))) == said


def rounds_of(many, **falls):
    """Rounds that get better by little, but for falls of one round, by their number."""
    return [
        record(
            n,
            test_accuracy=0.5 + 0.001 * n - falls.get(f"at{n}", 0.0),
            **silos(a=0.9, b=0.9 - falls.get(f"at{n}", 0.0)),
        )
        for n in range(1, many + 1)
    ]


def test_a_fall_is_told_with_the_silos_that_fell_most(tmp_path):
    found = happened(make_run(tmp_path, rounds_of(100, at17=0.26, at3=0.3)))
    assert found == [
        (17, "Accuracy falls by 25.90 points, most at silo b (−26.00 points)", ""),
        (100, "Best accuracy: 60.00%", ""),
    ]


def test_a_run_that_only_wavers_has_no_falls(tmp_path):
    records = [record(n, test_accuracy=0.5 + 0.001 * n + 0.05 * (n % 2)) for n in range(1, 60)]
    assert [what for _, what, _ in happened(make_run(tmp_path, records))] == ["Best accuracy: 60.90%"]


def test_silos_left_out_and_ranks_lost_are_told_in_the_order_of_rounds(tmp_path):
    late = {"1": "too <late>"}
    records = [record(n, faults=late if n in (2, 3, 5) else {}) for n in range(1, 8)]
    records[3]["ranks_lost"] = [2]
    records[5]["faults"] = dict.fromkeys("02345678", "no answer")
    run = make_run(tmp_path / "run", records, evaluate={"target_accuracy": 0.75})
    assert happened(run, ["a", "<b>"]) == [
        (2, "The run reaches the target, 75%", ""),
        (2, "Silo '<b>' is left out (3 rounds: 2-3, 5)", "too <late>"),
        (4, "Ranks lost: 2", ""),
        (6, "Silos a, 2, 3, 4, 5 and 3 more are left out", "no answer"),
        (7, "Best accuracy: 92.86%", ""),
    ]
    reader = Reader(write_report(run).read_text())
    assert "too <late>" in reader.text
    words = reader.titles()
    assert words.index("Accuracy over rounds") < words.index("What happened") < words.index("Loss")


def test_spans_are_short():
    assert spans([1]) == "1"
    assert spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert spans(range(1, 40, 2)) == "1, 3, 5, 7, 9, 11, ..."


@pytest.mark.parametrize(("over", "said"), [(False, "was not reached yet."), (True, "was not reached.")])
def test_a_target_of_a_run_that_goes_on_may_still_be_reached(tmp_path, over, said):
    run = make_run(tmp_path, [record(n) for n in range(1, 5)], evaluate={"target_accuracy": 0.99})
    if over:
        (run / "model.safetensors").touch()
    assert verdict(read_run(run))[0].endswith(f"the target, 99%, {said}")
