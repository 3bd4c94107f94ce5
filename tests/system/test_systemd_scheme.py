# SPDX-License-Identifier: Apache-2.0
"""The systemd scheme against the real manager: what it asks for arrives, what it ends is gone."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.core.model import EnforcedBy
from sandboxd.errors import (
    LimitNotApplied,
    PropertyRejected,
    SandboxdError,
    SchemeError,
    UnitExists,
)
from sandboxd.schemes.systemd import SystemdScheme
from sandboxd.systemd.units import slice_path
from tests.system.held import (
    AGGREGATE_BYTES,
    AGGREGATE_TASKS,
    LIMITS,
    held,
    new_execution,
    new_sandbox,
    opened_scheme,
)

ROOT = Path("/sys/fs/cgroup")

pytestmark = pytest.mark.usefixtures("requires_root", "requires_systemd")


def shown(unit: str, *names: str) -> list[str]:
    """Properties by systemctl, which is independent of our own bus code."""
    command = ["systemctl", "show", unit, *(f"--property={name}" for name in names)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    values = dict(line.split("=", 1) for line in text.splitlines())
    return [values[name] for name in names]


def slice_directory(scheme: SystemdScheme, sandbox_id: str) -> Path:
    return ROOT / slice_path(scheme.sandbox_unit(sandbox_id))


def text(directory: Path, name: str) -> str:
    return (directory / name).read_text().strip()


def wait_for_zombie(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def systemctl(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec("systemctl", *arguments)
    assert await process.wait() == 0


async def test_limits_are_in_the_files_and_in_systemctl_show() -> None:
    async with opened_scheme() as (scheme, _, names):
        assert text(ROOT / names.parent_slice, "memory.max") == str(AGGREGATE_BYTES)
        assert text(ROOT / names.parent_slice, "pids.max") == str(AGGREGATE_TASKS)
        sandbox = new_sandbox()
        execution = new_execution(sandbox, memory_bytes=48 << 20, cpus=0.5, pids=10)
        scope = scheme.execution_unit(sandbox.id, execution.id)
        await scheme.create_sandbox(sandbox)
        try:
            with held() as process:
                await scheme.place(sandbox, execution, process.shim)
                outer = slice_directory(scheme, sandbox.id)
                for directory, memory, cpu, tasks in (
                    (outer, 96 << 20, "75000 100000", 21),
                    (outer / scope, 48 << 20, "50000 100000", 11),
                ):
                    assert text(directory, "memory.max") == str(memory)
                    assert text(directory, "memory.swap.max") == "0"
                    assert text(directory, "cpu.max") == cpu
                    assert text(directory, "pids.max") == str(tasks)
                    assert f"rbps={7 << 20} wbps={5 << 20}" in text(directory, "io.max")
                assert text(outer / scope, "cgroup.procs") == str(process.pid)
                assert shown(
                    scope, "MemoryMax", "MemorySwapMax", "TasksMax", "CPUQuotaPerSecUSec",
                    "OOMPolicy", "Delegate", "KillSignal", "CollectMode", "Slice", "ActiveState",
                ) == [
                    str(48 << 20), "0", "11", "500ms", "continue", "yes", "9",
                    "inactive-or-failed", scheme.sandbox_unit(sandbox.id), "active",
                ]  # fmt: skip
                assert shown(
                    scheme.sandbox_unit(sandbox.id), "MemoryMax", "TasksMax", "CPUQuotaPerSecUSec"
                ) == [str(96 << 20), "21", "750ms"]  # fmt: skip
                assert scheme.memory_current(sandbox) is not None
            await scheme.collect(sandbox, execution)
            assert not (outer / scope).exists()
        finally:
            await scheme.release_sandbox(sandbox)
        assert not outer.exists()
        assert not outer.parent.exists()
        held_by = {name: e.by for name, e in scheme.enforcement().items()}
        assert held_by["memory_bytes"] is held_by["io_read_bytes_per_second"] is EnforcedBy.KERNEL


async def test_tasks_of_the_slice_follow_the_running_shims() -> None:
    async with opened_scheme() as (scheme, _, _):
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        executions = [new_execution(sandbox) for _ in range(3)]
        directory = slice_directory(scheme, sandbox.id)
        with ExitStack() as stack:
            processes = [stack.enter_context(held()) for _ in executions]
            seen = []
            for execution, process in zip(executions, processes, strict=True):
                await scheme.place(sandbox, execution, process.shim)
                seen.append(int(text(directory, "pids.max")))
            for execution, process in zip(executions, processes, strict=True):
                process.end()
                await scheme.collect(sandbox, execution)
                seen.append(int(text(directory, "pids.max")))
        await scheme.release_sandbox(sandbox)
    assert seen == [21, 22, 23, 22, 21, 21]


async def test_limits_change_live_in_both_directions() -> None:
    async with opened_scheme() as (scheme, _, _):
        sandbox = new_sandbox()
        execution = new_execution(sandbox)
        await scheme.create_sandbox(sandbox)
        outer = slice_directory(scheme, sandbox.id)
        inner = outer / scheme.execution_unit(sandbox.id, execution.id)
        with held() as process:
            await scheme.place(sandbox, execution, process.shim)
            mixed = replace(LIMITS, memory_bytes=200 << 20, cpus=0.25, pids=33,
                            io_read_bytes_per_second=1 << 20)  # fmt: skip
            for wanted in (mixed, LIMITS):
                await scheme.change_limits(sandbox, wanted, [(execution, wanted)])
                sandbox.limits = execution.limits = wanted
                for directory in (outer, inner):
                    assert text(directory, "memory.max") == str(wanted.memory_bytes)
                    assert text(directory, "pids.max") == str(wanted.pids + 1)
                    assert text(directory, "cpu.max") == f"{int(wanted.cpus * 100000)} 100000"
                    assert f"rbps={wanted.io_read_bytes_per_second}" in text(directory, "io.max")
        await scheme.collect(sandbox, execution)
        await scheme.release_sandbox(sandbox)


async def test_refused_change_leaves_the_old_limits() -> None:
    async with opened_scheme() as (scheme, _, _):
        sandbox = new_sandbox()
        execution = new_execution(sandbox)
        await scheme.create_sandbox(sandbox)
        outer = slice_directory(scheme, sandbox.id)
        inner = outer / scheme.execution_unit(sandbox.id, execution.id)
        with held() as process:
            await scheme.place(sandbox, execution, process.shim)
            # systemd refuses a MemoryMax of 0, and with it the scope's whole change.
            wanted = replace(LIMITS, cpus=0.5)
            refused = replace(wanted, memory_bytes=0)
            with pytest.raises(PropertyRejected, match="MemoryMax"):
                await scheme.change_limits(sandbox, wanted, [(execution, refused)])
            for directory in (outer, inner):
                assert text(directory, "cpu.max") == "75000 100000"
                assert text(directory, "memory.max") == str(LIMITS.memory_bytes)
        await scheme.collect(sandbox, execution)
        await scheme.release_sandbox(sandbox)


async def test_dead_shim_leaves_no_scope() -> None:
    async with opened_scheme() as (scheme, manager, _):
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        execution = new_execution(sandbox)
        with held() as process:
            # Not reaped: a zombie, around which systemd starts a scope that nothing ever ends.
            process.process.kill()
            wait_for_zombie(process.pid)
            with pytest.raises(SchemeError, match="its shim ended"):
                await scheme.place(sandbox, execution, process.shim)
        assert (await manager.status(scheme.execution_unit(sandbox.id, execution.id))).is_gone
        await scheme.release_sandbox(sandbox)


async def test_kill_reaches_every_scope_and_release_needs_no_collect() -> None:
    async with opened_scheme() as (scheme, _, _):
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        with ExitStack() as stack:
            stubborn = ("sh", "-c", "trap '' TERM HUP INT; while :; do sleep 1000; done")
            processes = [stack.enter_context(held(stubborn)) for _ in range(3)]
            for process in processes:
                await scheme.place(sandbox, new_execution(sandbox), process.shim)
            await scheme.kill_sandbox(sandbox)
            assert [process.process.wait(timeout=10) for process in processes] == [-9, -9, -9]
            await scheme.release_sandbox(sandbox)
            assert not slice_directory(scheme, sandbox.id).exists()
            await scheme.kill_sandbox(sandbox)
            await scheme.release_sandbox(sandbox)


async def test_release_kills_what_ignores_sigterm() -> None:
    async with opened_scheme() as (scheme, _, _):
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        with held(("sh", "-c", "trap '' TERM; while :; do sleep 1000; done")) as process:
            await scheme.place(sandbox, new_execution(sandbox), process.shim)
            started = time.monotonic()
            await scheme.release_sandbox(sandbox)
            assert process.process.wait(timeout=1) == -9
        assert time.monotonic() - started < 5


@pytest.mark.timeout(300)
async def test_forty_starts_at_once() -> None:
    async with opened_scheme() as (scheme, _, _):
        sandboxes = [new_sandbox() for _ in range(8)]
        await asyncio.gather(*(scheme.create_sandbox(sandbox) for sandbox in sandboxes))
        with ExitStack() as stack:
            work = [(sandbox, new_execution(sandbox), stack.enter_context(held()))
                    for sandbox in sandboxes for _ in range(5)]  # fmt: skip
            took = []

            async def place(index: int) -> None:
                sandbox, execution, process = work[index]
                started = time.monotonic()
                await scheme.place(sandbox, execution, process.shim)
                took.append(time.monotonic() - started)

            started = time.monotonic()
            await asyncio.gather(*(place(index) for index in range(len(work))))
            wall = time.monotonic() - started
            for sandbox in sandboxes:
                assert text(slice_directory(scheme, sandbox.id), "pids.max") == "25"
            for _, _, process in work:
                process.process.kill()
            await asyncio.gather(*(scheme.collect(s, e) for s, e, _ in work))
            for sandbox in sandboxes:
                assert text(slice_directory(scheme, sandbox.id), "pids.max") == "21"
        await asyncio.gather(*(scheme.release_sandbox(sandbox) for sandbox in sandboxes))
        print(f"40 starts: {wall:.2f} s, median {statistics.median(took):.3f} s")  # noqa: T201


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "disturbance",
    [("daemon-reload",), ("daemon-reexec",), ("restart", "dbus.service")],
    ids=lambda words: words[0],
)
async def test_disturbance_under_load(disturbance: tuple[str, ...]) -> None:
    """Whatever goes on meanwhile: no start fails for good, nothing hangs, nothing is left."""
    async with opened_scheme() as (scheme, _, _):
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        lasting, lasting_process = new_execution(sandbox), held()
        with lasting_process as process:
            await scheme.place(sandbox, lasting, process.shim)
            disturbing = True
            failed = list[SandboxdError]()
            done = asyncio.Semaphore(0)

            async def load() -> None:
                while disturbing:
                    execution = new_execution(sandbox)
                    with held() as shim:
                        try:
                            await scheme.place(sandbox, execution, shim.shim)
                        except SandboxdError as exc:
                            failed.append(exc)
                            done.release()
                            continue
                        shim.end()
                        await scheme.collect(sandbox, execution)
                        done.release()

            async def disturb() -> None:
                nonlocal disturbing
                try:
                    for _ in range(3):
                        await systemctl(*disturbance)
                        for _ in range(8):
                            await done.acquire()
                finally:
                    disturbing = False

            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(load())
                group.create_task(disturb())
            assert failed == []
            assert process.process.poll() is None
            inner = slice_directory(scheme, sandbox.id) / scheme.execution_unit(
                sandbox.id, lasting.id
            )
            assert text(inner, "cgroup.procs") == str(process.pid)
            assert text(inner, "memory.max") == str(LIMITS.memory_bytes)
            assert text(inner.parent, "pids.max") == "21"
        await scheme.collect(sandbox, lasting)
        await scheme.release_sandbox(sandbox)


async def test_next_daemon_adopts_and_discards() -> None:
    async with opened_scheme(instance_id="aaaaaaaaaaaa", remove_parent=False) as (before, _, _):
        kept, unknown = new_sandbox(), new_sandbox()
        kept_execution, unknown_execution = new_execution(kept), new_execution(unknown)
        await before.create_sandbox(kept)
        await before.create_sandbox(unknown)
        with held() as kept_process, held() as unknown_process:
            await before.place(kept, kept_execution, kept_process.shim)
            await before.place(unknown, unknown_execution, unknown_process.shim)
            async with (
                opened_scheme(instance_id="aaaaaaaaaaaa") as (after, _, _),
                opened_scheme() as (other, _, _),
            ):
                assert await after.adopt_sandbox(kept, [kept_execution.id])
                assert not await after.adopt_sandbox(new_sandbox(), [])
                assert list(await other.discard_unknown([])) == []
                gone = list(await after.discard_unknown([kept.id]))
                assert after.sandbox_unit(unknown.id) in gone
                assert after.sandbox_unit(kept.id) not in gone
                assert unknown_process.process.wait(timeout=10) == -9
                assert kept_process.process.poll() is None
                more = new_execution(kept)
                with held() as process:
                    await after.place(kept, more, process.shim)
                    directory = slice_directory(after, kept.id)
                    assert text(directory, "pids.max") == "22"
                await after.collect(kept, more)
                kept_process.end()
                await after.collect(kept, kept_execution)
                await after.release_sandbox(kept)


async def test_slices_of_an_admin_are_left_alone() -> None:
    async with opened_scheme() as (scheme, manager, names):
        theirs = f"{names.stem}-helpers.slice"
        await manager.start_transient(theirs, [])
        assert list(await scheme.discard_unknown([])) == []
        assert (await manager.status(theirs)).is_active


NOTIFYING = """
import os, socket, sys, time
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
    time.sleep(0.5)
    open(sys.argv[1], "w").close()
    notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
time.sleep(600)
"""


async def test_helper_service_is_ready_once_and_found_again(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    async with opened_scheme() as (_, manager, names):
        unit = names.spawner_service
        argv = ["/usr/bin/python3", "-c", NOTIFYING, str(ready)]
        try:
            assert await manager.start_service(unit, argv, description="mine")
            assert ready.exists()
            assert shown(unit, "OOMScoreAdjust", "KillMode", "Type", "Description") == [
                "-900", "process", "notify", "mine",
            ]  # fmt: skip
            assert not await manager.start_service(unit, argv, description="mine")
            with pytest.raises(UnitExists):
                await manager.start_service(unit, argv, description="somebody else's")
        finally:
            await manager.stop_unit(unit)


async def test_io_limits_are_not_promised_without_a_device(tmp_path: Path) -> None:
    async with opened_scheme(io_path="/dev/shm") as (scheme, _, _):
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        held_by = scheme.enforcement()["io_write_bytes_per_second"]
        assert held_by.by is EnforcedBy.NONE
        assert "/dev/shm" in held_by.detail
        await scheme.release_sandbox(sandbox)


async def test_parent_that_somebody_stopped_comes_back_with_its_limit() -> None:
    async with opened_scheme() as (scheme, manager, names):
        await manager.stop_unit(names.parent_slice)
        sandbox = new_sandbox()
        await scheme.create_sandbox(sandbox)
        assert text(ROOT / names.parent_slice, "memory.max") == str(AGGREGATE_BYTES)
        assert text(ROOT / names.parent_slice, "pids.max") == str(AGGREGATE_TASKS)
        await scheme.release_sandbox(sandbox)


async def test_failed_create_leaves_nothing() -> None:
    async with opened_scheme() as (scheme, manager, names):
        # The kernel rounds 1 byte of memory.max to 0 pages, which is not "as asked".
        with pytest.raises((LimitNotApplied, PropertyRejected)):
            await scheme.create_sandbox(new_sandbox(replace(LIMITS, memory_bytes=0)))
        assert [u for u in await manager.list_units(names.patterns()) if not u.is_gone] == []
