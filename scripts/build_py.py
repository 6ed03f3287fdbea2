"""What a distribution holds beside its packages: the jobs as mpifl/jobs, and the examples as mpifl/examples.

pyproject.toml names the class.
"""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

FOLDERS = {"jobs": "jobs", "docs/examples": "examples"}
"""The folders of the checkout, and their names in the package."""
KINDS = ("*.toml", "*.json", "*.py", "*.sbatch", "*.sh", "*.md")


class WithJobs(build_py):
    """Builds the packages, and copies jobs/ and docs/examples/ into mpifl."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for file, place in _files().items():
                target = Path(self.build_lib, "mpifl", place)
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target))

    def get_source_files(self) -> list[str]:
        """Have an sdist hold them, and this file."""
        return [*super().get_source_files(), *map(str, _files()), "scripts/build_py.py"]


def _files() -> dict[Path, Path]:
    """Return the files, and the place of each in the package."""
    found = {
        file: Path(inside, file.relative_to(folder))
        for folder, inside in FOLDERS.items()
        for kind in KINDS
        for file in Path(folder).rglob(kind)
    }
    return dict(sorted(found.items()))
