# SPDX-License-Identifier: Apache-2.0
"""What goes into a running command: standard input in turns, its end, the size of its terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.engine.executions import wait_finished
from sandboxd.engine.registry import LiveExecution
from sandboxd.engine.requests import Progress
from sandboxd.errors import ExecutionFinished, InvalidRequest, StdinClosed
from sandboxd.model import TerminalSize
from sandboxd.ports import Input, Shim

# How long after its input broke an execution may take to be known as ended.
_END_SECONDS = 1.0


async def write(running: LiveExecution, chunks: AsyncIterator[bytes], progress: Progress) -> None:
    """Write all chunks without anybody else's in between; waits while the program does not read.

    progress: what the program can no longer miss, also after an error.
    Raises ExecutionFinished, StdinClosed.
    """
    async with running.input_turn:
        target = await _open(running)
        try:
            async for chunk in chunks:
                await _write(target, chunk, progress)
        except StdinClosed:
            # The end of the execution may be what broke it, and be known a moment later.
            await wait_finished(running, _END_SECONDS)
            _shim(running)
            raise


async def close(running: LiveExecution) -> None:
    """After all that is written: the end of input, or of a terminal's line. Fine when it is closed.

    Raises ExecutionFinished, StdinClosed where it never was open.
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
    """Change its terminal's size. Raises ExecutionFinished, InvalidRequest where it has none."""
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
