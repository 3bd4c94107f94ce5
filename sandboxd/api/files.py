# SPDX-License-Identifier: Apache-2.0
"""Handlers of a sandbox's files: raw bytes both ways, listings and archives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.utils import format_datetime
from urllib.parse import unquote_to_bytes

from aiohttp import web
from pydantic_core import to_json

from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.api.sending import asked_range, received_pieces, send_pieces
from sandboxd.core.entries import (
    MAX_LISTED_BYTES,
    MAX_PATH_BYTES,
    Entry,
    EntryKind,
    clean_path,
    shown,
)
from sandboxd.engine.ports.files import (
    MAX_READER_BYTES,
    MAX_WRITER_BYTES,
    ArchiveReader,
    FileReader,
)
from sandboxd.errors import FileConflict, InvalidRequest, SandboxdError
from sandboxd.wire.files import ChangeQuery, EntryAnswer, ListQuery, WriteQuery
from sandboxd.wire.requests import Nothing

_PIECE_BYTES = 256 << 10
# Memory for an entry of a listing, as an object and in JSON, without names.
_ENTRY_BYTES = 1 << 10
# Memory for a byte of a path: the byte itself, and in JSON three bytes where not UTF-8 and 4/3 as
# base64; the last name is there twice.
_NAME_FACTOR = 6
# A path and a link's target.
_MOST_NAME_BYTES = 3 * MAX_PATH_BYTES
_TURN_BYTES = 32 << 10
_TYPES = {
    EntryKind.FILE: "application/octet-stream",
    # A common name for directories, as in Apache.
    EntryKind.DIRECTORY: "application/x-directory",
}


async def read_file(call: Call[Nothing, Nothing]) -> web.StreamResponse:
    """Send a file's bytes, or the range asked for."""
    response: web.StreamResponse | None = None
    try:
        async with call.engine.files(call.caller, call.sandbox) as files:
            reader = await files.open_reader(call.path)
            try:
                size = reader.entry.size_bytes
                asked = asked_range(call.request, size)
                wanted = range(size) if asked is None else asked
                response = _response(call, reader.entry, len(wanted))
                if asked is not None:
                    response.set_status(206)
                    last = asked.stop - 1
                    response.headers["Content-Range"] = f"bytes {asked.start}-{last}/{size}"
                return await send_pieces(call.request, response, _pieces(reader, wanted))
            finally:
                await reader.close()
    except SandboxdError as exc:
        raise _after_status(response, exc) from exc


async def look_at_file(call: Call[Nothing, Nothing]) -> web.StreamResponse:
    """Return the headers of a GET; for a directory, headers that name the type."""
    async with call.engine.files(call.caller, call.sandbox) as files:
        entry = await files.stat(call.path)
    if entry.kind not in _TYPES:
        raise FileConflict(f"cannot use {shown(call.path)} as a file: it is a {entry.kind}")
    return _response(call, entry, entry.size_bytes if entry.kind is EntryKind.FILE else 0)


async def write_file(call: Call[Nothing, WriteQuery]) -> Reply:
    """Write the body as the file, whole or not at all."""
    query = call.query
    async with call.engine.files(call.caller, call.sandbox) as files:
        writer = await files.open_writer(
            call.path, mode=query.mode, parents=query.parents, mtime=query.mtime
        )
        try:
            async for piece in received_pieces(call.request):
                await writer.write(piece)
            is_new = await writer.commit()
        finally:
            await writer.discard()
    return Reply(201 if is_new else 204)


async def delete_file(call: Call[Nothing, Nothing]) -> Reply:
    """Delete a file or a whole tree; answers after the removal."""

    async def remove() -> None:
        async with call.engine.files(call.caller, call.sandbox) as files:
            await files.remove(call.path)

    await call.work.shield(remove())
    return Reply(204)


async def change_file(call: Call[Nothing, ChangeQuery]) -> Reply:
    """Make a directory or rename an entry."""
    query = call.query
    if (query.op == "rename") != (query.to is not None):
        raise InvalidRequest.field("to", "belongs to rename, and rename needs it")
    if query.op == "rename" and (query.mode is not None or query.parents):
        raise InvalidRequest.field("op", "rename takes neither mode nor parents")
    to = _raw_parameter(call.request, "to")

    async def change() -> None:
        async with call.engine.files(call.caller, call.sandbox) as files:
            if query.op == "rename":
                await files.rename(call.path, clean_path(to, "to"))
            else:
                mode = 0o755 if query.mode is None else query.mode
                await files.make_directory(call.path, mode=mode, parents=query.parents)

    await call.work.shield(change())
    return Reply(204 if query.op == "rename" else 201)


async def list_directory(call: Call[Nothing, ListQuery]) -> Reply:
    """List the entries below a directory."""
    query = call.query
    await call.share.hold(_listing_bytes(query.limit, MAX_LISTED_BYTES))
    async with call.engine.files(call.caller, call.sandbox) as files:
        listing = await files.list(call.path, depth=query.depth, limit=query.limit)
    call.share.shrink(_listing_bytes(len(listing.entries), listing.size_bytes))
    pieces, piece = [], bytearray(b'{"entries":[')
    for number, entry in enumerate(listing.entries):
        piece += b"," if number else b""
        piece += to_json(EntryAnswer.of(entry))
        if len(piece) > _TURN_BYTES:
            pieces.append(bytes(piece))
            piece.clear()
            await call.share.turn()
    piece += b'],"truncated":%b}' % to_json(listing.truncated)
    return Reply(200, pieces=(*pieces, bytes(piece)))


def _listing_bytes(entries: int, name_bytes: int) -> int:
    """Return the memory that a listing takes until the client has the answer."""
    return entries * _ENTRY_BYTES + _NAME_FACTOR * min(name_bytes, entries * _MOST_NAME_BYTES)


async def read_archive(call: Call[Nothing, Nothing]) -> web.StreamResponse:
    """Send a directory's contents, or a single file, as tar."""
    response: web.StreamResponse | None = None
    try:
        async with call.engine.files(call.caller, call.sandbox) as files:
            reader = await files.open_archive_reader(call.path)
            try:
                headers = {"Content-Type": "application/x-tar", "X-Request-Id": call.request_id}
                response = web.StreamResponse(headers=headers)
                return await send_pieces(call.request, response, _archive(call, reader))
            finally:
                await reader.close()
    except SandboxdError as exc:
        raise _after_status(response, exc) from exc


async def write_archive(call: Call[Nothing, Nothing]) -> Reply:
    """Unpack a tar stream into a directory; entries unpacked before an error stay."""
    async with call.engine.files(call.caller, call.sandbox) as files:
        writer = await files.open_archive_writer(call.path)
        try:
            async for piece in received_pieces(call.request):
                await writer.write(piece)
                await call.share.hold_more(writer.kept_bytes, MAX_WRITER_BYTES)
            await writer.finish()
        finally:
            await writer.close()
    return Reply(204)


def _response(call: Call[Nothing, Nothing], entry: Entry, size: int) -> web.StreamResponse:
    return web.StreamResponse(
        headers={
            "Content-Type": _TYPES[entry.kind],
            "Content-Length": str(size),
            "Accept-Ranges": "bytes",
            "Last-Modified": format_datetime(entry.modified_at, usegmt=True),
            "X-File-Type": entry.kind.value,
            "X-File-Mode": f"{entry.mode:04o}",
            "X-Request-Id": call.request_id,
        }
    )


async def _pieces(reader: FileReader, wanted: range) -> AsyncIterator[bytes]:
    offset = wanted.start
    while offset < wanted.stop:
        piece = await reader.read(offset, min(_PIECE_BYTES, wanted.stop - offset))
        if not piece:
            raise FileConflict("cannot send the rest of the file: it has become shorter")
        yield piece
        offset += len(piece)


async def _archive(call: Call[Nothing, Nothing], reader: ArchiveReader) -> AsyncIterator[bytes]:
    while piece := await reader.read():
        await call.share.hold_more(reader.kept_bytes, MAX_READER_BYTES)
        yield piece


def _after_status(response: web.StreamResponse | None, exc: SandboxdError) -> Exception:
    """Return `exc`, or ConnectionResetError, which breaks the connection, if a status was sent."""
    if response is not None and response.prepared:
        return ConnectionResetError(exc.message)
    return exc


def _raw_parameter(request: web.BaseRequest, name: str) -> bytes:
    """Return a query parameter as bytes, since text would lose bytes that are not UTF-8."""
    for part in request.rel_url.raw_query_string.split("&"):
        key, _, value = part.partition("=")
        if key == name:
            return unquote_to_bytes(value.replace("+", " ").encode("utf-8", "surrogateescape"))
    return b""
