# SPDX-License-Identifier: Apache-2.0
"""Exit codes: the command's own if the command ran to an end, else codes for schedulers."""

from __future__ import annotations

import errno
import sys

from sandboxd.client.exit_status import KILLED as KILLED
from sandboxd.client.exit_status import REFUSED as REFUSED
from sandboxd.client.exit_status import SIGNALLED as SIGNALLED
from sandboxd.client.exit_status import exit_status
from sandboxd.errors import (
    CapacityExceeded,
    Draining,
    ExecutionNotStarted,
    QuotaExceeded,
    SandboxdError,
)

# EX_TEMPFAIL of sysexits.h: the same call may work later.
NO_CAPACITY = 75
NOT_EXECUTABLE = 126
NOT_FOUND = 127
NOT_ALL_ENFORCED = 1
of_execution = exit_status


class Interrupted(Exception):
    """Raised when the signal `number` tells sandboxctl to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


def of_error(error: SandboxdError) -> int:
    """Return the exit code for a refusal."""
    match error:
        case ExecutionNotStarted() if error.details.get("step") == "exec":
            is_missing = error.details.get("errno") == errno.ENOENT
            return NOT_FOUND if is_missing else NOT_EXECUTABLE
        case CapacityExceeded() | QuotaExceeded() | Draining() if error.retryable:
            return NO_CAPACITY
        case _:
            return REFUSED


def report(error: SandboxdError) -> int:
    """Print a refusal and its hint on stderr; return the exit code."""
    say(f"{error.message} [{error.code}]")
    for field in error.details.get("fields", ())[1:]:
        say(f"  {field['path']}: {field['reason']}")
    if error.hint:
        say(f"  hint: {error.hint}")
    if error.code == "INTERNAL" and "request_id" in error.details:
        say(f"  request: {error.details['request_id']}")
    return of_error(error)


def say(text: str) -> None:
    """Print one line for people on stderr."""
    print(f"sandboxctl: {text}", file=sys.stderr, flush=True)
