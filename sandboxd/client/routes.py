# SPDX-License-Identifier: Apache-2.0
"""Routes of the API as requests, for both clients."""

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
# Seconds that a start waits: a shorter execution takes a single request.
SHORT_SECONDS = 0.2


def sandbox_path(ref: str) -> str:
    """Return the path of a sandbox, by id or name."""
    return f"/v1/sandboxes/{quote(ref)}"


def execution_path(ref: str, execution_id: str) -> str:
    """Return the path of an execution."""
    return f"{sandbox_path(ref)}/executions/{quote(execution_id)}"


def host() -> Request:
    """Ask what the host can do."""
    return Request("GET", "/v1/host")


def set_draining(*, draining: bool) -> Request:
    """Have the host refuse new work, or accept new work again."""
    return Request("POST", f"/v1/host/{'drain' if draining else 'undrain'}")


def create_sandbox(body: Body) -> Request:
    """Create a sandbox."""
    return Request("POST", "/v1/sandboxes", body, has_key=True)


def get_sandbox(ref: str) -> Request:
    """Ask for one sandbox."""
    return Request("GET", sandbox_path(ref))


def list_sandboxes(filters: Mapping[str, object], cursor: str | None) -> Request:
    """Ask for a page of the sandboxes that the caller may see."""
    return _page("/v1/sandboxes", filters, cursor)


def change_sandbox(ref: str, body: Body) -> Request:
    """Change a sandbox live."""
    return Request("PATCH", sandbox_path(ref), body)


def release_sandbox(ref: str) -> Request:
    """Release a sandbox; the answer comes after the release is complete."""
    return Request("DELETE", sandbox_path(ref))


def suspend_sandbox(ref: str) -> Request:
    """Freeze all processes of a sandbox."""
    return Request("POST", f"{sandbox_path(ref)}/suspend")


def resume_sandbox(ref: str) -> Request:
    """Thaw all processes of a sandbox."""
    return Request("POST", f"{sandbox_path(ref)}/resume")


def sandbox_metrics(ref: str, *, by_execution: bool = False) -> Request:
    """Ask for a sandbox's current usage."""
    query = {"by_execution": "true"} if by_execution else {}
    return Request("GET", f"{sandbox_path(ref)}/metrics", query=query)


def history(since: str, until: str, points: int) -> Request:
    """Ask for usage, execution outcomes and refusals over time."""
    query = {"since": since, "until": until, "points": points}
    return Request("GET", "/v1/history", query=query)


def start_execution(ref: str, body: Body, wait_seconds: float = 0.0) -> Request:
    """Start an execution; the answer comes at the end, or after `wait_seconds`."""
    return _start(f"{sandbox_path(ref)}/executions", body, wait_seconds)


def run(body: Body, wait_seconds: float | None = 0.0) -> Request:
    """Start an execution in a new sandbox, released at the end. wait_seconds: None = to the end."""
    return _start("/v1/run", body, wait_seconds)


def get_execution(ref: str, execution_id: str) -> Request:
    """Ask for the current state of an execution."""
    return Request("GET", execution_path(ref, execution_id))


def wait_execution(ref: str, execution_id: str, wait_seconds: float) -> Request:
    """Ask for an execution; the answer comes at the end, or after `wait_seconds`."""
    return Request(
        "GET", execution_path(ref, execution_id), query={"wait": wait_seconds},
        timeout_seconds=wait_seconds + TIMEOUT_SECONDS,
    )  # fmt: skip


def list_executions(ref: str | None, filters: Mapping[str, object], cursor: str | None) -> Request:
    """Ask for a page of a sandbox's executions, or of all that the caller may see."""
    path = "/v1/executions" if ref is None else f"{sandbox_path(ref)}/executions"
    return _page(path, filters, cursor)


def kill_execution(ref: str, execution_id: str, body: Body) -> Request:
    """End an execution, or only send a signal."""
    return Request("POST", f"{execution_path(ref, execution_id)}/kill", body)


def write_stdin(ref: str, execution_id: str, data: bytes) -> Request:
    """Send input to an execution."""
    return Request("POST", f"{execution_path(ref, execution_id)}/stdin", data=data)


def stream_stdin(ref: str, execution_id: str, pieces: Iterable[bytes]) -> Request:
    """Stream input to an execution; the answer comes when all input is taken."""
    path = f"{execution_path(ref, execution_id)}/stdin"
    return Request("POST", path, source=pieces, timeout_seconds=None)


def resize(ref: str, execution_id: str, rows: int, cols: int) -> Request:
    """Set the size of an execution's terminal."""
    path = f"{execution_path(ref, execution_id)}/resize"
    return Request("POST", path, {"rows": rows, "cols": cols})


def close_stdin(ref: str, execution_id: str) -> Request:
    """Close an execution's input."""
    return Request("POST", f"{execution_path(ref, execution_id)}/stdin/close")


def read_output(ref: str, execution_id: str, stream: str, offset: int) -> Request:
    """Read the output of a stream up to now."""
    query = {"stream": stream, "offset": offset}
    return Request("GET", f"{execution_path(ref, execution_id)}/output", query=query)


def follow_output(ref: str, execution_id: str, stream: str, offset: int) -> Request:
    """Read the output of a stream up to the execution's end, on arrival."""
    return Request(
        "GET", f"{execution_path(ref, execution_id)}/output", timeout_seconds=None,
        query={"stream": stream, "offset": offset, "follow": "true"},
    )  # fmt: skip


def timed_output(
    ref: str, execution_id: str, last_id: str, *, since: datetime | None, follow: bool
) -> Request:
    """Read output after `last_id` and since a time, with times, as Server-Sent Events."""
    query = {"timestamps": "true", "follow": "true" if follow else "false"}
    if since is not None:
        query["since"] = since.isoformat()
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last_id}
    path = f"{execution_path(ref, execution_id)}/events"
    return Request("GET", path, query=query, headers=headers)


def host_events(last_id: str) -> Request:
    """Follow all events, from now on or after `last_id`, as Server-Sent Events."""
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
