# SPDX-License-Identifier: Apache-2.0
"""Idempotency-Key: a retry of a POST gets the first answer, and starts nothing a second time.

A request with a key runs in a task of the server's own, so that its answer is there for the retry
of a client that went away. Where the daemon itself went away, the retry is sent to the engine as
one: what the first sending made carries its request id.
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
    """Keys and first answers on disk."""

    def find(self, uid: int, key: str) -> KeptKey | None:
        """What is known of a key."""
        ...

    async def begin(self, uid: int, key: str, fingerprint: str, request_id: str) -> KeptKey:
        """Note a new key before its request does anything. Raises QuotaExceeded, HostDiskFull."""
        ...

    async def keep(self, key: KeptKey, status: int, body: bytes) -> None:
        """Keep the first answer. Raises HostDiskFull, HostStorageFailed."""
        ...

    async def forget(self, key: KeptKey) -> None:
        """As if the request had never come."""
        ...

    async def body(self, key: KeptKey) -> bytes | None:
        """The body of the first answer; None when it cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class _Running:
    fingerprint: str
    request_id: str
    answer: asyncio.Future[Sent]
    # Of retries that wait for the answer.
    waiting: set[Share] = field(default_factory=set)


# Told whose share what it keeps is of.
Serve = Callable[[Origin, Share], Awaitable[Sent]]


class Replays:
    """The keys of all callers."""

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
        """The first answer to this key; `serve` makes it.

        drop_body: called where the request's body, and what `share` keeps for it, is of no use.
        Raises IdempotencyKeyReused, and HostStorageFailed for an answer that cannot be read.
        """
        if _KEY.fullmatch(key) is None:
            raise errors.InvalidRequest.field(HEADER, "must be 1 to 255 printable ASCII characters")
        running = self._running.get((caller.uid, key))
        if running is not None:
            _check(running.fingerprint, fingerprint)
            # The first one may need the room.
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
        # One that nobody waits for must not be reported as never retrieved.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        first_id = request_id if known is None else known.request_id
        running = _Running(fingerprint, first_id, answer)
        self._running[caller.uid, key] = running
        origin = Origin(first_id, is_retry=known is not None)
        # Of the task, which may outlive the client's request.
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
            # A wait that the server's stop ended is none of the request's own answers: the next
            # daemon finds the key unanswered, and by its request id what was made.
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
        """The answer, and whether it is the one that retries get: not where a retry may do
        better."""
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
    """Of what is asked: JSON that only looks different is the same, where it is small."""
    try:
        if len(body) <= SMALL_BYTES:
            body = json.dumps(json.loads(body or b"{}"), sort_keys=True).encode()
    except (ValueError, RecursionError):
        # Refused as it is, when it gets to be read.
        logger.debug("a body that is no JSON comes with a key")
    digest = hashlib.sha256(f"{request.method} {request.rel_url.raw_path_qs}\n".encode())
    digest.update(body)
    return digest.hexdigest()
