# SPDX-License-Identifier: Apache-2.0
"""The API's routes as methods; bodies and answers are the contract's JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from sandboxd.client import routes
from sandboxd.client.refusals import away
from sandboxd.client.request import AWAY, NO_ROOM, Absence, Patience, Request
from sandboxd.client.transport import Transport
from sandboxd.errors import NotFound, SandboxdError

DEFAULT_SOCKET = "/run/sandboxd/sandboxd.sock"
SOCKET_VARIABLE = "SANDBOXD_SOCKET"
# How long a restart of the daemon may take.
RESTART_SECONDS = 60.0
RETRY_SECONDS = 0.2
# How often the sandbox of a run is looked for whose answer is no longer wanted.
RELEASE_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
RUNNING = ("PENDING", "RUNNING")

Answer = dict[str, Any]


def socket_path(named: str | None = None) -> str:
    """The daemon's socket: as named, or by SANDBOXD_SOCKET, or the system service's."""
    return named or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET


class Client:
    """One daemon. Every method raises what the daemon refused with, as sandboxd.errors."""

    def __init__(self, path: str) -> None:
        self.transport = Transport(path)

    @property
    def path(self) -> str:
        """The socket's path."""
        return self.transport.path

    def ask(self, request: Request) -> Any:
        """The answer's JSON; None where it has no body."""
        return self.transport.ask(request)

    def host(self) -> Answer:
        """What the host can do."""
        return self._ask(routes.host())

    def set_draining(self, *, draining: bool) -> Answer:
        """Have the host take no new work, or take it again; the host."""
        return self._ask(routes.set_draining(draining=draining))

    def create_sandbox(
        self, body: Mapping[str, Any], *, capacity_seconds: float | None = None
    ) -> Answer:
        """A new sandbox. capacity_seconds: how long to wait until there is room for it."""
        return self._ask_patiently(routes.create_sandbox(body), capacity_seconds)

    def get_sandbox(self, ref: str) -> Answer:
        """One sandbox, by id or name."""
        return self._ask(routes.get_sandbox(ref))

    def list_sandboxes(self, **filters: object) -> Iterator[Answer]:
        """All that the caller may see, oldest first."""
        return self._pages("sandboxes", lambda cursor: routes.list_sandboxes(filters, cursor))

    def change_sandbox(self, ref: str, body: Mapping[str, Any]) -> Answer:
        """Change it live."""
        return self._ask(routes.change_sandbox(ref, body))

    def release_sandbox(self, ref: str) -> None:
        """Returns once it is gone."""
        self.ask(routes.release_sandbox(ref))

    def suspend_sandbox(self, ref: str) -> Answer:
        """Freeze every process in it."""
        return self._ask(routes.suspend_sandbox(ref))

    def resume_sandbox(self, ref: str) -> Answer:
        """Let them go on."""
        return self._ask(routes.resume_sandbox(ref))

    def metrics(self, ref: str, *, by_execution: bool = False) -> Answer:
        """What a sandbox uses now, and if asked each of its running executions."""
        return self._ask(routes.sandbox_metrics(ref, by_execution=by_execution))

    def history(self, since: str, until: str, points: int) -> Answer:
        """What was used, how executions ended and what was refused, from one time to another."""
        return self._ask(routes.history(since, until, points))

    def start_execution(
        self, ref: str, body: Mapping[str, Any], *, wait_seconds: float = 0.0,
        capacity_seconds: float | None = None,
    ) -> Answer:  # fmt: skip
        """The execution, when it ended or after `wait_seconds`; then `finish_execution`."""
        return self._start(routes.start_execution(ref, body, wait_seconds), capacity_seconds)

    def run(
        self, body: Mapping[str, Any], *, wait_seconds: float | None = 0.0,
        capacity_seconds: float | None = None,
    ) -> Answer:  # fmt: skip
        """The same in a new sandbox that lives as long as it; wait_seconds: None = to its end."""
        return self._start(routes.run(body, wait_seconds), capacity_seconds)

    def run_once(self, body: Mapping[str, Any], *, capacity_seconds: float | None = None) -> Answer:
        """The finished execution of a run, with the files that `body` has read after it.

        It goes on when the daemon is restarted, and so does the wait. When this is left by another
        exception than a refusal, the sandbox, which `body` has to name, is released.
        """
        request = routes.run(body, None)
        absence = Absence(request, RESTART_SECONDS)
        try:
            while True:
                try:
                    return self._ask_patiently(request, capacity_seconds)
                except AWAY as exc:
                    absence.check(exc)
                # A daemon that is not there yet tells nobody when it is.
                time.sleep(RETRY_SECONDS)
        except SandboxdError:
            raise
        except BaseException:
            if request.was_sent:
                with suppress(SandboxdError, OSError):
                    self._release_soon(body["name"])
            raise

    def _release_soon(self, name: str) -> None:
        """Release a sandbox that may be about to be made."""
        for pause in RELEASE_PAUSES_SECONDS:
            try:
                return self.release_sandbox(name)
            except NotFound:
                # Nobody tells when a name comes to be.
                time.sleep(pause)
        return self.release_sandbox(name)

    def get_execution(self, ref: str, execution_id: str) -> Answer:
        """One execution as it is now."""
        return self._ask(routes.get_execution(ref, execution_id))

    def wait_execution(
        self, ref: str, execution_id: str, *, timeout_seconds: float | None = None
    ) -> Answer:
        """The finished execution, or after the timeout (None = never) as it is then."""
        while True:
            wait = routes.FINAL_WAIT_SECONDS if timeout_seconds is None else timeout_seconds
            answer = self._ask(routes.wait_execution(ref, execution_id, wait))
            if answer["status"] not in RUNNING or timeout_seconds is not None:
                return answer

    def finish_execution(self, ref: str, execution_id: str) -> Answer:
        """The finished execution. It goes on when the daemon is restarted, and so does the wait.

        Raises ConnectionLost when the daemon stays away for RESTART_SECONDS.
        """
        give_up: float | None = None
        while True:
            try:
                return self.wait_execution(ref, execution_id)
            except AWAY as exc:
                now = time.monotonic()
                give_up = now + RESTART_SECONDS if give_up is None else give_up
                if now > give_up:
                    raise away(exc, ref, execution_id) from exc
            # A daemon that is not there yet tells nobody when it is.
            time.sleep(RETRY_SECONDS)

    def list_executions(self, ref: str | None = None, **filters: object) -> Iterator[Answer]:
        """Those of one sandbox, or all that the caller may see."""
        return self._pages(
            "executions", lambda cursor: routes.list_executions(ref, filters, cursor)
        )

    def kill_execution(self, ref: str, execution_id: str, body: Mapping[str, Any]) -> Answer:
        """End it, or only send a signal."""
        return self._ask(routes.kill_execution(ref, execution_id, body))

    def read_output(
        self, ref: str, execution_id: str, stream: str, *, offset: int = 0
    ) -> Iterator[bytes]:
        """What was printed so far."""
        with self.transport.open(routes.read_output(ref, execution_id, stream, offset)) as answer:
            yield from answer.chunks()

    def all_output(self, execution: Answer, stream: str) -> Iterator[bytes]:
        """Every byte of an execution's stream: what its answer carries, then the rest."""
        inline = inline_output(execution, stream)
        yield inline
        if execution[f"{stream}_inline_truncated"]:
            yield from self.read_output(
                execution["sandbox_id"], execution["id"], stream, offset=len(inline)
            )

    def _start(self, request: Request, capacity_seconds: float | None) -> Answer:
        """Start an execution; when this is left by another exception than a refusal, kill it."""
        try:
            return self._ask_patiently(request, capacity_seconds)
        except SandboxdError:
            raise
        except BaseException:
            if request.was_sent and request.has_key:
                with suppress(SandboxdError, OSError):
                    # By its key the answer is the first one's, and has the execution's id.
                    execution = self._ask(request)
                    self.kill_execution(execution["sandbox_id"], execution["id"], {})
            raise

    def _ask_patiently(self, request: Request, capacity_seconds: float | None) -> Answer:
        patience = Patience(capacity_seconds or 0.0)
        while True:
            try:
                return self._ask(request)
            except NO_ROOM as exc:
                # No daemon tells when there is room.
                time.sleep(patience.pause_seconds(exc))

    def _ask(self, request: Request) -> Answer:
        answer: Answer = self.transport.ask(request)
        return answer

    def _pages(self, key: str, page: Callable[[str | None], Request]) -> Iterator[Answer]:
        cursor: str | None = None
        while True:
            answer = self._ask(page(cursor))
            yield from answer[key]
            cursor = answer["next_cursor"]
            if cursor is None:
                return


def ended(answer: Answer) -> Answer | None:
    """The answer, if the execution ended and its output is in it, as it is in no list's."""
    return answer if answer["status"] not in RUNNING and "stdout" in answer else None


def inline_output(execution: Answer, stream: str) -> bytes:
    """The bytes of a stream that an answer carries."""
    encoded = execution.get(f"{stream}_base64")
    if encoded is not None:
        # Rarely needed, and no part of what a short command loads.
        import base64

        return base64.b64decode(encoded)
    return (execution[stream] or "").encode()
