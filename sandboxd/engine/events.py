# SPDX-License-Identifier: Apache-2.0
"""Recent events of sandboxes and executions for followers: bounded, in memory."""

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
    """An event of a sandbox or an execution. reason: why the sandbox is released."""

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
    """The last events for a group of callers, numbered from 1.

    Readers keep a position of their own: a slow reader costs no memory, but may miss events. epoch:
    distinguishes the numbers of different daemons.
    """

    def __init__(self, size: int) -> None:
        self.epoch = new_id()
        self.last = 0
        self.readers = 0
        self._events: deque[Event] = deque(maxlen=size)
        self._news = asyncio.Event()

    @property
    def first(self) -> int:
        """Number of the oldest kept event."""
        return self.last - len(self._events) + 1

    def publish(self, event: Event) -> None:
        """Append an event and wake all readers."""
        self._events.append(event)
        self.last += 1
        self._news.set()
        self._news = asyncio.Event()

    def after(self, number: int, count: int) -> list[tuple[int, Event]]:
        """Return at most `count` kept events after `number`."""
        begin = max(number + 1, self.first)
        end = min(begin + count, self.last + 1)
        return [(n, self._events[n - self.first]) for n in range(begin, end)]

    async def wait_beyond(self, number: int) -> None:
        """Return once an event after `number` exists."""
        while self.last <= number:
            await self._news.wait()


class Events:
    """A channel with all events for admins, and one per owner with separate numbers."""

    def __init__(self, *, size: int = KEPT_EVENTS, owners: int = MAX_OWNERS) -> None:
        self._size = size
        self._owners = owners
        self._everything = Channel(size)
        self._channels: OrderedDict[int, Channel] = OrderedDict()

    def publish(self, event: Event) -> None:
        """Append an event to the owner's channel and the admins' channel."""
        self._everything.publish(event)
        self._channel(event.owner_uid).publish(event)

    def channel(self, caller: Caller) -> Channel:
        """Return the channel with the events that `caller` may see."""
        return self._everything if caller.is_admin else self._channel(caller.uid)

    def _channel(self, uid: int) -> Channel:
        channel = self._channels.get(uid)
        if channel is None:
            channel = self._channels[uid] = Channel(self._size)
            self._forget_quiet()
        self._channels.move_to_end(uid)
        return channel

    def _forget_quiet(self) -> None:
        """Drop the channels of the longest inactive owners; a channel with readers stays."""
        spare = len(self._channels) - self._owners
        newest = next(reversed(self._channels))
        quiet = [uid for uid, one in self._channels.items() if not one.readers and uid != newest]
        for uid in quiet[: max(0, spare)]:
            del self._channels[uid]
