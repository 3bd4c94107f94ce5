# SPDX-License-Identifier: Apache-2.0
"""An execution's answer with the first MiB of each stream.

A MiB may become six in JSON, and encoding takes some milliseconds of the event loop: so answers are
made in pieces, a turn for each, and within the caller's share of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

from sandboxd.api.records import execution_bytes
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.api.shares import SMALL_BYTES
from sandboxd.core.model import Execution, Stream
from sandboxd.engine.batch import Reading
from sandboxd.wire.answers import INLINE_BYTES, ExecutionAnswer, Inline
from sandboxd.wire.files import ReadFileAnswer

# Memory per byte of output while the answer is made: the byte, the text, and six bytes of JSON, or
# three beside twice the base64 form.
_FACTOR = 9


async def execution_reply(
    call: Call[Any, Any],
    execution: Execution,
    status: int = 200,
    *,
    reading: Reading | None = None,
) -> Reply:
    """Return the answer about `execution` in its present state, with files read after the end."""
    while True:
        was_finished = execution.is_finished
        sizes = [min(one.size_bytes, INLINE_BYTES) for one in (execution.stdout, execution.stderr)]
        if reading is not None:
            sizes.append(await reading.size_bytes())
        await call.share.hold(_FACTOR * sum(sizes) + execution_bytes(execution))
        stdout = await _inline(call, execution, "stdout")
        stderr = await _inline(call, execution, "stderr")
        # An execution that ended meanwhile may have printed more: an answer about an end has all.
        if was_finished or not execution.is_finished:
            break
    files = None if reading is None else await reading.files()
    answer = ExecutionAnswer.of(execution, stdout, stderr)
    streams: dict[str, str | None] = {
        "stdout": stdout.text,
        "stdout_base64": stdout.base64,
        "stderr": stderr.text,
        "stderr_base64": stderr.base64,
    }
    pieces = [answer.model_dump_json(exclude=set(streams)).encode()[:-1]]
    for name, value in streams.items():
        if value is not None:
            pieces.append(b',"%b":"' % name.encode())
            for piece in _escaped(value):
                pieces.append(piece)
                await call.share.turn()
            pieces.append(b'"')
    if files is not None:
        pieces.append(b',"files":[')
        for number, file in enumerate(files):
            await call.share.turn()
            with call.share.long_turn():
                piece = to_json(ReadFileAnswer.of(file))
            pieces += [b",", piece] if number else [piece]
        pieces.append(b"]")
    pieces.append(b"}")
    return Reply(status, pieces=tuple(pieces))


async def _inline(call: Call[Any, Any], execution: Execution, stream: Stream) -> Inline:
    # Reading one byte more than is sent tells whether the stream is longer.
    data = await call.engine.read_output(execution, stream, 0, INLINE_BYTES + 1)
    summary = execution.stdout if stream == "stdout" else execution.stderr
    steps = Inline.steps(data, summary)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: Inline = done.value
            return made
        await call.share.turn()


def _escaped(text: str) -> Iterator[bytes]:
    """Yield the JSON of `text` in pieces, without the quotes."""
    for begin in range(0, len(text), SMALL_BYTES):
        yield to_json(text[begin : begin + SMALL_BYTES])[1:-1]
