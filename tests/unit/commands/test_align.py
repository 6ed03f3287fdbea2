"""The command `align` before any rank is started: what no rank can do anything with."""

import pytest
from typer.testing import CliRunner

from mpifl.cli.commands import app
from mpifl.common.errors import InputError

TERMS = 'name = "x"\nparties = ["a", "b"]\nlabels = "b"\n'


@pytest.mark.parametrize(
    ("terms", "words", "said"),
    [
        (
            TERMS,
            ["--table", "1", "--table", "2", "--table", "3"],
            "--table: given 3 times for 2 parties; one for",
        ),
        (TERMS, ["--table", "1", "--id", "1", "--id", "2", "--id", "3"], "--id: given 3 times for 2 parties"),
        (TERMS, ["--plain"], "--plain: keyed hashes need a key, and nothing else does"),
        (TERMS, ["--key", "k"], "--plain: keyed hashes need a key, and nothing else does"),
        (TERMS.replace(', "b"]', "]"), [], "parties: there must be two or more"),
        (None, [], "terms.toml: cannot be read"),
    ],
)
def test_what_is_wrong_for_all_is_one_line_and_starts_no_rank(tmp_path, monkeypatch, terms, words, said):
    monkeypatch.setattr("mpifl.wire.launching.launcher.launched", lambda: False)
    monkeypatch.setattr(
        "mpifl.wire.launching.launcher.launch", lambda ranks: pytest.fail("ranks were started")
    )
    path = tmp_path / "terms.toml"
    if terms:
        path.write_text(terms)
    done = CliRunner().invoke(app, ["align", str(path), "--out", str(tmp_path / "out"), *words])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
