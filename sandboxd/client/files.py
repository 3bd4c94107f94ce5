# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox. Paths are relative to its home, or absolute as its programs have them."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from typing import overload

from sandboxd.client import file_routes, trees
from sandboxd.client.calls import Client
from sandboxd.client.refusals import NoBody
from sandboxd.client.results import Entry


class Files:
    """`sandbox.files`. Methods raise FileMissing and FileConflict of sandboxd.errors."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    @overload
    def read(self, path: str, *, encoding: str = "utf-8") -> str: ...

    @overload
    def read(self, path: str, *, encoding: None) -> bytes: ...

    def read(self, path: str, *, encoding: str | None = "utf-8") -> str | bytes:
        """The whole file as text, or with encoding=None its bytes."""
        data = b"".join(self.stream(path))
        return data if encoding is None else data.decode(encoding)

    def stream(self, path: str) -> Iterator[bytes]:
        """The file's bytes in pieces, for one that need not fit into memory."""
        with self._client.open(file_routes.read(self._sandbox_id, path)) as pieces:
            yield from pieces

    def write(self, path: str, data: file_routes.Data, *, mode: int | None = None) -> None:
        """Make or replace the file, whole or not at all; directories above it are made.

        data: text, bytes, or pieces of bytes that need not fit into memory. mode: permission
        bits; without it those of the file that is replaced, else 0644.
        """
        self._client.ask(file_routes.write(self._sandbox_id, path, data, mode=mode))

    def stat(self, path: str) -> Entry:
        """What is at the path, its size, mode and time among it; links are followed."""
        answer = self._client.ask(file_routes.list_directory(self._sandbox_id, path, 0))
        return Entry.of(answer["entries"][0])

    def upload(self, source: str | os.PathLike[str], target: str) -> builtins.list[str]:
        """Copy a file or a directory and all in it from this host to the path `target`, with modes,
        times and links; returns what was left out, with why.

        A directory at `target` is filled, a file there is replaced.
        """
        skipped = trees.Skipped()
        if os.path.isdir(source):
            self.make_dir(target)
            pieces = trees.pack(os.fspath(source), skipped)
            self._client.ask(file_routes.write_archive(self._sandbox_id, target, pieces))
        else:
            with open(source, "rb") as file:
                self._client.ask(file_routes.write_copy(self._sandbox_id, target, file))
        return skipped.said

    def download(self, source: str, target: str | os.PathLike[str]) -> builtins.list[str]:
        """Copy a file or a directory and all in it to the path `target` on this host; returns what
        was left out, with why: links that lead out of the directory, sockets and the like.

        Nothing is written through a link, whatever the sandbox sends.
        """
        found, skipped = self.stat(source), trees.Skipped()
        is_directory = found.type == "directory"
        route = file_routes.read_archive if is_directory else file_routes.read
        mode, mtime = found.kept
        with self._client.open(route(self._sandbox_id, source)) as pieces:
            trees.put(
                pieces, os.fspath(target), skipped,
                is_directory=is_directory, mode=mode, mtime=mtime,
            )  # fmt: skip
        return skipped.said

    def list(self, path: str = "", *, depth: int = 1) -> builtins.list[Entry]:
        """What is below a directory, `depth` levels of it, by path."""
        answer = self._client.ask(file_routes.list_directory(self._sandbox_id, path, depth))
        return [Entry.of(entry) for entry in answer["entries"]]

    def exists(self, path: str) -> bool:
        """Whether anything is there that a program could open: a file or a directory."""
        try:
            self._client.ask(file_routes.look(self._sandbox_id, path))
        except NoBody as exc:
            if exc.status != 404:
                raise
            # It may be the sandbox that is not there, and an answer to HEAD cannot say so.
            self._client.get_sandbox(self._sandbox_id)
            return False
        return True

    def remove(self, path: str) -> None:
        """Delete a file, or a directory and all below it."""
        self._client.ask(file_routes.remove(self._sandbox_id, path))

    def rename(self, path: str, to: str) -> None:
        """Give it another path; a file that is there is replaced."""
        self._client.ask(file_routes.rename(self._sandbox_id, path, to))

    def make_dir(self, path: str, *, mode: int | None = None) -> None:
        """Make a directory and those above it; one that is there already is fine."""
        self._client.ask(file_routes.make_dir(self._sandbox_id, path, mode))
