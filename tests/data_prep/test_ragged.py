"""Examples of unequal lengths, from a source into shards that are checked and shown."""

import hashlib
import json
import sys

import h5py
import numpy as np
import pytest
import torch
from conftest import with_usual
from safetensors.torch import load_file
from typer.testing import CliRunner

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.cli import app as mpifl
from mpifl.data.ragged_arrays import Ragged
from mpifl.data.shards import provenance_of
from mpifl.data.shards.shards import open_shard, read_federation

DRAW = np.random.default_rng(0)
N = 60
SILO = np.arange(N) % 3
LENGTHS = DRAW.integers(0, 7, N)
IDS = [DRAW.integers(0, 9, n).astype("i4") for n in LENGTHS]
SPANS = [DRAW.normal(size=(n, 2)).astype("f4") for n in LENGTHS[::-1]]
TAGS = [np.where(one > 6, -100, one) for one in IDS]
AGE = DRAW.normal(size=N).astype("f4")
OPTIONS = ["mask=ids:ids_mask", "fill=ids:5", "ignore=-100"]


def run(*words, ends=0):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def flat(name, examples, offsets="i8"):
    ends = np.cumsum([0, *map(len, examples)]).astype(offsets)
    return {name: np.concatenate(examples), f"{name}.offsets": ends}


def source(folder, form, **more):
    arrays = {
        **flat("x_ids", IDS),
        **flat("x_spans", SPANS, "i4"),
        "x_age": AGE,
        **flat("y", TAGS),
        "silo": SILO,
    }
    arrays |= {**flat("x_test_ids", IDS[:6]), **flat("x_test_spans", SPANS[:6]), "x_test_age": AGE[:6]}
    arrays = {
        key: value
        for key, value in {**arrays, **flat("y_test", TAGS[:6]), **more}.items()
        if value is not None
    }
    if form == "npz":
        np.savez(folder / "own.npz", **arrays)
        return folder / "own.npz"
    if form == "npy":
        (folder / "own").mkdir()
        for name, array in arrays.items():
            np.save(folder / "own" / f"{name}.npy", array)
        return folder / "own"
    with h5py.File(folder / "own.h5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=True if form == "chunked" else None)
    return folder / "own.h5"


def cut(folder, *more, form="npz", scheme="natural", ends=0, options=OPTIONS, out="out", **arrays):
    given = ["--data", source(folder, form, **arrays), "--out", folder / out, "--scheme", scheme]
    words = [word for option in options for word in ("--option", option)]
    run("partition", "hdf5" if form == "chunked" else form, *given, *words, *more, ends=ends)
    return folder / out


def opened(folder):
    spec = read_federation(folder)
    return spec, [open_shard(folder, entry, spec) for entry in (*spec.silos, *filter(None, (spec.test,)))]


@pytest.mark.parametrize("form", ["npz", "npy", "hdf5", "chunked"])
def test_ragged_arrays_go_from_a_source_into_shards_to_the_bit(tmp_path, form):
    spec, shards = opened(cut(tmp_path, form=form))
    assert spec.format_version == 3
    assert {name: (one.shape, one.ragged, one.fill, one.mask) for name, one in spec.features.items()} == {
        "ids": ((6,), True, 5, "ids_mask"),
        "spans": ((6, 2), True, 0, None),
        "age": ((), False, 0, None),
    }
    assert (spec.classes, spec.targets.shape, spec.targets.ragged, spec.targets.ignore) == (
        7,
        (6,),
        True,
        -100,
    )
    for silo, shard in enumerate(shards):
        held, wanted = shard["train" if silo < 3 else "test"], range(silo, N, 3) if silo < 3 else range(6)
        assert len(held) == len(wanted)
        for found, examples in ((held.x["ids"], IDS), (held.x["spans"], SPANS), (held.y, TAGS)):
            assert found.dtype == examples[0].dtype
            assert [found[i].tolist() for i in range(len(held))] == [examples[i].tolist() for i in wanted]
        assert held.x["age"].tolist() == AGE[wanted].tolist()
    counted = np.bincount(np.concatenate(TAGS[::3])[np.concatenate(TAGS[::3]) >= 0], minlength=7)
    assert spec.silos[0].labels == counted.tolist()


@pytest.mark.parametrize(
    ("scheme", "more"),
    [("iid", ["--compression", "gzip"]), ("quantity", ["--jobs", 3]), ("iid", ["--resume"])],
)
def test_how_they_are_written_is_no_matter(tmp_path, monkeypatch, scheme, more):
    words = ["--silos", 4, "--valid", 0.2, "--public", 0.1]
    _, plain = opened(cut(tmp_path, *words, "--jobs", 1, scheme=scheme, out="plain"))
    monkeypatch.setattr("data_prep.write.layout.PIECE", 50)
    monkeypatch.setattr("data_prep.write.layout.BUCKET", 90)
    more = with_usual(more, jobs=1)
    _, other = opened(cut(tmp_path, *words, *more, scheme=scheme, out="other"))
    for one, two in zip(plain, other, strict=True):
        assert one.splits.keys() == two.splits.keys()
        for split in one.splits:
            for path, array in one[split].stored.items():
                assert array.tobytes() == two[split].stored[path].tobytes()


def test_check_and_inspect_know_them(tmp_path, capsys):
    twice = {**flat("x_ids", [*IDS[:-1], IDS[0]]), **flat("x_spans", [*SPANS[:-1], SPANS[0]])}
    twice |= {"x_age": np.r_[AGE[:-1], AGE[0]], **flat("y", [*TAGS[:-1], TAGS[0]])}
    none = dict.fromkeys(
        [f"{n}{o}" for n in ("x_test_ids", "x_test_spans", "y_test") for o in ("", ".offsets")]
    )
    folder = cut(tmp_path, **twice, **none, x_test_age=None)
    run("check", folder)
    said = " ".join(capsys.readouterr().out.split())  # a long path breaks the line
    assert "1 warning" in said
    assert "duplicates" in said
    run("inspect", folder, "--features")
    assert "ids int32 up to 6" in capsys.readouterr().out.replace("\n", " ")


def test_check_names_the_example_that_is_not_finite(tmp_path, capsys):
    folder = cut(tmp_path)
    path, told = folder / "silo_0001.h5", folder / "federation.json"
    with h5py.File(path, "r+") as file:
        at = file["train/x/spans.offsets"][:]
        example = int(np.flatnonzero(np.diff(at))[3])
        file["train/x/spans"][at[example], 1] = np.nan
    record = json.loads(told.read_bytes())
    record["silos"][1]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    told.write_text(json.dumps(record))
    run("check", folder, ends=1)
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"1 examples have NaN or infinite features, the first is {example}" in said


TEXTS = [{"text": "To be, or not to be"}, {"prompt": "age?", "completion": " ill"}, {"text": "ä€😀"}]


def lines(folder, texts):
    path = folder / "own.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in texts))
    return path


@pytest.mark.parametrize("length", [1, 3, 8, 100])
def test_ragged_texts_are_those_of_one_length_without_what_fills_them(tmp_path, length):
    path = lines(tmp_path, TEXTS)
    fixed = find_source("jsonl", [f"length={length}"])(path, 0)
    found = find_source("jsonl", [f"length={length}", "ragged=true"])(path, 0)
    assert isinstance(found.x, Ragged)
    assert len(found.x) == len(fixed.x)
    for row in range(len(found.x)):
        x, y = found.x[row], found.y[row]
        assert 1 <= len(x) == len(y) <= length
        assert fixed.x[row].tolist() == [*x, *[256] * (length - len(x))]
        assert fixed.y[row].tolist() == [*y, *[-100] * (length - len(y))]
    assert sum(map(int, found.x.lengths)) >= sum((fixed.y[:] != -100).sum(1))
    assert (found.features.shape, found.features.fill, found.targets.shape) == ((length,), 256, (length,))


def test_ragged_texts_have_the_names_that_a_model_takes(tmp_path):
    options = ["ragged=true", "inputs=input_ids,attention_mask", "length=9"]
    found = find_source("jsonl", options)(lines(tmp_path, TEXTS), 0)
    assert found.features["input_ids"].mask == "attention_mask"


def test_a_site_imports_texts_that_are_shorter_and_none_that_are_longer(tmp_path, capsys):
    path = lines(tmp_path, TEXTS * 4)
    words = ["--option", "ragged=true", "--option"]
    whole = ["partition", "jsonl", "--data", path, "--scheme", "iid", "--silos", 2]
    run(*whole, *words, "length=12", "--out", tmp_path / "out")
    agreed, site = tmp_path / "agreed.json", tmp_path / "site"
    run("spec", agreed, "--like", tmp_path / "out" / "federation.json", "--name", "texts")
    bring = ["import", "jsonl", "--data", path, "--spec", agreed]
    run(*bring, *words, "length=7", "--silo", 0, "--out", site)
    run("assemble", site)
    spec, (shard,) = opened(site)
    assert spec.features.shape == spec.targets.shape == (12,)
    assert int(shard["train"].x.lengths.max()) == 7
    capsys.readouterr()
    run(*bring, *words, "length=20", "--silo", 1, "--out", site, ends=2)
    assert "with up to 20 rows, the federation has 12 at most" in capsys.readouterr().err
    run(*bring, "--option", "length=12", "--option", "ragged=false", "--silo", 1, "--out", site, ends=2)
    assert "x of one length, the federation has unequal lengths" in capsys.readouterr().err


def of(name, **changed):
    return {f"{name}.{key}" if key != "values" else name: value for key, value in changed.items()}


FAULTS = {
    "late": (of("x_ids", offsets=np.r_[1, np.cumsum(LENGTHS)]), OPTIONS, "x_ids.offsets: begins with 1"),
    "short": (of("x_ids", values=np.zeros(3, "i4")), OPTIONS, "3 rows of values; correct the offsets"),
    "floats": (
        of("y", offsets=np.zeros(61)),
        OPTIONS,
        "y.offsets is float64 of shape [61]; it must be integers",
    ),
    "other rows": (
        of("x_ids", values=np.zeros(0, "i4"), offsets=[0, 0]),
        OPTIONS,
        "there are 60 examples, so [60, ...]",
    ),
    "not finite": (
        of("x_spans", values=np.full((LENGTHS.sum(), 2), np.nan, "f4")),
        OPTIONS,
        "x_spans has NaN or infinite values, first in example",
    ),
    "beyond float32": (
        of("x_spans", values=np.full((LENGTHS.sum(), 2), 1e39)),
        OPTIONS,
        "x_spans has values beyond float32, first 1e+39 in example",
    ),
    "no ignore": (
        {"y": np.zeros(LENGTHS.sum(), "i4"), "y_test": np.zeros(LENGTHS[:6].sum(), "i4")},
        ["fill=0"],
        "ragged class numbers without ignore",
    ),
    "a fill": ({}, ["fill=ids:x", "ignore=-100"], "fill=x given; it must be a number"),
    "an unfit fill": ({}, ["fill=ids:0.5", "ignore=-100"], "fill 0.5 does not fit int32"),
    "a fill of none": ({}, ["fill=age:0", "ignore=-100"], "'age' is not a ragged input: there is ids, spans"),
    "a mask of two": ({}, ["mask=m", "ignore=-100"], "mask=m given of 2 arrays; say of which, as ids:m"),
    "a mask of a name": ({}, ["mask=ids:age", "ignore=-100"], "mask age: another input has that name"),
    "a test set of one length": (
        {**of("y_test", values=np.zeros((6, 6), "i4"), offsets=None)},
        OPTIONS,
        "y_test or y has offsets, not both",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_told_in_one_line(tmp_path, capsys, fault):
    arrays, options, said = FAULTS[fault]
    cut(tmp_path, options=options, ends=2, **arrays)
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("scheme", "more", "said"),
    [("vertical", [], "unequal lengths"), ("feature-noise", ["--sigma", 0.1], "unequal lengths")],
)
def test_schemes_that_need_one_length_say_so(tmp_path, capsys, scheme, more, said):
    np.savez(tmp_path / "one.npz", **flat("x", SPANS), y=SILO)
    given = ["--data", tmp_path / "one.npz", "--out", tmp_path / "out", "--silos", 2, "--scheme", scheme]
    run("partition", "npz", *given, *more, ends=2)
    assert said in capsys.readouterr().err


MODEL = """
import torch


class Bag(torch.nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        assert shape == {"ids": (6,)}
        self.embedding, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, classes)

    def forward(self, ids, ids_mask):
        mask = ids_mask.unsqueeze(2)
        return self.head((self.embedding(ids) * mask).sum(1) / mask.sum(1).clamp(min=1))
"""


def test_a_model_with_a_mask_trains_and_predicts_and_padding_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "bag.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    np.savez(tmp_path / "own.npz", **flat("x_ids", IDS), y=SILO, silo=SILO % 2)
    words = ["--data", "own.npz", "--out", "shards", "--scheme", "natural", "--test", 0.2]
    run("partition", "npz", *words, "--option", "mask=ids_mask")
    tables = {"model": 'name = "bag:Bag"', "local": "lr = 0.1\nbatch_size = 4", "evaluate": "batch_size = 3"}
    told = "".join(f"[{name}]\n{keys}\n" for name, keys in tables.items())
    (tmp_path / "job.toml").write_text(f'name = "bag"\nshards = "shards"\nrounds = 2\nseed = 1\n{told}')
    for words in (
        ["train", "job.toml", "--out", "run"],
        ["predict", "run", "--data", "shards", "--out", "p.npz"],
    ):
        ran = CliRunner().invoke(mpifl, [*words, *(["--trust", "bag:Bag"] if words[0] == "predict" else [])])
        assert ran.exit_code == 0, ran.output
    from bag import Bag

    module = Bag({"ids": (6,)}, 3)
    module.load_state_dict(load_file("run/model.safetensors"))
    predicted = np.load("p.npz")
    spec, shards = opened(tmp_path / "shards")
    given = [provenance_of(tmp_path / "shards", entry) for entry in spec.silos]
    rows = [own[name].rows for own, shard in zip(given, shards, strict=True) for name in shard.splits]
    alone = [
        module(torch.from_numpy(one[None]).long(), torch.ones(1, len(one))).softmax(1)
        for shard in shards
        for held in shard.splits.values()
        for one in (held.x["ids"][row] for row in range(len(held)))
    ]
    columns = np.stack([predicted[f"p_{label}"] for label in range(3)], 1)
    in_order = torch.cat(alone).detach().numpy()[np.argsort(np.concatenate(rows))]
    assert np.allclose(in_order, columns, atol=1e-6)
    sys.modules.pop("bag")
