# SPDX-License-Identifier: Apache-2.0
"""Queries and answers about a sandbox's files."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from sandboxd.core.entries import Entry, EntryKind, ReadFile
from sandboxd.wire.answers import Answer, ExecutionAnswer
from sandboxd.wire.quantities import Mode
from sandboxd.wire.queries import Switch, whole_number
from sandboxd.wire.requests import Request

# Seconds until the year 2242, later than any real file's; ext4 stores times until 2446.
MAX_MTIME = 1 << 33
MAX_DEPTH = 4096
MAX_ENTRIES = 10_000


class WriteQuery(Request):
    """PUT .../files/{path}."""

    mode: Mode | None = None
    """Permission bits; default: those of the replaced file, else 0644."""
    parents: Switch = False
    """Make missing parent directories."""
    mtime: Annotated[int, whole_number(0, MAX_MTIME)] | None = None
    """Modification time of the file, in seconds since 1970; default: now."""


class ChangeQuery(Request):
    """POST .../files/{path}."""

    op: Literal["mkdir", "rename"]
    to: str | None = None
    """The new path, for rename."""
    mode: Mode | None = None
    """Permission bits of a new directory; default: 0755."""
    parents: Switch = False
    """Make missing parent directories; an existing directory is no error."""


class ListQuery(Request):
    """GET .../directories/{path}."""

    depth: Annotated[
        int, whole_number(0, MAX_DEPTH), Field(description="levels; 0 = the entry itself")
    ] = 1
    limit: Annotated[
        int, whole_number(1, MAX_ENTRIES), Field(description="entries in the answer")
    ] = MAX_ENTRIES


class EntryAnswer(Answer):
    """An entry. Text has U+FFFD for bytes that are not UTF-8; then base64 fields are present."""

    name: str
    path: str
    path_base64: str | None = None
    type: EntryKind
    size_bytes: int
    mode: str
    modified_at: datetime
    target: str | None
    target_base64: str | None = None

    @model_serializer(mode="wrap")
    def _leave_out_base64(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {k: v for k, v in fields.items() if v is not None or not k.endswith("_base64")}

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Return the answer about `entry`."""
        path, path_base64 = _text(entry.path)
        target, target_base64 = (None, None) if entry.target is None else _text(entry.target)
        return cls(
            name=path.rpartition("/")[2],
            path=path,
            path_base64=path_base64,
            type=entry.kind,
            size_bytes=entry.size_bytes,
            mode=f"{entry.mode:04o}",
            modified_at=entry.modified_at,
            target=target,
            target_base64=target_base64,
        )


class DirectoryAnswer(Answer):
    """The entries below a directory, by path.

    truncated: the directory has more than `limit` entries, or than 4 MiB of paths.
    """

    entries: list[EntryAnswer]
    truncated: bool


def _text(data: bytes) -> tuple[str, str | None]:
    text = data.decode("utf-8", "replace")
    lossless = text.encode() == data
    return text, None if lossless else base64.b64encode(data).decode("ascii")


class FileError(Answer):
    """Why a file could not be read."""

    code: str
    message: str


class ReadFileAnswer(Answer):
    """A file after a run: content as `text`, or as `base64` where text loses bytes; or `error`."""

    path: str
    size_bytes: int | None
    mode: str | None
    text: str | None
    base64: str | None
    error: FileError | None

    @classmethod
    def of(cls, file: ReadFile) -> Self:
        """Return the answer about `file`."""
        path = file.path.decode("utf-8", "replace")
        if file.error is not None:
            error = FileError(code=file.error.code, message=file.error.message)
            return cls(path=path, size_bytes=None, mode=None, text=None, base64=None, error=error)
        text, encoded = _text(file.data)
        return cls(
            path=path, size_bytes=len(file.data), mode=f"{file.mode:04o}", error=None,
            text=text if encoded is None else None, base64=encoded,
        )  # fmt: skip


class RunAnswer(ExecutionAnswer):
    """An execution, with the files read after the end."""

    files: list[ReadFileAnswer] | None = None
