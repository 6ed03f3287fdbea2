"""Pages of memory, locked as CUDA locks them."""

from __future__ import annotations

PAGE = 4096
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713


class Pages:
    """Locks pages as CUDA does: memory that is locked in part is refused.

    Attributes:
        locked: First and last byte of each range of pages.
        refused: How many were.
    """

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.refused = 0

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        first, last = address // PAGE * PAGE, -(-(address + nbytes) // PAGE) * PAGE
        if any(first < end and begin < last for begin, end in self.locked.items()):
            self.refused += 1
            return ALREADY_REGISTERED
        self.locked[first] = last
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        return 0 if self.locked.pop(address // PAGE * PAGE, None) else NOT_REGISTERED
