# SPDX-License-Identifier: Apache-2.0
"""Converts times of output to offsets in a stream."""

from __future__ import annotations

from datetime import datetime

from sandboxd.core.model import Execution, Stream
from sandboxd.core.times import OutputTimes
from sandboxd.engine.engine import Engine
from sandboxd.errors import OutputTimesUnknown


async def offset_since(
    engine: Engine, execution: Execution, stream: Stream, moment: datetime | None
) -> int:
    """Return the offset of output since `moment`, 0 for None. Raises OutputTimesUnknown."""
    if moment is None:
        return 0
    # Read before the times: output printed in between is later than `moment`, or has a time.
    size = _size(execution, stream)
    times = await _times(engine, execution, stream)
    offset = 0 if times is None else times.since(moment)
    return size if offset is None else offset


async def check_times(engine: Engine, execution: Execution) -> None:
    """Raise OutputTimesUnknown if the times of some output were not kept."""
    await _times(engine, execution, "stdout")
    await _times(engine, execution, "stderr")


async def _times(engine: Engine, execution: Execution, stream: Stream) -> OutputTimes | None:
    times = await engine.output_times(execution, stream)
    if times is None and _size(execution, stream):
        raise OutputTimesUnknown(
            f"cannot tell when {stream} of execution {execution.id} was printed: its times were "
            "not kept",
            hint="ask without times: it was started by an older sandboxd, or the disk was full",
        )
    return times


def _size(execution: Execution, stream: Stream) -> int:
    summary = execution.stdout if stream == "stdout" else execution.stderr
    return summary.size_bytes
