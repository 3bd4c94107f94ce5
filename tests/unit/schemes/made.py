# SPDX-License-Identifier: Apache-2.0
"""A scheme over a tree of plain files, and what it is asked to hold."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from sandboxd.core.model import Command, Execution, Isolation, Limits, Network, Sandbox, SchemeName
from sandboxd.core.names import UnitNames
from sandboxd.schemes.systemd import SystemdScheme
from sandboxd.systemd.manager import Manager
from tests.unit import values
from tests.unit.schemes.fake_manager import FakeManager

LIMITS = replace(
    values.LIMITS,
    memory_bytes=64 << 20,
    cpus=0.5,
    pids=20,
    io_read_bytes_per_second=7 << 20,
    io_write_bytes_per_second=5 << 20,
)
NAMES = UnitNames("sandboxd_t")
INSTANCE = "abcdefghijkl"
# Both ids fall into one bucket, "d8".
ONE, TWO = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


class LiveShim:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(self.pid)


class MortalShim(LiveShim):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process.pid)
        self._process = process

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


async def opened(manager: FakeManager, tmp_path: Path) -> SystemdScheme:
    scheme = SystemdScheme(
        cast("Manager", manager), NAMES, instance_id=INSTANCE, aggregate_bytes=1 << 30,
        aggregate_tasks=1000,
        io_path="/var/lib", root=str(tmp_path),
    )  # fmt: skip
    await scheme.open()
    manager.log.clear()
    return scheme


def sandbox(identity: str = ONE) -> Sandbox:
    now = datetime.now(UTC)
    return Sandbox(
        id=identity, name=None, owner_uid=0, uid=0, isolation=Isolation.BASIC,
        network=Network.HOST, scheme=SchemeName.SYSTEMD, limits=LIMITS, enforcement={},
        created_at=now, last_used_at=now,
    )  # fmt: skip


def execution(identity: str = "eeeeeeeeeeee", limits: Limits = LIMITS) -> Execution:
    return Execution(
        id=identity, sandbox_id=ONE, command=Command(argv=("true",)), limits=limits,
        own_limits=frozenset(), enforcement={}, created_at=datetime.now(UTC),
    )  # fmt: skip
