# SPDX-License-Identifier: Apache-2.0
"""systemd's manager, typed: starts, changes, stops, kills and lists units.

Source: org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

from sandboxd.errors import PropertyRejected, UnitExists, UnitMissing, host_lacks
from sandboxd.systemd.bus import MANAGER, PROPERTIES, Bus, pack
from sandboxd.systemd.jobs import Jobs, UnitStatus
from sandboxd.systemd.properties import Features, Property, notify_service

_JOB_SECONDS = 60.0
_PASSING_SECONDS = 0.1
# "fail" queues no job that would undo a queued job, as systemd-run does.
_START_MODE = "fail"
_UNIT_FILES = "/run"
# Pages that may have been freed since.
_FULL_BLOCKS = 64
_REPLACE = "replace"
_VERSION = re.compile(r"\D*(\d+)")


class Manager:
    """The system's service manager over a private `Bus`. `connect` first, `close` at the end."""

    def __init__(self, *, call_timeout_seconds: float = 30.0, poll_seconds: float = 2.0) -> None:
        self._jobs = Jobs(self.status, poll_seconds=poll_seconds)
        self._bus = Bus(self._jobs.removed, timeout_seconds=call_timeout_seconds)
        self._features: Features | None = None

    async def connect(self) -> None:
        """Connect to the bus. Raises BusUnavailable."""
        await self._bus.connect()

    async def close(self) -> None:
        """Close the bus; calls in flight end with BusUnavailable."""
        await self._bus.close()

    async def version(self) -> int:
        """Return the manager's version, 257 for "257.9-1"."""
        text = str(await self._manager_property("Version"))
        match = _VERSION.match(text)
        if match is None:
            raise PropertyRejected("systemd", "", f"its version {text!r} has no number")
        return int(match[1])

    async def features(self) -> Features:
        """Return what the manager's version takes; asked once."""
        if self._features is None:
            self._features = Features.of_version(await self.version())
        return self._features

    async def control_group(self) -> str:
        """Return the cgroup above all units: "" on a host, a path where systemd is contained."""
        return str(await self._manager_property("ControlGroup"))

    async def start_transient(
        self,
        unit: str,
        properties: Sequence[Property],
        *,
        fds: Sequence[int] = (),
        timeout_seconds: float = _JOB_SECONDS,
    ) -> None:
        """Make and start a unit; return once the start job is done.

        fds: the descriptors that properties of type h count into. Raises UnitExists,
        PropertyRejected, JobFailed, HostDiskFull, BusUnavailable, OperationTimedOut; after the last
        two the unit may exist or not.
        """
        no_aux: list[Any] = []
        body = (unit, _START_MODE, pack(properties), no_aux)
        try:
            await self._run_job(
                unit, "StartTransientUnit", "ssa(sv)a(sa(sv))", body, fds=fds,
                reached=lambda status: status.is_active, timeout_seconds=timeout_seconds,
            )  # fmt: skip
        except UnitMissing as exc:
            # systemd writes a transient unit's file below _UNIT_FILES, and without room answers
            # NoSuchUnit.
            if os.statvfs(_UNIT_FILES).f_bavail > _FULL_BLOCKS:
                raise
            full = OSError(errno.ENOSPC, "", _UNIT_FILES)
            raise host_lacks(f"cannot start {unit}", full) from exc

    async def start_unit(self, unit: str) -> None:
        """Start an existing unit; fine where the unit runs, at once where a restart is pending.

        Raises UnitMissing, JobFailed, PropertyRejected, BusUnavailable, OperationTimedOut.
        """
        await self._run_job(
            unit, "StartUnit", "ss", (unit, _REPLACE),
            reached=lambda status: status.is_active, idempotent=True,
        )  # fmt: skip

    async def has_file(self, unit: str) -> bool:
        """Return whether a package or an admin has put down a file for the unit.

        Files count wherever systemd looks, but not that of a transient unit. Raises BusUnavailable,
        OperationTimedOut.
        """
        any_state: list[str] = []
        (files,) = await self._bus.call(
            "ListUnitFilesByPatterns", "asas", (any_state, [unit]), subject=unit, idempotent=True
        )
        return any(state != "transient" for _, state in files)

    async def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        """Change a live unit until the unit ends (runtime), all properties or none.

        The caller knows the unit to be active and keeps the unit so: for an unknown name systemd
        succeeds, and leaves settings for a later unit of that name. Raises PropertyRejected,
        BusUnavailable, OperationTimedOut.
        """
        body = (unit, True, pack(properties))
        await self._bus.call("SetUnitProperties", "sba(sv)", body, subject=unit, idempotent=True)

    async def stop_unit(self, unit: str) -> None:
        """Stop a unit, if any. Raises JobFailed, BusUnavailable, OperationTimedOut."""
        try:
            await self._run_job(
                unit, "StopUnit", "ss", (unit, _REPLACE),
                reached=lambda status: status.is_gone, idempotent=True,
            )  # fmt: skip
        except UnitMissing:
            return

    async def kill_unit(self, unit: str) -> None:
        """SIGKILL a unit and all below. Raises UnitMissing, BusUnavailable, OperationTimedOut."""
        body = (unit, "all", signal.SIGKILL.value)
        await self._bus.call("KillUnit", "ssi", body, subject=unit, idempotent=True)

    async def status(self, unit: str) -> UnitStatus:
        """Return systemd's status of a unit; an unknown unit has load_state "not-found"."""
        (units,) = await self._bus.call(
            "ListUnitsByNames", "as", ([unit],), subject=unit, idempotent=True
        )
        return _status(units[0])

    async def list_units(self, patterns: Sequence[str]) -> list[UnitStatus]:
        """Return the loaded units whose names match a glob of `patterns`."""
        any_state: list[str] = []
        body = (any_state, list(patterns))
        (units,) = await self._bus.call(
            "ListUnitsByPatterns", "asas", body, subject="units", idempotent=True
        )
        return [_status(unit) for unit in units]

    async def start_service(self, unit: str, argv: Sequence[str], *, description: str) -> bool:
        """Start a helper as a transient service of Type=notify; return once READY=1 was sent.

        False when a service with the same description runs already, as after a restart of the
        daemon. Raises UnitExists (a foreign unit), JobFailed, PropertyRejected, BusUnavailable,
        OperationTimedOut.
        """
        properties = notify_service(list(argv), description=description)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _JOB_SECONDS
        while True:
            try:
                await self.start_transient(unit, properties)
            except UnitExists:
                there = await self.status(unit)
                if there.is_active and there.description == description:
                    return False
                # The daemon's own, which systemd is about to restart or to forget.
                passing = there.is_gone or there.description == description
                if not passing or loop.time() > deadline:
                    raise
            else:
                return True
            await asyncio.sleep(_PASSING_SECONDS)

    async def _manager_property(self, name: str) -> Any:
        (value,) = await self._bus.call(
            "Get",
            "ss",
            (MANAGER, name),
            interface=PROPERTIES,
            subject=f"property {name}",
            idempotent=True,
        )
        return value

    async def _run_job(
        self,
        unit: str,
        member: str,
        signature: str,
        body: Sequence[Any],
        *,
        reached: Callable[[UnitStatus], bool],
        timeout_seconds: float = _JOB_SECONDS,
        fds: Sequence[int] = (),
        idempotent: bool = False,
    ) -> None:
        with self._jobs.expect(unit) as waiter:
            (job_path,) = await self._bus.call(
                member, signature, body, subject=unit, fds=fds, idempotent=idempotent
            )
            await self._jobs.wait_done(
                waiter, job_path, reached=reached, timeout_seconds=timeout_seconds
            )


def _status(unit: Sequence[Any]) -> UnitStatus:
    name, description, load_state, active_state, sub_state, _, _, _, _, job_path = unit
    return UnitStatus(name, description, load_state, active_state, sub_state, job_path)
