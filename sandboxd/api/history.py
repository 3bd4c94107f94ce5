# SPDX-License-Identifier: Apache-2.0
"""Handler of /v1/history."""

from __future__ import annotations

import asyncio

from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.wire.history import HistoryAnswer, HistoryQuery
from sandboxd.wire.requests import Nothing

# An admin's answer with many owners, in memory and in JSON.
_ANSWER_BYTES = 8 << 20


async def get_history(call: Call[Nothing, HistoryQuery]) -> Reply:
    """Return usage, ends of executions and refusals over time."""
    await call.share.hold(_ANSWER_BYTES)
    told = await call.engine.history()
    since, until = call.query.bounds(told.now)

    def answer() -> HistoryAnswer:
        return HistoryAnswer.of(told.period(call.caller, since, until, call.query.points))

    return Reply(200, await asyncio.to_thread(answer))
