"""Starts and asks the program that parses HDF5 files, and survives its crashes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mpifl.common import InputError
from mpifl.common.machine import SIGNALS

SILENCE_SECONDS = 120.0
"""Seconds without a byte of an answer, after which a file counts as hanging. The limit of processor time ends
sooner."""
MOST_ANSWER = 1 << 16
"""The most bytes in an answer, without data."""
PROGRAM = Path(__file__).with_name("hdf5_parser.py")
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HDF5_PLUGIN_PATH", "PATH", "HOME", "TMPDIR")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_OF_THE_FILE = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_NO_ANSWER = (OSError, ValueError, EOFError, RecursionError)


class Unparsed(Exception):
    """A file cannot be parsed; the message says why."""


class Parser:
    """One parsing process at a time: started on first use, and again if it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._ready = False
        self._owner = 0
        self._guard = threading.RLock()
        self._harmful: dict[tuple[int, ...], str] = {}

    def start(self) -> None:
        """Start the process if there is none, without waiting for it. A process from before a fork belongs to
        the parent."""
        with self._guard:
            if self._process and self._owner == os.getpid() and self._process.poll() is None:
                return
            self.end()
            ours, its = socket.socketpair()
            paths = json.dumps([os.path.abspath(path) for path in sys.path])  # noqa: PTH100 - keeps links
            kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
            # these signals are meant for the rank
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {*SIGNALS, signal.SIGHUP})
            try:
                # without a preexec_fn, so that Python does not fork, which MPI forbids
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", str(PROGRAM), paths],
                    stdin=its.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=kept | _ONE_THREAD,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
                its.close()
            self._link, self._owner, self._ready = ours, os.getpid(), False

    def ask(
        self, file: BinaryIO, request: Mapping[str, Any], data: Sequence[memoryview] = ()
    ) -> dict[str, Any]:
        """Send a request. Fill the pieces `data`, or return the answer's record if there are no pieces.

        Raises:
            Unparsed: HDF5 refuses the file, crashes or hangs. A file of the last two kinds is refused from
                then on, until it is changed.
            InputError: the process does not start.
        """
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        with self._guard:
            if identity in self._harmful:
                raise Unparsed(self._harmful[identity])
            self._await_start()
            try:
                answer = self._exchange(file, request, data)
            except TimeoutError:
                self.end()
                answer = {"died": signal.SIGXCPU}
            except _NO_ANSWER:
                self.end()
                raise Unparsed("the program that parses it has ended") from None
        if died := answer.get("died"):
            self.end()  # it may have died before the request reached it
            if died in _OF_THE_FILE:
                self._harmful[identity] = _death(died)
            raise Unparsed(_death(died))
        if "error" in answer or (data and answer):
            raise Unparsed(_printable(answer.get("error")))
        return answer

    def end(self) -> None:
        """Kill the parsing process, if this process started it."""
        process, link = self._process, self._link
        self._process = self._link = None
        if link:
            link.close()
        if process and self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it may not lead a group yet
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may wait for a disk that hangs
                process.wait(5)

    def _await_start(self) -> None:
        self.start()
        if self._ready:
            return
        try:
            answer = self._record()
        except _NO_ANSWER:
            answer = {"error": "it ended at once"}
        if "error" in answer:
            self.end()
            said = f"the program that parses HDF5 did not start ({_printable(answer['error'])})"
            raise InputError(f"{said}; try {sys.executable} -c 'import h5py'")
        self._ready = True

    def _exchange(
        self, file: BinaryIO, request: Mapping[str, Any], data: Sequence[memoryview]
    ) -> dict[str, Any]:
        assert self._link
        socket.send_fds(self._link, [json.dumps(request).encode()], [file.fileno()])
        answer = self._record()
        for nth, piece in enumerate(data, 1):
            if answer:  # an error
                break
            self._fill(piece)
            answer = self._record() if nth < len(data) else {}
        if "died" in answer:
            return answer
        return end if (end := self._record()).get("died") else answer

    def _record(self) -> dict[str, Any]:
        length = bytearray(8)
        self._fill(memoryview(length))
        if (size := int.from_bytes(length, "little")) > MOST_ANSWER:
            raise ValueError("a long answer")
        record = bytearray(size)
        self._fill(memoryview(record))
        answer = json.loads(record)
        if not isinstance(answer, dict):
            raise ValueError("no record")
        return answer

    def _fill(self, data: memoryview) -> None:
        """Fill the buffer. Give up only if nothing comes for a while."""
        assert self._link
        self._link.settimeout(SILENCE_SECONDS)
        while len(data):
            if not (came := self._link.recv_into(data)):
                raise EOFError
            data = data[came:]


def _death(number: Any) -> str:
    if number == signal.SIGXCPU:
        return "HDF5 does not finish reading it"
    return f"HDF5 crashes on it: {signal.Signals(number).name if number in set(signal.Signals) else '?'}"


def _printable(text: Any) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:300])
