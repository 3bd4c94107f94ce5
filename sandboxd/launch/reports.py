# SPDX-License-Identifier: Apache-2.0
"""Between the engine's values and the messages that shims read and write."""

from __future__ import annotations

import logging
import os

from sandboxd.core.model import Isolation, LimitOwner, Limits, OutputSummary, Usage
from sandboxd.core.outcome import Facts, SupervisorVerdict
from sandboxd.engine.ports.launch import LaunchRequest
from sandboxd.isolation import disks, pins, seccomp
from sandboxd.osutil.pidfd import open_pidfd
from sandboxd.osutil.privileges import Privileges
from sandboxd.osutil.processes import GONE, boot_id, process_start_time
from sandboxd.protocol import records
from sandboxd.protocol.codec import Malformed, to_object
from sandboxd.protocol.evidence import socket_path
from sandboxd.protocol.records import EndRecord, StartRecord
from sandboxd.protocol.specification import (
    CommandSpec,
    ExecutionSpec,
    HostRoot,
    OwnRoot,
    PlaceSpec,
    Supervision,
    TerminalSize,
)

_log = logging.getLogger(__name__)


def specification(
    request: LaunchRequest,
    runtime_directory: str,
    evidence_directory: str,
    privileges: Privileges,
) -> ExecutionSpec:
    """Return the specification of an execution. evidence_directory: for a supervisor, if any."""
    limits = request.execution.limits
    return ExecutionSpec(
        command=_command(request, request.sandbox.uid if privileges.is_root else None),
        place=_place(request, runtime_directory),
        cgroup=request.cgroup,
        supervision=Supervision(
            socket_path=socket_path(runtime_directory),
            evidence_directory=evidence_directory,
            sandbox=request.sandbox.id,
            execution=request.execution.id,
        )
        if request.is_supervised
        else None,
        timeout_seconds=limits.timeout_seconds,
        cpu_seconds=limits.cpu_seconds,
        kill_grace_seconds=request.execution.command.kill_grace_seconds,
        max_output_bytes=limits.max_output_bytes,
        spool_floor_bytes=request.spool_floor_bytes,
    )


def _command(request: LaunchRequest, uid: int | None) -> CommandSpec:
    command = request.execution.command
    return CommandSpec(
        argv=tuple(command.argv),
        env=request.env,
        cwd=request.cwd,
        uid=uid,
        rlimits=request.rlimits,
        filter=seccomp.choose(
            strict=request.sandbox.isolation is Isolation.STRICT,
            # Whoever runs a set-id file on the host gets the rights of the file's owner: of the
            # bind's owner, or of a later sandbox with the same uid.
            set_id=not request.sandbox.writes_to_host,
        ),
        merge_output=command.merge_output,
        stdin_open=command.stdin_open,
        tty=TerminalSize(command.tty.rows, command.tty.cols) if command.tty else None,
    )


def _place(request: LaunchRequest, runtime_directory: str) -> PlaceSpec:
    sandbox = request.sandbox
    pins_root = pins.root_of(runtime_directory)
    own_root = host_root = None
    if sandbox.has_own_root:
        own_root = OwnRoot(sandbox.isolation is Isolation.STRICT, request.terminals)
    elif request.private_mounts:
        host_root = HostRoot(
            pins_root=pins_root,
            disks_root=disks.root_of(runtime_directory),
            tmp_directory=request.tmp_directory,
            record_directory=request.record_directory,
            identity_files=request.identity_files,
            shm_bytes=shm_bytes(sandbox.limits),
            terminals=request.terminals,
        )
    return PlaceSpec(
        pins=pins.kinds(sandbox.isolation, sandbox.network),
        pins_directory=os.path.join(pins_root, sandbox.id),
        own_root=own_root,
        host_root=host_root,
    )


def shm_bytes(limits: Limits) -> int:
    """Return the size of /dev/shm, half of the memory, so that ENOSPC comes before an OOM."""
    return limits.memory_bytes // 2


def read_facts(record_directory: str) -> Facts | None:
    """Return the record a shim left; None without a record, or with one that is none.

    A file that had not reached the disk when the host went down is empty or full of zeros.
    """
    try:
        record = records.END.read(record_directory, records.RECORD_FILE)
    except Malformed as exc:
        _log.error("Cannot use the record in %s: %s", record_directory, exc)
        return None
    return None if record is None else _facts(record)


def _facts(record: EndRecord) -> Facts:
    verdict, supervised = record.verdict, record.supervised
    return Facts(
        reason=record.reason,
        kill_code=record.kill_code,
        wait_status=record.wait_status,
        wall_seconds=record.wall_seconds,
        finished_at=record.finished_at,
        kill_complete=record.kill_complete,
        leftovers_killed=record.leftovers_killed,
        cpu_user_seconds=record.cpu_user_seconds,
        cpu_system_seconds=record.cpu_system_seconds,
        streams=tuple(OutputSummary(one.size_bytes, one.truncated) for one in record.streams),
        baseline=to_object(record.baseline),
        counters=None if record.counters is None else to_object(record.counters),
        largest_process_bytes=record.largest_process_bytes,
        pids_at_end=record.pids_at_end,
        io_read_bytes=record.io_read_bytes,
        io_written_bytes=record.io_written_bytes,
        verdict=None
        if verdict is None
        else SupervisorVerdict(verdict.reason, LimitOwner(verdict.owner)),
        supervised=None if supervised is None else Usage(**to_object(supervised)),
    )


def read_start(record_directory: str) -> StartRecord | None:
    """Return a shim's start record; None where absent or damaged (see `read_facts`)."""
    try:
        return records.START.read(record_directory, records.START_FILE)
    except Malformed as exc:
        _log.error("Cannot use the start record in %s: %s", record_directory, exc)
        return None


def open_shim(start: StartRecord | None) -> int | None:
    """Return a pidfd of the live shim that wrote this start record; None when the shim is gone.

    The pid alone may have been reused: boot and start time must agree.
    """
    if start is None or start.boot_id != boot_id():
        return None
    try:
        pidfd = open_pidfd(start.pid)
    except ProcessLookupError:
        return None
    try:
        same = process_start_time(start.pid) == start.start_time
    except GONE:
        same = False
    if not same:
        os.close(pidfd)
        return None
    return pidfd
