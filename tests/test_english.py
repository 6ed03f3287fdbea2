"""Plain sentences: none in documents and docstrings has more than 35 words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from syntax_trees import TREES, walked

ROOT = Path(__file__).parents[1]
MOST_WORDS = 35
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = sorted(path for folder in ("mpifl", "data_prep") for path in (ROOT / folder).rglob("*.py"))
ABBREVIATION = re.compile(r"\b(al|e\.g|i\.e|sec|vs|cf|ibid|no|fig)\.", re.IGNORECASE)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph: up to a full stop, a colon before a list, or the end."""
    plain = ABBREVIATION.sub(r"\1", text)
    yield from re.split(r"(?<=[.!?])[\"')*_]*\s+(?=[^\s])", " ".join(plain.split()))


def words(sentence: str) -> int:
    """Count the words of a sentence; code,
    links' addresses and numbers between symbols are a word at most."""
    plain = re.sub(r"`[^`]*`", "code", sentence)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    return len(re.findall(r"[A-Za-zÀ-ž][\wÀ-ž'’.-]*", plain))


def paragraphs(text: str) -> Iterator[str]:
    """Yield what stands together in Markdown: a paragraph,
    an item of a list, a cell of a table, a heading."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?m)^( *)([-*] |\d+\. |#+ )", r"\n\n", text)
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("|"):
            yield from (cell for line in block.splitlines() for cell in re.split(r"(?<!\\)\|", line))
        else:
            yield block


def in_docstring(text: str) -> Iterator[str]:
    """Yield what stands together in a docstring: a paragraph, or the text of one argument or error."""
    yield from re.split(r"\n\s*\n", re.sub(r"(?m)^\s*[\w, *]+:( |$)", r"\n\n", text))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings that stand as statements: of files, classes, functions and attributes."""
    for node in walked(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def too_long(blocks: Iterator[str]) -> list[str]:
    """Find the sentences that have too many words."""
    counted = [(words(one), one) for block in blocks for one in sentences(block)]
    return [f"{count} words: {one}" for count, one in counted if count > MOST_WORDS]


def test_sentences_of_documents_are_short() -> None:
    found = [f"{path}: {long}" for path in DOCUMENTS for long in too_long(paragraphs(path.read_text()))]
    assert found == []


def test_sentences_of_docstrings_are_short() -> None:
    found = [
        f"{path}:{line}: {long}"
        for path in CODE
        for line, text in docstrings(TREES[path])
        for long in too_long(in_docstring(text))
    ]
    assert found == []


def test_a_long_sentence_is_found_where_it_stands() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    assert too_long(paragraphs(f"Short.\n\n- {long}.\n")) == [f"{MOST_WORDS + 1} words: {long}."]
    assert len(too_long(paragraphs(f"| a | {long} |\n|---|---|\n"))) == 1
    assert too_long(paragraphs(f"```\n{long}\n```\n{long[: len(long) // 2]}. {long[len(long) // 2 :]}")) == []
    tree = ast.parse(f'def f():\n    """Short.\n\n    Args:\n        x: {long}\n    """\n')
    assert [too_long(in_docstring(text)) != [] for _, text in docstrings(tree)] == [True]
