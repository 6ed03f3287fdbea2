"""From a template and plain values to one HTML file, with its looks, its program and its policy in it."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpifl.common import InputError, write_named
from mpifl.common.pages.glossary import words_in

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
NEXT = "What to do next"
ANCHORS = {NEXT: "next", "Which silos gain?": "gains"}
"""Sections that a sentence leads to where it names them, and what their addresses end with."""
MARKED = re.compile("|".join([r"(?<![^ \n])--[^ \n]*", *map(re.escape, ANCHORS)]))


def render(template: str, **values: Any) -> str:
    """Return a page; a value that its template asks for and that is not given is an error."""
    return templates().get_template(template).render(values) + "\n"


@functools.cache
def templates() -> Environment:
    """Return the templates. Jinja2 is imported here, since most commands write no page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, program = ((TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    found.globals.update(style=style, program=program, policy=policy(style, program), words_in=words_in)
    found.globals.update(pieces=pieces, anchors=ANCHORS, how="How this is computed")
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "sort_keys": True}
    return found


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a sentence or of commands, and what each is: an "option", in which no line breaks,
    the address of a section that it names, or ""."""
    at = 0
    for one in MARKED.finditer(text):
        yield "", text[at : one.start()]
        yield ANCHORS.get(one[0], "option"), one[0]
        at = one.end()
    yield "", text[at:]


def policy(style: str, program: str) -> str:
    """Return what a page may do: look so, run this program, show the images in it, and nothing else.

    A tag that a hostile name brings does nothing, were it not escaped.
    """
    looks, runs = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, program)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{looks}'; script-src 'sha256-{runs}'; "
        "base-uri 'none'; form-action 'none'"
    )


def check_page(option: str, path: Path) -> None:
    """See that the file that an option names may be a page.

    Raises:
        InputError: its name does not end so.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} {path}: ends in '{path.suffix}'; it must be .html")


def write_page(option: str, path: Path, content: str) -> None:
    """Write a page to the file that an option names, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    write_named(option, path, content)
