"""Models that answer a dict or a `ModelOutput`: the bits of the same model that answers its tensor."""

from __future__ import annotations

import importlib.util
import shutil
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from unit.builders import CLASSES, FEATURES, Alone, write_folder

from mpifl.cli import Run
from mpifl.common import InputError
from mpifl.learning import models
from mpifl.learning.tasks import CLASSIFICATION, Task, tensor_of
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.fast import compiled


class Named(NamedTuple):
    loss: None
    logits: Tensor


@dataclass
class Output:
    out: Tensor


KINDS: dict[str, Any] = {
    "tensor": lambda out: out,
    "logits": lambda out: {"loss": None, "logits": out},
    "out": lambda out: OrderedDict(out=out, aux=out * 2),
    "named": lambda out: Named(None, out),
    "dataclass": Output,
    "other": lambda out: {"a": out, "b": out},
}
if importlib.util.find_spec("transformers") is not None:
    from transformers.modeling_outputs import SequenceClassifierOutput

    KINDS["transformers"] = lambda out: SequenceClassifierOutput(logits=out)

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compiled": {"local": {"compile": True}},
    "stacked": {"local": {"batch_silos": True}},
    "feddf": {"algorithm": {"name": "feddf", "distill_steps": 3, "distill_batch": 4, "distill_lr": 0.01}},
    "fedsam": {"algorithm": {"name": "fedsam", "rho": 0.05}},
}


class Answering(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int, kind: str) -> None:
        super().__init__()
        self.kind, self.body = kind, nn.Sequential(nn.Linear(shape[0], 5), nn.Tanh(), nn.Linear(5, classes))

    def forward(self, x: Tensor) -> Any:
        return KINDS[self.kind](self.body(x))


def trained(folder: Any, kind: str, **tables: Any) -> Any:
    job = {
        "name": "toy",
        "shards": str(folder / "shards"),
        "rounds": 2,
        "model": {"name": f"{__name__}:Answering", "kind": kind},
        "tracking": {"console": False},
        **tables,
    }
    job["local"] = {"lr": 0.1, "batch_size": 4, **tables.get("local", {})}
    run = folder / f"run-{kind}"
    shutil.rmtree(run, ignore_errors=True)
    train(job, run, (), False, Alone(), wings_of=wings_of)
    return (run / "model.safetensors").read_bytes(), Run.of(run).metrics[-1]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have compiled steps run their traces, which are noted here: machine code of them takes a minute."""
    found: list[Any] = []

    def by_operations(graph: Any, inputs: Any, device: Any) -> Any:
        found.append(graph)
        return lambda given: graph(*given)

    monkeypatch.setattr(compiled, "compile_graph", by_operations)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_answer_trains_to_the_bits_of_the_tensor(
    way: str, tmp_path: Any, traced: list[Any]
) -> None:
    write_folder(tmp_path / "shards", [6, 5, 4], test=4, public=6 if way == "feddf" else 0)
    kinds = ["tensor", *(KINDS.keys() - {"tensor", "other"} if way == "plain" else ("logits", "out"))]
    runs = {kind: trained(tmp_path, kind, **WAYS[way]) for kind in kinds}
    assert {kind for kind in kinds if runs[kind][0] != runs["tensor"][0]} == set()
    scores = {kind: (last["test_loss"], last["test_accuracy"]) for kind, (_, last) in runs.items()}
    assert len({*scores.values()}) == 1, scores
    assert len(traced) == (len(kinds) if way == "compiled" else 0)


def test_a_dict_without_such_a_tensor_is_one_line() -> None:
    with pytest.raises(InputError) as error:
        models.build(Answering, {"kind": "other"}, FEATURES, CLASSES, 0)
    wanted = "it answers with dict of a, b; name its tensor of outputs logits or out, or answer that tensor"
    assert str(error.value).endswith(wanted)


class Own(Task):
    """A task that learns from the whole answer."""

    def loss(self, outputs: Any, y: Tensor) -> tuple[Tensor, int]:
        return outputs["out"].sum() + outputs["aux"].sum(), len(y)

    def metrics(self) -> dict[str, Any]:
        return CLASSIFICATION.metrics()

    def check_outputs(self, outputs: Any, examples: int, width: int) -> None:
        assert {*outputs} == {"out", "aux"}


def test_a_task_that_checks_outputs_itself_gets_the_whole_answer() -> None:
    module = models.build(Answering, {"kind": "out"}, FEATURES, CLASSES, 0, Own())
    assert {*Own().outputs(module, torch.zeros(2, *FEATURES.shape))} == {"out", "aux"}
    assert isinstance(CLASSIFICATION.outputs(module, torch.zeros(2, *FEATURES.shape)), Tensor)
    assert tensor_of(found := [1]) is found
