"""What an epoch on texts of unequal lengths costs beside plain loops of PyTorch over the same padded batches.

One process, one thread; the processor's time is counted, in turns, so that others on the machine matter
little. Before that, the sides are seen to end at the same parameters.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np
import torch
from common import save
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from mpifl.data import Features, Inputs, Ragged
from mpifl.data.batches import Batches
from mpifl.data.shards import Split
from mpifl.learning.models.text_models import gpt
from mpifl.learning.tasks import Classification
from mpifl.learning.tasks.language import Language
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import LocalTraining
from mpifl.silo.steps.training import Loss, Training
from mpifl.wings.fast import quickly as train

TOKENS, LONGEST, IGNORE, LR = 257, 128, -100, 0.1
WARMUP = 1
Collate = Callable[[list[tuple[Tensor, Tensor]]], tuple[Any, Tensor]]


class Bag(nn.Module):
    """The mean of the tokens' embeddings, and a linear map of it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, 64), nn.Linear(64, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits, shape [n, 2]."""
        mask = attention_mask.unsqueeze(2)
        answer: Tensor = self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))
        return answer


class Case(NamedTuple):
    """A model and its examples, as either side takes them."""

    module: Callable[[], nn.Module]
    split: Split
    features: Inputs
    task: Any
    pairs: list[tuple[Tensor, Tensor]]
    collate: Collate
    size: int


def texts(examples: int) -> list[np.ndarray]:
    """Return tokens, of 8 to `LONGEST` a text."""
    draw = np.random.default_rng(0)
    return [draw.integers(0, TOKENS, n).astype("i2") for n in draw.integers(8, LONGEST + 1, examples)]


def language(examples: int) -> Case:
    """Return the next token of each text by a small `gpt`."""
    x = texts(examples)
    y = [np.concatenate([one[1:], [0]]).astype("i2") for one in x]
    held = Split(Ragged.of(x, longest=LONGEST), Ragged.of(y, longest=LONGEST, fill=IGNORE), "int64")
    features = Features(shape=(LONGEST,), dtype="int16", ragged=True)
    module = partial(gpt, (LONGEST,), TOKENS, width=32, layers=2, heads=2)
    pairs = [(torch.from_numpy(a).long(), torch.from_numpy(b).long()) for a, b in zip(x, y, strict=True)]

    def collate(batch: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        ids, targets = zip(*batch, strict=True)
        return pad_sequence(ids, True), pad_sequence(targets, True, IGNORE)

    return Case(module, held, features, Language(ignore=IGNORE), pairs, collate, 16)


def classifier(examples: int) -> Case:
    """Return one of two classes of each text by the mean of its embeddings."""
    x, y = texts(examples), np.random.default_rng(1).integers(0, 2, examples)
    held = Split({"input_ids": Ragged.of(x, longest=LONGEST, mask="attention_mask")}, y, "int64")
    features = Features(shape=(LONGEST,), dtype="int16", ragged=True, mask="attention_mask")
    pairs = [(torch.from_numpy(one).long(), torch.tensor(label)) for one, label in zip(x, y, strict=True)]

    def collate(batch: list[tuple[Tensor, Tensor]]) -> tuple[dict[str, Tensor], Tensor]:
        ids, targets = zip(*batch, strict=True)
        mask = pad_sequence([torch.ones_like(one) for one in ids], True)
        return {"input_ids": pad_sequence(ids, True), "attention_mask": mask}, torch.stack(targets)

    return Case(Bag, held, {"input_ids": features}, Classification(), pairs, collate, 32)


CASES = {"gpt": language, "embedding-mean": classifier}


def order(case: Case) -> list[int]:
    """Return the order of the examples in the epoch."""
    return torch.randperm(len(case.pairs), generator=torch.Generator().manual_seed(0)).tolist()


def by_hand(case: Case) -> Iterable[tuple[Any, Tensor]]:
    """Yield the batches of an epoch with no DataLoader."""
    drawn = order(case)
    for start in range(0, len(drawn), case.size):
        yield case.collate([case.pairs[i] for i in drawn[start : start + case.size]])


def by_loader(case: Case) -> Iterable[tuple[Any, Tensor]]:
    """Return a DataLoader of the same batches."""
    return DataLoader(case.pairs, case.size, sampler=order(case), collate_fn=case.collate)  # type: ignore[arg-type]


def plain(case: Case, batches: Callable[[Case], Iterable[tuple[Any, Tensor]]], module: nn.Module) -> Tensor:
    """Train an epoch as one would by PyTorch; return the parameters."""
    optimizer = torch.optim.SGD(module.parameters(), LR)
    module.train()
    for x, y in batches(case):
        optimizer.zero_grad()
        answers = module(**x) if isinstance(x, dict) else module(x)
        F.cross_entropy(answers, y, ignore_index=IGNORE).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def ours(case: Case, model: FlatModel, start: Tensor) -> Tensor:
    """Train an epoch as a silo does; return the parameters."""
    settings = LocalTraining(lr=LR, batch_size=case.size, epochs=1)
    batches = Batches(case.split, case.features, model.device)
    drawn = torch.Generator().manual_seed(0)
    return train(Training(model, batches, start, settings, Loss(case.task.objective), drawn)).end


def measure(name: str, examples: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of an epoch of each side, repeat by repeat.

    Raises:
        AssertionError: the sides end at other parameters.
    """
    case = CASES[name](examples)
    torch.manual_seed(0)
    module = case.module()
    begin = {key: value.clone() for key, value in module.state_dict().items()}
    model = FlatModel(case.module())
    model.module.load_state_dict(begin)
    start = model.trained.clone()

    def again(batches: Callable[[Case], Iterable[tuple[Any, Tensor]]]) -> Tensor:
        module.load_state_dict(begin)
        return plain(case, batches, module)

    sides = {
        "mpifl": partial(ours, case, model, start),
        "by hand": partial(again, by_hand),
        "DataLoader": partial(again, by_loader),
    }
    ends = [once().clone() for once in sides.values()]
    for end in ends[1:]:
        torch.testing.assert_close(ends[0], end)
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(WARMUP + repeats):
        for side, once in sides.items():
            began = time.process_time()
            once()
            taken[side].append(time.process_time() - began)
    return {side: values[WARMUP:] for side, values in taken.items()}


def compared(taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Return the ratio of our times to each other side's: median, quartiles, and that of the best."""
    mine, found = taken["mpifl"], {}
    for side in ("by hand", "DataLoader"):
        low, ratio, high = quantiles((a / b for a, b in zip(mine, taken[side], strict=True)), n=4)
        found[side] = {"ratio": ratio, "low": low, "high": high, "of_best": min(mine) / min(taken[side])}
    return found


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=640, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="two repeats of few: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    examples, repeats = (64, 2) if options.quick else (options.examples, options.repeats)
    if repeats < 2:
        parser.error("--repeats must be at least 2")
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    for name in CASES:
        taken = measure(name, examples, repeats)
        rows[name] = {"seconds": median(taken["mpifl"]), **compared(taken)}
        for side, one in compared(taken).items():
            spread = f"{one['low']:.2f} to {one['high']:.2f}; of the best {one['of_best']:.2f}"
            print(f"{name}: {one['ratio']:.2f} of the time of PyTorch, {side} ({spread})")
    save(options.json, rows)


if __name__ == "__main__":
    main()
