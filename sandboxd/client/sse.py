# SPDX-License-Identifier: Apache-2.0
"""Server-Sent Events: their form (HTML standard, 9.2.6), and how to go on after a loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sandboxd.client.calls import RESTART_SECONDS, RETRY_SECONDS, Client
from sandboxd.client.refusals import unreadable
from sandboxd.client.request import AWAY, Request

# Far above what a server puts into one event.
_MAX_EVENT_BYTES = 16 << 20


class Event(NamedTuple):
    """One event; `id` is the last one that was given so far."""

    id: str
    name: str
    data: str


class EventParser:
    """`feed` what came; whole events come out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._size = 0
        self._id = ""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that are complete by now. Raises ConnectionLost for one without an end."""
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
    """Events without an end, over restarts of the daemon.

    request: made anew for each connection, from the last event's id ("" at first). Raises what the
    daemon refuses with, and DaemonUnreachable or ConnectionLost when it stays away for
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
            # Never reached at all: there is nothing to go on with.
            if time.monotonic() > give_up:
                raise
        # No event tells that the daemon is back.
        time.sleep(RETRY_SECONDS)
