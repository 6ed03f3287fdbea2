"""The commands `generate` and `export`: a language model is asked to continue texts, or handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mpifl.cli import command_options as options
from mpifl.common.machine import imports


def generate(
    run: options.Run,
    prompts: Annotated[
        Path, typer.Option(metavar="FILE", help="A prompt on each line; .jsonl has objects with `prompt`.")
    ],
    length: Annotated[int, typer.Option(min=1, metavar="N", help="The most tokens that are added.")] = 100,
    seed: Annotated[
        int | None, typer.Option(metavar="SEED", help="Draw tokens; without it, use the likeliest.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=1e-3, metavar="T", help="With --seed: below 1 likelier tokens; 1.")
    ] = None,
    tokenizer: options.Tokenizer = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write .jsonl or .txt; by default print texts.")
    ] = None,
    last: options.Last = False,
    initial: options.Initial = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Have the language model of a finished run continue with the texts of a file."""
    from mpifl.cli.texts import Prompts, check_prompts

    asked = Prompts(prompts, length, seed, temperature, tokenizer)
    check_prompts(asked, out)
    with imports.gc_frozen():
        from mpifl.cli.job_tools import generate_run

    generate_run(run, asked, out, trust, options.which_model(last, initial))


def export(
    run: options.Run,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The new folder.")],
    adapters: Annotated[
        bool, typer.Option("--adapters", help="Write the adapters alone, as peft has them.")
    ] = False,
    tokenizer: options.Tokenizer = None,
    last: options.Last = False,
    initial: options.Initial = False,
    silo: options.SiloModel = None,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Write a finished run's model as Hugging Face's: a folder of configuration, weights and tokenizer."""
    from mpifl.cli.texts import Exporting, export_run

    which = options.which_model(last, initial, silo)
    with imports.gc_frozen():
        export_run(run, Exporting(out, tokenizer, adapters), trust, which)
