# SPDX-License-Identifier: Apache-2.0
"""What happened lately to sandboxes and executions, for whoever follows: bounded, in memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime

from sandboxd.core.model import Caller, ErrorCode, EventType, ExecutionStatus, SandboxState
from sandboxd.core.names import new_id

KEPT_EVENTS = 4096
MAX_OWNERS = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `reason`: why a sandbox is released."""

    type: EventType
    at: datetime
    owner_uid: int
    sandbox_id: str
    sandbox_name: str | None
    state: SandboxState
    reason: ErrorCode | None = None
    execution_id: str | None = None
    status: ExecutionStatus | None = None
    error_code: ErrorCode | None = None
    exit_code: int | None = None
    signal: int | None = None


class Channel:
    """The last events that some callers may see, numbered from 1.

    A reader keeps its own place, so a slow one costs nothing, and may lose its place. `epoch` tells
    these numbers from those of another daemon.
    """

    def __init__(self, size: int) -> None:
        self.epoch = new_id()
        self.last = 0
        self.readers = 0
        self._events: deque[Event] = deque(maxlen=size)
        self._news = asyncio.Event()

    @property
    def first(self) -> int:
        """Number of the oldest one kept."""
        return self.last - len(self._events) + 1

    def publish(self, event: Event) -> None:
        """Add one and wake all readers."""
        self._events.append(event)
        self.last += 1
        self._news.set()
        self._news = asyncio.Event()

    def after(self, number: int, count: int) -> list[tuple[int, Event]]:
        """At most `count` that follow `number`, as far as they are kept."""
        begin = max(number + 1, self.first)
        end = min(begin + count, self.last + 1)
        return [(n, self._events[n - self.first]) for n in range(begin, end)]

    async def wait_beyond(self, number: int) -> None:
        """Return once there is one after `number`."""
        while self.last <= number:
            await self._news.wait()


class Events:
    """A channel for each owner, so that nobody's numbers or losses tell of another, and one with
    all for admins."""

    def __init__(self, *, size: int = KEPT_EVENTS, owners: int = MAX_OWNERS) -> None:
        self._size = size
        self._owners = owners
        self._everything = Channel(size)
        self._channels: OrderedDict[int, Channel] = OrderedDict()

    def publish(self, event: Event) -> None:
        """Tell all who may see it."""
        self._everything.publish(event)
        self._channel(event.owner_uid).publish(event)

    def channel(self, caller: Caller) -> Channel:
        """What `caller` may see."""
        return self._everything if caller.is_admin else self._channel(caller.uid)

    def _channel(self, uid: int) -> Channel:
        channel = self._channels.get(uid)
        if channel is None:
            channel = self._channels[uid] = Channel(self._size)
            self._forget_quiet()
        self._channels.move_to_end(uid)
        return channel

    def _forget_quiet(self) -> None:
        """Those of the owners who did nothing for longest; a reader keeps its channel."""
        spare = len(self._channels) - self._owners
        newest = next(reversed(self._channels))
        quiet = [uid for uid, one in self._channels.items() if not one.readers and uid != newest]
        for uid in quiet[: max(0, spare)]:
            del self._channels[uid]
