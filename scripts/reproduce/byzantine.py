"""Karimireddy et al. 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing"."""

from __future__ import annotations

import math
from statistics import mean

from mpifl.aggregation import FORGERIES
from mpifl.aggregation.forging import usual_z
from mpifl.report.runs import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import percent

LAST = 5
"""Evaluations over which the published figures are means."""
CUT, IDLE = (
    Cut(
        f"byzantine-mnist{suffix}",
        *(
            f"jobs.papers.byzantine:examples --scheme natural --option source={source} --option liars={liars}"
            for source in ("mnist", "digits")
        ),
    )
    for suffix, liars in (("", "learning"), ("-idle", "idle"))
)
"""Where all liars' updates are written over, what these learn makes no difference, but takes its time."""
TRAINED = {"sign_flip", "label_flip"}
"""What the authors' liars make of gradients of their own, without worker momentum."""
ATTACKS = {"BF": "sign_flip", "LF": "label_flip", "mimic": "mimic", "IPM": "ipm", "ALIE": "alie"}
PUBLISHED = {
    ("Krum", 0.0): ("27.9 ± 7.1", "1.0 ± 0.1", "37.3 ± 6.8", "36.9 ± 1.9", "78.9 ± 4.7"),
    ("CM", 0.0): ("37.2 ± 8.6", "35.6 ± 12", "64.3 ± 3.7", "50.3 ± 3.0", "78.9 ± 4.6"),
    ("RFA", 0.0): ("68.8 ± 2.7", "90.3 ± 0.8", "78.9 ± 9.3", "14.6 ± 8.5", "79.7 ± 18"),
    ("CClip", 0.0): ("75.2 ± 0.3", "90.9 ± 0.8", "91.5 ± 0.1", "91.8 ± 0.2", "91.1 ± 0.5"),
    ("CClip", 0.9): ("97.65 ± 0.13", "97.64 ± 0.12", "97.78 ± 0.16", "97.63 ± 0.13", "98.04 ± 0.14"),
    ("RFA + s2", 0.0): ("87.6 ± 2.4", "91.6 ± 0.4", "91.2 ± 0.5", "90.6 ± 0.5", "91.2 ± 0.5"),
    ("RFA + s2", 0.9): ("96.8 ± 0.3", "97.4 ± 0.1", "97.1 ± 0.5", "95.9 ± 0.4", "91.7 ± 10"),
    ("CM + s2", 0.9): ("63.8 ± 1.8", "70.6 ± 0.9", "76.5 ± 2.9", "59.3 ± 0.5", "46 ± 43"),
}
"""Test accuracy in percent, mean of the last five evaluations, three seeds (computed from the outputs of
epfml/byzantine-robust-noniid-optimizer, exp3), by rule and worker momentum, in the order of ATTACKS."""
SEEDS = {"CClip": (0, 1, 2)}
"""Of cells whose figures are means over several; others have one. They are the authors': the model has the
first weights and the dropout masks of their run."""
MIMICKED = {0: 14, 1: 17, 2: 1}
"""The silo that their liars mimic, by seed: `select` in their outputs."""
KRUM = "jobs.papers.byzantine:KrumOfFourthPowers"
Z = -usual_z(25, 5) * math.sqrt(20 / 19)
"""Of ALIE over updates: the authors' lie is mean - z std of gradients, which point the other way. They divide
a variance by one less than there are silos."""
TAU, LR = 10.0, 0.01
"""Centered clipping's tau is TAU / (1 - beta) for gradients; an update is -LR times that."""


def _settings(rule: str, beta: float, attack: str) -> tuple[str, ...]:
    """Return what differs from the job's file."""
    base, _, buckets = rule.partition(" + ")
    table = {
        "Krum": (f'aggregation={{rule = "{KRUM}", tolerate = 5}}',),
        "CM": ('aggregation={rule = "median"}',),
        "RFA": (f'aggregation={{rule = "rfa", nu = {0.1 * LR}, iterations = 8}}',),
        "CClip": (f"aggregation.tau={TAU * LR / (1 - beta):.6g}",),
    }[base]
    more = ('aggregation.pre="bucketing"',) if buckets else ()
    plain = () if beta else ("local.momentum=0.0", "local.keep_optimizer=false")
    kind = ATTACKS[attack]
    own = {"alie": (f"attack.z={Z:.6g}",)}.get(kind, ())
    if beta and kind in TRAINED:
        own = ("attack.keep_optimizer=false",)
    return (*table, *more, *plain, *own, f'attack.kind="{kind}"')


def _of_seed(seed: int, attack: str) -> tuple[str, ...]:
    """Return what a seed's run has of the authors' run of that seed."""
    mimicked = (f"attack.mimicked={MIMICKED[seed]}",) if attack == "mimic" else ()
    return (f"model.seed={seed}", *mimicked)


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the mean test accuracy of the last evaluations, over the runs' seeds."""
    found = []
    for run in runs:
        scored = [a for record in run.records if (a := record.get("test_accuracy")) is not None]
        found.append(mean(scored[-LAST:]) if scored else 0.0)
    return (percent(found, 2),)


TABLES = {
    "byzantine-mnist": Table(
        "Karimireddy et al. 2022, MNIST sorted by label: 25 silos of which 5 lie, 600 rounds, test accuracy",
        "byzantine-mnist.toml",
        tuple(
            Cell(
                f"{rule}, beta = {beta:g}, {attack}",
                paper,
                IDLE if ATTACKS[attack] in FORGERIES else CUT,
                _settings(rule, beta, attack),
                seeds=SEEDS.get(rule, (0,)),
                of_seeds={seed: _of_seed(seed, attack) for seed in MIMICKED},
            )
            for (rule, beta), papers in PUBLISHED.items()
            for attack, paper in zip(ATTACKS, papers, strict=True)
        ),
        ("last evaluations %",),
        figures,
        quick=("evaluate.every=1",),
        published="the authors' outputs",
    )
}
