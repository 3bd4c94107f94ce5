# SPDX-License-Identifier: Apache-2.0
"""The daemon: wires everything together and lives from READY to SIGTERM.

Theory of operation. The daemon answers the API (api/), decides (engine/) and keeps records
(records/), but runs no command and forks no process: a spawner (spawner/spawner.py), a separate
service on systemd hosts, forks a shim for each execution, and the shim (shim/shim.py) starts,
watches, judges and records the command. Under the systemd scheme (schemes/systemd.py) a sandbox is
a transient slice and an execution a transient scope, which the daemon asks of systemd while the
shim is held; the kernel holds the limits. Elsewhere the rlimit scheme (schemes/rlimit.py) holds
limits as far as rlimits and a supervisor can, and reports the rest as missing. Shims and commands
live outside the daemon's own cgroup: SIGTERM leaves all executions running, and the next daemon on
the same state directory takes the executions over (engine/adoption.py). A private daemon
(`--private`) serves a single call of sandboxctl: the daemon exits when standard input ends, and all
work and state end with the daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from typing import NoReturn

from sandboxd import __version__
from sandboxd.api.listener import group_id, listen
from sandboxd.api.server import serving
from sandboxd.cgroup import host
from sandboxd.core.binds import BindPolicy
from sandboxd.core.levels import Allowed, Findings, MissingFeature, Offers, offers
from sandboxd.core.model import Isolation, Network
from sandboxd.core.names import UnitNames
from sandboxd.core.policy import Budget, LimitPolicy, TaskBudget, TerminalBudget
from sandboxd.core.remedies import Need, remedy
from sandboxd.daemon import config, journal
from sandboxd.engine.context import Context, Settings, Tasks
from sandboxd.engine.engine import Engine
from sandboxd.engine.history import KEPT_INTERVALS
from sandboxd.engine.lifecycle import Lifecycle
from sandboxd.engine.registry import Registry
from sandboxd.engine.requests import CgroupReport
from sandboxd.errors import ConfigError, SandboxdError
from sandboxd.isolation import seccomp
from sandboxd.isolation.uids import CallerUid, UidRange
from sandboxd.launch.spawner import MAX_RUNTIME_PATH
from sandboxd.osutil.descriptors import allow_most
from sandboxd.osutil.files import remove_file, write_text
from sandboxd.osutil.libc import libc
from sandboxd.osutil.privileges import of_this_process
from sandboxd.records.history import DiskHistory
from sandboxd.records.keys import DiskKeys
from sandboxd.records.store import DiskStore
from sandboxd.schemes.choose import OpenScheme, SchemeOptions, choose
from sandboxd.schemes.helpers import have_units
from sandboxd.systemd import notify
from sandboxd.workspace import instance
from sandboxd.workspace.device import backing
from sandboxd.workspace.directories import Directories, check_reachable
from sandboxd.workspace.disk import DiskMeans

_log = logging.getLogger(__name__)
# malloc.h
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


class SystemClock:
    """Fits ports.host.Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def main() -> None:
    """Run `sandboxd`; the exit status is 1 on a SandboxdError at start."""
    arguments = config.argument_parser().parse_args(sys.argv[1:])
    _give_memory_back()
    # Each execution holds two descriptors.
    allow_most()
    journal.set_up(os.environ)
    try:
        # Before the settings are read, since a refused setting must not leave an old ready file.
        with _ready_file(os.environ.get("SANDBOX_READY_FILE") or None):
            settings = config.load(arguments.config, os.environ)
            journal.set_level(settings.log_level)
            for text in config.unknown(os.environ):
                _log.warning("Ignored: %s", text)
            with _ready_file(settings.ready_file):
                asyncio.run(_Daemon(arguments, settings).run())
    except SandboxdError as exc:
        _give_up(exc)
    except ExceptionGroup as group:
        # A TaskGroup wraps an exception of the block in an ExceptionGroup.
        if len(group.exceptions) != 1 or not isinstance(group.exceptions[0], SandboxdError):
            raise
        _give_up(group.exceptions[0])


def _give_up(exc: SandboxdError) -> NoReturn:
    _log.critical("%s%s", exc.message, f" ({exc.hint})" if exc.hint else "")
    sys.exit(1)


def _give_memory_back() -> None:
    """Fix glibc's mmap threshold at 128 KiB, so that freed large buffers go back to the kernel.

    By default glibc raises the threshold each time a mapping is freed, and then keeps the memory of
    answers with much output (mallopt(3)).
    """
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
        mallopt(_M_ARENA_MAX, 2)


@contextmanager
def _ready_file(path: str | None) -> Iterator[None]:
    """Remove the ready file before start-up work and on every exit; `_Daemon` makes the file."""
    if path is None:
        yield
        return
    remove_file(path)
    try:
        yield
    finally:
        remove_file(path)


class _Daemon:
    """A run of the daemon, from start to stop."""

    def __init__(self, arguments: argparse.Namespace, settings: config.Config) -> None:
        self._settings = settings
        self._privileges = of_this_process()
        self._state = os.path.realpath(arguments.state_dir)
        self._runtime = os.path.realpath(arguments.runtime_dir)
        self._socket = arguments.socket or os.path.join(self._runtime, "sandboxd.sock")
        self._socket_named_by = config.socket_named_by(arguments.socket)
        self._private: bool = arguments.private
        self._stop_all: bool = arguments.stop_all
        self._notifier = notify.choose()
        self._was_ready = False

    async def run(self) -> None:
        """Start, serve until told to stop, stop. Raises SandboxdError if the start fails."""
        stop = _stop_event(watch_stdin=self._private)
        if self._stop_all and not self._is_here():
            return
        self._check_directories()
        async with AsyncExitStack() as cleanup:
            cleanup.callback(self._remove_private_directories)
            self._hold = cleanup.enter_context(
                instance.hold(self._state, self._runtime, self._privileges)
            )
            self._make_directory(os.path.join(self._runtime, "executions"))
            instance_id = instance.instance_id(self._state)
            is_below = not have_units(self._privileges)
            bound = host.memory_bound(own=is_below)
            budget = Budget(bound.value, self._settings.worker_memory_reserve_bytes)
            room = host.tasks_bound(own=is_below)
            task_budget = TaskBudget(room.value, room.source)
            policy = self._settings.limit_policy(budget, task_budget)
            clock = SystemClock()
            directories = Directories(
                self._state,
                self._privileges,
                disk_floor_bytes=self._settings.disk_floor_bytes,
                # --stop-all ends existing work by whatever means holds the disk limits.
                disk_means=DiskMeans("auto" if self._stop_all else self._settings.disk_means),
            )
            directories.open()
            cleanup.callback(directories.close)
            chosen = await choose(self._wanted(instance_id, budget, task_budget))
            cleanup.push_async_callback(self._leave, chosen)
            await directories.use(chosen.builders, chosen.disks)
            tasks = Tasks()
            clock = SystemClock()
            context = Context(
                settings=self._engine_settings(instance_id, policy, chosen),
                clock=clock,
                scheme=chosen.scheme,
                launcher=chosen.launcher,
                roots=chosen.roots,
                workspaces=directories,
                uids=self._uids(instance_id),
                store=DiskStore(self._state, clock),
                history_store=DiskHistory(self._state, kept=KEPT_INTERVALS),
                registry=Registry(
                    budget, task_budget, self._settings.caller_quota(), _terminal_budget()
                ),
                tasks=tasks,
                lifecycle=Lifecycle(clock, logs_arguments=self._settings.log_arguments),
            )
            engine = Engine(context)
            async with tasks:
                await engine.open()
                if not self._stop_all:
                    await self._serve(engine, chosen, stop)
                if self._private or self._stop_all:
                    released = await engine.release_all()
                    if self._stop_all and not released:
                        _log.info("Nothing to end: no sandbox is left in %s", self._state)
                if not self._private:
                    await engine.close()
                tasks.cancel_all()

    async def _leave(self, chosen: OpenScheme) -> None:
        """Close scheme and launcher; after a failed start, undo all that the start made."""
        if self._was_ready or self._private or self._stop_all:
            await chosen.close(self._private or self._stop_all)
        else:
            if self._hold.has_new_runtime:
                # Those of an earlier daemon are elsewhere.
                await chosen.roots.remove_all()
                await chosen.disks.remove_all()
            await chosen.undo()

    async def _serve(self, engine: Engine, chosen: OpenScheme, stop: asyncio.Event) -> None:
        admin_gid = group_id("admin_group", self._settings.admin_group)
        socket_gid = group_id("socket_group", self._settings.socket_group)
        handed = notify.listen_sockets(self._notifier)
        if socket_gid is None:
            socket_gid = admin_gid
        async with AsyncExitStack() as cleanup:
            sockets = handed
            if not handed:
                sockets = [listen(self._socket, gid=socket_gid, named_by=self._socket_named_by)]
                cleanup.callback(self._remove_socket)
            keys = DiskKeys(self._state)
            keys.open()
            admin_gids = () if admin_gid is None else (admin_gid,)
            api = serving(
                engine, sockets, keys=keys, own_uid=self._privileges.uid, admin_gids=admin_gids
            )
            await cleanup.enter_async_context(api)
            watchdog = asyncio.create_task(self._feed_watchdog())
            cleanup.callback(watchdog.cancel)
            self._tell_ready(f"{chosen.scheme.name} scheme: {chosen.scheme.reason}")
            try:
                await stop.wait()
                if not self._private:
                    _log.info("Stopping; what runs goes on")
            finally:
                engine.is_ready = False
                self._notifier.send(STOPPING="1", STATUS="stopping")

    def _remove_socket(self) -> None:
        remove_file(self._socket)

    def _tell_ready(self, status: str) -> None:
        if self._settings.ready_file is not None:
            try:
                write_text(self._settings.ready_file, "ready\n")
            except OSError as exc:
                raise ConfigError(
                    f"cannot write the ready file {self._settings.ready_file}: {exc.strerror}",
                    hint="name another with SANDBOX_READY_FILE",
                ) from exc
        self._was_ready = True
        self._hold.keep()
        self._notifier.send(READY="1", STATUS=status)
        _log.info("Ready on %s, %s", self._socket, status)

    async def _feed_watchdog(self) -> None:
        seconds = self._notifier.watchdog_seconds()
        while seconds is not None:
            self._notifier.send(WATCHDOG="1")
            await asyncio.sleep(seconds / 2)

    def _remove_private_directories(self) -> None:
        """Remove a private daemon's directories, unless never ready: the parent reads the log."""
        if self._private and self._was_ready:
            instance.remove_directories(self._state, self._runtime, self._privileges)

    def _is_here(self) -> bool:
        """Say where there is nothing to end, or more elsewhere; whether there may be work."""
        if not instance.is_here(self._state, self._runtime):
            _log.warning(
                "Nothing to end: there is nothing of sandboxd in %s and %s",
                self._state,
                self._runtime,
            )
            return False
        other = instance.runtime_directory(self._state)
        if other not in (None, self._runtime) and os.path.isdir(other):
            _log.warning(
                "The sandboxd of %s had the runtime directory %s, and not %s: its helpers and "
                "mounts there stay until --stop-all with --runtime-dir %s",
                self._state,
                other,
                self._runtime,
                other,
            )
        return True

    def _check_directories(self) -> None:
        """Refuse before anything is made. Raises ConfigError."""
        if len(self._runtime) > MAX_RUNTIME_PATH:
            raise ConfigError(
                f"cannot use {self._runtime} for sockets: the path is longer than "
                f"{MAX_RUNTIME_PATH} bytes, too long for a Unix socket below it",
                hint="choose a shorter --runtime-dir",
            )
        if self._privileges.is_root:
            check_reachable(self._state, "state")

    def _make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"cannot make {path}: {exc.strerror}",
                hint="name other directories with --state-dir and --runtime-dir",
            ) from exc

    def _wanted(self, instance_id: str, budget: Budget, tasks: TaskBudget) -> SchemeOptions:
        is_service = (self._state, self._runtime) == (
            config.DEFAULT_STATE_DIRECTORY, config.DEFAULT_RUNTIME_DIRECTORY,
        )  # fmt: skip
        io_path, io_detail = self._io_device()
        return SchemeOptions(
            privileges=self._privileges,
            cgroup_mode=self._settings.cgroup_mode,
            names=UnitNames.of_instance(instance_id, is_service=is_service),
            instance_id=instance_id,
            runtime_directory=self._runtime,
            aggregate_bytes=budget.total_bytes,
            aggregate_tasks=tasks.total,
            io_path=io_path,
            io_detail=io_detail,
            address_space_bytes=self._settings.address_space_limit_bytes,
            images=self._settings.images_directory,
            system_paths=self._settings.system_paths,
            etc_hidden=self._settings.etc_hidden,
            bind_paths=self._binds().allowed,
            denied_addresses=self._settings.denied_addresses,
        )

    def _io_device(self) -> tuple[str, str]:
        """Return the device or path for the IO limits, and how the device was found."""
        if self._settings.io_device is not None:
            return self._settings.io_device, f"{self._settings.io_device}, as configured"
        found = backing(self._state)
        return found.device or self._state, found.detail

    def _offers(self, chosen: OpenScheme) -> Offers:
        mounts: tuple[MissingFeature, ...] = ()
        if not chosen.pid_namespace:
            need = Need.MOUNTS if self._privileges.is_root else Need.ROOT
            mounts = (MissingFeature("pid namespaces", remedy(need, host.place())),)
        found = Findings(
            is_root=self._privileges.is_root,
            kernel_limits=chosen.scheme.held_by_kernel,
            call_filter=_missing_filter(),
            private_mounts=() if chosen.root_missing else mounts,
            root=chosen.root_missing,
            network=chosen.network_missing,
            place=host.place(),
        )
        allowed = Allowed(
            Isolation(self._settings.isolation_minimum),
            tuple(Network(name) for name in self._settings.networks),
        )
        return offers(found, self._settings.isolation, allowed)

    def _uids(self, instance_id: str) -> UidRange | CallerUid:
        if not self._privileges.is_root:
            return CallerUid(self._privileges.uid)
        return UidRange(instance_id, first=self._settings.uid_first, count=self._settings.uid_count)

    def _binds(self) -> BindPolicy:
        return BindPolicy.of_settings(self._settings.bind_paths, self._settings.system_paths)

    def _engine_settings(
        self, instance_id: str, policy: LimitPolicy, chosen: OpenScheme
    ) -> Settings:
        missing = list(chosen.missing)
        if not self._privileges.is_root:
            missing.append("root: commands run with the daemon's own uid and privileges")
        if not chosen.pid_namespace:
            missing.append("pid namespace: commands see the host's processes")
        missing += [feature.what for feature in _missing_filter()]
        return Settings(
            version=__version__,
            instance_id=instance_id,
            policy=policy,
            offers=self._offers(chosen),
            binds=self._binds(),
            private_mounts=chosen.pid_namespace and chosen.roots.has_private_mounts,
            cgroup=CgroupReport(
                self._settings.cgroup_mode, host.hierarchy().value, chosen.scheme.reason
            ),
            missing=tuple(missing),
            runtime_hints=self._settings.runtime_hints,
            max_executions=self._settings.max_executions,
            retention_seconds=self._settings.retention_seconds,
            retention_executions=self._settings.retention_executions,
            retention_output_bytes=self._settings.retention_output_bytes,
            retention_argument_bytes=self._settings.retention_argument_bytes,
        )


def _terminal_budget() -> TerminalBudget:
    usable = host.terminals()
    return TerminalBudget() if usable is None else TerminalBudget(usable)


def _missing_filter() -> tuple[MissingFeature, ...]:
    missing = seccomp.missing()
    return (
        () if missing is None else (MissingFeature(missing, "run sandboxd on x86_64 or aarch64"),)
    )


def _stop_event(*, watch_stdin: bool) -> asyncio.Event:
    """Return an event that SIGTERM, SIGINT and, with `watch_stdin`, the end of stdin set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def read_stdin() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    if watch_stdin:
        loop.add_reader(0, read_stdin)
    return stop
