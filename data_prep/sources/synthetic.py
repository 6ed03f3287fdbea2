"""Sets made of random numbers: synthetic(alpha, beta) of FedProx, FCUBE of NIID-Bench, bags of words."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from data_prep.dataset import Dataset
from mpifl.common import InputError, numpy_stream

FEATURES, CLASSES = 60, 10
SMALLEST = 50
VARIANCES = np.arange(1, FEATURES + 1) ** -1.2
"""The diagonal of Sigma: Sigma_jj = j^-1.2."""


def read_synthetic(
    data: Path | None, seed: int, *, alpha: float = 0.0, beta: float = 0.0, iid: bool = False, silos: int = 30
) -> Dataset:
    """Draw synthetic(alpha, beta) of Li et al. (2020, FedProx, section 5.1, appendix C.1), after Shamir et
    al. (2014).

    Silo k labels by its own y = argmax(softmax(W x + b)). The entries of W_k and b_k are N(u_k, 1) with u_k ~
    N(0, alpha). Those of x are N(v_k, Sigma) with Sigma_jj = j^-1.2, and those of v_k are N(B_k, 1) with B_k
    ~ N(0, beta). `alpha` and `beta` are variances, as N's second argument is throughout the paper (its code
    takes them for standard deviations; the same for 0 and 1). With `iid`, which takes neither, all silos have
    one W and b, of N(0, 1), and v_k = 0. The number of a silo's examples is lognormal(4, 2), rounded down,
    plus 50, as in the paper's code. Features are float32 [n, 60], labels 0 to 9.
    """
    _no_data("synthetic", data)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not 0 <= value < math.inf:
            raise InputError(f"--option: {name}={value} given; a variance is at least 0, for instance 1")
        if iid and value:
            said = f"{name}={value:g} given, but with iid=true all silos have one model"
            raise InputError(f"--option: {said} and like features; leave one of them out")
    if silos < 1:
        raise InputError(f"--option: silos={silos} given; it must be 1 or more")
    sizes = numpy_stream(seed, "synthetic sizes").lognormal(4, 2, silos).astype(np.int64) + SMALLEST
    drawn = [_draw_silo(seed, silo, int(n), alpha, beta, iid) for silo, n in enumerate(sizes)]
    x, y = (np.concatenate(column) for column in zip(*drawn, strict=True))
    where = "synthetic(iid)" if iid else f"synthetic({alpha:g}, {beta:g})"
    return Dataset(where, x, y, CLASSES, {}, silo=np.repeat(np.arange(silos), sizes))


def _draw_silo(
    seed: int, silo: int, n: int, alpha: float, beta: float, iid: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw n examples of a silo, from streams of its own; the model is every silo's, if `iid`."""
    rng = numpy_stream(seed, "synthetic model", 0 if iid else silo)
    u = 0.0 if iid else rng.normal(0, math.sqrt(alpha))
    w, b = rng.normal(u, 1, (CLASSES, FEATURES)), rng.normal(u, 1, CLASSES)
    rng = numpy_stream(seed, "synthetic features", silo)
    v = np.zeros(FEATURES) if iid else rng.normal(rng.normal(0, math.sqrt(beta)), 1, FEATURES)
    x = rng.normal(v, np.sqrt(VARIANCES), (n, FEATURES)).astype(np.float32)
    return x, np.argmax(x @ w.T + b, axis=1)  # softmax does not change which is largest


def read_fcube(data: Path | None, seed: int, *, examples: int = 4000, test: int = 1000) -> Dataset:
    """Draw FCUBE of Li et al. (2022, NIID-Bench, section 4.2): points of the cube [-1, 1]^3, labelled by a
    plane.

    Label 0 is x1 > 0. Each of four silos has two octants that are symmetric about the origin, so that all
    have both labels equally while their features differ: an eighth of the examples lies in every octant.
    Features are float32 [n, 3]; `test` more, uniform over the cube, are the server's test set.
    """
    _no_data("fcube", data)
    if examples < 8 or test < 0:
        raise InputError(f"--option: examples={examples}, test={test} given; use at least 8 and 0")
    rng = numpy_stream(seed, "fcube")
    octant = np.arange(examples) % 8
    signs = 1 - 2 * (octant[:, None] >> [2, 1, 0] & 1)
    x = (_open_unit(rng, examples) * signs).astype(np.float32)
    x_test = (2 * rng.random((test, 3)) - 1).astype(np.float32)
    held = (x_test, _side(x_test)) if test else None
    names = dict(enumerate("octants " + " and ".join(map(_signs, (k, 7 - k))) for k in range(4)))
    return Dataset(
        "fcube", x, _side(x), 2, {}, test=held, silo=np.minimum(octant, 7 - octant), silo_names=names
    )


def read_bags(
    data: Path | None,
    seed: int,
    *,
    silos: int = 100,
    words: int = 2000,
    length: int = 20,
    variety: float = 100.0,
) -> Dataset:
    """Draw documents whose words are sparse and unevenly spread over silos, as users' posts are.

    A document says which of the words are among `length` drawn ones. Silo k draws by q_k ~ Dirichlet(variety
    p), p being Zipf's law, p_j ~ 1/j. Everybody has the common words, few silos a rare one. Label 1 is u x >
    0, for one u of N(0, 1) and all silos. A silo has lognormal(4, 1) documents, rounded down, plus 10.
    Features are uint8.
    """
    _no_data("bag-of-words", data)
    if min(silos, words, length) < 1 or not 0 < variety < math.inf:
        said = f"silos={silos}, words={words}, length={length}, variety={variety:g} given"
        raise InputError(f"--option: {said}; the first three must be 1 or more, variety above 0")
    rng = numpy_stream(seed, "bag of words")
    sizes, u = rng.lognormal(4, 1, silos).astype(np.int64) + 10, rng.normal(size=words)
    zipf = 1 / np.arange(1, words + 1)
    x = np.concatenate(
        [_draw_bags(seed, silo, int(n), variety * zipf / zipf.sum(), length) for silo, n in enumerate(sizes)]
    )
    silo = np.repeat(np.arange(silos), sizes)
    return Dataset("bag-of-words", x, (x @ u > 0).astype(np.int64), 2, {}, scale=1.0, silo=silo)


def _draw_bags(seed: int, silo: int, n: int, shape: np.ndarray, length: int) -> np.ndarray:
    """Draw n documents of a silo, from a stream of its own."""
    rng = numpy_stream(seed, "bag of words", silo)
    x = np.zeros((n, len(shape)), np.uint8)
    x[np.arange(n)[:, None], rng.choice(len(shape), (n, length), p=rng.dirichlet(shape))] = 1
    return x


def _open_unit(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw from (0, 1]^3, in steps that float32 does not round to 0: an octant holds none of the planes."""
    return rng.integers(1, 1 << 24, (n, 3), endpoint=True) / (1 << 24)


def _side(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] <= 0).astype(np.int64)


def _signs(octant: int) -> str:
    return "".join("-" if octant >> bit & 1 else "+" for bit in (2, 1, 0))


def _no_data(name: str, data: Path | None) -> None:
    if data is not None:
        raise InputError(f"--data: {data} given, but '{name}' is drawn from the seed; leave it out")
