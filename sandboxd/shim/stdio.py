# SPDX-License-Identifier: Apache-2.0
"""A command's input and output on the shim's side: spools, the input fed, descriptors held open.

The shim holds the write end of an open standard input and the master of a terminal, so that a
daemon may end without the command seeing the end of input. A daemon with input to write gets a copy
of the descriptor: the bytes go from the daemon to the kernel, never through the shim.
"""

from __future__ import annotations

import os
import select
import time

from sandboxd.isolation import terminal
from sandboxd.protocol import records
from sandboxd.protocol.specification import ExecutionSpec
from sandboxd.shim.child import Child
from sandboxd.shim.pump import InputFeed, OutputStream
from sandboxd.shim.stamps import Stamps

_IN = select.POLLIN | select.POLLHUP


class Stdio:
    """A command's streams, inside the shim's poll loop. stdin_fd: a file to feed as input."""

    def __init__(
        self,
        record_directory: str,
        execution: ExecutionSpec,
        child: Child,
        stdin_fd: int | None,
        poller: select.poll,
    ) -> None:
        self._poll = poller
        self._outputs: list[OutputStream] = []
        self._feed: InputFeed | None = None
        self._held_fd: int | None = None
        self._slave_fd = child.terminal_fd
        for pipe, name in zip(
            child.outputs, (records.STDOUT_FILE, records.STDERR_FILE), strict=False
        ):
            path = os.path.join(record_directory, name)
            stamps = Stamps(path, child.started, child.started_at)
            bounds = execution.max_output_bytes, execution.spool_floor_bytes
            self._outputs.append(OutputStream(pipe, path, stamps, *bounds))
            poller.register(pipe, _IN)
        self._open = list(self._outputs)
        if child.input_fd is None:
            return
        os.set_blocking(child.input_fd, False)
        if stdin_fd is None:
            self._held_fd = child.input_fd
        else:
            self._feed = InputFeed(stdin_fd, child.input_fd)
            poller.register(child.input_fd, select.POLLOUT)

    @property
    def held_fd(self) -> int | None:
        """The non-blocking descriptor for writing input; None where no input is open (any more)."""
        return self._held_fd

    @property
    def is_terminal(self) -> bool:
        """Whether the command has a terminal."""
        return self._slave_fd is not None

    @property
    def has_exceeded(self) -> bool:
        """Whether the output exceeded a limit."""
        return any(stream.truncated and stream.error is None for stream in self._outputs)

    @property
    def excess(self) -> str:
        """Return the limit that the output exceeded: the execution's, or the host's disk."""
        is_greedy = any(stream.is_greedy for stream in self._outputs)
        return "output_of_host" if is_greedy else "output"

    def handle(self, fd: int) -> bool:
        """Move what poll reported for `fd`; False when `fd` is none of ours."""
        if self._feed is not None and fd == self._feed.fd:
            if not self._feed.copy():
                self._poll.unregister(fd)
                self._feed.close()
                self._feed = None
            return True
        stream = next((s for s in self._open if s.fd == fd), None)
        if stream is None:
            return False
        if not stream.copy():
            # A closed pipe stays readable for poll(2): further polling would spin.
            self._poll.unregister(fd)
            self._open.remove(stream)
        return True

    def close_input(self) -> None:
        """Close the shim's copy: the input ends once every daemon's copy is closed."""
        if self._held_fd is not None and not self.is_terminal:
            os.close(self._held_fd)
            self._held_fd = None

    def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal, if any."""
        if self._held_fd is not None and self.is_terminal:
            terminal.resize(self._held_fd, rows, cols)

    def drain(self, *, timeout_seconds: float) -> None:
        """Read the rest, within the timeout: another execution may hold a write end."""
        if self._slave_fd is not None:
            os.close(self._slave_fd)
        poller = select.poll()
        for stream in self._open:
            poller.register(stream.fd, _IN)
        left = list(self._open)
        deadline = time.monotonic() + timeout_seconds
        while left and (seconds := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(int(seconds * 1000) + 1):
                stream = next(s for s in left if s.fd == fd)
                if not stream.copy() or stream.truncated:
                    poller.unregister(fd)
                    left.remove(stream)

    def facts(self) -> tuple[records.StreamRecord, ...]:
        """Return the record's part for each output."""
        return tuple(stream.facts() for stream in self._outputs)
