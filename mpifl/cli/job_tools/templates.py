"""The templates of `mpifl new`: a job for each kind of data, and the commands of `data-prep` for its
shards."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from mpifl.common import InputError, Table, choices

MASKS = "masks"
"""Marks templates whose label is a folder of masks."""
_PERCEPTRON: Table = {"name": "mlp", "hidden": [64, 64]}
_SGD: Table = {"optimizer": "sgd", "lr": 0.05, "epochs": 1, "batch_size": 16}
_ADAM: Table = {"optimizer": "adam", "lr": 0.003, "epochs": 1, "batch_size": 32}


@dataclass(frozen=True)
class Template:
    """A kind of data, and its learning task.

    Attributes:
        what: The description in one line.
        source: The source of `data-prep partition`.
        job: Its own tables of the job.
        label: The kind of label for `data-prep draft --kind`; MASKS; or "" if there is no label to name.
        words: Further words of `data-prep partition`.
        scheme: The scheme that divides the examples among silos.
        algorithm: The default algorithm.
    """

    what: str
    source: str
    job: Mapping[str, Table]
    label: str = ""
    words: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ("iid",)
    algorithm: str = "fedavg"

    @property
    def of_table(self) -> bool:
        """Whether the data is a table, whose columns a spec describes."""
        return self.label not in ("", MASKS)


TEMPLATES: dict[str, Template] = {
    "digits": Template(
        "handwritten digits that scikit-learn carries, to try it out",
        "digits",
        {"model": _PERCEPTRON, "local": _SGD},
        scheme=("dirichlet", "--alpha", "0.5"),
    ),
    "table": Template(
        "a CSV table: the class of a row",
        "csv",
        {"model": _PERCEPTRON, "local": _SGD},
        label="categorical",
        words=("--test", "0.2"),
    ),
    "regression": Template(
        "a CSV table: a number of each row",
        "csv",
        {"model": _PERCEPTRON, "task": {"name": "regression"}, "local": {**_ADAM, "lr": 0.01}},
        label="numeric",
        words=("--test", "0.2"),
    ),
    "survival": Template(
        "a CSV table: the time until an event",
        "csv",
        {"model": _PERCEPTRON, "task": {"name": "survival"}, "local": {**_ADAM, "batch_size": 256}},
        label="survival",
        words=("--test", "0.2"),
    ),
    "images": Template(
        "a folder of images for each class",
        "images",
        {"model": {"name": "cnn"}, "local": _SGD},
        words=("--option", "size=32x32", "--test", "0.2"),
    ),
    "segmentation": Template(
        "a folder of images, and one of masks: the class of a pixel",
        "images",
        {
            "model": {"name": "unet", "width": 16, "depth": 3},
            "task": {"name": "segmentation"},
            "local": {**_ADAM, "batch_size": 8},
        },
        label=MASKS,
        words=("--option", "size=64x64", "--test", "0.2"),
    ),
    "text": Template(
        "a text file: its next character",
        "text",
        {"model": {"name": "gpt", "width": 64, "layers": 2, "heads": 4}, "local": _ADAM},
        words=("--option", "roles=false", "--test", "0.2"),
    ),
    "vertical": Template(
        "a CSV table whose columns lie with several parties: the class of a row",
        "csv",
        {
            "model": {"name": "mlp", "hidden": [32]},
            "split": {"cut_width": 16, "top": {"name": "mlp", "hidden": [16]}},
            "local": _ADAM,
        },
        label="categorical",
        words=("--test", "0.2"),
        scheme=("vertical",),
        algorithm="splitnn",
    ),
}
"""The templates by the names that `mpifl new` takes."""


@dataclass(frozen=True)
class Answers:
    """A user's answers for a new job.

    Attributes:
        name: The job's name.
        kind: One of TEMPLATES.
        data: The path of the data; "" if the source needs none.
        label: The label's column, or several with commas; the folder of masks; or "" without a label.
        silos: The number of silos, or the table's column that names them.
        algorithm: The algorithm; "" for the template's.
        rounds: The number of rounds.
        moments: Mean and deviation of each label column of values, if known.
    """

    name: str
    kind: str
    data: str = ""
    label: str = ""
    silos: str = ""
    algorithm: str = ""
    rounds: int = 30
    moments: tuple[tuple[float, float], ...] = ()

    @property
    def template(self) -> Template:
        """The template of the kind.

        Raises:
            InputError: there is no such template, or an answer does not fit it.
        """
        if self.kind not in TEMPLATES:
            raise InputError(f"--kind {self.kind}: no such kind; {choices(self.kind, TEMPLATES)}")
        found = TEMPLATES[self.kind]
        unused = {"--data": self.data and found.source == "digits", "--label": self.label and not found.label}
        if wrong := [option for option, given in unused.items() if given]:
            raise InputError(f"{wrong[0]}: --kind {self.kind} has no use for it ({found.what})")
        by_column = found.of_table and found.scheme[0] != "vertical"
        if self.silos and not self.silos.isdecimal() and not by_column:
            raise InputError(f"--silos {self.silos}: is no number of silos")
        return found

    def job(self) -> Table:
        """Return the job."""
        template = self.template
        head: Table = {"name": self.name, "shards": f"shards/{self.name}", "seed": 7, "rounds": self.rounds}
        tables: dict[str, Table] = {
            "algorithm": {"name": self.algorithm or template.algorithm},
            "checkpoint": {"every": 10},
        }
        if self.moments:
            told = [[float(f"{one:.4g}") for one in column] for column in zip(*self.moments, strict=True)]
            both = zip(("mean", "deviation"), told, strict=True)
            learned = {key: column if len(column) > 1 else column[0] for key, column in both}
            tables["task"] = {**template.job["task"], **learned}
        order = ("model", "task", "algorithm", "split", "local", "checkpoint")
        whole: dict[str, Table] = {**template.job, **tables}
        return {**head, **{table: dict(whole[table]) for table in order if table in whole}}

    def commands(self, source: str) -> list[str]:
        """Return the commands that make the shards, one line each; `source` is that of the data."""
        template, counted = self.template, self.silos.isdecimal()
        columns = f"{self.name}-columns.toml"
        made = []
        if template.of_table:
            drafted = ["data-prep", "draft", self.data, "--label", self.label, "--kind", template.label]
            made.append([*drafted, *([] if counted else ["--silo", self.silos]), "--out", columns])
        cut = ["data-prep", "partition", source, *(["--data", self.data] if self.data else [])]
        cut += ["--option", f"spec={columns}"] if template.of_table else []
        cut += ["--option", f"masks={self.label}"] if template.label == MASKS else []
        scheme = [*template.scheme, "--silos", self.silos] if counted else ["natural"]
        made.append(
            [*cut, "--out", f"shards/{self.name}", "--scheme", *scheme, *template.words, "--seed", "7"]
        )
        return [shlex.join(words) for words in made]
