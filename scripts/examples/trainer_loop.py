"""A silo's training by the Trainer of Hugging Face.

    pip install 'mpifl[hf]'
    mpifl train jobs/demo.toml --set algorithm.name=scripts.examples.trainer_loop:TrainerLoop

The loss is the job's. A model that computes its own needs no `compute_loss`, but a `data_collator` that calls
inputs and targets by the names which its `forward` takes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.utils.data import default_collate
from transformers import PrinterCallback, Trainer, TrainingArguments

from mpifl import FedAvg, Silo, Update

WORLDS = ("OMPI_COMM_WORLD_", "PMI_", "MV2_COMM_WORLD_", "MPI_LOCAL")


class TrainerLoop(FedAvg):
    """FedAvg whose silos train by `transformers.Trainer`; `[local]` says lr, batch_size and epochs."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        class OfTheJob(Trainer):
            def compute_loss(trainer, module: nn.Module, inputs: dict[str, Tensor], **_: object) -> Tensor:
                return self.objective(module, inputs["x"], inputs["y"])

        local, seed = self.local.at_round(silo.round), silo.generator.initial_seed() % 2**32
        with tempfile.TemporaryDirectory() as folder, alone(), silo.loaded(w) as module:
            arguments = TrainingArguments(
                folder,
                learning_rate=local.lr,
                per_device_train_batch_size=local.batch_size,
                num_train_epochs=local.epochs or 1,
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=w.device.type == "cpu",
            )
            examples = silo.split("train")
            trainer = OfTheJob(module, arguments, data_collator=by_name, train_dataset=examples)
            trainer.remove_callback(PrinterCallback)
            done = trainer.train()
        return silo.update(delta=silo.delta(), train_loss=done.training_loss)


def by_name(rows: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return a batch as a Trainer takes it: a dict."""
    x, y = default_collate(rows)
    return {"x": x, "y": y}


@contextmanager
def alone() -> Iterator[None]:
    """Hide the world of MPI from accelerate, which would bring its ranks together to train one model."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(WORLDS)}
    try:
        yield
    finally:
        os.environ.update(hidden)
