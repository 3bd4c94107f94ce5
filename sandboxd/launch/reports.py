# SPDX-License-Identifier: Apache-2.0
"""Between the engine's values and the JSON that shims read and write."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from typing import Any

from sandboxd.core.model import Isolation, Limits, OutputSummary
from sandboxd.core.outcome import Facts
from sandboxd.engine.ports.launch import LaunchRequest
from sandboxd.isolation import disks, pins, seccomp
from sandboxd.osutil.pidfd import open_pidfd
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import boot_id, process_start_time
from sandboxd.protocol import records

_log = logging.getLogger(__name__)


def specification(
    request: LaunchRequest, runtime_directory: str, privileges: Privileges
) -> dict[str, Any]:
    """Return the specification that shim/shim.py and isolation/enter.py read."""
    command, limits = request.execution.command, request.execution.limits
    uid = request.sandbox.uid if privileges.is_root else None
    pins_root = pins.root_of(runtime_directory)
    return {
        "protocol": records.PROTOCOL,
        "sandbox": request.sandbox.id,
        "execution": request.execution.id,
        "record_directory": request.record_directory,
        "cgroup": request.cgroup,
        "argv": list(command.argv),
        "env": dict(request.env),
        "cwd": request.cwd,
        "isolation": request.sandbox.isolation.value,
        "network": request.sandbox.network.value,
        "uid": uid,
        "gid": uid,
        "merge_output": command.merge_output,
        "stdin_open": command.stdin_open,
        "tty": asdict(command.tty) if command.tty else None,
        "rlimits": {name: list(pair) for name, pair in request.rlimits.items()},
        "timeout_seconds": limits.timeout_seconds,
        "cpu_seconds": limits.cpu_seconds,
        "max_output_bytes": limits.max_output_bytes,
        "spool_floor_bytes": request.spool_floor_bytes,
        "kill_grace_seconds": command.kill_grace_seconds,
        "filter": seccomp.choose(
            strict=request.sandbox.isolation is Isolation.STRICT,
            # Whoever runs a set-id file on the host gets the rights of the file's owner: of the
            # bind's owner, or of a later sandbox with the same uid.
            set_id=not request.sandbox.writes_to_host,
        ),
        "namespaces": request.private_mounts,
        "pins": list(pins.kinds(request.sandbox.isolation, request.sandbox.network)),
        "pins_root": pins_root,
        "pins_directory": os.path.join(pins_root, request.sandbox.id),
        "disks_root": disks.root_of(runtime_directory),
        "tmp_dir": request.tmp_directory,
        "files": dict(request.identity_files),
        "shm_bytes": shm_bytes(request.sandbox.limits),
        "terminals": request.terminals,
    }


def shm_bytes(limits: Limits) -> int:
    """Return the size of /dev/shm, half of the memory, so that ENOSPC comes before an OOM."""
    return limits.memory_bytes // 2


def read_facts(record_directory: str) -> Facts | None:
    """Return the record a shim left; None without a record, or with an incomplete record."""
    record = records.read_json(record_directory, records.RECORD_FILE)
    if record is None:
        return None
    try:
        return _facts(record)
    except (KeyError, TypeError) as exc:
        _log.error("Cannot use the record in %s: %r", record_directory, exc)
        return None


def _facts(record: dict[str, Any]) -> Facts:
    return Facts(
        reason=record["reason"],
        kill_code=record["kill_code"],
        wait_status=record["wait_status"],
        wall_seconds=record["wall_seconds"],
        finished_at=record["finished_at"],
        kill_complete=record["kill_complete"],
        leftovers_killed=record["leftovers_killed"],
        cpu_user_seconds=record["cpu_user_seconds"],
        cpu_system_seconds=record["cpu_system_seconds"],
        streams=tuple(
            OutputSummary(stream["size"], stream["truncated"]) for stream in record["streams"]
        ),
        baseline=record["baseline"],
        counters=record["counters"],
        largest_process_bytes=record.get("largest_process"),
        pids_at_end=record.get("pids_at_end"),
        io_read_bytes=record.get("io_read"),
        io_written_bytes=record.get("io_written"),
        verdict=record.get("verdict"),
        supervised=record.get("supervised"),
    )


def open_shim(start: dict[str, Any] | None) -> int | None:
    """Return a pidfd of the live shim that wrote this start record; None when the shim is gone.

    The pid alone may have been reused: boot and start time must agree.
    """
    if start is None or start["boot_id"] != boot_id():
        return None
    try:
        pidfd = open_pidfd(start["pid"])
    except ProcessLookupError:
        return None
    try:
        same = process_start_time(start["pid"]) == start["start_time"]
    except (FileNotFoundError, ProcessLookupError):
        same = False
    if not same:
        os.close(pidfd)
        return None
    return pidfd
