# SPDX-License-Identifier: Apache-2.0
"""Records of sandboxes and executions on disk; fits ports.Store.

One JSON file each, beside what it describes: {"version": 1, "value": ...}, written to a temporary
name and renamed. A record that cannot be read is set aside as *.unreadable, never deleted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sandboxd.errors import HostDiskFull
from sandboxd.model import Execution, Sandbox
from sandboxd.names import is_id

_log = logging.getLogger(__name__)
_VERSION = 1
_SANDBOX_FILE = "sandbox.json"
_EXECUTION_FILE = "execution.json"
_SANDBOX = TypeAdapter(Sandbox)
_EXECUTION = TypeAdapter(Execution)
_T = TypeVar("_T")


class DiskStore:
    """The records below <state-dir>/sandboxes."""

    def __init__(self, state_directory: str) -> None:
        self._root = os.path.join(state_directory, "sandboxes")

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        """Write whole or not at all. Raises HostDiskFull."""
        path = os.path.join(self._root, sandbox.id, _SANDBOX_FILE)
        await asyncio.to_thread(_write, path, _SANDBOX.dump_python(sandbox, mode="json"))

    async def save_execution(self, execution: Execution) -> None:
        """Write whole or not at all; the command's input is not kept. Raises HostDiskFull."""
        kept = replace(execution, command=replace(execution.command, stdin=None))
        path = os.path.join(
            self._root, execution.sandbox_id, "executions", execution.id, _EXECUTION_FILE
        )
        await asyncio.to_thread(_write, path, _EXECUTION.dump_python(kept, mode="json"))

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        """Everything that is there."""
        return await asyncio.to_thread(self._load)

    def _load(self) -> list[tuple[Sandbox, list[Execution]]]:
        found = []
        for sandbox_id in _ids_in(self._root):
            directory = os.path.join(self._root, sandbox_id)
            sandbox = _read(os.path.join(directory, _SANDBOX_FILE), _SANDBOX)
            if sandbox is None:
                continue
            executions = []
            below = os.path.join(directory, "executions")
            for execution_id in _ids_in(below):
                path = os.path.join(below, execution_id, _EXECUTION_FILE)
                execution = _read(path, _EXECUTION)
                if execution is not None:
                    executions.append(execution)
            found.append((sandbox, executions))
        return found


def _ids_in(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if is_id(name))
    except FileNotFoundError:
        return []


def _write(path: str, value: Any) -> None:
    text = json.dumps({"version": _VERSION, "value": value}, separators=(",", ":"))
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, path)
    except OSError as exc:
        with suppress(OSError):
            os.unlink(temporary)
        raise HostDiskFull(
            f"cannot write a record: {exc.strerror}",
            hint="free space on the state directory's file system",
            details={"errno": exc.errno, "path": path},
        ) from exc


def _read(path: str, adapter: TypeAdapter[_T]) -> _T | None:
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        if record["version"] != _VERSION:
            raise ValueError(f"version {record['version']} is not known")
        return adapter.validate_python(record["value"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, ValidationError) as exc:
        _log.error("Cannot read %s: %s; set aside", path, exc)
        os.rename(path, f"{path}.unreadable")
        return None
