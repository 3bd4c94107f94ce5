# SPDX-License-Identifier: Apache-2.0
"""The daemon's copy of a command's open standard input: a pipe's write end or a terminal's master.

The kernel's buffer is the only buffer. While the buffer is full the writer and its client wait;
bytes written belong to the command, even after the daemon's end.
"""

from __future__ import annotations

import asyncio
import errno
import os
import termios
from contextlib import suppress

from sandboxd.errors import StdinClosed

_PIECE_BYTES = 64 * 1024
# A second look, should the kernel tell of no room although there is.
_LOOK_SECONDS = 1.0
_CC = 6


class InputPipe:
    """Fits ports.launch.Input."""

    def __init__(self, fd: int, *, is_terminal: bool) -> None:
        self._fd = fd
        self._is_terminal = is_terminal
        self._room: asyncio.Future[None] | None = None

    async def write(self, data: memoryview) -> int:
        while self._fd >= 0:
            try:
                return os.write(self._fd, data[:_PIECE_BYTES])
            except BlockingIOError:
                await self._wait_for_room()
            except OSError as exc:
                # EIO: a terminal whose slave no process has open any more.
                if exc.errno not in (errno.EPIPE, errno.EIO):
                    raise
                break
        raise StdinClosed(
            "cannot write to standard input: nobody reads it any more",
            hint="what was not written yet is not lost: `written_bytes` says how much was",
        )

    def end_character(self) -> bytes:
        # ValueError: closed meanwhile, as the next write will tell.
        with suppress(termios.error, ValueError):
            character: bytes = termios.tcgetattr(self._fd)[_CC][termios.VEOF]
            if character != b"\0":
                return character
        return b"\x04"

    @property
    def is_terminal(self) -> bool:
        return self._is_terminal

    def close(self) -> None:
        """Close the copy and wake waiting writers; calling twice is harmless."""
        if self._fd >= 0:
            self._wake()
            os.close(self._fd)
            self._fd = -1

    async def _wait_for_room(self) -> None:
        loop, fd = asyncio.get_running_loop(), self._fd
        self._room = loop.create_future()
        loop.add_writer(fd, self._wake)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._room
        except TimeoutError:
            return
        finally:
            if self._fd == fd:
                loop.remove_writer(fd)
            self._room = None

    def _wake(self) -> None:
        if self._room is not None:
            asyncio.get_running_loop().remove_writer(self._fd)
            if not self._room.done():
                self._room.set_result(None)
