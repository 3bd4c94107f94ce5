# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox's home: entries, and paths as bytes."""

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
# Sum of all paths and link targets in a listing.
MAX_LISTED_BYTES = 4 << 20
# Bounds the work: a lookup or walk takes at least a step per name.
MAX_DEPTH = 256


class EntryKind(enum.StrEnum):
    """The kind of an entry."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"

    @classmethod
    def of_mode(cls, mode: int) -> EntryKind:
        """Return the kind from st_mode."""
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
    """A file's metadata. path: below the home, or absolute. target: a symbolic link's."""

    path: bytes
    kind: EntryKind
    size_bytes: int
    mode: int
    modified_at: datetime
    target: bytes | None = None

    @classmethod
    def of(cls, path: bytes, found: os.stat_result, target: bytes | None = None) -> Entry:
        """Return the entry of a stat result."""
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
    """Entries below a directory, by path; truncated: by number, or by MAX_LISTED_BYTES."""

    entries: list[Entry]
    truncated: bool

    @property
    def size_bytes(self) -> int:
        """Sum of the bytes of paths and targets."""
        return sum(len(entry.path) + len(entry.target or b"") for entry in self.entries)


def clean_path(path: bytes, field: str) -> bytes:
    """Return a path without empty and `.` components.

    The result is relative to the home (b"" is the home), or absolute as programs inside see the
    path. Raises InvalidRequest for `..`, NUL and lengths above the kernel's bounds.
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
    """Return the path of a name below a directory; b"" is the home."""
    return directory + b"/" + name if directory else name


def shown(path: bytes) -> str:
    """Return a path as text for people, at most 256 characters."""
    return repr(path.decode("utf-8", "backslashreplace"))[:256]


def _time(seconds: float) -> datetime:
    """Return the UTC time, or the epoch. utimensat(2) accepts times outside datetime's range."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


# Files written and files read per run.
MAX_BATCH_FILES = 256


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to write. mode: None = the default."""

    path: bytes
    data: bytes
    mode: int | None


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file read after a run, or the error of the read."""

    path: bytes
    data: bytes = b""
    mode: int = 0
    error: SandboxdError | None = None
