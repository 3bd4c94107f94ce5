# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events: a parser (HTML standard, 9.2.6), and resumption after a lost connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sandboxd.client.calls import RESTART_SECONDS, RETRY_SECONDS, Client
from sandboxd.client.refusals import unreadable
from sandboxd.client.request import AWAY, Request

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
    daemon's refusals, and DaemonUnreachable or ConnectionLost when the daemon stays away for
    RESTART_SECONDS.
    """
    last_id, give_up = "", 0.0
    while True:
        parser = EventParser()
        try:
            with client.open(request(last_id)) as chunks:
                give_up = time.monotonic() + RESTART_SECONDS
                for chunk in chunks:
                    for event in parser.feed(chunk):
                        last_id = event.id or last_id
                        yield event
        except AWAY:
            # At the first connection give_up is 0: a daemon never reached raises at once.
            if time.monotonic() > give_up:
                raise
        # No event says when the daemon is back.
        time.sleep(RETRY_SECONDS)
