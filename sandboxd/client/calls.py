# SPDX-License-Identifier: Apache-2.0
"""Flows of several requests: paged lists, retries for capacity, waits, whole outputs."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sandboxd.client import routes
from sandboxd.client.blocking import BlockingWaits, blocking, finish, iterate
from sandboxd.client.refusals import Silent, Unreadable, away
from sandboxd.client.request import AWAY, NO_ROOM, Absence, Patience, Request
from sandboxd.client.transport import Transport, Waits
from sandboxd.errors import NotFound, SandboxdError

DEFAULT_SOCKET = "/run/sandboxd/sandboxd.sock"
SOCKET_VARIABLE = "SANDBOXD_SOCKET"
# Pauses between attempts to release the sandbox of an abandoned run.
RELEASE_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
# The longest time that a cancelled task spends on killing the command.
ABANDON_SECONDS = 5.0
RUNNING = ("PENDING", "RUNNING")

JsonObject = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


def socket_path(named: str | None = None) -> str:
    """Return `named`, else SANDBOXD_SOCKET, else the system service's socket path."""
    return named or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET


class Flows:
    """Requests to one daemon. Methods raise refusals as classes of sandboxd.errors."""

    def __init__(self, path: str, waits: Waits) -> None:
        self.transport = Transport(path, waits)
        self.waits = waits

    async def ask(self, request: Request) -> Any:
        """Send `request` and return the decoded JSON; None for an empty body."""
        return await self.transport.ask(request)

    async def pages(
        self, key: str, page: Callable[[str | None], Request]
    ) -> AsyncGenerator[JsonObject, None]:
        """Iterate over a list. page: a page's request, by the cursor of the page before."""
        cursor: str | None = None
        while True:
            answer = await self.ask(page(cursor))
            for entry in answer[key]:
                yield entry
            cursor = answer["next_cursor"]
            if cursor is None:
                return

    async def ask_patiently(self, request: Request, capacity_seconds: float | None) -> JsonObject:
        """Return the answer; repeat a request refused for lack of room for `capacity_seconds`."""
        patience = Patience(capacity_seconds or 0.0)
        while True:
            try:
                answer: JsonObject = await self.ask(request)
            except NO_ROOM as exc:
                # The daemon sends no event when capacity becomes free.
                await self.waits.sleep(patience.pause_seconds(exc))
            else:
                return answer

    async def create_sandbox(
        self, body: Mapping[str, Any], *, capacity_seconds: float | None = None
    ) -> JsonObject:
        """Create a sandbox. capacity_seconds: how long to repeat refusals for lack of room."""
        return await self.ask_patiently(routes.create_sandbox(body), capacity_seconds)

    async def start_execution(
        self, ref: str, body: Mapping[str, Any], *, wait_seconds: float = 0.0,
        capacity_seconds: float | None = None,
    ) -> JsonObject:  # fmt: skip
        """Start an execution and return the state at the end, or after `wait_seconds`.

        An exception that is no refusal, for example KeyboardInterrupt or CancelledError, kills the
        execution.
        """
        return await self._start(routes.start_execution(ref, body, wait_seconds), capacity_seconds)

    async def run(
        self, body: Mapping[str, Any], *, wait_seconds: float | None = 0.0,
        capacity_seconds: float | None = None,
    ) -> JsonObject:  # fmt: skip
        """Start an execution in a new sandbox. wait_seconds: None = to the end."""
        return await self._start(routes.run(body, wait_seconds), capacity_seconds)

    async def run_once(
        self, body: Mapping[str, Any], *, capacity_seconds: float | None = None
    ) -> JsonObject:
        """Run to the end and return the finished execution, with the files in `body`'s read_files.

        Execution and wait go on over a restart of the daemon. An exception that is no refusal
        releases the sandbox; `body` must have the sandbox's name.
        """
        request = routes.run(body, None)

        def is_refused(exc: SandboxdError) -> bool:
            # Draining refuses new work for good; a stopping daemon only ends the wait.
            is_final = isinstance(exc, Silent | Unreadable) or bool(exc.details.get("draining"))
            return is_final or not (request.was_sent and request.has_key)

        try:
            return await self.over_restarts(
                lambda: self.ask_patiently(request, capacity_seconds), is_refused
            )
        except SandboxdError:
            raise
        except BaseException:
            if request.was_sent:
                with suppress(SandboxdError, OSError):
                    async with self.waits.limited(ABANDON_SECONDS):
                        await self._release_soon(body["name"])
            raise

    async def wait_execution(
        self, ref: str, execution_id: str, *, timeout_seconds: float | None = None
    ) -> JsonObject:
        """Return the finished execution, or the state after `timeout_seconds` (None = never)."""
        while True:
            wait = routes.FINAL_WAIT_SECONDS if timeout_seconds is None else timeout_seconds
            answer: JsonObject = await self.ask(routes.wait_execution(ref, execution_id, wait))
            if answer["status"] not in RUNNING or timeout_seconds is not None:
                return answer

    async def finish_execution(self, ref: str, execution_id: str) -> JsonObject:
        """Return the finished execution. Execution and wait go on over a restart of the daemon.

        Raises ConnectionLost when the daemon stays away for RESTART_SECONDS.
        """
        try:
            return await self.over_restarts(lambda: self.wait_execution(ref, execution_id))
        except AWAY as exc:
            raise away(exc, ref, execution_id) from exc

    async def over_restarts(
        self,
        attempt: Callable[[], Coroutine[Any, Any, T]],
        is_final: Callable[[SandboxdError], bool] = lambda _: False,
    ) -> T:
        """Repeat `attempt` over restarts, for RESTART_SECONDS or until `is_final`; raises AWAY."""
        absence = Absence()
        while True:
            try:
                return await attempt()
            except AWAY as exc:
                if is_final(exc):
                    raise
                pause = absence.pause_seconds(exc)
            await self.waits.sleep(pause)

    async def all_output(self, execution: JsonObject, stream: str) -> bytes:
        """Return all bytes of an execution's stream: the inline part, then the rest."""
        inline = inline_output(execution, stream)
        if not execution[f"{stream}_inline_truncated"]:
            return inline
        sandbox, identity = execution["sandbox_id"], execution["id"]
        request = routes.read_output(sandbox, identity, stream, len(inline))
        return inline + await self.transport.read(request)

    async def _release_soon(self, name: str) -> None:
        """Release a sandbox whose creation may still be under way."""
        for pause in RELEASE_PAUSES_SECONDS:
            try:
                await self.ask(routes.release_sandbox(name))
            except NotFound:
                # No event says when a sandbox of this name exists.
                await self.waits.sleep(pause)
            else:
                return
        await self.ask(routes.release_sandbox(name))

    async def _start(self, request: Request, capacity_seconds: float | None) -> JsonObject:
        try:
            return await self.ask_patiently(request, capacity_seconds)
        except SandboxdError:
            raise
        except BaseException:
            if request.was_sent and request.has_key:
                with suppress(SandboxdError, OSError):
                    async with self.waits.limited(ABANDON_SECONDS):
                        # By the same key the daemon repeats the first answer, with the execution's
                        # id.
                        made = await self.ask(request)
                        await self.ask(routes.kill_execution(made["sandbox_id"], made["id"], {}))
            raise


def _asks(route: Callable[P, Request]) -> Callable[Concatenate[Client, P], JsonObject]:
    """Return a method of Client that sends a route's request, with the route's docstring."""

    @wraps(route)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> JsonObject:
        answer: JsonObject = self.ask(route(*args, **kwargs))
        return answer

    return call


class Client:
    """Blocking requests to one daemon. Methods raise refusals as classes of sandboxd.errors."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.flow = self._flow = Flows(path, BlockingWaits())

    ask = blocking(Flows.ask)
    create_sandbox = blocking(Flows.create_sandbox)
    start_execution = blocking(Flows.start_execution)
    run = blocking(Flows.run)
    run_once = blocking(Flows.run_once)
    all_output = blocking(Flows.all_output)
    wait_execution = blocking(Flows.wait_execution)
    finish_execution = blocking(Flows.finish_execution)
    host = _asks(routes.host)
    set_draining = _asks(routes.set_draining)
    get_sandbox = _asks(routes.get_sandbox)
    change_sandbox = _asks(routes.change_sandbox)
    release_sandbox = _asks(routes.release_sandbox)
    suspend_sandbox = _asks(routes.suspend_sandbox)
    resume_sandbox = _asks(routes.resume_sandbox)
    metrics = _asks(routes.sandbox_metrics)
    history = _asks(routes.history)
    get_execution = _asks(routes.get_execution)
    kill_execution = _asks(routes.kill_execution)

    def reach(self) -> None:
        """Connect without a request. Raises DaemonUnreachable if no daemon listens."""
        finish(self._flow.transport.reach())

    @contextmanager
    def open(self, request: Request) -> Iterator[Iterator[bytes]]:
        """Give the answer's body in pieces, on arrival."""
        with closing(finish(self._flow.transport.open(request))) as answer:
            yield iter(lambda: finish(answer.piece()), b"")

    def list_sandboxes(self, **filters: object) -> Iterator[JsonObject]:
        """Iterate over the sandboxes that the caller may see, oldest first."""
        return iterate(
            self._flow.pages("sandboxes", lambda cursor: routes.list_sandboxes(filters, cursor))
        )

    def list_executions(self, ref: str | None = None, **filters: object) -> Iterator[JsonObject]:
        """Iterate over the executions of a sandbox, or all that the caller may see."""
        return iterate(
            self._flow.pages(
                "executions", lambda cursor: routes.list_executions(ref, filters, cursor)
            )
        )

    def read_output(
        self, ref: str, execution_id: str, stream: str, *, offset: int = 0
    ) -> Iterator[bytes]:
        """Iterate over the output of a stream up to now, from byte `offset`."""
        with self.open(routes.read_output(ref, execution_id, stream, offset)) as pieces:
            yield from pieces


def ended(answer: JsonObject) -> JsonObject | None:
    """Return `answer` if the execution has ended and the answer carries output (lists do not)."""
    return answer if answer["status"] not in RUNNING and "stdout" in answer else None


def inline_output(execution: JsonObject, stream: str) -> bytes:
    """Return the bytes of a stream that an answer carries."""
    encoded = execution.get(f"{stream}_base64")
    if encoded is not None:
        # Imported late: text output, the common case, needs no base64.
        import base64

        return base64.b64decode(encoded)
    return (execution[stream] or "").encode()
