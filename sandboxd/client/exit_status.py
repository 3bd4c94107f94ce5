# SPDX-License-Identifier: Apache-2.0
"""Exit codes for finished executions, as shells and schedulers define them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REFUSED = 125
KILLED = 137
SIGNALLED = 128


def exit_status(execution: Mapping[str, Any]) -> int:
    """Return the exit code for a finished execution."""
    match execution["status"]:
        case "EXITED":
            return int(execution["exit_code"])
        case "SIGNALED":
            return SIGNALLED + int(execution["signal"])
        case "LOST" | "PENDING" | "RUNNING":
            return REFUSED
        case _:
            return KILLED
