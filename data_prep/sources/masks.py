"""Images with a mask each: the class of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep.dataset import Dataset, noted_as
from data_prep.sources.aims import Wanted, aim_of
from data_prep.sources.image_groups import ImageGroups
from data_prep.sources.mask_names import folders_of, image_of, masks_beside
from data_prep.sources.mask_pixels import NUMBERED, WHITE, Pixels
from data_prep.sources.orientation import DAMAGED, orientation_of, turned
from data_prep.sources.pictures import (
    ENDINGS,
    PHOTOMETRIC,
    Form,
    Manner,
    called,
    common_form,
    form_of,
    is_turned,
    opened,
    pillow,
)
from data_prep.sources.reading import digest_of
from data_prep.sources.spool import Spool
from data_prep.sources.within import SPLITS, check_beside, is_split, silo_folders
from mpifl.common import InputError

if TYPE_CHECKING:
    from PIL import Image

OF_MASKS = (".png", ".tif", ".tiff")
"""Endings of masks; JPEG would blur class numbers."""
Pairs = list[tuple[Path, Path]]
"""Images and their masks."""


def read_masked(
    folder: Path, masks: Path, manner: Manner, pixels: Pixels, owners: ImageGroups, *, by_silo: bool
) -> Dataset:
    """Read the images of a folder, or of its `train` and `test`, and masks of the same names in another.

    A mask is a PNG or TIFF image of its image's size, named as it but for the ending and a word as `_mask`.
    A pixel's number (grey, or the place in the palette) is its class: targets are uint8 [n, height, width].
    Where palettes differ, the first one numbers the colours, and how many masks it renumbers is told.
    Resized, images are interpolated bilinearly, and masks take the nearest pixel.

    Args:
        folder: The images.
        masks: The masks, in `train` and `test` where the images are.
        manner: How images are read; masks are resized, too.
        pixels: What the numbers of pixels are.
        owners: Whose images are; with `parent`, images and masks lie one folder deeper.
        by_silo: Take the folders in both for silos, by their names.

    Raises:
        InputError: an image has no mask or a mask no image, their sizes differ, or a file is none; masks hold
            grey levels, and nobody says what they mean.
    """
    paired, more = (
        _of_silos(folder, masks, owners)
        if by_silo
        else ([_pairs(part, folder, masks, owners) for part in _parts(folder, masks)], {})
    )
    images, drawn = ([pair[at] for pairs in paired for pair in pairs] for at in (0, 1))
    form, mixed = common_form(images, manner.size, manner.grey)
    _check_sizes([pair for pairs in paired for pair in pairs])
    y, *held = [_decoded(pairs, form, manner.size is not None, pixels) for pairs in paired]
    aim = aim_of(masks, y, held[0] if held else None, Wanted("classes", "", pixels.ignore))
    pixels.check()
    own, *tested = [[image for image, _ in pairs] for pairs in paired]
    x, *x_held = [manner.rows(paths, form) for paths in (own, *tested)]
    test = (x_held[0], aim.fitted(held[0])) if held else None
    files = {
        f"{folder.name}/**": digest_of(folder, images),
        f"masks={masks.name}/**": digest_of(masks, drawn),
    }
    more |= {"targets": aim.targets, **manner.told(images, form, **pixels.drawn)}
    told = {"groups": owners.doubt(images, classes=False), "sizes": _resized(drawn, manner.size)}
    more |= noted_as(masks=pixels.told(len(drawn)), **told, colours=mixed)
    more |= called(folder, own, *tested) | owners.of(own, tested[0] if tested else (), more.get("silo"))
    return Dataset(str(folder), x, aim.fitted(y), aim.classes, files, test=test, **more)


def _resized(masks: Sequence[Path], size: tuple[int, int] | None) -> str:
    """Say how many masks have another size, height and width, than they are brought to; "" if none has."""
    if size is None or not (count := sum(form_of(mask)[1:3] != size for mask in masks)):
        return ""
    what = f"{count:,} of {len(masks):,} masks are resized to {size[1]}x{size[0]}"
    return f"{what}: Dice and other scores are of masks of this size, and not of their own"


def _parts(folder: Path, masks: Path) -> tuple[str, ...]:
    if not is_split(folder):
        return (".",)
    for named in (folder, masks):
        if named.is_dir():
            check_beside(named, named, SPLITS, ENDINGS)
    return SPLITS


def _of_silos(folder: Path, masks: Path, owners: ImageGroups) -> tuple[list[Pairs], dict[str, Any]]:
    """Return the images of all silos' folders, each with its mask, and whose they are."""
    places = silo_folders(folder)
    for place in sorted(set(silo_folders(masks)) - set(places)):
        what = f"masks of a silo that {folder} does not have"
        raise InputError(f"{masks / place}: {what}; give both the same folders")
    found = [_pairs(place, folder, masks, owners) for place in places]
    silo = np.repeat(np.arange(len(places)), [len(pairs) for pairs in found])
    return [[pair for pairs in found for pair in pairs]], {
        "silo": silo,
        "silo_names": dict(enumerate(places)),
    }


def _pairs(part: str, images: Path, masks: Path, owners: ImageGroups) -> Pairs:
    """Return the images of a part of a folder by name, each with its mask: of its name in another folder, or
    X_mask.png beside X.png."""
    at, drawn_at = folders_of(images / part, masks / part)
    found, drawn = _files(at, images, "--data", owners), _files(drawn_at, masks, "--option masks", owners)
    found = [path for path in found if path != drawn_at]
    if at == drawn_at:
        drawn = masks_beside(found)
        found = [path for path in found if path not in {*drawn}]
        if found and not drawn:
            what = "has no masks by their names; a mask of X.png is X_mask.png or X_seg.png there"
            raise InputError(f"{at}: {what}; or name another folder by --masks")
    of_images, of_masks = _by_stem(at, found, ENDINGS), _by_stem(drawn_at, drawn, OF_MASKS)
    for stem in sorted(of_masks.keys() - of_images.keys()):
        if (image := image_of(stem)) in of_images:
            path = of_masks.pop(stem)
            if image in of_masks:
                what = f"{of_masks[image].name} is a mask of {of_images[image].name}, too"
                raise InputError(f"{path}: {what}; an image has one mask, so join them into one")
            of_masks[image] = path
    for stem, path in of_images.items():
        if stem not in of_masks:
            name = f"{stem}{'_mask' * (at == drawn_at)}.png"
            raise InputError(f"{path}: has no mask; put {name} or .tif into {drawn_at}, or remove the image")
    for stem, path in of_masks.items():
        if stem not in of_images:
            raise InputError(f"{path}: a mask without its image; put the image into {at}, or remove the mask")
    return [(path, of_masks[stem]) for stem, path in of_images.items()]


def _files(folder: Path, named: Path, option: str, owners: ImageGroups) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; {option} must name one of {', '.join(ENDINGS)} files")
    return owners.files(folder, named)


def _by_stem(folder: Path, paths: Sequence[Path], endings: Sequence[str]) -> dict[str, Path]:
    """Return the files of a folder by their paths in it without ending; refuse others."""
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            hint = "of SITE/images and SITE/masks name the folder above by --data and by --masks, and say "
            hint += "--silo parent; --group parent keeps together what lies in one folder"
            raise InputError(f"{path}: is a folder, and there may be only {', '.join(endings)} files; {hint}")
        if path.suffix.lower() not in endings or not path.is_file():
            raise InputError(f"{path}: is not one of {', '.join(endings)}; only such files may be there")
        stem = path.relative_to(folder).with_suffix("").as_posix()
        if stem in found:
            raise InputError(f"{path}: {found[stem].name} has the same name; rename one, and its mask")
        found[stem] = path
    if not found:
        raise InputError(f"{folder}: is empty; put {', '.join(endings)} files there")
    return found


def _check_sizes(pairs: Pairs) -> None:
    for image, mask in pairs:
        wanted, found = form_of(image)[1:3], form_of(mask)[1:3]
        if found != wanted:
            other = f"its image {image.name} has {wanted[1]}x{wanted[0]}"
            other += ", turned as its EXIF data say" * is_turned(image)
            raise InputError(f"{mask}: {found[1]}x{found[0]} pixels, {other}; make them alike")


def _decoded(pairs: Pairs, form: Form, resize: bool, classes_of: Pixels) -> np.ndarray:
    """Decode all masks, uint8 [n, height, width], into a file that is mapped."""
    spool = Spool()
    for _, mask in pairs:
        spool.append(_numbers(mask, form, resize, classes_of)[None])
    classes_of.check_named()
    return spool.rows()


def _numbers(path: Path, form: Form, resize: bool, classes_of: Pixels) -> np.ndarray:
    """Decode a mask, uint8 [height, width]."""
    height, width = form.height, form.width
    with opened(path) as image:
        _check_numbered(path, image)
        try:
            image.load()  # which turns a TIFF by itself
            mask = turned(image, orientation_of(path, image))
            mask = mask.resize((width, height), pillow().Resampling.NEAREST) if resize else mask
            drawn = np.asarray(mask)
            palette = image.getpalette("RGB") if image.mode == "P" else None
        except DAMAGED as error:
            raise InputError(f"{path}: the mask is damaged or cut short ({error}); replace it") from None
    if (lowest := int(drawn.min(initial=0))) < 0:
        raise InputError(f"{path}: has pixels of {lowest:,}; class numbers begin at 0, renumber them")
    if (highest := int(drawn.max(initial=0))) > WHITE:
        to_do = "class numbers end at 255; divide by 257, and save it with 8 bits"
        raise InputError(f"{path}: has pixels of {highest:,} in 16 bits; {to_do}")
    return classes_of(path, drawn.astype(np.uint8), palette)


def _check_numbered(path: Path, image: Image.Image) -> None:
    """Refuse a mask whose pixels are no class numbers as they are stored."""
    if image.mode not in NUMBERED or image.format not in ("PNG", "TIFF"):
        what = f"a mask of {image.format} in mode {image.mode}, and one number a pixel is its class"
        raise InputError(f"{path}: {what}; store it as PNG, in grey or with a palette")
    if image.format == "TIFF" and image.tag_v2.get(PHOTOMETRIC) == 0:  # type: ignore[attr-defined]
        what = "0 stands for white in this TIFF mask, and class numbers would be turned round"
        raise InputError(f"{path}: {what}; store it as PNG, or with 0 as black")
