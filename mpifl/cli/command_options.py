"""Arguments and options of several commands, and writing of the files that options name."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mpifl.cli import completing
from mpifl.common import InputError

if TYPE_CHECKING:
    from mpifl.report.judging import Which


def _shipped(given: Path) -> Path:
    """Return a job file, or the job of the package that has this name or path."""
    from mpifl.cli.job_tools import shipped_job

    return given if given.exists() else shipped_job(given) or given


JobFile = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.toml",
        help="The job file, or one of `mpifl list jobs`.",
        autocompletion=completing.job_files,
        callback=_shipped,
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", autocompletion=completing.runs)]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key: local.lr=0.05")]
Out = Annotated[Path | None, typer.Option(metavar="RUN", help="The run folder; runs/NAME by default.")]
Ranks = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Start so many ranks by the MPI's mpirun.")
]
Measured = Annotated[
    Path | None, typer.Option("--profile", metavar="FILE", help="Of mpifl doctor JOB --profile FILE.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the batch script and submit nothing.")]
Elsewhere = Annotated[
    bool, typer.Option("--shards-elsewhere", help="The ranks' machines have the shards: look for none here.")
]
Trust = Annotated[
    list[str], typer.Option(metavar="MODULE:NAME", help="Import this code, if the run's job names it.")
]
Metrics = Annotated[
    list[str],
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Judge it by this metric, too, or by a table as in the job; repeatable.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(metavar="P", help="Of yes or no: answer yes above this probability; 0.5 by default."),
]
Last = Annotated[
    bool, typer.Option("--last", help="Take the model of the last round, where the run's is of its best one.")
]

_OF_SILO = typer.Option("--silo", metavar="NAME", help="Take the model of its own that this silo has.")
SiloModel = Annotated[str | None, _OF_SILO]

_INITIAL = typer.Option("--initial", help="Take the model that the training began with.")
Initial = Annotated[bool, _INITIAL]

_TABLE = typer.Argument(metavar="[TABLE]", help="New rows: CSV, Parquet, or arrays in .npz.")
NewTable = Annotated[Path | None, _TABLE]
_IMAGES = typer.Option(metavar="DIR", help="A folder of new images, or NIfTI volumes.")
NewImages = Annotated[Path | None, _IMAGES]
_TEXTS = typer.Option(metavar="PATH", help="New texts: .txt, .jsonl, or a folder of such.")
NewTexts = Annotated[Path | None, _TEXTS]
_MASKS = typer.Option(metavar="DIR", help="Write each predicted mask there, too, as PNG.")
MaskFolder = Annotated[Path | None, _MASKS]
_OVERLAY = typer.Option("--overlay", help="With --masks: beside each its image with the mask over it.")
Overlay = Annotated[bool, _OVERLAY]
_TOKENIZER = typer.Option(
    metavar="FOLDER", help="The training's tokenizer; by default in the model's folder."
)
Tokenizer = Annotated[str | None, _TOKENIZER]
_SPLIT = typer.Option(metavar="SPLIT", help="train, valid or test; by default all.")
NewSplit = Annotated[str | None, _SPLIT]
_SPEC = typer.Option(metavar="SPEC", help="With TABLE: its site's own spec, for its names and units.")
SiteSpec = Annotated[Path | None, _SPEC]
Force = Annotated[
    bool, typer.Option("--force", help="Take shards that another spec has cut, or rows far off.")
]


def write_text(option: str, path: Path, text: str) -> None:
    """Write a text to the file of an option.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror})") from None


def which_model(last: bool, initial: bool, silo: str | None = None) -> "Which":
    """Return which model of a run --last, --initial or --silo asks for."""
    given = {"--initial": initial, "--last": last, "--silo": silo is not None}
    if len(named := [option for option, is_given in given.items() if is_given]) > 1:
        raise InputError(f"{named[0]}: {named[1]} is given, too; leave one out")
    if silo is not None:
        from mpifl.report import judging

        return judging.OwnModel(silo)
    return "initial" if initial else last


def check_kept(out: Path, read: Sequence[Path | None]) -> None:
    """See that no file that is read would be overwritten."""
    if out.exists() and any(one is not None and one.exists() and out.samefile(one) for one in read):
        raise InputError(f"--out {out}: is read, and would be overwritten; name another file")


def check_one(given: dict[str, Path | None], split: str | None) -> None:
    """See that it is said once what is predicted."""
    named, table = [name for name, value in given.items() if value is not None], given["TABLE"]
    if len(named) != 1:
        what = f"{' and '.join(named)} given" if named else "nothing to predict is given"
        to_do = "name a table, or --images DIR, --texts PATH, or --data SHARDS"
        raise InputError(f"mpifl predict: {what}; {to_do}")
    if split is not None and given["--data"] is None:
        raise InputError(f"--split {split}: is for shards; leave it out, or name them by --data")
    if table is not None and table.suffix in (".h5", ".json"):
        raise InputError(f"{table}: is not a table; name shards by --data")


def check_beside(
    spec: Path | None,
    table: Path | None,
    tokenizer: str | None,
    texts: Path | None,
    masks: Path | None,
    *,
    overlay: bool,
) -> None:
    """Refuse options of what is not predicted."""
    if spec is not None and (table is None or table.suffix == ".npz"):
        raise InputError(f"--spec {spec}: is for a table of new rows; leave it out, or name TABLE")
    if tokenizer is not None and texts is None:
        raise InputError(f"--tokenizer {tokenizer}: is for texts; leave it out, or name --texts")
    if masks is not None and texts is not None:
        raise InputError(f"--masks {masks}: texts have none; leave it out")
    if overlay and masks is None:
        raise InputError("--overlay: lies beside masks; give --masks DIR, too")


def check_no_silo(silo: str | None) -> None:
    """Refuse the model of a silo of a split network."""
    if silo is not None:
        raise InputError(
            f"--silo {silo}: each party of a split network has a part of one model; leave it out"
        )
