"""The options by which examples are held out, and kept together."""

from __future__ import annotations

from typing import Annotated

import typer

from mpifl.common import InputError

_GROUP = (
    "The column or array that says whose an example is: those of one stay in one split of one silo. "
    "Images: parent, or a pattern of their names."
)
Group = Annotated[str | None, typer.Option(help=_GROUP)]
_ORDER = "The column or array, of numbers or dates, by which --test-last holds the last ones out."
Order = Annotated[str | None, typer.Option(help=_ORDER)]
_LAST = "The share of a silo's examples it keeps for testing, the last ones by --order, in place of --test."
TestLast = Annotated[float, typer.Option(help=_LAST)]
_STRATIFY = "Whether each class has its part of what --valid and --test draw."
Stratify = Annotated[bool, typer.Option(help=_STRATIFY)]

_KEEP = "What shards keep of each example: row, its number as given; id, too; or none. Row, and a spec's id."
Keep = Annotated[str | None, typer.Option(help=_KEEP)]


def check_order(order: str | None, test_last: float, *, cut_by: bool = False) -> None:
    """Refuse an order of which nothing is asked; a scheme may cut by it."""
    if order is not None and not test_last and not cut_by:
        raise InputError(f"--order: {order} given without --test-last; say the share, for instance 0.2")
