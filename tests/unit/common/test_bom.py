"""Files that an editor has begun with a byte order mark are read as those without."""

import pytest

from data_prep.tables.spec import read_spec
from mpifl.cli.align.terms import read_terms
from mpifl.common.toml import read_toml
from mpifl.data.shards.records import read_parts
from mpifl.run.job import read_job, read_outline
from mpifl.wings.privacy.site_budget import budget_of

JOB = 'name = "toy"\nshards = "shards"\nrounds = 1\n[model]\nname = "logreg"\n'
FILES = {
    "job": (read_job, JOB),
    "outline": (read_outline, JOB),
    "spec": (read_spec, '[features]\nage = "numeric"\n[label]\ncolumn = "y"\n'),
    "terms": (read_terms, 'name = "a"\nparties = ["a", "b"]\nlabels = "a"\n'),
    "budget": (budget_of, "epsilon = 1.0\ndelta = 1e-5\n"),
    "sites": (read_toml, '[[site]]\nname = "north"\n'),
    "what sites agreed on": (read_parts, '{"name": "wards", "classes": 3}\n'),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_byte_order_mark_is_skipped(tmp_path, kind):
    read, text = FILES[kind]
    (tmp_path / "plain.toml").write_bytes(text.encode())
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read(tmp_path / "marked.toml") == read(tmp_path / "plain.toml")
