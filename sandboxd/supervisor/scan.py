# SPDX-License-Identifier: Apache-2.0
"""Scans: find the files in memory of each sandbox anew, in turns.

A sandbox's processes can make a scan arbitrarily long. So all scans together have a fifth of the
time at most, each sandbox has a slice in turn, and sandboxes with long scans come last. The growth
since a scan began is bounded by the growth of all files in memory of the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from typing import Protocol

from sandboxd.supervisor.files import Walker
from sandboxd.supervisor.shared import HostGauge
from sandboxd.supervisor.work import Work

_GROWTH_BYTES = 2 << 20
_PERIOD_SECONDS = 1.0
_SLICE_SECONDS = 0.002
_TURN_SECONDS = 0.01
# Of the time between two turns, and between two scans of one sandbox.
_DUTY = 4
_LONG_DUTY = 19
_LONG_SECONDS = 0.1
_LONG_MEMORY_SECONDS = 60.0


class Scan:
    """The scans of one sandbox. shared_bytes: the host's files in memory at the beginning."""

    def __init__(self, shared_bytes: int, now: float) -> None:
        self.work: Work[None] | None = None
        self._known_at = self._began_at = shared_bytes
        self._after = now
        self._long_until = 0.0

    def unseen(self, shared_bytes: int) -> int:
        """Return an upper bound, in bytes, of growth since the last complete scan began."""
        return max(0, shared_bytes - self._known_at)

    def is_long(self, now: float) -> bool:
        """Whether scans take long; a scan of stopped processes is short and tells nothing."""
        so_far = 0.0 if self.work is None else self.work.seconds
        return so_far > _LONG_SECONDS or now < self._long_until

    def begin(self, steps: Generator[None, None, None], shared_bytes: int) -> None:
        """Begin a scan that runs `steps`."""
        self.work = Work(steps)
        self._began_at = shared_bytes

    def may_begin(self, now: float, *, is_urgent: bool) -> bool:
        """Whether a scan may begin now. is_urgent: whether the limit may be exceeded."""
        return self.work is None and (now >= self._after or is_urgent)

    def go_on(self, seconds: float, clock: Callable[[], float]) -> bool:
        """Run a slice of about `seconds`; return whether the scan is complete."""
        work = self.work
        if work is None or not work.go_on(seconds, clock):
            return False
        self.work = None
        self._known_at = self._began_at
        if work.seconds > _LONG_SECONDS:
            now = clock()
            self._after = now + work.seconds * _LONG_DUTY
            self._long_until = now + _LONG_MEMORY_SECONDS
        return True

    def note_fall(self, shared_bytes: int) -> None:
        """Lower the base if memory was freed, so that later allocations count as growth."""
        self._known_at = min(self._known_at, shared_bytes)
        self._began_at = min(self._began_at, shared_bytes)


class Scanned(Protocol):
    """What is to be scanned: a sandbox."""

    scan: Scan

    @property
    def room_bytes(self) -> int:
        """The bytes left before a limit is exceeded."""

    def scan_steps(self, walker: Walker, now: float) -> Generator[None, None, None]:
        """Return the steps of a scan."""

    def judge_soon(self) -> None:
        """Note that a scan is complete."""


class Scanner:
    """The scans of all sandboxes."""

    def __init__(self, device: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.shared_bytes = self.free_bytes = 0
        self._host = HostGauge()
        self._walker = Walker(device)
        self._base = self._host.bytes()
        self._after = self._next_round = 0.0
        self.look()

    def look(self) -> int:
        """Return the bytes of files in memory of the whole host, now."""
        self.shared_bytes = self._host.bytes()
        self.free_bytes = self._host.free_bytes
        return self.shared_bytes

    def due(self, sandboxes: Collection[Scanned]) -> float | None:
        """Return the time of the next turn; None without a scan under way."""
        return self._after if any(s.scan.work for s in sandboxes) else None

    def take_turn(self, now: float, sandboxes: Collection[Scanned]) -> None:
        """Begin what is due, go on with what was begun."""
        size = self.look()
        self._base = min(self._base, size)
        for one in sandboxes:
            one.scan.note_fall(size)
        if now < self._after:
            return
        grown = size - self._base > _GROWTH_BYTES
        if grown or now >= self._next_round:
            self._begin_all(now, sandboxes, grown=grown)
        began = self._clock()
        for one in self._in_turn(sandboxes):
            self.go_on(one)
            if self._clock() - began > _TURN_SECONDS:
                break
        ended = self._clock()
        self._after = ended + (ended - began) * _DUTY

    def scan_now(self, now: float, one: Scanned) -> None:
        """Scan a sandbox for a client, as far as possible in one turn."""
        if one.scan.may_begin(now, is_urgent=True):
            one.scan.begin(one.scan_steps(self._walker, now), self.look())
        self.go_on(one, _TURN_SECONDS)

    def go_on(self, one: Scanned, seconds: float = _SLICE_SECONDS) -> None:
        """Run one slice of a sandbox's scan."""
        if one.scan.go_on(seconds, self._clock):
            one.judge_soon()

    def _begin_all(self, now: float, sandboxes: Collection[Scanned], *, grown: bool) -> None:
        self._next_round = now + _PERIOD_SECONDS
        self._base = self.shared_bytes
        if grown:
            self._walker.new_memory += 1
        for one in sandboxes:
            unseen = one.scan.unseen(self.shared_bytes)
            if one.scan.may_begin(now, is_urgent=unseen > one.room_bytes // 2):
                one.scan.begin(one.scan_steps(self._walker, now), self.shared_bytes)

    def _in_turn(self, sandboxes: Collection[Scanned]) -> list[Scanned]:
        """Return the sandboxes with a scan under way, the shortest so far first."""
        going = [(s.scan.work.seconds, s) for s in sandboxes if s.scan.work is not None]
        return [one for _, one in sorted(going, key=lambda pair: pair[0])]
