"""What `inspect` suggests of a folder that is yet to be trained on: by what is skewed more than by chance."""

import re
from dataclasses import replace

import numpy as np
import pytest
from pages import Reader

from data_prep.inspect import advice as module
from data_prep.inspect.advice import advice, by_chance
from data_prep.inspect.feature_moments import moments_of
from data_prep.inspect.heterogeneity import heterogeneity
from data_prep.inspect.page import page
from data_prep.inspect.summary import FolderSummary
from mpifl.algorithms import ALGORITHMS
from mpifl.data import Targets
from mpifl.data.shards.shards import Features, FederationSpec, ShardEntry

APART = [[90, 5, 5], [5, 90, 5], [5, 5, 90]]
"""Three silos that have a label each, nearly."""


def summary(counts, moments=None):
    silos = [
        ShardEntry(silo=k, name=f"clinic {k}", file=f"{k}.h5", examples={"train": sum(labels)}, labels=labels,
                   bytes=9, sha256="0" * 64)
        for k, labels in enumerate(counts)
    ]  # fmt: skip
    spec = FederationSpec(
        name="made up", features=Features(shape=(2,), dtype="float32"), classes=len(counts[0]), seed=4,
        scheme={"name": "iid"}, source={"name": "npz"}, silos=silos,
    )  # fmt: skip
    return FolderSummary(spec, np.array(counts), moments)


def taken(counts, **more):
    return [name for one in advice(summary(counts, **more)) for name in one.take.names]


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ([[50, 50], [52, 48]], ["fedavg"]),
        ([[70, 30], [30, 70]], ["fedprox", "fedavg"]),
        (APART, ["scaffold", "feddyn", "ditto", "fedper"]),
        (APART * 7, ['[server_optimizer] name = "adam"', "ditto", "fedper"]),
        ([[450, 450], [50, 50]], ['[cohort] weights = "uniform"', "fednova"]),
        ([[9, 1]], []),
    ],
    ids=["alike", "somewhat", "much, few silos", "much, many silos", "sizes", "one silo"],
)
def test_what_is_skewed_says_what_to_take(counts, names):
    assert taken(counts) == names


def test_features_that_differ_are_told_where_they_were_read():
    one, other = (moments_of(np.random.default_rng(0).normal(at, 1, (100, 2))) for at in (0, 3))
    assert taken([[50, 50], [50, 50]], moments=[one, one]) == ["fedavg"]
    assert taken([[50, 50], [50, 50]], moments=[one, other]) == ["fedbn"]


def values(*columns, dtype="float32", names=None):
    """What is said of two silos with so many columns of targets, each of a mean and a deviation."""
    drawn = np.random.default_rng(0).normal(size=(200, len(columns))) * [b for _, b in columns]
    drawn = np.round(drawn - drawn.mean(0) + [a for a, _ in columns], 6)
    made = summary([[50, 50], [50, 50]])
    targets = Targets(dtype=dtype, shape=(len(columns),), names=names)
    spec = made.spec.model_copy(update={"classes": None, "targets": targets})
    return [
        str(one)
        for one in advice(
            FolderSummary(spec, np.zeros((2, 0)), None, [moments_of(drawn[:100]), moments_of(drawn[100:])])
        )
    ]


def test_values_of_a_large_unit_are_to_be_learned_in_their_deviations():
    skew, said = values((150, 75))
    assert skew.startswith("The silos are similar in all that is shown here")
    told = r"Targets are far from 0 ± 1: \[task\] mean = 150 and deviation = (\d+\.\d\d) \(.*\)\."
    found = re.fullmatch(told, said)
    assert float(found[1]) == pytest.approx(75, rel=0.15)
    assert "[task] mean = [150, 1] and deviation = [" in values((150, 75), (1, 1))[1]
    assert "mean = 0 and" not in values((1, 0.01))[1]
    assert len(values((1, 1))) == len(values((150, 75), dtype="bool")) == 1
    (said,) = values((150, 75), (0.5, 0.5), names=("time", "event"))
    assert said.startswith("For the times until an event: cox or kaplanmeier (")


def test_a_table_of_few_columns_is_told_of_a_regression():
    alike, names = summary([[50, 50], [52, 48]]), ["age", "bmi"]
    table = {"feature_names": names}
    said, other = map(str, advice(replace(alike, spec=alike.spec.model_copy(update=table))))
    assert said.startswith("For coefficients of 2 features with standard errors: newton (logistic regression")
    assert other.startswith("The silos are similar")
    number = {**table, "classes": None, "targets": Targets(shape=(), dtype="float32")}
    counts = np.zeros((2, 0), np.int64)
    said, _ = map(str, advice(FolderSummary(alike.spec.model_copy(update=number), counts)))
    assert "newton (linear regression" in said
    for more in ({"classes": 3}, {"feature_names": [f"gene {at}" for at in range(300)]}):
        told = advice(replace(alike, spec=alike.spec.model_copy(update=table | more)))
        assert [one.take.names for one in told] == [("fedavg",)]


def test_small_silos_that_differ_by_chance_alone_are_not_called_skewed():
    draw = np.random.default_rng(0)
    counts = draw.multinomial(10, [0.1] * 10, size=200)
    moved = heterogeneity(counts).total_variation
    assert moved > 0.3
    assert by_chance(counts) == pytest.approx(moved, rel=0.1)
    assert taken(counts.tolist()) == ["fedavg"]


def test_all_that_is_named_is_there_to_be_named():
    offered = [one for one in vars(module).values() if isinstance(one, module.Take)]
    named = [name for take in offered for name in take.names]
    assert {name for name in named if not name.startswith("[")} <= set(ALGORITHMS)
    assert len(offered) == 12


def test_corrected_silos_are_said_to_take_a_lower_rate():
    assert "a lower local.lr than fedavg's" in str(advice(summary(APART))[0])


def test_the_page_says_what_is_found_and_why():
    words = " ".join(Reader(page(summary(APART))).titles())
    assert "Labels differ strongly: 57% of a silo's labels would have to move" in words
    assert "scaffold" in words
    assert "Rules of thumb" in words
    assert "Rules of thumb" not in page(summary([[9, 1]]))
