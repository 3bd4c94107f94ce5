# SPDX-License-Identifier: Apache-2.0
"""The input of an execution over restarts of the daemon, no byte of it sent twice.

A daemon that stops answers how many bytes the program's pipe or terminal got. The sender keeps the
bytes of a request until the answer, and the next daemon gets the rest. A daemon that is killed in
the middle of a request gives no answer: nobody then knows how much the program got.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from sandboxd.client import routes
from sandboxd.client.calls import Flows
from sandboxd.client.refusals import ConnectionLost, DaemonUnreachable
from sandboxd.client.request import Absence
from sandboxd.errors import Draining, QuotaExceeded, SandboxdError

# The input of one request, which the sender keeps in memory.
REQUEST_BYTES = 1 << 20


async def send(flows: Flows, ref: str, execution_id: str, pieces: Iterable[bytes]) -> None:
    """Send the pieces, together about REQUEST_BYTES; return when the program's pipe has them all.

    A full quota of streams is waited out as a restart is. Raises ConnectionLost when nobody knows
    how much the program got, AWAY and QuotaExceeded after RESTART_SECONDS, refusals.
    """
    absence, source, kept = Absence(), iter(pieces), bytearray()

    def parts() -> Iterator[bytes]:
        if kept:
            yield bytes(kept)
        for piece in source:
            kept.extend(piece)
            yield piece

    while True:
        try:
            await flows.ask(routes.stream_stdin(ref, execution_id, parts()))
        except DaemonUnreachable as exc:
            pause = absence.pause_seconds(exc)
        except (Draining, QuotaExceeded) as exc:
            del kept[: _taken(exc)]
            pause = absence.pause_seconds(exc)
        except ConnectionLost as exc:
            raise _unknown(exc) from exc
        else:
            return
        await flows.waits.sleep(pause)


async def close(flows: Flows, ref: str, execution_id: str) -> None:
    """Close the input, over restarts: the request may be repeated."""
    await flows.over_restarts(lambda: flows.ask(routes.close_stdin(ref, execution_id)))


async def kill(flows: Flows, ref: str, execution_id: str) -> None:
    """Kill an execution that lacks a part of the input, over restarts; ignore refusals."""
    with suppress(SandboxdError, OSError):
        await flows.over_restarts(lambda: flows.ask(routes.kill_execution(ref, execution_id, {})))


def _taken(refusal: SandboxdError) -> int:
    taken = refusal.details.get("written_bytes")
    if not isinstance(taken, int):
        raise _unknown(refusal) from refusal
    return taken


def _unknown(cause: SandboxdError) -> ConnectionLost:
    return ConnectionLost(
        "cannot tell how much input the program got: sandboxd ended in the middle of it",
        details=cause.details,
    )
