# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox. Paths are relative to the home, or absolute as programs inside see them."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncGenerator, Iterator
from typing import overload

from sandboxd.client import file_routes, routes, trees
from sandboxd.client.blocking import blocking, iterate
from sandboxd.client.calls import Flows
from sandboxd.client.refusals import NoBody
from sandboxd.client.results import Entry


class AsyncFiles:
    """`sandbox.files`. Methods raise FileMissing and FileConflict of sandboxd.errors."""

    def __init__(self, client: Flows, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    @overload
    async def read(self, path: str, *, encoding: str = "utf-8") -> str: ...

    @overload
    async def read(self, path: str, *, encoding: None) -> bytes: ...

    async def read(self, path: str, *, encoding: str | None = "utf-8") -> str | bytes:
        """Return the whole file as text, or with encoding=None as bytes."""
        data = await self._client.transport.read(file_routes.read(self._sandbox_id, path))
        return data if encoding is None else data.decode(encoding)

    def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """Iterate over the file's bytes in pieces, without holding the whole file in memory."""
        return self._client.transport.stream(file_routes.read(self._sandbox_id, path))

    async def write(self, path: str, data: file_routes.Data, *, mode: int | None = None) -> None:
        """Make or replace the file, whole or not at all; missing directories above are made.

        data: text, bytes, or pieces of bytes that need not fit into memory. mode: permission bits;
        default: the replaced file's, else 0644.
        """
        await self._client.ask(file_routes.write(self._sandbox_id, path, data, mode=mode))

    async def stat(self, path: str) -> Entry:
        """Return type, size, mode and mtime of the path; links are followed."""
        request = file_routes.list_directory(self._sandbox_id, path, 0)
        return Entry.of((await self._client.ask(request))["entries"][0])

    async def upload(self, source: str | os.PathLike[str], target: str) -> builtins.list[str]:
        """Copy a file or directory from this host to `target`; return a line for each skipped path.

        Modes, times and links are kept. An existing directory at `target` is filled, an existing
        file is replaced.
        """
        skipped, path = trees.Skipped(), os.fspath(source)
        # isdir and open block too briefly for a thread.
        if os.path.isdir(path):  # noqa: ASYNC240
            async with self._client.waits.made(trees.pack(path, skipped)) as pieces:
                await self.make_dir(target)
                await self._client.ask(file_routes.write_archive(self._sandbox_id, target, pieces))
        else:
            with open(path, "rb") as file:  # noqa: ASYNC230
                await self._client.ask(file_routes.write_copy(self._sandbox_id, target, file))
        return skipped.said

    async def download(self, source: str, target: str | os.PathLike[str]) -> builtins.list[str]:
        """Copy a file or directory to `target` on this host; return a line for each skipped path.

        Skipped are links that lead out of the directory, and all but files, directories and links.
        No write follows a link, however hostile the sandbox.
        """
        found, skipped = await self.stat(source), trees.Skipped()
        is_directory = found.type == "directory"
        route = file_routes.read_archive if is_directory else file_routes.read
        mode, mtime = found.kept
        await self._client.waits.taken(
            self._client.transport.stream(route(self._sandbox_id, source)),
            lambda pieces: trees.put(
                pieces, os.fspath(target), skipped,
                is_directory=is_directory, mode=mode, mtime=mtime,
            ),
        )  # fmt: skip
        return skipped.said

    async def list(self, path: str = "", *, depth: int = 1) -> builtins.list[Entry]:
        """List a directory, `depth` levels deep, sorted by path."""
        request = file_routes.list_directory(self._sandbox_id, path, depth)
        return [Entry.of(entry) for entry in (await self._client.ask(request))["entries"]]

    async def exists(self, path: str) -> bool:
        """Return whether a program inside could open the path: a file or a directory."""
        try:
            await self._client.ask(file_routes.look(self._sandbox_id, path))
        except NoBody as exc:
            if exc.status != 404:
                raise
            # 404 may mean the sandbox; an answer to HEAD has no body to say so.
            await self._client.ask(routes.get_sandbox(self._sandbox_id))
            return False
        return True

    async def remove(self, path: str) -> None:
        """Delete a file, or a directory with all content."""
        await self._client.ask(file_routes.remove(self._sandbox_id, path))

    async def rename(self, path: str, to: str) -> None:
        """Move a file or directory to a new path; an existing file there is replaced."""
        await self._client.ask(file_routes.rename(self._sandbox_id, path, to))

    async def make_dir(self, path: str, *, mode: int | None = None) -> None:
        """Make a directory and missing directories above; an existing directory is no error."""
        await self._client.ask(file_routes.make_dir(self._sandbox_id, path, mode))


class Files:
    """`sandbox.files`. Methods raise FileMissing and FileConflict of sandboxd.errors."""

    def __init__(self, flow: AsyncFiles) -> None:
        self._flow = flow

    read = blocking(AsyncFiles.read)

    def stream(self, path: str) -> Iterator[bytes]:
        """Iterate over the file's bytes in pieces, without holding the whole file in memory."""
        return iterate(self._flow.stream(path))

    write = blocking(AsyncFiles.write)
    stat = blocking(AsyncFiles.stat)
    upload = blocking(AsyncFiles.upload)
    download = blocking(AsyncFiles.download)
    list = blocking(AsyncFiles.list)
    exists = blocking(AsyncFiles.exists)
    remove = blocking(AsyncFiles.remove)
    rename = blocking(AsyncFiles.rename)
    make_dir = blocking(AsyncFiles.make_dir)
