# SPDX-License-Identifier: Apache-2.0
"""Handler of .../executions/{eid}/events: Server-Sent Events of output and end, resumable by id.

An id is "STDOUT-STDERR", the bytes of each stream sent up to and including the event. So the server
keeps no state for a client that connects again.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from aiohttp import web

from sandboxd.api.following import Reader, whole_or_broken
from sandboxd.api.moments import check_times, offset_since
from sandboxd.api.records import execution_bytes
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.api.sending import event_stream, finish, send
from sandboxd.core.model import Stream
from sandboxd.core.times import OutputTimes
from sandboxd.errors import InvalidRequest
from sandboxd.wire.answers import Answer, ExecutionAnswer, OutputEvent
from sandboxd.wire.queries import MAX_OFFSET, ExecutionEventsQuery
from sandboxd.wire.requests import Nothing

_CHUNK_BYTES = 32 << 10
_LAST_ID = "Last-Event-ID"
_ID = re.compile(r"(\d{1,20})-(\d{1,20})(-exit)?", re.ASCII)


async def follow_execution(
    call: Call[Nothing, ExecutionEventsQuery],
) -> web.StreamResponse | Reply:
    """Send all output, or output after Last-Event-ID, and the end.

    Raises RangeNotSatisfiable, OutputTimesUnknown.
    """
    execution = call.engine.get_execution(call.caller, call.sandbox, call.execution)
    stdout, stderr, is_over = _place(call.request.headers.get(_LAST_ID))
    if is_over and execution.is_finished:
        # 204 makes an EventSource stop reconnecting (HTML standard, Server-sent events).
        return Reply(204)
    if call.query.timestamps:
        await check_times(call.engine, execution)
    offsets: dict[Stream, int] = {"stdout": stdout, "stderr": stderr}
    for stream, offset in offsets.items():
        since = await offset_since(call.engine, execution, stream, call.query.since)
        offsets[stream] = max(offset, since)
    reader = Reader(call.engine, execution, offsets)
    await reader.check()
    response = event_stream(call.request_id)
    async with (
        whole_or_broken(call, response),
        call.work.streaming(call.caller.uid, execution.id),
    ):
        with call.engine.follow(call.caller, call.sandbox, call.execution) as news:
            await response.prepare(call.request)
            await _tell(call, reader, news, response)
            await finish(response)
    return response


async def _tell(
    call: Call[Nothing, ExecutionEventsQuery],
    reader: Reader,
    news: asyncio.Event,
    response: web.StreamResponse,
) -> None:
    execution, texts = reader.execution, _Texts(reader)
    is_to_end = call.query.follow or execution.is_finished
    pieces: AsyncGenerator[tuple[Stream, bytes] | None, None] = reader.there(
        chunk_bytes=_CHUNK_BYTES
    )
    if call.query.follow:
        pieces = reader.follow(news, chunk_bytes=_CHUNK_BYTES)
    async with aclosing(pieces):
        async for piece in pieces:
            if piece is None:
                await send(response, b": still here\n\n")
                continue
            if call.query.timestamps:
                texts.times[piece[0]] = await call.engine.output_times(execution, piece[0])
            for told in texts.take(*piece):
                # With times, a piece of 32 KiB may become thousands of events.
                await call.share.turn()
                await send(response, told)
    if not is_to_end:
        return
    for told in texts.rest():
        await send(response, told)
    await call.share.hold(execution_bytes(execution))
    answer = ExecutionAnswer.of(execution, None, None)
    await send(response, _event(f"{texts.place}-exit", "exit", answer))


class _Texts:
    """Cuts output between characters; an incomplete character waits for the missing bytes.

    times: by stream, where times are sent: output of a different time becomes a separate event.
    """

    def __init__(self, reader: Reader) -> None:
        self._offsets = dict(reader.offsets)
        self._waiting: dict[Stream, bytes] = dict.fromkeys(reader.offsets, b"")
        self.times: dict[Stream, OutputTimes | None] = {}

    @property
    def place(self) -> str:
        """Return the id of the last event."""
        return f"{self._offsets['stdout']}-{self._offsets['stderr']}"

    def take(self, stream: Stream, data: bytes) -> Iterator[bytes]:
        """Yield events for the complete characters of a stream's next bytes."""
        data = self._waiting[stream] + data
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(data)
        size = len(data) - len(decoder.getstate()[0])
        self._waiting[stream] = data[size:]
        yield from self._by_time(stream, data[:size])

    def rest(self) -> Iterator[bytes]:
        """Yield events for the incomplete characters at the streams' ends."""
        for stream, data in self._waiting.items():
            yield from self._by_time(stream, data)

    def _by_time(self, stream: Stream, data: bytes) -> Iterator[bytes]:
        times, begin, done = self.times.get(stream), self._offsets[stream], 0
        for cut in () if times is None else times.cuts(begin, begin + len(data)):
            place = _next_character(data, cut - begin)
            if done < place:
                yield self._of(stream, data[done:place])
                done = place
        if done < len(data):
            yield self._of(stream, data[done:])

    def _of(self, stream: Stream, data: bytes) -> bytes:
        offset = self._offsets[stream]
        times = self.times.get(stream)
        told = OutputEvent.of(offset, data, None if times is None else times.at(offset))
        self._offsets[stream] += len(data)
        return _event(self.place, stream, told)


def _next_character(data: bytes, place: int) -> int:
    """Return the first place from `place` on that is not within a UTF-8 character."""
    for end in range(place, min(place + 3, len(data))):
        if data[end] & 0xC0 != 0x80:
            return end
    return min(place + 3, len(data))


def _event(place: str, name: str, data: Answer) -> bytes:
    """Return a Server-Sent Event. JSON has no line breaks, which would end the data field."""
    text = data.model_dump_json(exclude_none=name != "exit")
    return f"id: {place}\nevent: {name}\ndata: {text}\n\n".encode()


def _place(last_id: str | None) -> tuple[int, int, bool]:
    if last_id is None:
        return 0, 0, False
    found = _ID.fullmatch(last_id)
    if found is None or max(int(found[1]), int(found[2])) > MAX_OFFSET:
        raise InvalidRequest.field(_LAST_ID, "not the id of an event")
    return int(found[1]), int(found[2]), found[3] is not None
