"""Write docs/reference/fits.md from the tables of what goes with what: python -m scripts.fits"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mpifl.algorithms import ALGORITHMS, Algorithm
from mpifl.run.job.fits import FITS
from mpifl.silo.steps import LOCAL

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "fits.md"
WAYS = {
    "usual": "any training",
    "compile": "`[local] compile = true`",
    "batch_silos": "`[local] batch_silos = true`",
    "private": '`[privacy]` of examples, `level = "example"`',
    "silo": '`[privacy]` of silos, `level = "silo"`',
    "sum": '`[privacy]` of examples with `noise_at = "sum"`; `private`, `sums` and `masks` hold as well',
    "sums": "`[security]`, with masks or without",
    "masks": "`[security] masks`; `sums` holds as well",
    "split": "`[split]`, a split network",
    "rule": "`[aggregation] rule`, any but the mean",
    "late": '`[cohort] late = "next"`, over sites',
    "fedsgd": "the algorithms `fedsgd`, `qfedsgd` and `ifcasgd`",
    "qffl": "the algorithms `qfedavg` and `qfedsgd`",
    **{
        name: f"the algorithm `{name}`"
        for name in ("fsvrg", "scaffold", "fednova", "ditto", "fedsam", "fedrep")
    },
    "clock": "`[clock]`, with any algorithm",
    "asynchronous": "the algorithms `fedasync`, `fedbuff` and `fedcompass`; `clock` holds as well",
    "paired": "the algorithms `pfedme` and `apfl`",
}
"""What the columns stand for; `plain` is none that a job could ask for."""
MARKS = {"+": "yes", "-": "no", ".": "no use", "~": "other step", "=": "see"}
HEAD = """# What goes with what

`python -m scripts.fits` writes this page from the tables by which jobs are checked.
A job that asks for what does not go together is refused, with a line that says what would do.

| cell | means |
|---|---|
| yes | the key is honoured |
| values | it is honoured with these values alone; `own` is code of your own, `number` any number |
| no | the key is refused, unless it has its default |
| no use | the key has no effect there, and a line says so |
| other step | the plain step takes the place of the compiled or batched one, and a line says so |
| see | the column of the key itself tells it, or the table of algorithms, or the task |

Values behind "no use" are those that are not refused. Values behind "other step" are those that are honoured.
"""
ABOUT = {
    "rule": lambda one: one.needs_mean or one.accumulated,
    "clip": lambda one: one.why_not_clipped(),
    "augment": lambda one: one.why_not_augmented(),
    "private": lambda one: one.why_not_private(),
    "silo": lambda one: one.why_not_noised(),
    "clock": lambda one: one.why_not_clocked(),
}


def cell_of(cell: str) -> str:
    """Return a cell in words."""
    mark, values = (cell[0], cell[1:]) if cell[0] in MARKS else ("", cell)
    values = values.replace("False", "false")
    listed = ", ".join(f"`{value}`" for value in values.replace("wide", "fp32|tf32|bf16").split("|") if value)
    return f"{MARKS[mark]}: {listed}" if mark and listed else listed or MARKS[mark]


def table(ways: list[str], cells: Mapping[str, Mapping[str, str]]) -> str:
    """Return the keys that some way does not just honour as a Markdown table; those alike are in one row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for key in cells["usual"]:
        of_key = tuple(cells[way][key] for way in ways)
        if {*of_key} != {"+"}:
            alike.setdefault((key.rpartition(".")[0], *of_key), []).append(f"`{key}`")
    lines = [["key", *ways], ["---"] * (len(ways) + 1)]
    lines += [[", ".join(keys), *map(cell_of, of_key)] for (_, *of_key), keys in alike.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def honoured(cells: Mapping[str, Mapping[str, str]]) -> str:
    """Return the keys that go with all ways, a line a table."""
    found: dict[str, list[str]] = {}
    for key in (key for key in cells["usual"] if all(cells[way][key] == "+" for way in cells)):
        found.setdefault(key.rpartition(".")[0], []).append(f"`{key}`")
    return "".join(f"- {', '.join(keys)}\n" for keys in found.values())


def algorithms() -> str:
    """Return what goes with each algorithm as it is by default."""
    lines = [["algorithm", *ABOUT], ["---"] * (len(ABOUT) + 1)]
    for name, kind in ALGORITHMS.items():
        made: Algorithm = kind(personal=["head.*"]) if name in ("fedper", "fedrep") else kind()
        split = made.layout == "vertical"
        said = ["no" if split or why(made) else "yes" for why in ABOUT.values()]
        lines.append([f"`{name}`", *said])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """Return the page."""
    others = {
        way: {key: cell for key, cell in cells.items() if not key.startswith("local.")}
        for way, cells in FITS.cells.items()
    }
    local = [way for way in LOCAL.cells if way not in ("usual", "plain")]
    rest = [way for way in others if way != "usual"]
    parts = [HEAD, "## Ways\n", "| column | stands for |\n|---|---|"]
    parts[-1] += "".join(f"\n| {way} | {text} |" for way, text in WAYS.items() if way != "usual") + "\n"
    parts += ["## Keys of `[local]`\n", table(local, LOCAL.cells)]
    parts += ["These go with all:\n", honoured({way: LOCAL.cells[way] for way in ("usual", *local)})]
    parts += ["## Keys of all other tables\n", table(rest, others)]
    parts += ["These go with all:\n", honoured(others)]
    parts += ["## Algorithms\n", "Each with its own keys as they are by default.\n", algorithms()]
    parts += [
        "`rule` is any `[aggregation] rule` but the mean, `clip` is `[aggregation] clip`, and `augment` is "
        "`[data] augment`.\n"
        'With `noise_at = "sum"` and `level = "example"`, `fedsgd` is the one that goes.\n'
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
