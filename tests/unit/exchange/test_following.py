"""A rank that cannot do what another relays: one line, and the traceback for whoever looks for a mistake."""

from types import SimpleNamespace

import pytest

from mpifl.common import Misled
from mpifl.common.machine import DEBUGGING
from mpifl.exchange.worker_side.following_ranks import following

RELAYED = SimpleNamespace(nodes=SimpleNamespace(parent=1), origins=[0, 4])
"""A transport of a rank whose node's leader was rank 4 at the start."""


def told():
    with following(RELAYED):
        raise TypeError("unsupported operand")


@pytest.mark.parametrize(("value", "shown"), [(None, False), ("0", False), ("1", True)])
def test_a_mistake_of_our_own_is_traced_where_it_is_looked_for(value, shown, monkeypatch, capsys):
    if value is not None:
        monkeypatch.setenv(DEBUGGING, value)
    with pytest.raises(Misled, match=r"rank 4 tells it \(TypeError: unsupported operand\)"):
        told()
    said = capsys.readouterr().err
    assert ("test_following.py" in said and "in told" in said) is shown
    assert shown or not said
