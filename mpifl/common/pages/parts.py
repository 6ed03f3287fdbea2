"""What pages are made of, as plain values. `parts.html` has an element for each kind; no text here has a tag.

Places are in per cent of a drawing, from its left and from its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypeVar

Kind = TypeVar("Kind")
MOST_OPEN, ENDS = 30, 5
"""Rows of a table of silos that is open, and those at each end of one that is folded."""
SHORT = 6
"""Characters beside an image for which there is always room."""


@dataclass(frozen=True)
class Block:
    """A part of a page."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Said(Block):
    """A paragraph."""

    kind = "said"
    text: str
    look: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, what it is sorted by, its look, where it leads.

    Attributes:
        share: How long a bar behind the text is, from 0 to 1.
        dots: Places of dots, per cent from the left; the text says which.
        span: The ends of a line behind them.
        zero: Where a line stands for no difference.
        beside: Whether the text stands beside them.
        path: A small curve, or bars where its look is "left", in the units of a chart.
    """

    text: str = ""
    value: float | str | None = None
    look: str = ""
    link: str = ""
    share: float | None = None
    dots: Sequence[float] = ()
    span: tuple[float, float] | None = None
    zero: float | None = None
    beside: bool = False
    path: str = ""


@dataclass(frozen=True)
class Table(Block):
    """A table; the first cell of each row names it. Headings of one that is to `sort` sort it. One of `silos`
    is searched, and the row that is chosen is drawn in the first chart. A heading of `axes` has these ends of
    the axis of its dots below it, and perhaps the middle."""

    kind = "table"
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    sort: bool = False
    silos: bool = False
    axes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, heads: Sequence[str], rows: Iterable[Sequence[str]], text: int | None = None) -> Table:
        """Return a table of texts; the column `text`, and one that is called reason, hold sentences."""
        looks = dict.fromkeys((text, *(nth for nth, head in enumerate(heads) if head == "reason")), "text")
        return cls(heads, [[Cell(one, look=looks.get(nth, "")) for nth, one in enumerate(r)] for r in rows])


@dataclass(frozen=True)
class Fold(Block):
    """A part that folds."""

    kind = "fold"
    title: str
    blocks: Sequence[Block]
    opened: bool = False
    pre: str = ""


@dataclass(frozen=True)
class HowTo(Block):
    """What to do, one after another: sentences, and the command that does it where there is one."""

    kind = "steps"
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Terms(Block):
    """Things that were found, the names of what may be taken for each, and why."""

    kind = "terms"
    rows: Sequence[tuple[str, Sequence[str], str]]


class Key(NamedTuple):
    """What a colour means, and the last value of what is drawn in it."""

    look: str
    name: str
    last: str = ""


class Place(NamedTuple):
    """A text beside or below a drawing; a spare one is not shown on a phone."""

    at: float
    text: str
    spare: bool = False


class Mark(NamedTuple):
    """A path in the units of its drawing, which stretch; what it says if it is rested on."""

    look: str
    path: str
    title: str = ""
    strength: float = 1.0


@dataclass(frozen=True)
class Plot(Block):
    """A drawing: marks or an image that stretch, between texts that do not.

    Attributes:
        what: What it shows, for those who do not see it.
        levels: What is written beside it, from the top.
        lined: Whether a line goes across at each level.
        ticks: What is written below it, from the left.
        cells: Texts in it: from the left, from the top, the text, whether it stands on a dark ground.
        told: What the program says at a place: `x` in per cent, `heads`, and `lines` of name, look, texts.
        high: In pixels.
        scales: From what lies along and what it is to places from 0 to 1, for what is drawn on it later.
    """

    kind = "plot"
    what: str
    marks: Sequence[Mark] = ()
    box: tuple[float, float] = (1000, 200)
    image: str = ""
    levels: Sequence[Place] = ()
    lined: bool = True
    ticks: Sequence[Place] = ()
    unit: str = ""
    cells: Sequence[tuple[float, float, str, bool]] = ()
    told: Mapping[str, Any] | None = None
    high: int = 190
    scales: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None

    @property
    def named(self) -> bool:
        """Whether names are beside it, which need more room than figures."""
        return bool(self.image) and any(len(level.text) > SHORT for level in self.levels)


@dataclass(frozen=True)
class SplitBars(Block):
    """Horizontal bars of parts: the name of each, its parts as (look, from the left, length, title), and what
    stands behind it."""

    kind = "split"
    rows: Sequence[tuple[str, Sequence[tuple[str, float, float, str]], str]]


@dataclass(frozen=True)
class Ramp(Block):
    """What the colours of an image mean, from `low` to `high`."""

    kind = "ramp"
    low: str
    address: str
    high: str


@dataclass(frozen=True)
class Grid(Block):
    """Values by two settings, shaded in ten steps; a cell is (text, shade or None, best, link)."""

    kind = "grid"
    corner: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, int | None, bool, str]]]]


@dataclass(frozen=True)
class Figure(Block):
    """A card with a title, a note, keys and what they are for; `how` its figures are computed is folded."""

    kind = "figure"
    title: str
    note: str = ""
    blocks: Sequence[Block] = ()
    keys: Sequence[Key] = field(default=())
    wide: bool = False
    how: str = ""


def bars(heights: Sequence[float], wide: float, high: float, gap: float = 0.15) -> str:
    """Return bars side by side as a path, each `wide` with the gap; one of 1 is as `high` as the drawing."""
    return "".join(
        f"M{wide * (nth + gap):g} {high}V{high * (1 - part):.2f}H{wide * (nth + 1 - gap):g}V{high}Z"
        for nth, part in enumerate(heights)
    )


def folded(table: Table) -> list[Block]:
    """Return a table of silos, the worst first; of a long one its ends, and all rows folded."""
    if len(table.rows) <= MOST_OPEN:
        return [table]
    scored = [row for row in table.rows if row[1].value != ""]
    ends = replace(table, rows=[*scored[:ENDS], *scored[-ENDS:]], sort=False)
    said = f"The {ENDS} worst silos, then the {ENDS} best:"
    return [Said(said), ends, Fold(f"All {len(table.rows):,} silos", [table])]


def there(blocks: Iterable[Kind | None]) -> list[Kind]:
    """Return those of the parts that there are."""
    return [one for one in blocks if one is not None]
