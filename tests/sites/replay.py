"""A run over sites with late sums, made again in one process from what its records say."""

from __future__ import annotations

from pathlib import Path

import torch
from unit.builders import Alone
from unit.sites.test_questions import Here

from mpifl.run.folder import checkpoint, read_metrics
from mpifl.run.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.sites.coordinator_wing import Coordinator
from mpifl.wings.sites.late import LateAnswer
from mpifl.wings.sites.site_member import others_of


class Replayed(Here):
    """Asks sites in this process, which answer in the rounds in which they did, or as late as they did."""

    def __init__(self, folder, job, sites, records):
        super().__init__(folder, job, away=self._away, sites=sites)
        self._told, self._missed, self._round = {one["round"] - 1: one for one in records}, {}, 0

    def _away(self, site, request):
        trains = getattr(request, "work", "") == "train"
        return trains and str(min(self.silos[site])) in self._told[request.round]["faults"]

    def came(self, question):
        found = super().came(question)
        self._round = question.request.round
        vectors = {name: one.clone() for name, one in question.vectors.items()}
        away = [site for site, one in found.items() if one == "away"]
        self._missed |= {
            (site, self._round): (question.request, vectors, question.base[site]) for site in away
        }
        return found

    def missed(self, round):
        return {site: of for site, of in self._missed if of == round}

    def late(self, waiting):
        told, found = self._told[self._round]["sites"], {}
        for site in waiting:
            if (round := told.get(site, {}).get("late_round")) is not None:
                request, vectors, base = self._missed[site, int(round) - 1]
                answer = self.answer(site, request, vectors, base)
                of = request.round, sorted(base), len(request.cohort), ""
                found[site] = LateAnswer(request.round, *of, answer)
        return found


def replayed(folder: Path, job: Path, sites, run: Path) -> bool:
    """Return whether the last checkpoint of a run has the bits that its records lead to."""
    last, given = max(checkpoint.committed(run)), read_job(job)
    quiet = given.tracking.model_copy(update={"console": False})
    given = given.model_copy(update={"rounds": last, "tracking": quiet})
    again = Replayed(folder / "sites", given, sites, read_metrics(run))
    wings = lambda job: [*others_of(wings_of(job)), Coordinator(job, again)]  # noqa: E731
    train(given, folder / "run", (), False, Alone(), wings_of=wings)
    one, other = (checkpoint.read(at, last)[0]["w"] for at in (run, folder / "run"))
    return torch.equal(one, other)
