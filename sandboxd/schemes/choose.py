# SPDX-License-Identifier: Apache-2.0
"""Chooses the scheme by doing: a throw-away sandbox under systemd, limits read back, or why not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from sandboxd.cgroup import host
from sandboxd.core.levels import MissingFeature
from sandboxd.core.model import Command, Execution, Isolation, Limits, Network, Sandbox
from sandboxd.core.names import UnitNames, new_id
from sandboxd.engine.ports.scheme import Scheme
from sandboxd.errors import ConfigError, SandboxdError
from sandboxd.launch.builders import Builders
from sandboxd.launch.disks import Disks
from sandboxd.launch.roots import Roots
from sandboxd.launch.spawner import SpawnerClient, start_spawner_process
from sandboxd.launch.supervisor import SupervisorClient
from sandboxd.osutil.privileges import Privileges
from sandboxd.schemes.helpers import HelperServices, has_systemd, have_units
from sandboxd.schemes.rlimit import RlimitScheme
from sandboxd.schemes.systemd import SystemdScheme
from sandboxd.systemd.access_filter import Address
from sandboxd.systemd.manager import Manager

_log = logging.getLogger(__name__)
_NO_FILTER = "address filter and device filter: systemd's slices have them, this scheme has none"
_PROBE_LIMITS = Limits(
    memory_bytes=64 << 20,
    cpus=1.0,
    pids=16,
    io_read_bytes_per_second=64 << 20,
    io_write_bytes_per_second=64 << 20,
    disk_bytes=1 << 30,
    timeout_seconds=60.0,
    cpu_seconds=None,
    max_output_bytes=1 << 20,
    open_files=64,
    file_size_bytes=1 << 30,
)


@dataclass(frozen=True, slots=True)
class SchemeOptions:
    """What the daemon is and was configured with."""

    privileges: Privileges
    cgroup_mode: str
    names: UnitNames
    instance_id: str
    runtime_directory: str
    aggregate_bytes: int
    aggregate_tasks: int
    io_path: str
    io_detail: str
    address_space_bytes: int | None
    images: str | None
    system_paths: tuple[str, ...]
    etc_hidden: tuple[str, ...]
    bind_paths: Mapping[str, bool]
    denied_addresses: tuple[Address, ...] = ()


class HostScheme(Scheme, Protocol):
    """A scheme that may be tried on this host before the first sandbox."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What the scheme lacks on this host, in words."""
        ...

    def probe(self, sandbox: Sandbox, execution: Execution) -> None:
        """Learn from a placed execution what this host lacks."""
        ...


@dataclass(frozen=True, slots=True)
class OpenScheme:
    """The open scheme and launcher, and what a held shim was found to have.

    close: ends both. stop_all: nothing of ours runs any more, so units and spawner go too. undo:
    instead of close, after a start that failed: helpers and mounts that were not there before and
    that nothing uses go as well.
    """

    scheme: HostScheme
    launcher: SpawnerClient
    builders: Builders
    disks: Disks
    roots: Roots
    root_missing: tuple[MissingFeature, ...]
    network_missing: tuple[MissingFeature, ...]
    pid_namespace: bool
    missing: tuple[str, ...]
    close: Callable[[bool], Awaitable[None]]
    undo: Callable[[], Awaitable[None]]


async def choose(wanted: SchemeOptions) -> OpenScheme:
    """Open the best scheme this host has. Raises ConfigError in mode `required` without cgroups."""
    obstacle = _obstacle(wanted)
    if obstacle is None:
        try:
            return await _open_systemd(wanted)
        except SandboxdError as exc:
            obstacle = exc.message
    if wanted.cgroup_mode == "required":
        raise ConfigError(
            f"cannot start with SANDBOX_CGROUP_MODE=required: {obstacle}",
            hint="boot with systemd and unified cgroups, or use mode auto",
        )
    level = logging.INFO if wanted.cgroup_mode == "off" else logging.WARNING
    _log.log(level, "Using the rlimit scheme: %s", obstacle)
    return await _open_rlimit(wanted, obstacle)


def _obstacle(wanted: SchemeOptions) -> str | None:
    """What rules the systemd scheme out before anything is tried."""
    if wanted.cgroup_mode == "off":
        return "SANDBOX_CGROUP_MODE is off"
    if not wanted.privileges.is_root:
        return "not running as root"
    kind = host.hierarchy()
    if kind is not host.Hierarchy.UNIFIED:
        return f"cgroups are {kind}, not unified"
    missing = host.missing_controllers()
    if missing:
        return f"the cgroup controllers {', '.join(missing)} are missing"
    if not has_systemd():
        return "systemd does not run this host"
    return None


async def _open_systemd(wanted: SchemeOptions) -> OpenScheme:
    async with AsyncExitStack() as undo:
        manager = Manager()
        undo.push_async_callback(manager.close)
        await manager.connect()
        helpers = HelperServices(manager, wanted.names, wanted.instance_id)
        undo.push_async_callback(helpers.stop_started)
        launcher = SpawnerClient(wanted.runtime_directory, wanted.privileges, helpers.start_spawner)
        undo.callback(launcher.close)
        await launcher.open()
        scheme = SystemdScheme(
            manager,
            names=wanted.names,
            instance_id=wanted.instance_id,
            aggregate_bytes=wanted.aggregate_bytes,
            aggregate_tasks=wanted.aggregate_tasks,
            io_path=wanted.io_path,
            io_detail=wanted.io_detail,
            denied_addresses=wanted.denied_addresses,
        )
        await scheme.open()

        async def close(stop_all: bool) -> None:
            if stop_all:
                await helpers.stop_all()
            launcher.close()
            await scheme.close(remove_parent=stop_all)
            await manager.close()

        return await _opened(wanted, undo, scheme, launcher, close)


async def _open_rlimit(wanted: SchemeOptions, reason: str) -> OpenScheme:
    async with AsyncExitStack() as undo:
        helpers = await _helper_services(wanted, undo)
        start_spawner = start_spawner_process if helpers is None else helpers.start_spawner
        launcher = SpawnerClient(wanted.runtime_directory, wanted.privileges, start_spawner)
        start_supervisor = launcher.supervise if helpers is None else helpers.start_supervisor
        supervisor = SupervisorClient(wanted.runtime_directory, start_supervisor)
        undo.callback(launcher.close)
        if helpers is None:
            undo.push_async_callback(launcher.stop_started)
        await launcher.open()
        scheme = RlimitScheme(
            reason, supervisor, wanted.privileges, address_space_bytes=wanted.address_space_bytes
        )
        undo.callback(scheme.close)
        await scheme.open()

        async def close(stop_all: bool) -> None:
            if stop_all and helpers is not None:
                await helpers.stop_all()
            scheme.close()
            launcher.close()
            if helpers is not None:
                await helpers.close()

        return await _opened(wanted, undo, scheme, launcher, close, (_NO_FILTER,))


async def _opened(
    wanted: SchemeOptions,
    undo: AsyncExitStack,
    scheme: HostScheme,
    launcher: SpawnerClient,
    end: Callable[[bool], Awaitable[None]],
    notes: tuple[str, ...] = (),
) -> OpenScheme:
    """Probe an open scheme and the host's roots. end: closes scheme, launcher and helpers."""
    pid_namespace, missing = await _probe(scheme, launcher)
    builders = Builders(launcher)
    disks = Disks(builders, wanted.runtime_directory, wanted.privileges)
    roots = Roots(
        builders,
        wanted.runtime_directory,
        wanted.privileges,
        images=wanted.images,
        system_paths=wanted.system_paths,
        etc_hidden=wanted.etc_hidden,
        bind_paths=wanted.bind_paths,
    )
    undo.push_async_callback(roots.remove_unused)
    root_missing, network_missing = await roots.missing()

    async def close(stop_all: bool) -> None:
        if stop_all:
            await roots.remove_all()
            await disks.remove_all()
            await launcher.stop_spawner()
        await end(stop_all)

    return OpenScheme(
        scheme,
        launcher,
        builders,
        disks,
        roots,
        root_missing,
        network_missing,
        pid_namespace,
        (*missing, *scheme.missing, *roots.notes, *notes),
        close,
        undo.pop_all().aclose,
    )


async def _helper_services(wanted: SchemeOptions, undo: AsyncExitStack) -> HelperServices | None:
    """Where systemd runs and answers; else the spawner is a child, and the supervisor its child.

    The service's daemon has walls around it that its children must not have: without systemd's
    answer it does not start, and is started again.
    """
    if not have_units(wanted.privileges):
        return None
    helpers = HelperServices(Manager(), wanted.names, wanted.instance_id)
    try:
        await helpers.connect()
    except SandboxdError as exc:
        _log.warning("Cannot run helpers as services: %s", exc.message)
        await helpers.close()
        if wanted.names.is_service:
            raise
        return None
    undo.push_async_callback(helpers.close)
    undo.push_async_callback(helpers.stop_started)
    return helpers


async def _probe(scheme: HostScheme, launcher: SpawnerClient) -> tuple[bool, tuple[str, ...]]:
    """Hold a shim in a throw-away sandbox and take both away again."""
    sandbox, execution = _probe_values(scheme)
    async with AsyncExitStack() as undo:
        await scheme.create_sandbox(sandbox)
        undo.push_async_callback(scheme.release_sandbox, sandbox)
        undo.push_async_callback(scheme.collect, sandbox, execution)
        shim = await launcher.hold()
        undo.push_async_callback(shim.abort)
        await scheme.place(sandbox, execution, shim)
        scheme.probe(sandbox, execution)
        return shim.pid_namespace, shim.missing


def _probe_values(scheme: HostScheme) -> tuple[Sandbox, Execution]:
    now, sandbox_id, execution_id = datetime.now(UTC), new_id(), new_id()
    sandbox = Sandbox(
        id=sandbox_id,
        name=None,
        owner_uid=0,
        uid=0,
        # With a whole wall around it.
        isolation=Isolation.STANDARD,
        network=Network.HOST,
        scheme=scheme.name,
        limits=_PROBE_LIMITS,
        enforcement={},
        created_at=now,
        last_used_at=now,
        unit=scheme.sandbox_unit(sandbox_id),
    )
    execution = Execution(
        id=execution_id,
        sandbox_id=sandbox_id,
        command=Command(argv=()),
        limits=_PROBE_LIMITS,
        own_limits=frozenset(),
        enforcement={},
        created_at=now,
        unit=scheme.execution_unit(sandbox_id, execution_id),
    )
    return sandbox, execution
