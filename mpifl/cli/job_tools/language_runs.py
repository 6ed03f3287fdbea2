"""`mpifl generate`, and `mpifl predict --texts`: what the language model of a run makes of texts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from mpifl.cli.job_tools.predict_files import Predicting
from mpifl.cli.texts import Prompts, check_prompts
from mpifl.common import InputError, one_line, rng, write_atomic
from mpifl.data.shards import FederationSpec, encoding_of
from mpifl.learning.models import GoingOn, check_room, go_on, inputs_of
from mpifl.learning.tasks import Task
from mpifl.report.judging import (
    Which,
    check_asked,
    learned_from,
    module_of,
    read_job_of,
    table_of,
    told_model,
)
from mpifl.run.job import Job
from mpifl.silo.parameters import FlatModel

MOST_LOGITS = 4_000_000
"""Numbers that a model answers at once, at most."""
RULE = 40
"""Characters of the line above each of several texts."""


@dataclass(frozen=True)
class _LanguageModel:
    """The model of a run, and what makes tokens of texts as in its training."""

    spec: FederationSpec
    task: Task
    model: FlatModel
    tokens: Any

    def outputs(self, x: Any) -> torch.Tensor:
        """Return the logits of an example."""
        found: torch.Tensor = self.task.outputs(self.model.module, x)
        return found


def generate_run(
    run: Path, asked: Prompts, out: Path | None, trusted: Collection[str] = (), last: Which = False
) -> None:
    """Print how the model of a run continues with each prompt, or write it to a file.

    Args:
        run: The run folder.
        asked: The prompts, and how they go on.
        out: The file, `.jsonl` or `.txt`; None prints texts.
        trusted: The plug-ins that the run's job may import.
        last: Take the model of the last round, or of the beginning.

    Raises:
        InputError: the run's task is no language model, its tokenizer is not there, a prompt has no token or
            is too long, or the file cannot be written.
    """
    prompts = check_prompts(asked, out)
    found = _generated(_opened(run, trusted, asked.tokenizer, last=last), prompts, asked)
    if out is None:
        for (number, _), told in zip(prompts, found, strict=True):
            if len(prompts) > 1:
                print(f"── {number} ".ljust(RULE, "─"))
            print(told["prompt"] + told["completion"], end="\n\n", flush=True)
        return
    told_model(run, read_job_of(run, trusted), last)
    as_text = out.suffix == ".txt"
    lines = [
        f"{told['prompt']}{told['completion']}\n" if as_text else json.dumps(told, ensure_ascii=False)
        for told in found
    ]
    try:
        write_atomic(out, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror})") from None
    print(f"generated: {out}, {len(lines):,} texts")


def predict_texts(asked: Predicting, path: Path, tokenizer: str | None = None) -> None:
    """Write how well the model of a run predicts each of some texts: its tokens, their mean loss, perplexity.

    Args:
        asked: The run, and where to write.
        path: A `.txt` file, a folder of such, or a `.jsonl` file with a text on each line.
        tokenizer: As of `Prompts`.

    Raises:
        InputError: as of `generate_run`, or a text has no token to predict.
    """
    from data_prep.sources import texts_in

    check_asked(asked.out, None)
    opened = _opened(asked.run, asked.trusted, tokenizer, last=asked.last)
    told_model(asked.run, read_job_of(asked.run, asked.trusted), asked.last)
    names: list[str] = []
    figures: list[tuple[int, float]] = []
    with table_of(asked.out, path, None) as append:
        for name, place, line in texts_in(path):
            where = f"--texts {place}"
            prompt, text = _encoded(opened.tokens, [line.prompt, line.text], where)
            total, count = _loss(opened, prompt, text)
            if not count:
                raise InputError(f"{where}: has no token to predict; leave it out")
            names.append(name)
            figures.append((count, total / count))
        counts, losses = (np.array([one[at] for one in figures]) for at in (0, 1))
        told = {"row": np.arange(len(names)), "id": np.array(names, np.str_), "tokens": counts}
        append({**told, "loss": losses, "perplexity": np.exp(losses)})


@torch.no_grad()
def _loss(opened: _LanguageModel, prompt: Sequence[int], text: Sequence[int]) -> tuple[float, int]:
    """Return the sum of -log p over the tokens of a text after its first or its prompt, and their number."""
    inputs, end = _inputs(opened), opened.tokens.end
    every = [*prompt, *text, *([] if end is None else [end])]
    one = opened.spec.features
    length = (next(iter(one.values())) if isinstance(one, dict) else one).shape[0]
    begin, total, count, windows = max(0, len(prompt) - 1), 0.0, 0, list[tuple[Any, torch.Tensor, int]]()
    for start in range(0, len(every) - 1, length):
        x, last = inputs(every[start : start + length][: len(every) - 1 - start])
        y = torch.tensor(every[start + 1 : start + last + 2])
        if (skipped := max(0, begin - start)) < len(y):
            windows.append((x, y, skipped))
    for some in _together(windows, max(1, MOST_LOGITS // (length * (opened.spec.classes or 1)))):
        logits = opened.outputs(_joined([x for x, _, _ in some]))
        for row, (_, y, skipped) in zip(logits, some, strict=True):
            of = row[:, skipped : len(y)].double().T
            total += float(F.cross_entropy(of, y[skipped:], reduction="sum"))
            count += len(y) - skipped
    return total, count


def _together(
    windows: Sequence[tuple[Any, torch.Tensor, int]], most: int
) -> Iterator[Sequence[tuple[Any, torch.Tensor, int]]]:
    """Yield windows of a text that a model takes at once: so many at most, and of one length."""
    for _, alike in groupby(windows, lambda window: _length(window[0])):
        some = [*alike]
        yield from (some[at : at + most] for at in range(0, len(some), most))


def _length(x: Any) -> int:
    return int((next(iter(x.values())) if isinstance(x, dict) else x).shape[1])


def _joined(inputs: Sequence[Any]) -> Any:
    """Return examples as one batch."""
    if isinstance(inputs[0], dict):
        return {name: torch.cat([one[name] for one in inputs]) for name in inputs[0]}
    return torch.cat([*inputs])


def _encoded(tokens: Any, texts: Sequence[str], where: str) -> list[list[int]]:
    """Return the tokens of texts; a refusal says where they stand."""
    try:
        found: list[list[int]] = tokens.encode(texts)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return found


def _inputs(opened: _LanguageModel) -> Any:
    try:
        return inputs_of(opened.spec.features)
    except ValueError as error:
        raise InputError(f"the model takes no texts: {error}; predict shards by --data") from None


def _generated(
    opened: _LanguageModel, prompts: list[tuple[int, str]], asked: Prompts
) -> Iterator[dict[str, Any]]:
    """Check all prompts. Then yield each, what it continues with, the number of new tokens, and whether the
    text ended."""
    tokens, drawn = opened.tokens, 1.0 if asked.temperature is None else asked.temperature
    how = GoingOn(asked.length, tokens.end, None if asked.seed is None else drawn)
    more: dict[str, Any] = {"outputs": opened.outputs, "features": opened.spec.features}
    every: list[tuple[int, str, list[int]]] = []
    for number, prompt in prompts:
        where = f"--prompts {asked.file}: line {number}"
        (given,) = _encoded(tokens, [prompt], where)
        if not given:
            raise InputError(f"{where}: has no token; write a prompt")
        try:
            check_room(opened.model.module, given, how)
        except ValueError as error:
            raise InputError(f"{where}: {error}; shorten it, or give a smaller --length") from None
        every.append((number, prompt, given))
    for number, prompt, given in every:
        try:
            with rng.scope(asked.seed or 0, "generate", number, device=opened.model.device) as stream:
                found, ended = go_on(opened.model.module, given, how, stream, **more)
        except ValueError as error:
            raise InputError(f"--prompts {asked.file}: line {number}: {one_line(error)}") from None
        completion = tokens.decode([*given, *found])[len(tokens.decode(given)) :]
        yield {"prompt": prompt, "completion": completion, "tokens": len(found), "ended": ended}


def _opened(run: Path, trusted: Collection[str], tokenizer: str | None, *, last: Which) -> _LanguageModel:
    """Return the language model of a run; raise InputError if its task is another, there is no such model, or
    no tokenizer that fits it."""
    job = read_job_of(run, trusted)
    if not job.build_task().generates:
        named = f"{run}: [task] name = '{job.task['name']}'"
        raise InputError(f"{named}: has no next token; use a run of the task 'language'")
    _, spec = learned_from(run, trusted)
    tokens = _tokens(run, job, spec, tokenizer)
    if tokens.size > (spec.classes or 0):
        said = f"has {tokens.size:,} tokens, the model {spec.classes or 0:,}"
        raise InputError(f"--tokenizer {tokenizer}: {said}; name the training's own")
    task = job.build_algorithm().for_federation(spec).task
    model = FlatModel(module_of(run, job, spec, last))
    model.module.eval()
    return _LanguageModel(spec, task, model, tokens)


def _tokens(run: Path, job: Job, spec: FederationSpec, named: str | None) -> Any:
    """Return what makes tokens of texts, as in the training."""
    from data_prep.sources import tokens_by

    record, own = encoding_of(spec.source), job.model.arguments.get("path")
    if record is None:
        if named is None:
            what = "does not say how its texts became tokens (shards of an older version or another source)"
            raise InputError(f"{run}: {what}; name it: --tokenizer bytes, characters or FOLDER")
        plain = {"characters": {"kind": "characters"}, "bytes": {"kind": "tokens", "tokenizer": "bytes"}}
        record = plain.get(named, {"kind": "tokens"})
    elif record["kind"] not in ("tokens", "characters"):
        raise InputError(f"{run}: was trained on {record['kind']}, not on texts; name shards by --data")
    folder = named or own
    return tokens_by(record, spec.class_names, Path(folder) if isinstance(folder, str) else None)
