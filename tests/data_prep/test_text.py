"""Text by speaking role: whose lines are whose,
sequences that follow one another, and the real Shakespeare."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.roles import find_roles
from data_prep.sources.source_registry import find_source
from data_prep.sources.unlabelled_texts import texts_in
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation, read_spec

HEADED = """First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.

First Citizen:
You are all resolved rather to die than to famish?
One line: with a colon in it.
"""

PLAYS = """The Complete Works

      Contents

               THE SONNETS

               A PLAY

               THE SECOND PLAY, IN VERSE

THE SONNETS

From fairest creatures we desire increase,
THE AUTHOR. And what is more
is signed.

A PLAY

Dramatis Personae

  KING, an old man

ACT I. SCENE 1. A heath

Enter KING and FOOL

  KING. Blow, winds, and crack your cheeks!  [To FOOL] Rage, blow!
    You cataracts and hurricanoes, spout
    Till you have drench'd our steeples.              Exit
                                       Thunder
  FOOL. O nuncle!
    Good nuncle, in.

Enter FIRST GENTLEMAN

  FIRST GENTLEMAN. Who's there?
  SECOND GENTLEMAN. One minded like the weather.
  ALL. Ho!
  KING. [Aside] Rumble thy bellyful.
SCENE 2. Elsewhere
Not spoken by anyone.

ACT II.
Not spoken, as is this.

THE SECOND PLAY, IN VERSE

KING.
I have another part here.

[Enter Fool.]

1. QUEEN.
We come unseasonably:
And late.

FOOL.
O.

NURSE.
Ay.

ROMEO.
Now.
*** END OF THIS PROJECT GUTENBERG EBOOK
ROMEO.
The licence.
"""


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def test_headings_say_who_speaks():
    assert find_roles(HEADED) == {
        ("", "First Citizen"): [
            "Before we proceed any further, hear me speak.",
            "You are all resolved rather to die than to famish?",
            "One line: with a colon in it.",
        ],
        ("", "All"): ["Speak, speak."],
    }


def test_plays_of_both_layouts_are_read_without_their_directions():
    roles = find_roles(PLAYS)
    assert roles[("A PLAY", "KING")] == [
        "Blow, winds, and crack your cheeks! Rage, blow!",
        "You cataracts and hurricanoes, spout",
        "Till you have drench'd our steeples.",
        "Rumble thy bellyful.",
    ]
    assert roles[("A PLAY", "FOOL")] == ["O nuncle!", "Good nuncle, in."]
    assert roles[("THE SECOND PLAY, IN VERSE", "KING")] == ["I have another part here."]
    assert roles[("THE SECOND PLAY, IN VERSE", "1. QUEEN")] == ["We come unseasonably:", "And late."]
    assert roles[("THE SECOND PLAY, IN VERSE", "ROMEO")] == ["Now."]
    assert ("A PLAY", "ACT II") not in roles
    assert {play for play, _ in roles} == {"A PLAY", "THE SECOND PLAY, IN VERSE"}  # a poem is none
    assert not any("Not spoken" in line for lines in roles.values() for line in lines)


def play(**lines):
    """Write speeches of one line each, in turns."""
    speeches = []
    for at in range(max(map(len, lines.values()))):
        speeches += [f"{role}:\n{said[at]}\n" for role, said in lines.items() if at < len(said)]
    return "\n".join(speeches)


def lines(n, seed, width=30):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abcdefg h"), width - 2)).strip() + "." for _ in range(n)]


SAID = {"ANNA": lines(20, 1), "BEN": lines(11, 2), "CLEO": lines(1, 3), "DORA": ["a.", "b."]}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text(play(**SAID))
    return path


def decode(dataset, numbers):
    return "".join(dataset.class_names[number] for number in numbers)


@pytest.mark.parametrize("length", [80, 7])
def test_the_sequences_of_a_role_are_its_text(text, length):
    dataset = find_source("text", [f"length={length}"])(text, 0)
    assert (dataset.x.dtype, dataset.y.dtype) == (np.uint8, np.int64)
    assert dataset.x.shape == dataset.y.shape
    assert dataset.x.shape[1:] == (length,)
    assert dataset.classes == len(dataset.class_names)
    for silo, name in dataset.silo_names.items():
        for held in (False, True):
            mine = (dataset.silo == silo) & (dataset.held == held)
            said = SAID[name]
            cut = -(-len(said) // 5)
            whole = "".join(f"{line}\n" for line in (said[-cut:] if held else said[:-cut]))
            read = decode(dataset, dataset.x[mine].ravel())
            assert whole.startswith(read)
            assert decode(dataset, dataset.y[mine].ravel()) == whole[1 : len(read) + 1]
            assert len(whole) - len(read) <= length


def test_roles_with_few_lines_are_dropped_and_so_are_those_without_a_sequence(text):
    assert set(find_source("text", ["length=7"])(text, 0).silo_names.values()) == {"ANNA", "BEN"}
    assert set(find_source("text", ["length=7", "min_lines=12"])(text, 0).silo_names.values()) == {"ANNA"}
    few = find_source("text", ["length=2"])(text, 0)
    assert set(few.silo_names.values()) == {"ANNA", "BEN", "DORA"}


def test_the_last_fifth_of_a_role_becomes_its_test_split(tmp_path, text):
    assert (
        command(
            "partition",
            "text",
            "--data",
            text,
            "--out",
            tmp_path / "out",
            "--scheme",
            "natural",
            "--option",
            "length=20",
        )
        == 0
    )
    spec = read_federation(tmp_path / "out")
    dataset = find_source("text", ["length=20"])(text, 0)
    assert [entry.name for entry in spec.silos] == ["ANNA", "BEN"]
    for silo, entry in enumerate(spec.silos):
        shard = open_shard(tmp_path / "out", entry, spec)
        for split, held in (("train", False), ("test", True)):
            mine = (dataset.silo == silo) & (dataset.held == held)
            assert np.array_equal(np.sort(shard[split].x, axis=0), np.sort(dataset.x[mine], axis=0))
            assert len(shard[split].y) == mine.sum() > 0


def test_a_text_without_roles_is_one_and_its_last_fifth_the_servers(tmp_path):
    said = lines(50, 4)
    (tmp_path / "book.txt").write_text("\n".join(said))
    dataset = find_source("text", ["roles=false"])(tmp_path / "book.txt", 0)
    assert dataset.silo is None
    assert dataset.held is None
    assert "".join(f"{line}\n" for line in said[:40]).startswith(decode(dataset, dataset.x.ravel()))
    assert "".join(f"{line}\n" for line in said[40:]).startswith(decode(dataset, dataset.test[0].ravel()))


def test_many_characters_take_more_than_a_byte(tmp_path):
    letters = [chr(0x4E00 + number) for number in range(300)]
    (tmp_path / "book.txt").write_text("\n".join("".join(letters) for _ in range(10)), encoding="utf-8")
    dataset = find_source("text", ["roles=false"])(tmp_path / "book.txt", 0)
    assert (dataset.x.dtype, dataset.classes) == (np.int32, 301)
    assert decode(dataset, dataset.x[0]) == "".join(letters[:80])


def test_a_zip_archive_and_a_byte_order_mark_make_no_difference(tmp_path, text):
    with zipfile.ZipFile(tmp_path / "play.zip", "w") as file:
        file.writestr("inside.txt", b"\xef\xbb\xbf" + text.read_bytes().replace(b"\n", b"\r\n"))
    plain, packed = (find_source("text")(path, 0) for path in (text, tmp_path / "play.zip"))
    assert np.array_equal(plain.x, packed.x)
    assert plain.class_names == packed.class_names


def zipped(*names, cut=0):
    def write(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name in names:
                file.writestr(name, play(**SAID))
        content = bytearray(path.read_bytes())
        if cut:
            content[60 : 60 + cut] = b"\xff" * cut
        path.write_bytes(content)

    return write


FAULTS = {
    "no roles": (lambda path: path.write_text("\n".join(lines(30, 1))), [], "no speaking roles"),
    "a NUL": (
        lambda path: path.write_bytes(b"a\nb\0c"),
        ["roles=false"],
        "in.txt: line 2: has a NUL character",
    ),
    "UTF-16": (lambda path: path.write_text("abc", "utf-16"), [], "in.txt: line 1: has a NUL character"),
    "not UTF-8": (lambda path: path.write_bytes(b"caf\xe9 " * 100), [], "is not a UTF-8 text (byte 3)"),
    "too short": (
        lambda path: path.write_text(play(**SAID)),
        ["length=8000"],
        "no text has a sequence of 8000",
    ),
    "empty": (lambda path: path.write_text(""), [], "no speaking roles"),
    "empty, without roles": (lambda path: path.write_text(""), ["roles=false"], "no text has a sequence"),
    "length 0": (lambda path: path.write_text(""), ["length=0"], "use at least 1 and 2"),
    "min_lines 1": (lambda path: path.write_text(""), ["min_lines=1"], "use at least 1 and 2"),
    "two texts": (zipped("a.txt", "b.txt"), [], "holds 2 .txt files"),
    "damaged zip": (zipped("a.txt", cut=40), [], "damaged zip archive"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_text_is_named(tmp_path, fault):
    write, options, said = FAULTS[fault]
    write(tmp_path / "in.txt")
    with pytest.raises(InputError, match=r".") as error:
        find_source("text", options)(tmp_path / "in.txt", 0)
    assert said in str(error.value)


def test_a_folder_without_the_text_is_named(tmp_path):
    with pytest.raises(InputError, match=r"has no 100-0\.zip or 100-0\.txt"):
        find_source("shakespeare")(tmp_path, 0)


DATA = Path(os.environ.get("MPIFL_DATA", "no-data-folder"))
needs = {
    name: pytest.mark.skipif(
        not (DATA / name).is_dir(), reason=f"set MPIFL_DATA to a folder that has {name}/"
    )
    for name in ("shakespeare", "tinyshakespeare")
}


@needs["tinyshakespeare"]
def test_the_real_tinyshakespeare():
    text = (DATA / "tinyshakespeare" / "input.txt").read_text()
    roles = find_roles(text)
    assert len(roles) == 299
    assert sum(len(lines) >= 2 for lines in roles.values()) == 268
    # every character but those of the headings and the empty lines after speeches
    assert sum(len(line) + 1 for lines in roles.values() for line in lines) == 1_027_848
    dataset = find_source("tinyshakespeare")(None, 0)
    assert (dataset.classes, "".join(dataset.class_names)) == (65, "".join(sorted(set(text))))
    assert dataset.x.shape == dataset.y.shape == (12_571, 80)
    assert len(dataset.silo_names) == 244


@needs["shakespeare"]
def test_the_real_shakespeare_is_nearly_the_papers():
    """McMahan et al. (2017) count 1146 roles, 3,564,579 characters to train on and 870,014 to test on."""
    with zipfile.ZipFile(DATA / "shakespeare" / "100-0.zip") as archive:
        roles = find_roles(archive.read("100-0.txt").decode("utf-8-sig"))
    assert len({play for play, _ in roles}) == 38
    two = {key: lines for key, lines in roles.items() if len(lines) >= 2}
    held = {key: -(-len(lines) // 5) for key, lines in two.items()}
    train = sum(len(line) + 1 for key, lines in two.items() for line in lines[: -held[key]])
    test = sum(len(line) + 1 for key, lines in two.items() for line in lines[-held[key] :])
    assert train == pytest.approx(3_564_579, rel=0.02)
    assert test == pytest.approx(870_014, rel=0.03)
    dataset = find_source("shakespeare")(None, 0)
    assert len(dataset.silo_names) == pytest.approx(1146, rel=0.03)
    assert dataset.x.shape[1] == 80
    assert dataset.classes < 100
    assert 0.18 < dataset.held.mean() < 0.21
    assert dataset.silo_names[int(dataset.silo[np.argmax(np.bincount(dataset.silo)[dataset.silo])])].endswith(
        "/ HAMLET"
    )


def imported(folder, everything, part, length):
    """Import a site's text by the spec of a federation with more characters; return its spec and splits."""
    (folder / "all.txt").write_text(everything)
    (folder / "part.txt").write_text(part)
    options = ["--option", "roles=false", "--option", f"length={length}"]
    cut = ["partition", "text", "--data", folder / "all.txt", "--out", folder / "all"]
    assert command(*cut, "--scheme", "iid", "--silos", 2, *options) == 0
    brought = ["import", "text", "--data", folder / "part.txt", "--out", folder / "part", *options]
    assert command(*brought, "--spec", folder / "all", "--silo", 1) == 0
    spec = read_spec(folder / "part" / "silo_0001.json")
    return spec, open_shard(folder / "part", spec.silos[0], spec)


def test_a_sites_text_has_the_numbers_of_the_federations_characters(tmp_path):
    everything, part = (
        "\n".join(["\n".join(word * 9 for word in words)] * 5) for words in ("abcdefgh", "dfgh")
    )
    spec, splits = imported(tmp_path, everything, part, length=10)
    own = find_source("text", ["roles=false", "length=10"])(tmp_path / "part.txt", 0)
    for split, (x, y) in {"train": (own.x, own.y), "test": own.test}.items():
        held = splits[split]
        assert held.x.dtype == np.uint8
        assert "".join(spec.class_names[n] for n in held.x.ravel()) == decode(own, x.ravel())
        assert "".join(spec.class_names[n] for n in held.y.ravel()) == decode(own, y.ravel())


def test_a_text_of_few_characters_fits_a_federation_of_many(tmp_path):
    everything, part = ("\n".join(map(chr, range(0x4E00 + a, 0x4E00 + b))) for a, b in ((0, 300), (260, 290)))
    spec, splits = imported(tmp_path, everything, part, length=2)
    train = splits["train"]
    assert (train.x.dtype, spec.class_names[train.x[0, 0]]) == (np.int32, chr(0x4E00 + 260))


@pytest.fixture
def wards(tmp_path):
    (folder := tmp_path / "wards").mkdir()
    for at, name in enumerate(("south", "north", "east")):
        (folder / f"{name}.txt").write_text("\n".join(lines(20 + at, at)) + "\n")
    return folder


def test_each_file_of_a_folder_is_the_text_of_a_silo(wards):
    dataset = find_source("text", ["length=16"])(wards, 0)
    assert dataset.silo_names == {0: "east", 1: "north", 2: "south"}
    for silo, name in dataset.silo_names.items():
        said = (wards / f"{name}.txt").read_text()
        mine = dataset.silo == silo
        train, held = (
            decode(dataset, dataset.x[mine & (dataset.held == part)].ravel()) for part in (False, True)
        )
        assert said.startswith(train)
        assert held in said[len(train) :]
    assert set(dataset.files) == {"east.txt", "north.txt", "south.txt"}


def test_each_file_of_a_folder_is_the_tokens_of_a_silo(wards):
    (wards / "west.jsonl").write_text('{"text": "two"}\n{"prompt": "a", "completion": "bc"}\n')
    dataset = find_source("jsonl", ["length=16"])(wards, 0)
    assert dataset.silo_names == {0: "east", 1: "north", 2: "south", 3: "west"}
    x = np.asarray(dataset.x)
    said = bytes(x[dataset.silo == 1].ravel()[: len((wards / "north.txt").read_bytes())].astype(np.uint8))
    assert said == (wards / "north.txt").read_bytes()
    told = dataset.done["notes"]["texts"]
    assert told.startswith("3 files of .txt have several lines, and are a text each: 5 texts in all; ")
    (wards / "south").mkdir()
    (wards / "south.txt").rename(wards / "south" / "a.txt")
    (wards / "south" / "b.txt").write_text("one\ntwo\nthree\n")
    assert not find_source("jsonl", ["length=16"])(wards, 0).done, "a silo's files are its texts"
    assert x[dataset.silo == 3][:, :4].tolist() == [[*b"two", 256], [*b"abc", 256]]


@pytest.mark.parametrize("source", ["text", "jsonl"])
def test_a_folder_of_files_in_a_folder_is_one_silo(wards, source):
    words = ["length=16"]
    whole = find_source(source, words)(wards, 0)
    said = (wards / "north.txt").read_text().splitlines(keepends=True)
    (wards / "north.txt").unlink()
    (wards / "north").mkdir()
    for at, part in enumerate((said[:9], said[9:])):
        (wards / "north" / f"note{at}.txt").write_text("".join(part))
    parted = find_source(source, words)(wards, 0)
    assert parted.silo_names == whole.silo_names == {0: "east", 1: "north", 2: "south"}
    assert len(parted.files) == len(whole.files) + 1
    if source == "text":
        assert np.array_equal(parted.x, whole.x)
        return
    of = np.asarray(parted.groups.of)[parted.silo == 1]
    assert len(np.unique(of)) == 2, "a file is a text, whose sequences stay together"
    assert len(np.unique(parted.given.rows[parted.silo == 1])) == 2
    names = [name for name, _, _ in texts_in(wards)]
    assert names == ["east.txt", "north/note0.txt", "north/note1.txt", "south.txt"], "as a folder lists them"
    (wards / "west.jsonl").write_text('{"text": "two"}\n{"prompt": "a", "completion": "bc"}\n')
    assert [name for name, _, _ in texts_in(wards)][4:] == ["west.jsonl:1", "west.jsonl:2"]
    (wards / "north" / "deeper").mkdir()
    with pytest.raises(InputError, match=r"north/deeper: in a folder with a file for each silo"):
        find_source(source, words)(wards, 0)


@pytest.mark.parametrize(
    ("source", "name", "content", "line"),
    [
        (
            "text",
            "a.md",
            "x",
            r"a.md: in a folder with a file for each silo, which end in .txt, or with folders of them; move",
        ),
        (
            "text",
            "a.txt",
            "one line",
            r"a.txt: has no sequence of 16 characters before the last fifth of its",
        ),
        ("text", "a.txt", "\0", r"a.txt: line 1: has a NUL character"),
        (
            "jsonl",
            "north.jsonl",
            "{}",
            r"north.txt: north.jsonl is there, too; give each silo's file another name",
        ),
        ("jsonl", "a.txt", "", r"a.txt: line 1: has no token to predict"),
    ],
)
def test_a_folder_of_texts_that_cannot_be_is_one_line(wards, source, name, content, line):
    (wards / name).write_text(content)
    with pytest.raises(InputError, match=line):
        find_source(source, ["length=16"])(wards, 0)
