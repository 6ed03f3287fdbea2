"""What a distribution holds beside its packages: the jobs, as mpifl/jobs. pyproject.toml names the class."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

JOBS = ("*.toml", "*.json", "*.py", "*.sbatch")


class WithJobs(build_py):
    """Builds the packages, and copies jobs/ beside them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for job in _jobs():
                target = Path(self.build_lib, "mpifl", job)
                self.mkpath(str(target.parent))
                self.copy_file(str(job), str(target))

    def get_source_files(self) -> list[str]:
        """Have an sdist hold them, and this file."""
        return [*super().get_source_files(), *map(str, _jobs()), "scripts/build_py.py"]


def _jobs() -> list[Path]:
    return sorted(path for kind in JOBS for path in Path("jobs").rglob(kind))
