"""Write jobs/job.schema.json and docs/reference/job-keys.md from the models of the job file,
and jobs/names.json from the registries: python -m scripts.job_keys"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from mpifl.cli.job_tools import KINDS, schema, tables
from mpifl.cli.job_tools.keys import JobKey

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "job-keys.md"
SCHEMA = Path(__file__).parents[1] / "jobs" / "job.schema.json"
NAMES = SCHEMA.with_name("names.json")
HEAD = """# The keys of the job file

`python -m scripts.job_keys` writes this page from the models of the job file.
`mpifl keys [TABLE]` prints the same.
[The job file](job-file.md) says more. A key without a default is left out unless it is given.
"""


def default_of(row: JobKey) -> str:
    """Return the default as code, and as words what is none."""
    return row.default if row.default in ("", "required") else f"`{row.default}`"


def table_of(rows: list[JobKey]) -> str:
    """Return the keys as a Markdown table, with a column of owners if some have one."""
    of = any(row.of for row in rows)
    lines = ["| key | of | values | default | meaning |", "|---|---|---|---|---|"]
    lines += [f"| `{r.name}` | {r.of} | {r.values} | {default_of(r)} | {r.meaning} |" for r in rows]
    if not of:
        lines = ["|".join(cell for place, cell in enumerate(line.split("|")) if place != 2) for line in lines]
    return "\n".join(lines)


def schema_file() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def names_file() -> str:
    """Return the names that `mpifl list` prints as the text of their file."""
    kinds = {
        name: {"where": kind.where, "own": kind.own, "items": [asdict(item) for item in kind.items()]}
        for name, kind in KINDS.items()
    }
    return json.dumps(kinds, indent=1, ensure_ascii=False) + "\n"


def page() -> str:
    """Return the page."""
    parts = [f"## {name or 'Above all tables'}\n\n{table_of(rows)}\n" for name, rows in tables().items()]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    SCHEMA.write_text(schema_file())
    NAMES.write_text(names_file())
    PAGE.write_text(page())  # reads the schema
