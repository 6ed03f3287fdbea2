"""Doorbells: a waiting rank sleeps in the kernel until another rank of its node has sent it something.

MPI has no wait that sleeps. Frequent polling takes cores from training. Rare polling costs time, about a
millisecond at each step of an exchange. A doorbell carries no content: after a lost or false notification its
owner only looks later or once more.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time

TOKEN_BYTES = 12
"""Bytes of an address: the process and a random number, so that no other job is notified."""

MOST_NOTIFICATIONS = 1000
"""Notifications that one wait takes at most: new ones may come as fast as they are taken."""


class Doorbell:
    """This rank's own doorbell, at an abstract Unix address that vanishes with the process."""

    def __init__(self) -> None:
        self.token = struct.pack("<I8s", os.getpid() & 0xFFFFFFFF, os.urandom(8))
        self._socket = _bound(self.token)

    @property
    def works(self) -> bool:
        """Whether this system has abstract Unix addresses, as Linux does."""
        return self._socket is not None

    def notify(self, token: bytes) -> None:
        """Wake the rank with this token, or keep it from sleeping the next time."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the rank is gone, or enough notifications wait for it
                self._socket.sendto(b"", socket.MSG_DONTWAIT, _address(token))

    def wait(self, seconds: float) -> None:
        """Sleep until another rank notifies this one, at most `seconds`."""
        if self._socket is None:
            time.sleep(seconds)
        elif select.select([self._socket], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                for _ in range(MOST_NOTIFICATIONS):  # one look at the messages serves all of them
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
