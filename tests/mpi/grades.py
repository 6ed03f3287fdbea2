"""A user's module with a task: grades as numbers, and a main metric of which lower is better."""

import torch

from mpifl.common import InputError
from mpifl.learning.tasks import Task


class AbsoluteError:
    """How far answers are off, in the mean."""

    higher_is_better = False

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, outputs, y):
        self.total += float((outputs - y).abs().double().sum())
        self.count += y.numel()

    def compute(self):
        return self.total / self.count


class Within(torch.nn.Module):
    """The share of answers that are off by no more than `by`;
    a module with a buffer, as torchmetrics' are."""

    higher_is_better, share = True, True

    def __init__(self, by):
        super().__init__()
        self.by = by
        self.register_buffer("right", torch.zeros((), dtype=torch.float64))
        self.count = 0

    def update(self, outputs, y):
        assert self.right.device == outputs.device
        self.right += ((outputs - y).abs() <= self.by).sum()
        self.count += y.numel()

    def compute(self):
        return self.right / self.count


class Ordinal(Task):
    """Labels are grades: an answer is one number, and the better the nearer."""

    by: float = 0.5

    def outputs(self, module, x):
        return module(x).squeeze(1)

    def loss(self, outputs, y):
        return torch.nn.functional.mse_loss(outputs, y.to(outputs), reduction="sum"), y.numel()

    def metrics(self):
        return {"absolute_error": AbsoluteError(), "within": Within(self.by)}

    def width(self, spec):
        return 1

    def check_outputs(self, outputs, examples, width):
        if outputs.shape != (examples,):
            raise ValueError(
                f"it answers {examples} examples with shape {list(outputs.shape)}, not [{examples}]"
            )

    def check(self, spec, module):
        if spec.classes < 3:
            raise InputError(
                f"[task] name = 'grades:Ordinal': {spec.classes} grades are too few; use 3 or more"
            )
