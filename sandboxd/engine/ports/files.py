# SPDX-License-Identifier: Apache-2.0
"""The port for a sandbox's files. Paths are clean (entries.clean_path)."""

from __future__ import annotations

from typing import Protocol

from sandboxd.core.entries import Entry, Listing


class FileReader(Protocol):
    """An open regular file."""

    @property
    def entry(self) -> Entry:
        """The file's metadata at the time of the open."""

    async def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset`; fewer only at the end."""

    async def close(self) -> None:
        """Close the file."""


class FileWriter(Protocol):
    """A new file, invisible until `commit`. Callers call `discard` last in any case."""

    async def write(self, data: bytes) -> None:
        """Append. Raises DiskQuotaExceeded, HostDiskFull."""

    async def commit(self) -> bool:
        """Put the file at the path, replacing a file; return whether the path was free."""

    async def discard(self) -> None:
        """Remove the file; no effect after `commit`."""


# Upper bounds of an archive's memory for directories of the tree, to read or to set modes and times
# at the end.
MAX_READER_BYTES = 16 << 20
MAX_WRITER_BYTES = 4 << 20


class ArchiveReader(Protocol):
    """A tree as a tar stream."""

    @property
    def kept_bytes(self) -> int:
        """Memory in use now, at most MAX_READER_BYTES."""

    async def read(self) -> bytes:
        """Return the next piece, at most about a MiB; b"" at the end. Raises FileConflict."""

    async def close(self) -> None:
        """Close the stream."""


class ArchiveWriter(Protocol):
    """Unpacks a tar stream. Files unpacked before an error stay."""

    @property
    def kept_bytes(self) -> int:
        """Memory in use now, at most MAX_WRITER_BYTES."""

    async def write(self, data: bytes) -> None:
        """Take the next piece. Raises InvalidRequest and the errors of file writes."""

    async def finish(self) -> None:
        """End the stream. Raises InvalidRequest for an incomplete stream."""

    async def close(self) -> None:
        """Close the stream."""


class SandboxFiles(Protocol):
    """A sandbox's home and /tmp.

    Paths are relative to the home, or absolute as programs inside see them. Symbolic links are
    followed only within the directory. Every method raises FileMissing where the path does not
    exist, FileConflict for a file of the wrong kind, and AccessDenied for a path that leaves the
    home or a denied operation of the sandbox's uid.
    """

    async def stat(self, path: bytes) -> Entry:
        """Return the entry at a path; a last symbolic link is followed."""

    async def open_reader(self, path: bytes) -> FileReader:
        """Open a regular file to read."""

    async def open_writer(
        self, path: bytes, *, mode: int | None, parents: bool, mtime: int | None = None
    ) -> FileWriter:
        """Open a new file for a path.

        mode: None = the mode of the replaced file, else 0644. mtime: seconds since 1970; None =
        now.
        """

    async def make_directory(self, path: bytes, *, mode: int, parents: bool) -> None:
        """Make a directory. parents: make missing parents too, and accept an existing directory."""

    async def rename(self, path: bytes, to: bytes) -> None:
        """Rename as rename(2): replaces a file, or an empty directory by a directory."""

    async def remove(self, path: bytes) -> None:
        """Remove a file, a symbolic link itself or a whole tree; return after the removal."""

    async def list(self, path: bytes, *, depth: int, limit: int) -> Listing:
        """Return at most `limit` entries below a directory, `depth` levels deep."""

    async def open_archive_reader(self, path: bytes) -> ArchiveReader:
        """Open a directory's contents or one file as a tar stream."""

    async def open_archive_writer(self, path: bytes) -> ArchiveWriter:
        """Open a directory to unpack a tar stream into."""
