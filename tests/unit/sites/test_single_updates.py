"""What a site hands over of single silos: a lie costs its own silos alone, and what it withholds is told."""

import dataclasses

import pytest
import torch
from unit.builders import Alone
from unit.sites.test_questions import Here, bits, folders, made  # noqa: F401

from mpifl.run.folder import read_metrics
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.sites.coordinating import coordinators

MEDIAN = {"aggregation": {"rule": "median"}, "cohort": {"quorum": 0.5}}
QSGD = {"compression": {"upload": "qsgd", "bits": 4}, "cohort": {"quorum": 0.5}}


def of(came, silo, vector):
    return {**came.singles, (silo, "delta"): vector}


LIES = {
    "other elements": (MEDIAN, lambda came: of(came, 2, torch.zeros(3)), {"2"}),
    "not a number": (MEDIAN, lambda came: of(came, 2, came.singles[2, "delta"] * torch.nan), {"2"}),
    "beyond float32": (MEDIAN, lambda came: of(came, 2, came.singles[2, "delta"].double() + 1e300), {"2"}),
    "a payload": (MEDIAN, lambda came: of(came, 2, torch.zeros(9, dtype=torch.uint8)), {"2"}),
    "a short payload": (QSGD, lambda came: of(came, 2, came.singles[2, "delta"][:-1]), {"2"}),
    "one too few": (MEDIAN, lambda came: {k: v for k, v in came.singles.items() if k[0] != 2}, {"2", "4"}),
    "another silo's": (MEDIAN, lambda came: of(came, 0, torch.zeros(3)), {"2", "4"}),
}


class Lying(Here):
    """Site west hands over something else in round 2."""

    def __init__(self, folder, job, lie):
        super().__init__(folder, job)
        self.lie = lie

    def came(self, question):
        found = super().came(question)
        if question.request.round == 1 and getattr(question.request, "work", "") == "train":
            west = found["west"]
            found["west"] = dataclasses.replace(west, singles=self.lie(west))
        return found


@pytest.mark.parametrize("name", LIES)
def test_what_cannot_be_used_costs_its_silos_and_no_other(made, tmp_path, name):  # noqa: F811
    tables, lie, costs = LIES[name]
    job = made(**tables)
    here = Lying(tmp_path / "sites", job, lie)
    wings = lambda job: coordinators(job, wings_of(job), here)  # noqa: E731
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings)
    faults = [record["faults"] for record in read_metrics(tmp_path / "run")]
    assert [{*one} for one in faults] == [set(), costs, set(), set()]


@pytest.mark.parametrize("tables", [MEDIAN, {}], ids=["singles", "sums"])
def test_sums_and_single_updates_are_not_taken_for_each_other(made, tmp_path, tables):  # noqa: F811
    job = made(**{"cohort": {"quorum": 0.5}, **tables})

    class Other(Here):
        def came(self, question):
            found = super().came(question)
            if getattr(question.request, "work", "") == "train":
                west, sum_ = found["west"], torch.zeros(3, dtype=torch.float64)
                more = (
                    {"sums": [("delta", 0)], "vectors": [sum_]}
                    if tables
                    else {"singles": {(2, "delta"): sum_}}
                )
                found["west"] = dataclasses.replace(west, **more)
            return found

    here = Other(tmp_path / "sites", job)
    wings = lambda job: coordinators(job, wings_of(job), here)  # noqa: E731
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings)
    for record in read_metrics(tmp_path / "run"):
        assert {*record["faults"]} == {"2", "4"}
        assert "are asked for" in record["faults"]["2"]


class Withholding(Here):
    """Site west tells no train_loss after the first round, as its consent may have it."""

    def came(self, question):
        found = super().came(question)
        if question.request.round and getattr(question.request, "work", "") == "train":
            report = found["west"].report
            headers = [one.model_copy(update={"scalars": {}}) for one in report.headers]
            report = report.model_copy(update={"headers": headers})
            found["west"] = dataclasses.replace(found["west"], report=report)
        return found


def test_a_mean_without_a_sites_numbers_tells_over_how_many_silos_it_is(made, tmp_path, capfd):  # noqa: F811
    job = made()
    here = Withholding(tmp_path / "sites", job)
    wings = lambda job: coordinators(job, wings_of(job), here)  # noqa: E731
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings)
    told = [record.get("means_over", {}) for record in read_metrics(tmp_path / "run")]
    assert told == [{}, *[{"train_loss": 3}] * 3]
    line = "train_loss is the mean over 3 of 5 silos; the others withhold it, or have none"
    assert capfd.readouterr().err.count(line) == 1
