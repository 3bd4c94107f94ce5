# SPDX-License-Identifier: Apache-2.0
"""Records survive whole, or the error says why."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sandboxd.core.model import (
    Bind,
    ErrorCode,
    ExecutionStatus,
    LimitOwner,
    Outcome,
    OutputSummary,
    Ownership,
    Sandbox,
    Usage,
)
from sandboxd.errors import (
    CapacityExceeded,
    ConfigError,
    HostDiskFull,
    HostStorageFailed,
    host_lacks,
)
from sandboxd.records.store import DiskStore
from tests.unit.values import EXECUTION_ID, NOW, SANDBOX_ID, a_sandbox, an_execution


class FixedClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.wall, self.seconds = NOW, 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds


CLOCK = FixedClock()


def directory(root: Path) -> Path:
    path = root / "sandboxes" / SANDBOX_ID / "executions" / EXECUTION_ID
    path.mkdir(parents=True)
    return path


async def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    directory(tmp_path)
    store, sandbox, execution = DiskStore(str(tmp_path), CLOCK), a_sandbox(), an_execution()
    execution.started_at = execution.finished_at = NOW
    execution.usage = Usage(wall_seconds=1.5, oom_kills=2)
    execution.stdout = OutputSummary(7, truncated=True)
    execution.outcome = Outcome(
        ExecutionStatus.OOM_KILLED, ErrorCode.MEMORY, LimitOwner.SANDBOX, None, 9
    )
    await store.save_sandbox(sandbox)
    await store.save_execution(execution)
    [(sandbox_read, [execution_read])] = await store.load()
    assert sandbox_read == sandbox
    # The input may be large and secret; nobody needs it again.
    assert execution_read == replace(execution, command=replace(execution.command, stdin=None))


async def test_no_half_written_record_is_seen(tmp_path: Path) -> None:
    path = directory(tmp_path)
    store, sandbox = DiskStore(str(tmp_path), CLOCK), a_sandbox()
    await store.save_sandbox(sandbox)
    (path.parent.parent / "sandbox.json.tmp").write_text('{"version": 1, "val')
    assert [read for read, _ in await store.load()] == [sandbox]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1}', '{"version": 1, "value": {}}', '{"version": "1"}', "\xff"]
)
async def test_an_unreadable_record_is_set_aside(tmp_path: Path, text: str) -> None:
    record = directory(tmp_path).parent.parent / "sandbox.json"
    record.write_text(text, encoding="latin-1")
    assert await DiskStore(str(tmp_path), CLOCK).load() == []
    assert (record.parent / "sandbox.json.unreadable").exists()


async def test_a_failed_write_keeps_the_old_record(tmp_path: Path) -> None:
    record = directory(tmp_path).parent.parent / "sandbox.json"
    store, sandbox = DiskStore(str(tmp_path), CLOCK), a_sandbox()
    await store.save_sandbox(sandbox)
    # A directory in the way of the temporary file stands for every error of a write.
    (record.parent / "sandbox.json.tmp").mkdir()
    with pytest.raises(HostStorageFailed, match="cannot write a record"):
        await store.save_sandbox(replace(sandbox, name="other"))
    assert json.loads(record.read_text())["value"]["name"] == "box"


def with_stamps() -> Sandbox:
    return replace(
        a_sandbox(), expires_monotonic=1060.0, used_monotonic=990.0, released_monotonic=995.0
    )


@pytest.mark.parametrize("step", [timedelta(0), timedelta(hours=1), timedelta(hours=-1)])
async def test_a_step_of_the_wall_clock_moves_no_deadline(tmp_path: Path, step: timedelta) -> None:
    directory(tmp_path)
    clock, sandbox = FixedClock(), with_stamps()
    await DiskStore(str(tmp_path), clock).save_sandbox(sandbox)
    clock.seconds, clock.wall = 1010.0, NOW + step
    assert await DiskStore(str(tmp_path), clock).load() == [(sandbox, [])]


@pytest.mark.parametrize(("passed", "counted"), [(20.0, 20.0), (-3600.0, 0.0)])
async def test_times_go_on_over_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed: float, counted: float
) -> None:
    """The boot's clock begins anew; what was 60 s away is 40 s away after 20 s."""
    directory(tmp_path)
    clock = FixedClock()
    await DiskStore(str(tmp_path), clock).save_sandbox(with_stamps())
    clock.seconds, clock.wall = 5.0, NOW + timedelta(seconds=passed)
    monkeypatch.setattr("sandboxd.records.store.boot_id", lambda: "another")
    [(sandbox, _)] = await DiskStore(str(tmp_path), clock).load()
    assert sandbox.expires_monotonic == 5.0 + 60.0 - counted
    assert sandbox.used_monotonic == 5.0 - 10.0 - counted
    assert sandbox.released_monotonic == 5.0 - 5.0 - counted


async def test_records_of_version_1_are_migrated(tmp_path: Path) -> None:
    record = directory(tmp_path).parent.parent / "sandbox.json"
    store, sandbox = DiskStore(str(tmp_path), CLOCK), with_stamps()
    await store.save_sandbox(sandbox)
    old = json.loads(record.read_text())
    del old["saved"], old["value"]["used_monotonic"], old["value"]["released_monotonic"]
    record.write_text(json.dumps({**old, "version": 1}))
    [(read, _)] = await store.load()
    assert read == replace(sandbox, used_monotonic=1000.0, released_monotonic=1000.0)


async def test_binds_of_records_without_ownership_are_the_hosts(tmp_path: Path) -> None:
    """Until then nothing was mapped, and the sandbox's root stays as it is."""
    path = directory(tmp_path).parent.parent / "sandbox.json"
    store, sandbox = DiskStore(str(tmp_path), CLOCK), a_sandbox()
    sandbox.binds = (Bind("/srv/a", "/mnt/a", writable=True),)
    await store.save_sandbox(sandbox)
    record = json.loads(path.read_text())
    (bind,) = record["value"]["binds"]
    del bind["ownership"], bind["ownership_detail"]
    path.write_text(json.dumps(record))
    [(read, _)] = await store.load()
    assert read.binds[0].ownership is Ownership.HOST


async def test_records_of_before_weights_have_the_kernels_own(tmp_path: Path) -> None:
    execution = directory(tmp_path) / "execution.json"
    store = DiskStore(str(tmp_path), CLOCK)
    await store.save_sandbox(a_sandbox())
    await store.save_execution(an_execution())
    for record in (execution.parent.parent.parent / "sandbox.json", execution):
        old = json.loads(record.read_text())
        assert old["value"]["limits"].pop("cpu_weight") == 100
        record.write_text(json.dumps(old))
    [(sandbox, [read])] = await store.load()
    assert sandbox.limits.cpu_weight == read.limits.cpu_weight == 100


async def test_a_newer_sandboxd_s_records_are_not_touched(tmp_path: Path) -> None:
    record = directory(tmp_path).parent.parent / "sandbox.json"
    record.write_text('{"version": 99, "anything": 1}')
    with pytest.raises(ConfigError, match="version 99"):
        await DiskStore(str(tmp_path), CLOCK).load()
    assert record.read_text() == '{"version": 99, "anything": 1}'


async def test_of_two_writers_the_later_one_is_kept(tmp_path: Path) -> None:
    directory(tmp_path)
    store, sandbox = DiskStore(str(tmp_path), CLOCK), a_sandbox()
    for _ in range(20):
        saves = []
        for name in "abcd":
            sandbox.name = name
            saves.append(asyncio.ensure_future(store.save_sandbox(sandbox)))
            await asyncio.sleep(0)
        await asyncio.gather(*saves)
        [(read, _)] = await store.load()
        assert read.name == "d"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, HostDiskFull),
        (errno.EDQUOT, HostDiskFull),
        (errno.EMFILE, CapacityExceeded),
        (errno.EACCES, HostStorageFailed),
        (errno.EROFS, HostStorageFailed),
        (errno.EIO, HostStorageFailed),
        (errno.ENOENT, HostStorageFailed),
        (errno.ELOOP, HostStorageFailed),
    ],
)
def test_what_the_host_lacks_is_told_by_its_name(number: int, kind: type[Exception]) -> None:
    told = host_lacks("cannot do it", OSError(number, "whatever"), "/a/path")
    assert type(told) is kind
    assert os.strerror(number) in told.message
    assert told.details == {"errno": number, "path": "/a/path"}
    assert told.retryable == (kind is not HostStorageFailed)
    assert ("free space" in str(told.hint)) == (kind is HostDiskFull)
