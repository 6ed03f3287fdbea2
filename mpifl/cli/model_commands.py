"""The commands `evaluate`, `predict`, `baseline` and `convert`: a trained model scored, asked,
held against others, and weights taken from another program's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpifl.cli.command_options import (
    Force,
    Initial,
    JobFile,
    Last,
    MaskFolder,
    Metrics,
    NewImages,
    NewSplit,
    NewTable,
    NewTexts,
    Overlay,
    Ranks,
    Run,
    Set,
    SiloModel,
    SiteSpec,
    Threshold,
    Tokenizer,
    Trust,
    check_beside,
    check_kept,
    check_no_silo,
    check_one,
    which_model,
)
from mpifl.common import InputError, tables
from mpifl.common.machine import imports, tuning

if TYPE_CHECKING:
    from mpifl.cli.job_tools import Predicting
    from mpifl.wire import Transport


def evaluate(
    run: Run,
    trust: Trust = [],  # noqa: B006
    silos: Annotated[bool, typer.Option("--silos", help="Score it at each silo and at all.")] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="SHARDS", help="Score it on other shards, as of a later site.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="With --silos or --data: test, valid or train.")
    ] = None,
    last: Last = False,
    initial: Initial = False,
    silo: SiloModel = None,
    force: Force = False,
    metric: Metrics = [],  # noqa: B006
    threshold: Threshold = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures.")] = None,
    ranks: Ranks = None,
) -> None:
    """Score the model of a finished run on its shard folder's test set, at each silo, or on other shards.

    For a split network all parties work together, on the ranks that --ranks or mpirun starts.
    """
    split_over, transport = _asked(run, ranks)
    judged: dict[str, Any] = {"file": json, "metrics": metric, "threshold": threshold}
    if split_over and transport is not None:
        _refuse_for_parties(silos, data, silo, initial=initial)
        _score_together(run, transport, trust, split or "test", judged)
        return
    _check_whose(silos, data, split)
    which = which_model(last, initial, silo)
    if transport is not None and not transport.is_server:
        return
    with imports.gc_frozen():
        from mpifl.cli.job_tools import tell_far_shards
        from mpifl.report.judging import evaluate_run, evaluate_shards, evaluate_silos

    if data is not None:
        tell_far_shards(run, data, force=force)
        evaluate_shards(run, data, trust, which, split=split, force=force, **judged)
    elif silos:
        evaluate_silos(run, trust, which, split=split, **judged)
    else:
        evaluate_run(run, trust, which, **judged)


def _score_together(
    run: Path, transport: Transport, trust: list[str], split: str, judged: dict[str, Any]
) -> None:
    """Have all parties of a split network score their rows."""
    with imports.gc_frozen():
        from mpifl.cli.job_tools import evaluate_together

    with tuning.subnormals_as_zero():
        evaluate_together(run, transport, trust, split=split, **judged)


def _refuse_for_parties(silos: bool, data: Path | None, silo: str | None, *, initial: bool) -> None:
    """Refuse what has no meaning for a split network."""
    check_no_silo(silo)
    if initial:
        raise InputError("--initial: a split network keeps only its top from the beginning; leave it out")
    if data is not None:
        raise InputError("--data: a split network is scored on its own shards; leave it out")
    if silos:
        what = "all silos have the same rows, and none has a model of its own"
        raise InputError(f"--silos: {what}; leave it out, or name the rows by --split")


def _check_whose(silos: bool, data: Path | None, split: str | None) -> None:
    """See that it is said once on which examples a model is scored."""
    if silos and data is not None:
        both = "--silos scores each silo of the run's own shards, --data each silo of these; leave one out"
        raise InputError(f"--data {data}: --silos is given, too; {both}")
    if split is not None and not silos and data is None:
        raise InputError("--split: is for the silos' splits; give --silos, too")


GivenShards = Annotated[
    Path | None,
    typer.Option(metavar="SHARDS", help="A shard folder, or one shard; a table stands behind RUN."),
]


def predict(
    run: Run,
    table: NewTable = None,
    *,
    data: GivenShards = None,
    images: NewImages = None,
    texts: NewTexts = None,
    tokenizer: Tokenizer = None,
    spec: SiteSpec = None,
    masks: MaskFolder = None,
    overlay: Overlay = False,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The table: .parquet, .csv or .npz.")],
    split: NewSplit = None,
    threshold: Threshold = None,
    last: Last = False,
    silo: SiloModel = None,
    force: Force = False,
    trust: Trust = [],  # noqa: B006
    ranks: Ranks = None,
) -> None:
    """Write the predictions of a finished run's model: of new rows, images or texts, or of shards.

    For a split network all parties work together, on the ranks that --ranks or mpirun starts.
    """
    given = {"TABLE": table, "--images": images, "--texts": texts, "--data": data}
    check_one(given, split)
    check_kept(out, [*given.values(), spec])
    check_beside(spec, table, tokenizer, texts, masks, overlay=overlay)
    split_over, transport = _asked(run, ranks)
    if split_over and transport is not None:
        _together(run, data, out, transport, trust, split=split, masks=masks, silo=silo, threshold=threshold)
    elif transport is None or transport.is_server:
        with imports.gc_frozen():
            from mpifl.cli.job_tools import Predicting, predict_shards
            from mpifl.report.judging import MaskFiles

        files = None if masks is None else MaskFiles(masks, over=overlay)
        how: dict[str, Any] = {"masks": files, "force": force, "threshold": threshold}
        asked = Predicting(run, out, trust, which_model(last, initial=False, silo=silo), **how)
        if data is not None:
            predict_shards(asked, data, split)
        else:
            _predict_new(asked, table, images, texts, spec, tokenizer)
        if files is not None:
            typer.echo(f"masks: {masks}, {files.told()}")


def _together(
    run: Path,
    data: Path | None,
    out: Path,
    transport: Transport,
    trust: list[str],
    *,
    split: str | None,
    masks: Path | None,
    silo: str | None,
    threshold: float | None,
) -> None:
    """Have all parties of a split network predict their shards."""
    check_no_silo(silo)
    if masks is not None:
        raise InputError(f"--masks {masks}: a split network answers no masks; leave it out")
    if data is None:
        raise InputError("--data: not given; parties answer together; name their shard folder")
    with imports.gc_frozen():
        from mpifl.cli.job_tools import predict_together

    with tuning.subnormals_as_zero():
        predict_together(run, data, out, transport, trust, split=split, threshold=threshold)


def _predict_new(
    asked: Predicting,
    table: Path | None,
    images: Path | None,
    texts: Path | None,
    spec: Path | None,
    tokenizer: str | None,
) -> None:
    """Predict what was never cut into shards."""
    with imports.gc_frozen():
        from mpifl.cli.job_tools import predict_arrays, predict_images, predict_table, predict_texts

    if images is not None:
        predict_images(asked, images)
    elif texts is not None:
        predict_texts(asked, texts, tokenizer)
    elif table is not None and table.suffix == ".npz":
        predict_arrays(asked, table)
    elif table is not None:
        predict_table(asked, table, spec)


def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file of torch.save: .pt, .pth, .ckpt or .bin.")
    ],
    key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which of its sets of weights; by default the largest.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default FILE with the ending .safetensors.")
    ] = None,
) -> None:
    """Write the weights of a PyTorch checkpoint as safetensors, for \\[model] weights. Runs no code."""
    from mpifl.run import folder

    typer.echo(folder.convert(file, key, out))


def _asked(run: Path, ranks: int | None) -> tuple[bool, Transport | None]:
    """Return whether a run has a split network, and the world of ranks; None if one process is enough.

    If ranks must be started, start them and exit with their code.
    """
    from mpifl.wire.launching import launcher

    launched = launcher.launched()
    if ranks is not None and ranks > 1 and not launched:
        raise typer.Exit(abs(launcher.launch(ranks)))
    split = _is_split(run)
    if not (split or launched):
        return False, None
    with imports.gc_frozen():
        from mpifl.data.hdf5 import start_parser
        from mpifl.wire.launching import world

        start_parser()
    transport = world()
    told = transport.broadcast_record(bytes([split]) if transport.is_server else None)
    return told == b"\x01", transport


def _is_split(run: Path) -> bool:
    """Return whether a run has a split network; other faults are reported elsewhere."""
    try:
        return "split" in tables(run / "job.toml")
    except (OSError, ValueError):
        return False


def baseline(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the runs and of the page.")],
    ranks: Annotated[int, typer.Option(metavar="N", min=1, help="MPI ranks of the federated run.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue with the runs in DIR.")] = False,
    late: Annotated[
        Path | None,
        typer.Option(metavar="SHARDS", help="Train and score later silos alone, beside DIR/federated."),
    ] = None,
    latex: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table (booktabs).")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a line for every silo.")] = None,
) -> None:
    """Train the job, each silo alone and all pooled, and score all on the same test rows of each silo: did
    federation help, and for whom?"""
    from mpifl.cli.baseline import baseline_command

    tables = {"latex": latex, "csv": csv}
    raise typer.Exit(baseline_command(job, set_, out, ranks, resume, late, tables=tables))
