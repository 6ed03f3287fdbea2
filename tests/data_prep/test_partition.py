"""The command as a whole: the same bytes from the same seed,
one line for wrong input, all of a folder or nothing."""

import errno
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer
from conftest import with_usual

from data_prep.cli import app, main
from data_prep.sources import SOURCES
from data_prep.write.writing import Writer
from mpifl.data.shards.shards import open_shard, read_federation

ROOT = Path(__file__).parents[2]
ABORTED = {1, 130}  # typer had it end with 1 once


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.fixture
def npz(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "in.npz"
    y = rng.integers(0, 5, 300)
    np.savez(
        path, x=rng.random((300, 4)), y=y, x_test=rng.random((10, 4)), y_test=y[:10], silo=np.arange(300) % 7
    )
    return path


def partition(npz, out, *more):
    """Partition into 6 silos by `iid`, unless told otherwise."""
    return command("partition", "npz", "--data", npz, "--out", out, *with_usual(more, scheme="iid", silos=6))


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


SCHEMES = {
    "iid": ["--silos", 6],
    "shards": ["--silos", 6, "--shards-per-silo", 3],
    "dirichlet": ["--silos", 6, "--alpha", 0.7, "--min-examples", 5],
    "natural": ["--silos", 7, "--valid", 0.1, "--test", 0.2],
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_same_seed_makes_the_same_bytes_and_another_makes_others(tmp_path, npz, scheme):
    words = ["--scheme", scheme, *SCHEMES[scheme]]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert partition(npz, tmp_path / name, *words, "--seed", seed) == 0
    first, same, other = (content(tmp_path / name) for name in "abc")
    assert first == same
    assert first["silo_0000.h5"] != other["silo_0000.h5"]
    assert first["test.h5"] == other["test.h5"]


def test_what_federation_json_says(tmp_path, npz):
    words = [
        "--scheme",
        "dirichlet",
        "--alpha",
        0.7,
        "--valid",
        0.1,
        "--test",
        0.2,
        "--seed",
        5,
        "--name",
        "five",
    ]
    assert partition(npz, tmp_path / "out", *words) == 0
    spec = read_federation(tmp_path / "out")
    held = {"valid": 0.1, "test": 0.2, "stratify": True}
    assert spec.scheme == {"name": "dirichlet", "alpha": 0.7, "min_examples": 10, **held}
    assert (spec.name, spec.seed, spec.classes, spec.source["name"]) == ("five", 5, 5, "npz")
    assert list(spec.source["files"]) == ["in.npz"]
    assert [entry.file for entry in spec.silos] == [f"silo_{silo:04d}.h5" for silo in range(6)]
    assert sum(sum(entry.examples.values()) for entry in spec.silos) == 300
    for entry in spec.silos:
        shard = open_shard(tmp_path / "out", entry, spec)
        assert {split: len(shard[split]) for split in entry.examples} == entry.examples
        assert np.bincount(shard["train"].y, minlength=5).tolist() == entry.labels
    assert list(open_shard(tmp_path / "out", spec.test, spec).splits) == ["test"]


def test_shards_carry_no_time(tmp_path, npz):
    partition(npz, tmp_path / "out")
    with h5py.File(tmp_path / "out" / "silo_0000.h5") as file:
        assert h5py.h5g.get_objinfo(file["train/x"].id).mtime == 0


def test_the_summary_is_one_line(tmp_path, npz, capsys):
    partition(npz, tmp_path / "out")
    out, err = capsys.readouterr()
    assert "6 silos, 300 examples, 10 test examples of the server; every silo has 50" in out
    assert (out.count("\n"), err) == (1, "")
    partition(npz, tmp_path / "other", "--silos", 7)
    assert "silo 6 is the smallest with 42, silo 0 the largest with 43" in capsys.readouterr().out


BAD_OPTIONS = {
    "silos 0": (["--silos", 0], "--silos: 0 given"),
    "silos below 0": (["--silos", -3], "--silos: -3 given"),
    "too many silos": (["--silos", 301], "has 300 examples, 301 silos of at least 1 need 301"),
    "minimum too high": (["--min-examples", 51], "6 silos of at least 51 need 306"),
    "minimum 0": (["--min-examples", 0], "--min-examples: 0 given"),
    "alpha 0": (["--scheme", "dirichlet", "--alpha", 0], "--alpha: 0.0 given"),
    "alpha below 0": (["--scheme", "dirichlet", "--alpha", -1], "--alpha: -1.0 given"),
    "alpha NaN": (["--scheme", "dirichlet", "--alpha", "nan"], "--alpha: nan given"),
    "alpha infinite": (["--scheme", "dirichlet", "--alpha", "inf"], "--alpha: inf given"),
    "alpha without end": (
        ["--scheme", "dirichlet", "--alpha", 1e308],
        "--alpha: 1e+308 given; it must be above 0 and at",
    ),
    "quantity without end": (["--scheme", "quantity", "--alpha", 1e308], "--alpha: 1e+308 given"),
    "alpha too small": (["--scheme", "dirichlet", "--alpha", 0.001], "use a larger --alpha"),
    "alpha for iid": (["--alpha", 0.5], "--alpha: --scheme iid does not take it"),
    "no shards": (["--scheme", "shards", "--shards-per-silo", 0], "--shards-per-silo: 0 given"),
    "too many shards": (
        ["--scheme", "shards", "--shards-per-silo", 51],
        "300 examples cannot fill 306 shards",
    ),
    "natural disagrees": (["--scheme", "natural", "--silos", 8], "--silos: 8 given, but the data names 7"),
    "natural minimum": (
        ["--scheme", "natural", "--silos", 7, "--min-examples", 43],
        "silo 6 has 42 examples, 43 asked",
    ),
    "unknown scheme": (["--scheme", "magic"], "'magic' is unknown; there are iid, shards, dirichlet, "),
    "valid below 0": (["--valid", -0.1], "--valid: -0.1 given"),
    "test of 1": (["--test", 1], "--test: 1.0 given"),
    "test NaN": (["--test", "nan"], "--test: nan given"),
    "shares of 1": (["--valid", 0.3, "--test", 0.7], "leave nothing to train on"),
}


def refusal(capsys, tmp_path, *words):
    before = sorted(tmp_path.rglob("*"))
    assert command(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
    return err


@pytest.mark.parametrize("fault", BAD_OPTIONS)
def test_a_bad_option_is_named(tmp_path, npz, capsys, fault):
    words, said = BAD_OPTIONS[fault]
    usual = {"data": npz, "out": tmp_path / "new" / "out", "scheme": "iid", "silos": 6}
    assert said in refusal(capsys, tmp_path, "partition", "npz", *with_usual(words, **usual))


@pytest.mark.parametrize("scheme", [["natural"], ["mix", "--mix", "natural + rotation"]])
def test_no_natural_silo_becomes_public_as_a_whole(tmp_path, capsys, scheme):
    silo = np.repeat([0, 4, 7], [40, 2, 40])
    np.savez(tmp_path / "in.npz", x=np.ones((82, 2, 2)), y=silo, silo=silo)
    common = [
        "partition",
        "npz",
        "--data",
        tmp_path / "in.npz",
        "--out",
        tmp_path / "out",
        "--scheme",
        *scheme,
    ]
    said = (
        "--public: 0.97 takes all 2 training examples of silo '4'; "
        "lower it, or use a scheme other than natural"
    )
    assert said in refusal(capsys, tmp_path, *common, "--public", 0.97)
    assert command(*common, "--public", 0.2) == 0
    assert len(read_federation(tmp_path / "out").silos) == 3


def test_test_examples_are_no_training_examples_that_are_left(tmp_path, capsys):
    lines = [f"{role}:\nIt is a line of {role}.\n" for role in ("Anne", "Bert") for _ in range(5)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    common = [
        "partition",
        "text",
        "--data",
        tmp_path / "in.txt",
        "--out",
        tmp_path / "out",
        "--scheme",
        "natural",
    ]
    said = refusal(capsys, tmp_path, *common, "--option", "length=40", "--public", 0.9)
    assert "--public: 0.9 takes all 2 training examples of silo '" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["magic", "--scheme", "iid", "--silos", 2], "'magic' is unknown; there are mnist, fashion-mnist, "),
        (
            ["mnist", "--scheme", "iid", "--silos", 2],
            "--data: not given; name the folder of mnist's four IDX files",
        ),
        (["npz", "--scheme", "iid", "--silos", 2], "--data: not given"),
        (["digits", "--scheme", "natural"], "digits has no array 'silo' to cut by"),
        (["digits", "--scheme", "iid"], "--silos: not given"),
    ],
)
def test_a_bad_source_is_named(tmp_path, capsys, monkeypatch, words, said):
    monkeypatch.delenv("MPIFL_DATA", raising=False)
    assert said in refusal(capsys, tmp_path, "partition", *words, "--out", tmp_path / "out")


def test_usage_errors_exit_with_2_too(tmp_path):
    assert command("partition", "digits") == 2
    assert (
        command("partition", "digits", "--out", tmp_path / "out", "--scheme", "iid", "--silos", "many") == 2
    )


def test_a_folder_that_holds_something_is_refused_before_anything_is_read(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for out in ("out", "file"):
        words = [
            "npz",
            "--data",
            tmp_path / "nowhere",
            "--out",
            tmp_path / out,
            "--scheme",
            "iid",
            "--silos",
            2,
        ]
        assert f"{tmp_path / out} exists" in refusal(capsys, tmp_path, "partition", *words)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, npz, capsys):
    (tmp_path / "file").write_text("keep")
    words = [
        "partition",
        "npz",
        "--data",
        npz,
        "--out",
        tmp_path / "file" / "out",
        "--scheme",
        "iid",
        "--silos",
        2,
    ]
    assert "cannot be" in refusal(capsys, tmp_path, *words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path, npz, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    words = [
        "partition",
        "npz",
        "--data",
        npz,
        "--out",
        tmp_path / "locked" / "out",
        "--scheme",
        "iid",
        "--silos",
        2,
    ]
    assert "not a folder you may write to" in refusal(capsys, tmp_path, *words)


def test_an_empty_folder_is_filled(tmp_path, npz):
    (tmp_path / "out").mkdir()
    assert partition(npz, tmp_path / "out") == 0
    assert len(read_federation(tmp_path / "out").silos) == 6


@pytest.mark.parametrize(
    ("failure", "codes"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), {2}),
        (KeyboardInterrupt(), ABORTED),
        (SystemExit(143), {143}),
    ],
)
def test_what_was_half_written_is_removed(tmp_path, npz, capsys, monkeypatch, failure, codes):
    whole = Writer.finish
    seen = []

    def fail_late(writer, shard, offsets):
        if shard.file == "silo_0003.h5":
            seen.extend(file.name for file in writer.folder.glob("*.h5"))
            raise failure
        return whole(writer, shard, offsets)

    monkeypatch.setattr(Writer, "finish", fail_late)
    assert partition(npz, tmp_path / "new" / "out", "--jobs", 1) in codes
    assert len(seen) == 3
    assert list(tmp_path.iterdir()) == [npz]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(("number", "codes"), [(signal.SIGINT, ABORTED), (signal.SIGTERM, {143})])
def test_a_signal_leaves_nothing(tmp_path, number, codes):
    np.savez(tmp_path / "in.npz", x=np.zeros((6000, 2)), y=np.zeros(6000, int))
    words = ["npz", "--data", "in.npz", "--out", "out", "--scheme", "iid", "--silos", "6000"]
    started = subprocess.Popen(
        [sys.executable, "-m", "data_prep", "partition", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        # a background shell has its jobs ignore Ctrl-C
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    until = time.monotonic() + 120
    while not list(tmp_path.glob(".out.partial-*/silo_0005.h5.raw")):
        assert started.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    started.send_signal(number)
    _, err = started.communicate(timeout=120)
    assert started.returncode in codes
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.npz"]


def test_the_command_needs_nothing_heavy_to_start():
    heavy = "{'torch', 'sklearn', 'matplotlib', 'mpi4py', 'mpifl.run.job.job'}"
    look = f"import sys, data_prep.cli; print({heavy} & set(sys.modules))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.check_output([sys.executable, "-c", look], text=True, env=env) == "set()\n"


@pytest.mark.parametrize("option", ["--data", "--name", "--option"])
def test_a_word_that_is_no_text_is_one_line(tmp_path, capsys, option):
    words = ["partition", "npz", "--out", str(tmp_path / "out"), "--scheme", "iid", option, "a=\udcff"]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err == "error: 'a=?' given, which is not UTF-8; rename it\n"


def test_every_option_of_a_source_is_an_option_with_help():
    parsed = typer.main.get_command(app).commands
    taken_by = {"partition": {"alpha", "group", "order", "silos", "test"}}
    taken_by["import"] = taken_by["partition"] | {"silo", "spec"}
    for name, taken in taken_by.items():
        help_of = {one.name: one.help for one in parsed[name].params}
        for source, read in SOURCES.items():
            for option in inspect.signature(read).parameters.values():
                if option.kind is option.KEYWORD_ONLY and option.name not in taken:
                    assert source in help_of[option.name].partition(": ")[0]
                    assert len(help_of[option.name].partition(": ")[2]) > 10


def test_an_option_of_a_source_is_the_same_in_both_forms(tmp_path, npz):
    own, given = tmp_path / "own.npz", {"scale": "1/255", "class_names": "a,b,c,d,e"}
    x = np.random.default_rng(0).integers(0, 255, (300, 4)).astype(np.uint8)
    np.savez(own, x=x, y=np.arange(300) % 5)
    words = [word for key, value in given.items() for word in ("--option", f"{key}={value}")]
    assert partition(own, tmp_path / "a", *words) == 0
    words = ["--scale", "1/255", "--option", "class_names=a,b,c,d,e"]
    assert partition(own, tmp_path / "b", *words) == 0
    found = [content(tmp_path / name) for name in "ab"]
    specs = [json.loads(files.pop("federation.json")) for files in found]
    assert found[0] == found[1]
    wanted = ["class_names=a,b,c,d,e", "scale=1/255"]
    assert [sorted(one["source"].pop("options")) for one in specs] == [wanted, wanted]
    assert specs[0] == specs[1]
    words = ["--spec", tmp_path / "b" / "federation.json", "--silo", 0, "--out", tmp_path / "c"]
    words = ["import", "npz", "--data", own, *words]
    assert command(*words, "--scale", "1/254") == 2
    assert command(*words, "--scale", "1/255", "--class-names", "a,b,c,d,e") == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--size", "32x32"], "--size: npz has no such option; it is for images"),
        (["--no-roles"], "--roles: npz has no such option; it is for text"),
        (["--scale", "x"], "--scale x given; it must be a number above 0, such as 1/255"),
        (["--scale", "1", "--option", "scale=1"], "--option: scale is given twice; say it once"),
    ],
)
def test_an_option_that_a_source_has_not_is_one_line(tmp_path, npz, capsys, words, line):
    assert partition(npz, tmp_path / "out", *words) == 2
    assert capsys.readouterr().err == f"error: {line}\n"
    assert not (tmp_path / "out").exists()
