"""Files of tables as people have them: compressed, in older encodings, from programs of many countries."""

import bz2
import gzip

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from data_prep.tables import read_spec
from data_prep.tables.files import lines as limits, unpacking
from mpifl.common import InputError

SPEC = 'label = "y"\n[features]\na = "numeric"\ntown = "categorical"\n'
ROWS = [f"{n * 0.25},{'Köln' if n % 3 else 'Łódź'},{'uv'[n % 2]}" for n in range(300)]
TEXT = "\n".join(["a,town,y", *ROWS]) + "\n"


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def refused(path, kind="csv"):
    with pytest.raises(InputError) as refusal:
        find_source(kind)(path, 0)
    return str(refusal.value)


def zstd(content):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.compress(content, "zstd", asbytes=True)


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


def written(folder, content, name="t.csv", spec=SPEC):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    (folder / "t.toml").write_text(spec)
    return folder / name


@pytest.mark.parametrize("chunk", [7, 1 << 22])
@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_table_is_the_table(tmp_path, monkeypatch, ending, chunk):
    monkeypatch.setattr(limits, "CHUNK", chunk)
    plain = find_source("csv")(written(tmp_path / "plain", TEXT.encode()), 0)
    packed = written(tmp_path / "in", PACKERS[ending](TEXT.encode()), f"t.csv{ending}")
    data = find_source("csv")(packed, 0)
    assert np.array_equal(data.x, plain.x)
    assert (data.y.tolist(), data.feature_names) == (plain.y.tolist(), plain.feature_names)
    assert set(data.files) == {packed.name, "t.toml"}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_line_of_a_compressed_table_is_that_of_the_table(tmp_path, ending):
    content = TEXT.replace("50.0,", "old,").encode()
    path = written(tmp_path, PACKERS[ending](content), f"t.csv{ending}")
    assert f"t.csv{ending}: line 202: a is 'old', not a finite number" in refused(path)


def test_parts_that_were_compressed_one_by_one_are_one_table(tmp_path):
    head, tail = TEXT[:1001].encode(), TEXT[1001:].encode()
    path = written(tmp_path, gzip.compress(head) + gzip.compress(tail), "t.csv.gz")
    assert len(find_source("csv")(path, 0)) == 300


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("harm", ["cut", "none of it", "nothing"])
def test_a_damaged_compressed_table_is_named(tmp_path, ending, harm):
    packed = PACKERS[ending](TEXT.encode())
    content = {"cut": packed[: len(packed) // 2], "none of it": TEXT.encode(), "nothing": b""}[harm]
    said = refused(written(tmp_path, content, f"t.csv{ending}"))
    assert f"t.csv{ending}: " in said
    assert "\n" not in said
    if harm != "nothing":
        assert "not whole, or damaged (" in said


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_table_unpacks_to_no_more_than_other_files(tmp_path, monkeypatch, ending):
    path = written(tmp_path, PACKERS[ending](b"a,town,y\n" + b"1,x,u\n" * 100_000), f"t.csv{ending}")
    monkeypatch.setattr(unpacking, "FREE", 1 << 16)
    monkeypatch.setattr(limits, "CHUNK", 1 << 12)
    monkeypatch.setattr(unpacking, "RATIO", 2)
    assert f"t.csv{ending}: a table of " in refused(path)


def test_the_commands_take_compressed_tables_and_the_spec_of_the_table(tmp_path, capsys):
    path = written(tmp_path, gzip.compress(TEXT.encode()), "t.csv.gz")
    assert command("draft", path, "--label", "y", "--force") == 0
    assert read_spec(tmp_path / "t.toml").features["town"].kind == "categorical"
    assert command("fit", path, "--out", tmp_path / "f.toml") == 0
    assert command("statistics", "csv", "--data", path, "--out", tmp_path / "s.json") == 0
    words = ["--scheme", "iid", "--silos", 2, "--out", tmp_path / "out"]
    assert command("partition", "csv", "--data", path, *words) == 0


ENCODINGS = {"cp1250": "cp1250", "utf-16": "utf-16", "utf-16 of Windows": "utf-16-le", "named": "UTF8"}


@pytest.mark.parametrize("chunk", [5, 1 << 22])
@pytest.mark.parametrize("case", ENCODINGS)
def test_a_table_in_another_encoding_is_the_table(tmp_path, monkeypatch, case, chunk):
    monkeypatch.setattr(limits, "CHUNK", chunk)
    encoding = ENCODINGS[case]
    mark = "\ufeff" if case == "utf-16 of Windows" else ""
    path = written(tmp_path, (mark + TEXT).encode(encoding), spec=f'encoding = "{encoding}"\n{SPEC}')
    data = find_source("csv")(path, 0)
    assert data.feature_names == ("a", "town=Köln", "town=Łódź")
    assert data.x[:, 0].tolist() == [n * 0.25 for n in range(300)]


def test_what_is_not_utf_8_is_named_by_its_line_with_what_would_do(tmp_path):
    path = written(tmp_path, TEXT.replace("Łódź", "Lodz").encode("cp1252"))
    assert "t.csv: line 3: not a CSV table in UTF-8, or damaged" in (said := refused(path))
    assert "say encoding = 'cp1252'" in said
    assert "say encoding = 'utf-16'" in refused(written(tmp_path, TEXT.encode("utf-16")))
    path = written(tmp_path, TEXT.encode("utf-16"), spec=f'encoding = "ascii"\n{SPEC}')
    assert "t.csv: not a CSV table in ascii, or damaged" in refused(path)


@pytest.mark.parametrize("encoding", ["nosuch", "rot13", "x\\u0000"])
def test_an_encoding_that_is_none_is_refused(tmp_path, encoding, capsys):
    path = written(tmp_path, TEXT.encode(), spec=f'encoding = "{encoding}"\n{SPEC}')
    assert "t.toml: " in (said := refused(path))
    assert "is not a known encoding" in said or "NUL character" in said
    assert command("draft", path, "--label", "y", "--force", "--encoding", "nosuch") == 2
    assert "--encoding: 'nosuch' is not a known encoding" in capsys.readouterr().err


def test_draft_writes_the_encoding_it_was_told(tmp_path):
    path = written(tmp_path, TEXT.replace("Łódź", "Lodz").encode("cp1252"))
    assert command("draft", path, "--label", "y", "--force", "--encoding", "cp1252") == 0
    assert read_spec(tmp_path / "t.toml").encoding == "cp1252"
    words = ["--scheme", "iid", "--silos", 2, "--out", tmp_path / "out"]
    assert command("partition", "csv", "--data", path, *words) == 0


@pytest.mark.parametrize(
    ("delimiter", "keys", "text"),
    [
        (";", 'decimal = ","\n', "1,5"),
        ("\t", "", "1.5"),
        ("|", 'decimal = ","\nthousands = "."\n', "1,5"),
        ("§", 'decimal = ","\n', "1,5"),
    ],
)
def test_delimiters_and_decimal_marks_of_any_kind(tmp_path, delimiter, keys, text):
    lines = [delimiter.join(row) for row in (["a", "town", "y"], [text, "x", "u"], ["2", "x", "v"])]
    spec = f'delimiter = "{delimiter}"\n{keys}{SPEC}'.replace("\t", "\\t")
    path = written(tmp_path, "\n".join(lines).encode(), spec=spec)
    assert find_source("csv")(path, 0).x[:, 0].tolist() == [1.5, 2]


YEARS = {"2019": ROWS[:90], "2020": ROWS[90:91], "__HIVE_DEFAULT_PARTITION__": ROWS[91:]}
PARTED = f'silo = "ward"\n{SPEC}year = {{ kind = "numeric", missing = "mean" }}\n'


def folder(path, kind="csv", spec=PARTED):
    """Write a folder of two levels, whose names have columns; one ward is on both sides of a year."""
    for at, (year, rows) in enumerate(YEARS.items()):
        for ward, part in (("w 1", rows[::2]), ("w2" if at else "w 1", rows[1::2])):
            place = path / f"year={year}" / f"ward={ward.replace(' ', '%20')}"
            place.mkdir(parents=True, exist_ok=True)
            name = f"{len(list(place.iterdir()))}"
            text = "\n".join([("a,town,y", "y,a,town")[at % 2], *map(turned if at % 2 else str, part)]) + "\n"
            (place / f"{name}.csv").write_text(text)
            if kind == "parquet":
                csv, parquet = (pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "parquet"))
                parquet.write_table(csv.read_csv(place / f"{name}.csv"), place / f"{name}.parquet")
                (place / f"{name}.csv").unlink()
            if kind == "csv.gz":
                (place / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
                (place / f"{name}.csv").unlink()
    (path / "_SUCCESS").write_text("")
    path.with_suffix(".toml").write_text(spec)
    return path


def turned(row):
    first, *others = row.split(",")[::-1]
    return ",".join([first, *others[::-1]])


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_folder_is_one_table_whose_names_are_columns(tmp_path, kind):
    data = find_source(kind.partition(".")[0])(folder(tmp_path / "visits", kind), 0)
    assert data.feature_names == ("a", "town=Köln", "town=Łódź", "year")
    assert sorted(data.x[:, 0].tolist()) == [n * 0.25 for n in range(300)]
    by_a = {a: (year, silo) for a, year, silo in zip(data.x[:, 0], data.x[:, 3], data.silo, strict=True)}
    assert (by_a[0][0], by_a[89 * 0.25][0], by_a[90 * 0.25][0]) == (2019, 2019, 2020)
    assert by_a[92 * 0.25][0] == np.float32((90 * 2019 + 2020) / 91)
    assert data.silo_names == {0: "w 1", 1: "w2"}
    assert set(data.files) == {"visits/**", "visits.toml"}


def test_a_folder_is_drafted_fitted_and_partitioned(tmp_path, capsys):
    path = folder(tmp_path / "visits", spec="")
    assert command("draft", path, "--label", "y", "--silo", "ward", "--force") == 0
    spec = read_spec(tmp_path / "visits.toml")
    assert set(spec.features) == {"a", "town", "year"}
    assert command("fit", path, "--out", tmp_path / "f.toml") == 0
    words = ["--data", path, "--scheme", "natural", "--out", tmp_path / "out"]
    assert command("partition", "csv", *words) == 0
    with (path / "year=2020" / "ward=w%201" / "0.csv").open("a") as file:
        file.write("u,7,Köln\n")
    assert command("partition", "csv", *words, "--resume") == 2
    assert "made with other arguments or data" in capsys.readouterr().err
    own = tmp_path / "visits.toml"
    own.write_text("".join(line for line in own.open() if not line.startswith("silo")))
    assert command("partition", "csv", *words[:-1], tmp_path / "other") == 2
    assert 'name the examples\' silo; give it: silo = "COLUMN" in its spec' in capsys.readouterr().err


def test_what_is_wrong_in_a_folder_is_named(tmp_path):
    path = folder(tmp_path / "visits")
    one = path / "year=2019" / "ward=w%201" / "1.csv"
    one.write_text(one.read_text().replace("0.25,", "old,"))
    assert f"{one}: line 2: a is 'old', not a finite number" in refused(path)
    one.write_text(one.read_text().replace("a,town", "year,town"))
    assert f"{one}: column 'a' of the spec is not there" in refused(path)
    one.write_text(one.read_text().replace("year,town,y\n", "a,town,year\n"))
    assert f"{one}: column 'year' of the spec is there twice" in refused(path)
    one.rename(path / "1.csv")
    assert f"its folders name the columns year, ward, those of {path / '1.csv'} none" in refused(path)
    (path / "1.csv").rename(path / "1.json")
    assert f"{path / '1.json'}: in a folder of csv files, which end in .csv or" in refused(path)
    (path / "1.json").unlink()
    (outside := tmp_path / "own.csv").write_text(TEXT)
    one.symlink_to(outside)
    assert f"{one}: a link that leads out of {path}" in refused(path)
    (tmp_path / "none").mkdir()
    (tmp_path / "none.toml").write_text(SPEC)
    assert f"{tmp_path / 'none'}: has no tables; files of one end in .parquet" in refused(
        tmp_path / "none", "parquet"
    )


def foreign(path):
    """Write a table as another program does."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0.25, 0.5, 1.0], "town": ["x", "z", "x"], "y": ["u", "v", "u"]})
    if path.suffix == ".dta":
        frame.to_stata(path, write_index=False)
    elif path.suffix == ".xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    else:
        rows = "".join(f"{row.a},{row.town},{row.y}\n" for row in frame.itertuples())
        kinds = "@attribute a numeric\n@attribute town {x,z}\n@attribute y {u,v}\n"
        path.write_text(f"@relation t\n{kinds}@data\n{rows}")


@pytest.mark.parametrize("ending", [".dta", ".arff", ".xlsx"])
def test_the_line_that_a_table_of_another_program_is_refused_with_makes_one_that_is_read(tmp_path, ending):
    import scipy.io.arff

    (tmp_path / "t.toml").write_text(SPEC)
    foreign(path := tmp_path / f"t{ending}")
    said = refused(path)
    assert said.startswith(f"{path}: ")
    line = said.partition(" make Parquet of it in Python: ")[2]
    exec(line, {"pandas": pytest.importorskip("pandas"), "scipy": scipy})
    data = find_source("parquet")(tmp_path / "t.parquet", 0)
    assert data.x.tolist() == [[0.25, 1, 0], [0.5, 0, 1], [1, 1, 0]]
    assert data.class_names == ("u", "v")


@pytest.mark.parametrize("name", ["t.SAV", "t.zsav", "t.sas7bdat", "t.xpt", "t.ods", "t.xls"])
def test_tables_of_other_programs_are_refused_by_every_command(tmp_path, name, capsys):
    path = written(tmp_path, b"\0\1\2", name)
    assert command("draft", path, "--label", "y", "--force") == 2
    assert (said := capsys.readouterr().err).count("\n") == 1
    assert f"{name}: " in said
    assert ".to_parquet(" in said


SITES = {"north.csv": ",", "south.csv": ";", "east.tsv": "\t"}


def sites(folder):
    """Write a folder of files that are parted by a comma, a semicolon and a tab."""
    folder.mkdir()
    for at, (name, delimiter) in enumerate(SITES.items()):
        rows = [[f"{at + n / 4}", f"x{n % 3}", "uv"[n % 2]] for n in range(40)]
        lines = map(delimiter.join, [["a", "town", "y"], *rows])
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder.parent / f"{folder.name}.toml").write_text(SPEC)
    return folder


def test_each_file_of_a_folder_has_its_own_delimiter(tmp_path):
    folder = sites(tmp_path / "t")
    data = find_source("csv")(folder, 0)
    (tmp_path / "commas").mkdir()
    for name, delimiter in SITES.items():
        (tmp_path / "commas" / name).write_text((folder / name).read_text().replace(delimiter, ","))
    (tmp_path / "commas.toml").write_text(SPEC)
    plain = find_source("csv")(tmp_path / "commas", 0)
    assert data.x.tobytes() == plain.x.tobytes()
    assert command("draft", folder, "--label", "y", "--out", tmp_path / "drafted.toml") == 0
    assert read_spec(tmp_path / "drafted.toml").delimiter is None


def test_a_delimiter_that_the_spec_says_wrongly_is_named(tmp_path):
    path = written(tmp_path, TEXT.replace(",", ";").encode(), spec=f'delimiter = ","\n{SPEC}')
    told = "column 'a' of the spec is not there; the line is separated by ';', the spec says delimiter = ','"
    assert told in refused(path)


def test_names_in_the_spec_find_the_delimiter_of_a_file_without_a_header(tmp_path):
    path = written(
        tmp_path, b"1;u\n2;v\n", spec='names = ["a", "y"]\nlabel = "y"\n[features]\na = "numeric"\n'
    )
    assert find_source("csv")(path, 0).x[:, 0].tolist() == [1.0, 2.0]
