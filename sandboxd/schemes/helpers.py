# SPDX-License-Identifier: Apache-2.0
"""The daemon's helpers as services of their own, which a restart of the daemon leaves alone.

Where a unit file has a helper's name, as a package's have the names of the service's helpers, it
is started as that says; else, as for every private daemon, as a transient unit. Which files there
are is the only question: the names of a private daemon's helpers have its instance id in them.
"""

from __future__ import annotations

import os

from sandboxd.core.names import UnitNames
from sandboxd.launch.spawner import spawner_argv
from sandboxd.osutil.privileges import Privileges
from sandboxd.systemd.manager import Manager


class HelperServices:
    """Spawner and supervisor, by unit file or transient."""

    def __init__(self, manager: Manager, names: UnitNames, instance_id: str) -> None:
        self._manager = manager
        self._names = names
        self._instance_id = instance_id
        self._started: list[str] = []

    async def connect(self) -> None:
        """Raises BusUnavailable, OperationTimedOut."""
        await self._manager.connect()

    async def close(self) -> None:
        """Close the manager; the services go on."""
        await self._manager.close()

    async def start_spawner(self, path: str) -> None:
        """Have a spawner listen on this path. Raises what `Manager` raises."""
        argv = spawner_argv(path, idle_seconds=None)
        await self._start(self._names.spawner_service, "spawner", argv)

    async def start_supervisor(self, argv: list[str]) -> None:
        """Have this supervisor run. Raises what `Manager` raises."""
        await self._start(self._names.supervisor_service, "supervisor", argv)

    async def stop_started(self) -> None:
        """Stop the transient ones that this object started, and no others."""
        while self._started:
            await self._manager.stop_unit(self._started.pop())

    async def stop_all(self) -> None:
        """Stop both, whoever of ours started them."""
        for unit in (self._names.spawner_service, self._names.supervisor_service):
            await self._manager.stop_unit(unit)

    async def _start(self, unit: str, role: str, argv: list[str]) -> None:
        if await self._manager.has_file(unit):
            await self._manager.start_unit(unit)
            return
        description = f"sandboxd {role} of instance {self._instance_id}"
        if await self._manager.start_service(unit, argv, description=description):
            self._started.append(unit)


def has_systemd() -> bool:
    """Whether systemd runs this host (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def have_units(privileges: Privileges) -> bool:
    """Whether helpers, and with them all commands, are in units of their own: root's, where systemd
    runs the host. Else all are below the daemon's own cgroup."""
    return privileges.is_root and has_systemd()
