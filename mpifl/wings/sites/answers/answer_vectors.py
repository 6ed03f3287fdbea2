"""The vectors of an answer's letter, and the headers that say what each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mpifl.wings.sites.answers.kept_answers import SiteAnswer
from mpifl.wings.sites.letters import SumHeader


def vectors_of(answer: SiteAnswer) -> dict[str, Tensor]:
    """Return the vectors of an answer, named for who reads `sent.jsonl`, in the order of `vector_headers`."""
    sums = {f"sum of {name}, window {window}": one for (window, name), one in answer.sums.items()}
    return sums | {f"{name} of silo {silo}": one for (silo, name), one in answer.singles.items()}


def vector_headers(answer: SiteAnswer) -> list[SumHeader]:
    """Return the header of each vector of an answer."""
    sums = [SumHeader(name=name, window=window) for window, name in answer.sums]
    return sums + [SumHeader(name=name, silo=silo) for silo, name in answer.singles]


def parted(headers: Sequence[SumHeader], vectors: Sequence[Tensor]) -> dict[str, Any] | None:
    """Return sums and single updates of a letter as the fields `sums`, `vectors` and `singles` of `CameBack`.

    Return None if there are other vectors than headers, or one is neither a sum nor a single update.
    """
    if len(headers) != len(vectors) or any((one.window is None) == (one.silo is None) for one in headers):
        return None
    came = [*zip(headers, vectors, strict=True)]
    return {
        "sums": [(one.name, one.window) for one, _ in came if one.window is not None],
        "vectors": [vector for one, vector in came if one.window is not None],
        "singles": {(one.silo, one.name): vector for one, vector in came if one.silo is not None},
    }
