"""The scheme that gives every silo exactly so many classes."""

from __future__ import annotations

import numpy as np

from data_prep.schemes.grouping import deal, histogram, sorted_by_label
from mpifl.common import InputError


def classes(
    labels: np.ndarray, silos: int, rng: np.random.Generator, *, classes: int = 2
) -> list[np.ndarray]:
    """Give every silo exactly c different classes, and divide each class evenly among its owners (#C = c).

    Li et al. (2022, NIID-Bench, sec. 4.2.1): silo k owns class k mod C and c - 1 others drawn at random. Here
    also no class is left without an owner, and none has more owners than examples. Classes beyond the number
    of silos are dealt to them at random, before the other draws.
    """
    sizes = histogram(labels)
    present = np.flatnonzero(sizes)
    _check(sizes[present], silos, classes)
    owned = draw_owners(sizes[present], silos, classes, rng)
    counts = np.zeros((len(sizes), silos), dtype=np.int64)
    for label, of_silo in zip(present, owned.T, strict=True):
        whole, rest = divmod(int(sizes[label]), int(of_silo.sum()))
        counts[label, of_silo] = whole + (np.arange(of_silo.sum()) < rest)
    return deal(sorted_by_label(labels, rng), counts)


def draw_owners(sizes: np.ndarray, silos: int, c: int, rng: np.random.Generator) -> np.ndarray:
    """Draw which silo owns which class, bool [silos, classes]: every row has c, no column more than its size.

    A class with fewer places left than silos to come is scarce. The silos to come find c classes each as long
    as no silo takes more scarce ones than there are places to spare (Gale 1957). So no draw has to be
    repeated.
    """
    owned = np.zeros((silos, len(sizes)), dtype=bool)
    places = np.minimum(sizes, silos)
    first = _first(silos, len(sizes), rng)
    for silo in range(silos):
        left = silos - silo
        scarce = places < left
        spare = int(np.where(scarce, places, left - 1).sum()) - (left - 1) * c
        others = rng.permutation(len(sizes))
        order = np.concatenate([first[silo], others[~np.isin(others, first[silo])]])
        order = order[places[order] > 0]
        unwanted = np.flatnonzero(scarce[order])[max(spare, 0) :]
        owned[silo, np.delete(order, unwanted)[:c]] = True
        places -= owned[silo]
    return owned


def _first(silos: int, classes: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the classes that every silo is to own in any case:
    its turn, and its share of those beyond the silos."""
    beyond = silos + rng.permutation(max(classes - silos, 0))
    return [np.append(silo % classes, beyond[silo::silos]) for silo in range(silos)]


def _check(sizes: np.ndarray, silos: int, c: int) -> None:
    """Refuse what no distribution of classes can fulfil; `sizes` are those of the classes that occur."""
    if not 1 <= c <= len(sizes):
        raise InputError(f"--classes: {c} given; the data has {len(sizes)}, use 1 to {len(sizes)}")
    if silos * c < len(sizes):
        few = f"{silos} silos of {c} own at most {silos * c} of the {len(sizes)} classes"
        raise InputError(f"--classes: {few}; ask for more of either, or some class would belong to nobody")
    if (places := int(np.minimum(sizes, silos).sum())) < silos * c:
        few = f"{silos} silos of {c} classes need {silos * c} shares, the rare classes leave {places}"
        raise InputError(f"--classes: {few}; ask for fewer silos or classes")
