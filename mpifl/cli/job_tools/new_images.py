"""What `mpifl new` sees in a folder of images or texts: whose they are, and where images have masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mpifl.cli.job_tools import MASKS, PARENT, RESIZED, Answers
from mpifl.common import InputError

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
VOLUMES = (".nii", ".nii.gz")
LINES = ".jsonl"
TEXTS = (".txt", LINES)
SPLITS = ("train", "test")
USUAL_SILOS = 4
VALIDATED = 40
"""Images of a silo from which on a job has validation rows."""


def laid_out(folder: Path, answers: Answers) -> Answers:
    """Return answers on a folder: whether it is parted by silo or patient, and where its masks are, as the
    names of files and folders say."""
    from data_prep.sources import layout_seen

    if answers.template.label != MASKS or (answers.label and Path(answers.label) != folder):
        return _parted(folder, answers)
    if found := layout_seen(folder):
        answers = replace(answers, data=(str(found.images),), label=str(found.masks), masked=True)
        return _parted(found.images, answers, found.inner)
    if answers.label:
        what = f"{folder} has no masks by their names, as X_mask.png beside X.png or a folder masks"
        raise InputError(f"--label {answers.label}: {what}; name the folder of the masks")
    return _parted(folder, answers)


def refused(answers: Answers) -> str:
    """Say why a partition of images will be refused, as far as their headers tell."""
    from data_prep.sources import images_in, of_other_kinds

    return of_other_kinds(images_in(Path(answers.data[0])))


def of_layout(answers: Answers) -> str:
    """Say where images and masks were seen."""
    images = answers.data[0]
    where = "masks among the images" if images == answers.label else f"images, {answers.label}: their masks"
    return f"{images}: {where}, by names or pixels; for other masks say --label FOLDER"


def of_volumes(answers: Answers) -> bool:
    """Tell whether the data is NIfTI volumes with masks."""
    masked = answers.template.label == MASKS
    return masked and any(one.name.lower().endswith(VOLUMES) for one in files_in(Path(answers.data[0])))


def drawn(answers: Answers) -> tuple[Answers, list[str]]:
    """Return answers with the words of a partition that images and their masks need, and why it will be
    refused."""
    from data_prep.sources import look_at_masks

    held = ("--test", "0.2", "--keep", "id")
    if of_volumes(answers):
        return replace(answers, drawn=("--example", "slice", *held)), []
    seen = look_at_masks(Path(answers.data[0]), Path(answers.label))
    sized = [] if seen.one_size else RESIZED
    numbered = ["--values", seen.values] if seen.values else []
    return replace(answers, drawn=(*sized, *numbered, *held)), list(filter(None, [seen.refused]))


def of_patients(answers: Answers) -> tuple[Answers, list[str]]:
    """Return answers with what keeps the images of a patient together, if any, and a line on it."""
    from data_prep.sources import group_seen, images_in

    folder, found = Path(answers.data[0]), "images lie in a folder of each patient"
    images = images_in(folder)
    if not answers.group:
        found, pattern = group_seen(images, classes=answers.template.label != MASKS)
        answers = replace(answers, group=pattern)
    folders = sum(path.is_dir() for path in folder.iterdir())
    silos = int(answers.silos) if answers.silos.isdecimal() else folders if answers.parted else USUAL_SILOS
    answers = replace(answers, validated=len(images) >= VALIDATED * silos)
    kept = "those of one stay in one split of one silo; if they are not a patient's, leave out --group"
    return answers, [f"{folder}: {found}; {kept}"] if found else []


def _parted(folder: Path, answers: Answers, inner: bool = False) -> Answers:
    """Say whether images lie in a folder of each silo, or of each patient, or texts in a file of each silo;
    one must be there. If they are `inner`, the last folders are those of images and of masks."""
    from data_prep.sources import images_in

    source = answers.template.source
    if folder.is_file() and answers.silos == PARENT and not answers.of_lines:
        raise InputError(f"{folder}: has no folder for each silo; say --silos N, or name a folder that has")
    if source == "text" and folder.is_file():
        return answers
    masked = answers.template.label == MASKS
    endings = TEXTS if source == "text" else (*IMAGES, *(VOLUMES if masked else ()))
    listed = images_in(folder) if masked else files_in(folder)
    depths = {len(path.relative_to(folder).parts) for path in listed if path.name.lower().endswith(endings)}
    if not depths:
        raise InputError(f"--data {folder}: has no files that end in {', '.join(endings)}")
    there = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if source == "text":
        return _by_folder(answers, len(there))
    split = all((folder / part).is_dir() for part in SPLITS)
    flat = 1 + inner if masked else 2
    if min(depths) < flat:
        raise InputError(
            f"--data {folder}: images lie in no folder of their class; or say --kind segmentation"
        )
    deeper = min(depths) - flat - split if len(depths) == 1 else 0
    folders = sum(path.is_dir() for path in there)
    others = answers.silos.isdecimal() and int(answers.silos) != folders  # than the folders are
    parted = not split and (deeper == 2 or (deeper == 1 and not others))
    if answers.silos == PARENT and not parted:
        raise InputError(f"--silos parent: images in {folder} lie in no folder of a silo; say --silos N")
    answers = _by_folder(answers, folders) if parted else answers
    return replace(answers, group="parent" if deeper - parted == 1 else "")


def _by_folder(answers: Answers, silos: int) -> Answers:
    """Return answers on data that has a folder or file for each of so many silos, which a number may join."""
    if answers.silos.isdecimal() and int(answers.silos) > silos:
        what = f"{answers.data[0]} has a folder or file for each of {silos} silos"
        raise InputError(f"--silos {answers.silos}: {what}; leave it out")
    joined = answers.silos.isdecimal() and int(answers.silos) < silos
    return replace(answers, parted=True, silos=answers.silos if joined else "")


def files_in(path: Path) -> Iterator[Path]:
    """Yield a file, or all of a folder that are not hidden."""
    inside = path.rglob("*") if path.is_dir() else [path]
    for one in inside:
        hidden = any(part.startswith(".") for part in one.relative_to(path).parts)
        if not hidden and not one.is_dir():
            yield one
