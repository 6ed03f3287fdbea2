"""What `inspect` prints and draws, from federation.json alone."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from data_prep.cli import app, main
from data_prep.inspect.feature_moments import moments_of
from data_prep.inspect.overview import bar, sparkline
from data_prep.schemes.lookup import SCHEMES, find_scheme, resolve
from data_prep.sources.source_registry import SOURCES, find_source
from mpifl.data.shards.shards import Features, FederationSpec, ShardEntry


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def federation(folder, counts, name="made up", **names):
    """Write the federation.json of silos with these label histograms [silos, classes], and no shard."""
    folder.mkdir(exist_ok=True)
    common = {"bytes": 2048, "sha256": "0" * 64}
    tested = [77, *[0] * (len(counts[0]) - 1)]
    FederationSpec(
        name=name,
        features=Features(shape=(2,), dtype="float32"),
        classes=len(counts[0]),
        seed=4,
        scheme={"name": "dirichlet", "alpha": 0.5},
        source={"name": "npz", "files": {}},
        silos=[
            ShardEntry(
                silo=silo,
                name=f"clinic {silo}",
                file=f"silo_{silo:04d}.h5",
                examples={"train": sum(labels), "valid": 3},
                labels=labels,
                **common,
            )
            for silo, labels in enumerate(counts)
        ],
        test=ShardEntry(
            silo=None, name="test", file="test.h5", examples={"test": 77}, labels=tested, **common
        ),
        **names,
    ).write(folder)
    return folder


def test_the_table_the_totals_and_the_measures(tmp_path, capsys):
    assert command("inspect", federation(tmp_path / "f", [[1200, 0], [0, 1200], [600, 600]])) == 0
    out = capsys.readouterr().out
    assert "made up: npz by dirichlet (alpha 0.5), seed 4; float32 2, 2 classes" in out
    row = next(line for line in out.splitlines() if "clinic 1" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "1", "clinic 1", "1,200", "3", "████████████", "█", "1/2", "2.0 kB",
    ]  # fmt: skip
    assert "3 silos: 3,600 train, 9 valid; the server's test set 77; 8.2 kB" in out
    # two silos with one label each at H(3/4, 1/4) - 1/2, the third at 0
    assert "0.2075 bit" in out
    assert "0.3333" in out


def test_classes_and_features_are_called_by_their_names(tmp_path, capsys):
    names = {"class_names": ["he[a]lthy", "ill"], "feature_names": ["age", "[sex]"]}
    assert command("inspect", federation(tmp_path / "f", [[12, 0], [3, 4]], **names)) == 0
    out = capsys.readouterr().out
    assert "Labels, from the left: he[a]lthy, ill" in out
    assert "Features: age, [sex]" in out
    row = next(line for line in out.splitlines() if "clinic 0" in line)
    assert "1/2" in row


def test_long_lists_of_names_are_cut(tmp_path, capsys):
    names = {"class_names": [f"class {number}" for number in range(100)]}
    assert command("inspect", federation(tmp_path / "f", [[1] * 100], **names)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Labels, from the left: class 0, class 1, " in said
    assert "class 11, ... (100)" in said
    assert "class 12" not in said


def test_without_names_there_is_no_line_of_them(tmp_path, capsys):
    assert command("inspect", federation(tmp_path / "f", [[12, 0], [3, 4]])) == 0
    out = capsys.readouterr().out
    assert "from the left" not in out
    assert "Features:" not in out


def test_many_silos_are_cut_and_counted(tmp_path, capsys):
    folder = federation(tmp_path / "f", [[1, 2]] * 100)
    command("inspect", folder)
    short = capsys.readouterr().out
    assert [f"clinic {silo} " in short for silo in (0, 19, 20, 79, 80, 99)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert "60 silos are left out; --all shows them." in short
    command("inspect", folder, "--all")
    whole = capsys.readouterr().out
    assert all(f"clinic {silo} " in whole for silo in range(100))
    assert "left out" not in whole


def test_a_name_is_text_and_no_markup(tmp_path, capsys):
    folder = federation(tmp_path / "f", [[1, 2]], name="[red]$x_{$[/]")
    assert command("inspect", folder) == 0
    assert "[red]$x_{$[/]" in capsys.readouterr().out


def broken(change):
    def harm(folder):
        path = folder / "federation.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return harm


FAULTS = {
    "missing": (lambda folder: (folder / "federation.json").unlink(), [], "federation.json: is not there"),
    "not JSON": (lambda folder: (folder / "federation.json").write_text("{"), [], "federation.json"),
    "label counts": (
        broken(lambda spec: spec["silos"][0]["labels"].pop()),
        [],
        "1 label counts for 2 classes",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_folder_or_plot_is_named(tmp_path, capsys, monkeypatch, fault):
    pytest.importorskip("matplotlib")
    harm, words, said = FAULTS[fault]
    monkeypatch.chdir(tmp_path)
    harm(federation(tmp_path / "f", [[1, 2], [3, 4]]))
    assert command("inspect", "f", *words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_drawings_are_to_scale():
    assert sparkline(np.array([0, 1, 8, 4])) == " ▁█▄"
    assert sparkline(np.array([0, 1, 10_000])) == " ▁█"
    assert sparkline(np.array([0, 8]), unicode=False) == " @"
    assert len(sparkline(np.ones(200, int))) == 32
    assert sparkline(np.zeros(3, int)) == "   "
    assert (bar(1.0), bar(0.0), bar(0.5), bar(1 / 96)) == ("█" * 12, "", "█" * 6, "▏")
    assert bar(0.5, unicode=False) == "######"


DOCUMENT = (Path(__file__).parents[2] / "docs" / "howto" / "data.md").read_text()
DOCUMENTED = [
    line for line in re.findall(r"python -m data_prep ([^`#\n]*)", DOCUMENT) if "SOURCE" not in line
]
OPTIONS = {option for scheme in SCHEMES.values() for option in scheme.options}


def test_the_document_names_every_source_and_scheme():
    named = set(re.findall(r"`([a-z0-9-]+)`", DOCUMENT))
    assert set(SOURCES) - named == set()
    assert set(SCHEMES) - named == set()
    assert {f"--scheme {name}" for name in SCHEMES} <= set(re.findall(r"--scheme [a-z-]+", DOCUMENT))


@pytest.fixture
def documented(tmp_path, monkeypatch):
    """Stand in a folder with the document's functions, `waves.py` and `decades.py`."""
    written = re.findall(r"```python\n(import numpy.*?)```", DOCUMENT, re.DOTALL)
    for name, text in zip(("waves", "decades"), written, strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("waves", None)
    sys.modules.pop("decades", None)


@pytest.mark.usefixtures("documented")
@pytest.mark.parametrize("line", DOCUMENTED)
def test_every_documented_command_is_one(line):
    """The words are parsed by the command itself; nothing is run."""
    name, *words = shlex.split(line)
    commands = typer.main.get_command(app).commands
    given = commands[name].make_context(name, words).params
    if name == "partition":
        options = {key: value for key, value in given.items() if key in OPTIONS}
        assert given["source"] in SOURCES or ":" in given["source"]
        find_source(given["source"], given["option"] or ())
        resolve(given["scheme"], find_scheme(given["scheme"]), options)


def test_names_cannot_command_the_terminal(tmp_path, capsys):
    evil = "a\x1b]0;owned\x07\u202eb"
    folder = federation(tmp_path / "f", [[12, 3], [4, 9]], name=evil, class_names=[evil, "d"])
    said = json.loads((folder / "federation.json").read_text())
    said["silos"][0]["name"] = evil
    (folder / "federation.json").write_text(json.dumps(said))
    assert command("inspect", folder) == 0
    assert command("inspect", folder, folder) == 0
    out = capsys.readouterr().out
    assert "a ]0;owned" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_moments_of_nothing_change_no_others():
    empty, some = moments_of(np.zeros((0, 2))), moments_of(np.array([[1.0, 2.0], [3.0, 6.0]]))
    for both in (empty + some, some + empty):
        assert (both.count, both.mean.tolist(), both.squares.tolist()) == (2, [2, 4], [2, 8])
    assert (empty + empty).count == 0


def test_a_size_of_400_digits_is_refused(tmp_path, capsys):
    folder = federation(tmp_path / "f", [[12, 3], [4, 9]])
    said = (folder / "federation.json").read_text()
    (folder / "federation.json").write_text(said.replace('"bytes": 2048', '"bytes": 1' + "0" * 400, 1))
    assert command("inspect", folder) == 2
    assert "silos.0.bytes" in capsys.readouterr().err
