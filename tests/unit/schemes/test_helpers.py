# SPDX-License-Identifier: Apache-2.0
"""Which way a helper is started, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import cast

import pytest

from sandboxd.core.names import UnitNames
from sandboxd.errors import BusUnavailable
from sandboxd.osutil.privileges import Privileges
from sandboxd.schemes import choose, helpers
from sandboxd.schemes.helpers import HelperServices
from sandboxd.systemd.manager import Manager

INSTANCE = "abcdefghijkl"
SERVICE = UnitNames.of_instance(INSTANCE, is_service=True)
PRIVATE = UnitNames.of_instance(INSTANCE, is_service=False)
FILES = frozenset({"sandboxd-spawner.service", "sandboxd-supervisor.service"})


class FakeManager:
    """A manager that writes down what it is asked for."""

    def __init__(self, files: frozenset[str] = FILES) -> None:
        self._files = files
        self.log: list[tuple[str, str]] = []

    async def connect(self) -> None:
        raise BusUnavailable("cannot reach systemd: no bus")

    async def close(self) -> None:
        self.log.append(("close", ""))

    async def has_file(self, unit: str) -> bool:
        return unit in self._files

    async def start_unit(self, unit: str) -> None:
        self.log.append(("start", unit))

    async def start_service(self, unit: str, argv: Sequence[str], *, description: str) -> bool:
        self.log.append(("transient", unit))
        return True

    async def stop_unit(self, unit: str) -> None:
        self.log.append(("stop", unit))


def services(manager: FakeManager, names: UnitNames) -> HelperServices:
    return HelperServices(cast("Manager", manager), names, INSTANCE)


async def test_a_unit_file_is_used_and_is_not_ours_to_stop() -> None:
    manager = FakeManager()
    helpers = services(manager, SERVICE)
    await helpers.start_spawner("/run/sandboxd/spawner.sock")
    await helpers.start_supervisor(["/bin/true"])
    await helpers.stop_started()
    assert manager.log == [
        ("start", "sandboxd-spawner.service"), ("start", "sandboxd-supervisor.service"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "files"), [(PRIVATE, FILES), (SERVICE, frozenset[str]())], ids=["private", "no file"]
)
async def test_else_it_is_transient(names: UnitNames, files: frozenset[str]) -> None:
    manager = FakeManager(files)
    helpers = services(manager, names)
    await helpers.start_spawner("/run/s/spawner.sock")
    await helpers.stop_started()
    unit = names.spawner_service
    assert manager.log == [("transient", unit), ("stop", unit)]


@pytest.mark.parametrize("names", [SERVICE, PRIVATE], ids=["service", "private"])
async def test_only_a_private_daemon_goes_on_without_systemd_s_answer(
    names: UnitNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = FakeManager()
    monkeypatch.setattr(choose, "Manager", lambda: manager)
    monkeypatch.setattr(helpers, "has_systemd", lambda: True)
    wanted = choose.SchemeOptions(
        privileges=Privileges(0), cgroup_mode="off", names=names, instance_id=INSTANCE,
        runtime_directory="/run/x",
        aggregate_bytes=1 << 30, aggregate_tasks=1000, io_path="/", io_detail="",
        address_space_bytes=1 << 36, images=None, system_paths=(), etc_hidden=(),
        bind_paths={},
    )  # fmt: skip
    async with AsyncExitStack() as undo:
        if names.is_service:
            with pytest.raises(BusUnavailable):
                await choose._helper_services(wanted, undo)
        else:
            assert await choose._helper_services(wanted, undo) is None
    assert manager.log == [("close", "")]
