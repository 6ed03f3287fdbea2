"""A provider that synchronises as badly as one can: halves, garbage, repeats, other names, old contents, any
order, no deletions. The same seed does the same harm to the same files.

    python -m links.worst_copier SEED FROM TO [FROM TO ...]     # folders, until a signal; PYTHONPATH=tests
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from random import Random


class FolderFiles(MutableMapping[str, bytes]):
    """The files of a folder by name; a file is written in place, so that others see halves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def __setitem__(self, name: str, content: bytes) -> None:
        path = self._folder / name
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        path.write_bytes(content)

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError("this provider carries no deletions")

    def __iter__(self) -> Iterator[str]:
        found = (
            sorted(os.scandir(self._folder), key=lambda entry: entry.name) if self._folder.exists() else []
        )
        return (entry.name for entry in found if entry.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class WorstCopier:
    """Copies one way.

    Attributes:
        counts: How often it did each harm.
    """

    def __init__(
        self, draw: Random, source: MutableMapping[str, bytes], target: MutableMapping[str, bytes]
    ) -> None:
        self._draw, self._source, self._target = draw, source, target
        self._due: list[tuple[str, bytes]] = []
        self._old: list[bytes] = []
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        """Look for files that differ, and deliver some of what is due, in any order."""
        waiting = {name for name, _ in self._due}
        for name in [*self._source]:
            with suppress(OSError, KeyError):  # it was removed meanwhile
                content = self._source[name]
                if name not in waiting and self._there(name) != content:
                    self._plan(name, content)
        for _ in range(self._draw.randrange(4)):
            if self._due:
                name, content = self._due.pop(self._draw.randrange(len(self._due)))
                self._target[name] = content

    def calm(self) -> None:
        """Deliver all that is due, and then each file as it is."""
        for name, content in self._due:
            self._target[name] = content
        self._due.clear()
        for name in [*self._source]:
            with suppress(OSError, KeyError):
                if self._there(name) != (content := self._source[name]):
                    self._target[name] = content

    def _there(self, name: str) -> bytes | None:
        try:
            return self._target[name]
        except (OSError, KeyError):
            return None

    def _plan(self, name: str, content: bytes) -> None:
        draw, digits = self._draw, "0123456789"
        others = [draw.choice(digits) if one in digits and draw.random() < 0.3 else one for one in name]
        harms = {
            "half": (name, content[: draw.randrange(len(content) + 1)]),
            "garbage": (name, draw.randbytes(draw.choice((0, 10, 5000)))),
            "renamed": ("".join(others), content),
            "stale": (name, draw.choice(self._old or [b""])),
            "conflict": (f"{name} (conflict copy)", content),
            "twice": (name, content),
        }
        for harm, delivery in harms.items():
            if draw.random() < 0.4:
                self._due.append(delivery)
                self.counts[harm] += 1
        self._due.append((name, content))
        self.counts["copied"] += 1
        self._old = [*self._old[-7:], content]


def main(seed: str, *folders: str) -> None:
    """Copy between folders until a signal ends the process."""
    pairs = zip(map(Path, folders[::2]), map(Path, folders[1::2]), strict=True)
    copiers = [
        WorstCopier(Random(f"{seed} {k}"), FolderFiles(one), FolderFiles(other))
        for k, (one, other) in enumerate(pairs)
    ]
    while True:
        for copier in copiers:
            copier.step()
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
