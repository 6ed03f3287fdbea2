"""NIfTI volumes of a folder, reoriented so that axes run to the right, the front and the top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset, Groups
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import dataset_of, with_options
from data_prep.sources.image_groups import ImageGroups
from data_prep.sources.mask_names import CHANNEL, image_of, layout_of, masked_among, stem_of
from data_prep.sources.medical import MOST_NUMBERS, Labels, files_below, library, said
from data_prep.sources.reading import digest_of, needed
from data_prep.sources.spool import Spool
from mpifl.common import InputError, check_there, choices
from mpifl.data.shards import Provenance, ids_of, record_of

ENDINGS = (".nii", ".nii.gz")
EXAMPLES = ("volume", "slice")


@with_options
def read_nifti(
    data: Path | None,
    wanted: Wanted,
    *,
    example: str = "volume",
    labels: str = "",
    masks: str = "",
    silo: str = "",
) -> Dataset:
    """Read the volumes below a folder, float32 [n, 1, X, Y, Z] in RAS, or slices across its last axis [n, 1,
    X, Y].

    Labels stand in a table (`labels=FILE`: `file`, and the label), or each voxel's class in volumes of the
    same names in another folder, or among the images (`masks=DIR`). `silo=parent` has a volume's folder, or
    that above those of images and masks, name its silo. Slices of a volume stay together; `group` says which
    volumes do, too, as `ImageGroups` has it.
    """
    library("nibabel", "nifti")
    folder = needed("nifti", data, "volumes, a folder of .nii or .nii.gz files")
    _check_options(example, silo, labels, masks)
    owners = ImageGroups(wanted.group)
    paths, drawn, inner = volumes_below(folder, by_silo=bool(silo)), dict[Path, Path](), False
    if masks:
        drawn, inner = _paired(folder, Path(masks), paths)
        paths = [*drawn]
    files = {f"{folder.name}/**": digest_of(folder, paths)}
    rows = NiftiRows(paths, slices=example == "slice")
    if masks:
        files[f"masks={Path(masks).name}/**"] = digest_of(Path(masks), sorted(drawn.values()))
        y, wanted = _masks(drawn, rows), wanted._replace(kind="classes")
    else:
        names = [path.relative_to(folder).as_posix() for path in paths]
        y = Labels(Path(labels), files).targets(names, wanted)[rows.owners]
    arrays: dict[str, Any] = {"x": rows, "y": y}
    deep = owners.nested + inner
    silos = np.array([_silo_of(folder, path, deep) for path in paths]) if silo else None
    if silos is not None:
        arrays["silo"] = silos[rows.owners]
    made = dataset_of(folder, arrays, files, wanted._replace(group=""))
    names = [path.relative_to(folder).as_posix() for path in paths]
    whose = Provenance(ids=ids_of(names)[rows.owners])
    groups = _groups(paths, rows, owners.of(paths, (), silos).get("groups"))
    made = replace(made, given=whose, encoding=record_of("volumes", example=example), groups=groups)
    return made.noting(groups=owners.doubt(paths, classes=False))


def _groups(paths: Sequence[Path], rows: NiftiRows, of_files: Groups | None) -> Groups | None:
    """Return whose each example is, by what is known of files; slices of a file stay together anyhow."""
    if of_files is None and rows.slices:
        of_files = Groups("file", np.arange(len(paths)))
    return of_files and replace(of_files, of=of_files.of[rows.owners])


def _check_options(example: str, silo: str, labels: str, masks: str) -> None:
    for option, given, known in (("example", example, EXAMPLES), ("silo", silo or "parent", ("parent",))):
        if given not in known:
            raise InputError(f"--option: {option}={given} given; {choices(given, known)}")
    if bool(labels) == bool(masks):
        raise InputError("--option: give labels=FILE or masks=DIR, and not both")
    if masks:
        check_there(Path(masks))


def _silo_of(folder: Path, path: Path, deep: int) -> str:
    """Return the name of the folder that a volume lies in, or of one so much above."""
    above = path.parents[deep]
    if deep and folder not in above.parents:
        what = "silo=parent takes a folder for each silo, and in it those of groups, or of images and masks"
        raise InputError(f"{path}: {what}; move it into one")
    return above.name


class NiftiRows:
    """Volumes, or their slices, read when they are asked for and in order: a compressed file is read whole.

    Attributes:
        owners: The file of each example, int64 [n].
        slices: Whether examples are slices.
        place: The number of each example in its file, int64 [n].
    """

    dtype, sequential = np.dtype(np.float32), True

    def __init__(self, paths: Sequence[Path], *, slices: bool) -> None:
        forms = [_opened(path).shape for path in paths]
        for path, form in zip(paths, forms, strict=True):
            if form[: 2 if slices else 3] != forms[0][: 2 if slices else 3]:
                other = f"{paths[0].name} {list(forms[0])}"
                told = "resample them, or write a function of your own (module:function)"
                raise InputError(f"{path}: {list(form)} voxels, {other}; {told}")
        self._paths, self.slices, depths = paths, slices, [form[2] if slices else 1 for form in forms]
        self.owners = np.repeat(np.arange(len(paths)), depths)
        self.place = np.concatenate([np.arange(depth) for depth in depths])
        self.shape = (len(self.owners), 1, *forms[0][: 2 if slices else 3])
        self._last: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.owners)

    def __getitem__(self, at: Any) -> np.ndarray:
        chosen = np.arange(len(self.owners))[at]
        out = np.empty((len(chosen), *self.shape[1:]), np.float32)
        for row, number in enumerate(chosen):
            volume = self._volume(int(self.owners[number]))
            out[row, 0] = volume[..., self.place[number]] if self.slices else volume
        return out

    def of_masks(self, volume: np.ndarray) -> np.ndarray:
        """Return a volume's examples, [m, X, Y, Z] or [m, X, Y]."""
        return np.moveaxis(volume, 2, 0) if self.slices else volume[np.newaxis]

    def _volume(self, number: int) -> np.ndarray:
        last = self._last  # once: another thread may put its own there
        if last is None or last[0] != number:
            last = number, read_volume(self._paths[number]).astype(np.float32)
            self._last = last
        return last[1]


def read_volume(path: Path) -> np.ndarray:
    """Read a volume [X, Y, Z] in RAS, scaled as its header says."""
    try:
        return np.asarray(_opened(path).dataobj)
    except InputError:
        raise
    except Exception as error:  # nibabel's own, gzip's, numpy's
        raise InputError(f"{path}: cut short or damaged ({said(error)}); write it again") from None


def _opened(path: Path) -> Any:
    """Return an image of three axes, reoriented; its voxels are not read yet."""
    nibabel = library("nibabel", "nifti")
    try:
        image = nibabel.load(path)
        shape = tuple(map(int, image.shape))
        if shape[3:] and set(shape[3:]) == {1}:
            image = image.slicer[(slice(None),) * 3 + (0,) * len(shape[3:])]
        reoriented = nibabel.as_closest_canonical(image) if len(image.shape) == 3 else None
    except Exception as error:  # nibabel's own, and whatever its headers make numpy raise
        raise InputError(f"{path}: is not a NIfTI file, or is damaged ({said(error)}); remove it") from None
    if reoriented is None or 0 in shape:
        raise InputError(f"{path}: has the axes {list(shape)}; three are read, split it along the others")
    if int(np.prod(shape, dtype=object)) > MOST_NUMBERS:
        raise InputError(f"{path}: {list(shape)} voxels; a volume has at most {MOST_NUMBERS:,}")
    if image.get_data_dtype().kind not in "iuf":
        raise InputError(f"{path}: voxels are {image.get_data_dtype()}; store them as numbers")
    return reoriented


def volumes_below(folder: Path, *, by_silo: bool = False) -> list[Path]:
    """Return the volumes below a folder, by their paths; raise InputError where another file is there, or a
    silo's folder is empty."""
    paths = files_below(folder)
    for path in paths:
        if not path.name.endswith(ENDINGS):
            raise InputError(f"{path}: is not one of {', '.join(ENDINGS)}; only such files may be there")
    for one in sorted(folder.iterdir()) if by_silo else ():
        if one.is_dir() and one.name[0] != "." and not any(path.is_relative_to(one) for path in paths):
            raise InputError(f"{one}: has no volumes, and would be a silo; remove it, or put some there")
    return paths


def _paired(folder: Path, masks: Path, paths: Sequence[Path]) -> tuple[dict[Path, Path], bool]:
    """Return the mask of each volume, and whether both lie in folders of a silo's folder: it is of the same
    name, or has a word as _seg more, or _0000 less. Raise InputError if a volume or a mask is alone."""
    if folder.samefile(masks):
        return _paired_among(folder, paths)
    found, there = volumes_below(masks), {_place(folder, path): path for path in paths}
    drawn: dict[Path, Path] = {}
    for mask in found:
        parent, stem = _place(masks, mask)
        of = next(
            (at for name in (stem, image_of(stem), stem + CHANNEL) if (at := there.get((parent, name)))), None
        )
        if of is None:
            raise _alone(folder / mask.relative_to(masks), masks)
        _put(drawn, of, mask)
    if odd := [path for path in paths if path not in drawn]:
        raise _alone(masks / odd[0].relative_to(folder), masks)
    return {path: drawn[path] for path in paths}, False


def _paired_among(folder: Path, paths: Sequence[Path]) -> tuple[dict[Path, Path], bool]:
    """Return the mask of each volume among files of one folder, and whether images lie in another."""
    lying, drawn = layout_of(folder, paths), dict[Path, Path]()
    if lying is None:
        what = (
            "has no masks by their names; a mask of X.nii.gz is X_seg.nii.gz there, or X.nii.gz in a folder"
        )
        raise InputError(f"{folder}: {what} masks; or name another folder by --masks")
    if lying.images != folder:
        raise InputError(f"{folder}: say --data {lying.images} --masks {lying.masks}")
    for mask, of in masked_among(folder, paths).items():
        _put(drawn, of, mask)
    alone = [path for path in paths if path not in drawn and path not in {*drawn.values()}]
    if alone:
        raise _alone(alone[0].with_name(f"{stem_of(alone[0])}_seg.nii.gz"), folder)
    return dict(sorted(drawn.items())), lying.inner


def _put(drawn: dict[Path, Path], of: Path, mask: Path) -> None:
    if of in drawn:
        what = f"{drawn[of].name} is a mask of {of.name}, too"
        raise InputError(f"{mask}: {what}; a volume has one mask, so join them into one")
    drawn[of] = mask


def _place(folder: Path, path: Path) -> tuple[Path, str]:
    return path.relative_to(folder).parent, stem_of(path)


def _alone(missing: Path, masks: Path) -> InputError:
    return InputError(f"{missing}: is missing; each volume has a mask of its name in {masks}")


def _masks(drawn: Mapping[Path, Path], rows: NiftiRows) -> np.ndarray:
    """Read the masks of all volumes, uint8 [n, X, Y, Z], or of slices [n, X, Y]; they lie in TMPDIR."""
    spool = Spool()
    for path, mask_path in drawn.items():
        volume, mask = _opened(path), _opened(mask_path)
        if mask.shape != volume.shape or not np.allclose(mask.affine, volume.affine, atol=1e-3):
            raise InputError(f"{mask_path}: lies at another place than its volume; resample it to that")
        values = read_volume(mask_path)
        if not ((values >= 0) & (values <= 255) & (values == np.rint(values))).all():
            raise InputError(f"{mask_path}: is not a mask; its voxels are class numbers from 0 to 255")
        spool.append(np.ascontiguousarray(rows.of_masks(values.astype(np.uint8))))
    return spool.rows()
