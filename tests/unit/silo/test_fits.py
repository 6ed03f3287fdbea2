"""The table of what goes with what: how it is read, and that training does what it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import BaseModel
from unit.builders import batches, cross_entropy, make_silo, net, training
from unit.fits import KEYS

from mpifl.algorithms.apfl import APFL
from mpifl.algorithms.ditto import Ditto
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedbuff import FedBuff
from mpifl.algorithms.fednova import FedNova
from mpifl.algorithms.fedrep import FedRep
from mpifl.algorithms.fedsam import FedSAM
from mpifl.algorithms.fedsgd import FedSGD
from mpifl.algorithms.fsvrg import FSVRG
from mpifl.algorithms.qffl import QFedAvg
from mpifl.algorithms.scaffold import Scaffold
from mpifl.silo import Silo
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import LOCAL, LocalTraining, steps_of
from mpifl.silo.steps.local_fits import Fits
from mpifl.wings.dpsgd.dpsgd import DPSGD
from mpifl.wings.fast import compiled, train_together
from mpifl.wings.fast.codegen import NotCompiled
from mpifl.wings.split import begun, order
from mpifl.wings.split.network_part import NetworkPart

N, ROUND = 23, 1
MODEL = FlatModel(net(), recalls=True)
"""Lent to all trainings, so that what a batched step needs is made once."""
W = MODEL.trained.clone()

NO_DIFFERENCE = {
    "compile": "a compiled step equals the plain one to rounding; test_compiled.py",
    "batch_silos": "a batched step equals the plain one to rounding; test_together.py",
    "silos_per_step": "how many silos are in a step changes no silo's steps; test_together.py",
    "tf32": "only GPUs round to it",
}
"""What changes nothing of a training here, and why."""
ELSEWHERE = {
    "compile": "test_compiled.py holds it against the plain step, since each takes a compiler's seconds",
    "clock": "silos train as without; only how long that takes by the clock is told",
    "masks": "silos train as without; only what becomes of their updates is another",
    "sum": "the batch is drawn with the rate that wings/dpsgd/privacy_plan.py makes of it",
    "late": "silos train as without; only when their sum counts is another",
    "newton": "it takes no step of local training, and refuses every key",
}
"""Ways that are not trained by here, and why."""


def private(silo: Silo, settings: LocalTraining) -> DPSGD:
    size = N if settings.batch_size == "full" else settings.batch_size
    return DPSGD(b"x" * 32, "p", 1.0, 0.8, size / N, steps_of(settings, N), float(size))


def silo_of(local: LocalTraining, **more: Any) -> Silo:
    """A silo in its second round, which has kept an optimizer's state if it is to continue with one."""
    state = {"optimizer 0": torch.ones_like(W), "optimizer steps": 5}
    return make_silo(MODEL, N, id=1, round=ROUND, state=state if local.keep_optimizer_state else {}, **more)


def by_silo(name: str, local: LocalTraining) -> torch.Tensor:
    kind = type("Kind", (Silo,), {"_method": private}) if name == "private" else Silo
    together = {"trains": lambda asked: train_together([asked], 2)[0](asked)} if name == "batch_silos" else {}
    silo = silo_of(local, kind=kind, **together)
    return FedAvg(local=local).train(silo, W).vectors["delta"]


def by_halves(name: str, local: LocalTraining) -> torch.Tensor:
    silo = silo_of(local)
    part = NetworkPart(
        MODEL, local, ROUND, steps_of(local.at_round(ROUND), N), {**begun(MODEL, local), "w": W}
    )
    x, y = next(silo._splits["train"].in_order(N))
    for rows in order(local, N, 0, ROUND):
        part.learn(cross_entropy(MODEL.module, x[rows], y[rows]))
    return MODEL.trained.clone()


def by_algorithm(name: str, local: LocalTraining) -> torch.Tensor:
    silo = silo_of(local)
    away = torch.linspace(-0.1, 0.1, len(W))
    update = {
        "fedsgd": lambda: FedSGD(local=local).train(silo, W),
        "fsvrg": lambda: FSVRG(local=local).train_reduced(silo, W, away),
        "qffl": lambda: QFedAvg(local=local).train(silo, W),
        "scaffold": lambda: Scaffold(local=local).train_corrected(silo, W, away),
        "fednova": lambda: FedNova(local=local).train(silo, W),
        "ditto": lambda: Ditto(local=local).train(silo, W),
        "fedsam": lambda: FedSAM(local=local, rho=0.5).train(silo, W),
        "fedrep": lambda: FedRep(local=local, personal=[]).train(silo, W),
        "paired": lambda: APFL(local=local).train(silo, W),
        "asynchronous": lambda: FedBuff(local=local).take_part(silo, W, f'{{"1": [null, {ROUND}]}}'),
    }[name]()
    return torch.cat([*update.vectors.values(), silo.kept.get("v", W)])


TRAINED = {
    **dict.fromkeys(("usual", "plain", "batch_silos", "private"), by_silo),
    **dict.fromkeys(
        (
            "fedsgd",
            "fsvrg",
            "qffl",
            "scaffold",
            "fednova",
            "ditto",
            "fedsam",
            "fedrep",
            "paired",
            "asynchronous",
        ),
        by_algorithm,
    ),
    "split": by_halves,
}
HONOURED = [
    (way, given)
    for way in TRAINED
    for key, samples in KEYS.items()
    for given in samples
    if key not in NO_DIFFERENCE and given[key] != "tf32"
    if all(LOCAL.outcome(way, other, value) == "+" for other, value in given.items())
]


def test_each_way_is_trained_by_or_told_why_not():
    assert {*TRAINED} | {*ELSEWHERE} == {*LOCAL.cells}
    assert {*KEYS} == {*LocalTraining.model_fields}


@pytest.mark.parametrize(("way", "given"), HONOURED, ids=str)
def test_each_key_that_is_honoured_changes_what_is_trained(way, given):
    key, *needed = given
    usual = {"lr": 0.1, "batch_size": 5} | ({"momentum": 0.4} if way == "usual" else {})
    if way == "usual" and "optimizer" in given:
        usual["momentum"] = 0.0
    without = {**usual, **{other: given[other] for other in needed}}
    one, other = (
        TRAINED[way](way, LocalTraining(**keys)) for keys in (without, {**without, key: given[key]})
    )
    to_do = "honour it, or write - or . into its cell of local_fits.py"
    assert not torch.equal(one, other), f"{way} trains alike with and without {key}: {to_do}"
    assert torch.equal(one, TRAINED[way](way, LocalTraining(**without))), "the way is not drawn again"


@pytest.mark.parametrize(
    ("key", "given"), [(key, given) for key, samples in KEYS.items() for given in samples], ids=str
)
def test_a_compiled_step_honours_a_key_or_says_that_the_plain_step_takes_its_place(key, given):
    settings = {**given, "compile": True}
    if "batch_silos" in settings:
        with pytest.raises(ValueError, match="compile makes a step of one"):
            LocalTraining(**settings)
        return
    batch = torch.zeros(5, 4), torch.zeros(5, dtype=torch.int64)
    asked = training(MODEL, batches(5), W, LocalTraining(**settings))
    plain = [one for one, value in given.items() if LOCAL.outcome("compile", one, value) == "~"]
    if not plain:
        assert compiled._key(asked, batch)
    else:
        with pytest.raises(
            NotCompiled, match=f"{plain[0]}.* (is for the plain step|gives each silo another)"
        ):
            compiled._key(asked, batch)


class Table(BaseModel):
    """A table with a key that has a row, one without, and one without a cell."""

    told: int = 0
    listed: str = "a"
    some: int = 0
    new: int = 0


TOLD = Fits(
    "key one two three\ntold + - .\nlisted a|b ~a|own .a|b\nsome - +",
    "two told {value} is told",
)


@pytest.mark.parametrize(
    ("way", "given", "outcome"),
    [
        ("one", {"told": 3}, ""),
        ("one", {"listed": "b"}, ""),
        ("one", {"listed": "c"}, "-"),
        ("two", {"told": 3}, "-"),
        ("two", {"told": 0}, ""),
        ("two", {"listed": "a"}, ""),
        ("two", {"listed": "b"}, "~"),
        ("two", {"listed": "mine:b"}, ""),
        ("three", {"told": 3}, "."),
        ("three", {"listed": "b"}, "."),
        ("three", {"listed": "c"}, "-"),
        ("three", {"some": 1}, "-"),
        ("one", {"new": 1}, "-"),
        ("none", {"new": 1, "told": 1}, ""),
    ],
)
def test_a_cell_says_what_becomes_of_a_key(way, given, outcome):
    assert [found for found, *_ in TOLD.unlike(way, Table(**given))] == [*outcome]
    assert TOLD.honours(way, Table(**given)) is (outcome == "")


def test_the_first_text_is_told_and_what_has_none_is_said_by_nobody():
    assert TOLD.why_not("two", Table(told=3, new=1)) == "3 is told"
    line = "nobody has said that the way 'two' honours new = 1; leave one of them out"
    assert TOLD.why_not("two", Table(new=1)) == line
    assert TOLD.why_not("two", Table()) == ""


@pytest.mark.parametrize("way", [way for way in LOCAL.cells if way != "plain"])
def test_a_new_key_without_a_row_or_a_cell_is_refused_on_each_way(way):
    class Newer(LocalTraining):
        clip_value: float | None = None

    assert LOCAL.why_not(way, Newer.model_construct(clip_value=1e-9)).startswith("nobody has said")
    with pytest.raises(ValueError, match=r"nobody has said that the way 'usual' honours clip_value = 1e-09"):
        Newer(clip_value=1e-9)
    assert Newer().clip_value is None
