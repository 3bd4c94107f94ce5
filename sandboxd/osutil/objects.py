# SPDX-License-Identifier: Apache-2.0
"""JSON objects, in packets and in files."""

from __future__ import annotations

import json
import os
from typing import Any

from sandboxd.osutil.files import write_whole


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


def write_json(directory: str, name: str, value: dict[str, Any]) -> None:
    """Write a file whole or not at all. Raises OSError."""
    write_whole(os.path.join(directory, name), encode(value))


def read_json(directory: str, name: str) -> dict[str, Any] | None:
    """Return a file written by `write_json`, None without a file. Raises OSError, ValueError."""
    try:
        with open(os.path.join(directory, name), "rb") as file:
            return decode(file.read())
    except FileNotFoundError:
        return None
