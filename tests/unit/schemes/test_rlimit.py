# SPDX-License-Identifier: Apache-2.0
"""What the rlimit scheme wants of its supervisor, where that refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandboxd.launch.supervisor import NotSupervised, SupervisorClient
from sandboxd.osutil.privileges import of_this_process
from sandboxd.protocol.dialogue import Greeting
from sandboxd.protocol.supervision import PROTOCOL
from sandboxd.schemes.rlimit import RlimitScheme
from tests.unit.values import a_sandbox, an_execution

ABILITIES = Greeting(
    ok=True, protocol=PROTOCOL, pid=1, scheduling="normal", reads_io=True, sees_shared=True,
    measures_exactly=True, changes_rlimits=True, missing=(),
)  # fmt: skip


class Refusing(SupervisorClient):
    """Writes files as it is told; follows them as long as `why` is None."""

    why: str | None = None

    async def open(self) -> Greeting:
        self.directory.make()
        return ABILITIES

    async def load(self, sandbox: str) -> None:
        if self.why is not None:
            raise NotSupervised(self.why)


class HeldShim:
    """As much of ports.launch.Shim as `place` asks for: this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.evidence_directory = "/nowhere"


async def opened(tmp_path: Path) -> tuple[RlimitScheme, Refusing]:
    async def start(argv: list[str]) -> None:
        raise AssertionError(argv)

    supervisor = Refusing(str(tmp_path), start)
    scheme = RlimitScheme("a test", supervisor, of_this_process(), address_space_bytes=1 << 40)
    await scheme.open()
    await scheme.create_sandbox(a_sandbox())
    return scheme, supervisor


async def test_an_execution_that_is_not_supervised_is_not_placed(tmp_path: Path) -> None:
    scheme, supervisor = await opened(tmp_path)
    supervisor.why = "cannot supervise sandbox x: too many open files"
    shim: Any = HeldShim(1)
    with pytest.raises(NotSupervised, match="too many open files"):
        await scheme.place(a_sandbox(), an_execution(), shim)
    supervisor.why = None
    await scheme.collect(a_sandbox(), an_execution())
    state = supervisor.directory.read(a_sandbox().id)
    assert state is not None
    assert state.executions == ()


async def test_a_suspension_that_failed_is_not_made_good_later(tmp_path: Path) -> None:
    scheme, supervisor = await opened(tmp_path)
    supervisor.why = "cannot supervise"
    with pytest.raises(NotSupervised):
        await scheme.suspend_sandbox(a_sandbox())
    state = supervisor.directory.read(a_sandbox().id)
    assert state is not None
    assert not state.suspended
    supervisor.why = None
    await scheme.suspend_sandbox(a_sandbox())
    state = supervisor.directory.read(a_sandbox().id)
    assert state is not None
    assert state.suspended
