"""The user's own scheme: a function, named `module:function`, that says whose each example is."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Cut, Dataset, blamed
from data_prep.schemes.grouping import by_owner
from data_prep.schemes.iid import iid
from data_prep.schemes.scheme import Options, Scheme, check_smallest
from mpifl.common import InputError, load_plugin, sha256_of

MOST_SILOS = 1 << 20
FORM = "write def NAME(y, silos, rng), and silo or order behind them if it cuts by these"


@dataclass(frozen=True)
class OwnScheme(Scheme):
    """Cut by a function of the targets, the number of silos (or None) and a generator of the seed.

    It returns the number of each example's silo, integers [n] from 0. Parameters `silo` and `order` are given
    the natural silo and the order [n] of each example. It can write to none of these.

    Attributes:
        name: What the user calls it, `module:function`.
    """

    name: str = ""
    function: Any = field(default=None, compare=False)

    @property
    def told(self) -> dict[str, Any]:
        """Return the sha256 of the function's module."""
        file = getattr(sys.modules[self.name.partition(":")[0]], "__file__", None)
        return {"sha256": sha256_of(Path(file))} if file else {}

    @property
    def takes_order(self) -> bool:
        """Tell whether its function has a parameter `order`."""
        return "order" in inspect.signature(self.function).parameters

    @property
    def options(self) -> dict[str, Any]:
        """Return what every scheme takes."""
        return {"min_examples": 1}

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Cut a data set as the function says."""
        if silos is not None and silos < 1:
            raise InputError(f"--silos: {silos} given; it must be 1 or more")
        asked = [*inspect.signature(self.function).parameters][3:]
        known = {"silo": data.silo, "order": data.order and data.order.of}
        for column in asked:
            if known[column] is None:
                raise InputError(
                    f"--scheme: '{self.name}' cuts by {column}, which {data.where} does not have; add it"
                )
        with blamed(self.name):
            given = {column: _read_only(known[column]) for column in asked}
            owners = np.asarray(self.function(_read_only(data.y), silos, rng, **given))
        parts = by_owner(*self._checked(owners, len(data), silos))
        check_smallest(parts, options["min_examples"])
        return Cut(parts)

    def _checked(self, owners: np.ndarray, length: int, silos: int | None) -> tuple[np.ndarray, int]:
        """Return the silo of each example, and how many there are."""
        if owners.dtype.kind not in "iu" or owners.shape != (length,):
            found = f"{owners.dtype} {list(owners.shape)}"
            raise InputError(
                f"{self.name}: returned {found}; it must be integers [{length}], a silo for each"
            )
        last = MOST_SILOS if silos is None else silos
        if length and not 0 <= int(owners.min()) <= int(owners.max()) < last:
            found = f"silos {owners.min()} to {owners.max()}"
            raise InputError(f"{self.name}: returned {found}; they are 0 to {last - 1}")
        return owners.astype(np.int64), int(owners.max(initial=-1)) + 1 if silos is None else silos


def _read_only(given: Any) -> Any:
    """Return an array that a function cannot write to: sorting it in place would change the data."""
    if not isinstance(given, np.ndarray):
        return given
    view = given.view()
    view.flags.writeable = False
    return view


def own_scheme(name: str, known: list[str]) -> OwnScheme:
    """Return the scheme of a user's function; raise InputError where it is none."""
    with blamed(name):
        function = load_plugin(name, "--scheme", known)
    try:
        taken = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        taken = []
    plain = all(one.kind is one.POSITIONAL_OR_KEYWORD for one in taken)
    if len(taken) < 3 or not plain or not {one.name for one in taken[3:]} <= {"silo", "order"}:
        raise InputError(f"--scheme: '{name}' is not a function of this form; {FORM}")
    return OwnScheme(iid, name=name, function=function)
