# SPDX-License-Identifier: Apache-2.0
"""Opens paths that a hostile program controls: resolved by the kernel, never out of the home.

No call can be made to wait: a path whose file a program may have replaced is opened only as a name
(O_PATH), checked, and then opened again through that descriptor.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandboxd.core.entries import EntryKind, shown
from sandboxd.errors import (
    AccessDenied,
    DiskQuotaExceeded,
    FileConflict,
    FileMissing,
    HostDiskFull,
    InvalidRequest,
    SandboxdError,
)
from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import closing_fd, path_of

_RESOLVE = linux.RESOLVE_BENEATH | linux.RESOLVE_NO_MAGICLINKS | linux.RESOLVE_NO_XDEV
# A rename anywhere on the host while `..` is resolved makes openat2(2) fail with EAGAIN.
_TRIES = 100
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_NAME = os.O_PATH | os.O_DIRECTORY
# O_NONBLOCK: a lease that a program took (fcntl(2), F_SETLEASE) blocks open(2).
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def opened_home(path: str) -> Iterator[int]:
    """Open the home; closed at the end. Root alone owns the parents, so the path can be trusted."""
    with closing_fd(os.open(path, os.O_PATH | os.O_NOFOLLOW | _DIRECTORY)) as fd:
        yield fd


@contextmanager
def opened(home: int, path: bytes, flags: int, *, follow: bool = True) -> Iterator[int]:
    """Open as `open_beneath` does; closed at the end."""
    with closing_fd(open_beneath(home, path, flags, follow=follow)) as fd:
        yield fd


def open_beneath(home: int, path: bytes, flags: int, *, follow: bool = True) -> int:
    """Open `path` (b"" = the home) below `home`, following links within the home. Raises OSError.

    follow: whether symbolic links are allowed on the way and at the end.
    """
    resolve = _RESOLVE if follow else _RESOLVE | linux.RESOLVE_NO_SYMLINKS
    for _ in range(_TRIES):
        try:
            return linux.openat2(home, path or b".", flags, resolve=resolve)
        except BlockingIOError:
            continue
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)


def open_regular(home: int, path: bytes, uid: int, *, follow: bool = True) -> int:
    """Open a regular file of `uid` for reading. Raises OSError; FileConflict for other kinds."""
    with opened(home, path, os.O_PATH, follow=follow) as name:
        check_own_regular(os.fstat(name), path, uid)
        return os.open(path_of(name), _READ)


def open_directory(home: int, path: bytes, *, follow: bool = True) -> int:
    """Open a directory for listing. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
    return open_beneath(home, path, flags, follow=follow)


@contextmanager
def opened_parent(home: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the last component's directory, opened, and the component. Raises OSError."""
    parent, _, name = path.rpartition(b"/")
    with opened(home, parent, os.O_PATH | os.O_DIRECTORY) as fd:
        yield fd, name


def make_directories(home: int, path: bytes, mode: int) -> None:
    """Make a directory and missing parents. Raises OSError.

    Each directory is made below the parent's descriptor, at any depth. Links in the existing part
    of the path are followed.
    """
    parts = path.split(b"/")
    there = _how_much_is_there(home, parts)
    if there == len(parts):
        return
    fd = open_beneath(home, b"/".join(parts[:there]), _NAME)
    try:
        for name in parts[there:]:
            with suppress(FileExistsError):
                make_directory(fd, name, mode)
            try:
                below = open_beneath(fd, name, _NAME, follow=False)
            except OSError as exc:
                if exc.errno != errno.ELOOP:
                    raise
                # A dangling link, or a link that a program has just made.
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from exc
            os.close(fd)
            fd = below
    finally:
        os.close(fd)


def _how_much_is_there(home: int, parts: list[bytes]) -> int:
    """Return how many leading directories exist; a binary search, as links make look-ups long."""
    there, missing = 0, len(parts) + 1
    asked = len(parts)
    while missing - there > 1:
        try:
            os.close(open_beneath(home, b"/".join(parts[:asked]), _NAME))
            there = asked
        except FileNotFoundError:
            missing = asked
        asked = (there + missing) // 2
    return there


def make_directory(parent: int, name: bytes, mode: int) -> None:
    """Make a directory of exactly `mode`, whatever the umask. Raises OSError."""
    os.mkdir(name, stat.S_IRWXU, dir_fd=parent)
    # A program may have replaced the directory already: the replacement keeps the program's mode.
    with suppress(OSError), opened(parent, name, os.O_PATH | os.O_DIRECTORY, follow=False) as fd:
        os.chmod(path_of(fd), mode)


def check_regular(found: os.stat_result, path: bytes) -> None:
    """Raise FileConflict unless the file is a regular file."""
    if not stat.S_ISREG(found.st_mode):
        kind = EntryKind.of_mode(found.st_mode)
        hint = "see directories/ and archive/" if kind is EntryKind.DIRECTORY else None
        raise FileConflict(
            f"cannot use {shown(path)} as a file: it is a {kind}",
            hint=hint,
            details={"type": kind.value},
        )


def check_own_regular(found: os.stat_result, path: bytes, uid: int) -> None:
    """Raise FileConflict unless regular, AccessDenied for a foreign uid's: links may lead there."""
    check_regular(found, path)
    if found.st_uid != uid:
        raise AccessDenied(f"cannot use {shown(path)}: it is not the sandbox's")


_CONFLICTS = {
    errno.ENOTDIR: "something on the way there is no directory",
    errno.EISDIR: "it is a directory",
    errno.EEXIST: "something is there already",
    errno.ENOTEMPTY: "the directory there is not empty",
    errno.ELOOP: "too many symbolic links",
    errno.EINVAL: "a directory cannot become its own descendant",
    errno.EBUSY: "it is being changed or held",
    errno.EAGAIN: "a process in the sandbox holds a lease on it",
    errno.ETXTBSY: "it is being executed",
    errno.ESTALE: "it has just been removed",
    errno.EROFS: "it is read-only, as a snapshot is",
    errno.EMLINK: "a directory on the way there is full",
}


# For calls where only a directory on the way can be missing.
WITH_PARENTS = "a directory on the way there is missing: ?parents=true makes it"


@contextmanager
def named(verb: str, path: bytes, *, missing: str | None = None) -> Iterator[None]:
    """Turn an OSError into "cannot VERB PATH: cause". missing: the hint for ENOENT."""
    try:
        yield
    except OSError as exc:
        raise _error(exc, f"cannot {verb} {shown(path)}", missing) from exc


def _error(exc: OSError, what: str, missing: str | None) -> SandboxdError | OSError:
    number = exc.errno
    if number == errno.ENOENT:
        return FileMissing(f"{what}: no such file or directory", hint=missing)
    if number == errno.EXDEV:
        return AccessDenied(
            f"{what}: a symbolic link on the way leads out of the directory it is in",
            hint="links are followed within the home and within /tmp, if they are relative",
        )
    if number in (errno.EACCES, errno.EPERM):
        return AccessDenied(f"{what}: the sandbox's own uid may not")
    if number == errno.ENAMETOOLONG:
        return InvalidRequest.field("path", "too long for the file system")
    if number == errno.EDQUOT:
        return DiskQuotaExceeded(
            f"{what}: the sandbox's disk limit is reached",
            hint="delete something, or raise disk_bytes",
        )
    if number == errno.ENOSPC:
        return HostDiskFull(f"{what}: {exc.strerror}", hint="free space on the host's disk")
    if number in _CONFLICTS:
        return FileConflict(f"{what}: {_CONFLICTS[number]}")
    return exc
