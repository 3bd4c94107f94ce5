# SPDX-License-Identifier: Apache-2.0
"""Plain values that many tests start from."""

from __future__ import annotations

from datetime import UTC, datetime

from sandboxd.core.model import Command, Execution, Isolation, Limits, Network, Sandbox, SchemeName

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SANDBOX_ID = "abcdefghijkl"
EXECUTION_ID = "mnopqrstuvwx"

LIMITS = Limits(
    memory_bytes=1 << 30,
    cpus=2.0,
    pids=100,
    io_read_bytes_per_second=1 << 28,
    io_write_bytes_per_second=1 << 28,
    disk_bytes=1 << 33,
    timeout_seconds=300.0,
    cpu_seconds=None,
    max_output_bytes=10 << 20,
    open_files=1024,
    file_size_bytes=1 << 33,
)


def a_sandbox() -> Sandbox:
    """A ready sandbox."""
    return Sandbox(
        id=SANDBOX_ID,
        name="box",
        owner_uid=1000,
        uid=0x70000001,
        isolation=Isolation.BASIC,
        network=Network.HOST,
        scheme=SchemeName.RLIMIT,
        limits=LIMITS,
        enforcement={},
        created_at=NOW,
        last_used_at=NOW,
    )


def an_execution() -> Execution:
    """A pending execution of that sandbox."""
    return Execution(
        id=EXECUTION_ID,
        sandbox_id=SANDBOX_ID,
        command=Command(argv=("true",), stdin=b"secret"),
        limits=LIMITS,
        own_limits=frozenset({"cpus"}),
        enforcement={},
        created_at=NOW,
    )
