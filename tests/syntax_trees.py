"""The syntax trees of files, which many tests look through: each is read and gone through once."""

import ast
import functools
from pathlib import Path


class Trees(dict[Path, ast.Module]):
    """The syntax trees of files, each read when it is first looked at."""

    def __missing__(self, path: Path) -> ast.Module:
        self[path] = ast.parse(path.read_text(), str(path))
        return self[path]


TREES = Trees()


@functools.cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree, as `ast.walk` yields them."""
    return tuple(ast.walk(tree))
