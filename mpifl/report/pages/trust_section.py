"""The section of a run's page that says what protects its silos, at what cost, and who lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpifl.common import Names
from mpifl.common.pages import Block, Fold, Said, Table
from mpifl.report.judging import WHY_FAR, WHY_LITTLE, edges_of_silos, weights_of_silos
from mpifl.report.observers import away_in, sites_of
from mpifl.report.runs import Summary, units
from mpifl.run.folder import number

MOST_SILOS = 200
KEYS = ("delta", "clip", "quantile", "noise", "accountant")
OF_MASKS = {
    "least": "fewest parties that a sum may have",
    "colluding": "share of parties that may collude",
    "range": "largest number of an update",
}
OF_EXAMPLES = "Epsilon covers this run alone. Each site keeps its own total over all runs."
OF_COUNTS = "The counts of rows and labels in federation.json are known to the server and are not protected."
OF_LABELS = (
    "Silos receive gradients, and gradient norms can reveal labels. The label leak says how well norms rank "
    "labels: 50% reveals none, 100% reveals all."
)
OF_SITES = ("letters_sent", "letters_received", "bytes_sent", "bytes_received", "away", "late")
UNITS = (1, 1, 1000, 1000, 1, 1)
"""What is counted of a site, and in units of how many."""
LABELS = {
    "none": "not protected",
    "max-norm": "noise hides the norms of gradients, without a guarantee",
    "label-dp": "randomised once, before training",
}
DRAWN = "each step draws each example by itself, all with the same chance (Poisson sampling)"
UNPROTECTED = " The silos' scores on their held-out rows are not protected by noise."
FAIR = 10
WEAK = (
    f" An epsilon above {FAIR} by itself protects little: up to 1 is strong and up to {FAIR} reasonable "
    "(Ponomareva et al. 2023, 'How to DP-fy ML')."
)
OF_SILOS = "Epsilon covers all that this run's server has released. Another run with these silos adds to it."


def trust(summary: Summary, names: Names, groups: str = "") -> Fold | None:
    """Return the section; None of a run without sites, whose job names nothing of privacy, security, rules
    and liars. `groups` says what an epsilon of one example is to groups of examples."""
    hidden = [*_masks(summary), *_privacy(summary, groups)]
    hidden += [Said(OF_COUNTS)] if hidden else []
    body = [*_liars(summary, names), *_sites(summary), *hidden, *_labels(summary)]
    rows = weights_of_silos(summary.records, summary.job.get("aggregation", {}).get("rule"), names)
    body += _listed(f"Weights of silos ({len(rows)})", ("weight (mean 1)", "not chosen"), rows, WHY_LITTLE)
    rows = edges_of_silos(summary.records, names)
    body += _listed(
        f"Values at the edges ({len(rows)})", ("values at the edges", "median of all"), rows, WHY_FAR
    )
    return Fold("Trust", body, opened=True) if body else None


def _liars(summary: Summary, names: Names) -> list[Block]:
    """Say which silos lie on purpose, and how, if any do."""
    attack = summary.job.get("attack")
    silos = attack.get("silos") if isinstance(attack, Mapping) else None
    if not isinstance(attack, Mapping) or not isinstance(silos, list) or not silos:
        return []
    who = names.listed([str(silo) for silo in silos[:MOST_SILOS]])
    how = ", ".join(f"{key} = {value}" for key, value in attack.items() if key != "silos")
    said = f"[attack] makes {who} LIE ON PURPOSE ({how}). Such a run is for tests."
    return [Said(said, "bad")]


def _listed(title: str, heads: tuple[str, str], rows: list[list[str]], why: str) -> list[Block]:
    """List what a rule found of each silo, if the run has such a rule, and `why` some are suspected."""
    table = Table.of(["silo", "rounds", *heads, ""], rows[:MOST_SILOS])
    suspects = [Said(why)] if any(row[-1] for row in rows) else []
    return [Said(title, "title"), *suspects, table] if rows else []


def _sites(summary: Summary) -> list[Block]:
    """List the sites of a run, their letters, in how many rounds each was away, and its late sums."""
    found: dict[str, list[float]] = {}
    for record in summary.records:
        for name, one in sites_of(record).items():
            count = found.setdefault(name, [0.0] * len(OF_SITES))
            for nth, key in enumerate(OF_SITES):
                count[nth] += number(one, key) or 0
            count[-2] += name in away_in(record)
            count[-1] += "late_round" in one
    rows = [
        [name, *(f"{n / unit:,.0f}" for n, unit in zip(counts, UNITS, strict=True))]
        for name, counts in [*found.items()][:MOST_SILOS]
    ]
    heads = ["site", "letters to it", "letters from it", "kB to it", "kB from it", "rounds away", "late sums"]
    return [Said(f"Sites ({len(found)})", "title"), Table.of(heads, rows)] if rows else []


def _masks(summary: Summary) -> list[Block]:
    """Say how sums were hidden, if they were."""
    security = summary.job.get("security")
    if not isinstance(security, Mapping) or not security.get("masks"):
        return []
    told = [int(n) for record in summary.records if (n := number(record, "parties")) is not None]
    whose = "the server saw only the sum over all parties; a party is a rank or a site, with its silos"
    facts = [["sums", f"masked: {whose}"]]
    ends = dict.fromkeys(map(str, sorted(told)[:: max(len(told) - 1, 1)]))
    facts += [["parties", " to ".join(ends)]] if told else []
    facts += [
        [said, units.written(security, key, "{:.3g}".format)]
        for key, said in OF_MASKS.items()
        if key in security
    ]
    return [Table.of([], facts)]


def _privacy(summary: Summary, groups: str) -> list[Block]:
    """Say what differential privacy protected, and what that cost, if there was any."""
    privacy = summary.job.get("privacy")
    if not isinstance(privacy, Mapping):
        return []
    counted = [record for record in summary.records if number(record, "epsilon") is not None]
    last: Mapping[str, Any] = counted[-1] if counted else {}
    of_silos, final = privacy.get("level") == "silo", summary.records[-1]
    whose = "silo" if of_silos else "example"
    facts = [["protected", _protected(privacy)], ["hidden", f"whether any one {whose} was added or removed"]]
    facts += [["batches", DRAWN]] if not of_silos and "noised" not in final else []
    facts += [["epsilon", units.written(last, "epsilon", "{:.4f}".format)]]
    facts += [[key, str(privacy[key])] for key in KEYS if key in privacy]
    facts += [["budget", f"epsilon {privacy['epsilon']}"]] if "epsilon" in privacy else []
    of_what = "noise on a round's mean" if of_silos else "noise on a step"
    facts += [[of_what, units.written(final, "noise_std", "{:.4g}".format)]]
    facts += [["clip of the last round", units.written(final, "clip_norm", "{:.4g}".format)]]
    facts += [["clipped updates", _first_and_last(summary, "clipped")]] if of_silos else []
    facts += [["clipped examples", _first_and_last(summary, "clipped_examples")]]
    facts += [["rounds left", units.written(final, "budget_left", "{:.0f}".format)]]
    each = last.get("epsilon_silos") or {}
    rows = [[str(name), units.written(each, name, "{:.4f}".format)] for name in list(each)[:MOST_SILOS]]
    said = OF_SILOS if of_silos else OF_EXAMPLES
    said += f" {groups[:1].upper()}{groups[1:]}." if groups and not of_silos else ""
    body: list[Block] = [Said(said), Table.of([], [fact for fact in facts if fact[1]])]
    return [*body, Table.of(["silo", "epsilon"], rows)] if rows else body


def _first_and_last(summary: Summary, key: str) -> str:
    """Write a share in the first and in the last round that tell it; "" of none."""
    told = [(r["round"], value) for r in summary.records if (value := number(r, key)) is not None]
    ends = dict([*told[:1], *told[-1:]])
    return ", ".join(f"{value:.1%} in round {at:,}" for at, value in ends.items())


def spent(summary: Summary) -> str:
    """Say what privacy a run has spent, of which budget, in how many rounds; "" without `[privacy]`."""
    privacy = summary.job.get("privacy")
    if not isinstance(privacy, Mapping) or summary.epsilon is None:
        return ""
    budget = number(privacy, "epsilon")
    of = "no budget was set" if budget is None else f"of a budget of {budget:g}"
    left = number(summary.records[-1], "budget_left")
    more = f"; it is enough for {left:,.0f} more rounds" if left and budget is not None else ""
    delta = number(privacy, "delta")
    at = "" if delta is None else f" at delta {delta:g}"
    joined = f"; {of}" if budget is None else f", {of}"
    rounds = f"{summary.rounds:,} round{'s' * (summary.rounds > 1)}"
    whose = "silo" if privacy.get("level") == "silo" else "example"
    said = f"Each {whose} has spent at most epsilon {summary.epsilon:.4g}{at} in {rounds}{joined}{more}."
    loud = UNPROTECTED * (privacy.get("evaluate_unprotected") is True)
    return said + loud + WEAK * (summary.epsilon > FAIR)


def _labels(summary: Summary) -> list[Block]:
    """Say how labels of a split network were protected, and what gradients told of them all the same."""
    vertical = summary.job.get("split")
    if not isinstance(vertical, Mapping):
        return []
    leaks = [leak for record in summary.records if (leak := number(record, "norm_leak_auc")) is not None]
    protect = str(vertical.get("protect", "none"))
    facts = [
        ["labels", LABELS.get(protect, "")],
        ["epsilon of a label", units.written(vertical, "epsilon", "{:.3g}".format)],
    ]
    if leaks:
        facts += [["label leak in the last round", f"{leaks[-1]:.2%}"]]
        facts += [["highest label leak", f"{max(leaks):.2%}"]]
    return [Said(OF_LABELS), Table.of([], [fact for fact in facts if fact[1]])]


def _protected(privacy: Mapping[str, Any]) -> str:
    whose = "each silo" if privacy.get("level") == "silo" else "each example"
    where = {
        "silo": "by noise at the silo",
        "server": "by noise at the server",
        "sum": "by noise in the masked sum",
    }
    return f"{whose}, {where.get(str(privacy.get('noise_at', 'silo')), '')}"
