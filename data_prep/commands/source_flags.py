"""The options of all sources as options of a command: what a source takes by keyword, the command line takes
too."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Optional

import typer

from data_prep.commands.flags import taken_too
from data_prep.sources import SOURCES
from mpifl.common import InputError

MEANINGS = {
    "beta": "How much the silos' features differ; 0.",
    "class_names": "What the classes are called, in the order of their numbers, as healthy,ill.",
    "coarse": "Take the 20 superclasses.",
    "end": "The token that ends each text; none. With bytes it is 256.",
    "example": "What an example is: dicom: slice or series; nifti: volume or slice.",
    "examples": "How many examples train; 4000.",
    "feature_names": "What the columns of x are called, as age,sex,bmi.",
    "fill": "What stands behind inputs of unequal lengths in a batch; 0. By name: input_ids:0,bag:-1.",
    "flamby": "Hold out FLamby's own rows, and standardise each hospital by its own others.",
    "grey": "Make all images grey.",
    "colours": "Masks of palettes are told by their colours; false: by their numbers.",
    "ground": "What transparent images lie on: white, black or #808080.",
    "held_out": "The path of the array that says which rows are for testing.",
    "id": "The column or array that says which example one is, as patient_id.",
    "ignore": "A class number that does not count, as 255 or -100.",
    "iid": "Have all silos alike, in place of alpha and beta.",
    "inputs": "What a model calls the tokens, and their mask, as input_ids,attention_mask.",
    "label": "The attribute that is the class, as BodyPartExamined.",
    "labels": "A CSV file of two columns: an attribute or file, and its class.",
    "length": "How many characters, tokens or words an example has.",
    "mask": "What a model calls the mask of inputs of unequal lengths.",
    "masks": "The folder with a mask of each image or volume, by the same names.",
    "min_lines": "The fewest lines of a role that is a silo; 2.",
    "missing": "What becomes of a row with a '?': level or drop.",
    "one_silo": "All files of a folder are of one silo.",
    "ragged": "Fill nothing: sequences have unequal lengths.",
    "roles": "Take each speaking role for a silo; without, the text is one.",
    "scale": "What a model multiplies stored features by, as 1/255.",
    "shape": "The shape of an example, as 1x28x28.",
    "silo": "What says whose an example is: a column, field, attribute or array; parent: the folder above.",
    "silo_names": "What the silos are called, in the order of their numbers, as north,south.",
    "size": "What images are resized to, WIDTHxHEIGHT, as 32x32.",
    "spec": "The TOML file that says what columns mean; the table's name with .toml.",
    "standardise": "Standardise the columns of x: by all rows (own), or by those that train (train).",
    "target_names": "What the columns of y are called, as systolic,diastolic.",
    "targets": "What y is: classes, values or labels.",
    "tokenizer": "bytes, or a folder with a tokenizer.json; bytes.",
    "values": "Which numbers of masks are the classes 0, 1, ..., as 0,255, or 0,1/255 for one class of two.",
    "variety": "How much the silos' words differ; 100.",
    "words": "How many words there are; 2000.",
    "x": "The path of the features in the file.",
    "x_test": "The path of the features of the server's test set.",
    "y": "The path of the targets in the file.",
    "y_test": "The path of the targets of the server's test set.",
}
"""What the help says of each."""
PANEL = "Options of sources"


def with_source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command with a parameter `**options` take every source's options, None where not given.

    An option whose name the command has for something else is left to `--option NAME=VALUE`.
    """
    own = inspect.signature(command).parameters
    return taken_too(command, [_parameter(name) for name in MEANINGS if name not in own])


def words_of(source: str, words: Sequence[str] | None, options: dict[str, Any]) -> list[str]:
    """Return the options of a source as `KEY=VALUE` words, and take them out of `options`.

    Raises:
        InputError: one is given that the source does not take.
    """
    given = {name: options.pop(name, None) for name in MEANINGS}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given if source in SOURCES else ():
        if name not in inspect.signature(SOURCES[source]).parameters:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option}: {source} has no such option; it is for {', '.join(_takers(name))}")
    texts = {True: "true", False: "false"}
    return [
        *(words or ()),
        *(f"{name}={texts[value] if isinstance(value, bool) else value}" for name, value in given.items()),
    ]


def as_typed(said: str, words: Sequence[str]) -> str:
    """Return a message on `--option: KEY=VALUE` with the option by which it was typed, `--KEY VALUE`."""
    found = re.match(r"--option: ([a-z_]+)=", said)
    option = f"--{found[1].replace('_', '-')}" if found else ""
    if not found or not any(word.partition("=")[0] == option for word in words):
        return said
    return f"{option} {said[found.end() :]}"


def _takers(name: str) -> list[str]:
    return [source for source, read in SOURCES.items() if name in inspect.signature(read).parameters]


def _parameter(name: str) -> inspect.Parameter:
    takers = _takers(name)
    usual = inspect.signature(SOURCES[takers[0]]).parameters[name].default
    kind: Any = bool if isinstance(usual, bool) else str
    option = typer.Option(help=f"{', '.join(takers)}: {MEANINGS[name]}", rich_help_panel=PANEL)
    annotation: Any = Annotated[Optional[kind], option]  # noqa: UP045
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
