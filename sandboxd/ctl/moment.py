# SPDX-License-Identifier: Apache-2.0
"""Times on a command line: absolute, or relative to now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandboxd.core.quantity import parse_seconds

_TIME, _AGO = "such as 2026-01-02T03:04:05Z", "how long ago, such as 2h"
FORMS = f"{_TIME}, or {_AGO}"


def moment(given: str) -> datetime:
    """Parse an absolute time, or a duration before now. Raises ValueError."""
    if "T" in given:
        found = datetime.fromisoformat(given)
        if found.tzinfo is None:
            raise ValueError("needs a time zone, such as Z")
        return found.astimezone(UTC)
    try:
        seconds = parse_seconds(given)
    except ValueError as exc:
        raise ValueError(f"neither a time {_TIME}, nor {_AGO}") from exc
    return datetime.now(UTC) - timedelta(seconds=seconds)
