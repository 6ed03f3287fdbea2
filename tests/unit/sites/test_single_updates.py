"""Updates of single silos over sites: what a site that lies hands over costs its own silos alone."""

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

    def asked(self, question):
        found = super().asked(question)
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
        def asked(self, question):
            found = super().asked(question)
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
