# SPDX-License-Identifier: Apache-2.0
"""The order of steps, and that whatever fails leaves nothing, against a tree of plain files."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sandboxd.cgroup.counters import ancestors
from sandboxd.core.model import EnforcedBy, Limits
from sandboxd.engine.ports.launch import Shim
from sandboxd.errors import JobFailed, LimitNotApplied, PropertyRejected, SchemeError
from sandboxd.schemes.systemd import SystemdScheme
from sandboxd.systemd.manager import Manager
from tests.unit.schemes.fake_manager import FakeManager
from tests.unit.schemes.made import LIMITS, NAMES, ONE, TWO, execution, opened, sandbox


async def test_open_sets_the_aggregate_of_a_parent_that_is_there(
    manager: FakeManager, tmp_path: Path
) -> None:
    await opened(manager, tmp_path)
    await opened(manager, tmp_path)
    assert manager.text(NAMES.parent_slice, "memory.max") == str(1 << 30)
    assert manager.text(NAMES.parent_slice, "pids.max") == "1000"
    assert set(manager.units) == {NAMES.parent_slice}


async def test_open_starts_a_parent_that_a_package_has_and_sets_its_limit(
    manager: FakeManager, tmp_path: Path
) -> None:
    manager.units[NAMES.parent_slice] = "All sandboxes of sandboxd"
    await opened(manager, tmp_path)
    assert manager.text(NAMES.parent_slice, "memory.max") == str(1 << 30)
    assert manager.text(NAMES.parent_slice, "memory.swap.max") == "0"
    assert manager.text(NAMES.parent_slice, "pids.max") == "1000"


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
    held = scheme.enforcement()["io_read_bytes_per_second"]
    assert held.by is EnforcedBy.NONE
    assert "no block device of its own is under /var/lib" in held.detail
    assert scheme.enforcement()["memory_bytes"].by is EnforcedBy.KERNEL


async def test_an_execution_s_cgroup_is_below_its_sandbox_s(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    await scheme.place(box, run, shim)
    path = scheme.execution_cgroup(box.id, run.id)
    assert (tmp_path / path).is_dir()
    assert ancestors(str(tmp_path / path), path) == (
        str(manager.directory(scheme.sandbox_unit(box.id))),
        str(manager.directory(f"{path.partition('.')[0]}.slice")),
    )


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


@pytest.mark.parametrize("ignored", ["MemoryMax", "MemorySwapMax", "CPUWeight", "TasksMax", "IO"])
async def test_sandbox_without_a_limit_in_force_is_not_made(
    manager: FakeManager, tmp_path: Path, ignored: str
) -> None:
    scheme = await opened(manager, tmp_path)
    manager.ignore.add(ignored)
    box = sandbox()
    box.limits = replace(LIMITS, cpu_weight=50)
    with pytest.raises(LimitNotApplied):
        await scheme.create_sandbox(box)
    assert set(manager.units) == {NAMES.parent_slice}


async def test_buckets_are_shared_and_go_with_the_last(
    manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.core.names._bucket", lambda identity: "d8")
    scheme = await opened(manager, tmp_path)
    bucket = NAMES.bucket_slice(ONE)
    await scheme.create_sandbox(sandbox(ONE))
    # A create and a release in one bucket at once: the bucket outlives the first to go.
    await asyncio.gather(scheme.release_sandbox(sandbox(ONE)), scheme.create_sandbox(sandbox(TWO)))
    assert scheme.sandbox_unit(TWO) in manager.units
    assert bucket in manager.units
    await scheme.release_sandbox(sandbox(TWO))
    assert set(manager.units) == {NAMES.parent_slice}


async def test_a_bucket_weighs_what_its_sandboxes_weigh(
    manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.core.names._bucket", lambda identity: "d8")
    scheme = await opened(manager, tmp_path)
    bucket = NAMES.bucket_slice(ONE)
    one, two = sandbox(ONE), sandbox(TWO)
    await scheme.create_sandbox(one)
    assert ("set", bucket) not in manager.log
    two.limits = replace(LIMITS, cpu_weight=50)
    await scheme.create_sandbox(two)
    assert manager.text(bucket, "cpu.weight") == "150"
    two.limits = replace(LIMITS, cpu_weight=3)
    await scheme.change_limits(two, two.limits, [])
    assert manager.text(bucket, "cpu.weight") == "103"
    # The next daemon, of whose adoptions each knows a part of the bucket alone.
    (manager.directory(bucket) / "cpu.weight").write_text("100")
    after = await opened(manager, tmp_path)
    for box in (one, two):
        assert await after.adopt_sandbox(box, [])
    assert list(await after.discard_unknown([ONE, TWO])) == []
    assert manager.text(bucket, "cpu.weight") == "103"
    await after.release_sandbox(one)
    assert manager.text(bucket, "cpu.weight") == "3"
    one.limits = replace(LIMITS, cpu_weight=10_000)
    await after.create_sandbox(one)
    assert manager.text(bucket, "cpu.weight") == "10000"


async def test_a_sandbox_whose_weight_its_bucket_does_not_take_is_not_made(
    manager: FakeManager, tmp_path: Path
) -> None:
    scheme = await opened(manager, tmp_path)
    bucket = NAMES.bucket_slice(ONE)
    manager.fail["set", bucket] = [PropertyRejected(bucket, "InvalidArgs", "no")]
    box = sandbox()
    box.limits = replace(LIMITS, cpu_weight=50)
    with pytest.raises(PropertyRejected):
        await scheme.create_sandbox(box)
    assert set(manager.units) == {NAMES.parent_slice}
    await scheme.create_sandbox(box)
    assert manager.text(bucket, "cpu.weight") == "50"


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
        aggregate_tasks=1000,
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
