"""The wing for an `[aggregation] rule` other than the mean."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError, load_plugin
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.exchange import Federation
from mpifl.run.job.tables import OF_RULES, RULE_NAMES, AggregationSettings
from mpifl.sums import Aggregator, MakesAggregator
from mpifl.training import Wing
from mpifl.transforms import STATISTICS, Transform
from mpifl.wings.robust.column_rules import Rule, rule_of
from mpifl.wings.robust.column_rules_run import memory_of
from mpifl.wings.robust.column_slices import Forger
from mpifl.wings.robust.mixing import NNM
from mpifl.wings.robust.server_reference import reference_of
from mpifl.wings.robust.weighing import Weighing
from mpifl.wings.robust.weight_rules import WEIGHT_RULES, WeightRule, tolerated
from mpifl.wings.robust.weight_rules_run import aggregator_of
from mpifl.wire import Memory


@dataclass(frozen=True)
class Combining:
    """The rule of a job, and where the vectors of silos are kept.

    Attributes:
        disk_buffer: The folder for the vectors; None for memory.
        forge: The attack that overwrites vectors before the rule sees them, if there is one.
    """

    rule: Rule | Weighing
    disk_buffer: str | None
    forge: Forger | None = None

    def aggregator(self, memory: Memory) -> Aggregator:
        """Return this rank's aggregator of training updates.

        Raises:
            InputError: no files can be made in the folder.
        """
        return aggregator_of(self.rule, self.disk_buffer, memory, self.forge)


class Robust(Wing):
    """Combines updates by a rule that needs each silo's vectors."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that a round asks enough silos for the rule, and that a user's rule works.

        Raises:
            InputError: silos are too few, the user's rule fails, or the algorithm needs the mean.
        """
        silos = len(spec.silos)
        asked, rule = self._job.cohort.size(silos), self._rule(algorithm)
        self._check_share(asked)
        if needs := rule.among(asked).needs(asked):
            raise InputError(f"{needs} silos in a round, and a round asks {asked} of {silos}")
        rule.try_out(asked)

    def last_transforms(self, spec: AnySpec, algorithm: Algorithm, run: Path) -> list[Transform]:
        """Return the transform that sends the rule's reference for updates, if the rule has one."""
        assert isinstance(spec, FederationSpec)
        trains = algorithm.local, algorithm.objective, algorithm.why_unlike_fedavg()
        return reference_of(self._rule(algorithm), *trains, public=spec.public is not None)

    def aggregated(self, rule: MakesAggregator | None, algorithm: Algorithm) -> Combining:
        """Return the rule as what makes the aggregator."""
        return Combining(self._rule(algorithm), self._job.aggregation.disk_buffer)

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Return a line on the memory that the rule needs."""
        hosted = [len(silos) for silos in exchange.membership.placed.values()]
        asked, length = self._job.cohort.size(sum(hosted)), len(server.model.shared)
        return [memory_of(hosted, asked, length, self._job.aggregation.disk_buffer)]

    def _rule(self, algorithm: Algorithm) -> Rule | Weighing:
        job = self._job
        if why := algorithm.needs_mean or ("both sides add up its vectors" if algorithm.accumulated else ""):
            what = f"'{job.algorithm['name']}' needs the mean: {why}"
            to_do = "use 'mean', or 'fedavg'"
            raise InputError(f"[aggregation] rule = '{job.aggregation.rule}': {what}; {to_do}")
        return built(job.aggregation, job.seed, algorithm.absolute | {STATISTICS})

    def _check_share(self, asked: int) -> None:
        byzantine = self._job.aggregation.byzantine
        if isinstance(byzantine, float) and not tolerated(byzantine, asked):
            what = f"of the {asked} silos that a round asks that is none"
            enough = math.ceil(1000 / asked) / 1000
            raise InputError(f"[aggregation] byzantine = {byzantine:g}: {what}; use {enough:g} or more")


wing = Robust


def built(table: AggregationSettings, seed: int = 0, apart: frozenset[str] = frozenset()) -> Rule | Weighing:
    """Return the rule of a table; it must not be the mean.

    Args:
        table: The job's `[aggregation]`.
        seed: The job's seed, from which buckets are drawn.
        apart: Names of vectors of an update that are not changes of the model.

    Raises:
        InputError: there is no such function or class.
    """
    plugin = load_plugin(table.rule, "[aggregation] rule", RULE_NAMES) if ":" in table.rule else None
    weights = _by_weights(table, plugin)
    if weights is None and table.pre == "none":
        return rule_of(table.rule, table.byzantine, plugin)
    columns = functools.partial(rule_of, table.rule, plugin=plugin) if weights is None else None
    return Weighing(
        name=table.rule,
        weights=weights,
        columns=columns,
        byzantine=table.byzantine,
        pre=table.pre,
        size=table.s or 2,
        seed=seed,
        apart=apart,
    )


def _by_weights(table: AggregationSettings, plugin: Any) -> WeightRule | None:
    """Return the rule by weights; None for a rule of columns."""
    own = inspect.isclass(plugin) and issubclass(plugin, WeightRule)
    kind = plugin if own else WEIGHT_RULES.get(table.rule)
    unasked = table.byzantine is not None and not (own and plugin.tolerates) and table.pre != NNM
    if plugin is not None and unasked:
        raise InputError(f"[aggregation] byzantine = {table.byzantine}: '{table.rule}' does not ask for it")
    if kind is None:
        return None
    fields = [field.name for field in dataclasses.fields(kind)]
    given = {key: getattr(table, key) for key in fields if key in OF_RULES}
    try:
        made: WeightRule = kind(**{key: value for key, value in given.items() if value is not None})
    except TypeError as error:
        why = f"{error}; give its fields defaults"
        raise InputError(f"[aggregation] rule = '{table.rule}': {why}") from None
    return made
