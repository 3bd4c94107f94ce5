# SPDX-License-Identifier: Apache-2.0
"""The output of an execution with arrival times, over restarts of the daemon."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime

from sandboxd.client import routes
from sandboxd.client.calls import RESTART_SECONDS, RETRY_SECONDS, Flows
from sandboxd.client.refusals import away
from sandboxd.client.request import AWAY
from sandboxd.client.results import TimedOutput
from sandboxd.client.sse import Event, EventParser


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
    last_id = f"{begins.get('stdout', 0)}-{begins.get('stderr', 0)}"
    give_up = time.monotonic() + RESTART_SECONDS
    while True:
        request = routes.timed_output(ref, execution_id, last_id, since=since, follow=follow)
        parser = EventParser()
        try:
            async with aclosing(flows.transport.stream(request)) as pieces:
                async for piece in pieces:
                    give_up = time.monotonic() + RESTART_SECONDS
                    for event in parser.feed(piece):
                        if event.name == "exit":
                            return
                        last_id = event.id
                        yield _output(event)
            return
        except AWAY as exc:
            if time.monotonic() > give_up:
                raise away(exc, ref, execution_id) from exc
        # No event says when the daemon is back.
        await flows.waits.sleep(RETRY_SECONDS)


def _output(event: Event) -> TimedOutput:
    told = json.loads(event.data)
    text, encoded, at = told["text"], told.get("base64"), told.get("at")
    if encoded is None:
        data = text.encode()
    else:
        import base64

        data = base64.b64decode(encoded)
    return TimedOutput(event.name, text, data, None if at is None else datetime.fromisoformat(at))
