# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events: a parser (HTML standard, 9.2.6), and resumption after a lost connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from sandboxd.client.blocking import iterate
from sandboxd.client.calls import Client, Flows
from sandboxd.client.refusals import closed, unreadable
from sandboxd.client.request import AWAY, Absence, Request

# Far above the size of any event of the daemon.
_MAX_EVENT_BYTES = 16 << 20


class Event(NamedTuple):
    """A Server-Sent Event; `id` is the last id received."""

    id: str
    name: str
    data: str


class EventParser:
    """Parser of Server-Sent Events, fed with received bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._size = 0
        self._id = ""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that `data` completes. Raises ConnectionLost above 16 MiB an event."""
        self._buffer += data
        self._size += len(data)
        if self._size > _MAX_EVENT_BYTES:
            raise unreadable("an event that does not end")
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            event = Event(self._id, self._name or "message", "\n".join(self._data))
            is_empty = not self._data
            self._size, self._name, self._data = len(self._buffer), "", []
            return None if is_empty else event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id":
            self._id = value
        return None


def follow_events(client: Client, request: Callable[[str], Request]) -> Iterator[Event]:
    """Iterate over events without an end, over restarts of the daemon.

    request: the request of each connection, by the last event's id ("" at first). Raises the
    daemon's refusals, and DaemonUnreachable or ConnectionLost when the daemon was never reached or
    stays away for RESTART_SECONDS.
    """
    return iterate(flow(client.flow, request, "", has_end=False))


async def flow(
    flows: Flows, request: Callable[[str], Request], last_id: str, *, has_end: bool
) -> AsyncGenerator[Event, None]:
    """Iterate over events after `last_id`, over restarts of the daemon, for both clients.

    has_end: whether the events are of something that ends, and with a whole answer; else an answer
    ends with the daemon alone. Raises as `follow_events` does.
    """
    absence = Absence(was_seen=has_end)
    while True:
        parser = EventParser()
        try:
            with closing(await flows.transport.open(request(last_id))) as answer:
                absence.end()
                while piece := await answer.piece():
                    for event in parser.feed(piece):
                        last_id = event.id or last_id
                        yield event
            if has_end:
                return
            pause = absence.pause_seconds(closed())
        except AWAY as exc:
            pause = absence.pause_seconds(exc)
        await flows.waits.sleep(pause)
