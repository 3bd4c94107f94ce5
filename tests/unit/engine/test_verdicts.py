# SPDX-License-Identifier: Apache-2.0
"""What is said of an end does not depend on whether a daemon was there to see it."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.core.model import (
    Caller,
    Command,
    ErrorCode,
    Execution,
    ExecutionStatus,
    LimitChanges,
    LimitOwner,
    Outcome,
    OutputSummary,
    Usage,
)
from sandboxd.core.outcome import Facts, SupervisorVerdict
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import ExecutionRequest, SandboxRequest
from tests.unit.engine.test_adoption import next_daemon
from tests.unit.fakes.engine import make_engine
from tests.unit.fakes.world import World
from tests.unit.values import LIMITS

ME = Caller(1000, 1000, 1, is_admin=False)
OWN_LIMITS: list[dict[str, Any]] = [
    {},
    {"memory_bytes": 64 << 20, "pids": 5},
    {"cpu_seconds": 1.0, "timeout_seconds": 2.0},
]
COUNTERS = ("oom", "oom_kill", "pids_max", "pids_peak", "pids_limit", "sandbox_oom",
            "aggregate_oom", "sandbox_pids_max", "memory_peak_bytes", "cpu_usec")  # fmt: skip
KILL_CODES = (ErrorCode.KILLED_BY_CALLER, ErrorCode.DISK, ErrorCode.EXPIRED)

_few = st.none() | st.integers(0, 3)
_counters = st.none() | st.fixed_dictionaries(dict.fromkeys(COUNTERS, _few))
_verdicts = st.none() | st.builds(
    SupervisorVerdict, st.sampled_from(("oom", "cpu_time")), st.sampled_from(LimitOwner)
)
_reports = st.none() | st.builds(
    Usage, memory_peak_bytes=_few, pids_peak=_few, oom_kills=_few, io_read_bytes=_few
)
FACTS = st.builds(
    Facts,
    reason=st.sampled_from(("exited", "timeout", "cpu_time", "output", "killed", "oom")),
    kill_code=st.none() | st.sampled_from([code.value for code in KILL_CODES]),
    wait_status=st.none() | st.sampled_from((0, 1 << 8, 137 << 8, 9, 15, 24)),
    wall_seconds=st.floats(0, 10),
    finished_at=st.floats(0, 1e9),
    kill_complete=st.booleans(),
    leftovers_killed=st.integers(0, 9),
    cpu_user_seconds=st.floats(0, 3),
    cpu_system_seconds=st.floats(0, 3),
    streams=st.just((OutputSummary(3, truncated=True), OutputSummary(4))),
    baseline=st.fixed_dictionaries(dict.fromkeys(COUNTERS[5:8], _few)),
    counters=_counters,
    largest_process_bytes=_few,
    pids_at_end=_few,
    verdict=_verdicts,
    supervised=_reports,
)


async def started(engine: Engine, own: dict[str, Any]) -> Execution:
    box = await engine.create_sandbox(ME, SandboxRequest())
    request = ExecutionRequest(Command(argv=("true",)), limits=LimitChanges(**own))
    return await engine.start_execution(ME, box.id, request)


def told(execution: Execution) -> dict[str, Any]:
    return {
        "outcome": execution.outcome,
        "usage": execution.usage,
        "streams": (execution.stdout, execution.stderr),
        "leftovers_killed": execution.leftovers_killed,
        "unkillable": execution.unkillable,
    }


async def watched(world: World, own: dict[str, Any], facts: Facts | None) -> dict[str, Any]:
    """The end, seen by the daemon that started it."""
    engine, context = make_engine(world)
    async with context.tasks:
        execution = await started(engine, own)
        shim = world.shims[execution.id]
        shim.die() if facts is None else shim.leave(facts)
        live = context.registry.find(ME, execution.sandbox_id).execution(execution.id)
        await live.collected.wait()
        await engine.release_sandbox(ME, execution.sandbox_id)
    return told(execution)


async def adopted(world: World, own: dict[str, Any], facts: Facts | None) -> dict[str, Any]:
    """The end, found by the next daemon."""
    engine, context = make_engine(world)
    async with context.tasks:
        execution = await started(engine, own)
        context.tasks.cancel_all()
    shim = world.shims[execution.id]
    shim.die() if facts is None else shim.leave(facts)
    engine, context = next_daemon(world)
    async with context.tasks:
        await engine.open()
        found = told(engine.get_execution(ME, execution.sandbox_id, execution.id))
        await engine.release_sandbox(ME, execution.sandbox_id)
    return found


def world_with(*, disk_held: bool = False, disk_used: int = 0) -> World:
    world = World()
    world.disk_held, world.disk_used = disk_held, disk_used
    return world


@settings(max_examples=200)
@given(
    facts=st.none() | FACTS,
    own=st.sampled_from(OWN_LIMITS),
    disk_held=st.booleans(),
    disk_used=st.sampled_from((0, LIMITS.disk_bytes)),
)
def test_every_verdict_is_the_same_watched_and_found(
    facts: Facts | None, own: dict[str, Any], *, disk_held: bool, disk_used: int
) -> None:
    def world() -> World:
        return world_with(disk_held=disk_held, disk_used=disk_used)

    seen = asyncio.run(watched(world(), own, facts))
    found = asyncio.run(adopted(world(), own, facts))
    assert found == seen


async def test_a_disk_that_is_full_is_named_for_an_end_that_nobody_saw() -> None:
    world = world_with(disk_held=True, disk_used=LIMITS.disk_bytes)
    streams = (OutputSummary(), OutputSummary())
    facts = Facts("exited", None, 1 << 8, 1.0, 0.0, True, 0, 0.0, 0.0, streams)
    found = await adopted(world, {}, facts)
    owner = LimitOwner.SANDBOX
    assert found["outcome"] == Outcome(ExecutionStatus.EXITED, ErrorCode.DISK, owner, 1, None)
