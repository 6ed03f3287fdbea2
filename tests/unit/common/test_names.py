"""What silos are called where people read of them."""

import pytest

from mpifl.common.names import Names


@pytest.mark.parametrize(
    ("names", "called"),
    [
        ([], ["0", "1"]),
        (["silo 0", "silo 1"], ["0", "1"]),
        (["silo_0000.h5", "1"], ["0", "1"]),
        (["cleveland", "hungary"], ["cleveland", "hungary"]),
        (["cleveland"], ["cleveland", "1"]),
        (["silo 0, labels", "silo 1"], ["0 (labels)", "1"]),
        (["silo 1", "silo 0"], ["'silo 1'", "'silo 0'"]),
        (["7", "Long Beach"], ["'7' (0)", "'Long Beach'"]),
        (["a", "a"], ["a (0)", "a (1)"]),
        (["\x1b[31mred\x07", "two\nlines\u202e"], ["'[31mred'", "'two lines'"]),
        (["", "x" * 99], ["0", f"{'x' * 39}…".join("''")]),
        ([None, 5], ["None", "'5' (1)"]),
    ],
    ids=str,
)
def test_a_silo_is_called_by_its_name_if_that_says_more_than_its_number(names, called):
    assert [Names(names)[silo] for silo in (0, 1)] == called
    assert Names(names)["1"] == called[1]
    assert [Names(names)["x\x07"], Names(names)["y" * 99]] == ["x", f"{'y' * 39}…"]
    assert [Names(names)[name] for name in called if not name.isdecimal()] == [
        name for name in called if not name.isdecimal()
    ], "a record names a silo as it is shown"


def test_names_are_worth_telling_if_one_says_more_than_a_number():
    assert Names(["silo 0", "silo 1"]).told == []
    assert Names(["silo 0", "hungary"]).told == ["silo 0", "hungary"]


def test_several_silos_are_listed():
    names = Names(["cleveland", "silo 1"])
    assert [names.listed([0]), names.listed([0, "1"])] == ["silo cleveland", "silos cleveland, 1"]
