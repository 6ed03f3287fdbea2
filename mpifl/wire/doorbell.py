"""Doorbells: a rank that waits sleeps in its kernel until another rank of the node has sent it something.

MPI has no wait that sleeps. Looking often costs the cores that training needs, looking seldom costs time, a
millisecond at each step of an exchange. A doorbell carries no content: a lost or a false notification only
makes its owner look later or once more.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time

TOKEN_BYTES = 12
"""Of an address: the process and a random number, so that no other job is notified."""

MOST_NOTIFICATIONS = 1000
"""Taken in one go; others may come as fast as they are taken."""


class Doorbell:
    """This rank's own doorbell, at an abstract Unix address that vanishes with the process."""

    def __init__(self) -> None:
        self.token = struct.pack("<I8s", os.getpid() & 0xFFFFFFFF, os.urandom(8))
        self._socket = _bound(self.token)

    @property
    def works(self) -> bool:
        """Whether there are such addresses here: on Linux."""
        return self._socket is not None

    def notify(self, token: bytes) -> None:
        """Wake the rank with this token, now or when it next wants to sleep."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # gone, or it has notifications enough to wake up of
                self._socket.sendto(b"", socket.MSG_DONTWAIT, _address(token))

    def wait(self, seconds: float) -> None:
        """Sleep until another rank notifies this one, or for that long."""
        if self._socket is None:
            time.sleep(seconds)
        elif select.select([self._socket], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                for _ in range(MOST_NOTIFICATIONS):  # one look answers all so far
                    self._socket.recv_into(bytearray(1), 1, socket.MSG_DONTWAIT)


def _bound(token: bytes) -> socket.socket | None:
    try:
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.bind(_address(token))
    except (AttributeError, OSError):
        return None
    return bound


def _address(token: bytes) -> bytes:
    return b"\0mpifl-" + token.hex().encode()
