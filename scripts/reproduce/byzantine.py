"""Karimireddy et al. 2022, "Byzantine-robust learning on heterogeneous datasets via bucketing"."""

from __future__ import annotations

import math
from statistics import mean

from mpifl.report.runs.run_summary import Summary
from mpifl.wings.attacks import FORGERIES
from mpifl.wings.attacks.colluding_attacks import usual_z
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
    ("Krum", 0.0): (
        (32.35, 31.53, 19.67),
        (0.96, 1.05, 1.07),
        (30.85, 44.37, 36.76),
        (34.77, 37.69, 38.33),
        (74.79, 83.97, 77.86),
    ),
    ("CM", 0.0): (
        (42.11, 27.24, 42.10),
        (31.02, 26.58, 49.12),
        (63.48, 68.30, 61.02),
        (53.01, 47.09, 50.70),
        (73.59, 81.14, 82.04),
    ),
    ("RFA", 0.0): (
        (70.18, 65.66, 70.39),
        (89.50, 91.18, 90.34),
        (77.87, 88.69, 70.24),
        (10.12, 24.39, 9.32),
        (89.93, 90.51, 58.53),
    ),
    ("CClip", 0.0): (
        (74.95, 75.48, 75.15),
        (90.07, 91.61, 91.10),
        (91.58, 91.47, 91.53),
        (91.70, 92.06, 91.70),
        (91.61, 90.73, 90.99),
    ),
    ("CClip", 0.9): (
        (97.80, 97.58, 97.56),
        (97.76, 97.51, 97.66),
        (97.90, 97.84, 97.60),
        (97.77, 97.55, 97.56),
        (98.19, 98.03, 97.91),
    ),
    ("RFA + s2", 0.0): (
        (85.28, 90.07, 87.53),
        (91.21, 92.00, 91.59),
        (91.06, 91.72, 90.73),
        (90.39, 91.17, 90.24),
        (91.63, 90.62, 91.28),
    ),
    ("RFA + s2", 0.9): (
        (97.02, 96.83, 96.47),
        (97.52, 97.37, 97.32),
        (97.24, 97.53, 96.65),
        (96.28, 95.92, 95.50),
        (97.29, 97.79, 79.91),
    ),
    ("CM + s2", 0.9): (
        (65.89, 62.53, 63.01),
        (69.53, 70.85, 71.28),
        (74.16, 79.73, 75.48),
        (59.63, 58.72, 59.49),
        (95.04, 32.62, 11.37),
    ),
}
"""Test accuracy in percent, mean of the last five evaluations, of their seeds 0, 1 and 2, by rule and worker
momentum, in the order of ATTACKS. Computed from the outputs of epfml/byzantine-robust-noniid-optimizer at
0e27349, exp3."""
EACH = (0, 1, 2)
"""The authors' seeds: the model has the first weights and the dropout masks of their run."""
SEEDS = {
    **{("CClip", beta, attack): EACH for beta in (0.0, 0.9) for attack in ATTACKS},
    ("RFA", 0.0, "ALIE"): EACH,  # of which one of the authors' falls far below the others
}
"""Of cells whose figures are means over several; others have the first alone."""
MIMICKED = {0: 14, 1: 17, 2: 1}
"""The silo that their liars mimic, by seed: `select` in their outputs."""
KRUM, RFA = "jobs.papers.byzantine:KrumOfFourthPowers", "jobs.papers.byzantine:RFAFromZero"
Z = -usual_z(25, 5) * math.sqrt(20 / 19)
"""Of ALIE over updates: the authors' lie is mean - z std of gradients, which point the other way. They divide
a variance by one less than there are silos."""
TAU, LR = 10.0, 0.01
"""Centered clipping's tau is TAU / (1 - beta) for gradients; an update is -LR times that."""


def _settings(rule: str, beta: float, attack: str) -> tuple[str, ...]:
    """Return what differs from the job's file."""
    base, _, buckets = rule.partition(" + ")
    table = {
        "Krum": (f'aggregation={{rule = "{KRUM}", byzantine = 5}}',),
        "CM": ('aggregation={rule = "median"}',),
        "RFA": (f'aggregation={{rule = "{RFA}"}}',),
        "CClip": (f"aggregation.tau={TAU * LR / (1 - beta):.6g}",),
    }[base]
    more = ('aggregation.pre="bucketing"',) if buckets else ()
    plain = () if beta else ("local.momentum=0.0", "local.keep_optimizer_state=false")
    kind = ATTACKS[attack]
    own = {"alie": (f"attack.z={Z:.6g}",)}.get(kind, ())
    if beta and kind in TRAINED:
        own = ("attack.keep_optimizer_state=false",)
    return (*table, *more, *plain, *own, f'attack.kind="{kind}"')


def _of_seed(seed: int, attack: str) -> tuple[str, ...]:
    """Return what a seed's run has of the authors' run of that seed."""
    mimicked = (f"attack.mimicked={MIMICKED[seed]}",) if attack == "mimic" else ()
    return (f"model.seed={seed}", *mimicked)


def _published(seeds: tuple[float, ...]) -> str:
    each = ", ".join(f"{figure:.2f}" for figure in seeds)
    return f"{percent([figure / 100 for figure in seeds], 2)} ({each})"


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
                _published(paper),
                IDLE if ATTACKS[attack] in FORGERIES else CUT,
                _settings(rule, beta, attack),
                seeds=SEEDS.get((rule, beta, attack), EACH[:1]),
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
