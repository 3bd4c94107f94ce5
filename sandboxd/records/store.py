# SPDX-License-Identifier: Apache-2.0
"""Records of sandboxes and executions on disk; fits ports.store.Store.

One JSON file per record, in the directory of the sandbox or execution: {"version": 2, "saved":
{"boot", "monotonic", "wall"}, "value": ...}, written to a temporary name and renamed. Records of an
older sandboxd are migrated on reading, see migrations.py; records of a newer sandboxd are left
untouched. An unreadable record is set aside as *.unreadable, never deleted.

Monotonic times in a record belong to the boot that wrote the record. Reading in a later boot
converts monotonic times by the wall clock, the only clock that runs on between boots.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pydantic import TypeAdapter, ValidationError

from sandboxd.core.migrations import STAMPS, VERSION, Record, migrate
from sandboxd.core.model import Execution, Sandbox
from sandboxd.core.names import is_id
from sandboxd.engine.ports.host import Clock
from sandboxd.errors import ConfigError, host_lacks
from sandboxd.osutil.files import names_in, remove_file, touch, write_whole
from sandboxd.osutil.processes import boot_id

_log = logging.getLogger(__name__)
_SANDBOX_FILE = "sandbox.json"
_EXECUTION_FILE = "execution.json"
_SANDBOX = TypeAdapter(Sandbox)
_EXECUTION = TypeAdapter(Execution)
_T = TypeVar("_T")


class DiskStore:
    """The records below <state-dir>/sandboxes."""

    def __init__(self, state_directory: str, clock: Clock) -> None:
        self._root = os.path.join(state_directory, "sandboxes")
        self._draining = os.path.join(state_directory, "draining")
        self._clock = clock
        self._boot = boot_id()
        # Two writers of one record: the newer state has to be written last.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def save_sandbox(self, sandbox: Sandbox) -> None:
        path = os.path.join(self._root, sandbox.id, _SANDBOX_FILE)
        await self._save(path, lambda: _SANDBOX.dump_python(sandbox, mode="json"))

    async def save_execution(self, execution: Execution) -> None:
        """Write the record whole or not at all, without the command's input.

        Raises HostDiskFull, HostStorageFailed.
        """
        path = os.path.join(
            self._root, execution.sandbox_id, "executions", execution.id, _EXECUTION_FILE
        )

        def dump() -> Any:
            kept = replace(execution, command=replace(execution.command, stdin=None))
            return _EXECUTION.dump_python(kept, mode="json")

        await self._save(path, dump)

    async def _save(self, path: str, dump: Callable[[], Any]) -> None:
        lock = self._locks.setdefault(path, asyncio.Lock())
        async with lock:
            record = {"version": VERSION, "saved": self._moment(), "value": dump()}
            await asyncio.to_thread(_write, path, record)

    def _moment(self) -> Record:
        wall = self._clock.now().timestamp()
        return {"boot": self._boot, "monotonic": self._clock.monotonic(), "wall": wall}

    async def save_draining(self, draining: bool) -> None:
        await asyncio.to_thread(_set_marker, self._draining, draining)

    async def load_draining(self) -> bool:
        return await asyncio.to_thread(os.path.exists, self._draining)

    async def load(self) -> list[tuple[Sandbox, list[Execution]]]:
        return await asyncio.to_thread(self._load)

    def _load(self) -> list[tuple[Sandbox, list[Execution]]]:
        found = []
        for sandbox_id in _ids_in(self._root):
            directory = os.path.join(self._root, sandbox_id)
            sandbox = self._read(os.path.join(directory, _SANDBOX_FILE), _SANDBOX)
            if sandbox is None:
                continue
            executions = []
            below = os.path.join(directory, "executions")
            for execution_id in _ids_in(below):
                path = os.path.join(below, execution_id, _EXECUTION_FILE)
                execution = self._read(path, _EXECUTION)
                if execution is not None:
                    executions.append(execution)
            found.append((sandbox, executions))
        return found

    def _read(self, path: str, adapter: TypeAdapter[_T]) -> _T | None:
        try:
            with open(path, encoding="utf-8") as file:
                record = migrate(json.load(file))
            self._carry_over(record["value"], record["saved"])
            return adapter.validate_python(record["value"])
        except FileNotFoundError:
            return None
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError, ValidationError) as exc:
            _log.error("Cannot read %s: %s; set aside", path, exc)
            os.rename(path, f"{path}.unreadable")
            return None

    def _carry_over(self, value: Record, saved: Record | None) -> None:
        """Convert another boot's times in `value` to this boot's monotonic clock, in seconds.

        A wall clock that was set back in between counts as no time passed.
        """
        now = self._moment()
        if saved is None:
            value |= {name: now["monotonic"] for name in STAMPS if name[:7] != "expires"}
            return
        if saved["boot"] == now["boot"]:
            return
        passed = max(0.0, now["wall"] - saved["wall"])
        shift = now["monotonic"] - saved["monotonic"] - passed
        value |= {name: value[name] + shift for name in STAMPS if value.get(name) is not None}


def _ids_in(directory: str) -> list[str]:
    return sorted(filter(is_id, names_in(directory)))


def _write(path: str, record: Record) -> None:
    data = json.dumps(record, separators=(",", ":")).encode()
    try:
        write_whole(path, data)
    except OSError as exc:
        raise host_lacks("cannot write a record", exc, path) from exc


def _set_marker(path: str, there: bool) -> None:
    """Make or remove the empty file `path`. Raises HostDiskFull, HostStorageFailed."""
    try:
        if there:
            touch(path)
        else:
            remove_file(path)
    except OSError as exc:
        raise host_lacks("cannot keep whether this host is drained", exc, path) from exc
