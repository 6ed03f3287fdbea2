"""Typer makes the commands of a program anew whenever it is called; here each program's are made once.

Making them takes a tenth of a second of the processor, and the tests call the programs thousands of times.
"""

import functools

import typer.main

typer.main.get_command = command_of = functools.cache(typer.main.get_command)
