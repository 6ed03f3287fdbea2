"""`mpifl export`: the model of a run as a folder that Hugging Face's libraries read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mpifl.common import InputError, one_line
from mpifl.data.shards import FederationSpec, encoding_of
from mpifl.learning.models import write_pretrained
from mpifl.report.judging import Which, learned_from, module_of, told_model
from mpifl.run.job import Job

OF_TOKENIZERS = (
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template*",
)
"""The files that a tokenizer of transformers may have."""


@dataclass(frozen=True)
class Exporting:
    """What `mpifl export` is asked for.

    Attributes:
        out: The new folder.
        tokenizer: The folder of the tokenizer; None is the model's.
        adapters: Whether adapters are written alone.
    """

    out: Path
    tokenizer: str | None = None
    adapters: bool = False


def export_run(run: Path, asked: Exporting, trusted: Collection[str] = (), last: Which = False) -> None:
    """Write the model of a run with its tokenizer to a new folder, whole or not at all.

    Args:
        run: The run folder.
        asked: Where to, and what.
        trusted: The plug-ins that the run's job may import.
        last: Take the model of the last round, of the beginning, or a silo's own.

    Raises:
        InputError: the run's model is none of transformers, it has no adapters and they are asked for, the
            tokenizer is another than the training's, or the folder is there or cannot be written.
    """
    if asked.out.exists() and not (asked.out.is_dir() and not any(asked.out.iterdir())):
        raise InputError(f"{asked.out}: is there already; name a new folder")
    job, spec = learned_from(run, trusted)
    files, why_none = _tokenizer(run, job, spec, asked.tokenizer)
    module = module_of(run, job, spec, last)
    told_model(run, job, last)
    try:
        asked.out.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{asked.out.name}.", dir=asked.out.absolute().parent
        ) as aside:
            made = Path(aside, "made")
            made.mkdir()
            kind = write_pretrained(module, made, adapters=asked.adapters)
            for file in files:
                shutil.copyfile(file, made / file.name)
            for file in made.glob("*.safetensors"):  # which its library writes for the owner alone
                shutil.copymode(next(made.glob("*config.json")), file)
            os.replace(made, asked.out)
    except ValueError as error:
        raise InputError(f"{run}: [model] name = '{job.model.name}': {error}") from None
    except OSError as error:
        raise InputError(f"{asked.out}: cannot be written ({one_line(error.strerror or error)})") from None
    print(f"exported: {asked.out}, for {kind}" + (f"; {why_none}" if why_none else ""))


def _tokenizer(run: Path, job: Job, spec: FederationSpec, named: str | None) -> tuple[list[Path], str]:
    """Return the files of the training's tokenizer, and why there are none."""
    from data_prep.sources import tokens_by

    record, own = encoding_of(spec.source) or {}, job.model.arguments.get("path")
    plain = "bytes" if record.get("tokenizer") == "bytes" else record.get("kind")
    if plain in ("bytes", "characters"):
        if named is not None:
            raise InputError(f"--tokenizer {named}: {run} has learned from {plain}; leave it out")
        return [], f"no tokenizer, since tokens are {plain}"
    place = named or own
    folder = Path(place) if isinstance(place, str) else None
    if record.get("kind") == "tokens":
        tokens_by(record, spec.class_names, folder)
    found = sorted({file for kind in OF_TOKENIZERS for file in folder.glob(kind)}) if folder else []
    if named is not None and not found:
        raise InputError(f"--tokenizer {named}: has no files of a tokenizer; name the training's own folder")
    return found, "" if found else f"no tokenizer, since {folder} has none"
