# SPDX-License-Identifier: Apache-2.0
"""Handler of .../executions/{eid}/events: Server-Sent Events of output and end, resumable by id.

An id is what of both streams an event and those before it have told, in bytes: "stdout-stderr". So
nothing has to be remembered for a client that comes again.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import aclosing

from aiohttp import web

from sandboxd.api.engine_port import Stream
from sandboxd.api.following import Reader, finish, send, whole_or_broken
from sandboxd.api.records import execution_bytes
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.errors import InvalidRequest
from sandboxd.wire.answers import Answer, ExecutionAnswer, OutputEvent
from sandboxd.wire.queries import MAX_OFFSET
from sandboxd.wire.requests import Nothing

_CHUNK_BYTES = 32 << 10
_LAST_ID = "Last-Event-ID"
_ID = re.compile(r"(\d{1,20})-(\d{1,20})(-exit)?", re.ASCII)


async def follow_execution(call: Call[Nothing, Nothing]) -> web.StreamResponse | Reply:
    """All output, or what comes after Last-Event-ID, and the end. Raises RangeNotSatisfiable."""
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    stdout, stderr, is_over = _place(call.request.headers.get(_LAST_ID))
    if is_over and execution.is_finished:
        # What makes an EventSource stop to connect again.
        return Reply(204)
    reader = Reader(call.engine, execution, {"stdout": stdout, "stderr": stderr})
    await reader.check()
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Request-Id": call.request_id,
        }
    )
    async with (
        whole_or_broken(call, response),
        call.work.streaming(call.caller.uid, execution.id),
    ):
        with call.engine.follow(call.caller, call.sandbox, call.execution) as news:
            await response.prepare(call.request)
            texts = _Texts(reader)
            async with aclosing(reader.follow(news, chunk_bytes=_CHUNK_BYTES)) as pieces:
                async for piece in pieces:
                    if piece is None:
                        await send(response, b": still here\n\n")
                    else:
                        for told in texts.take(*piece):
                            await send(response, told)
            for told in texts.rest():
                await send(response, told)
            await call.share.hold(execution_bytes(execution))
            answer = ExecutionAnswer.of(execution, None, None)
            await send(response, _event(f"{texts.place}-exit", "exit", answer))
            await finish(response)
    return response


class _Texts:
    """Cuts what is read between characters: one that is not complete yet waits for its rest."""

    def __init__(self, reader: Reader) -> None:
        self._offsets = dict(reader.offsets)
        self._waiting: dict[Stream, bytes] = dict.fromkeys(reader.offsets, b"")

    @property
    def place(self) -> str:
        """The id of the last event."""
        return f"{self._offsets['stdout']}-{self._offsets['stderr']}"

    def take(self, stream: Stream, data: bytes) -> Iterator[bytes]:
        """The event for it, unless there is nothing complete."""
        data = self._waiting[stream] + data
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(data)
        size = len(data) - len(decoder.getstate()[0])
        self._waiting[stream] = data[size:]
        if size:
            yield self._of(stream, data[:size])

    def rest(self) -> Iterator[bytes]:
        """Events for what will never be complete."""
        for stream, data in self._waiting.items():
            if data:
                yield self._of(stream, data)

    def _of(self, stream: Stream, data: bytes) -> bytes:
        told = OutputEvent.of(self._offsets[stream], data)
        self._offsets[stream] += len(data)
        return _event(self.place, stream, told)


def _event(place: str, name: str, data: Answer) -> bytes:
    """One event. JSON has no line breaks: inside of strings they are escaped."""
    text = data.model_dump_json(exclude_none=name != "exit")
    return f"id: {place}\nevent: {name}\ndata: {text}\n\n".encode()


def _place(last_id: str | None) -> tuple[int, int, bool]:
    if last_id is None:
        return 0, 0, False
    found = _ID.fullmatch(last_id)
    if found is None or max(int(found[1]), int(found[2])) > MAX_OFFSET:
        raise InvalidRequest.field(_LAST_ID, "not the id of an event")
    return int(found[1]), int(found[2]), found[3] is not None
