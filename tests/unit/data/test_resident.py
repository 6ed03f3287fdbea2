"""Arrays stay on a device while they fit; those that take turns do not drive each other out."""

import gc

import numpy as np
import torch
from unit.builders import CPU

from mpifl.data.batches.resident import Resident


def arrays(count):
    return [np.full(10, number, np.float32) for number in range(count)]


def gone_through(resident, *given):
    """Use arrays in turn; say which of them are kept."""
    for array in given:
        resident.use(array, torch.from_numpy(array))
    return [
        resident.of(array, column) is not column for array in given for column in [torch.from_numpy(array)]
    ]


def test_arrays_that_fit_stay_and_hold_the_same():
    given = arrays(2)
    resident = Resident(CPU, 80)
    assert gone_through(resident, *given) == [True, True]
    assert [resident.of(one, None).tolist() for one in given] == [one.tolist() for one in given]


def test_of_arrays_that_take_turns_and_do_not_fit_together_some_stay():
    given, resident = arrays(3), Resident(CPU, 80)
    for _ in range(3):
        assert gone_through(resident, *given) == [True, True, False]


def test_what_was_not_used_for_longer_makes_room():
    old, other, new = arrays(3)
    resident = Resident(CPU, 80)
    gone_through(resident, old, other, new)
    assert gone_through(resident, other, new) == [True, True]
    assert gone_through(resident, old) == [False]


def test_an_array_larger_than_the_limit_drives_nothing_out():
    small, large, resident = np.zeros(10, np.float32), np.zeros(30, np.float32), Resident(CPU, 80)
    gone_through(resident, small)
    for _ in range(2):
        assert gone_through(resident, large, small) == [False, True]


def test_an_array_that_is_gone_leaves_its_room():
    one, other = arrays(2)
    resident = Resident(CPU, 40)
    gone_through(resident, one)
    del one
    gc.collect()
    assert gone_through(resident, other) == [True]
