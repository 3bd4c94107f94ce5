# SPDX-License-Identifier: Apache-2.0
"""JSON objects as bytes."""

from __future__ import annotations

import json
from typing import Any


def encode(value: dict[str, Any]) -> bytes:
    """Return an object as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """Return the object in `data`. Raises ValueError unless `data` is one JSON object."""
    try:
        value = json.loads(data)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
