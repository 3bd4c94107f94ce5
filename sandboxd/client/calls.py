# SPDX-License-Identifier: Apache-2.0
"""The API's routes as methods; bodies and answers are the contract's JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from sandboxd.client.transport import Transport

DEFAULT_SOCKET = "/run/sandboxd/sandboxd.sock"
SOCKET_VARIABLE = "SANDBOXD_SOCKET"
_FINAL_WAIT_SECONDS = 3600
# Creating and releasing wait for systemd, and that for the kernel.
_TIMEOUT_SECONDS = 150.0
_RUNNING = ("PENDING", "RUNNING")

Answer = dict[str, Any]


def socket_path(named: str | None = None) -> str:
    """The daemon's socket: as named, or by SANDBOXD_SOCKET, or the system service's."""
    return named or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET


class Client:
    """One daemon. Every method raises what the daemon refused with, as sandboxd.errors."""

    def __init__(self, path: str) -> None:
        self._transport = Transport(path)

    @property
    def path(self) -> str:
        """The socket's path."""
        return self._transport.path

    def host(self) -> Answer:
        """What the host can do."""
        return self._ask("GET", "/v1/host")

    def create_sandbox(self, body: Mapping[str, Any]) -> Answer:
        """A new sandbox."""
        return self._ask("POST", "/v1/sandboxes", body)

    def get_sandbox(self, ref: str) -> Answer:
        """One sandbox, by id or name."""
        return self._ask("GET", _sandbox(ref))

    def list_sandboxes(self, **filters: str) -> Iterator[Answer]:
        """All that the caller may see, oldest first."""
        return self._pages("/v1/sandboxes", "sandboxes", filters)

    def change_sandbox(self, ref: str, body: Mapping[str, Any]) -> Answer:
        """Change it live."""
        return self._ask("PATCH", _sandbox(ref), body)

    def release_sandbox(self, ref: str) -> None:
        """Returns once it is gone."""
        self._ask("DELETE", _sandbox(ref))

    def suspend_sandbox(self, ref: str) -> Answer:
        """Freeze every process in it."""
        return self._ask("POST", f"{_sandbox(ref)}/suspend")

    def resume_sandbox(self, ref: str) -> Answer:
        """Let them go on."""
        return self._ask("POST", f"{_sandbox(ref)}/resume")

    def start_execution(self, ref: str, body: Mapping[str, Any]) -> Answer:
        """The running execution; wait with `wait_execution`."""
        return self._ask("POST", f"{_sandbox(ref)}/executions", {**body, "wait": False})

    def run(self, body: Mapping[str, Any]) -> Answer:
        """The running execution of a new sandbox that lives as long as it."""
        return self._ask("POST", "/v1/run", {**body, "wait": False})

    def get_execution(self, ref: str, execution_id: str) -> Answer:
        """One execution as it is now."""
        return self._ask("GET", _execution(ref, execution_id))

    def wait_execution(
        self, ref: str, execution_id: str, *, timeout_seconds: float | None = None
    ) -> Answer:
        """The finished execution, or after the timeout (None = never) as it is then."""
        path = _execution(ref, execution_id)
        while True:
            wait = _FINAL_WAIT_SECONDS if timeout_seconds is None else timeout_seconds
            answer: Answer = self._transport.ask(
                "GET", path, query={"wait": wait}, timeout_seconds=wait + _TIMEOUT_SECONDS
            )
            if answer["status"] not in _RUNNING or timeout_seconds is not None:
                return answer

    def list_executions(self, ref: str | None = None, **filters: str) -> Iterator[Answer]:
        """Those of one sandbox, or all that the caller may see."""
        path = "/v1/executions" if ref is None else f"{_sandbox(ref)}/executions"
        return self._pages(path, "executions", filters)

    def kill_execution(self, ref: str, execution_id: str, body: Mapping[str, Any]) -> Answer:
        """End it, or only send a signal."""
        return self._ask("POST", f"{_execution(ref, execution_id)}/kill", body)

    def read_output(
        self, ref: str, execution_id: str, stream: str, *, offset: int = 0
    ) -> Iterator[bytes]:
        """What was printed so far."""
        path = f"{_execution(ref, execution_id)}/output"
        query = {"stream": stream, "offset": offset}
        return self._transport.stream(path, query=query, timeout_seconds=_TIMEOUT_SECONDS)

    def all_output(self, execution: Answer, stream: str) -> Iterator[bytes]:
        """Every byte of an execution's stream: what its answer carries, then the rest."""
        inline = inline_output(execution, stream)
        yield inline
        if execution[f"{stream}_inline_truncated"]:
            yield from self.read_output(
                execution["sandbox_id"], execution["id"], stream, offset=len(inline)
            )

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        answer: Answer = self._transport.ask(method, path, body, timeout_seconds=_TIMEOUT_SECONDS)
        return answer

    def _pages(self, path: str, key: str, filters: Mapping[str, str]) -> Iterator[Answer]:
        query: dict[str, object] = {**filters, "limit": 1000}
        while True:
            page = self._transport.ask("GET", path, query=query, timeout_seconds=_TIMEOUT_SECONDS)
            yield from page[key]
            if page["next_cursor"] is None:
                return
            query["cursor"] = page["next_cursor"]


def inline_output(execution: Answer, stream: str) -> bytes:
    """The bytes of a stream that an answer carries."""
    encoded = execution.get(f"{stream}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return (execution[stream] or "").encode()


def _sandbox(ref: str) -> str:
    return f"/v1/sandboxes/{quote(ref, safe='')}"


def _execution(ref: str, execution_id: str) -> str:
    return f"{_sandbox(ref)}/executions/{quote(execution_id, safe='')}"
