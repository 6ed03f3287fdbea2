"""Private set intersection between real ranks: five parties and rank 0, many alignments in one launch."""

from __future__ import annotations

import json
import shutil
import subprocess
import unicodedata
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from conftest import launcher, python, rank_environment, ranks, warm_executable
from unit.builders import write_vertical_folder

from data_prep.check.vertical_check import check_columns
from mpifl.data.shards import open_vertical, read_vertical

pytest.importorskip("nacl")
PARTIES = ["bank", "shop", "clinic", "post", "club"]
HOLDER = 2
CASES = 8


def spelled(number: int, rng: np.random.Generator) -> str:
    """An id as one party or another may write it."""
    name = unicodedata.normalize(("NFC", "NFD")[rng.integers(2)], f"Zoë-{number:05d}-é")
    return " " * int(rng.integers(3)) + name + " " * int(rng.integers(3))


def table(path: Path, numbers: list[int], rng: np.random.Generator, party: int) -> None:
    """Rows whose features say whose they are: column j of party p is 10 p + j + 1000 times the number."""
    columns = [f"c{j}" for j in range(1 + party % 2)]
    labelled = party == HOLDER
    lines = [",".join(["person", *columns, *["late"] * labelled])]
    for number in numbers:
        values = [str(1000 * number + 10 * party + j) for j in range(len(columns))]
        lines.append(",".join([spelled(number, rng), *values, *[str(number % 3)] * labelled]))
    path.write_text("\n".join(lines) + "\n")
    spec = ['label = "late"', "classes = ['0', '1', '2']"] if labelled else []
    spec += ["[features]", *(f'{column} = "numeric"' for column in columns)]
    path.with_suffix(".toml").write_text("\n".join(spec) + "\n")


def case(folder: Path, sets: list[list[int]], seed: int = 0, more: str = "", **what) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for party, numbers in enumerate(sets):
        table(folder / f"{PARTIES[party]}.csv", numbers, rng, party)
    terms = f'name = "credit"\nparties = {PARTIES}\nlabels = "{PARTIES[HOLDER]}"\nseed = {seed}\n{more}'
    (folder / "terms.toml").write_text(terms)
    (folder / "other.toml").write_text(terms + "# another\n")
    for key in ("key", "other_key"):
        (folder / key).write_text(f"{key} of many bytes\n")
        (folder / key).chmod(0o600)
    (folder / "case.json").write_text(json.dumps(what))
    return folder


def drawn(seed: int) -> list[list[int]]:
    """Sets of 1 to 60 numbers, in any order, with at least one in common."""
    rng = np.random.default_rng(seed)
    universe = int(rng.integers(5, 90))
    both = rng.choice(universe, int(rng.integers(1, min(universe, 30))), replace=False)
    sets = []
    for _ in PARTIES:
        own = rng.choice(universe, int(rng.integers(0, universe)), replace=False)
        sets.append(rng.permutation(np.union1d(both, own)).tolist())
    return sets


USUAL = [list(range(k, 40 - k)) for k in range(len(PARTIES))]


def spoilt(folder: Path, party: int, change) -> None:
    path = folder / f"{PARTIES[party]}.csv"
    path.write_text(change(path.read_text()))


REFUSED = {
    "empty": (1, "bank.csv: person: 2 of 40 ids are empty"),
    "double": (5, "club.csv: person: 1 of 33 rows have an id that an earlier row has"),
    "nothing": (0, "no id is common to bank and shop and clinic and post and club"),
    "zero": (3, "rank 2 has sent a point of small order"),
    "short": (3, "rank 2 has sent 223 bytes where 224 were due"),
    "twice": (0, "a masked id of party 'bank' is zero, or there twice"),
    "displaced": (2, "rank 0 has sent no order of common rows"),
    "full": (5, "No space left on device"),
    "fewer": (0, "party 'club' (rank 5) has made an entry with another 'examples'"),
    "terms": (0, "party 'post' (rank 4) has another file of terms (sha256 "),
    "few": (0, "names 2 parties, so 3 ranks are needed, rank 0 to compare; 6 were started"),
    "no-terms": (2, "absent.toml: cannot be read (No such file or directory)"),
    "unlabelled": (0, "party 'clinic' (rank 3) has no labels, which it holds by "),
    "two-holders": (0, "party 'bank' (rank 1) has labels, and by "),
    "mixed": (0, "--plain: given by party 'shop' (rank 2) alone"),
    "keys": (0, "--key: party 'club' (rank 5) has another key than party 'bank' (rank 1)"),
    "readable": (4, "key can be read by others (mode 0644); chmod 600 "),
    "there": (2, "silo_0001.h5 exists; remove it or name another folder"),
    "finished": (0, "federation.json exists; remove it or name another folder"),
    "value": (2, "shop.csv: line 3: c1 is 'x', not a finite number"),
}
"""Who says what, of each alignment that comes to nothing; others say no more than that it stopped."""


def refusals(folder: Path) -> None:
    """Lay out the alignments that come to nothing."""
    usual = {
        name: case(folder / f"no-{name}", USUAL) for name in ("empty", "double", "there", "finished", "value")
    }
    rows = (usual["empty"] / "bank.csv").read_text().splitlines()
    rows[3], rows[7] = "," + rows[3].split(",", 1)[1], " ," + rows[7].split(",", 1)[1]
    (usual["empty"] / "bank.csv").write_text("\n".join(rows) + "\n")
    spoilt(usual["double"], 4, lambda text: text + text.splitlines()[5].strip() + "\n")
    spoilt(
        usual["value"],
        1,
        lambda text: "\n".join(
            [
                *text.splitlines()[:2],
                text.splitlines()[2].rpartition(",")[0] + ",x",
                *text.splitlines()[3:],
                "",
            ]
        ),
    )
    for name, file in (("there", "silo_0001.h5"), ("finished", "federation.json")):
        (usual[name] / "out").mkdir()
        (usual[name] / "out" / file).write_bytes(b"mine")
    case(folder / "no-nothing", [[party, 50 + party, 99] for party in range(4)] + [[7]])
    for rank, harm in ((2, "zero"), (2, "short"), (2, "twice"), (0, "displaced"), (5, "full")):
        case(folder / f"no-{harm}", USUAL, harm={rank: harm})
    case(folder / "no-fewer", USUAL, harm={5: "fewer rows"})
    case(folder / "no-terms", USUAL, terms={4: "other.toml"})
    case(folder / "no-no-terms", USUAL, terms={2: "absent.toml"})
    few = case(folder / "no-few", USUAL)
    (few / "terms.toml").write_text('name = "credit"\nparties = ["bank", "shop"]\nlabels = "shop"\n')
    unlabelled = case(folder / "no-unlabelled", USUAL)
    (unlabelled / "clinic.toml").write_text('[features]\nc0 = "numeric"\n')
    two = case(folder / "no-two-holders", USUAL)
    (two / "bank.toml").write_text('label = "c0"\nthreshold = 0\n[features]\nc1 = "numeric"\n')
    spoilt(
        two,
        0,
        lambda text: "\n".join(f"{line},{n if n else 'c1'}" for n, line in enumerate(text.splitlines())),
    )
    case(folder / "no-keys", USUAL, plain=True, keys={5: "other_key"})
    readable = case(folder / "no-readable", USUAL, plain=True, keys={4: "other_key"})
    (readable / "other_key").chmod(0o644)
    case(folder / "no-mixed", USUAL, plain=["2"])


CREDIT = """\
name = "credit"
shards = "aligned"
rounds = 5
model = {name = "mlp", hidden = [4]}
algorithm = {name = "splitnn"}
split = {cut_width = 3, top = {name = "mlp", hidden = [4]}}
local = {lr = 0.1, batch_size = 4}
checkpoint = {every = 1, keep = 2}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All alignments, done by six ranks."""
    folder = tmp_path_factory.mktemp("align")
    for seed in range(CASES):
        more = f"valid = {0.1 * (seed % 3)}\ntest = 0.25\n"
        names = "columns = true\n" if seed == 1 else ""
        apart = {"out": {str(rank): f"out{rank}" for rank in range(6)}} if seed == 2 else {}
        case(folder / f"yes-{seed:02d}", drawn(seed), seed, more + names, plain=seed % 4 == 3, **apart)
    refusals(folder)
    done = ranks(6, Path(__file__).parent / "aligning.py", folder, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return folder


def said(folder: Path) -> list[dict]:
    return [json.loads((folder / f"said_{rank}.json").read_text()) for rank in range(6)]


def shards(folder: Path, outs: list[Path]):
    spec = read_vertical(outs[0])
    return spec, [open_vertical(out, entry, spec) for out, entry in zip(outs, spec.silos, strict=True)]


@pytest.mark.parametrize("seed", range(CASES))
def test_each_shard_has_the_rows_of_the_intersection_in_one_order(world: Path, seed: int) -> None:
    folder, sets = world / f"yes-{seed:02d}", drawn(seed)
    common = set(sets[0]).intersection(*sets[1:])
    assert [one.get("rows") for one in said(folder)] == [len(common)] * 6
    outs = [folder / f"out{rank}" for rank in range(1, 6)] if seed == 2 else [folder / "out"] * 5
    spec, opened = shards(folder, outs)
    assert [entry.name for entry in spec.silos] == PARTIES
    assert len({entry.alignment for entry in spec.silos}) == 1
    assert {split: len(held.id) for split, held in opened[0].items()} == spec.silos[0].examples
    people, places = [], []
    for split in opened[0]:
        first = opened[0][split]
        numbers = (first.x[:, 0] // 1000).astype(int)
        people += numbers.tolist()
        places += first.id.tolist()
        for party, held in enumerate(splits[split] for splits in opened):
            assert np.array_equal(held.id, first.id)
            wanted = [1000 * numbers + 10 * party + j for j in range(1 + party % 2)]
            assert np.array_equal(held.x, np.stack(wanted, axis=1).astype(np.float32))
            assert (held.y is None) == (party != HOLDER)
        assert np.array_equal(opened[HOLDER][split].y, numbers % 3)
    assert sorted(people) == sorted(common)
    assert sorted(places) == list(range(len(common)))
    if seed != 2:
        assert not check_columns(folder / "out")[1]
        assert {path.name for path in (folder / "out").iterdir()} == {
            "federation.json", *(f"silo_{party:04d}.h5" for party in range(5))
        }  # fmt: skip


def test_the_order_of_rows_is_nobodys_and_none_is_sent_in_its_tables_order(world: Path) -> None:
    orders, sent = [], []
    for seed in range(CASES):
        numbers = [set(one) for one in drawn(seed)]
        common = sorted(numbers[0].intersection(*numbers[1:]))
        if len(common) < 8 or seed == 2:
            continue
        _, opened = shards(world, [world / f"yes-{seed:02d}" / "out"] * 5)
        at = np.concatenate([held.id for held in opened[0].values()])
        people = np.concatenate([held.x[:, 0] // 1000 for held in opened[0].values()])[
            np.argsort(at)
        ].tolist()
        first = [number for number in drawn(seed)[0] if number in common]
        orders.append(people not in (common, common[::-1], first, first[::-1]))
        with np.load(world / f"yes-{seed:02d}" / "places.npz") as found:
            places = [found[name] for name in sorted(found)]
        for own, at in zip(drawn(seed), places, strict=True):
            as_sent = [people[place] for place in at if place >= 0]
            assert sorted(as_sent) == common
            sent.append(as_sent != [number for number in own if number in common])
    assert len(orders) > 3
    assert all(orders)
    assert all(sent)


def test_no_id_is_in_a_file_or_at_rank_0(world: Path) -> None:
    names = [f"-{number:05d}-".encode() for number in range(100)]
    # no shorter: three given letters stood by chance among the 50 kB of masked ids in one run of 340
    names += [
        start.encode() for start in ("Zoe-000", normalize("NFC", "Zoë-000"), normalize("NFD", "Zoë-000"))
    ]
    written = [path for path in world.glob("yes-*/out*/*") if path.is_file()]
    assert len(written) > 5 * CASES
    for path in [*written, *world.glob("yes-*/seen.bin")]:
        content = path.read_bytes()
        assert content
        assert not [name for name in names if name in content]


def test_rank_0_sees_another_string_of_an_id_in_each_alignment(world: Path) -> None:
    seen = []
    for seed in range(CASES):
        content = (world / f"yes-{seed:02d}" / "masked.bin").read_bytes()
        assert len(content) == 32 * sum(map(len, drawn(seed)))
        seen.append({content[at : at + 32] for at in range(0, len(content), 32)})
        assert len(seen[-1]) == len(set().union(*drawn(seed)))
    assert len(set().union(*seen)) == sum(map(len, seen))


def test_names_of_columns_are_told_only_if_that_is_agreed(world: Path) -> None:
    assert read_vertical(world / "yes-00" / "out").feature_names is None
    names = read_vertical(world / "yes-01" / "out").feature_names
    assert names == ["bank.c0", "shop.c0", "shop.c1", "clinic.c0", "post.c0", "post.c1", "club.c0"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_comes_to_nothing_says_why_and_leaves_nothing(world: Path, name: str) -> None:
    folder, (who, words) = world / f"no-{name}", REFUSED[name]
    told = said(folder)
    assert all(one["error"] for one in told)
    assert words in told[who]["error"]
    assert "\n" not in told[who]["error"]
    assert {rank for rank, one in enumerate(told) if not one.get("stopped")} == {0, who}, "others say nothing"
    if who:
        assert "rank" in told[0]["error"]
        assert words not in told[0]["error"]
    left = sorted(path.name for path in folder.glob("out/*"))
    assert left == {"there": ["silo_0001.h5"], "finished": ["federation.json"]}.get(name, [])
    assert (folder / "out").exists() == (name in ("there", "finished"))


def test_the_command_as_each_party_types_its_own(tmp_path: Path) -> None:
    """A launcher's colon syntax: rank 0 has no table, and each party its own options and folder."""
    folder = case(tmp_path / "case", USUAL[:2])
    (folder / "terms.toml").write_text('name = "credit"\nparties = ["bank", "shop"]\nlabels = "shop"\n')
    (folder / "shop.toml").write_text(
        'id = "person"\nlabel = "c1"\nthreshold = 20000\n[features]\nc0 = "numeric"\n'
    )
    command = [*python(), "-m", "mpifl", "align", str(folder / "terms.toml"), "--out"]
    server = [*launcher(), "-n", "1", *command, "at-server"]
    bank = ["-n", "1", *command, "at-bank", "--table", str(folder / "bank.csv"), "--id", "person"]
    bank += ["--ids", "whose.csv"]
    shop = ["-n", "1", *command, "at-shop", "--table", str(folder / "shop.csv")]
    done = finished([*server, ":", *bank, ":", *shop], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "at-server: 38 ids in common (bank has 40, shop has 38): 38 train\n"
    found = {path.name: {file.name for file in path.iterdir()} for path in tmp_path.glob("at-*")}
    assert found == {
        "at-server": {"federation.json"},
        "at-bank": {"federation.json", "silo_0000.h5"},
        "at-shop": {"federation.json", "silo_0001.h5"},
    }
    assert len({(tmp_path / name / "federation.json").read_bytes() for name in found}) == 1
    spec, (mine, theirs) = shards(folder, [tmp_path / "at-bank", tmp_path / "at-shop"])
    assert spec.holder == 1
    assert np.array_equal(mine["train"].x[:, 0] + 10, theirs["train"].x[:, 0])
    assert np.array_equal(theirs["train"].y, theirs["train"].x[:, 0] + 1 > 20000)
    whose = (tmp_path / "whose.csv").read_text().splitlines()
    lines = [line.split(",") for line in (folder / "bank.csv").read_text().splitlines()[1:]]
    own = {normalize("NFC", id).strip(): float(c0) for id, c0, *_ in lines}
    assert whose[0] == "id,whose"
    assert len(whose) == 39
    found = [own[normalize("NFC", line.split(",")[1]).strip()] for line in whose[1:]]
    assert found == mine["train"].x[:, 0].tolist()
    assert [int(line.split(",")[0]) for line in whose[1:]] == mine["train"].id.tolist() == [*range(38)]
    assert (tmp_path / "whose.csv").stat().st_mode & 0o777 == 0o600


def test_the_command_starts_its_own_ranks_and_a_party_alone_says_what_is_wrong(tmp_path: Path) -> None:
    folder = case(tmp_path / "case", USUAL[:2])
    (folder / "terms.toml").write_text('name = "credit"\nparties = ["bank", "shop"]\nlabels = "shop"\n')
    tables = [word for name in ("bank", "shop") for word in ("--table", str(folder / f"{name}.csv"))]
    command = [*python(), "-m", "mpifl", "align", str(folder / "terms.toml"), *tables, "--out", "out"]
    (folder / "shop.toml").write_text('label = "c1"\nthreshold = 9\n[features]\nc0 = "numeric"\n')
    text = (folder / "shop.csv").read_text().splitlines()
    (folder / "shop.csv").write_text("\n".join([*text, f"{text[4].split(',')[0]},1,secret", ""]))
    done = finished([*command, "--id", "person"], tmp_path)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sorted(lines) == [
        f"error: {folder / 'shop.csv'}: line 40: c1 is 'secret', not a finite number; correct it, "
        "or list it in 'missing' of the spec",
        "error: party 'shop' (rank 2) has stopped, and says why; nothing is written",
    ]
    assert not (tmp_path / "out").exists()


def test_parties_train_in_their_own_folders_and_each_keeps_a_few_checkpoints(tmp_path: Path) -> None:
    write_vertical_folder(tmp_path / "shards", {"train": 12, "test": 6}, (3, 2))
    for silo, party in enumerate(("bank", "shop")):
        (tmp_path / party / "aligned").mkdir(parents=True)
        for name in ("federation.json", f"silo_{silo:04d}.h5"):
            shutil.copy(tmp_path / "shards" / name, tmp_path / party / "aligned" / name)
    (tmp_path / "bank" / "credit.toml").write_text(CREDIT)
    train = [*python(), "-m", "mpifl", "train", "credit.toml", "--out", "run"]
    bank, shop = (["-n", "1", "--wdir", str(tmp_path / party), *train] for party in ("bank", "shop"))
    done = finished([*launcher(), *bank, ":", *shop], tmp_path)
    assert done.returncode == 0, done.stderr
    found = {party: sorted((tmp_path / party).glob("run/checkpoints/*")) for party in ("bank", "shop")}
    assert [folder.name for folder in found["bank"]] == ["round_000004", "round_000005"]
    # the shop does not know that the last one counts, so it has the one before those two as well
    assert [folder.name for folder in found["shop"]] == ["round_000003", "round_000004", "round_000005"]
    assert not list((tmp_path / "bank").glob("run/checkpoints/*/silo_0001*"))


def finished(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    environment = rank_environment(WARM_PYTHON=warm_executable())
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, env=environment)
