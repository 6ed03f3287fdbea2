"""The command's own parts: what a rank says last is read before the launcher speaks of its end."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import python, rank_environment
from typer.testing import CliRunner

from data_prep.cli import app as data_prep_app
from mpifl.cli import app as mpifl_app
from mpifl.cli.ending import CUT_OFF, _await_reader, code_of_launched
from mpifl.common import InputError


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_what_was_written_is_read_before_the_wait_ends(pipe: tuple[int, int]) -> None:
    def read_in_pieces() -> None:
        for _ in range(2):
            time.sleep(0.05)
            os.read(pipe[0], 4096)

    os.write(pipe[1], bytes(5000))
    reader = threading.Thread(target=read_in_pieces)
    reader.start()
    _await_reader(pipe[1], 30)
    os.set_blocking(pipe[0], False)
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)
    reader.join()


def test_who_never_reads_is_waited_for_so_long(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"unread")
    began = time.monotonic()
    _await_reader(pipe[1], 0.05)
    assert time.monotonic() - began >= 0.05


def test_a_file_has_no_reader(tmp_path: Path) -> None:
    began = time.monotonic()
    with (tmp_path / "log").open("w+") as file:
        file.write("unread")
        file.seek(0)  # a pipe would have 6 bytes to be read
        _await_reader(file.fileno(), 30)
    _await_reader(1 << 20, 30)  # nor has what is closed
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("begun", "committed", "says"),
    [
        (False, False, "the launcher ended ({code}) before the training began; run the same command again"),
        (False, True, "the launcher ended ({code}) before the training began; run the same command again"),
        (
            True,
            False,
            "ranks died, and the training ended with them before the first checkpoint; start again",
        ),
        (True, True, "ranks died, and the training ended with them; continue with --resume"),
    ],
)
@pytest.mark.parametrize("code", [0, 213])
def test_a_launched_training_that_is_cut_off_says_what_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture, begun: bool, committed: bool, says: str, code: int
) -> None:
    def launch() -> int:
        if begun:
            (tmp_path / "job.toml").write_text("rounds = 2")
        return code

    if committed:  # by the start before this one
        (tmp_path / "job.toml").write_text("rounds = 2")
        os.utime(tmp_path / "job.toml", (1, 1))
        (tmp_path / "checkpoints" / "round_000001").mkdir(parents=True)
        (tmp_path / "checkpoints" / "round_000001" / "checkpoint.json").touch()
    assert code_of_launched(launch, tmp_path) == (code or CUT_OFF)
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: {says.format(code=code)}")


def commands_of(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command of a program, by its words."""
    for name, one in group.commands.items():
        words = f"{path} {name}".strip()
        yield from commands_of(one, words) if hasattr(one, "commands") else [(words, one)]


@pytest.mark.parametrize("program", [mpifl_app, data_prep_app], ids=["mpifl", "data-prep"])
def test_every_option_that_takes_one_value_is_refused_when_it_is_given_twice(program: typer.Typer) -> None:
    tried, whole = 0, typer.main.get_command(program)
    for words, command in commands_of(whole):
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag and not option.multiple:
                name, tried = option.opts[0], tried + 1
                with pytest.raises(
                    InputError, match=rf"^{name}: given 2 times \(a.csv and b.csv\), and takes"
                ):
                    whole.main([*words.split(), name, "a.csv", f"{name}=b.csv"], standalone_mode=False)
    assert tried > 30


def test_a_flag_and_its_contrary_are_refused_and_a_flag_said_again_is_not() -> None:
    words = ["check", "nowhere", "--duplicates"]
    with pytest.raises(InputError, match=r"^--duplicates: given with --no-duplicates; leave one out"):
        CliRunner().invoke(data_prep_app, [*words, "--no-duplicates"], catch_exceptions=False)
    with pytest.raises(InputError, match="nowhere"):
        CliRunner().invoke(data_prep_app, [*words, "--duplicates"], catch_exceptions=False)


def test_tables_of_which_one_would_be_left_out_are_for_another_command() -> None:
    words = ["partition", "csv", "--data", "a.csv", "--data", "b.csv", "--out", "c", "--scheme", "iid"]
    with pytest.raises(
        InputError, match=r"takes one value; of several sites' tables `data-prep sites` makes"
    ):
        CliRunner().invoke(data_prep_app, words, catch_exceptions=False)


def test_an_option_given_twice_is_one_line_in_both_programs() -> None:
    for words in (
        ["mpifl", "new", "--kind", "a", "--kind", "b"],
        ["data_prep", "spec", "x", "--like", "a", "--like", "b"],
    ):
        done = subprocess.run(
            [*python(), "-m", *words], capture_output=True, text=True, env=rank_environment()
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert done.stderr.startswith("error: --")
