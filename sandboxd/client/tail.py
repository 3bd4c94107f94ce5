# SPDX-License-Identifier: Apache-2.0
"""The output of an execution as it comes, both streams at once, over restarts of the daemon."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Mapping

from sandboxd.client import routes
from sandboxd.client.calls import RESTART_SECONDS, RETRY_SECONDS, Client
from sandboxd.client.refusals import ConnectionLost, DaemonUnreachable, away
from sandboxd.client.request import Request
from sandboxd.client.transport import Exchange
from sandboxd.errors import Draining, SandboxdError

STREAMS = ("stdout", "stderr")
AWAY = (Draining, ConnectionLost, DaemonUnreachable)


class Place:
    """How far one stream of an execution was read."""

    def __init__(self, ref: str, execution_id: str, stream: str, offset: int = 0) -> None:
        self.stream = stream
        self.offset = offset
        self._ref = ref
        self._execution_id = execution_id

    def request(self) -> Request:
        """For all from here on. It may be quiet for as long as the execution is."""
        return routes.follow_output(self._ref, self._execution_id, self.stream, self.offset)

    def given_up(self, cause: SandboxdError) -> ConnectionLost:
        """The error for a daemon that does not come back."""
        return away(cause, self._ref, self._execution_id)


def follow(
    client: Client,
    ref: str,
    execution_id: str,
    streams: tuple[str, ...] = STREAMS,
    offsets: Mapping[str, int] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Pieces of both streams as they come, to the end of the execution.

    offsets: from which byte of each stream on; default: the first.

    Raises ConnectionLost when the daemon stays away for RESTART_SECONDS.
    """
    begins = offsets or {}
    places = [Place(ref, execution_id, stream, begins.get(stream, 0)) for stream in streams]
    poll = select.poll()
    answers: dict[int, tuple[Place, Exchange]] = {}

    def opened(place: Place) -> Iterator[tuple[str, bytes]]:
        answer = _open(client, place)
        answers[answer.fileno()] = (place, answer)
        poll.register(answer.fileno(), select.POLLIN)
        yield from taken(place, answer)

    def taken(place: Place, answer: Exchange) -> Iterator[tuple[str, bytes]]:
        data = answer.take()
        place.offset += len(data)
        if answer.is_complete:
            closed(answer)
        if data:
            yield place.stream, data

    def closed(answer: Exchange) -> None:
        poll.unregister(answer.fileno())
        del answers[answer.fileno()]
        answer.close()

    try:
        for place in places:
            yield from opened(place)
        while answers:
            for descriptor, _ in poll.poll():
                place, answer = answers[descriptor]
                try:
                    answer.receive()
                except ConnectionLost:
                    closed(answer)
                    yield from opened(place)
                else:
                    yield from taken(place, answer)
    finally:
        for _, answer in answers.values():
            answer.close()


def _open(client: Client, place: Place) -> Exchange:
    give_up = time.monotonic() + RESTART_SECONDS
    while True:
        try:
            return client.transport.open(place.request())
        except AWAY as exc:
            if time.monotonic() > give_up:
                raise place.given_up(exc) from exc
        # A daemon that is not there yet tells nobody when it is.
        time.sleep(RETRY_SECONDS)
