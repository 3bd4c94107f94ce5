# SPDX-License-Identifier: Apache-2.0
"""Files in which a supervisor tells a shim what it did and saw.

They are in a directory of the execution's own below the runtime directory: a full or slow disk
must delay neither a verdict nor the supervisor's next look.

verdict.json     why the supervisor ended the execution; written before the first kill
supervised.json  what it measured so far; written about once a second and when the shim asks
"""

from __future__ import annotations

import json
import os
from typing import Any

from sandboxd.osutil.files import write_whole

VERDICT_FILE = "verdict.json"
USAGE_FILE = "supervised.json"
SOCKET_NAME = "supervisor.sock"


def socket_path(runtime_directory: str) -> str:
    """Where a supervisor listens."""
    return os.path.join(runtime_directory, SOCKET_NAME)


def write_json(directory: str, name: str, value: dict[str, Any]) -> None:
    """Write a file whole or not at all. Raises OSError."""
    data = json.dumps(value, separators=(",", ":")).encode()
    write_whole(os.path.join(directory, name), data)


def read_json(directory: str, name: str) -> dict[str, Any] | None:
    """A file written by `write_json`, None where there is none."""
    try:
        with open(os.path.join(directory, name), "rb") as file:
            value = json.loads(file.read())
    except FileNotFoundError:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value
