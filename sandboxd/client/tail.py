# SPDX-License-Identifier: Apache-2.0
"""The output of an execution on arrival, both streams at once, over restarts of the daemon."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping

from sandboxd.client import routes
from sandboxd.client.blocking import iterate
from sandboxd.client.calls import Client, Flows
from sandboxd.client.refusals import ConnectionLost, away
from sandboxd.client.request import AWAY
from sandboxd.client.transport import Exchange

STREAMS = ("stdout", "stderr")


def follow(
    client: Client,
    ref: str,
    execution_id: str,
    streams: tuple[str, ...] = STREAMS,
    offsets: Mapping[str, int] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Iterate over pieces of both streams on arrival, to the end of the execution.

    offsets: the first byte of each stream to give; default: 0. Raises ConnectionLost when the
    daemon stays away for RESTART_SECONDS.
    """
    return iterate(flow(client.flow, ref, execution_id, streams, offsets))


async def flow(
    flows: Flows,
    ref: str,
    execution_id: str,
    streams: tuple[str, ...] = STREAMS,
    offsets: Mapping[str, int] | None = None,
) -> AsyncGenerator[tuple[str, bytes], None]:
    """Do what `follow` does, for both clients."""
    places = {stream: (offsets or {}).get(stream, 0) for stream in streams}
    answers: dict[str, Exchange] = {}

    async def opened(stream: str) -> Exchange:
        request = routes.follow_output(ref, execution_id, stream, places[stream])
        try:
            return await flows.over_restarts(lambda: flows.transport.open(request))
        except AWAY as exc:
            raise away(exc, ref, execution_id) from exc

    try:
        for stream in streams:
            answers[stream] = await opened(stream)
        while True:
            for stream, answer in [*answers.items()]:
                if data := answer.take():
                    places[stream] += len(data)
                    yield stream, data
                if answer.is_complete:
                    answers.pop(stream).close()
            if not answers:
                return
            waiting = {answer.connection: stream for stream, answer in answers.items()}
            for connection in await flows.waits.readable(waiting, None):
                stream = waiting[connection]
                try:
                    await answers[stream].receive()
                except ConnectionLost:
                    answers.pop(stream).close()
                    answers[stream] = await opened(stream)
    finally:
        for answer in answers.values():
            answer.close()
