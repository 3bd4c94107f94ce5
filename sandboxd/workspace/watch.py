# SPDX-License-Identifier: Apache-2.0
"""Watches directories for writes by inotify(7), the only user of inotify.

One inotify instance for all, one watch for each directory with a reader. Where the kernel gives
none (the bounds are the host's: fs.inotify.max_user_instances and max_user_watches), the directory
counts as changed five times a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandboxd.osutil.libc import checked, libc
from sandboxd.protocol.times import SUFFIX

_log = logging.getLogger(__name__)
# sys/inotify.h
_IN_MODIFY = 0x2
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x1000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_POLL_SECONDS = 0.2
# Written beside each piece of output; the spool's own event follows.
_UNHEEDED = os.fsencode(SUFFIX)

Ring = Callable[[], None]


class _Watched:
    """A watched directory and the callbacks of readers."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rings: list[Ring] = []
        self.descriptor = -1
        self.timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        for ring in self.rings:
            ring()

    def poll(self) -> None:
        self.ring()
        self.timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self.poll)


class DirectoryWatches:
    """All watches of an event loop."""

    def __init__(self) -> None:
        self._fd = -1
        self._by_path: dict[str, _Watched] = {}
        self._by_descriptor: dict[int, _Watched] = {}

    @contextmanager
    def watching(self, path: str, ring: Ring) -> Iterator[None]:
        """Call `ring` after writes in `path` but of times, and sometimes without a change."""
        watched = self._by_path.get(path)
        if watched is None:
            watched = self._by_path[path] = _Watched(path)
            self._begin(watched)
        watched.rings.append(ring)
        try:
            yield
        finally:
            watched.rings.remove(ring)
            if not watched.rings:
                del self._by_path[path]
                self._end(watched)

    def close(self) -> None:
        """End all watches."""
        for watched in list(self._by_path.values()):
            self._end(watched)
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _begin(self, watched: _Watched) -> None:
        try:
            if self._fd < 0:
                self._fd = checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
                asyncio.get_running_loop().add_reader(self._fd, self._read)
            path, mask = os.fsencode(watched.path), _IN_MODIFY | _IN_ONLYDIR
            watched.descriptor = checked(libc.inotify_add_watch(self._fd, path, mask))
            self._by_descriptor[watched.descriptor] = watched
        except OSError as exc:
            if not isinstance(exc, FileNotFoundError):
                _log.warning("Cannot watch %s, looking again and again: %s", watched.path, exc)
            watched.poll()

    def _end(self, watched: _Watched) -> None:
        if watched.timer is not None:
            watched.timer.cancel()
        # The kernel has ended the watch of a removed directory (IN_IGNORED).
        if self._by_descriptor.pop(watched.descriptor, None) is not None:
            libc.inotify_rm_watch(self._fd, watched.descriptor)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        position, changed = 0, set()
        while position < len(data):
            descriptor, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            name = data[position : position + length]
            position += length
            if mask & _IN_Q_OVERFLOW:
                changed |= set(self._by_descriptor)
            elif mask & _IN_IGNORED:
                self._by_descriptor.pop(descriptor, None)
            elif _UNHEEDED not in name:
                changed.add(descriptor)
        for descriptor in changed:
            watched = self._by_descriptor.get(descriptor)
            if watched is not None:
                watched.ring()
