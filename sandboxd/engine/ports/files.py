# SPDX-License-Identifier: Apache-2.0
"""What the engine and the API ask of a sandbox's files. Paths are clean (entries.clean_path)."""

from __future__ import annotations

from typing import Protocol

from sandboxd.core.entries import Entry, Listing


class FileReader(Protocol):
    """An open regular file. `entry` is as it was when it was opened."""

    @property
    def entry(self) -> Entry:
        """What it is."""
        ...

    async def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer only at the end."""
        ...

    async def close(self) -> None:
        """Let it go."""
        ...


class FileWriter(Protocol):
    """A file that is nowhere to be seen until `commit`; `discard` in any case, last."""

    async def write(self, data: bytes) -> None:
        """Append. Raises DiskQuotaExceeded, HostDiskFull."""
        ...

    async def commit(self) -> bool:
        """Put it in its place, in the place of what was there; whether nothing was."""
        ...

    async def discard(self) -> None:
        """Forget it; nothing happens after `commit`."""
        ...


# The most that an archive keeps in memory of a tree's directories, to read them or to set their
# modes and times at the end.
MAX_READER_BYTES = 16 << 20
MAX_WRITER_BYTES = 4 << 20


class ArchiveReader(Protocol):
    """A tree as a tar stream."""

    @property
    def kept_bytes(self) -> int:
        """What it keeps in memory now, at most MAX_READER_BYTES."""
        ...

    async def read(self) -> bytes:
        """The next piece, at most about a MiB; b"" at the end. Raises FileConflict."""
        ...

    async def close(self) -> None:
        """Let it go."""
        ...


class ArchiveWriter(Protocol):
    """Takes a tar stream. What came before an error stays."""

    @property
    def kept_bytes(self) -> int:
        """What it keeps in memory now, at most MAX_WRITER_BYTES."""
        ...

    async def write(self, data: bytes) -> None:
        """The next piece. Raises InvalidRequest and what writing files raises."""
        ...

    async def finish(self) -> None:
        """The stream has ended. Raises InvalidRequest where it broke off."""
        ...

    async def close(self) -> None:
        """Let it go."""
        ...


class SandboxFiles(Protocol):
    """One sandbox's home and /tmp, by relative paths (below the home) and by those that its
    programs have. Symbolic links are followed only as far as they stay in the directory.

    Every method raises FileMissing where nothing is at the path, FileConflict where something else
    is, and AccessDenied for a path that leaves the home or what the sandbox's uid may not do.
    """

    async def stat(self, path: bytes) -> Entry:
        """What is there, a last symbolic link followed."""
        ...

    async def open_reader(self, path: bytes) -> FileReader:
        """A regular file, to be read."""
        ...

    async def open_writer(
        self, path: bytes, *, mode: int | None, parents: bool, mtime: int | None = None
    ) -> FileWriter:
        """A new file for the path. mode: None = that of the file it replaces, else 0644. mtime: in
        seconds since 1970; None = now."""
        ...

    async def make_directory(self, path: bytes, *, mode: int, parents: bool) -> None:
        """parents: also those on the way there, and no error when it is there already."""
        ...

    async def rename(self, path: bytes, to: bytes) -> None:
        """rename(2): replaces a file, or an empty directory by a directory."""
        ...

    async def remove(self, path: bytes) -> None:
        """A file, a link itself, or a whole tree; returns once it is gone."""
        ...

    async def list(self, path: bytes, *, depth: int, limit: int) -> Listing:
        """What is below a directory, `depth` levels of it, at most `limit` entries."""
        ...

    async def open_archive_reader(self, path: bytes) -> ArchiveReader:
        """A directory's contents or one file, as tar."""
        ...

    async def open_archive_writer(self, path: bytes) -> ArchiveWriter:
        """A directory, to unpack a tar stream into."""
        ...
