# SPDX-License-Identifier: Apache-2.0
"""The output of an execution with arrival times, over restarts of the daemon."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime

from sandboxd.client import routes, sse
from sandboxd.client.calls import Flows
from sandboxd.client.refusals import away
from sandboxd.client.request import AWAY, Request
from sandboxd.client.results import TimedOutput
from sandboxd.client.sse import Event


async def flow(
    flows: Flows, ref: str, execution_id: str, *, since: datetime | None = None,
    offsets: Mapping[str, int] | None = None, follow: bool = True,
) -> AsyncGenerator[TimedOutput, None]:  # fmt: skip
    """Iterate over pieces of both streams, each piece of one arrival time, for both clients.

    since: skip output from before that time. offsets: the first byte of each stream to give.
    follow: up to the end of the execution, else up to now. Raises OutputTimesUnknown, and
    ConnectionLost when the daemon stays away for RESTART_SECONDS.
    """
    begins = offsets or {}
    first = f"{begins.get('stdout', 0)}-{begins.get('stderr', 0)}"

    def request(last_id: str) -> Request:
        return routes.timed_output(ref, execution_id, last_id, since=since, follow=follow)

    try:
        async with aclosing(sse.flow(flows, request, first, has_end=True)) as events:
            async for event in events:
                if event.name == "exit":
                    return
                yield _output(event)
    except AWAY as exc:
        raise away(exc, ref, execution_id) from exc


def _output(event: Event) -> TimedOutput:
    told = json.loads(event.data)
    text, encoded, at = told["text"], told.get("base64"), told.get("at")
    if encoded is None:
        data = text.encode()
    else:
        import base64

        data = base64.b64decode(encoded)
    return TimedOutput(event.name, text, data, None if at is None else datetime.fromisoformat(at))
