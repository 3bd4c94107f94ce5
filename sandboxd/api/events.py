# SPDX-License-Identifier: Apache-2.0
"""Handler of /v1/events: Server-Sent Events that the caller may see, resumable by id."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress

from aiohttp import web
from pydantic_core import to_json

from sandboxd.api.following import QUIET_SECONDS
from sandboxd.api.routes import Call
from sandboxd.api.sending import event_stream, send
from sandboxd.core.names import is_id
from sandboxd.engine.events import Channel, Event
from sandboxd.errors import Draining, InvalidRequest
from sandboxd.wire.host import EventAnswer
from sandboxd.wire.requests import Nothing

_BATCH = 64
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_LAST_ID = "Last-Event-ID"


async def follow_events(call: Call[Nothing, Nothing]) -> web.StreamResponse:
    """Send all events from now on, or after Last-Event-ID."""
    channel = call.engine.events.channel(call.caller)
    place, is_gap = _place(channel, call.request.headers.get(_LAST_ID))
    response = event_stream(call.request_id)
    # A stream has no length and ends with the connection: no keep-alive.
    response.force_close()
    channel.readers += 1
    try:
        async with call.work.streaming(call.caller.uid, f"the events of uid {call.caller.uid}"):
            await response.prepare(call.request)
            await send(response, b": sandboxd\n\n")
            if is_gap:
                lost = {"message": "events between Last-Event-ID and the next one are lost"}
                await send(response, _text("gap", lost))
            await _follow(response, channel, place)
    except (TimeoutError, _Lagging, Draining) as exc:
        if not response.prepared:
            raise
        await _cut(response, _WHY[type(exc)])
    finally:
        channel.readers -= 1
    return response


class _Lagging(Exception):
    """Raised when the channel has dropped events that the reader has not read."""


_WHY: dict[type[Exception], str] = {
    TimeoutError: "the reader took nothing for too long",
    _Lagging: "the reader was too slow: events it had not read are lost",
    Draining: "sandboxd is stopping",
}


async def _follow(response: web.StreamResponse, channel: Channel, place: int) -> None:
    while True:
        if place + 1 < channel.first:
            raise _Lagging
        for number, event in channel.after(place, _BATCH):
            await send(response, _event(channel, number, event))
            place = number
            if place + 1 < channel.first:
                raise _Lagging
        try:
            async with asyncio.timeout(QUIET_SECONDS):
                await channel.wait_beyond(place)
        except TimeoutError:
            await send(response, b": still here\n\n")


def _place(channel: Channel, last_id: str | None) -> tuple[int, bool]:
    """Return the number of the last event seen, and whether later events are lost."""
    if last_id is None:
        return channel.last, False
    epoch, _, number = last_id.partition("-")
    if not is_id(epoch) or _NUMBER.fullmatch(number) is None:
        raise InvalidRequest.field(_LAST_ID, "not the id of an event")
    if epoch != channel.epoch or int(number) > channel.last:
        return channel.first - 1, True
    is_gap = int(number) + 1 < channel.first
    return (channel.first - 1 if is_gap else int(number)), is_gap


def _event(channel: Channel, number: int, event: Event) -> bytes:
    data = to_json(EventAnswer.model_validate(event))
    return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (
        channel.epoch.encode(), number, event.type.encode(), data,
    )  # fmt: skip


def _text(name: str, data: dict[str, str]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def _cut(response: web.StreamResponse, why: str) -> None:
    """Queue an event saying why the stream ends, without waiting for the client to read."""
    hint = "connect again with Last-Event-ID"
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await response.write(_text("cut", {"message": why, "hint": hint}))
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await response.write_eof()
