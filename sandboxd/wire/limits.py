# SPDX-License-Identifier: Apache-2.0
"""The fields of limits in bodies and answers, from the table (core/limits.py)."""

from __future__ import annotations

from typing import Any

from sandboxd.core.limits import LIMITS, Limit, Unit
from sandboxd.wire import quantities as q

_TYPES: dict[Unit, Any] = {
    Unit.BYTES: q.Bytes,
    Unit.BYTES_PER_SECOND: q.Bytes,
    Unit.SECONDS: q.Seconds,
    Unit.CORES: q.Cpus,
}


def body_fields() -> dict[str, Any]:
    """Return the optional fields of a request's limits, for pydantic's create_model."""
    return {limit.name: (_asked(limit) | None, None) for limit in LIMITS}


def answer_fields() -> dict[str, Any]:
    """Return the fields of an answer for create_model: numbers, null where no limit is default."""
    return {limit.name: (_told(limit), ...) for limit in LIMITS}


def _asked(limit: Limit) -> Any:
    return _TYPES[limit.unit] if limit.most is None else q.count(limit.most)


def _told(limit: Limit) -> Any:
    number = int if limit.unit.is_whole else float
    return number if limit.setting is not None else number | None
