# SPDX-License-Identifier: Apache-2.0
"""The daemon's copy of a command's open standard input: a pipe's write end or a terminal's master.

The kernel's buffer is the only one. When it is full the writer waits, and whoever it writes for;
what was written is the command's, whatever becomes of the daemon.
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
        """Write something of `data`, once there is room; returns how much. Raises StdinClosed."""
        while self._fd >= 0:
            try:
                return os.write(self._fd, data[:_PIECE_BYTES])
            except BlockingIOError:
                await self._wait_for_room()
            except OSError as exc:
                # EIO: a terminal of which nobody has the other end open any more.
                if exc.errno not in (errno.EPIPE, errno.EIO):
                    raise
                break
        raise StdinClosed(
            "cannot write to standard input: nobody reads it any more",
            hint="what was not written yet is not lost: `written_bytes` says how much was",
        )

    def end_character(self) -> bytes:
        """What a terminal takes for the end of a line or of the input (termios(3), VEOF)."""
        # ValueError: closed meanwhile, as writing it will tell.
        with suppress(termios.error, ValueError):
            character: bytes = termios.tcgetattr(self._fd)[_CC][termios.VEOF]
            if character != b"\0":
                return character
        return b"\x04"

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal, which has no end of input but a character for it."""
        return self._is_terminal

    def close(self) -> None:
        """Give the copy back, and whoever waits for room up; calling it twice is harmless."""
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
