"""Read the arrays, strings and dicts of a pickle without running it.

A pickle is a program: `pickle.load` calls whatever functions it names, so a downloaded one is somebody's code. Even an
Unpickler that is told which names to allow calls them with arguments of the file's choosing. Here `pickletools` lists
the opcodes, which runs nothing, and the few below are carried out on plain values. A call stays a record of a name and
its arguments, of which only the three that numpy writes for an array are understood.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mpifl.errors import InputError

MARK = object()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
IGNORED = {"PROTO", "FRAME", "STOP"}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


class _Call:
    """What the pickle would have called: a name, its arguments, and the state it would have set."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments, self.state = name, arguments, ()


class _Machine:
    """The stack and memory of a pickle, holding nothing but plain values and records of calls."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, op: str, arg: Any) -> None:
        """Carry out one opcode."""
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
        self.memo[len(self.memo) if at is None else int(at)] = self.stack[-1]

    def _global(self, arg: Any) -> None:
        module, name = arg.split(" ") if arg else self._pop(2)
        self.stack.append(_Call(f"{module}.{name}", ()))

    def _reduce(self, arg: Any) -> None:
        function, arguments = self._pop(2)
        self.stack.append(_call(function.name, arguments))

    def _build(self, arg: Any) -> None:
        (state,) = self._pop(1)
        self.stack[-1].state = state

    def _set(self, pairs: list[Any]) -> None:
        self.stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))


PUSHED = {"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT", "SHORT_BINBYTES", "BINBYTES"}
PUSHED |= {"BINBYTES8", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), lambda m, arg: m.stack.append(arg)),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine._put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, at: m.stack.append(m.memo[int(at)])),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Machine._global),
    "MARK": lambda m, _: m.stack.append(MARK),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "DICT": lambda m, _: m.stack.append(dict(zip(*(iter(m._marked()),) * 2, strict=True))),
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
    """Read a pickled dict of arrays, strings, numbers and lists of these; strings of Python 2 become str.

    Raises:
        InputError: it is no pickle, cut short, or holds anything else.
    """
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a string
            for opcode, arg, _ in pickletools.genops(content):
                machine.step(opcode.name, arg)
        (value,) = machine.stack
        named = {_text(key): _plain(item) for key, item in value.items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, StopIteration) as error:
        what = f"not a pickled dict of arrays, or cut short ({error or type(error).__name__})"
        raise InputError(f"{where}: {what}; fetch it again") from None
    if not all(isinstance(key, str) for key in named):
        raise InputError(f"{where}: not a pickled dict of arrays (a key is no string); fetch it again")
    return named


def _call(name: str, arguments: tuple[Any, ...]) -> Any:
    """Record a call; `_codecs.encode` is how protocol 2 of Python 3 writes bytes."""
    if name == "_codecs.encode" and arguments[1:] in ((), ("latin1",)):
        return arguments[0].encode("latin1")
    return _Call(name, arguments)


def _plain(value: Any) -> Any:
    if isinstance(value, _Call):
        return _array(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return _text(value)


def _text(value: Any) -> Any:
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _array(call: _Call) -> np.ndarray:
    """Make the array of numbers that numpy's `_reconstruct` and its state describe."""
    if call.name not in [f"{module}._reconstruct" for module in ARRAY_MODULES] or len(call.state) != 5:
        raise ValueError(f"it would call {call.name}")
    _, shape, dtype, fortran, content = call.state
    if not isinstance(dtype, _Call) or dtype.name != "numpy.dtype" or dtype.arguments[0][0] not in "uif":
        raise ValueError("an array of something else than numbers")
    stored = content.encode("latin1") if isinstance(content, str) else content
    byte_order = dtype.state[1] if len(dtype.state) > 1 else "|"
    kind = np.dtype(dtype.arguments[0]).newbyteorder(byte_order)
    return np.frombuffer(stored, kind).reshape(shape, order="F" if fortran else "C")
