"""A process that has imported what `data_prep` needs, and forks one for each command: they start at once.

A line of JSON on standard input has the words of a command, limits of its processor time and memory, and
files for its outputs; its exit code is the answer.
"""

import gc
import json
import os
import resource
import runpy
import sys

import data_prep.cli  # noqa: F401


def run(words: list[str], seconds: int, memory: int, out: str, err: str) -> None:
    """Be `python -m WORDS` in this process."""
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_WRONLY if number else os.O_RDONLY), number)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


gc.freeze()  # else each process would copy all that was imported when it looks for garbage
for line in sys.stdin:
    if not (child := os.fork()):
        run(**json.loads(line))
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
