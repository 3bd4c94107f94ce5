# SPDX-License-Identifier: Apache-2.0
"""The API's routes as requests, for the blocking and the asyncio client alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sandboxd.client.http import quote
from sandboxd.client.request import TIMEOUT_SECONDS, Request

if TYPE_CHECKING:
    from datetime import datetime

Body = Mapping[str, Any]
PAGE = 1000
FINAL_WAIT_SECONDS = 3600.0
# What ends sooner takes one request.
SHORT_SECONDS = 0.2


def sandbox_path(ref: str) -> str:
    """The path of a sandbox, by id or name."""
    return f"/v1/sandboxes/{quote(ref)}"


def execution_path(ref: str, execution_id: str) -> str:
    """The path of an execution."""
    return f"{sandbox_path(ref)}/executions/{quote(execution_id)}"


def host() -> Request:
    """What the host can do."""
    return Request("GET", "/v1/host")


def set_draining(*, draining: bool) -> Request:
    """Have the host take no new work, or take it again."""
    return Request("POST", f"/v1/host/{'drain' if draining else 'undrain'}")


def create_sandbox(body: Body) -> Request:
    """A new sandbox."""
    return Request("POST", "/v1/sandboxes", body, has_key=True)


def get_sandbox(ref: str) -> Request:
    """One sandbox."""
    return Request("GET", sandbox_path(ref))


def list_sandboxes(filters: Mapping[str, object], cursor: str | None) -> Request:
    """A page of them."""
    return _page("/v1/sandboxes", filters, cursor)


def change_sandbox(ref: str, body: Body) -> Request:
    """Change it live."""
    return Request("PATCH", sandbox_path(ref), body)


def release_sandbox(ref: str) -> Request:
    """Answered once it is gone."""
    return Request("DELETE", sandbox_path(ref))


def suspend_sandbox(ref: str) -> Request:
    """Freeze every process in it."""
    return Request("POST", f"{sandbox_path(ref)}/suspend")


def resume_sandbox(ref: str) -> Request:
    """Let them go on."""
    return Request("POST", f"{sandbox_path(ref)}/resume")


def sandbox_metrics(ref: str, *, by_execution: bool = False) -> Request:
    """What it uses now."""
    query = {"by_execution": "true"} if by_execution else {}
    return Request("GET", f"{sandbox_path(ref)}/metrics", query=query)


def history(since: str, until: str, points: int) -> Request:
    """What was used, how executions ended and what was refused."""
    query = {"since": since, "until": until, "points": points}
    return Request("GET", "/v1/history", query=query)


def start_execution(ref: str, body: Body, wait_seconds: float = 0.0) -> Request:
    """Answered with the execution: when it ended, or after `wait_seconds` as it is then."""
    return _start(f"{sandbox_path(ref)}/executions", body, wait_seconds)


def run(body: Body, wait_seconds: float | None = 0.0) -> Request:
    """The same in a new sandbox that lives as long as it; wait_seconds: None = to its end."""
    return _start("/v1/run", body, wait_seconds)


def get_execution(ref: str, execution_id: str) -> Request:
    """One execution as it is now."""
    return Request("GET", execution_path(ref, execution_id))


def wait_execution(ref: str, execution_id: str, wait_seconds: float) -> Request:
    """Answered when it has ended, or after `wait_seconds` as it is then."""
    return Request(
        "GET", execution_path(ref, execution_id), query={"wait": wait_seconds},
        timeout_seconds=wait_seconds + TIMEOUT_SECONDS,
    )  # fmt: skip


def list_executions(ref: str | None, filters: Mapping[str, object], cursor: str | None) -> Request:
    """A page of those of one sandbox, or of all that the caller may see."""
    path = "/v1/executions" if ref is None else f"{sandbox_path(ref)}/executions"
    return _page(path, filters, cursor)


def kill_execution(ref: str, execution_id: str, body: Body) -> Request:
    """End it, or only send a signal."""
    return Request("POST", f"{execution_path(ref, execution_id)}/kill", body)


def write_stdin(ref: str, execution_id: str, data: bytes) -> Request:
    """More input."""
    return Request("POST", f"{execution_path(ref, execution_id)}/stdin", data=data)


def stream_stdin(ref: str, execution_id: str, pieces: Iterable[bytes]) -> Request:
    """More input, as it comes; answered when it ends and all was taken."""
    path = f"{execution_path(ref, execution_id)}/stdin"
    return Request("POST", path, source=pieces, timeout_seconds=None)


def resize(ref: str, execution_id: str, rows: int, cols: int) -> Request:
    """Give its terminal another size."""
    path = f"{execution_path(ref, execution_id)}/resize"
    return Request("POST", path, {"rows": rows, "cols": cols})


def close_stdin(ref: str, execution_id: str) -> Request:
    """No more input."""
    return Request("POST", f"{execution_path(ref, execution_id)}/stdin/close")


def read_output(ref: str, execution_id: str, stream: str, offset: int) -> Request:
    """What was printed so far."""
    query = {"stream": stream, "offset": offset}
    return Request("GET", f"{execution_path(ref, execution_id)}/output", query=query)


def follow_output(ref: str, execution_id: str, stream: str, offset: int) -> Request:
    """What was printed so far, and what is later, up to the execution's end."""
    return Request(
        "GET", f"{execution_path(ref, execution_id)}/output", timeout_seconds=None,
        query={"stream": stream, "offset": offset, "follow": "true"},
    )  # fmt: skip


def timed_output(
    ref: str, execution_id: str, last_id: str, *, since: datetime | None, follow: bool
) -> Request:
    """What was printed after an id, and since a moment, with its times, as Server-Sent Events."""
    query = {"timestamps": "true", "follow": "true" if follow else "false"}
    if since is not None:
        query["since"] = since.isoformat()
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last_id}
    path = f"{execution_path(ref, execution_id)}/events"
    return Request("GET", path, query=query, headers=headers)


def host_events(last_id: str) -> Request:
    """All that happens, as Server-Sent Events, from now on or after an id."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
    return Request("GET", "/v1/events", headers=headers)


def _page(path: str, filters: Mapping[str, object], cursor: str | None) -> Request:
    query = {"limit": PAGE, **filters}
    if cursor is not None:
        query["cursor"] = cursor
    return Request("GET", path, query=query)


def _start(path: str, body: Body, wait_seconds: float | None) -> Request:
    if wait_seconds is None:
        return Request("POST", path, {**body, "wait": True}, has_key=True, timeout_seconds=None)
    wait: object = float(wait_seconds) if wait_seconds else False
    return Request("POST", path, {**body, "wait": wait}, has_key=True)
