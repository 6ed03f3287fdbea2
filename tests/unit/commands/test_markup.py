"""What help says of a table such as `[local]` is seen: brackets in texts are no markup."""

from collections.abc import Iterator

import click
import pytest
import typer
from rich.text import Text

from data_prep.cli import app as data_prep
from mpifl.cli.commands import app as mpifl

APPS = {"mpifl": mpifl, "data-prep": data_prep}


def texts(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield all that help says, by the command and the option."""
    yield path, command.help or ""
    for one in command.params:
        yield f"{path} {one.name}", getattr(one, "help", None) or ""
        yield f"{path} {one.name}", one.metavar or ""
    for name, inner in getattr(command, "commands", {}).items():
        yield from texts(inner, f"{path} {name}")


@pytest.mark.parametrize("name", APPS)
def test_no_help_holds_a_tag(name: str) -> None:
    said = [*texts(typer.main.get_command(APPS[name]), name)]
    assert len(said) > 20
    for where, text in said:
        shown = Text.from_markup(text)
        assert not shown.spans, where
        assert shown.plain == text.replace(r"\[", "["), where
