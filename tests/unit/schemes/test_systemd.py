# SPDX-License-Identifier: Apache-2.0
"""The order of steps, and that whatever fails leaves nothing, against a tree of plain files."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from sandboxd.cgroup import host, programs
from sandboxd.errors import (
    BusUnavailable,
    JobFailed,
    LimitNotApplied,
    PropertyRejected,
    SchemeError,
)
from sandboxd.model import (
    Command,
    EnforcedBy,
    Execution,
    Isolation,
    Limits,
    Network,
    Sandbox,
    SchemeName,
)
from sandboxd.names import UnitNames
from sandboxd.ports.launch import Shim
from sandboxd.schemes import scopes
from sandboxd.schemes.systemd import SystemdScheme
from sandboxd.systemd.manager import Manager
from tests.unit.schemes.fake_manager import FakeManager

LIMITS = Limits(
    memory_bytes=64 << 20,
    cpus=0.5,
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
NAMES = UnitNames("sandboxd_t")
INSTANCE = "abcdefghijkl"
# Both ids fall into one bucket, "d8".
ONE, TWO = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


class LiveShim:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(self.pid)


@pytest.fixture
def shim() -> Iterator[Shim]:
    live = LiveShim(os.getpid())
    yield cast("Shim", live)
    os.close(live.pidfd)


class MortalShim(LiveShim):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process.pid)
        self._process = process

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def mortal() -> Iterator[MortalShim]:
    shim = MortalShim(subprocess.Popen(["sleep", "600"]))
    yield shim
    shim.end()
    os.close(shim.pidfd)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    monkeypatch.setattr(host, "hierarchy", lambda root: host.Hierarchy.UNIFIED)
    monkeypatch.setattr(scopes, "is_in", lambda pid, unit: True)
    monkeypatch.setattr(scopes, "_COLLECT_SECONDS", 0.01)
    monkeypatch.setattr(scopes, "_WALL_SECONDS", 0.05)
    return FakeManager(tmp_path)


async def opened(manager: FakeManager, tmp_path: Path) -> SystemdScheme:
    scheme = SystemdScheme(
        cast("Manager", manager), NAMES, instance_id=INSTANCE, aggregate_bytes=1 << 30,
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


async def test_open_sets_the_aggregate_of_a_parent_that_is_there(
    manager: FakeManager, tmp_path: Path
) -> None:
    await opened(manager, tmp_path)
    await opened(manager, tmp_path)
    assert manager.text(NAMES.parent_slice, "memory.max") == str(1 << 30)
    assert set(manager.units) == {NAMES.parent_slice}


async def test_open_starts_a_parent_that_a_package_has_and_sets_its_limit(
    manager: FakeManager, tmp_path: Path
) -> None:
    manager.units[NAMES.parent_slice] = "All sandboxes of sandboxd"
    await opened(manager, tmp_path)
    assert manager.text(NAMES.parent_slice, "memory.max") == str(1 << 30)
    assert manager.text(NAMES.parent_slice, "memory.swap.max") == "0"


async def test_open_refuses_a_host_without_a_controller(
    manager: FakeManager, tmp_path: Path
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io pids\n")
    with pytest.raises(SchemeError, match="lacks the cgroup controllers memory"):
        await opened(manager, tmp_path)
    assert manager.units == {}


async def test_io_limits_that_do_not_arrive_are_not_asked_for(
    manager: FakeManager, tmp_path: Path
) -> None:
    manager.ignore.add("IO")
    scheme = await opened(manager, tmp_path)
    await scheme.create_sandbox(sandbox())
    held = scheme.enforcement(LIMITS)["io_read_bytes_per_second"]
    assert held.by is EnforcedBy.NONE
    assert "no block device of its own is under /var/lib" in held.detail
    assert scheme.enforcement(LIMITS)["memory_bytes"].by is EnforcedBy.KERNEL


async def test_slices_come_before_scopes_and_go_after_them(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    await scheme.place(box, run, shim)
    await scheme.collect(box, run)
    await scheme.release_sandbox(box)
    outer, scope = scheme.sandbox_unit(ONE), scheme.execution_unit(ONE, run.id)
    bucket = NAMES.bucket_slice(ONE)
    assert manager.log == [
        ("start", bucket), ("start", outer), ("start", scope),
        ("stop", scope), ("stop", outer), ("stop", bucket),
    ]  # fmt: skip
    assert set(manager.units) == {NAMES.parent_slice}


def write_usage(root: Path, unit: str, memory_bytes: int) -> None:
    [found] = root.rglob(unit)
    (found / "memory.current").write_text(f"{memory_bytes}\n")
    (found / "pids.current").write_text("3\n")


async def test_each_scope_tells_what_it_uses(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run, other, gone = sandbox(), execution(), execution("f" * 12), execution("g" * 12)
    await scheme.create_sandbox(box)
    for one in (run, other):
        await scheme.place(box, one, shim)
    for one, current in ((run, 1 << 20), (other, 3 << 20)):
        write_usage(tmp_path, scheme.execution_unit(ONE, one.id), current)
    used = await scheme.execution_usages(box, [run, other, gone])
    assert {name: one.memory_bytes for name, one in used.items()} == {
        run.id: 1 << 20, other.id: 3 << 20,
    }  # fmt: skip
    # Its shim is none of a program's.
    assert [one.pids for one in used.values()] == [2, 2]
    await scheme.collect(box, run)
    assert set(await scheme.execution_usages(box, [run, other])) == {other.id}


@pytest.mark.parametrize("ignored", ["MemoryMax", "MemorySwapMax", "TasksMax", "IO"])
async def test_sandbox_without_a_limit_in_force_is_not_made(
    manager: FakeManager, tmp_path: Path, ignored: str
) -> None:
    scheme = await opened(manager, tmp_path)
    manager.ignore.add(ignored)
    with pytest.raises(LimitNotApplied):
        await scheme.create_sandbox(sandbox())
    assert set(manager.units) == {NAMES.parent_slice}


async def test_execution_without_a_limit_in_force_is_not_placed(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    scheme = await opened(manager, tmp_path)
    box = sandbox()
    await scheme.create_sandbox(box)
    await scheme.place(box, execution("ffffffffffff"), shim)
    manager.ignore.add("MemoryMax")
    with pytest.raises(LimitNotApplied, match=r"memory\.max says 'max'"):
        await scheme.place(box, execution(), shim)
    assert scheme.execution_unit(ONE, "eeeeeeeeeeee") not in manager.units
    assert manager.text(scheme.sandbox_unit(ONE), "pids.max") == "21"


async def test_systemd_is_not_asked_to_place_a_shim_that_ended(
    manager: FakeManager, tmp_path: Path, mortal: MortalShim
) -> None:
    # Before systemd 255 a scope takes numbers of processes, and this one may be another's by now.
    manager.version_number = 252
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    mortal.end()
    with pytest.raises(SchemeError, match="its shim ended"):
        await scheme.place(box, run, cast("Shim", mortal))
    assert ("start", scheme.execution_unit(ONE, run.id)) not in manager.log


async def test_a_shim_that_ends_while_it_is_placed_leaves_no_scope(
    manager: FakeManager, tmp_path: Path, mortal: MortalShim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    start = manager.start_transient

    async def start_and_kill(unit: str, *arguments: object, **more: object) -> None:
        await start(unit, *arguments, **more)  # type: ignore[arg-type]
        mortal.end()

    monkeypatch.setattr(manager, "start_transient", start_and_kill)
    with pytest.raises(SchemeError, match="its shim ended"):
        await scheme.place(box, run, cast("Shim", mortal))
    scope = scheme.execution_unit(ONE, run.id)
    assert ("start", scope) in manager.log
    assert scope not in manager.units


async def test_lost_answer_of_a_start_that_happened(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    start = manager.start_transient

    async def start_and_lose(unit: str, *arguments: object, **more: object) -> None:
        await start(unit, *arguments, **more)  # type: ignore[arg-type]
        raise BusUnavailable("lost")

    monkeypatch.setattr(manager, "start_transient", start_and_lose)
    await scheme.place(box, run, shim)
    assert manager.log[-1] == ("start", scheme.execution_unit(ONE, run.id))


async def test_lost_start_is_tried_again(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    scope = scheme.execution_unit(ONE, run.id)
    manager.fail["start", scope] = [BusUnavailable("lost")]
    monkeypatch.setattr(scopes, "is_in", lambda pid, unit: unit in manager.units)
    await scheme.place(box, run, shim)
    manager.fail["start", scope] = [BusUnavailable("lost")] * 3
    await scheme.collect(box, run)
    with pytest.raises(BusUnavailable):
        await scheme.place(box, run, shim)
    assert scope not in manager.units


async def test_buckets_are_shared_and_go_with_the_last(
    manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.names._bucket", lambda identity: "d8")
    scheme = await opened(manager, tmp_path)
    bucket = NAMES.bucket_slice(ONE)
    await scheme.create_sandbox(sandbox(ONE))
    # A create and a release in one bucket at once: the bucket outlives the first to go.
    await asyncio.gather(scheme.release_sandbox(sandbox(ONE)), scheme.create_sandbox(sandbox(TWO)))
    assert scheme.sandbox_unit(TWO) in manager.units
    assert bucket in manager.units
    await scheme.release_sandbox(sandbox(TWO))
    assert set(manager.units) == {NAMES.parent_slice}


def changes_of(manager: FakeManager) -> list[str]:
    return [unit.rpartition(".")[2] for verb, unit in manager.log if verb == "set"]


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        (replace(LIMITS, memory_bytes=128 << 20), ["slice", "scope"]),
        (replace(LIMITS, memory_bytes=32 << 20), ["scope", "slice"]),
        (replace(LIMITS, memory_bytes=32 << 20, cpus=1.0), ["slice", "scope", "slice"]),
    ],
)
async def test_no_scope_ever_has_more_than_its_slice(
    manager: FakeManager, tmp_path: Path, shim: Shim, wanted: Limits, order: list[str]
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    await scheme.place(box, run, shim)
    await scheme.change_limits(box, wanted, [(run, wanted)])
    assert changes_of(manager) == order
    for unit in (scheme.sandbox_unit(ONE), scheme.execution_unit(ONE, run.id)):
        assert manager.text(unit, "memory.max") == str(wanted.memory_bytes)
        assert manager.text(unit, "cpu.max") == f"{int(wanted.cpus * 100000)} 100000"


async def test_failed_change_is_undone(manager: FakeManager, tmp_path: Path, shim: Shim) -> None:
    scheme = await opened(manager, tmp_path)
    box, first, second = sandbox(), execution(), execution("ffffffffffff")
    await scheme.create_sandbox(box)
    await scheme.place(box, first, shim)
    await scheme.place(box, second, shim)
    refused = PropertyRejected("unit", "org.freedesktop.DBus.Error.InvalidArgs", "no")
    manager.fail["set", scheme.execution_unit(ONE, second.id)] = [refused]
    wanted = replace(LIMITS, memory_bytes=128 << 20)
    with pytest.raises(PropertyRejected):
        await scheme.change_limits(box, wanted, [(first, wanted), (second, wanted)])
    for unit in (scheme.sandbox_unit(ONE), scheme.execution_unit(ONE, first.id)):
        assert manager.text(unit, "memory.max") == str(LIMITS.memory_bytes)
    # And the place still knows what it holds.
    await scheme.change_limits(box, wanted, [(first, wanted), (second, wanted)])


async def test_create_that_systemd_refuses_leaves_no_bucket(
    manager: FakeManager, tmp_path: Path
) -> None:
    scheme = await opened(manager, tmp_path)
    unit = scheme.sandbox_unit(ONE)
    manager.fail["start", unit] = [JobFailed(unit, "failed")]
    with pytest.raises(JobFailed):
        await scheme.create_sandbox(sandbox())
    assert set(manager.units) == {NAMES.parent_slice}
    await scheme.create_sandbox(sandbox())


async def test_adoption(manager: FakeManager, tmp_path: Path, shim: Shim) -> None:
    before = await opened(manager, tmp_path)
    box = sandbox()
    await before.create_sandbox(box)
    for identity in ("eeeeeeeeeeee", "ffffffffffff"):
        await before.place(box, execution(identity), shim)
    after = await opened(manager, tmp_path)
    assert await after.adopt_sandbox(box, ["eeeeeeeeeeee", "ffffffffffff"])
    assert manager.log == []
    assert not await after.adopt_sandbox(sandbox(TWO), [])
    await after.collect(box, execution("eeeeeeeeeeee"))
    assert manager.text(after.sandbox_unit(ONE), "pids.max") == "21"
    # What the record says holds, whatever the earlier daemon had come to.
    box.limits = replace(LIMITS, memory_bytes=32 << 20)
    later = await opened(manager, tmp_path)
    assert await later.adopt_sandbox(box, ["ffffffffffff"])
    assert manager.text(later.sandbox_unit(ONE), "memory.max") == str(32 << 20)


async def test_a_scope_without_a_record_counts_no_longer_and_goes(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    before = await opened(manager, tmp_path)
    box = sandbox()
    await before.create_sandbox(box)
    for identity in ("eeeeeeeeeeee", "ffffffffffff"):
        await before.place(box, execution(identity), shim)
    after = await opened(manager, tmp_path)
    assert await after.adopt_sandbox(box, ["eeeeeeeeeeee"])
    assert manager.text(after.sandbox_unit(ONE), "pids.max") == "21"
    assert list(await after.clear_strays()) == []
    assert list(await after.clear_strays()) == [after.execution_unit(ONE, "ffffffffffff")]
    assert after.execution_unit(ONE, "eeeeeeeeeeee") in manager.units


async def test_only_what_nobody_uses_is_discarded(manager: FakeManager, tmp_path: Path) -> None:
    scheme = await opened(manager, tmp_path)
    await scheme.create_sandbox(sandbox())
    other = SystemdScheme(
        cast("Manager", manager), NAMES, instance_id="zzzzzzzzzzzz", aggregate_bytes=1 << 30,
        io_path="/var/lib", root=str(tmp_path),
    )  # fmt: skip
    await other.open()
    assert not await other.adopt_sandbox(sandbox(), [])
    assert list(await other.discard_unknown([])) == []
    assert list(await scheme.discard_unknown([])) == []
    next_daemon = await opened(manager, tmp_path)
    assert list(await next_daemon.discard_unknown([ONE])) == []
    assert sorted(await next_daemon.discard_unknown([])) == sorted(
        [scheme.sandbox_unit(ONE), NAMES.bucket_slice(ONE)]
    )
    assert set(manager.units) == {NAMES.parent_slice}


async def test_a_scope_without_its_wall_is_no_start(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, int | None] = {"egress": 1, "device": 1}

    def count(directory: str, hook: programs.Hook) -> int | None:
        assert directory.endswith(".slice" if hook is programs.Hook.DEVICE else ".scope")
        return found["device" if hook is programs.Hook.DEVICE else "egress"]

    monkeypatch.setattr(programs, "count", count)
    scheme = await opened(manager, tmp_path)
    box = replace(sandbox(), isolation=Isolation.STANDARD)
    await scheme.create_sandbox(box)
    first = execution("aaaaaaaaaaaa")
    await scheme.place(box, first, shim)
    scheme.probe_wall(box, first)
    assert scheme.missing == ()
    for lost, words in (("egress", "address filter"), ("device", "device filter")):
        found[lost] = 0
        with pytest.raises(LimitNotApplied, match=words):
            await scheme.place(box, execution("bbbbbbbbbbbb"), shim)
        assert scheme.execution_unit(ONE, "bbbbbbbbbbbb") not in manager.units
        found[lost] = 1
    await scheme.place(box, execution("cccccccccccc"), shim)


@pytest.mark.parametrize("answer", [0, None])
async def test_a_host_without_such_filters_says_so_and_goes_on(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch,
    answer: int | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(programs, "count", lambda directory, hook: answer)
    scheme = await opened(manager, tmp_path)
    box = replace(sandbox(), isolation=Isolation.STRICT)
    await scheme.create_sandbox(box)
    first = execution("aaaaaaaaaaaa")
    await scheme.place(box, first, shim)
    scheme.probe_wall(box, first)
    assert [one.partition(":")[0] for one in scheme.missing] == ["address filter", "device filter"]
    await scheme.place(box, execution("bbbbbbbbbbbb"), shim)


async def test_a_wall_that_comes_late_is_waited_for(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [1, 1, 0, 0]
    monkeypatch.setattr(programs, "count", lambda directory, hook: (answers or [1]).pop(0))
    scheme = await opened(manager, tmp_path)
    await scheme.create_sandbox(sandbox())
    await scheme.place(sandbox(), execution("aaaaaaaaaaaa"), shim)
    scheme.probe_wall(sandbox(), execution("aaaaaaaaaaaa"))
    await scheme.place(sandbox(), execution("bbbbbbbbbbbb"), shim)
    assert answers == []


async def test_a_manager_that_takes_no_wall_is_named(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    refusal = PropertyRejected("x", "org.freedesktop.DBus.Error.PropertyReadOnly", "no")
    # The first start of the probe is for IO limits.
    manager.fail["start", f"{NAMES.stem}-probe.slice"] = [None, refusal]
    scheme = await opened(manager, tmp_path)
    assert scheme.missing[0].startswith("address filter and device filter: ")
    box = replace(sandbox(), isolation=Isolation.STRICT, network=Network.NONE)
    await scheme.create_sandbox(box)
    assert not {"IPAddressDeny", "DevicePolicy"} & set(manager.given[NAMES.sandbox_slice(ONE)])
    await scheme.place(box, execution("aaaaaaaaaaaa"), shim)
    scheme.probe_wall(box, execution("aaaaaaaaaaaa"))
    await scheme.place(box, execution("bbbbbbbbbbbb"), shim)


async def test_a_slice_gets_the_wall_of_its_sandbox(manager: FakeManager, tmp_path: Path) -> None:
    scheme = await opened(manager, tmp_path)
    await scheme.create_sandbox(sandbox())
    given = manager.given[NAMES.sandbox_slice(ONE)]
    assert given["IPAddressDeny"][0][2] == 16
    assert "DevicePolicy" not in given
    box = replace(sandbox(TWO), isolation=Isolation.STRICT, network=Network.NONE)
    await scheme.create_sandbox(box)
    given = manager.given[NAMES.sandbox_slice(TWO)]
    assert [row[2] for row in given["IPAddressDeny"]] == [0, 0]
    assert [row[2] for row in given["IPAddressAllow"]] == [8, 128]
    assert given["DevicePolicy"] == "closed"
