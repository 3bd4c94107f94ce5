# SPDX-License-Identifier: Apache-2.0
"""Idempotency-Key: a retry of a POST gets the first answer, and has no effect a second time.

A request with a key runs in a task of the server, so that the answer is kept for the retry of a
client that went away. After a restart of the daemon the engine is told that the request is a retry,
and finds sandbox or execution of the first request by the request id.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from sandboxd import errors
from sandboxd.api.responses import Sent, send_error
from sandboxd.api.shares import SMALL_BYTES, Share
from sandboxd.api.work import Work
from sandboxd.core.model import Caller
from sandboxd.engine.ports.store import KeptKey
from sandboxd.engine.requests import Origin

logger = logging.getLogger(__name__)
HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)


class Keys(Protocol):
    """Idempotency keys and first answers on disk."""

    def find(self, uid: int, key: str) -> KeptKey | None:
        """Return what is kept for a caller's key; None for an unknown or old key."""

    async def begin(self, uid: int, key: str, fingerprint: str, request_id: str) -> KeptKey:
        """Keep a new key before the request has any effect. Raises QuotaExceeded, HostDiskFull."""

    async def keep(self, key: KeptKey, status: int, body: bytes) -> None:
        """Keep the first answer to `key`.

        Raises HostDiskFull, HostStorageFailed: then the sandbox or execution that the request made
        can still be read.
        """

    async def forget(self, key: KeptKey) -> None:
        """Remove `key`, so that a retry counts as a first request."""

    async def body(self, key: KeptKey) -> bytes | None:
        """Return the body of the first answer; None if unreadable."""


@dataclass(frozen=True, slots=True)
class _Running:
    fingerprint: str
    request_id: str
    answer: asyncio.Future[Sent]
    # The shares of retries that wait for the answer.
    waiting: set[Share] = field(default_factory=set)


# Makes the first answer; the bytes of the answer count in the given share.
Serve = Callable[[Origin, Share], Awaitable[Sent]]


class Replays:
    """Requests with a key, of all callers: running ones, and answers kept in `keys`."""

    def __init__(self, keys: Keys, work: Work) -> None:
        self._keys = keys
        self._work = work
        self._running: dict[tuple[int, str], _Running] = {}

    async def respond(
        self,
        caller: Caller,
        key: str,
        fingerprint: str,
        request_id: str,
        serve: Serve,
        share: Share,
        drop_body: Callable[[], None],
    ) -> Sent:
        """Return the first answer to this key, made by `serve` unless known.

        drop_body: called once the request's body, and the room for the body in `share`, is of no
        use. Raises IdempotencyKeyReused, and HostStorageFailed for an unreadable answer.
        """
        if _KEY.fullmatch(key) is None:
            raise errors.InvalidRequest.field(HEADER, "must be 1 to 255 printable ASCII characters")
        running = self._running.get((caller.uid, key))
        if running is not None:
            _check(running.fingerprint, fingerprint)
            # The first request may need the room.
            drop_body()
            running.waiting.add(share)
            try:
                async with self._work.waiting():
                    sent = await asyncio.shield(running.answer)
            finally:
                running.waiting.discard(share)
            return _again(sent, running.request_id)
        known = self._keys.find(caller.uid, key)
        if known is not None:
            _check(known.fingerprint, fingerprint)
            if known.status is not None:
                drop_body()
                return await self._kept(known, known.status, share)
        answer: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        # asyncio logs an exception as never retrieved if no retry waits for the future.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        first_id = request_id if known is None else known.request_id
        running = _Running(fingerprint, first_id, answer)
        self._running[caller.uid, key] = running
        origin = Origin(first_id, is_retry=known is not None)
        # The share of the task, which may outlive the client's request.
        kept = share.another()
        kept.take_over(share)
        work = self._first(caller, key, running, origin, serve, kept, known)
        try:
            await self._work.shield(work)
            sent = await answer
        except errors.Draining:
            self._running.pop((caller.uid, key), None)
            kept.release()
            raise
        except BaseException:
            answer.add_done_callback(lambda _: kept.release())
            raise
        share.take_over(kept)
        return sent

    async def _first(
        self,
        caller: Caller,
        key: str,
        running: _Running,
        origin: Origin,
        serve: Serve,
        share: Share,
        known: KeptKey | None,
    ) -> None:
        answer, first_id = running.answer, origin.request_id
        try:
            if known is None:
                known = await self._keys.begin(caller.uid, key, running.fingerprint, first_id)
            sent, is_kept = await self._serve(serve, origin, share)
            if is_kept:
                await self._keep(known, sent)
            else:
                await self._keys.forget(known)
            for one in running.waiting:
                one.join(share)
            answer.set_result(sent)
        except BaseException as exc:
            # A stop of the server is no answer to the request: the next daemon finds the key
            # unanswered, and the sandbox or execution by the request id.
            if not answer.done():
                answer.set_exception(exc if isinstance(exc, Exception) else _stopping())
            if not isinstance(exc, Exception):
                raise
        finally:
            self._running.pop((caller.uid, key), None)

    async def _kept(self, known: KeptKey, status: int, share: Share) -> Sent:
        await share.hold(known.size_bytes)
        body = await self._keys.body(known)
        if body is None:
            raise errors.HostStorageFailed(
                f"cannot read the answer that was kept for this {HEADER}",
                hint="look for what the first request made; a new key does it anew",
            )
        return _again(Sent(status, (body,) if body else ()), known.request_id)

    async def _serve(self, serve: Serve, origin: Origin, share: Share) -> tuple[Sent, bool]:
        """Return the answer, and whether to keep the answer for retries.

        Retryable errors and statuses from 500 on are not kept, since a retry may succeed.
        """
        try:
            return await serve(origin, share), True
        except errors.SandboxdError as exc:
            if isinstance(exc, errors.Draining) and self._work.is_closed:
                raise
            sent = send_error(exc, origin.request_id)
            return sent, not exc.retryable and sent.status < 500

    async def _keep(self, key: KeptKey, sent: Sent) -> None:
        try:
            await self._keys.keep(key, sent.status, sent.body)
        except (errors.HostDiskFull, errors.HostStorageFailed) as exc:
            logger.warning("cannot keep the answer to request %s: %s", key.request_id, exc)


def _check(first: str, now: str) -> None:
    if first != now:
        raise errors.IdempotencyKeyReused(
            f"cannot take this {HEADER}: it came with another request before",
            hint="use a new key for each request, and the same one for its retries only",
        )


def _again(sent: Sent, request_id: str) -> Sent:
    return Sent(
        sent.status,
        sent.pieces,
        {**sent.headers, REPLAYED_HEADER: "true", "X-Request-Id": request_id},
    )


def _stopping() -> errors.Draining:
    return errors.Draining(
        "cannot finish: sandboxd is stopping", hint="send the request again with the same key"
    )


def fingerprint_of(request: web.BaseRequest, body: bytes) -> str:
    """Return a hash of the request; small JSON bodies count as equal whatever their formatting."""
    try:
        if len(body) <= SMALL_BYTES:
            body = json.dumps(json.loads(body or b"{}"), sort_keys=True).encode()
    except (ValueError, RecursionError):
        # `validate` refuses the body later.
        logger.debug("a body that is no JSON comes with a key")
    digest = hashlib.sha256(f"{request.method} {request.rel_url.raw_path_qs}\n".encode())
    digest.update(body)
    return digest.hexdigest()
