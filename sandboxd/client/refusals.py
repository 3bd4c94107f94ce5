# SPDX-License-Identifier: Apache-2.0
"""The daemon's error form as error classes, and the errors that arise in the client alone."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from sandboxd import errors
from sandboxd.errors import MethodNotAllowed, RouteNotFound, SandboxdError

# A refusal's details: seconds after which a retry may succeed.
RETRY_AFTER = "retry_after_seconds"


class DaemonUnreachable(SandboxdError):
    """Raised when no daemon answers on the socket; `number` is the errno of connect(2)."""

    code: ClassVar[str] = "DAEMON_UNREACHABLE"
    retryable = True

    def __init__(self, path: str, number: int) -> None:
        hints = {
            errno.EACCES: "only members of the socket's group may connect: ask an admin",
            errno.ENOENT: "start sandboxd, or name its socket with --socket or SANDBOXD_SOCKET",
            errno.ECONNREFUSED: "start sandboxd: its socket is there, but nobody listens",
        }
        hint = hints.get(number)
        # connect(2) refuses a plain file or a directory like a socket without a listener.
        if number == errno.ECONNREFUSED and not _is_socket(path):
            hint = "it is no socket: name that of sandboxd with --socket or SANDBOXD_SOCKET"
        super().__init__(
            f"cannot reach sandboxd on {path}: {os.strerror(number).lower()}",
            hint=hint,
            details={"socket": path, "errno": number},
        )
        self.number = number


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        # Gone since the attempt.
        return True


class ConnectionLost(SandboxdError):
    """Raised when the connection ended before the daemon's answer was complete."""

    code: ClassVar[str] = "CONNECTION_LOST"
    retryable = True


class Silent(ConnectionLost):
    """Raised when the daemon sent no bytes within the request's timeout."""


class Unreadable(ConnectionLost):
    """Raised when the daemon's answer is not well-formed."""


class ServerTooOld(SandboxdError):
    """Raised when a daemon older than this client does not know the route."""

    code: ClassVar[str] = "SERVER_TOO_OLD"


class UnknownRefusal(SandboxdError):
    """Raised for an error code unknown to this client; `details` has the code."""


class NoBody(UnknownRefusal):
    """Raised for a refusal without a body, as to HEAD; `status` is the HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cannot do this: HTTP status {status}, with no word on why")
        self.status = status


def closed() -> ConnectionLost:
    """Return the error for a connection that ended before the answer was complete."""
    return ConnectionLost(
        "cannot get an answer from sandboxd: it closed the connection",
        hint="see its journal; an execution that was running goes on or is listed as ended",
    )


def silent(timeout_seconds: float | None) -> Silent:
    """Return the error for an answer that did not come in time."""
    return Silent(f"cannot get an answer from sandboxd: none within {timeout_seconds:g} seconds")


def away(cause: SandboxdError, ref: str, execution_id: str) -> ConnectionLost:
    """Return the error for a daemon that stays away while a flow waits for an execution."""
    return ConnectionLost(
        f"cannot learn how the execution ends: sandboxd is away ({cause})",
        hint=f"ask later with: sandboxctl inspect {ref} {execution_id}",
    )


def unreadable(reason: object) -> Unreadable:
    """Return the error for a malformed answer."""
    return Unreadable(f"cannot understand the answer of sandboxd: {reason}")


# A client never gets these codes from a daemon of the same version.
_NOT_KNOWN_THERE = (RouteNotFound.code, MethodNotAllowed.code)
_UPGRADE = "upgrade the daemon, or do without; `sandboxctl doctor` shows its version"


def refusal(status: int, body: bytes, retry_after: str | None = None) -> SandboxdError:
    """Return the error for an answer of `status`. retry_after: the header's value."""
    if not body:
        return NoBody(status)
    try:
        form = json.loads(body)["error"]
        code, message = str(form["code"]), str(form["message"])
        details: dict[str, Any] = {**form["details"], "request_id": form["request_id"]}
        hint, retryable = form["hint"], bool(form["retryable"])
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            details[RETRY_AFTER] = int(retry_after[:9])
    except (ValueError, KeyError, TypeError):
        return UnknownRefusal(f"cannot understand the answer: HTTP status {status}, not an error")
    if code in _NOT_KNOWN_THERE:
        details["code"] = code
        return ServerTooOld(
            f"{message}: this sandboxd is too old for it", hint=_UPGRADE, details=details
        )
    error = of_code(code, message, hint, details)
    error.retryable = retryable
    return error


def of_code(
    code: str, message: str, hint: str | None = None, details: Mapping[str, Any] | None = None
) -> SandboxdError:
    """Return the error of this code, or UnknownRefusal for a code unknown to this client."""
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
