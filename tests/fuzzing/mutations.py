"""Harm done to bytes and to trees of values: small, drawn, and the same for the same draws.

`draw` is a `random.Random`, or hypothesis's own, which can shrink what it drew.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any


class Raw(str):
    """Text that stands in a file as it is, without quotes."""


class Pairs(list):
    """A table as a list of [key, value], so that a key may occur twice."""


NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
)
EVIL: tuple[Any, ...] = (
    *(None, True, False, 0.5, -0.0, -1e-9, 5e-324, 1e308, float("nan"), float("inf"), float("-inf")),
    *NUMBERS,
    *(
        -(2**63),
        10**18,
        10**400,
        Raw("1" + "0" * 5000),
        Raw("1e400"),
        Raw("-1e-400"),
        Raw("0x10"),
        Raw("'a'"),
    ),
    *(
        "",
        " ",
        "a",
        "0",
        "nan",
        "\0",
        "\ud800",
        "\x1b[2J\x1b]0;owned\a",
        "\n",
        "a\r\nb",
        "é\u202e",
        "²",
        "x" * 70_000,
    ),
    *(
        "..",
        "../../../etc/passwd",
        "/etc/passwd",
        "/dev/zero",
        "/",
        "a/b",
        "~",
        "a" * 300,
        "[red]x[/red]",
        "[/]",
        "{}",
    ),
    *(
        "<script>alert(1)</script>",
        "%s%n",
        "os:system",
        "os.path:join",
        "json:JSONDecoder",
        ":",
        "a:",
        ":b",
        "..a:b",
    ),
    *("mean", "train", "silo", "sgd", "float64", "mpifl-shards", "vertical"),
    *([], Pairs(), [[]], [None], Pairs([["", None]]), [0] * 1000, ["\ud800"], Pairs([["\ud800", "\ud800"]])),
    *(
        Raw("[" * 50_000),
        Raw("[" * 900 + "]" * 900),
        Raw('{"a":' * 400 + "1" + "}" * 400),
        Raw("nan"),
        Raw("}"),
    ),
)
"""Values that some reader, somewhere, took badly."""


def some(draw: Random, most: int) -> range:
    """Return a range of 1 to `most`, mostly short."""
    return range(min(draw.randrange(most) for _ in range(3)) + 1)


def evil(draw: Random, like: Any = None) -> Any:
    """Return an evil value, half of the time one of the same type as another."""
    alike = [value for value in EVIL if type(value) is type(like)]
    return _copied(draw.choice(alike if alike and draw.random() < 0.5 else EVIL))


def evil_key(draw: Random) -> str:
    return draw.choice([value for value in EVIL if type(value) is str])


def harmed_bytes(draw: Random, content: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """Return the bytes with 1 to 6 harms: flips, numbers, cuts,
    insertions, pieces copied from here or from others."""
    harmed = bytearray(content)
    for _ in some(draw, 6):
        draw.choice(
            (_flip, _flip, _overwrite, _overwrite, _number, _number, _cut, _truncate, _insert, _copy)
        )(draw, harmed, others)
    return bytes(harmed)


def _at(draw: Random, harmed: bytearray) -> int:
    return draw.randrange(len(harmed) + 1)


def _flip(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    if harmed:
        harmed[draw.randrange(len(harmed))] ^= 1 << draw.randrange(8)


def _overwrite(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    at, length = _at(draw, harmed), draw.choice((1, 1, 2, 4, 8, 64))
    harmed[at : at + length] = bytes([draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))]) * length


def _number(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    at, size = _at(draw, harmed), draw.choice((1, 2, 4, 8))
    number = (draw.choice(NUMBERS) * draw.choice((1, 1, -1)) + draw.choice((0, 0, 1, -1, 8))) % (
        1 << 8 * size
    )
    harmed[at : at + size] = number.to_bytes(size, draw.choice(("little", "little", "big")))


def _cut(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    at = _at(draw, harmed)
    del harmed[at : at + draw.choice((1, 2, 8, 100, 5000))]


def _truncate(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    del harmed[_at(draw, harmed) :]


def _insert(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    at, length = _at(draw, harmed), draw.choice((1, 1, 4, 8, 1000))
    harmed[at:at] = draw.choice((b"\0", b"\xff", b"[", b'"', b"\n", b"\xed\xa0\x80", b"9", b"-")) * length


def _copy(draw: Random, harmed: bytearray, others: tuple[bytes, ...]) -> None:
    source = draw.choice((bytes(harmed), *others)) or b"\0"
    start, at = draw.randrange(len(source)), _at(draw, harmed)
    piece = source[start : start + draw.choice((1, 8, 64, 500))]
    harmed[at : at + draw.choice((0, len(piece)))] = piece


def harmed_tree(draw: Random, tree: Any) -> Any:
    """Return the tree of lists and `Pairs` with 1 to 4 of its values or keys changed,
    taken away, doubled or moved."""
    tree = _copied(tree)
    for _ in some(draw, 4):
        places = list(_places(tree))
        if not places:
            return evil(draw)
        inner, at = draw.choice(places)
        _harm(draw, inner, at, places)
    return tree


def _harm(draw: Random, inner: list, at: int, places: list[tuple[list, int]]) -> None:
    """Do one harm to the value at a place, or to the key beside it."""
    what = draw.choice(
        ("replace", "replace", "replace", "replace", "nudge", "drop", "twice", "key", "more", "move")
    )
    value = value_at(inner, at)
    if what == "drop":
        del inner[at]
    elif what == "twice":
        inner.insert(at, _copied(inner[at]))
    elif what == "key" and isinstance(inner, Pairs):
        inner[at][0] = draw.choice((evil_key(draw), inner[draw.randrange(len(inner))][0]))
    elif what == "more":
        inner.insert(at, ["more", evil(draw)] if isinstance(inner, Pairs) else evil(draw, value))
    elif what == "nudge" and isinstance(value, int | float | str | list):
        _put(inner, at, _nudged(draw, value))
    else:
        given = _copied(value_at(*draw.choice(places))) if what == "move" else evil(draw, value)
        _put(inner, at, given)


def _nudged(draw: Random, value: Any) -> Any:
    if isinstance(value, str):
        at = draw.randrange(len(value) + 1)
        return value[:at] + draw.choice(("", "\0", "/", "..", "\ud800", "\n", "é", "9")) + value[at + 1 :]
    if isinstance(value, list):
        return type(value)(_copied(value) * draw.choice((0, 2, 20)))
    return draw.choice(
        (
            -value,
            value + 1,
            value - 1,
            value * 1000,
            str(value),
            [value],
            float(min(value, 1 << 900)),
            bool(value),
        )
    )


def value_at(inner: list, at: int) -> Any:
    """Return the value at a place of a list, or of `Pairs`."""
    return inner[at][1] if isinstance(inner, Pairs) else inner[at]


def _put(inner: list, at: int, value: Any) -> None:
    if isinstance(inner, Pairs):
        inner[at] = [inner[at][0], value]
    else:
        inner[at] = value


def _places(tree: Any) -> Any:
    """Yield (list, position) of every value in a tree, but for all but the ends of long lists."""
    for at in range(len(tree)) if isinstance(tree, list) else ():
        if 20 < at < len(tree) - 3:
            continue
        yield tree, at
        yield from _places(value_at(tree, at))


def _copied(tree: Any) -> Any:
    return type(tree)(map(_copied, tree)) if isinstance(tree, list) else tree


def pairs(table: Any) -> Any:
    """Return nested dicts as `Pairs`."""
    if isinstance(table, dict):
        return Pairs([key, pairs(value)] for key, value in table.items())
    return [pairs(value) for value in table] if isinstance(table, list | tuple) else table


def as_json(tree: Any) -> bytes:
    """Write a tree as JSON, which it may no longer be; lone surrogates as escapes."""
    return _written(tree, json.dumps, ": ").encode("utf-8", "surrogatepass")


def as_toml(tree: Any) -> bytes:
    """Write a tree as TOML, a line for each key at its top."""
    if not isinstance(tree, Pairs):
        return _written(tree, _toml, " = ").encode("utf-8", "surrogatepass")
    lines = (f"{json.dumps(key)} = {_written(value, _toml, ' = ')}\n" for key, value in tree)
    return "".join(lines).encode("utf-8", "surrogatepass")


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(json.dumps(value), repr(value))
    return json.dumps(value, ensure_ascii=not isinstance(value, str))


def _written(value: Any, leaf: Any, equals: str) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(k)}{equals}{_written(v, leaf, equals)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_written(one, leaf, equals) for one in value) + "]"
    return str(leaf(value))


def harmed_json(draw: Random, content: bytes) -> bytes:
    """Return a JSON text harmed as a tree, as bytes, or both."""
    return _harmed_text(draw, content, pairs(json.loads(content)), as_json)


def harmed_toml(draw: Random, content: bytes, table: Any) -> bytes:
    """Return a TOML text, whose tables are given, harmed as a tree, as bytes, or both."""
    return _harmed_text(draw, content, pairs(table), as_toml)


def _harmed_text(draw: Random, content: bytes, tree: Any, write: Any) -> bytes:
    how = draw.choice(("tree", "tree", "tree", "tree", "bytes", "both"))
    text = content if how == "bytes" else write(harmed_tree(draw, tree))
    return text if how == "tree" else harmed_bytes(draw, text)
