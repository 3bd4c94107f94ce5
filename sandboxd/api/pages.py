# SPDX-License-Identifier: Apache-2.0
"""Pages of lists. A cursor names the last entry sent, so it holds while entries come and go."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import TypeVar

from sandboxd.errors import InvalidRequest
from sandboxd.model import Execution, Sandbox

T = TypeVar("T", Sandbox, Execution)


def page(entries: Iterable[T], *, cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """`limit` entries after `cursor`, oldest first, and the cursor of the next page."""
    ordered = sorted(entries, key=_key)
    if cursor is not None:
        last = _decode(cursor)
        ordered = [entry for entry in ordered if _key(entry) > last]
    taken = ordered[:limit]
    return taken, _encode(_key(taken[-1])) if len(ordered) > limit else None


def _key(entry: Sandbox | Execution) -> str:
    return f"{entry.created_at.timestamp():020.6f} {entry.id}"


def _encode(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _decode(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidRequest.field("cursor", "not a next_cursor of an earlier answer") from None
