"""How a site's data becomes such as the federation has."""

from __future__ import annotations

from typing import Any

from data_prep.dataset import Dataset
from mpifl.data.shards import encoding_of


def converted(data: Dataset, what: str, ours: Any, theirs: Any) -> str:
    """Say how features become those of the federation, of images by the option that does it."""
    own = encoding_of({"encoding": data.encoding})
    if not own or own["kind"] != "images":
        return "convert them as the sites agreed"
    if what == "dtype":
        how = {"uint8": "divide pixels as the sites agreed, and save them with 8 bits"}
        return how.get(str(theirs), "save pixels as the sites agreed, or agree on one dtype")
    if len(ours) != len(theirs) or (ours[0] < theirs[0]):
        return "convert them as the sites agreed"
    sized = [f"--size {theirs[2]}x{theirs[1]}"] * (ours[1:] != theirs[1:])
    return f"say {' '.join([*sized, *['--grey'] * (ours[0] > theirs[0])])}"
