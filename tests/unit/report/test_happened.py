"""What a run's page says in sentences: the verdict, and what happened in which round."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import Reader
from unit.builders import write_folder
from unit.report.test_report_page import make_run, record, silos

from mpifl.common import Names
from mpifl.data.shards import labels_of
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.findings.fall_events import silo_falls
from mpifl.report.pages.happened import events, verdict
from mpifl.report.pages.run_figures import one_seed
from mpifl.report.pages.run_page import write_report
from mpifl.report.pages.trust_section import spent, trust
from mpifl.report.runs import Held, chance, units
from mpifl.report.runs.compared_runs import compare_runs, show_run
from mpifl.report.runs.run_summary import Summary, read_run
from mpifl.report.terminal import analysed
from mpifl.run.folder.environment import write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import describe

UNKNOWN = "no cause is known"


def happened(run, names=(), finished=False):
    if finished:
        (run / "model.safetensors").touch()
    return [tuple(one) for one in events(read_run(run), Names(names))]


def test_the_verdict_names_the_metric_the_target_and_the_worst_silo(tmp_path):
    given = silos(cleveland=0.9, bern=0.25, basel=0.5)
    run = make_run(tmp_path, [record(1), record(2, **given)], evaluate={"target_accuracy": 0.75})
    assert verdict(read_run(run)) == [
        "Accuracy is 75.00% on the server's test set; the target, 75%, was reached in round 2.",
        "The mean over silos, each counted once, is 55.00%. "
        "Silo bern is the worst of 3 silos, with 25.00%. Silo cleveland is the best, with 90.00%. "
        "The median is 50.00%.",
    ]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (
            [{"round": 1}],
            [
                "No round was scored. There are no scores of silos: no silo holds out examples, or no "
                "round was scored yet. To get a score, add a test set of the server (test.h5 in the shard "
                "folder)."
            ],
        ),
        (
            [{"round": 1, "silo_accuracy_pooled": 0.5}],
            ["Accuracy is 50.00% on the silos' held-out examples, taken together as one set."],
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
    worse = "1 of 2 silos get worse, the most silo b (−26.00 points)"
    found = happened(make_run(tmp_path, rounds_of(100, at17=0.26, at3=0.3)), finished=True)
    early = "1 of 2 silos get worse, the most silo b (−30.00 points)"
    assert found == [
        (3, f"Accuracy falls by 29.90 points, from 50.20% to 20.30%; {early}", UNKNOWN),
        (17, f"Accuracy falls by 25.90 points, from 51.60% to 25.70%; {worse}", UNKNOWN),
        (100, "Best accuracy: 60.00%", ""),
    ]


def test_silos_that_fell_alike_are_counted_and_a_flat_curve_is_named(tmp_path):
    records = [
        record(
            n, test_accuracy=0.8 - 0.2 * (n == 17), **silos(**dict.fromkeys("abcde", 0.9 - 0.2 * (n == 17)))
        )
        for n in range(1, 41)
    ]
    run = make_run(tmp_path, records, seed=1)
    assert happened(run, finished=True)[-1][1].endswith("; 5 of 5 silos get worse, all by 20.00 points")
    flat = " The curve is flat but for the fall in round 17: rounds after 1 gained 0.10 points or less. "
    flat += "rounds = 1 is enough for the next run, and ends before the fall."
    assert one_seed(read_run(run)).endswith(f"gives another figure.{flat}")
    for one in records[16:]:  # which stays at what it fell to
        one["test_accuracy"] = 0.6
    assert "flat" not in one_seed(read_run(make_run(tmp_path / "low", records, seed=1)))


def test_more_rounds_are_advised_unless_the_schedule_has_ended(tmp_path):
    records = [record(n, test_accuracy=0.5 + 0.01 * n) for n in range(1, 9)]
    for rounds, said in (
        (8, "the linear schedule has ended, and a larger schedule_rounds"),
        (3, "more rounds may"),
    ):
        local = {"schedule": "linear", "schedule_rounds": rounds, "steps": 2}
        run = make_run(tmp_path / str(rounds), records, seed=1, local=local)
        assert f"the last one is the best of all: {said}" in one_seed(read_run(run))
    summary = replace(read_run(run), rows=50, finished=True)  # the last three rounds gain one row of these
    few = (
        " The last 3 scored rounds differ by at most one of the 50 scored rows: more rounds may gain nothing."
    )
    assert one_seed(summary).endswith(f"gives another figure.{few}")
    assert "is the best of all" in one_seed(replace(summary, rows=51))


def test_falls_after_a_run_diverged_are_not_told(tmp_path):
    records = rounds_of(100, at17=0.26, at40=0.3)
    for one in records[19:]:
        one["train_loss"] = float("inf")
    run = make_run(tmp_path, records)
    told = [(one[0], one[2]) for one in happened(run) if "falls by" in one[1]]
    assert told == [(17, UNKNOWN)]
    words = " ".join(Reader(write_report(run).read_text()).titles())
    lower = f"mpifl train {run}/job.toml --set local.lr=0.01 --out {run}-lr-0.01"
    back = "Accuracy fell by 25.90 points to 25.70% in round 17; round 18 is the first one that is as good"
    assert back in words
    assert f"What to do next: Train with a tenth of the learning rate: {lower}" in words
    assert " over all rounds before round 20 is told where it exceeds " in words
    alone = [{key: value for key, value in one.items() if key != "silos"} for one in records]
    words = " ".join(Reader(write_report(make_run(tmp_path / "alone", alone)).read_text()).titles())
    said = "A fall of more than 5% of the range over all rounds before round 20 is told where it exceeds "
    assert f"{said}6 times the median step." in words


def test_a_fall_within_chance_is_not_told_and_a_far_worse_end_is_warned_of(tmp_path):
    end = {"test_accuracy": 0.3, **silos(**{"0": 0.3})}
    run = make_run(tmp_path / "run", [*rounds_of(40, at20=0.06), record(41, **end)], tmp_path / "shards")
    for rows, told in ((100, False), (10_000, True)):
        write_environment(run, data=describe(write_folder(tmp_path / "shards", [4], test=rows)))
        words = " ".join(Reader(write_report(run).read_text()).titles())
        assert ("20 Accuracy falls by 5.90 points" in words) is told
        assert "41 Accuracy falls by 24.00 points" in words
        assert "Warning: accuracy fell from 54.00% in round 40 to 30.00% in round 41." in words


def test_a_fall_is_told_with_who_was_absent_who_is_back_and_the_training_loss(tmp_path):
    records = [
        record(n, test_accuracy=0.8 - 0.3 * (n == 6), train_loss=1.0 + 2 * (n == 6)) for n in range(1, 9)
    ]
    records[4]["faults"], records[5]["late"] = {"1": "no answer"}, ["bern"]
    records[0]["drawn"], records[5]["drawn"] = ["bern"], ["bern", "chur"]
    records[7]["silos"] = {"basel": {"accuracy": 0.5}}
    for one in records:
        one["update_norm"] = 0.6 if one["round"] == 6 else 0.1
    told = happened(make_run(tmp_path, records), ["basel", "chur", "bern"], finished=True)
    why = "silo bern left out of the round; silo chur back after being left out; "
    why += "the mean update was 6 times as long as in the median round near it; "
    why += (
        "the training loss rose from 1 to 3; silos bern, chur trained, of these silo chur for the first time"
    )
    assert (6, "Accuracy falls by 30.00 points, from 80.00% to 50.00%", why) in told
    late = "later than [clock] deadline"
    assert (6, "Silo bern is left out", late) in told
    write_environment(tmp_path, silos=["basel", "chur", "bern"])
    words = " ".join(Reader(write_report(tmp_path).read_text()).titles())
    assert (
        "What happened Each round asks 1 to 2 of 3 silos. Never asked, and so never trained: silo basel."
        in words
    )
    records[5]["drawn"] = [f"s{n}" for n in range(12)]
    (tmp_path / "metrics.jsonl").write_bytes(
        b"".join(encode_record(one | {"faults": {}, "late": []}) for one in records)
    )
    words = " ".join(Reader(write_report(tmp_path).read_text()).titles())
    assert "12 silos (among them s0, s1, s2, s3, s4, s5, s6, s7, s8, s9) trained" in words
    assert f"All 12 silos that trained in round 6 silos {', '.join(records[5]['drawn'])}" in words
    assert "never trained: silo basel. All silos that were asked have answered, and no rank" in words


def test_a_private_run_without_a_score_says_what_it_spent_why_and_what_would_give_one(tmp_path):
    table = {"privacy": {"clip": 1.0, "epsilon": 8.0, "delta": 1e-3}, "evaluate": {"silos": False}}
    of = {"train_loss": 1.0, "seconds_evaluation": 0.002}
    records = [{"round": n, **of, "epsilon": 0.75 * n, "budget_left": 4 - n} for n in (1, 2)]
    told = verdict(read_run(make_run(tmp_path, records, **table)))
    assert told == [
        "No round was scored. Scores of silos are withheld: differential privacy protects the scores on a "
        "silo's own examples. To get a score, add a test set of the server (test.h5 in the shard folder). "
        f"'mpifl evaluate {tmp_path} --silos' scores this model by the silos' rows; its epsilon does not "
        "cover these figures.",
        "Each example has spent at most epsilon 1.5 at delta 0.001 in 2 rounds, of a budget of 8; it is "
        "enough for 2 more rounds.",
    ]
    loud = [*records, {"round": 3, **of, "epsilon": 12.0}]
    weak = verdict(read_run(make_run(tmp_path / "loud", loud, **table)))[1]
    assert "An epsilon above 10 by itself protects little: up to 1 is strong and up to 10 reasonable " in weak
    words = " ".join(Reader(write_report(read_run(tmp_path).run).read_text()).titles())
    assert "epsilon 1.5 time of rounds" in words
    assert "for scoring" not in words, "nothing was scored"
    said = f"Copy the job file, and delete [privacy] in the copy: cp {tmp_path}/job.toml alone.toml Train a "
    assert f"{said}model alone, and score it on the same test rows: mpifl train alone.toml --set" in words


def test_silos_left_out_and_ranks_lost_are_told_in_the_order_of_rounds(tmp_path):
    late = {"1": "too <late>"}
    records = [record(n, faults=late if n in (2, 3, 5) else {}) for n in range(1, 8)]
    records[3]["ranks_lost"] = [2]
    records[5]["faults"] = dict.fromkeys(map(str, (0, *range(2, 13))), "no answer")
    given = {"local": {"steps": 5}, "cohort": {"deadline": 2.5, "quorum": 0.5}}
    run = make_run(tmp_path / "run", records, evaluate={"target_accuracy": 0.75}, **given)
    assert happened(run, ["a", "<b>"]) == [
        (2, "The run reaches the target, 75%", ""),
        (2, "Silo '<b>' is left out (3 rounds: 2-3, 5)", "too <late>"),
        (4, "Ranks lost: 2", ""),
        (6, "12 silos (among them a, 2, 3, 4, 5, 6, 7, 8, 9, 10) are left out", "no answer"),
        (7, "Best accuracy: 92.86%", ""),
    ]
    reader = Reader(write_report(run).read_text())
    assert "too <late>" in reader.text
    words = reader.titles()
    assert words.index("Accuracy over rounds") < words.index("What happened") < words.index("Loss")


def test_a_model_that_outlines_nothing_is_not_praised(tmp_path, capsys):
    records = [{"round": n, "train_loss": 1.8, "seconds": 1.0, "test_dice": 0.0} for n in (1, 2)]
    run = make_run(tmp_path / "run", records, rounds=2)
    write_environment(run, metric=MetricInfo(name="dice", share=True).model_dump(), federation={"classes": 2})
    show_run(run)
    said = "no better than guessing: dice is 0.00%, as of a model that answers background everywhere"
    assert said in capsys.readouterr().out
    assert not read_run(run).diverged


def test_a_run_that_is_no_better_than_guessing_is_not_praised(tmp_path, capsys):
    guess = {"answers": {"test": {"commonest": 0.6, "of_training": False}}}
    records = [record(1, test_accuracy=0.55), record(2, test_accuracy=0.5, test_loss=9.0, **guess)]
    run = make_run(tmp_path / "run", records, rounds=2)
    said = [
        (1, "Best accuracy: 55.00%, no better than guessing", ""),
        (2, "The test loss grew 3-fold, from 3 in round 1 to 9 in round 2", ""),
    ]
    assert happened(run, finished=True) == said
    text = write_report(run).read_text()
    words = " ".join(Reader(text).titles())
    assert '<b class="pill bad">finished, no better than guessing</b>' in text
    least = f"{chance.ALWAYS} gives 60.00%"
    assert f"Warning: no better than guessing: accuracy is 50.00%, {least}." in words
    assert "Warning: its test loss grew 3-fold, from 3 in round 1 to 9 in round 2." in words
    compare_runs([run])
    show_run(run)
    assert capsys.readouterr().out.count("no better than guessing: accuracy is 50.00%") == 2
    (run / "metrics.jsonl").write_bytes(
        b"".join(map(encode_record, [records[0], record(2, **guess) | {"test_accuracy": 0.61}]))
    )
    assert '<b class="pill good">finished</b>' in write_report(run).read_text()
    records = [records[0], record(2, **guess) | {"test_accuracy": 0.61, "test_loss": 6.0}]
    (run / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    assert '<b class="pill warn">finished, a loss grew</b>' in write_report(run).read_text()


@pytest.mark.parametrize("rows", ["test", "silos"])
@pytest.mark.parametrize(("accuracy", "said"), [(0.55, True), (0.6, True), (0.65, False)])
def test_an_accuracy_below_that_of_the_most_common_class_is_told_beside_another_metric(
    tmp_path, capsys, rows, accuracy, said
):
    guess = {"answers": {rows: {"commonest": 0.6, "of_training": False}}}
    auroc, key = (
        ("test_auroc", "test_accuracy") if rows == "test" else ("silo_auroc_pooled", "silo_accuracy_pooled")
    )
    last = {"round": 1, "train_loss": 1.8, "seconds": 1.0, auroc: 0.7, key: accuracy, **guess}
    run = make_run(tmp_path / "run", [last], rounds=1)
    write_environment(
        run, metric=MetricInfo(name="auroc", share=True).model_dump(), federation={"classes": 2}
    )
    where = {"test": "the server's test set", "silos": "all silos' rows together"}[rows]
    wanted = f"Accuracy is {accuracy:.2%}, no better than always answering the most common class of {where}, "
    wanted += "which gives 60.00%."
    assert (wanted in " ".join(Reader(write_report(run).read_text()).titles())) == said
    show_run(run)
    assert (wanted in capsys.readouterr().out) == said


def test_silos_that_are_worst_alike_are_named_or_counted(tmp_path):
    some = "0, 1, 2, 3, 4, 5, 6"
    for many, said in (
        (7, f"Silos {some} are the worst of 8 silos"),
        (12, f"12 silos (among them {some}, 7, 8, 9) are the worst of 13 silos"),
    ):
        given = silos(**dict.fromkeys(map(str, range(many)), 0.0), **{str(many): 0.5})
        assert f"%. {said}" in verdict(read_run(make_run(tmp_path / str(many), [record(1, **given)])))[1]


def test_a_silo_without_the_metric_and_models_of_their_own_are_told(tmp_path):
    run = make_run(tmp_path, [record(1, **silos(a=0.5, b=0.25, c=None))])
    write_environment(run, own_models=True)
    said = verdict(read_run(run))
    assert "on the server's test set, by the shared model." in said[0]
    assert said[1].endswith("Each silo has a model of its own. The rows of silo c have no accuracy.")
    alone = record(1, silo_accuracy_pooled=0.5, **silos(a=0.5, b=0.25))
    del alone["test_accuracy"]
    other = make_run(tmp_path / "other", [alone])
    write_environment(other, own_models=True)
    command = f"'mpifl evaluate {other} --silos'"
    assert f"The shared model beside it was not scored; {command} does so." in verdict(read_run(other))[1]
    drawn = " ".join(Reader(write_report(run).read_text()).titles())
    assert "test set, shared model 50.00% silos' mean, own models 50.00%" in drawn


DIVERGED = {
    "no number": (
        [{}, {}, {"test_loss": float("nan"), **silos(a=0.5, b=0.5)}],
        "Round 2 is the last good one; its newest checkpoint is of round 2. Round 3 is the first bad one: "
        "the test loss is not finite. The usual cause is too large a learning rate: [local] lr is 0.1. "
        "",
    ),
    "a silo first": (
        [{}, {"faults": {"1": "'w' holds NaN or Inf"}}, {"train_loss": float("inf")}],
        "Round 1 is the last good one; no checkpoint of it or of an earlier round was kept. Round 2 is the "
        "first bad one: the update of silo bern is not finite. The usual cause is too large a learning "
        "rate: [local] lr is 0.1. ",
    ),
    "all in one round": (
        [
            {},
            {"train_loss": 2.5},
            {
                "faults": {"0": "'w' holds NaN or Inf", "1": "'w' holds NaN or Inf"},
                "train_loss": float("nan"),
                "test_loss": float("inf"),
                "silos": {"basel": {"loss": None}, "bern": {"loss": 0.1}},
            },
        ],
        "Round 2 is the last good one; its newest checkpoint is of round 2. Round 3 is the first bad one: "
        "the updates of silos basel, bern are not finite; the training loss is not finite; the test loss is "
        "not finite; the loss on the held-out rows of silo basel is not finite. The usual cause is too large "
        "a learning rate: [local] lr is 0.1.",
    ),
    "in round 1": (
        [
            {"train_loss": 3.0, "test_accuracy": 0.1},
            {"train_loss": 1e10, "test_accuracy": 0.1},
            {"test_accuracy": 0.1, "answers": {"test": {"commonest": 0.1}}},
        ],
        "No round has a usable model. Round 1 is the first bad one: the training loss was above 2.303, the "
        "loss of equal probabilities for all classes, first in round 1, and was largest, 1e+10, in round 2. "
        "The usual cause is too large a learning rate: [local] lr is 0.1.",
    ),
    "in round 1, better than guessing": (
        [{"train_loss": 9e29, "test_accuracy": 0.5}, {"train_loss": 8e29}, {"train_loss": 9.4e29}],
        "No round has a usable model. Round 1 is the first bad one: the training loss was above 2.303, the "
        "loss of equal probabilities for all classes, first in round 1, and was 9.4e+29 after round 3. "
        "The usual cause is too large a learning rate: [local] lr is 0.1.",
    ),
    "grown": (
        [
            {},
            {"train_loss": 9.0, "test_loss": 9.0, "silos": {"a": {"loss": 1.0}, "b": {"loss": 8.0}}},
            {"train_loss": 40.0, "test_loss": 60.0},
        ],
        "Round 1 is the last good one; no checkpoint of it or of an earlier round was kept. Round 2 is the "
        "first bad one: the training loss grew 20-fold, from 2 in round 1 to 40 in round 3; the test loss "
        "grew 20-fold, from 3 in round 1 to 60 in round 3. The usual cause is too large a learning rate: "
        "[local] lr is 0.1.",
    ),
}


@pytest.mark.parametrize(("given", "said"), DIVERGED.values(), ids=DIVERGED)
def test_a_run_that_diverged_says_what_went_wrong_where_first_and_what_is_of_use(tmp_path, given, said):
    records = [record(n, **more) for n, more in enumerate(given, 1)]
    run = make_run(tmp_path, records, evaluate={"target_accuracy": 0.4})
    (run / "checkpoints" / "round_000002").mkdir(parents=True)
    (run / "checkpoints" / "round_000002" / "checkpoint.json").touch()
    write_environment(run, silos=["basel", "bern"], federation={"classes": 10})
    text = write_report(run).read_text()
    words = " ".join(Reader(text).titles())
    assert '<b class="pill bad">diverged</b>' in text
    assert " · seed 0 · lr 0.1 · epochs 1 · batch size 10 · " in words, "settings stand in the open"
    assert f"The run diverged. {said}" in words
    assert "Warning: diverged" not in words, "the verdict has said it"
    assert "Accuracy of the model that diverged is " in words
    assert ". Do not report this figure." in words
    for gone in (
        "rounds to 40%",
        "mean over silos is",
        "Best accuracy",
        "reaches the target",
        "the target, 40%",
        "The mean over silos",
        UNKNOWN,
    ):
        assert gone not in words
    if "grown" in said or "grew" in said:
        why = "highest on held-out rows at silo b: 8"
        assert f"2 The test loss grew 20-fold, from 3 in round 1 to 60 in round 3 {why}" in words
        assert words.count(why) == 1, "silos tell no training loss"


def test_a_silo_below_always_answering_its_most_common_class_is_named(tmp_path):
    spec = write_folder(tmp_path / "shards", [8, 8], classes=2, silos_test=100)
    scored = [labels_of(tmp_path / "shards", one, "test") for one in spec.silos]
    shares = [np.bincount(labels).max() / 100 for labels in scored]
    run = make_run(
        tmp_path / "run", [record(1, **silos(**{"0": 0.3, "1": 0.99}))], shards=tmp_path / "shards"
    )
    write_environment(run, data=describe(spec))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    said = "accuracy is below guessing, the share of the most common class in a silo's scored rows: "
    assert f"Warning: {said}silo 0 has 30.00%, and that class {shares[0]:.2%}. " in words
    write_environment(run, data=describe(write_folder(tmp_path / "shards", [8, 8], classes=2, silos_test=2)))
    assert "below guessing" not in write_report(run).read_text(), "chance may do that"


def test_a_fall_of_one_silo_is_told_where_it_exceeds_chance(tmp_path):
    spec = write_folder(tmp_path / "shards", [4, 4], silos_test=100)
    values = [0.9 - 0.4 * (n == 21) for n in range(1, 31)]
    records = [
        record(n, test_accuracy=0.8, **silos(**{"0": 0.9, "1": value})) for n, value in enumerate(values, 1)
    ]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    write_environment(run, data=describe(spec))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    assert "What happened No silo was left out of a round, and no rank was lost." in words
    low, high = chance.apart(0.5, 0.9, 100)
    why = f"{UNKNOWN}; 95% interval: {units.between(low, high, ACCURACY)} "
    why += "(4 training examples, 100 held out)"
    assert f"21 Accuracy of silo 1 falls by 40.00 points to 50.00% {why}" in words
    write_environment(run, data=describe(write_folder(tmp_path / "shards", [4, 4], silos_test=10)))
    assert "Accuracy of silo 1 falls" not in write_report(run).read_text(), "chance may do that with ten rows"


def test_falls_are_told_by_a_rule_that_stands_there_the_largest_first(tmp_path):
    """Silo 1 falls by 20 points on 1000 rows, silo 0 three times by 60 on 50: these stand, and are larger."""
    records = [
        record(
            n, test_accuracy=0.8, **silos(**{"0": 0.9 - 0.6 * (n in (9, 15, 21)), "1": 0.9 - 0.2 * (n == 12)})
        )
        for n in range(1, 31)
    ]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    held = {"0": Held(4, 50), "1": Held(4, 1000)}
    values = np.array([[one["silos"][name]["accuracy"] for one in records] for name in "01"])
    found = silo_falls(read_run(run), ["0", "1"], held, [*range(1, 31)], values)
    assert [one.round for one in found] == [9, 15, 21]
    write_environment(run, data=describe(write_folder(tmp_path / "shards", [4], test=400)))
    (run / "metrics.jsonl").write_bytes(b"".join(map(encode_record, rounds_of(100, at17=0.26, at30=0.3))))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    said = "A fall of more than 5% of the range over all rounds is told where it exceeds chance on the "
    assert f"{said}400 scored rows, or where a loss rises more than 1.5-fold in its round. " in words


def test_falls_of_the_whole_are_told_before_those_of_a_silo_with_few_rows(tmp_path):
    """A run that wavers by 4 points falls by 25 in round 20; silo 1 has two rows, which both turn wrong."""
    few, wavers = [n == 25 for n in range(1, 41)], [0.04 * (n % 2) - 0.25 * (n == 20) for n in range(1, 41)]
    records = [
        record(n, test_accuracy=0.8 + by, **silos(**{"0": 0.9, "1": 1.0 - fell}))
        for n, (fell, by) in enumerate(zip(few, wavers, strict=True), 1)
    ]
    spec = write_folder(tmp_path / "shards", [4, 4], silos_test=2, test=400)
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    write_environment(run, data=describe(spec))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    assert "20 Accuracy falls by 29.00 points, from 84.00% to 55.00%" in words
    assert "of silo 1 falls" not in words


def test_a_fall_within_chance_is_not_told(tmp_path):
    records = [record(n, test_accuracy=0.8 - 0.1 * (n == 20)) for n in range(1, 41)]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    write_environment(run, data=describe(write_folder(tmp_path / "shards", [4], test=20)))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    assert "no rank was lost. Accuracy never fell sharply from one round to the next. " in words
    assert "is told where it exceeds chance on the 20 scored rows, or where a loss rises" in words
    assert "Accuracy fell by" not in words
    assert "falls by" not in words


def test_what_speaks_against_chance_is_told_of_a_fall_on_few_rows(tmp_path):
    """All silos fall by 12 points on 2000 rows, and the test loss rises a hundredfold."""
    fell = [n == 20 for n in range(1, 41)]
    records = [
        record(n, test_accuracy=0.8 - 0.1 * one, test_loss=0.5 + 50 * one)
        | {"silo_accuracy_pooled": 0.8 - 0.12 * one}
        for n, one in enumerate(fell, 1)
    ]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    spec = write_folder(tmp_path / "shards", [4, 4], test=20, silos_test=1000)
    write_environment(run, data=describe(spec))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    why = (
        "no cause is known; the test loss rose from 0.5 to 50.5; accuracy falls by 12.00 points on the 2,000"
    )
    assert f"from 80.00% to 70.00% {why} rows of all silos, more than chance makes" in words
    assert "never fell sharply" not in words
    said = "is told where it exceeds chance on the 20 scored rows, or on the 2,000 rows of all "
    assert f"{said}silos, or where a loss rises more than 1.5-fold in its round. " in words
    assert "Accuracy fell by 10.00 points to 70.00% in round 20" in words, (
        "what is told of falls begins the page"
    )


def test_a_target_that_was_lost_again_or_missed_by_few_rows_is_told_so(tmp_path):
    spec = write_folder(tmp_path / "shards", [4], test=40)
    for name, values, said, card in (
        ("lost", (0.5, 0.9, 0.7), "reached in round 2, and missed since round 3: 4 right", "; missed since"),
        ("near", (0.5, 0.75, 0.7), "not reached yet: 2 right answers of 40 are lacking, which is", "not"),
        ("far", (0.5, 0.5, 0.5), "not reached yet.", "not reached"),
        ("doubt", (0.5, 0.9, 0.9), "reached in round 2; 40 rows are too few to be sure of that.", "2"),
        ("sure", (0.5, 1.0, 0.9), "reached in round 2.", "2"),
    ):
        records = [record(n, test_accuracy=one) for n, one in enumerate(values, 1)]
        run = make_run(tmp_path / name, records, tmp_path / "shards", evaluate={"target_accuracy": 0.8})
        write_environment(run, data=describe(spec))
        words = " ".join(Reader(write_report(run).read_text()).titles())
        assert f"the target, 80%, was {said}" in words
        assert card in words[words.index("rounds to 80%") :]


def test_guessing_is_told_of_the_rows_that_are_scored(tmp_path):
    spec = write_folder(tmp_path / "shards", [8, 8], classes=2, silos_test=50)
    whole = np.bincount(np.concatenate([labels_of(tmp_path / "shards", one, "test") for one in spec.silos]))
    told = {"answers": {"silos": {"commonest": 0.99, "of_training": True}}, "silo_accuracy_pooled": 0.9}
    records = [record(1) | told | silos(**{"0": 0.9, "1": 0.9})]
    del records[0]["test_accuracy"]
    run = make_run(tmp_path / "run", records, shards=tmp_path / "shards")
    write_environment(run, data=describe(spec))
    words = " ".join(Reader(write_report(run).read_text()).titles())
    assert f"most common class of all silos' rows together gives {whole.max() / 100:.2%}" in words
    assert "no better than guessing" not in words
    write_environment(run, data=describe(spec), own_models=True)
    each = [np.bincount(labels_of(tmp_path / "shards", one, "test")).max() for one in spec.silos]
    words = " ".join(Reader(write_report(run).read_text()).titles())
    assert f"most common class of each silo's own rows gives {sum(each) / 100:.2%}" in words
    told["answers"] = {"silos": {"intervals": {}}}
    hidden = {"privacy": {"noise": 1.0, "clip": 1.0, "delta": 1e-3, "evaluate_unprotected": True}}
    run = make_run(tmp_path / "private", [{"round": 1, **told, **silos(**{"0": 0.9})}], **hidden)
    words = " ".join(Reader(write_report(run).read_text()).titles())
    assert "what guessing gives is not known: a private run releases no counts of classes" in words


def test_spans_are_short():
    assert units.spans([1]) == "1"
    assert units.spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    assert units.spans(range(1, 40, 2)) == "1, 3, 5, 7, 9, 11, ..."


@pytest.mark.parametrize(("over", "said"), [(False, "was not reached yet."), (True, "was not reached.")])
def test_a_target_of_a_run_that_goes_on_may_still_be_reached(tmp_path, over, said):
    run = make_run(tmp_path, [record(n) for n in range(1, 5)], evaluate={"target_accuracy": 0.99})
    if over:
        (run / "model.safetensors").touch()
    assert verdict(read_run(run))[0].endswith(f"the target, 99%, {said}")


def test_privacy_is_told_over_silos_and_by_what_no_noise_protects():
    privacy = {"delta": 1e-5, "evaluate_unprotected": True}
    records = [
        {"round": n, "epsilon": 3.0, "epsilon_silos": {"a": 1.0, "b": 3.0}, "clipped_examples": share}
        for n, share in ((1, 0.9), (2, 0.5), (3, 0.25))
    ]
    summary = Summary(Path("run"), records, job={"privacy": privacy})
    said = spent(summary)
    assert "at most epsilon 3 at delta 1e-05 in 3 rounds" in said
    assert said.endswith("The silos' scores on their held-out rows are not protected by noise.")
    facts = {row[0].text: row[1].text for row in trust(summary, Names([])).blocks[1].rows}
    assert facts["clipped examples"] == "90.0% in round 1, 25.0% in round 3"
    assert facts["hidden"] == "whether any one example was added or removed"
    assert "Poisson sampling" in facts["batches"]
    of_silos = replace(summary, job={"privacy": {"level": "silo"}})
    assert "protected by noise" not in spent(of_silos)
    facts = {row[0].text: row[1].text for row in trust(of_silos, Names([])).blocks[1].rows}
    assert facts["hidden"] == "whether any one silo was added or removed"
    assert "batches" not in facts, "none are drawn"


def test_the_page_of_curves_has_them_and_asks_for_no_score():
    ends = {"rows": 9, "events": 4, "median_from": 7, "median": 7, "median_low": None, "median_high": None}
    curve = [{"from": 7.0, "time": 7.0, "survival": 0.5, "low": 0.2, "high": 0.8}]
    told = {"least": 1, "step": 1, "groups": [{"name": "<b>", "withheld": False, "curve": curve, **ends}]}
    told["groups"].append({"name": "few", "withheld": True})
    summary = Summary(
        Path("run"), [{"round": 1, "survival": told}], job={"algorithm": {"name": "kaplanmeier"}}
    )
    curves, groups, note = analysed(summary.records)
    assert (curves.title, groups.title) == ("Survival", "Groups")
    assert [row[0].text for row in groups.blocks[0].rows] == ["<b>", "few"]
    assert "is rounded up" in note.note
    first, median = verdict(summary, Names([]))
    assert first == "Survival of 9 rows in 1 group, with 4 events. 1 group with few events is withheld."
    assert median == "Median time: <b> 7 (95% interval not reached to not reached)."
