"""Each loop and recursion that nobody has counted stands in docs/decisions/ends.md, with why it ends."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from syntax_trees import TREES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "decisions" / "ends.md"
ENDLESS = {"count", "cycle", "repeat"}
"""Of itertools."""
ROW = re.compile(r"^\| `([\w/]+\.py)` ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)


def functions(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield each function with its own part of the tree, and the class that it is of."""
    left = [(node, "")]
    while left:
        above, inside = left.pop()
        for child in ast.iter_child_nodes(above):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child.name, child, inside
            left.append((child, child.name if isinstance(child, ast.ClassDef) else inside))


@functools.cache
def own(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return the nodes of a function, but for those of functions and classes in it."""
    found, left = [], [node]
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.append(child)
                left.append(child)
    return tuple(found)


def called(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
    """Yield what a function calls by its plain name or of its own class, as (class, function)."""
    for func in (call.func for call in own(node) if isinstance(call, ast.Call)):
        if isinstance(func, ast.Name):
            yield "", func.id
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
            yield inside, func.attr


def is_endless(node: ast.AST) -> bool:
    if isinstance(node, ast.While):
        return True
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    plain = func.id if isinstance(func, ast.Name) else ""
    of = func.value.id if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) else ""
    named = func.attr if of == "itertools" and isinstance(func, ast.Attribute) else plain
    return named in ENDLESS or (plain == "iter" and len(node.args) == 2)


def uncounted(path: Path) -> set[str]:
    """Return the functions of a file that have a loop nobody has counted, or come to themselves again."""
    found = list(functions(TREES[path]))
    calls = {(inside, name): {*called(node, inside)} for name, node, inside in found}

    def reached(start: tuple[str, str]) -> set[tuple[str, str]]:
        seen, left = set(), [start]
        while left:
            left += (new := calls.get(left.pop(), set()) - seen)
            seen |= new
        return seen

    loops = {name for name, node, _ in found if any(map(is_endless, own(node)))}
    return loops | {key[1] for key in calls if key in reached(key)}


def test_the_page_lists_each_uncounted_loop_and_each_recursion_and_no_other():
    code = {
        (
            path.relative_to(ROOT / package).as_posix()
            if package == "mpifl"
            else path.relative_to(ROOT).as_posix(),
            name,
        )
        for package in ("mpifl", "data_prep")
        for path in (ROOT / package).rglob("*.py")
        for name in uncounted(path)
    }
    listed = {
        (file, name[1:-1]) for file, names in ROW.findall(PAGE.read_text()) for name in names.split(", ")
    }
    assert sorted(code - listed) == []
    assert sorted(listed - code) == []


def test_tests_that_the_page_names_are_there():
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE.read_text())
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []
