# SPDX-License-Identifier: Apache-2.0
"""Calls and jobs over a bus that misbehaves: whatever happens, each wait ends, and rightly."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from sandboxd.errors import (
    BusUnavailable,
    HostDiskFull,
    JobFailed,
    OperationTimedOut,
    PropertyRejected,
    SandboxdError,
    UnitExists,
    UnitMissing,
)
from sandboxd.systemd.manager import Manager
from sandboxd.systemd.properties import Property
from tests.conftest import requires_program
from tests.integration.fake_systemd import (
    PATH,
    SYSTEMD,
    Answer,
    FakeSystemd,
    PrivateBus,
    disconnect,
    scripted,
)

UNIT = "sandboxd-aa-x.slice"
PROPERTIES = [Property("MemoryMax", "t", 1 << 20)]


@pytest.fixture(autouse=True)
def _requires_dbus_daemon() -> None:
    requires_program("dbus-daemon")


@asynccontextmanager
async def connected(
    directory: Path,
    script: Answer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    call_timeout_seconds: float = 10.0,
    poll_seconds: float = 30.0,
    replies: int = 128,
) -> AsyncIterator[tuple[Manager, PrivateBus, FakeSystemd]]:
    async with scripted(directory, script, replies=replies) as (bus, systemd):
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        manager = Manager(call_timeout_seconds=call_timeout_seconds, poll_seconds=poll_seconds)
        await manager.connect()
        try:
            yield manager, bus, systemd
        finally:
            await manager.close()


def unit_of(message: Message) -> str:
    return str(message.body[0])


async def reply_then_signal(systemd: FakeSystemd, message: Message) -> None:
    job = systemd.new_job()
    systemd.reply(message, "o", job)
    systemd.remove_job(job, unit_of(message))


async def signal_then_reply(systemd: FakeSystemd, message: Message) -> None:
    job = systemd.new_job()
    systemd.remove_job(job, unit_of(message))
    systemd.reply(message, "o", job)


async def no_signal(systemd: FakeSystemd, message: Message) -> None:
    job = systemd.new_job()
    systemd.units[unit_of(message)] = ("loaded", "active", "/")
    systemd.reply(message, "o", job)


async def never_answer(systemd: FakeSystemd, message: Message) -> None:
    """A systemd that is busy with something else."""


@pytest.mark.parametrize("script", [reply_then_signal, signal_then_reply])
async def test_start_ends_with_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Answer
) -> None:
    async with connected(tmp_path, script, monkeypatch) as (manager, _, systemd):
        async with asyncio.timeout(5):
            await asyncio.gather(
                *(manager.start_transient(f"{n}-{UNIT}", PROPERTIES) for n in range(100))
            )
        assert systemd.calls.count("StartTransientUnit") == 100


async def test_start_waits_for_its_own_job_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()

    async def script(systemd: FakeSystemd, message: Message) -> None:
        other, job = systemd.new_job(), systemd.new_job()
        systemd.remove_job(other, unit_of(message), "failed")
        systemd.remove_job(job, "another.slice", "failed")
        systemd.reply(message, "o", job)
        await release.wait()
        systemd.remove_job(job, unit_of(message))

    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        start = asyncio.ensure_future(manager.start_transient(UNIT, PROPERTIES))
        done, _ = await asyncio.wait({start}, timeout=0.2)
        assert not done
        release.set()
        await asyncio.wait_for(start, 5)


async def test_lost_signal_is_only_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path, no_signal, monkeypatch, poll_seconds=0.1) as (manager, _, _):
        await asyncio.wait_for(manager.start_transient(UNIT, PROPERTIES), 5)


async def test_lost_signal_of_a_failed_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        systemd.reply(message, "o", systemd.new_job())

    async with connected(tmp_path, script, monkeypatch, poll_seconds=0.1) as (manager, _, _):
        with pytest.raises(JobFailed, match="not-found/inactive") as failure:
            await asyncio.wait_for(manager.start_transient(UNIT, PROPERTIES), 5)
        assert failure.value.unit == UNIT


async def test_poll_waits_while_the_job_is_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        job = systemd.new_job()
        systemd.units[UNIT] = ("loaded", "inactive", job)
        systemd.reply(message, "o", job)
        await asyncio.sleep(0.5)
        systemd.units[UNIT] = ("loaded", "active", "/")

    async with connected(tmp_path, script, monkeypatch, poll_seconds=0.05) as (manager, _, systemd):
        started = time.monotonic()
        await asyncio.wait_for(manager.start_transient(UNIT, PROPERTIES), 5)
        assert time.monotonic() - started >= 0.5
        assert systemd.calls.count("ListUnitsByNames") > 2


@pytest.mark.parametrize("result", ["failed", "canceled", "frozen", "timeout", "dependency"])
async def test_job_that_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        job = systemd.new_job()
        systemd.reply(message, "o", job)
        systemd.remove_job(job, UNIT, result)

    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        with pytest.raises(JobFailed, match=result) as failure:
            await manager.start_transient(UNIT, PROPERTIES)
        assert failure.value.result == result


async def test_job_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        job = systemd.new_job()
        systemd.units[UNIT] = ("loaded", "inactive", job)
        systemd.reply(message, "o", job)

    async with connected(tmp_path, script, monkeypatch, poll_seconds=0.05) as (manager, _, _):
        with pytest.raises(OperationTimedOut, match=UNIT):
            await manager.start_transient(UNIT, PROPERTIES, timeout_seconds=0.3)


async def test_call_that_is_never_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path, never_answer, monkeypatch, call_timeout_seconds=0.3) as (
        manager,
        _,
        _,
    ):
        with pytest.raises(OperationTimedOut, match=r"StartTransientUnit.*0\.3 seconds"):
            await manager.start_transient(UNIT, PROPERTIES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org.freedesktop.systemd1.UnitExists", UnitExists),
        ("org.freedesktop.systemd1.NoSuchUnit", UnitMissing),
        ("org.freedesktop.DBus.Error.InvalidArgs", PropertyRejected),
        ("org.freedesktop.DBus.Error.PropertyReadOnly", PropertyRejected),
        ("org.freedesktop.DBus.Error.AccessDenied", PropertyRejected),
        ("org.freedesktop.DBus.Error.UnixProcessIdUnknown", PropertyRejected),
        ("org.freedesktop.DBus.Error.LimitsExceeded", BusUnavailable),
        ("org.freedesktop.systemd1.ShuttingDown", BusUnavailable),
    ],
)
async def test_error_names_become_typed_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: type[SandboxdError]
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        systemd.error(message, name, "because")

    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        with pytest.raises(expected, match=f"{UNIT}: because") as failure:
            await manager.start_transient(UNIT, PROPERTIES)
        assert type(failure.value) is expected
        assert failure.value.details == {"unit": UNIT, "dbus_error": name}


async def test_no_room_for_a_units_file_is_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        systemd.error(message, "org.freedesktop.systemd1.NoSuchUnit", "not found")

    found = os.statvfs("/run")
    full = os.statvfs_result([*found[:3], 0, 0, *found[5:10]])
    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        monkeypatch.setattr(os, "statvfs", lambda path: full)
        with pytest.raises(HostDiskFull, match="No space left") as failure:
            await manager.start_transient(UNIT, PROPERTIES)
        assert failure.value.details["path"] == "/run"


async def test_stop_of_an_unknown_unit_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        systemd.error(message, "org.freedesktop.systemd1.NoSuchUnit")

    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        await manager.stop_unit(UNIT)


async def test_many_calls_stay_below_the_bus_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        await asyncio.sleep(0.01)
        await reply_then_signal(systemd, message)

    # 32 in flight are the most that ever wait for an answer; two more are for the poll.
    async with connected(tmp_path, script, monkeypatch, replies=34) as (manager, _, _):
        async with asyncio.timeout(20):
            await asyncio.gather(
                *(manager.start_transient(f"{n}-{UNIT}", PROPERTIES) for n in range(500))
            )


async def test_limits_exceeded_by_the_bus_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(tmp_path, never_answer, monkeypatch, replies=4) as (manager, _, _):
        starts = [
            asyncio.ensure_future(manager.start_transient(f"{n}-{UNIT}", PROPERTIES))
            for n in range(6)
        ]
        done, pending = await asyncio.wait(starts, timeout=1)
        for start in pending:
            start.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        assert len(done) == 2
        assert all(isinstance(start.exception(), BusUnavailable) for start in done)


async def test_dying_bus_fails_the_calls_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(tmp_path, never_answer, monkeypatch) as (manager, bus, systemd):
        starts = [
            asyncio.ensure_future(manager.start_transient(f"{n}-{UNIT}", PROPERTIES))
            for n in range(50)
        ]
        await systemd.until_called("StartTransientUnit", 32)
        await bus.kill()
        results = await asyncio.wait_for(asyncio.gather(*starts, return_exceptions=True), 5)
        assert all(isinstance(result, BusUnavailable) for result in results)
        with pytest.raises(BusUnavailable, match="cannot connect to the system bus"):
            await manager.start_transient(UNIT, PROPERTIES)
        await systemd.stop()
        await bus.start()
        again = FakeSystemd(bus.address, signal_then_reply)
        await again.start()
        # The subscription is new as well: no poll would come to the help of a lost signal.
        await asyncio.wait_for(manager.start_transient(UNIT, PROPERTIES), 5)
        await again.stop()


async def test_job_outlives_its_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        systemd.reply(message, "o", systemd.new_job())

    async with connected(tmp_path, script, monkeypatch, poll_seconds=0.1) as (
        manager,
        bus,
        systemd,
    ):
        systemd.units[UNIT] = ("loaded", "inactive", f"{PATH}/job/1")
        start = asyncio.ensure_future(manager.start_transient(UNIT, PROPERTIES))
        await systemd.until_called("StartTransientUnit", 1)
        await asyncio.sleep(0.1)
        await bus.kill()
        await systemd.stop()
        await bus.start()
        again = FakeSystemd(bus.address, script)
        again.units[UNIT] = ("loaded", "active", "/")
        await again.start()
        await asyncio.wait_for(start, 10)
        await again.stop()


async def test_systemd_away_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path, reply_then_signal, monkeypatch) as (manager, bus, systemd):
        await systemd.leave()
        start = asyncio.ensure_future(manager.start_transient(UNIT, PROPERTIES))
        done, _ = await asyncio.wait({start}, timeout=0.3)
        assert not done
        again = FakeSystemd(bus.address, reply_then_signal)
        await again.start()
        await asyncio.wait_for(start, 5)
        await again.stop()


async def test_lost_answer_of_an_idempotent_call_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        if systemd.calls.count("SetUnitProperties") == 1:
            systemd.error(message, "org.freedesktop.DBus.Error.NoReply")
        else:
            systemd.reply(message, "")

    async with connected(tmp_path, script, monkeypatch) as (manager, _, systemd):
        await manager.set_properties(UNIT, PROPERTIES)
        assert systemd.calls.count("SetUnitProperties") == 2


async def test_hanging_bus_hangs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path, reply_then_signal, monkeypatch, call_timeout_seconds=0.5) as (
        manager,
        bus,
        _,
    ):
        bus.pause()
        try:
            results = await asyncio.wait_for(
                asyncio.gather(
                    *(manager.start_transient(f"{n}-{UNIT}", PROPERTIES) for n in range(100)),
                    return_exceptions=True,
                ),
                10,
            )
        finally:
            bus.resume()
        assert all(isinstance(result, OperationTimedOut) for result in results)
        await asyncio.wait_for(manager.start_transient(UNIT, PROPERTIES), 5)


async def test_signals_of_others_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(systemd: FakeSystemd, message: Message) -> None:
        stranger = await MessageBus(bus_address=systemd._address).connect()
        job = systemd.new_job()
        for destination in (None, message.sender):
            await stranger.send(Message(
                message_type=MessageType.SIGNAL, path=PATH, interface=f"{SYSTEMD}.Manager",
                member="JobRemoved", signature="uoss", destination=destination,
                body=[1, job, UNIT, "done"],
            ))  # fmt: skip
        systemd.reply(message, "o", job)
        await asyncio.sleep(0.2)
        systemd.remove_job(job, UNIT, "failed")
        await disconnect(stranger)

    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        with pytest.raises(JobFailed, match="failed"):
            await manager.start_transient(UNIT, PROPERTIES)


async def test_no_bus_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/nothing")
    with pytest.raises(BusUnavailable, match="cannot connect to the system bus"):
        await Manager().connect()


async def test_bus_without_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = PrivateBus(tmp_path)
    await bus.start()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    manager = Manager()
    try:
        await manager.connect()
        with pytest.raises(BusUnavailable, match="cannot reach systemd"):
            await manager.version()
    finally:
        await manager.close()
        await bus.kill()


async def test_peer_that_hangs_up_in_the_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    path = tmp_path / "bus"
    server = await asyncio.start_unix_server(hang_up, path)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={path}")
    async with server:
        with pytest.raises(BusUnavailable):
            await asyncio.wait_for(Manager().connect(), 5)


async def test_version_and_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(tmp_path, never_answer, monkeypatch) as (manager, _, _):
        assert await manager.version() == 257
        assert await manager.control_group() == ""
        assert (await manager.features()).pidfds


async def test_descriptors_reach_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[int] = []

    async def script(systemd: FakeSystemd, message: Message) -> None:
        for fd in message.unix_fds:
            arrived.append(os.fstat(fd).st_ino)
            os.close(fd)
        await reply_then_signal(systemd, message)

    async with connected(tmp_path, script, monkeypatch) as (manager, _, _):
        read_end, write_end = os.pipe()
        try:
            await manager.start_transient(UNIT, [Property("PIDFDs", "ah", [0])], fds=[read_end])
            assert arrived == [os.fstat(read_end).st_ino]
        finally:
            os.close(read_end)
            os.close(write_end)
