"""The wing for `[attack]`: some silos attack the training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.run.job import Job
from mpifl.run.job.tables import AttackSettings
from mpifl.sums import MakesAggregator
from mpifl.training import Wing
from mpifl.transforms import Transform
from mpifl.wings.attacks.attacks import Lying
from mpifl.wings.attacks.backdoor import SUCCESS, Backdoor
from mpifl.wings.attacks.colluding_attacks import FORGERIES, Forging
from mpifl.wings.robust import Combining


class Attacking(Wing):
    """Make some silos Byzantine, as `[attack]` says.

    Args:
        settings: The table.
        seed: The job's seed.
        is_mean: Whether updates are combined by the mean.
    """

    def __init__(self, settings: AttackSettings, seed: int = 0, *, is_mean: bool = True) -> None:
        self._settings, self._seed, self._is_mean = settings, seed, is_mean

    @property
    def backdoor(self) -> Backdoor | None:
        """The backdoor of an attack of this kind, else None."""
        of = self._settings
        if of.kind != "backdoor":
            return None
        value = 1.0 if of.value is None else of.value
        return Backdoor(of.target or 0, of.patch or 3, value, of.share or 0.5)

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that the named silos exist, and that the attack fits the task, the data and the rule.

        Raises:
            InputError: a silo does not exist, or the attack does not fit.
        """
        of, silos = self._settings, len(spec.silos)
        key = f"[attack] kind = '{of.kind}'"
        named = {"silos": of.silos, "mimicked": [] if of.mimicked is None else [of.mimicked]}
        for name, given in named.items():
            if beyond := [silo for silo in given if silo >= silos]:
                what = f"there is no silo {beyond[0]}, the last is {silos - 1}"
                raise InputError(f"[attack] {name} = {getattr(of, name)}: {what}")
        if of.kind == "label_flip" and spec.classes is None:
            raise InputError(f"{key}: the targets are no classes; use another kind")
        if self.backdoor and (why := self.backdoor.why_not(spec, algorithm.task)):
            raise InputError(f"{key}: {why}; use another kind")
        if of.kind in FORGERIES and self._is_mean:
            why = "is written over single vectors, which the mean does not keep"
            raise InputError(f"{key}: {why}; use another [aggregation] rule")

    def transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return the attack that Byzantine silos carry out themselves, if it is of such a kind."""
        of = self._settings
        if of.kind in FORGERIES:
            return []
        sizes = {"gaussian": of.std or 1.0, "scale": of.factor or 10.0, "backdoor": of.factor or 1.0}
        size = sizes.get(of.kind, 1.0)
        anew = of.keep_optimizer_state is False
        liars = frozenset(of.silos)
        return [
            Lying(
                kind=of.kind,
                silos=liars,
                size=size,
                seed=self._seed,
                classes=spec.classes or 0,
                backdoor=self.backdoor,
                anew=anew,
            )
        ]

    def aggregated(self, rule: MakesAggregator | None, algorithm: Algorithm) -> MakesAggregator | None:
        """Return the rule. For a colluding attack it first overwrites the vectors of Byzantine silos."""
        of = self._settings
        if not isinstance(rule, Combining) or of.kind not in FORGERIES:
            return rule
        how = of.z, of.epsilon or 0.1, of.direction or "std", of.mimicked
        return replace(rule, forge=Forging(of.kind, frozenset(of.silos), *how))

    def figures(self, server: Server) -> dict[str, float]:
        """Return the success rate of the backdoor, if there is one."""
        if self.backdoor is None or not server.judges:
            return {}
        return {SUCCESS: self.backdoor.success(server)}


def wing(job: Job) -> Wing:
    """Return the wing for a job's `[attack]`."""
    return Attacking(job.attack, job.seed, is_mean=job.aggregation.is_mean)
