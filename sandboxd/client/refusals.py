# SPDX-License-Identifier: Apache-2.0
"""From the daemon's error form back to the error classes, and what only a client can meet."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from sandboxd import errors
from sandboxd.errors import MethodNotAllowed, RouteNotFound, SandboxdError

# In the details of a refusal: after how many seconds it may be worth another try.
RETRY_AFTER = "retry_after_seconds"


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


class Silent(ConnectionLost):
    """Raised when the daemon said nothing for as long as it may."""


class Unreadable(ConnectionLost):
    """Raised when what the daemon sent is not what it promised."""


class ServerTooOld(SandboxdError):
    """Raised when the daemon does not know what was asked for: it is older than this client."""

    code: ClassVar[str] = "SERVER_TOO_OLD"


class UnknownRefusal(SandboxdError):
    """Raised for a code that this client does not know; it is in `details`."""


class NoBody(UnknownRefusal):
    """Raised for a refusal that only has a `status`, as the answer to HEAD."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cannot do this: HTTP status {status}, with no word on why")
        self.status = status


def closed() -> ConnectionLost:
    """The error for a connection that ended before the answer did."""
    return ConnectionLost(
        "cannot get an answer from sandboxd: it closed the connection",
        hint="see its journal; an execution that was running goes on or is listed as ended",
    )


def silent(timeout_seconds: float | None) -> Silent:
    """The error for an answer that did not come in time."""
    return Silent(f"cannot get an answer from sandboxd: none within {timeout_seconds:g} seconds")


def away(cause: SandboxdError, ref: str, execution_id: str) -> ConnectionLost:
    """The error for a daemon that does not come back while an execution is waited for."""
    return ConnectionLost(
        f"cannot learn how the execution ends: sandboxd is away ({cause})",
        hint=f"ask later with: sandboxctl inspect {ref} {execution_id}",
    )


def unreadable(reason: object) -> Unreadable:
    """The error for an answer in another form."""
    return Unreadable(f"cannot understand the answer of sandboxd: {reason}")


# What a client of the same version never gets, since it asks for routes that are there.
_NOT_KNOWN_THERE = (RouteNotFound.code, MethodNotAllowed.code)
_UPGRADE = "upgrade the daemon, or do without; `sandboxctl doctor` shows its version"


def refusal(status: int, body: bytes, retry_after: str | None = None) -> SandboxdError:
    """The error that an answer of `status` stands for. retry_after: the header's value."""
    if not body:
        return NoBody(status)
    try:
        form = json.loads(body)["error"]
        code, message = str(form["code"]), str(form["message"])
        details: dict[str, Any] = {**form["details"], "request_id": form["request_id"]}
        hint = form["hint"]
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            details[RETRY_AFTER] = int(retry_after[:9])
    except (ValueError, KeyError, TypeError):
        return UnknownRefusal(f"cannot understand the answer: HTTP status {status}, not an error")
    if code in _NOT_KNOWN_THERE:
        details["code"] = code
        return ServerTooOld(
            f"{message}: this sandboxd is too old for it", hint=_UPGRADE, details=details
        )
    return of_code(code, message, hint, details)


def of_code(
    code: str, message: str, hint: str | None = None, details: Mapping[str, Any] | None = None
) -> SandboxdError:
    """The error of this code; UnknownRefusal for one that this client does not know."""
    kind = _BY_CODE.get(code)
    if kind is None:
        return UnknownRefusal(message, hint=hint, details={**(details or {}), "code": code})
    return kind(message, hint=hint, details=dict(details or {}))


def _with_codes(kind: type[SandboxdError]) -> Iterator[type[SandboxdError]]:
    if "code" in vars(kind):
        yield kind
    for child in kind.__subclasses__():
        yield from _with_codes(child)


_BY_CODE = {
    kind.code: kind for kind in _with_codes(SandboxdError) if kind.__module__ == errors.__name__
}
