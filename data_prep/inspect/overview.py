"""The terminal's picture of a shard folder:
a table with a bar and a label histogram a silo, and what it amounts to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Console, JustifyMethod
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from data_prep.inspect import advice
from data_prep.inspect.feature_moments import target_columns
from data_prep.inspect.summary import FEATURE_HEADS, FolderSummary, Measure, title_of
from mpifl.common import visible
from mpifl.data.shards import SPLITS, FederationSpec, ShardEntry, VerticalSpec

MOST_ROWS = 40
MOST_COLUMNS = 32  # of a label histogram; more classes than that share columns
MOST_TARGETS = 3  # columns of targets that have a column each
WIDEST_NAME = 36
MOST_NAMES = 12  # of classes or features in a line
BAR = 12
BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*#@"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def show(summary: FolderSummary, console: Console, *, everything: bool = False) -> None:
    """Print what every silo holds, the totals, and how much the silos differ."""
    spec = summary.spec
    console.print(shown(f"{spec.name}: {summary.title}", style="bold"))
    console.print(_table(summary, console, everything))
    if hidden := len(spec.silos) - len(chosen_rows(len(spec.silos), everything)):
        console.print(shown(f"{hidden} silos are left out; --all shows them."))
    targets = [name for names in target_columns(spec).values() for name in names]
    for what, names in (
        ("Labels, from the left" if summary.labelled else "Tokens", spec.class_names),
        ("Features", spec.feature_names),
        ("Targets", targets),
    ):
        if names:
            console.print(shown(f"{what}: {first_of(names)}"))
    if features := summary.feature_rows():
        console.print(_features(features, everything))
    console.print(shown(totals(spec)))
    if told := grouped(spec):
        console.print(shown(told))
    console.print(_measures(summary))
    for one in advice.advice(summary):
        console.print(shown(str(one)))


def shown(text: str, style: str = "") -> Text:
    """Return a text for the terminal; others wrote the names in it."""
    return Text(visible(text), style)


def first_of(names: Sequence[str]) -> str:
    """Return names, or the first of many and how many there are."""
    first = ", ".join(names[:MOST_NAMES])
    return first if len(names) <= MOST_NAMES else f"{first}, ... ({len(names):,})"


def compare(
    specs: Sequence[FederationSpec | VerticalSpec],
    rows: Sequence[tuple[str, str, str, str]],
    console: Console,
) -> None:
    """Print two folders side by side: what each is called and holds, and rows of what differs."""
    for letter, spec in zip("AB", specs, strict=True):
        console.print(shown(f"{letter}  {spec.name}: {title_of(spec)}", style="bold"))
    table = Table(header_style="bold")
    for heading in ("", "A", "B", "B - A"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for row in rows:
        table.add_row(*map(shown, row))
    console.print(table)


def compared(first: FolderSummary, second: FolderSummary) -> list[tuple[str, str, str, str]]:
    """Return the rows of a comparison: what, of the first, of the second, by how much they differ."""
    rows = [
        whole("Silos", len(first.sizes), len(second.sizes)),
        whole("Training examples", first.sizes.sum(), second.sizes.sum()),
        whole("Smallest silo", first.sizes.min(), second.sizes.min()),
        whole("Median silo", round(np.median(first.sizes)), round(np.median(second.sizes))),
        whole("Largest silo", first.sizes.max(), second.sizes.max()),
    ]
    if first.labelled and second.labelled:
        seen = [float(np.count_nonzero(one.counts, axis=1).mean()) for one in (first, second)]
        difference = f"{seen[1] - seen[0]:+.1f}"
        rows.append(("Labels seen by a silo, mean", f"{seen[0]:.1f}", f"{seen[1]:.1f}", difference))
    return rows + compared_measures(first.measures, second.measures)


def compared_measures(first: Sequence[Measure], second: Sequence[Measure]) -> list[tuple[str, str, str, str]]:
    """Return the rows of the measures that both have."""
    others = {measure.text: measure for measure in second}
    pairs = [(a, others[a.text]) for a in first if a.text in others]
    return [(f"{a.name}, {a.text}", str(a), str(b), f"{b.value - a.value:+.4f}") for a, b in pairs]


def whole(name: str, first: int, second: int) -> tuple[str, str, str, str]:
    """Return a row of a comparison of whole numbers."""
    return name, f"{first:,}", f"{second:,}", f"{second - first:+,}"


def chosen_rows(silos: int, everything: bool, most: int = MOST_ROWS) -> list[int]:
    """Choose the silos to show: all, or the first and the last ones."""
    rows = list(range(silos))
    return rows if everything or silos <= most else rows[: most // 2] + rows[-most // 2 :]


def _table(summary: FolderSummary, console: Console, everything: bool) -> Table:
    spec = summary.spec
    splits = [split for split in SPLITS if any(split in entry.examples for entry in spec.silos)]
    unicode = console.encoding.lower().startswith("utf")
    moments = ["mean", "deviation"] if summary.of_one_kind else []
    table = Table(header_style="bold")
    labels = ["labels", "seen"] if summary.labelled else ["tokens"] if summary.tokens_of(0) else []
    groups = [f"{split} groups" for split in summary.splits_of_groups]
    labels += [*moments, *summary.target_names(MOST_TARGETS)]
    for heading in ("silo", "name", *splits, *groups, "size", *labels, "file"):
        left: JustifyMethod = "left" if heading in ("name", "size", "labels") else "right"
        widest = WIDEST_NAME if heading == "name" else None
        least = 8 if heading == "file" and summary.targets else None  # cut off it would be another size
        table.add_column(shown(heading), justify=left, no_wrap=True, min_width=least, max_width=widest)
    largest = int(summary.sizes.max())

    def cells_of(silo: int) -> list[str]:
        entry = spec.silos[silo]
        size = bar(summary.sizes[silo] / max(largest, 1), unicode)
        drawn = _drawn(summary, silo, unicode)
        figures = [*_moments(summary, silo), *summary.target_figures(silo, MOST_TARGETS)]
        many = [*_examples(entry, splits), *summary.groups_of(silo)]
        held = [*many, size, *drawn, *figures, decimal(entry.bytes)]
        return [str(silo), entry.name, *held]

    return filled(table, cells_of, len(spec.silos), everything)


def filled(table: Table, cells_of: Callable[[int], Sequence[str]], many: int, everything: bool) -> Table:
    """Return a table with the rows to show of so many, a line where others are left out."""
    chosen = chosen_rows(many, everything)
    for at in chosen:
        cut = len(chosen) < many and at == chosen[len(chosen) // 2 - 1]
        table.add_row(*map(shown, cells_of(at)), end_section=cut)
    return table


def _features(rows: Sequence[Sequence[str]], everything: bool) -> Table:
    """Return the table of features that have names."""
    table = Table(header_style="bold")
    for heading in FEATURE_HEADS:
        widest = WIDEST_NAME if heading == FEATURE_HEADS[0] else None
        table.add_column(heading, justify="right" if widest is None else "left", max_width=widest)
    return filled(table, rows.__getitem__, len(rows), everything)


def _drawn(summary: FolderSummary, silo: int, unicode: bool) -> list[str]:
    """Return the cells of a silo's labels, or of its tokens where there are none."""
    of_label = summary.counts[silo]
    return [sparkline(of_label, unicode), _seen(of_label)] if summary.labelled else summary.tokens_of(silo)


def _examples(entry: ShardEntry, splits: Sequence[str]) -> list[str]:
    return [f"{entry.examples.get(split, 0):,}" for split in splits]


def _moments(summary: FolderSummary, silo: int) -> list[str]:
    moments = summary.moments or []
    return [f"{of:.4g}".replace("-", "−") for of in moments[silo].overall()] if summary.of_one_kind else []


def _seen(of_label: np.ndarray) -> str:
    return f"{np.count_nonzero(of_label)}/{len(of_label)}"


def bar(share: float, unicode: bool = True) -> str:
    """Draw a share of the full width, in eighths of a character where the terminal has them."""
    if not unicode:
        return "#" * round(share * BAR)
    whole, eighths = divmod(round(share * BAR * 8), 8)
    return "█" * whole + EIGHTHS[eighths] * (eighths > 0)


def sparkline(of_label: np.ndarray, unicode: bool = True) -> str:
    """Draw a histogram [classes] with a character a class,
    the tallest full; a class that occurs is never blank."""
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    columns = [int(piece.sum()) for piece in np.array_split(of_label, min(len(of_label), MOST_COLUMNS))]
    top = max(*columns, 1)
    return "".join(blocks[-(-count * (len(blocks) - 1) // top)] for count in columns)


def counted(spec: FederationSpec | VerticalSpec) -> str:
    """Say how many silos there are."""
    return f"{len(spec.silos):,} silo{'s' * (len(spec.silos) > 1)}"


def totals(spec: FederationSpec) -> str:
    """Say what all silos and the server hold."""
    held = ", ".join(
        f"{sum(entry.examples.get(split, 0) for entry in spec.silos):,} {split}"
        for split in SPLITS
        if any(split in entry.examples for entry in spec.silos)
    )
    server = f"; the server's test set {sum(spec.test.examples.values()):,}" if spec.test else ""
    size = decimal(sum(entry.bytes for entry in (*spec.silos, *filter(None, [spec.test]))))
    return f"{counted(spec)}: {held}{server}; {size}"


def grouped(spec: FederationSpec) -> str:
    """Say of how many groups the silos' examples are; nothing where no shard says it."""
    groups, rows = Counter[str](), 0
    for entry in spec.silos:
        groups.update(entry.groups or {})
        rows += sum(entry.examples[split] for split in entry.groups or ())
    if not (many := groups.total()):
        return ""
    name = f" of {spec.scheme['group']}" if "group" in spec.scheme else ""
    each = ", ".join(f"{groups[split]:,} {split}" for split in SPLITS if split in groups)
    server = sum((spec.test.groups or {}).values()) if spec.test else 0
    tested = f"; the server's test set {server:,}" * (server > 0)
    return f"Groups{name}: {many:,}, with {rows / many:.3g} rows each on average: {each}{tested}"


def _measures(summary: FolderSummary) -> Table:
    table = Table.grid(padding=(0, 2))
    for measure in summary.measures:
        table.add_row(f"{measure.name}, {measure.text}", str(measure))
    return table
