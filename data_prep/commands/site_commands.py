"""The commands of those who bring their own data, or look through what others brought."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from data_prep.commands.flags import only
from data_prep.commands.holding_options import Group, Keep, Order, Stratify, TestLast, check_order
from data_prep.commands.source_flags import with_source_options, words_of
from data_prep.dataset import changes_of, codes_told, ids_told, odd_told
from data_prep.schemes import Shares
from data_prep.sources import SOURCES, kept_words, scale_of, units_of_tables
from data_prep.write import COMPRESSIONS, default_jobs
from mpifl.common import CommandLine, InputError, choices, one_line, visible, write_atomic
from mpifl.data.shards import FederationSpec, is_vertical, read_spec

app = CommandLine()


@app.command("import")
@only
@with_source_options
def import_own(
    source: Annotated[
        str, typer.Argument(help=f"{', '.join(SOURCES)}, or MODULE:FUNCTION.", show_default=False)
    ],
    spec: Annotated[
        Path, typer.Option(help="The federation.json that the sites agreed on, with or without silos.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for the shard and its entry.")],
    silo: Annotated[int | None, typer.Option(help="The silo's number: 0, 1, 2, ...")] = None,
    server: Annotated[
        bool, typer.Option("--server", help="Make the server's test set in place of a silo.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="The source's file or folder.")] = None,
    name: Annotated[str | None, typer.Option(help="What the silo is called; 'silo N'.")] = None,
    seed: Annotated[int, typer.Option(help="What the hold-out is drawn by.")] = 0,
    valid: Annotated[float, typer.Option(help="The share of the examples kept for validation.")] = 0.0,
    test: Annotated[
        float, typer.Option(help="The share kept for testing; else the source's own test set is.")
    ] = 0.0,
    group: Group = None,
    stratify: Stratify = True,
    order: Order = None,
    test_last: TestLast = 0.0,
    keep: Keep = None,
    option: Annotated[
        list[str] | None, typer.Option(help="A source's option as KEY=VALUE, as spec=FILE of a table; many.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="How many threads write; the cores, at most 4.")] = None,
    compression: Annotated[str, typer.Option(help=f"{', '.join(COMPRESSIONS)}.")] = "none",
    **options: Any,
) -> None:
    """Turn a site's own data into its shard, silo_N.h5, and silo_N.json, which the others may see."""
    from data_prep.cut import WriteOptions
    from data_prep.site import Site, import_site, other_numbers

    if (silo is None) != server:
        raise InputError("--silo: give the silo's number, or --server for the server's test set")
    manner = WriteOptions(default_jobs() if jobs is None else jobs, compression)
    check_order(order, test_last)
    site, shares = Site(silo, name), Shares(valid, test, 0.0, test_last, stratify)
    words = kept_words(source, group, order, words_of(source, option, options), keep=keep)
    more: dict[str, Any] = {"shares": shares, "source_options": words, "manner": manner, "keep": keep}
    made = import_site(source, data, spec, out, site, seed, **more)
    _tell(made, out, site.stem, other_numbers(data, spec, made))


def _tell(made: FederationSpec, out: Path, stem: str, more: list[str]) -> None:
    """Say what a site's shard holds, and what of its data does not."""
    entry = made.test if made.test else made.silos[0]
    held = ", ".join(f"{count:,} {split}" for split, count in entry.examples.items())
    typer.echo(f"{out / entry.file}: {held}; give {stem}.json to whoever assembles the federation")
    looked = [line for look in (codes_told, odd_told, ids_told) for line in look(out, made)]
    for told in [*changes_of(made.source).values(), *looked, *more]:
        typer.echo(f"warning: {one_line(told)}", err=True)


@app.command()
def spec(
    file: Annotated[Path, typer.Argument(help="The file to make, as agreed.json.")],
    shape: Annotated[str | None, typer.Option(help="The shape of one example, as 1,28,28.")] = None,
    dtype: Annotated[str | None, typer.Option(help="What features are stored as, as uint8; float32.")] = None,
    classes: Annotated[
        int | None, typer.Option(help="How many classes there are; as many as --class-names.")
    ] = None,
    scale: Annotated[str | None, typer.Option(help="What a model multiplies features by: 1/255.")] = None,
    offset: Annotated[float | None, typer.Option(help="What a model adds to scaled features; 0.")] = None,
    class_names: Annotated[str | None, typer.Option(help="Their names in order, as cat,dog.")] = None,
    feature_names: Annotated[str | None, typer.Option(help="A table's columns, as age,sex.")] = None,
    target_dtype: Annotated[
        str | None, typer.Option(help="What targets are stored as, where they are not int64 class numbers.")
    ] = None,
    target_shape: Annotated[
        str | None, typer.Option(help="The shape of one example's target, as 3; one number.")
    ] = None,
    target_names: Annotated[
        str | None, typer.Option(help="The names of the targets' columns, as systolic,diastolic.")
    ] = None,
    ignore: Annotated[int | None, typer.Option(help="A class number that does not count, as -100.")] = None,
    like: Annotated[
        Path | None, typer.Option(help="Take what is not given from this federation.json.")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="As --like, from the TOML spec of a table.")] = None,
    name: Annotated[str | None, typer.Option(help="The federation's name; that of --like, --table.")] = None,
) -> None:
    """Make a spec without data, which sites agree on before any of them imports its own."""
    from data_prep.site import new_spec

    before = _before(like, table)
    factor = scale_of(scale or "", "--scale: ")
    features, names = _described(before, shape, dtype, factor, offset), _listed(class_names)
    targets = _targets(before, target_dtype, target_shape, target_names, ignore)
    given = classes if classes is not None else len(names) if names else before.classes if before else None
    given = 0 if given is None and not targets else given
    columns = _listed(feature_names) or (before.feature_names if before else None)
    names = names or (before.class_names if before else None)
    name = name or (before.name if before else "federation")
    kept = before.source.get("encoding") if before and columns == before.feature_names else None
    named: dict[str, Any] = {"class_names": names, "feature_names": columns, "encoding": kept}
    made = new_spec(file, name, features, given, targets, **named)
    size = "x".join(map(str, made.single.shape))
    learned = f"{made.classes} classes" if made.classes else made.aim
    typer.echo(f"{file}: {made.single.dtype} {size}, {visible(learned)}; send it to every site")


@app.command()
def draft(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...", help="A table, Parquet by its ending, else CSV; or one of each site."
        ),
    ],
    label: Annotated[
        str, typer.Option(help="The column that is learned; several by commas, of survival TIME,EVENT.")
    ],
    kind: Annotated[
        str, typer.Option(help="What it is: categorical, numeric, multilabel or survival.")
    ] = "categorical",
    silo: Annotated[str | None, typer.Option(help="The column that names the silo of a row.")] = None,
    group: Annotated[str | None, typer.Option(help="The column that says whose a row is.")] = None,
    names: Annotated[
        str | None, typer.Option(help="The columns' names, as age,sex, of a CSV table without a header line.")
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of a CSV table, as cp1252.")] = "utf-8",
    out: Annotated[Path | None, typer.Option(help="The spec; the table's name with .toml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a spec that is there.")] = False,
) -> None:
    """Guess what a table's columns mean, and write it as a spec to read through."""
    from data_prep.tables import KINDS, Learned, check_encoding, draft as guess, spec_beside

    if out is None and len(tables) > 1:
        raise InputError(
            "--out: not given; say what the spec of several tables is called, as --out columns.toml"
        )
    spec = out or spec_beside(tables[0])
    if kind not in KINDS:
        raise InputError(f"--kind: '{kind}' given; {choices(kind, KINDS)}")
    _check_free(spec, force)
    try:
        check_encoding(encoding)
    except ValueError as error:
        raise InputError(f"--encoding: {error}") from None
    learned = Learned(kind, tuple(_listed(label) or ()), silo, tuple(_listed(names) or ()), group, encoding)
    drafted = guess(tables, learned, spec)
    _write_specs({spec: drafted.text, **{spec_beside(one): own for one, own in drafted.own.items()}}, force)
    read = "the table" if len(tables) == 1 else f"{len(tables)} tables"
    typer.echo(f"{spec}: guessed from {read}; read it through before you partition")
    for line in [*drafted.told, *units_of_tables(tables, drafted)]:
        typer.echo(one_line(line))


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="A table: Parquet by its ending, else CSV.")],
    out: Annotated[Path, typer.Option(help="The spec to write.")],
    spec: Annotated[Path | None, typer.Option(help="The table's spec; its name with .toml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a spec that is there.")] = False,
) -> None:
    """State in a spec what it leaves to the table, so that rows of other tables become the same numbers."""
    import tomli_w

    from data_prep.tables import Encoder, kind_of, read_spec as read_table_spec, spec_beside

    if os.path.lexists(out) and not force:
        raise InputError(f"{out}: is there already; use another --out, or --force to write over it")
    encoder = Encoder(kind_of(table), table, read_table_spec(spec or spec_beside(table)))
    if next(encoder.read(table), None) is None:  # also where nothing is left to it
        raise InputError(f"{table}: has no rows")
    _write_spec(out, tomli_w.dumps(encoder.fitted()))
    typer.echo(f"{out}: levels, classes, means and deviations are those of {table.name}")


def _check_free(spec: Path, force: bool) -> None:
    if os.path.lexists(spec) and not force:
        raise InputError(f"{spec}: is there already; use another --out, or --force to write over it")


def _write_specs(specs: Mapping[Path, str], force: bool) -> None:
    for path in specs:
        _check_free(path, force)
    for path, text in specs.items():
        _write_spec(path, text)


def _write_spec(path: Path, text: str) -> None:
    """Write a spec, aside and renamed: what is there stays whole, and no link is followed."""
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise InputError(f"--out: {path} cannot be written ({error.strerror})") from None


def _before(like: Path | None, table: Path | None) -> FederationSpec | None:
    """Return what a federation or the spec of a table says, if there is one."""
    if like and table:
        raise InputError(f"--table: {table} given, and --like {like}; use one of them")
    if table:
        from data_prep.site import spec_of_table

        return spec_of_table(table)
    return read_spec(like / "federation.json" if like.is_dir() else like) if like else None


def _targets(
    before: FederationSpec | None, dtype: str | None, shape: str | None, names: str | None, ignore: int | None
) -> dict[str, object] | None:
    """Return what is given of a target's description, the rest as before; None for class numbers."""
    numbers = [part.strip() for part in shape.replace("x", ",").split(",")] if shape else None
    given = {"dtype": dtype, "shape": numbers, "names": _listed(names), "ignore": ignore}
    given = {what: value for what, value in given.items() if value is not None}
    aim = before.targets if before else None
    if isinstance(aim, dict):
        raise InputError(f"--like: has targets by name ({', '.join(aim)}); import by its own federation.json")
    known = aim.model_dump() if aim else {}
    return {"dtype": "int64", "shape": (), **known, **given} if known or given else None


def _described(
    before: FederationSpec | None,
    shape: str | None,
    dtype: str | None,
    scale: float | None,
    offset: float | None,
) -> dict[str, object]:
    """Return what is given of an example's description, and the rest as before, or by default."""
    if not (shape or before):
        how = "write the shape of one example, as 1,28,28, or use --like FEDERATION or --table SPEC"
        raise InputError(f"--shape: not given; {how}")
    numbers = [part.strip() for part in shape.replace("x", ",").split(",")] if shape else None
    given = {"shape": numbers, "dtype": dtype, "scale": scale, "offset": offset}
    known = before.single.model_dump() if before else {"dtype": "float32"}
    return known | {what: value for what, value in given.items() if value is not None}


def _listed(text: str | None) -> list[str] | None:
    return [word.strip() for word in text.split(",")] if text else None


@app.command()
def assemble(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with every site's silo_N.json.")],
) -> None:
    """Merge the sites' entries into one federation.json; no data is needed, nor opened."""
    from data_prep.site import assemble as merge, differences

    made = merge(folder)
    for line in differences(made):
        typer.echo(f"warning: {one_line(line)}", err=True)
    examples = sum(sum(entry.examples.values()) for entry in made.silos)
    typer.echo(f"{folder / 'federation.json'}: {len(made.silos)} silos, {examples:,} examples")


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of shards.")],
    duplicates: Annotated[bool, typer.Option(help="Look for examples that occur more than once.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look through all shards of a folder; ends with 1 if something is wrong, not for warnings."""
    from rich.console import Console

    from data_prep.check import check as look, faults, show_findings

    if is_vertical(folder):
        from data_prep.check import check_columns

        columns, findings = check_columns(folder, duplicated=duplicates)
        silos = len(columns.silos)
    else:
        spec, findings = look(folder, duplicated=duplicates)
        silos = len(spec.silos)
    if as_json:
        print(json.dumps({"folder": str(folder), "silos": silos, "findings": [*map(asdict, findings)]}))
    else:
        show_findings(folder, silos, findings, Console(width=None if sys.stdout.isatty() else 120))
    raise typer.Exit(1 if faults(findings) else 0)
