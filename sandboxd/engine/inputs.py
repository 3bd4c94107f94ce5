# SPDX-License-Identifier: Apache-2.0
"""Input of a running command: standard input in turns, end of input, terminal size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sandboxd.core.model import TerminalSize
from sandboxd.engine.executions import wait_finished
from sandboxd.engine.ports.launch import Input, Shim
from sandboxd.engine.registry import LiveExecution
from sandboxd.engine.requests import Progress
from sandboxd.errors import ExecutionFinished, InvalidRequest, StdinClosed

# After an input breaks, the end of the execution may take so long to be known.
_END_SECONDS = 1.0
# A sender idle for so long, for example a person thinking, gives up the turn.
_QUIET_SECONDS = 5.0


async def write(running: LiveExecution, chunks: AsyncIterator[bytes], progress: Progress) -> None:
    """Write all chunks; wait while the program does not read.

    Chunks of concurrent senders do not mix, unless the sender is idle for _QUIET_SECONDS. progress:
    the bytes delivered so far, also after an error. Raises ExecutionFinished, StdinClosed.
    """
    async with _Coming(chunks) as coming:
        while not coming.is_over:
            async with running.input_turn:
                target = await _open(running)
                try:
                    while (chunk := await coming.next(_QUIET_SECONDS)) is not None:
                        await _write(target, chunk, progress)
                except StdinClosed:
                    # The execution's end may be the cause, and known a moment later.
                    await wait_finished(running, _END_SECONDS)
                    _shim(running)
                    raise
            await coming.wait()


class _Coming:
    """Chunks of a sender; a timeout does not cancel the wait for the next chunk."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._next: asyncio.Future[bytes | None] | None = None
        self.is_over = False

    async def __aenter__(self) -> _Coming:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)

    async def next(self, seconds: float) -> bytes | None:
        """Return the next chunk; None at the end or after `seconds` without a chunk."""
        coming = self._ask()
        await asyncio.wait([coming], timeout=seconds)
        if not coming.done():
            return None
        self._next = None
        chunk = coming.result()
        self.is_over = chunk is None
        return chunk

    async def wait(self) -> None:
        """Return once a chunk or the end has come."""
        if not self.is_over:
            await asyncio.wait([self._ask()])

    def _ask(self) -> asyncio.Future[bytes | None]:
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._chunks, None))
        return self._next


async def close(running: LiveExecution) -> None:
    """End the input after all writes; on a terminal, the line. A closed input is no error.

    Raises ExecutionFinished, and StdinClosed if the input never was open.
    """
    async with running.input_turn:
        shim = _shim(running)
        _check_open(running)
        target = await shim.input()
        if target is not None and target.is_terminal:
            await _write(target, target.end_character(), Progress())
        elif target is not None:
            await shim.close_input()


async def resize(running: LiveExecution, size: TerminalSize) -> None:
    """Change the terminal's size. Raises ExecutionFinished; InvalidRequest without a terminal."""
    if running.execution.command.tty is None:
        raise InvalidRequest(
            f"cannot resize: execution {running.execution.id} has no terminal",
            hint="start it with tty",
        )
    await _shim(running).resize(size.rows, size.cols)


def _shim(running: LiveExecution) -> Shim:
    if running.shim is None or running.execution.is_finished:
        status = running.execution.outcome.status
        raise ExecutionFinished(f"cannot reach execution {running.execution.id}: it is {status}")
    return running.shim


def _check_open(running: LiveExecution) -> None:
    command = running.execution.command
    if not command.stdin_open and command.tty is None:
        raise StdinClosed(
            f"cannot write to standard input of execution {running.execution.id}: "
            "it was started without stdin_open",
            hint="start it with stdin_open or tty",
        )


async def _open(running: LiveExecution) -> Input:
    shim = _shim(running)
    _check_open(running)
    target = await shim.input()
    if target is None:
        raise StdinClosed(
            f"cannot write to standard input of execution {running.execution.id}: it is closed"
        )
    return target


async def _write(target: Input, data: bytes, progress: Progress) -> None:
    left = memoryview(data)
    while left:
        written = await target.write(left)
        progress.written_bytes += written
        left = left[written:]
