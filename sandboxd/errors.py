# SPDX-License-Identifier: Apache-2.0
"""What sandboxd could not do. The end of a program is an Outcome (model.py), never an error.

SandboxdError
├── InvalidRequest
│   ├── LimitTooSmall, LimitTooLarge, LimitUnsupported, IsolationUnsupported
│   ├── RouteNotFound, MethodNotAllowed, UnsupportedMediaType, RequestTooLarge
├── NotFound: SandboxNotFound, ExecutionNotFound, FileMissing
├── Conflict: SandboxSuspended, SandboxReleased, ExecutionFinished, LimitBelowUsage, NameInUse,
│   StdinClosed, OutputTimesUnknown, IdempotencyKeyReused, FileConflict
├── AccessDenied
├── ExecutionNotStarted
├── DiskQuotaExceeded
├── QuotaExceeded: ExecutionLimitReached
├── Unavailable: CapacityExceeded, HostDiskFull, Draining, BusUnavailable
├── HostStorageFailed
├── SchemeError: JobFailed, PropertyRejected (UnitExists), UnitMissing, LimitNotApplied
├── OperationTimedOut
├── ConfigError (start-up only)
└── InternalError
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, ClassVar


class SandboxdError(Exception):
    """Raised when sandboxd cannot do what was asked; `code` is the stable contract."""

    code: ClassVar[str] = "INTERNAL"
    # Whether the same request may succeed later.
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        of_others: Mapping[str, Any] | None = None,
        retryable: bool | None = None,
    ) -> None:
        """Set the error's facts.

        of_others: details on different callers, for admins alone. retryable: None = the class's.
        """
        super().__init__(message)
        if retryable is not None:
            self.retryable = retryable
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})
        self.of_others: dict[str, Any] = dict(of_others or {})


class InvalidRequest(SandboxdError):
    """Raised when a request is malformed; `details.fields` lists path and reason."""

    code = "INVALID_REQUEST"

    @classmethod
    def field(cls, path: str, reason: str) -> InvalidRequest:
        """The error for one bad field."""
        return cls(
            f"cannot accept {path}: {reason}",
            details={"fields": [{"path": path, "reason": reason}]},
        )


class LimitTooSmall(InvalidRequest):
    """Raised when a limit is below what an execution needs to exist."""

    code = "LIMIT_TOO_SMALL"


class LimitTooLarge(InvalidRequest):
    """Raised when a limit is above the server's maximum; requests are never clamped."""

    code = "LIMIT_TOO_LARGE"


class LimitUnsupported(InvalidRequest):
    """Raised when a limit named in `require` cannot be enforced on this host."""

    code = "LIMIT_UNSUPPORTED"


class IsolationUnsupported(InvalidRequest):
    """Raised when the isolation level or network asked for cannot be had on this host."""

    code = "ISOLATION_UNSUPPORTED"


class RouteNotFound(InvalidRequest):
    """Raised when no route has the path."""

    code = "ROUTE_NOT_FOUND"


class MethodNotAllowed(InvalidRequest):
    """Raised when the path exists, but not with this method."""

    code = "METHOD_NOT_ALLOWED"


class UnsupportedMediaType(InvalidRequest):
    """Raised when a body is not JSON."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class RangeNotSatisfiable(InvalidRequest):
    """Raised when an offset lies behind the end of what is there."""

    code = "RANGE_NOT_SATISFIABLE"


class RequestTooLarge(InvalidRequest):
    """Raised when a body passes the server's bound."""

    code = "REQUEST_TOO_LARGE"


class AccessDenied(SandboxdError):
    """Raised when the caller may not do this."""

    code = "ACCESS_DENIED"


class NotFound(SandboxdError):
    """Raised when nothing of this name is visible to the caller."""


class SandboxNotFound(NotFound):
    """Raised when no sandbox of this id or name is visible to the caller."""

    code = "SANDBOX_NOT_FOUND"


class ExecutionNotFound(NotFound):
    """Raised when the sandbox has no execution of this id."""

    code = "EXECUTION_NOT_FOUND"


class FileMissing(NotFound):
    """Raised when nothing is at a path in a sandbox's home."""

    code = "FILE_NOT_FOUND"


class Conflict(SandboxdError):
    """Raised when the state of the thing forbids the verb."""


class SandboxSuspended(Conflict):
    """Raised when a suspended sandbox is asked to start an execution."""

    code = "SANDBOX_SUSPENDED"


class SandboxReleased(Conflict):
    """Raised when a releasing or released sandbox is asked for anything but reading."""

    code = "SANDBOX_RELEASED"


class ExecutionFinished(Conflict):
    """Raised when a finished execution is asked to do something."""

    code = "EXECUTION_FINISHED"


class StdinClosed(Conflict):
    """Raised when an execution's standard input is not open, or not any more."""

    code = "STDIN_CLOSED"


class OutputTimesUnknown(Conflict):
    """Raised when nobody knows when an execution's output came."""

    code = "OUTPUT_TIMES_UNKNOWN"


class LimitBelowUsage(Conflict):
    """Raised when memory would be lowered below what is used, without `force`."""

    code = "LIMIT_BELOW_USAGE"


class NameInUse(Conflict):
    """Raised when the owner has a live sandbox of this name."""

    code = "NAME_IN_USE"


class IdempotencyKeyReused(Conflict):
    """Raised when an Idempotency-Key comes with another request than the first time."""

    code = "IDEMPOTENCY_KEY_REUSED"


class FileConflict(Conflict):
    """Raised when what is at a path is not what the verb is for: a directory, a FIFO, a file."""

    code = "FILE_CONFLICT"


class ExecutionNotStarted(SandboxdError):
    """Raised when the command could not be executed; `details` has the cause."""

    code = "EXECUTION_NOT_STARTED"


class DiskQuotaExceeded(SandboxdError):
    """Raised when a write through the API does not fit into the sandbox's disk limit."""

    code = "SANDBOX_DISK_QUOTA_EXCEEDED"


class DiskUncountable(SandboxdError):
    """Raised when nobody can say whether a write through the API fits into the disk limit."""

    code = "SANDBOX_DISK_UNCOUNTABLE"


class QuotaExceeded(SandboxdError):
    """Raised when the caller's share is used up, or less than what was asked for."""

    code = "CALLER_QUOTA_EXCEEDED"
    retryable = True


class ExecutionLimitReached(QuotaExceeded):
    """Raised when a sandbox already runs as many executions as it may."""

    code = "EXECUTION_LIMIT_REACHED"


class Unavailable(SandboxdError):
    """Raised when the host cannot serve this now."""

    retryable = True


class CapacityExceeded(Unavailable):
    """Raised when a request does not fit into the host's budget, beside others' or at all."""

    code = "CAPACITY_EXCEEDED"


class HostDiskFull(Unavailable):
    """Raised when the state or runtime directory's file system has no room."""

    code = "HOST_DISK_FULL"


class HostStorageFailed(SandboxdError):
    """Raised when the state or runtime directory cannot be used for another reason than room: no
    permission, read-only, broken, gone. Nothing gets better by waiting."""

    code = "HOST_STORAGE_FAILED"


class Draining(Unavailable):
    """Raised when the host takes no new work."""

    code = "DRAINING"


class BusUnavailable(Unavailable):
    """Raised when systemd cannot be reached over D-Bus."""

    code = "SYSTEMD_UNAVAILABLE"


class SchemeError(SandboxdError):
    """Raised when the host's mechanism refused or did not do what was asked."""

    code = "SYSTEMD_REFUSED"


class JobFailed(SchemeError):
    """Raised when a systemd job ended otherwise than `done`."""

    def __init__(self, unit: str, result: str) -> None:
        super().__init__(
            f"cannot start or stop {unit}: job ended as {result!r}",
            details={"unit": unit, "job_result": result},
        )
        self.unit = unit
        self.result = result


class PropertyRejected(SchemeError):
    """Raised when systemd refused a call for a unit; carries the D-Bus error's name."""

    def __init__(self, unit: str, dbus_error: str, text: str) -> None:
        super().__init__(
            f"cannot set up {unit}: {text}",
            details={"unit": unit, "dbus_error": dbus_error},
        )
        self.unit = unit
        self.dbus_error = dbus_error


class UnitExists(PropertyRejected):
    """Raised when a unit of the name is there already."""


class UnitMissing(SchemeError):
    """Raised when systemd does not know the unit."""


class LimitNotApplied(SchemeError):
    """Raised when a cgroup file does not show the limit that was asked for."""


class OperationTimedOut(SandboxdError):
    """Raised when an operation of ours passed its deadline."""

    code = "OPERATION_TIMED_OUT"
    retryable = True


class ConfigError(SandboxdError):
    """Raised at start-up when a setting cannot be honoured; the daemon then does not start."""


class InternalError(SandboxdError):
    """Raised when sandboxd found a bug in itself."""


_RAISE = "wait for executions to end, or raise the limit that the cause names"
_FREE = "free space on the file system of the state or runtime directory"
_ALLOW = "let sandboxd's own user write there"
_RESTORE = "somebody took away what sandboxd keeps there: put it back and restart sandboxd"

_CAUSES: Mapping[int, tuple[type[SandboxdError], str]] = {
    errno.EMFILE: (CapacityExceeded, _RAISE),
    errno.ENFILE: (CapacityExceeded, _RAISE),
    errno.ENOMEM: (CapacityExceeded, _RAISE),
    errno.EAGAIN: (CapacityExceeded, _RAISE),
    errno.ENOSPC: (HostDiskFull, _FREE),
    errno.EDQUOT: (HostDiskFull, _FREE),
    errno.EACCES: (HostStorageFailed, _ALLOW),
    errno.EPERM: (HostStorageFailed, _ALLOW),
    errno.EROFS: (HostStorageFailed, "mount its file system so that it can be written"),
    errno.EIO: (HostStorageFailed, "look for errors of the disk in the kernel's log"),
    errno.ENOENT: (HostStorageFailed, _RESTORE),
    errno.ENOTDIR: (HostStorageFailed, _RESTORE),
}


def host_lacks(what: str, exc: OSError, path: str | None = None) -> SandboxdError:
    """Return the error for a failed host operation of sandboxd, chosen by errno."""
    cause = os.strerror(exc.errno) if exc.errno else str(exc)
    kind, hint = _CAUSES.get(exc.errno or 0, (HostStorageFailed, None))
    details = {"errno": exc.errno, "path": exc.filename or path}
    return kind(f"{what}: {cause}", hint=hint, details=details)
