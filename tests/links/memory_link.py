"""A link in memory: both ends share two tables of files, which a test may harm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mpifl.wings.sites.letters import FileMark, NotThere
from mpifl.wings.sites.letters.letter_names import NAME

Side = Literal["down", "up"]
Shared = dict[Side, dict[str, bytes]]


class MemoryLink:
    """One end; `shared` has the files of both sides."""

    threads = 1

    def __init__(self, shared: Shared, outgoing: Side) -> None:
        self._out = shared.setdefault(outgoing, {})
        self._in = shared.setdefault("up" if outgoing == "down" else "down", {})

    def put(self, name: str, source: Path) -> None:
        self._out[name] = source.read_bytes()

    def stage(self, name: str, content: memoryview) -> None:
        pass

    def unstage(self) -> None:
        pass

    def names(self, own: bool = False) -> Mapping[str, FileMark]:
        files = self._out if own else self._in
        return {
            name: (len(content), hash(content)) for name, content in files.items() if NAME.fullmatch(name)
        }

    def get(self, name: str, start: int, length: int) -> bytes:
        if name not in self._in:
            raise NotThere(name)
        return self._in[name][start : start + length]

    def remove(self, name: str) -> None:
        self._out.pop(name, None)

    def told(self, name: str) -> str:
        return name
