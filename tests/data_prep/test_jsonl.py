"""Texts of JSON Lines: their tokens and the next ones, prompts that are not learned, and harmed lines."""

import hashlib
import json
import sys

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.data.shards import read_spec
from mpifl.data.shards.shards import open_shard, read_federation

TEXTS = [
    {"text": "To be, or not to be", "ward": "north"},
    {"prompt": "age 61?", "completion": " ill", "ward": "south"},
    {"text": "ä€😀", "ward": "north"},
    {"prompt": "a prompt of more than eight", "completion": "!", "ward": "south"},
    {"prompt": "", "completion": "x", "ward": "north"},
]
END, IGNORED = 256, -100


def run(*words, ends=0):
    """Run a command as typed; it must end so."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def write(folder, lines=TEXTS, name="own.jsonl"):
    path = folder / name
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def naive(lines, length, encode, end):
    """Cut texts one token at a time: the oracle."""
    sequences = []
    for line in lines:
        given = encode(line.get("prompt", ""))
        tokens = given + encode(line["text"] if "text" in line else line["completion"])
        tokens += [] if end is None else [end]
        steps = [
            (tokens[at], tokens[at + 1] if at + 1 >= len(given) else IGNORED) for at in range(len(tokens) - 1)
        ]
        for start in range(0, len(steps), length):
            cut = steps[start : start + length]
            cut += [(end or 0, IGNORED)] * (length - len(cut))
            if any(target != IGNORED for _, target in cut):
                sequences.append(([x for x, _ in cut], [y for _, y in cut]))
    return [x for x, _ in sequences], [y for _, y in sequences]


def as_bytes(text):
    return list(text.encode())


@pytest.mark.parametrize("length", [1, 3, 8, 100])
def test_bytes_are_cut_into_sequences_and_the_next_ones(tmp_path, length):
    dataset = find_source("jsonl", [f"length={length}"])(write(tmp_path), 0)
    x, y = naive(TEXTS, length, as_bytes, END)
    assert (dataset.x[:].tolist(), dataset.y.tolist()) == (x, y)
    assert (dataset.classes, dataset.x.dtype, dataset.y.dtype) == (257, np.int16, np.int16)
    assert (dataset.targets.shape, dataset.targets.ignore) == ((length,), IGNORED)


def test_the_lines_that_are_read_together_are_no_matter(tmp_path, monkeypatch):
    path = write(tmp_path, TEXTS * 5)
    together = find_source("jsonl", ["length=4"])(path, 0)
    monkeypatch.setattr("data_prep.sources.jsonl.LINES", 2)
    apart = find_source("jsonl", ["length=4"])(path, 0)
    assert np.array_equal(together.x, apart.x)
    assert np.array_equal(together.y, apart.y)


def partition(path, out, *more, ends=0):
    run("partition", "jsonl", "--data", path, "--out", out, "--option", "length=8", *more, ends=ends)
    return out


@pytest.mark.parametrize("ragged", [False, True])
def test_a_site_cuts_its_texts_as_the_federation_that_it_joins(tmp_path, capsys, ragged):
    path = write(tmp_path)
    more = ["--ragged", "--inputs", "input_ids,attention_mask"] if ragged else []
    folder = partition(path, tmp_path / "out", "--scheme", "iid", "--silos", 1, *more)
    spec = ["--spec", folder, "--out", tmp_path / "own", "--silo"]
    run("import", "jsonl", "--data", path, *spec, 1)
    made = read_spec(tmp_path / "own" / "silo_0001.json")
    assert (made.features, made.targets) == (
        read_federation(folder).features,
        read_federation(folder).targets,
    )
    capsys.readouterr()
    run("import", "jsonl", "--data", path, "--length", 9, *spec, 2, ends=2)
    told = capsys.readouterr().err
    assert ("9 rows, the federation has 8" if ragged else "[9], the federation has [8]") in told, told


def test_silos_are_a_field_and_the_command_writes_what_is_cut(tmp_path, capsys):
    other = write(tmp_path, TEXTS[:2], "held.jsonl")
    options = ["--option", "silo=ward", "--option", f"test={other}", "--scheme", "natural"]
    folder = partition(write(tmp_path), tmp_path / "out", *options)
    spec = read_federation(folder)
    assert [entry.name for entry in spec.silos] == ["north", "south"]
    assert (spec.classes, spec.targets.ignore, spec.features.scale) == (257, IGNORED, None)
    for entry, ward in zip(spec.silos, ("north", "south"), strict=True):
        train = open_shard(folder, entry, spec)["train"]
        x, y = naive([line for line in TEXTS if line["ward"] == ward], 8, as_bytes, END)
        assert (train.x.tolist(), train.y.tolist()) == (x, y)
    assert open_shard(folder, spec.test, spec)["test"].y.tolist() == naive(TEXTS[:2], 8, as_bytes, END)[1]
    run("check", folder, "--no-duplicates")
    capsys.readouterr()
    run("inspect", folder)
    assert "int16 8, a vocabulary of 257" in capsys.readouterr().out


def test_sequences_of_one_text_stay_together_but_for_a_silo_of_one_text(tmp_path, capsys):
    lines = [
        {"text": f"{n:02} " + "abc " * (3 + n + 9 * (n == 0)), "ward": "ns"[n % 2] if n else "one"}
        for n in range(12)
    ]
    words = ["--option", "silo=ward", "--scheme", "natural", "--test", "0.3"]
    folder = partition(write(tmp_path, lines), tmp_path / "out", *words)
    spec = read_federation(folder)
    for entry in spec.silos:
        with h5py.File(folder / entry.file) as shard:
            rows = [{*shard[split]["row"][:].tolist()} for split in ("train", "test")]
        assert rows[0] & rows[1] == ({0} if entry.name == "one" else set())
    run("check", folder, "--no-duplicates")
    short = partition(write(tmp_path, TEXTS[4:] * 4), tmp_path / "short", "--scheme", "iid", "--silos", 2)
    one = partition(
        write(tmp_path, lines[:1]), tmp_path / "one", "--scheme", "iid", "--silos", 2, "--test", 0.2
    )
    assert [read_federation(made).silos[0].groups for made in (short, one)] == [None, None]


def test_the_bits_are_the_same_for_any_jobs(tmp_path):
    path = write(tmp_path, TEXTS * 30)
    ones, threes = (
        partition(path, tmp_path / f"jobs{jobs}", "--scheme", "iid", "--silos", 3, "--jobs", jobs)
        for jobs in (1, 3)
    )
    for file in ones.iterdir():
        digests = [hashlib.sha256((folder / file.name).read_bytes()).digest() for folder in (ones, threes)]
        assert digests[0] == digests[1]


@pytest.fixture
def tokenizer(tmp_path):
    """Save a tokenizer of words whose file asks for truncation, padding and special tokens."""
    library = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "<end>": 1, "[CLS]": 2, "to": 3, "be": 4, "or": 5, "not": 6, "ill": 40}
    made = library.Tokenizer(library.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.post_processor = library.processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 2)])
    made.enable_truncation(3)
    made.enable_padding(length=9)
    (tmp_path / "words").mkdir()
    made.save(str(tmp_path / "words" / "tokenizer.json"))
    lookup = words.get
    return tmp_path / "words", lambda text: [lookup(word, 0) for word in text.split()]


@pytest.mark.parametrize("end", [None, "<end>"])
def test_a_tokenizer_of_a_folder_makes_the_tokens(tmp_path, tokenizer, end):
    folder, encode = tokenizer
    lines = [{"text": "to be or not to be"}, {"prompt": "to be or", "completion": "not ill"}]
    options = [f"tokenizer={folder}", "length=4", *([f"end={end}"] if end else [])]
    dataset = find_source("jsonl", options)(write(tmp_path, lines), 0)
    assert (dataset.x[:].tolist(), dataset.y.tolist()) == naive(lines, 4, encode, 1 if end else None)
    assert dataset.classes == 41
    assert set(dataset.files) == {"own.jsonl", "tokenizer.json"}


def test_a_site_takes_the_end_of_the_federation_and_is_refused_with_other_tokens(tmp_path, tokenizer, capsys):
    path, by = write(tmp_path, [{"text": "to be or not to be"}, {"text": "or not"}]), tokenizer[0]
    words = ["--tokenizer", by, "--end", "<end>", "--scheme", "iid", "--silos", 1]
    joined = ["import", "jsonl", "--data", path, "--spec", partition(path, tmp_path / "out", *words)]
    run(*joined, "--silo", 1, "--tokenizer", by, "--out", tmp_path / "own")
    encoding = read_spec(tmp_path / "own" / "silo_0001.json").source["encoding"]
    assert encoding == read_federation(tmp_path / "out").source["encoding"]
    others = ["--end", "[CLS]", "--tokenizer", by], ["--end", "", "--tokenizer", "bytes"]
    for other, key in zip(others, ("end is", "tokenizer is"), strict=True):
        capsys.readouterr()
        run(*joined, *other, "--silo", 2, "--out", tmp_path / "own", ends=2)
        told = capsys.readouterr().err
        assert all(word in told for word in (key, "the federation has", "--tokenizer")), told
    run(*joined, "--silo", 2, "--out", tmp_path / "own", ends=2)
    told = capsys.readouterr().err
    assert "--tokenizer: not given, and the federation's texts became tokens by a tokenizer.json" in told
    assert "--tokenizer FOLDER" in told


def test_a_large_vocabulary_has_wider_tokens(tmp_path):
    library = pytest.importorskip("tokenizers")
    words = {f"w{n}": n for n in range(40_000)}
    made = library.Tokenizer(library.models.WordLevel(words, unk_token="w0"))
    made.save(str(tmp_path / "tokenizer.json"))
    lines = [{"prompt": "w39999", "completion": "w1"}]
    dataset = find_source("jsonl", [f"tokenizer={tmp_path}", "length=1"])(write(tmp_path, lines), 0)
    assert (dataset.x[:].tolist(), dataset.y.tolist(), dataset.y.dtype) == ([[39_999]], [[1]], np.int32)


LINES = {
    "no JSON": (b'{"text": "a"}\n{"text": \n', "line 2: is not JSON in UTF-8"),
    "no UTF-8": (b'{"text": "\xff\xfe"}\n', "line 1: is not JSON in UTF-8"),
    "deep": (b'{"text": ' + b"[" * 200_000 + b"}\n", "line 1: is not JSON in UTF-8"),
    "a list": (b'["text"]\n', "line 1: is list, not an object; a line is"),
    "a silo as number and text": (
        b'{"text": "ab", "ward": 1}\n{"text": "ab", "ward": "1"}\n',
        'line 2: ward, the silo, is "1", and 1 in a line before; write both alike',
    ),
    "a number": (b'{"text": 5}\n', "line 1: text is int; it must be a text in quotes"),
    "no completion": (b'{"prompt": "a"}\n', "line 1: has prompt; a line is"),
    "both": (
        b'{"text": "a", "prompt": "a", "completion": "b"}\n',
        "has text and prompt and completion; a line is",
    ),
    "nothing": (b'{"words": "a"}\n', "line 1: has no text; a line is"),
    "half a character": (b'{"text": "\\ud800"}\n', "line 1: text has half a character"),
    "nothing to predict": (b'\n{"text": ""}\n', "line 2: has no token to predict"),
    "empty": (b"\n \n", "own.jsonl: has no lines"),
    "no silo": (b'{"text": "ab", "ward": "a"}\n{"text": "ab"}\n', "line 2: ward, the silo, is null"),
    "a silo of nothing": (b'{"text": "ab", "ward": "\\u0000"}\n', "line 1: ward, the silo, is"),
    "a silo of half": (b'{"text": "ab", "ward": "\\udc00"}\n', "line 1: ward has half a character"),
    "a silo of lists": (b'{"text": "ab", "ward": [1]}\n', "line 1: ward, the silo, is [1]"),
}


@pytest.mark.parametrize("fault", LINES)
def test_a_bad_line_ends_the_command_with_one_line(tmp_path, capsys, fault):
    content, said = LINES[fault]
    (path := tmp_path / "own.jsonl").write_bytes(content)
    words = ["--scheme", "iid", "--silos", 1, *(["--option", "silo=ward"] if "silo" in fault else [])]
    partition(path, tmp_path / "out", *words, ends=2)
    error = capsys.readouterr().err
    assert said in error
    assert str(path) in error
    assert error.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["own.jsonl"]


def test_a_site_that_joins_with_a_folder_of_files_keeps_each_text_whole(tmp_path):
    """Cut into silos each file would be one, and its only text in all splits."""
    folder = partition(write(tmp_path), tmp_path / "out", "--scheme", "iid", "--silos", 1)
    (texts := tmp_path / "texts").mkdir()
    for nth in range(6):
        (texts / f"{nth}.txt").write_text(chr(ord("a") + nth) * (60 + nth))
    own = tmp_path / "own"
    words = ["--spec", folder, "--out", own, "--silo", 1, "--test", 0.3, "--seed", 1, "--keep", "id"]
    run("import", "jsonl", "--data", texts, *words)
    with h5py.File(own / "silo_0001.h5") as shard:
        letters = [{*np.unique(shard[f"{split}/x"][:, 0])} for split in ("train", "test")]
        groups = [{*shard[f"{split}/group"][:]} for split in ("train", "test")]
    assert not letters[0] & letters[1]
    assert len(letters[0] | letters[1]) == len(groups[0] | groups[1]) == 6


def test_a_folder_of_each_silo_has_documents_that_are_called_by_their_files(tmp_path, capsys):
    for site in ("bonn", "ulm"):
        (tmp_path / "texts" / site).mkdir(parents=True)
        for nth in range(6):
            (tmp_path / "texts" / site / f"{nth}.txt").write_text(f"{site[0]}{nth}" * 60)
    (tmp_path / "texts" / "ulm" / "more.jsonl").write_text('{"text": "ab"}\n' * 2)
    words = "--scheme", "natural", "--test", 0.3, "--keep", "id"
    folder = partition(tmp_path / "texts", tmp_path / "out", *words)
    assert capsys.readouterr().err == ""
    spec, names = read_federation(folder), {}
    for entry in spec.silos:
        with h5py.File(folder / entry.file) as shard:
            for split in shard.values():
                joined, offsets = split["id"][:].tobytes(), split["id.offsets"][:]
                for x, start, stop in zip(split["x"][:], offsets, offsets[1:], strict=False):
                    site, name = joined[start:stop].decode().split("/")
                    assert site == entry.name
                    assert {*bytes(x[:2].astype(np.uint8)).decode()} in ({site[0], name[0]}, {*"ab"})
                    names.setdefault(site, set()).add(name)
    files = {f"{nth}.txt" for nth in range(6)}
    assert names == {"bonn": files, "ulm": files | {"more.jsonl:1", "more.jsonl:2"}}


def test_an_empty_file_of_a_silo_does_not_vanish(tmp_path, capsys):
    (folder := tmp_path / "texts").mkdir()
    for name, content in (("a", '{"text": "ab"}\n'), ("b", "\n"), ("c", '{"text": "ab"}\n')):
        (folder / f"{name}.jsonl").write_text(content)
    partition(folder, tmp_path / "out", "--scheme", "natural", ends=2)
    assert "b.jsonl: has no lines, and would be a silo; remove it" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_natural_silos_without_a_field_name_the_option(tmp_path, capsys):
    partition(write(tmp_path), tmp_path / "shards", "--scheme", "natural", ends=2)
    said = "--scheme: natural, and own.jsonl does not name the examples' silo; give it: --silo FIELD"
    assert said in capsys.readouterr().err.replace(f"{tmp_path}/", "")
    partition(write(tmp_path), tmp_path / "shards", "--scheme", "natural", "--silo", "ward")


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.sources.jsonl.MOST_LINE", 100)
    path = write(tmp_path, [{"text": "a"}, {"text": "a" * 200}])
    with pytest.raises(InputError, match="line 2: 100 bytes or more"):
        find_source("jsonl")(path, 0)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("length=0", "length=0 given; it must be from 1 to"),
        ("tokenizer=nowhere", "tokenizer=nowhere given, a folder without tokenizer.json"),
        ("end=<end>", "tokenizer=bytes has an end of its own"),
        ("test=nowhere.jsonl", "nowhere.jsonl: cannot be read"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path, option, said):
    with pytest.raises(InputError) as error:
        find_source("jsonl", [option])(write(tmp_path), 0)
    assert said in str(error.value)


def test_a_file_that_is_no_tokenizer_or_lacks_the_end_is_named(tmp_path, tokenizer, capsys):
    folder, _ = tokenizer
    with pytest.raises(InputError, match=r"^--option: end=</s> given; .*tokenizer\.json has no such token"):
        find_source("jsonl", [f"tokenizer={folder}", "end=</s>"])(write(tmp_path), 0)
    words = "--scheme", "iid", "--silos", 1, "--tokenizer", folder, "--end", "</s>"
    partition(write(tmp_path), tmp_path / "out", *words, ends=2)
    assert f"error: --end </s> given; {folder}" in capsys.readouterr().err
    for content in ("{}", "", '{"model": {"type": "WordLevel"}}'):
        (folder / "tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer of the library tokenizers"):
            find_source("jsonl", [f"tokenizer={folder}"])(write(tmp_path), 0)


def test_a_tokenizer_that_cannot_encode_a_text_is_named(tmp_path, tokenizer):
    folder, _ = tokenizer
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"unk_token": "[UNK]"', '"unk_token": "[GONE]"'))
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot encode a text"):
        find_source("jsonl", [f"tokenizer={folder}"])(write(tmp_path), 0)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"needs tokenizers; pip install 'mpifl\[text\]'"):
        find_source("jsonl", [f"tokenizer={tmp_path}"])(write(tmp_path), 0)


@pytest.mark.parametrize("ragged", [False, True])
def test_texts_that_end_alike_are_no_leak_and_whole_texts_are(tmp_path, capsys, ragged):
    more, texts = ["--ragged"] if ragged else [], [f"{n:08}" for n in range(40)]
    words = "--scheme", "iid", "--silos", 1, "--test", 0.3, *more
    same_end = partition(
        write(tmp_path, [{"text": f"{one} bye"} for one in texts]), tmp_path / "ends", *words
    )
    capsys.readouterr()
    run("check", same_end, "--json")
    told = json.loads(capsys.readouterr().out)["findings"]
    assert [one["severity"] for one in told] == ["warning"] * len(told)
    assert any(
        "short ends of longer texts trained on here are held out too, first" in one["what"] for one in told
    )
    whole = partition(write(tmp_path, [{"text": "bye"}] * 40), tmp_path / "whole", *words)
    run("check", whole, "--json", ends=1)
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    assert any(one["severity"] == "fault" and "examples trained on here" in one["what"] for one in told)
