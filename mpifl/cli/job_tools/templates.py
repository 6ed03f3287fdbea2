"""The templates of `mpifl new`: a job for each kind of data, and the commands of `data-prep` for its
shards."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mpifl.common import InputError, Table, choices

MASKS = "masks"
"""Marks templates whose label is a folder of masks."""
PARENT = "parent"
"""Says of silos that the data has a folder or a file for each."""
RESIZED = ("--size", "64x64")
"""The words of a partition that bring images with masks to one size."""
_PERCEPTRON: Table = {"name": "mlp", "hidden": [64, 64]}
_SGD: Table = {"optimizer": "sgd", "lr": 0.05, "epochs": 1, "batch_size": 16}
_ADAM: Table = {"optimizer": "adam", "lr": 0.003, "epochs": 1, "batch_size": 32}


class SiteData(NamedTuple):
    """A site's table, its source in `data-prep`, the site's name, and the file of its spec."""

    table: str
    source: str
    name: str
    spec: str


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
        "a CSV table, or one of each site: the class of a row",
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
        "a folder of images for each class, or of such folders for each site",
        "images",
        {"model": {"name": "cnn"}, "local": _SGD},
        words=("--size", "32x32", "--test", "0.2"),
    ),
    "segmentation": Template(
        "a folder of images or NIfTI volumes, and one of masks: the class of a pixel",
        "images",
        {
            "model": {"name": "unet", "width": 16, "depth": 3},
            "task": {"name": "segmentation"},
            "local": {**_ADAM, "batch_size": 8},
        },
        label=MASKS,
        words=(*RESIZED, "--test", "0.2", "--keep", "id"),
    ),
    "text": Template(
        "texts, .txt or .jsonl, or a folder with a file for each site: the next character",
        "text",
        {
            "model": {"name": "gpt", "width": 64, "layers": 2, "heads": 4},
            "task": {"name": "language"},
            "local": _ADAM,
        },
        words=("--no-roles", "--test", "0.2"),
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

ROUNDS, NEWTON_ROUNDS = 30, 10
RARE = 0.2
"""The share of the rows below which a class is rare."""


@dataclass(frozen=True)
class Answers:
    """A user's answers for a new job, and what was seen in the data.

    Attributes:
        name: The job's name.
        kind: One of TEMPLATES.
        data: The paths of the data: several are the tables of several sites; none if the source needs none.
        label: The label's column, or several with commas; the folder of masks; or "" without a label.
        silos: The number of silos, or the column or field that names them; "" where the data is parted.
        algorithm: The algorithm; "" for the template's.
        rounds: The number of rounds; None for the usual one.
        moments: Mean and deviation of each label column of values, if known.
        classes: The rows of each class of a label of categories, in the order of the classes, if known.
        apart: Whether tables code two classes otherwise, so that there are more until these are joined.
        parted: Whether the data has a folder or a file for each silo.
        masked: Whether the masks were found by the names of files and folders.
        group: What says which images stay together, as the source `images` takes it.
        validated: Whether silos have images enough for a validation split that ends the training.
        drawn: In place of the template's words those that the data needs, if it was looked at.
        own_spec: The spec that lies beside the only table, if one does.
    """

    name: str
    kind: str
    data: tuple[str, ...] = ()
    label: str = ""
    silos: str = ""
    algorithm: str = ""
    rounds: int | None = None
    moments: tuple[tuple[float, float], ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    apart: bool = False
    parted: bool = False
    masked: bool = False
    group: str = ""
    validated: bool = False
    drawn: tuple[str, ...] | None = None
    own_spec: str = ""

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
        named = by_column or self.of_lines or (self.silos == PARENT and found.source in ("images", "text"))
        if self.silos and not self.silos.isdecimal() and not named:
            raise InputError(f"--silos {self.silos}: is not a number of silos")
        if self.silos and len(self.data) > 1:
            raise InputError(f"--silos {self.silos}: each of {len(self.data)} tables is a silo; leave it out")
        return found

    @property
    def fits_all(self) -> bool:
        """Whether a regression is fitted to all rows: none is held out, and columns keep their units."""
        return self.algorithm in ("newton", "cox")

    @property
    def words(self) -> tuple[str, ...]:
        """Further words of the command that makes the shards."""
        words = self.template.words if self.drawn is None else self.drawn
        return ("--test", "0") if self.fits_all and self.template.of_table else words

    @property
    def of_lines(self) -> bool:
        """Whether the data is one file of a text in each line, whose silos a field may name."""
        return self.kind == "text" and len(self.data) == 1 and self.data[0].lower().endswith(".jsonl")

    @property
    def columns(self) -> str:
        """The spec of the table's columns."""
        return self.own_spec or f"{self.name}-columns.toml"

    @property
    def is_binary(self) -> bool:
        """Whether one of two classes is learned."""
        return self.kind == "table" and (len(self.classes) == 2 or self.apart)

    @property
    def of_rare(self) -> str:
        """What may be done where one of the two classes is rare; else nothing.

        The job has no weights by itself: the main metric needs none, and probabilities would be no risks.
        """
        rows = [*self.classes.values()]
        if not self.is_binary or len(rows) > 2 or min(rows) >= RARE * sum(rows):
            return ""
        what = 'a class is rare: weights = "balanced" in [task] finds more of them at a probability of 1/2'
        return f"{what}, but probabilities are then no risks"

    def job(self) -> Table:
        """Return the job."""
        template = self.template
        rounds = self.rounds or (NEWTON_ROUNDS if self.fits_all else ROUNDS)
        head: Table = {"name": self.name, "shards": f"shards/{self.name}", "seed": 7, "rounds": rounds}
        tables: dict[str, Table] = {
            "algorithm": {"name": self.algorithm or template.algorithm},
            "checkpoint": {"every": 10},
        }
        if self.moments:
            told = [[float(f"{one:.4g}") for one in column] for column in zip(*self.moments, strict=True)]
            both = zip(("mean", "deviation"), told, strict=True)
            learned = {key: column if len(column) > 1 else column[0] for key, column in both}
            tables["task"] = {**template.job["task"], **learned}
        tables |= {"task": {"name": "binary"}} if self.is_binary else {}
        if self.validated:
            tables["evaluate"] = {"split": "valid", "patience": 10}
        order = ("model", "task", "algorithm", "split", "local", "evaluate", "checkpoint")
        whole: dict[str, Table] = {**template.job, **tables}
        if self.fits_all:  # has no training by steps, and one coefficient a column
            task = self.kind if self.kind == "survival" else ("binary" if self.is_binary else "regression")
            whole = {**tables, "model": {"name": "logreg"}, "task": {"name": task}}
        return {**head, **{table: dict(whole[table]) for table in order if table in whole}}

    def commands(self, source: str) -> list[str]:
        """Return the commands that make the shards, one line each; `source` is that of the data."""
        out, seed = ["--out", f"shards/{self.name}"], ["--seed", "7"]
        if len(self.data) > 1:
            spec = ["--spec", self.columns, "--name", self.name]
            return [shlex.join(["data-prep", "sites", *self.data, *spec, *self.words, *seed, *out])]
        return [shlex.join([*self._cut(source), *out, *self._scheme(source), *seed])]

    def commands_apart(self, sites: Sequence[SiteData]) -> list[str]:
        """Return the commands that do so where each table stays at its site."""
        agreed, made = f"{self.name}-agreed.json", list[list[str]]()
        for one in sites:
            words = ["--data", one.table, "--spec", one.spec, "--out", f"{one.name}.json"]
            made.append(["data-prep", "statistics", one.source, *words])
        made.append(["data-prep", "spec", agreed, "--name", self.name, "--table", self.columns])
        out = [*self.words, "--seed", "7", "--out", f"shards/{self.name}"]
        for number, one in enumerate(sites):
            own = ["--data", one.table, "--option", f"spec={one.spec}", "--spec", agreed]
            whose = ["--silo", str(number), "--name", one.name]
            made.append(["data-prep", "import", one.source, *own, *whose, *out])
        made.append(["data-prep", "assemble", f"shards/{self.name}"])
        return [shlex.join(words) for words in made]

    def _cut(self, source: str) -> list[str]:
        """Return the words of a partition that say what is read."""
        template = self.template
        cut = ["data-prep", "partition", source, *(word for path in self.data for word in ("--data", path))]
        cut += ["--spec", self.columns] if template.of_table else []
        cut += ["--masks", self.label] if template.label == MASKS else []
        cut += ["--group", self.group] if self.group else []
        if self.of_lines and not self.silos.isdecimal():
            return [*cut, "--silo", self.silos]
        return [*cut, *(["--silo", "parent"] if self.parted and source in ("images", "nifti") else [])]

    def _scheme(self, source: str) -> list[str]:
        """Return the words of a partition that say how silos are made, and what is held out."""
        number = ["--silos", self.silos] if self.silos.isdecimal() else []
        scheme = ["natural", *number] if self.parted or not number else [*self.template.scheme, *number]
        held = () if self.parted and source == "text" else self.words
        if self.validated:  # a group is whole in one split, so a small share might hold none
            held = (*held, "--valid", "0.2" if self.group else "0.1")
        return ["--scheme", *scheme, *held]
