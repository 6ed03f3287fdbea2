"""Read the arrays, strings and dicts of a pickle without running it.

A pickle is a program: `pickle.load` calls whatever functions it names, so a downloaded one is somebody's
code. Even an Unpickler that is told which names to allow calls them with arguments of the file's choosing.
Here `pickletools` lists the opcodes, which runs nothing, and the few below are carried out on plain values. A
call stays a record of a name and its arguments, of which only the three that numpy writes for an array are
understood.

What a file asks for has limits, since a few bytes may name one value any number of times: operations, the
length of all values together, and no list within a list.
"""

from __future__ import annotations

import pickletools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mpifl.common import InputError

MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
IGNORED = {"PROTO", "FRAME", "STOP"}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
ARRAYS = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
DTYPE = re.compile("[uif][1248]")
MOST_OPERATIONS = 1 << 20
"""CIFAR-100's training file takes a third of them.
No more values than these are on the stack or in the memory."""
SPARE = 1 << 20
"""All values together may be this much longer than twice the file;
a number counts as 1, text by its characters."""
MOST_SAID = 80
"""Characters of a file's own words in a message."""


class _Call:
    """What the pickle would have called: a name, its arguments, and the state it would have set."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments, self.state = name, arguments, ()


class _Budget:
    """How long all values may be together."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def take(self, length: int) -> None:
        """Count a value before it is made."""
        self.left -= length
        if self.left < 0:
            raise ValueError(f"holds more than {self.most:,} bytes of values, twice the file's own length")


class _Machine:
    """The stack and memory of a pickle, holding nothing but plain values and records of calls."""

    def __init__(self, budget: _Budget) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.budget = budget
        self.steps = 0

    def step(self, op: str, arg: Any) -> None:
        """Carry out one opcode."""
        self.steps += 1
        if self.steps > MOST_OPERATIONS:
            raise ValueError(f"takes more than {MOST_OPERATIONS:,} operations")
        if op in CONSTANTS:
            self.stack.append(CONSTANTS[op])
        elif op in TUPLES:
            self.stack.append(tuple(self._pop(TUPLES[op])))
        elif op in STEPS:
            STEPS[op](self, arg)
        elif op in PUSHED:
            self.stack.append(arg)
        elif op not in IGNORED:
            raise ValueError(f"opcode {op} is not for data")

    def _pop(self, count: int) -> list[Any]:
        if count > len(self.stack):
            raise ValueError("the stack is empty")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def _marked(self) -> list[Any]:
        """Pop everything down to the mark."""
        depth = next(i for i in reversed(range(len(self.stack))) if self.stack[i] is MARK)
        return self._pop(len(self.stack) - depth)[1:]

    def _put(self, at: Any) -> None:
        place = len(self.memo) if at is None else int(at)
        if place >= MOST_OPERATIONS:  # a dict of numbers that are chosen to collide takes hours
            raise ValueError(f"names a place in memory beyond {MOST_OPERATIONS:,}")
        self.memo[place] = self.stack[-1]

    def _global(self, arg: Any) -> None:
        parts = arg.split(" ") if arg else self._pop(2)
        if not all(isinstance(part, str) for part in parts):
            raise ValueError("a name is no string")
        self.stack.append(_Call(".".join(parts), ()))

    def _reduce(self, arg: Any) -> None:
        function, arguments = self._pop(2)
        self.stack.append(self._call(function.name, arguments))

    def _call(self, name: str, arguments: Any) -> Any:
        """Record a call; `_codecs.encode` is how protocol 2 of Python 3 writes bytes."""
        if name == "_codecs.encode" and arguments[1:] in ((), ("latin1",)):
            self.budget.take(len(arguments[0]))
            return arguments[0].encode("latin1")
        return _Call(name, arguments)

    def _build(self, arg: Any) -> None:
        (state,) = self._pop(1)
        self.stack[-1].state = state

    def _set(self, pairs: list[Any]) -> None:
        self.stack[-1].update(_entries(pairs))


PUSHED = {
    "BININT",
    "BININT1",
    "BININT2",
    "INT",
    "LONG",
    "LONG1",
    "BINFLOAT",
    "FLOAT",
    "SHORT_BINBYTES",
    "BINBYTES",
}
PUSHED |= {"BINBYTES8", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), lambda m, arg: m.stack.append(arg)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine._put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, at: m.stack.append(m.memo[int(at)])),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Machine._global),
    "MARK": lambda m, _: m.stack.append(MARK),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "DICT": lambda m, _: m.stack.append(_entries(m._marked())),
    "LIST": lambda m, _: m.stack.append(m._marked()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m._marked())),
    "APPEND": lambda m, _: m.stack[-2].append(m.stack.pop()),
    "APPENDS": lambda m, _: (lambda items: m.stack[-1].extend(items))(m._marked()),
    "SETITEM": lambda m, _: m._set(m._pop(2)),
    "SETITEMS": lambda m, _: m._set(m._marked()),
    "REDUCE": _Machine._reduce,
    "BUILD": _Machine._build,
}


def read_pickled_dict(content: bytes, where: str) -> dict[str, Any]:
    """Read a pickled dict of arrays, strings, numbers and lists of strings and numbers; strings of Python 2
    become str.

    It takes no longer, and no more memory, than about a million operations and twice the file's length allow.

    Raises:
        InputError: it is no pickle, cut short, holds anything else, or asks for more than that.
    """
    budget = _Budget(2 * len(content) + SPARE)
    machine = _Machine(budget)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a string
            for opcode, arg, _ in pickletools.genops(content):
                machine.step(opcode.name, arg)
        (value,) = machine.stack
        return {_text(key, budget): _plain(item, budget) for key, item in value.items()}
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        StopIteration,
        OverflowError,
        MemoryError,
    ) as error:
        said = str(error)[:MOST_SAID] or type(error).__name__
        raise InputError(
            f"{where}: not a pickled dict of arrays, or cut short ({said}); fetch it again"
        ) from None


def _entries(pairs: list[Any]) -> dict[str | bytes, Any]:
    """Make a dict of keys and values by turns; hashing any other key than a string may take for ever."""
    if not all(isinstance(key, (str, bytes)) for key in pairs[::2]):
        raise ValueError("a key is no string")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _plain(value: Any, budget: _Budget) -> Any:
    if isinstance(value, (list, tuple)):
        return [_scalar(item, budget) for item in value]
    return _array(value, budget) if isinstance(value, _Call) else _scalar(value, budget)


def _scalar(value: Any, budget: _Budget) -> Any:
    if isinstance(value, (str, bytes)):
        return _text(value, budget)
    if value is not None and not isinstance(value, (int, float)):
        raise ValueError(
            f"it would call {value.name}" if isinstance(value, _Call) else "a list within a list"
        )
    budget.take(1)
    return value


def _text(value: str | bytes, budget: _Budget) -> str:
    budget.take(len(value))
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _array(call: _Call, budget: _Budget) -> np.ndarray:
    """Make the array of numbers that numpy's `_reconstruct` and its state describe."""
    if call.name not in ARRAYS or len(call.state) != 5:
        raise ValueError(f"it would call {call.name}")
    _, shape, dtype, fortran, content = call.state
    if not isinstance(dtype, _Call) or dtype.name != "numpy.dtype" or not DTYPE.fullmatch(dtype.arguments[0]):
        raise ValueError("an array of something else than numbers")
    budget.take(len(content))
    stored = content.encode("latin1") if isinstance(content, str) else content
    byte_order = dtype.state[1] if len(dtype.state) > 1 else "|"
    kind = np.dtype(dtype.arguments[0]).newbyteorder(byte_order)
    return np.frombuffer(stored, kind).reshape(shape, order="F" if fortran else "C")
