# SPDX-License-Identifier: Apache-2.0
"""What is in a sandbox's home: entries, and the paths that name them. Paths are bytes."""

from __future__ import annotations

import enum
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime

from sandboxd.errors import InvalidRequest, SandboxdError

# limits.h: NAME_MAX, and PATH_MAX less the NUL.
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4095
# Of all paths and targets of links in one listing.
MAX_LISTED_BYTES = 4 << 20
# No path is looked up or walked to in less than a step for each of its names.
MAX_DEPTH = 256


class EntryKind(enum.StrEnum):
    """What an entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"

    @classmethod
    def of_mode(cls, mode: int) -> EntryKind:
        """From st_mode."""
        kinds = {
            stat.S_IFREG: cls.FILE,
            stat.S_IFDIR: cls.DIRECTORY,
            stat.S_IFLNK: cls.SYMLINK,
            stat.S_IFIFO: cls.FIFO,
            stat.S_IFSOCK: cls.SOCKET,
        }
        return kinds.get(stat.S_IFMT(mode), cls.DEVICE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. path: relative to the home, b"" for the home itself, or absolute where that was
    asked for. target: a symlink's."""

    path: bytes
    kind: EntryKind
    size_bytes: int
    mode: int
    modified_at: datetime
    target: bytes | None = None

    @classmethod
    def of(cls, path: bytes, found: os.stat_result, target: bytes | None = None) -> Entry:
        """From a stat result."""
        return cls(
            path=path,
            kind=EntryKind.of_mode(found.st_mode),
            size_bytes=found.st_size,
            mode=stat.S_IMODE(found.st_mode),
            modified_at=_time(found.st_mtime),
            target=target,
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries below a directory by path; truncated: there are more than were asked for, or than
    MAX_LISTED_BYTES hold."""

    entries: list[Entry]
    truncated: bool

    @property
    def size_bytes(self) -> int:
        """Of its paths and targets."""
        return sum(len(entry.path) + len(entry.target or b"") for entry in self.entries)


def clean_path(path: bytes, field: str) -> bytes:
    """A path without empty and `.` components: relative to the home, b"" = the home itself, or
    absolute, as a program in the sandbox has it.

    Raises InvalidRequest for `..`, NUL and what is longer than the kernel takes.
    """
    if b"\0" in path:
        raise InvalidRequest.field(field, "must not have a NUL byte")
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise InvalidRequest.field(field, "must not have a `..` component")
    if any(len(part) > MAX_NAME_BYTES for part in parts):
        raise InvalidRequest.field(field, f"has a name of over {MAX_NAME_BYTES} bytes")
    if len(parts) > MAX_DEPTH:
        raise InvalidRequest.field(field, f"has over {MAX_DEPTH} names")
    cleaned = (b"/" if path.startswith(b"/") else b"") + b"/".join(parts)
    if len(cleaned) > MAX_PATH_BYTES:
        raise InvalidRequest.field(field, f"is longer than {MAX_PATH_BYTES} bytes")
    return cleaned


def join(directory: bytes, name: bytes) -> bytes:
    """The path of what is below a directory; b"" = the home."""
    return directory + b"/" + name if directory else name


def shown(path: bytes) -> str:
    """A path for people."""
    return repr(path.decode("utf-8", "backslashreplace"))[:256]


def _time(seconds: float) -> datetime:
    """utimensat(2) takes times that datetime does not."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


# Of one run.
MAX_BATCH_FILES = 256


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to be written; mode None = the default."""

    path: bytes
    data: bytes
    mode: int | None


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was after a run, or the error that reading it was."""

    path: bytes
    data: bytes = b""
    mode: int = 0
    error: SandboxdError | None = None
