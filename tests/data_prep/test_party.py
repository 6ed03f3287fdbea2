"""A party's own table: read by its spec, written in the order that an alignment gives."""

import json
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.schemes.holdout import Shares
from data_prep.site.party import PartyTable
from data_prep.site.site import Site
from mpifl.common.errors import InputError
from mpifl.data.shards.column_shards import open_vertical
from mpifl.data.shards.vertical_spec import VerticalSpec

TAG = "0123456789abcdef" * 2
SPEC = 'label = {kind = "numeric", column = "loss"}\n[features]\n'
SPEC += 'age = { kind = "numeric", missing = "drop" }\nkind = "categorical"\n'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    rows = ["person,age,kind,loss", *(f"p{n},{n},{'ab'[n % 2]},{n / 2}" for n in range(20)), "gone,,a,1"]
    path.write_text("\n".join(rows) + "\n")
    path.with_suffix(".toml").write_text(SPEC)
    return path


def opened(table: Path, **more) -> PartyTable:
    given = {"shares": Shares(0.2, 0.3), "id": "person"} | more
    return PartyTable(table, table.parent / "out", Site(1, "shop"), 5, **given)


def written(party: PartyTable, rows: np.ndarray):
    entry = party.make(rows, 7, TAG, party.learned)
    return entry, VerticalSpec(
        name="x",
        format_version=2,
        features=entry.features.model_copy(update={"shape": (10,)}),
        **party.learned,
        seed=5,
        scheme={},
        source={},
        silos=[entry],
    )


def test_rows_come_in_the_order_given_and_are_held_out_alike(table: Path) -> None:
    party = opened(table)
    assert party.ids == [f"p{n}" for n in range(20)]  # the row that lacks its age is none
    assert party.names == ("age", "kind=a", "kind=b")
    rows = np.random.default_rng(0).permutation(20)[:10]
    entry, spec = written(party, rows)
    party.keep(spec.model_dump_json().encode())
    party.finish()
    party.discard()
    out = table.parent / "out"
    assert sorted(path.name for path in out.iterdir()) == ["federation.json", "silo_0001.h5"]
    splits = open_vertical(
        out, entry, VerticalSpec.model_validate(json.loads((out / "federation.json").read_text()))
    )
    wanted = Shares(0.2, 0.3).split(np.arange(10), 5, 0)
    assert entry.columns == [7, 8, 9]
    assert {split: held.id.tolist() for split, held in splits.items()} == {
        split: sorted(at.tolist()) for split, at in wanted.items()
    }
    for held in splits.values():
        own = rows[held.id]
        assert np.array_equal(held.x, np.stack([own, own % 2 == 0, own % 2 == 1], axis=1).astype(np.float32))
        assert np.array_equal(held.y, (own / 2).astype(np.float32))


def test_whose_the_rows_are_is_told_in_a_file_of_the_partys_own(table: Path) -> None:
    whom = table.parent / "whose.csv"
    party = opened(table, whom=whom)
    _, spec = written(party, np.array([3, 0, 19]))
    party.keep(spec.model_dump_json().encode())
    assert whom.read_text().split() == ["id,whose", "0,p3", "1,p0", "2,p19"]
    party.discard()  # others have stopped
    assert not whom.exists()
    party = opened(table, whom=whom)
    written(party, np.array([3, 0, 19]))
    whom.write_text("another's\n")
    with pytest.raises(InputError, match=r"whose\.csv"):
        party.keep(spec.model_dump_json().encode())
    party.discard()
    assert whom.read_text() == "another's\n"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("out/whose.csv", "is in the folder of the shard; name one that only you can read"),
        ("own.csv", "exists; name another file"),
        ("nowhere/whose.csv", "is in no folder you may write to; name another file"),
    ],
)
def test_a_file_of_ids_is_not_put_where_others_look(table: Path, path: str, why: str) -> None:
    with pytest.raises(InputError, match=f"--ids: .*{path} {why}"):
        opened(table, whom=table.parent / path)


def test_nothing_is_left_of_what_is_not_finished(table: Path) -> None:
    for last in ("make", "keep"):
        party = opened(table)
        _, spec = written(party, np.arange(5))
        if last == "keep":
            party.keep(spec.model_dump_json().encode())
        party.discard()
        assert not (table.parent / "out").exists()
    (table.parent / "out").mkdir()
    (table.parent / "out" / "other.txt").write_text("mine")
    party = opened(table)
    written(party, np.arange(5))
    party.discard()
    assert [path.name for path in (table.parent / "out").iterdir()] == ["other.txt"]


@pytest.mark.parametrize(
    ("spec", "id", "said"),
    [
        (SPEC, None, "--id: not given, and "),
        (
            SPEC,
            "age",
            "--id: 'age' is the id, which no model may learn from; it is neither a feature nor the label",
        ),
        (SPEC, "loss", "--id: 'loss' is the id"),
        (SPEC, "name", "own.csv: column 'name' of the spec is not there; there are person, age"),
        ('id = "age"\n' + SPEC, None, "'age' is the id"),
        (SPEC.replace("age", "weight"), "person", "column 'weight' of the spec is not there"),
    ],
)
def test_a_spec_that_does_not_fit_is_refused(table: Path, spec: str, id: str | None, said: str) -> None:
    table.with_suffix(".toml").write_text(spec)
    with pytest.raises(InputError) as refused:
        opened(table, id=id)
    assert said in str(refused.value)


def test_a_spec_may_name_the_ids_and_lack_the_label(table: Path) -> None:
    table.with_suffix(".toml").write_text(
        'id = "person"\n[features]\nage = { kind = "numeric", missing = "drop" }\n'
    )
    party = opened(table, id=None)
    assert party.learned is None
    entry = party.make(np.arange(5), 0, TAG, {"classes": 2, "targets": None})
    assert entry.labels is None
    party.discard()


def test_a_folder_of_others_is_refused(table: Path) -> None:
    (table.parent / "out").write_text("a file")
    with pytest.raises(InputError, match="is not a folder you may write to"):
        opened(table)


@pytest.mark.parametrize(
    "command", [["partition", "csv", "--scheme", "iid", "--silos", "2"], ["spec", "agreed.json", "--table"]]
)
def test_where_there_must_be_a_label_its_absence_is_refused(table, command, capsys) -> None:
    spec = table.with_suffix(".toml")
    spec.write_text('[features]\nage = { kind = "numeric", missing = "drop" }\n')
    given = (
        [str(spec)] if "--table" in command else ["--data", str(table), "--out", str(table.parent / "out")]
    )
    with pytest.raises(SystemExit):
        main([*command, *given])
    assert f"{spec}: label: not given" in capsys.readouterr().err


def test_rows_that_a_table_lacks_a_value_of_are_told(table: Path) -> None:
    assert opened(table).changes == ["1 of 21 rows were left out because a value is missing: age 1"]
