# SPDX-License-Identifier: Apache-2.0
"""Executions at a terminal without the server's default timeout: the user can end them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandboxd.client.calls import Client, JsonObject
from sandboxd.errors import LimitTooLarge

_FIELD = "timeout_seconds"
# A week is as good as no timeout; a refusal names the server's maximum.
_LONG_SECONDS = 7 * 86400.0


def start(
    client: Client,
    ref: str | None,
    body: dict[str, Any],
    begin: Callable[[dict[str, Any]], JsonObject],
) -> JsonObject:
    """Start `body` without a default timeout. ref: the sandbox; None = a new one for the call."""
    if _FIELD in body["limits"]:
        return begin(body)
    default = client.host()["limits"][_FIELD]
    if ref is not None and client.get_sandbox(ref)["limits"][_FIELD] != default:
        return begin(body)
    try:
        return begin(_limited(body, max(default, _LONG_SECONDS)))
    except LimitTooLarge as exc:
        if exc.details.get("limit") != _FIELD:
            raise
        return begin(_limited(body, exc.details["maximum"]))


def _limited(body: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {**body, "limits": {**body["limits"], _FIELD: seconds}}
