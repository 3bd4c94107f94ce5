# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: passes requests to handlers, sends answers, and stops in an orderly way."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web

from sandboxd.api import openapi, replays
from sandboxd.api.connection import Connection, ConnectionFactory
from sandboxd.api.decode import read_body, read_query, validate
from sandboxd.api.peer import NOBODY, Peer
from sandboxd.api.responses import Reply, Sent, error_response, internal_error, send_reply
from sandboxd.api.routes import Access, AnyRoute, Call, check_parameters, path_parameter
from sandboxd.api.seen import Seen
from sandboxd.api.shares import SMALL_BYTES, Share, Shares
from sandboxd.api.table import ROUTES
from sandboxd.api.work import Work
from sandboxd.core.logs import ASKED, Asked, about
from sandboxd.core.model import Caller
from sandboxd.core.names import new_id
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import Origin
from sandboxd.errors import (
    AccessDenied,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    RouteNotFound,
    SandboxdError,
)
from sandboxd.wire.requests import NOTHING

logger = logging.getLogger(__name__)
# connect(2) to a Unix socket with a full backlog fails with EAGAIN if non-blocking (unix(7)).
_BACKLOG = 4096
_WORK_GRACE_SECONDS = 1.0
# aiohttp takes up to twice as long.
_CONNECTION_GRACE_SECONDS = 0.3
_OPENAPI_PATH = "/openapi.json"


@asynccontextmanager
async def serving(
    engine: Engine,
    sockets: Iterable[socket.socket],
    *,
    keys: replays.Keys,
    own_uid: int,
    admin_gids: Collection[int] = (),
) -> AsyncIterator[None]:
    """Serve the API on listening Unix sockets while the context is open, then close the sockets.

    On leaving, requests that only wait are ended with DRAINING, and the stop takes at most 2
    seconds. own_uid: the uid of the daemon.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        work = Work(tasks)
        api = Api(engine, work, replays.Replays(keys, work), own_uid, admin_gids)
        runner = web.ServerRunner(
            ConnectionFactory(api.handle, api.shares), shutdown_timeout=_CONNECTION_GRACE_SECONDS
        )
        await runner.setup()
        listeners = tuple(sockets)
        try:
            for listener in listeners:
                await web.SockSite(runner, listener, backlog=_BACKLOG).start()
            yield
        except Exception as exc:
            failure = exc
        finally:
            await _stop_accepting(listeners)
            await work.close(grace_seconds=_WORK_GRACE_SECONDS)
            await runner.cleanup()
    if failure is not None:
        # Raised outside the TaskGroup, which would wrap the exception in an ExceptionGroup.
        raise failure


async def _stop_accepting(listeners: Iterable[socket.socket]) -> None:
    """Leave new clients in the kernel's queue, for the next daemon if the socket is handed on.

    asyncio drops a connection without closing the socket if the server is closed between accept(2)
    and the transport's creation, two rounds of the loop later.
    """
    for listener in listeners:
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(3):
        await asyncio.sleep(0)


class Api:
    """Routes, authorizes, decodes and answers requests."""

    def __init__(
        self,
        engine: Engine,
        work: Work,
        once: replays.Replays,
        own_uid: int,
        admin_gids: Collection[int],
    ) -> None:
        self._engine = engine
        self._work = work
        self._replays = once
        self._own_uid = own_uid
        self._seen = Seen()
        self.shares = Shares()
        self._admin_gids = frozenset(admin_gids)
        self._document: bytes | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; errors and bugs are answered, too."""
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.request_started()
        request_id = new_id()
        begun = asyncio.get_running_loop().time()
        peer = connection.peer
        if peer is not None:
            ASKED.set(Asked(request_id, peer.uid, peer.pid))
        share = Share(self.shares, -1 if peer is None else peer.uid)
        try:
            await share.turn()
            answer = await self._respond(request, connection, request_id, share)
            response = await _sent(answer, request, request_id, share)
        except SandboxdError as exc:
            self._note(exc, None if peer is None else peer.as_caller(self._admin_gids))
            response = error_response(exc, request_id)
        except ConnectionError:
            raise
        except Exception as exc:
            self._count_error(InternalError.code, peer)
            response = internal_error(exc, request_id, f"{request.method} {_path(request)}")
        finally:
            share.release()
            connection.request_finished()
        if not response.prepared:
            response.headers.setdefault("X-Request-Id", request_id)
        took = asyncio.get_running_loop().time() - begun
        self._seen.answer(request.method, response.status, took)
        _log(request, connection, response.status, request_id)
        return response

    async def _respond(
        self, request: web.BaseRequest, connection: Connection, request_id: str, share: Share
    ) -> Sent | web.StreamResponse:
        path = request.rel_url.raw_path
        if path == _OPENAPI_PATH and request.method == "GET":
            return self._openapi()
        route, parameters = match(request.method, path)
        caller = self._authorize(route, connection)
        sandbox, execution = check_parameters(parameters)
        below = path_parameter(parameters)
        query = read_query(request, route.query)
        sent = b"" if route.streams_body else await read_body(request, route.max_body_bytes, share)
        key = request.headers.get(replays.HEADER) if request.method == "POST" else None
        with share.long_turn():
            fingerprint = replays.fingerprint_of(request, sent) if key is not None else ""
            bodies = [NOTHING if route.streams_body else validate(route.body, sent)]
        del sent
        call = Call(
            engine=self._engine,
            work=self._work,
            caller=caller,
            bodies=bodies,
            query=query,
            sandbox=sandbox,
            execution=execution,
            request=request,
            request_id=request_id,
            origin=Origin(request_id),
            path=below,
            seen=self._seen,
            share=share,
        )
        if key is not None:
            if not route.takes_key:
                raise InvalidRequest.field(
                    replays.HEADER, "not taken here: the body is a stream, and is not kept"
                )
            return await self._respond_once(route, call, key, fingerprint)
        answer = await route.handler(call)
        return send_reply(answer) if isinstance(answer, Reply) else answer

    async def _respond_once(
        self, route: AnyRoute, call: Call[Any, Any], key: str, fingerprint: str
    ) -> Sent:
        async def serve(origin: Origin, share: Share) -> Sent:
            try:
                answer = await route.handler(replace(call, origin=origin, share=share))
            except SandboxdError as exc:
                self._note(exc, call.caller)
                raise
            assert isinstance(answer, Reply)
            return send_reply(answer)

        return await self._replays.respond(
            call.caller, key, fingerprint, call.request_id, serve, call.share, call.drop_body
        )

    def _note(self, error: SandboxdError, asker: Caller | None) -> None:
        """Count an error; add details about other callers for admins and for the daemon's uid."""
        if asker is not None and (asker.is_admin or asker.uid == self._own_uid):
            error.details.update(error.of_others)
        self._count_error(error.code, asker)

    def _count_error(self, code: str, asker: Peer | Caller | None) -> None:
        """Count an error's code in the metrics, and in the history of the asking uid."""
        self._seen.refusal(code)
        if asker is not None:
            self._engine.note_refusal(asker.uid, code)

    def _authorize(self, route: AnyRoute, connection: Connection) -> Caller:
        peer = connection.peer
        if peer is not None:
            caller = peer.as_caller(self._admin_gids)
            if route.access is Access.ADMIN and not caller.is_admin:
                raise AccessDenied(
                    f"cannot let uid {caller.uid} do this: it is for admins",
                    hint="call as root, or as a member of the admin group (SANDBOX_ADMIN_GROUP)",
                )
            return caller
        if route.access is Access.ANYONE:
            return NOBODY
        raise AccessDenied(
            "cannot tell who is calling: the socket has no peer credentials",
            hint="connect to sandboxd's Unix socket from this host",
        )

    def _openapi(self) -> Sent:
        if self._document is None:
            self._document = openapi.document(ROUTES)
        return Sent(200, (self._document,))


async def _sent(
    answer: Sent | web.StreamResponse, request: web.BaseRequest, request_id: str, share: Share
) -> web.StreamResponse:
    """Return the response; a large answer is sent here already."""
    if not isinstance(answer, Sent):
        return answer
    if answer.size_bytes <= SMALL_BYTES:
        return answer.response()
    share.shrink(answer.size_bytes)
    return await answer.send(request, request_id)


def match(method: str, path: str) -> tuple[AnyRoute, dict[str, str | None]]:
    """Return the route and parameters of a path as sent. Raises RouteNotFound, MethodNotAllowed."""
    allowed = {"GET"} if path == _OPENAPI_PATH else set()
    for route in ROUTES:
        found = route.pattern.fullmatch(path)
        if found is not None and route.method == method:
            return route, found.groupdict()
        if found is not None:
            allowed.add(route.method)
    if allowed:
        methods = sorted(allowed)
        raise MethodNotAllowed(
            f"cannot {method[:16]} {path[:128]}: only {', '.join(methods)}",
            details={"allowed": methods},
        )
    raise RouteNotFound(
        f"cannot find {path[:128]!r}: no such route", hint=f"GET {_OPENAPI_PATH} lists all routes"
    )


def _path(request: web.BaseRequest) -> str:
    return request.rel_url.raw_path[:128]


def _log(request: web.BaseRequest, connection: Connection, status: int, request_id: str) -> None:
    """Log a request at level debug, since a caller's requests must not push out audit lines.

    Requests are counted in /metrics, errors in the history as well.
    """
    uid = None if connection.peer is None else connection.peer.uid
    logger.debug(
        "%s %s: %d (uid %s, request %s)", request.method, _path(request), status, uid,
        request_id, extra=about(REQUEST_ID=request_id, CALLER_UID=uid, HTTP_STATUS=status),
    )  # fmt: skip
