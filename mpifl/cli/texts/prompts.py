"""What `mpifl generate` is asked for. No torch is imported here: a wrong prompt is refused before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mpifl.common import InputError

ENDINGS = (".jsonl", ".txt")


@dataclass(frozen=True)
class Prompts:
    """What `mpifl generate` is asked for.

    Attributes:
        file: The prompts: a text on each line, or objects with `prompt` in a file `.jsonl`.
        length: The most tokens that are added to each.
        seed: Draws tokens; None takes the likeliest.
        temperature: What logits are divided by before a token is drawn.
        tokenizer: `bytes`, `characters`, or the folder of the tokenizer; None is the training's own.
    """

    file: Path
    length: int
    seed: int | None = None
    temperature: float | None = None
    tokenizer: str | None = None


def check_prompts(asked: Prompts, out: Path | None) -> list[tuple[int, str]]:
    """Return the prompts of a file and the numbers of their lines, after a check of all that is asked for.

    Raises:
        InputError: a prompt is blank, the file cannot be read, or an option does not fit another.
    """
    if out is not None and out.suffix not in ENDINGS:
        raise InputError(f"--out {out}: ends in '{out.suffix}'; it must be {' or '.join(ENDINGS)}")
    if asked.temperature is not None and asked.seed is None:
        raise InputError(f"--temperature {asked.temperature:g}: is for tokens that are drawn; give --seed")
    return _read(asked.file)


def _read(path: Path) -> list[tuple[int, str]]:
    """Return the prompts of a file and the numbers of their lines; none may be blank."""
    try:
        lines = path.read_text("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not a UTF-8 text"
        raise InputError(f"--prompts {path}: cannot be read ({said})") from None
    if lines == [""]:
        raise InputError(f"--prompts {path}: has no prompt; write one on each line")
    numbered, objects = enumerate(lines, 1), path.suffix == ".jsonl"
    return [(number, _prompt(f"--prompts {path}: line {number}", line, objects)) for number, line in numbered]


def _prompt(where: str, line: str, is_object: bool) -> str:
    prompt = line.rstrip("\r")
    if is_object and line.strip():
        prompt = _prompt_of_object(where, line)
    if not (prompt and line.strip()):
        raise InputError(f"{where} is blank; write a prompt, or remove the line")
    return prompt


def _prompt_of_object(where: str, line: str) -> str:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    prompt = found.get("prompt") if isinstance(found, dict) else None
    if not isinstance(prompt, str):
        raise InputError(f'{where}: is not an object with a prompt; write {{"prompt": "..."}}')
    return prompt
