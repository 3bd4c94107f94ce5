# SPDX-License-Identifier: Apache-2.0
"""Records survive whole, or the error says why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.errors import HostDiskFull
from sandboxd.model import ErrorCode, ExecutionStatus, LimitOwner, Outcome, OutputSummary, Usage
from sandboxd.store import DiskStore
from tests.unit.values import EXECUTION_ID, NOW, SANDBOX_ID, a_sandbox, an_execution


def directory(root: Path) -> Path:
    path = root / "sandboxes" / SANDBOX_ID / "executions" / EXECUTION_ID
    path.mkdir(parents=True)
    return path


async def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    directory(tmp_path)
    store, sandbox, execution = DiskStore(str(tmp_path)), a_sandbox(), an_execution()
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
    store, sandbox = DiskStore(str(tmp_path)), a_sandbox()
    await store.save_sandbox(sandbox)
    (path.parent.parent / "sandbox.json.tmp").write_text('{"version": 1, "val')
    assert [read for read, _ in await store.load()] == [sandbox]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1}', '{"version": 1, "value": {}}', '{"version": 99}', "\xff"]
)
async def test_an_unreadable_record_is_set_aside(tmp_path: Path, text: str) -> None:
    record = directory(tmp_path).parent.parent / "sandbox.json"
    record.write_text(text, encoding="latin-1")
    assert await DiskStore(str(tmp_path)).load() == []
    assert (record.parent / "sandbox.json.unreadable").exists()


async def test_a_failed_write_keeps_the_old_record(tmp_path: Path) -> None:
    record = directory(tmp_path).parent.parent / "sandbox.json"
    store, sandbox = DiskStore(str(tmp_path)), a_sandbox()
    await store.save_sandbox(sandbox)
    # A directory in the way of the temporary file stands for every error of a write.
    (record.parent / "sandbox.json.tmp").mkdir()
    with pytest.raises(HostDiskFull, match="cannot write a record"):
        await store.save_sandbox(replace(sandbox, name="other"))
    assert json.loads(record.read_text())["value"]["name"] == "box"
