# SPDX-License-Identifier: Apache-2.0
"""From the daemon's error form back to the error classes, and what only a client can meet."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from typing import Any, ClassVar

from sandboxd import errors
from sandboxd.errors import SandboxdError


class DaemonUnreachable(SandboxdError):
    """Raised when nobody answers on the socket; `number` is the errno of connect(2)."""

    code: ClassVar[str] = "DAEMON_UNREACHABLE"
    retryable = True

    def __init__(self, path: str, number: int) -> None:
        hints = {
            errno.EACCES: "only members of the socket's group may connect: ask an admin",
            errno.ENOENT: "start sandboxd, or name its socket with --socket or SANDBOXD_SOCKET",
            errno.ECONNREFUSED: "start sandboxd: its socket is there, but nobody listens",
        }
        super().__init__(
            f"cannot reach sandboxd on {path}: {os.strerror(number).lower()}",
            hint=hints.get(number),
            details={"socket": path, "errno": number},
        )
        self.number = number


class ConnectionLost(SandboxdError):
    """Raised when the daemon went away before its answer was complete."""

    code: ClassVar[str] = "CONNECTION_LOST"
    retryable = True


class UnknownRefusal(SandboxdError):
    """Raised for a code that this client does not know; it is in `details`."""


def refusal(status: int, body: bytes) -> SandboxdError:
    """The error that an answer of `status` stands for."""
    try:
        form = json.loads(body)["error"]
        code, message = str(form["code"]), str(form["message"])
        details: dict[str, Any] = {**form["details"], "request_id": form["request_id"]}
        hint = form["hint"]
    except (ValueError, KeyError, TypeError):
        return UnknownRefusal(f"cannot understand the answer: HTTP status {status}, not an error")
    kind = _BY_CODE.get(code)
    if kind is None:
        details["code"] = code
        kind = UnknownRefusal
    return kind(message, hint=hint, details=details)


def _with_codes(kind: type[SandboxdError]) -> Iterator[type[SandboxdError]]:
    if "code" in vars(kind):
        yield kind
    for child in kind.__subclasses__():
        yield from _with_codes(child)


_BY_CODE = {
    kind.code: kind for kind in _with_codes(SandboxdError) if kind.__module__ == errors.__name__
}
