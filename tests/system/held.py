# SPDX-License-Identifier: Apache-2.0
"""Held processes in the place of shims, and a systemd scheme of a test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from sandboxd.core.model import Command, Execution, Isolation, Limits, Network, Sandbox, SchemeName
from sandboxd.core.names import UnitNames, new_id
from sandboxd.engine.ports.launch import Shim
from sandboxd.schemes.systemd import SystemdScheme
from sandboxd.systemd.manager import Manager

LIMITS = Limits(
    memory_bytes=96 << 20,
    cpus=0.75,
    pids=20,
    io_read_bytes_per_second=7 << 20,
    io_write_bytes_per_second=5 << 20,
    disk_bytes=1 << 30,
    timeout_seconds=60.0,
    cpu_seconds=None,
    max_output_bytes=1 << 20,
    open_files=64,
    file_size_bytes=1 << 30,
)
AGGREGATE_BYTES = 1 << 30
AGGREGATE_TASKS = 2000


class HeldProcess:
    """A sleeping process with the part of a shim that a scheme looks at."""

    def __init__(self, argv: tuple[str, ...] = ("sleep", "infinity")) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid)

    @property
    def shim(self) -> Shim:
        return cast("Shim", self)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def held(argv: tuple[str, ...] = ("sleep", "infinity")) -> Iterator[HeldProcess]:
    process = HeldProcess(argv)
    try:
        yield process
    finally:
        process.end()
        os.close(process.pidfd)


@asynccontextmanager
async def opened_scheme(
    *, io_path: str = "/var/lib", instance_id: str | None = None, remove_parent: bool = True
) -> AsyncIterator[tuple[SystemdScheme, Manager, UnitNames]]:
    """The scheme of a private instance; all its units are gone afterwards."""
    instance_id = instance_id or new_id()
    names = UnitNames.of_instance(instance_id, is_service=False)
    # A machine without KVM shares few cores: its systemd may be away for long in a reload.
    manager = Manager(call_timeout_seconds=120.0)
    await manager.connect()
    try:
        scheme = SystemdScheme(
            manager, names, instance_id=instance_id, aggregate_bytes=AGGREGATE_BYTES,
            aggregate_tasks=AGGREGATE_TASKS,
            io_path=io_path,
        )  # fmt: skip
        try:
            await scheme.open()
            yield scheme, manager, names
        finally:
            await scheme.close(remove_parent=remove_parent)
        if remove_parent:
            left = await manager.list_units([*names.patterns(), names.parent_slice])
            assert [unit for unit in left if not unit.is_gone] == []
    finally:
        await manager.close()


def new_sandbox(limits: Limits = LIMITS) -> Sandbox:
    now = datetime.now(UTC)
    return Sandbox(
        id=new_id(), name=None, owner_uid=0, uid=0, isolation=Isolation.BASIC,
        network=Network.HOST, scheme=SchemeName.SYSTEMD, limits=limits, enforcement={},
        created_at=now, last_used_at=now,
    )  # fmt: skip


def new_execution(sandbox: Sandbox, **own: float) -> Execution:
    limits = replace(sandbox.limits, **own)  # type: ignore[arg-type]
    return Execution(
        id=new_id(), sandbox_id=sandbox.id, command=Command(argv=("true",)), limits=limits,
        own_limits=frozenset(own), enforcement={}, created_at=datetime.now(UTC),
    )  # fmt: skip
