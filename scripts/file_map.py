"""Write docs/reference/files.md from the first sentences of all files: python -m scripts.file_map"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "files.md"
HEAD = """# Every file, a line each

`python -m scripts.file_map` writes this page from the files' docstrings.
[ARCHITECTURE](../../ARCHITECTURE.md) says how they work together.
"""


def told(path: Path) -> str:
    """Return the first paragraph of a file's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def folders(package: Path) -> Iterator[Path]:
    """Yield a package's folders that hold Python files, each before those in it."""
    yield from sorted({path.parent for path in package.rglob("*.py")})


def section(folder: Path) -> str:
    """Return what there is to say of a folder and its files."""
    about = folder / "__init__.py"
    files = sorted(path for path in folder.glob("*.py") if path != about)
    head = f"## `{folder.relative_to(ROOT)}/`\n\n{told(about) if about.exists() else ''}\n"
    return head + "".join(f"\n- `{path.name}`: {told(path)}" for path in files) + "\n"


def page() -> str:
    """Return the page."""
    rooms = [folder for package in ("mpifl", "data_prep") for folder in folders(ROOT / package)]
    return "\n".join([HEAD, *map(section, rooms)])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
