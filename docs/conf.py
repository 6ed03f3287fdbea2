"""Sphinx: the documents of this repository and the API as a site; scripts/docs.sh builds it."""

import re
from pathlib import Path
from typing import Any

from mpifl import __version__

ROOT = Path(__file__).parents[1]

project, release = "mpifl", __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/**/*.md",
    "docs/**/*.ipynb",
]
exclude_patterns = [".venv", ".git", "runs", "shards", "build", "mpifl-demo"]
root_doc = "docs/index"
html_theme = "pydata_sphinx_theme"
html_title = f"mpifl {release}"
html_show_copyright = False
html_theme_options = {"show_toc_level": 2}
smartquotes = False
napoleon_use_ivar = True  # an attribute whose default is a function is described by autodoc, too
suppress_warnings = ["ref.python"]  # a name in two faces, that of its room and that of mpifl, is one object
myst_heading_anchors = 4
nb_execution_mode = "force"  # notebooks lie there without outputs, and are run where the site is built
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
autodoc_typehints = "description"
autodoc_preserve_defaults = True
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True, "exclude-members": "model_config"}


def without_folders(app: Any, name: str, source: list[str]) -> None:
    """Turn links to folders into plain text: a site has no page for a folder."""
    here = (ROOT / name).parent

    def plain(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"\[([^\]\[]+)\]\(([^)#:\s]+)\)", plain, source[0])


LANGUAGES = {".toml": "toml", ".py": "python", ".sh": "bash", ".sbatch": "bash"}


def with_files(app: Any, name: str, source: list[str]) -> None:
    """Add to an example's page its job, code and scripts; in a folder they lie beside the page."""
    page = ROOT / f"{name}.md"
    if page.name != "README.md" or page.parent.parent != ROOT / "docs" / "examples":
        return
    files = sorted(path for path in page.parent.iterdir() if path.suffix in LANGUAGES)
    files.sort(key=lambda path: path.name not in ("job.toml", "run.sh"))
    block = "```{{literalinclude}} {0}\n:language: {1}\n:caption: {0}\n```\n"
    shown = [block.format(path.name, LANGUAGES[path.suffix]) for path in files]
    source[0] = "\n".join([source[0], "## Its files\n", *shown])


def setup(app: Any) -> None:
    """Register what this file does."""
    app.connect("source-read", without_folders)
    app.connect("source-read", with_files)
