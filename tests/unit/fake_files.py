# SPDX-License-Identifier: Apache-2.0
"""Files that can be read, and that remember which of them were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from sandboxd.core.entries import Entry, EntryKind
from sandboxd.engine.ports.files import SandboxFiles
from sandboxd.errors import FileMissing
from tests.unit.values import NOW


@dataclass
class _Reader:
    entry: Entry
    data: bytes

    async def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    async def close(self) -> None:
        """Nothing to let go of."""


class FakeFiles:
    """`contents` by path; `opened`: paths of files in the order in which they were opened."""

    def __init__(self, contents: dict[bytes, bytes]) -> None:
        self.contents = contents
        self.opened: list[bytes] = []

    @asynccontextmanager
    async def use(self) -> AsyncIterator[SandboxFiles]:
        yield cast("SandboxFiles", self)

    async def stat(self, path: bytes) -> Entry:
        if path not in self.contents:
            raise FileMissing("cannot find the file")
        return Entry(path, EntryKind.FILE, len(self.contents[path]), 0o100640, NOW)

    async def open_reader(self, path: bytes) -> _Reader:
        entry = await self.stat(path)
        self.opened.append(path)
        return _Reader(entry, self.contents[path])
