# SPDX-License-Identifier: Apache-2.0
"""Pages of lists. A cursor names the last entry sent, so stays valid while entries come and go.

A page is at most PAGE_BYTES long, or a single entry: records may hold far more bytes of callers
than the daemon should keep for a request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from sandboxd.api.responses import Reply
from sandboxd.api.shares import Share
from sandboxd.core.model import Execution, Sandbox
from sandboxd.errors import InvalidRequest

T = TypeVar("T", Sandbox, Execution)
PAGE_BYTES = 1 << 20
# The largest entry: the most bytes that exec can pass to a program, each byte escaped in JSON.
_ENTRY_BYTES = 12 << 20
_TURN_BYTES = 32 << 10


def page(entries: Iterable[T], *, cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """Return at most `limit` entries after `cursor`, oldest first, and the next page's cursor."""
    ordered = sorted(entries, key=_key)
    if cursor is not None:
        last = _decode(cursor)
        ordered = [entry for entry in ordered if _key(entry) > last]
    taken = ordered[:limit]
    return taken, _encode(_key(taken[-1])) if len(ordered) > limit else None


async def page_reply(
    name: str,
    found: Iterable[T],
    answer: Callable[[T], BaseModel],
    share: Share,
    *,
    cursor: str | None,
    limit: int,
) -> Reply:
    """Return a page with the list `name`, whose entries `answer` converts to models."""
    entries, next_cursor = page(found, cursor=cursor, limit=limit)
    await share.hold(PAGE_BYTES + _ENTRY_BYTES)
    pieces, size, since_turn = [b'{"%b":[' % name.encode()], 0, 0
    for number, entry in enumerate(entries):
        piece = to_json(answer(entry))
        if number and size + len(piece) > PAGE_BYTES:
            next_cursor = _encode(_key(entries[number - 1]))
            break
        pieces += [b",", piece] if number else [piece]
        size, since_turn = size + len(piece), since_turn + len(piece)
        if since_turn > _TURN_BYTES:
            since_turn = 0
            await share.turn()
    pieces.append(b'],"next_cursor":%b}' % to_json(next_cursor))
    return Reply(200, pieces=tuple(pieces))


def _key(entry: Sandbox | Execution) -> str:
    return f"{entry.created_at.timestamp():020.6f} {entry.id}"


def _encode(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _decode(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidRequest.field("cursor", "not a next_cursor of an earlier answer") from None
