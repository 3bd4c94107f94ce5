# SPDX-License-Identifier: Apache-2.0
"""Routes of a sandbox's files as requests, and the paths in the answers."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from sandboxd.client.http import quote
from sandboxd.client.request import Request
from sandboxd.client.routes import sandbox_path

# Large writes and removals take minutes.
_TIMEOUT_SECONDS = 600.0
_PIECE_BYTES = 256 << 10
Data = str | bytes | Iterable[bytes]


def look(ref: str, path: str) -> Request:
    """Ask for the type of a path, in the answer's headers; 404 if the path is missing."""
    return Request("HEAD", _path(ref, "files", path))


def read(ref: str, path: str) -> Request:
    """Read a file's bytes."""
    return Request("GET", _path(ref, "files", path))


def write(
    ref: str, path: str, data: Data, *, mode: int | None = None, mtime: int | None = None,
    size_bytes: int | None = None,
) -> Request:  # fmt: skip
    """Make or replace a file. mtime: since 1970. size_bytes: the length of `data`, if known."""
    query: dict[str, object] = {"parents": "true"}
    if mtime is not None:
        query["mtime"] = max(mtime, 0)
    if mode is not None:
        query["mode"] = octal(mode)
    whole = data.encode() if isinstance(data, str) else data
    is_whole = isinstance(whole, bytes)
    return Request(
        "PUT", _path(ref, "files", path), query=query, timeout_seconds=_TIMEOUT_SECONDS,
        data=whole if isinstance(whole, bytes) else None,
        source=None if isinstance(whole, bytes) else whole,
        size_bytes=None if is_whole else size_bytes,
    )  # fmt: skip


def write_copy(ref: str, path: str, file: BinaryIO) -> Request:
    """Make or replace a file as a copy of an open file: content, permission bits and mtime."""
    found = os.fstat(file.fileno())
    # No size_bytes: the file may grow during the copy.
    return write(ref, path, pieces(file), mode=found.st_mode & 0o777, mtime=int(found.st_mtime))


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """Iterate over an open file from the current position, in pieces."""
    while piece := file.read(_PIECE_BYTES):
        yield piece


def remove(ref: str, path: str) -> Request:
    """Delete a file, or a directory with all content."""
    return Request("DELETE", _path(ref, "files", path), timeout_seconds=_TIMEOUT_SECONDS)


def rename(ref: str, path: str, to: str) -> Request:
    """Move a file or directory to the path `to`."""
    query = {"op": "rename", "to": to}
    return Request("POST", _path(ref, "files", path), query=query)


def make_dir(ref: str, path: str, mode: int | None) -> Request:
    """Make a directory and missing directories above; an existing directory is no error."""
    query = {"op": "mkdir", "parents": "true"}
    if mode is not None:
        query["mode"] = octal(mode)
    return Request("POST", _path(ref, "files", path), query=query)


def list_directory(ref: str, path: str, depth: int) -> Request:
    """List a directory, `depth` levels deep."""
    return Request("GET", _path(ref, "directories", path), query={"depth": depth})


def read_archive(ref: str, path: str) -> Request:
    """Read a directory's content, or one file, as tar."""
    return Request("GET", _path(ref, "archive", path), timeout_seconds=_TIMEOUT_SECONDS)


def write_archive(ref: str, path: str, source: Iterable[bytes]) -> Request:
    """Unpack a tar stream into a directory."""
    return Request(
        "PUT", _path(ref, "archive", path), source=source, timeout_seconds=_TIMEOUT_SECONDS,
        content_type="application/x-tar",
    )  # fmt: skip


def octal(mode: int) -> str:
    """Return permission bits in the API's form."""
    return f"{mode:04o}"


def native_path(entry: dict[str, Any]) -> str:
    """Return an entry's path; bytes that are not UTF-8 are surrogates, as by os.fsdecode."""
    encoded = entry.get("path_base64")
    path: str = entry["path"]
    return path if encoded is None else os.fsdecode(base64.b64decode(encoded))


def _path(ref: str, kind: str, path: str) -> str:
    # The leading slash of an absolute path is encoded: a plain slash after the route's is easily
    # lost.
    leading = "%2F" if path.startswith("/") else ""
    return f"{sandbox_path(ref)}/{kind}/{leading}{quote(path.lstrip('/'), safe='/')}"
