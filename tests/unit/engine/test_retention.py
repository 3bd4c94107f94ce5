# SPDX-License-Identifier: Apache-2.0
"""Whose records go when there are too many: those of the owner that has most."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.core.model import Caller, Command, LimitChanges, Sandbox
from sandboxd.core.policy import MIN_MEMORY_BYTES, CallerQuota
from sandboxd.engine.executions import wait_finished
from sandboxd.engine.requests import ExecutionRequest, SandboxChanges, SandboxRequest
from sandboxd.engine.retention import excess, sandbox_bytes
from sandboxd.errors import QuotaExceeded
from tests.unit.fakes.engine import make_engine, make_upkeep
from tests.unit.fakes.world import World
from tests.unit.values import LIMITS

GREEDY = Caller(1000, 1000, 1, is_admin=False)
MODEST = Caller(1001, 1001, 1, is_admin=False)
SMALL = LimitChanges(memory_bytes=LIMITS.memory_bytes // 16)
Entry = tuple[int, int, float]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 50), st.floats(0, 100))),
    st.integers(0, 500),
)
def test_what_is_given_up_is_enough_and_of_whoever_has_most(
    entries: list[Entry], bound: int
) -> None:
    numbered = list(enumerate(entries))
    given_up = excess(
        numbered, bound, owner=lambda e: e[1][0], size=lambda e: e[1][1], since=lambda e: e[1][2]
    )
    left = [entry for entry in numbered if entry not in given_up]
    assert len(left) + len(given_up) == len(numbered)
    assert sum(size for _, (_, size, _) in left) <= bound
    sums: Counter[int] = Counter()
    for _, (owner, size, _) in numbered:
        sums[owner] += size
    if given_up:
        assert sum(sums.values()) > bound
    for _, (owner, size, _) in given_up:
        assert sums[owner] == max(sums.values())
        sums[owner] -= size


@pytest.mark.parametrize(
    "bound",
    [{"retention_executions": 6}, {"retention_output_bytes": 60},
     {"retention_argument_bytes": 60}],
)  # fmt: skip
async def test_one_owners_records_do_not_push_out_anothers(bound: dict[str, int]) -> None:
    world = World()
    engine, context = make_engine(world, **bound)
    upkeep = make_upkeep(context)
    async with context.tasks:
        ids: dict[int, list[str]] = {}
        boxes: dict[int, Sandbox] = {}
        for caller, count, argument in ((MODEST, 2, "......"), (GREEDY, 20, "." * 16)):
            boxes[caller.uid] = await engine.create_sandbox(caller, SandboxRequest(limits=SMALL))
            for _ in range(count):
                request = ExecutionRequest(Command(argv=("true", argument)))
                ran = await engine.start_execution(caller, boxes[caller.uid].id, request)
                world.shims[ran.id].finish(size=10 if caller is MODEST else 20)
                running = context.registry.find(caller, ran.sandbox_id).execution(ran.id)
                await wait_finished(running, 5)
                await running.collected.wait()
                ids.setdefault(caller.uid, []).append(ran.id)
                world.seconds += 1
        await upkeep.pass_once()
        assert [e.id for e in engine.list_executions(MODEST)] == ids[MODEST.uid]
        left = [e.id for e in engine.list_executions(GREEDY)]
        assert left
        assert left == ids[GREEDY.uid][-len(left) :]
        for uid, box in boxes.items():
            await engine.release_sandbox(MODEST if uid == MODEST.uid else GREEDY, box.id)


@pytest.mark.parametrize("bound", [{"retention_executions": 4}, {"retention_argument_bytes": 400}])
async def test_one_owners_released_sandboxes_do_not_push_out_anothers(
    bound: dict[str, int],
) -> None:
    engine, context = make_engine(World(), **bound)
    upkeep = make_upkeep(context)
    async with context.tasks:
        kept = []
        for caller, count in ((MODEST, 2), (GREEDY, 10)):
            for _ in range(count):
                request = SandboxRequest(limits=SMALL, metadata={"a": "b" * 99})
                made = await engine.create_sandbox(caller, request)
                await engine.release_sandbox(caller, made.id)
                if caller is MODEST:
                    kept.append(made.id)
        await upkeep.pass_once()
        assert [box.id for box in engine.list_sandboxes(MODEST)] == kept
        assert len(engine.list_sandboxes(GREEDY)) == 2


async def test_what_an_owners_records_hold_in_memory_is_bounded() -> None:
    world = World()
    engine, context = make_engine(world)
    context.registry.quota = CallerQuota(record_bytes=1000)
    async with context.tasks:
        box = await engine.create_sandbox(
            GREEDY, SandboxRequest(limits=SMALL, env={"A": "a" * 399}, metadata={"a": "b" * 99})
        )
        assert sandbox_bytes(box) == 500
        large = Command(argv=("true",), env={"A": "a" * 600})
        with pytest.raises(QuotaExceeded) as caught:
            await engine.start_execution(GREEDY, box.id, ExecutionRequest(large))
        assert caught.value.details == {
            "quota": "record_bytes", "maximum": 1000, "used": 500, "asked": 605,
        }  # fmt: skip
        with pytest.raises(QuotaExceeded):
            await engine.create_sandbox(
                GREEDY, SandboxRequest(limits=SMALL, metadata={"a": "b" * 600})
            )
        with pytest.raises(QuotaExceeded):
            await engine.change_sandbox(GREEDY, box.id, SandboxChanges(metadata={"a": "b" * 1000}))
        assert box.metadata == {"a": "b" * 99}
        await engine.create_sandbox(MODEST, SandboxRequest(limits=SMALL, env={"A": "a" * 900}))
        # What has ended is retention's, which takes the same owner's first.
        fits = Command(argv=("true",), env={"A": "a" * 400})
        for _ in range(3):
            ran = await engine.start_execution(GREEDY, box.id, ExecutionRequest(fits))
            world.shims[ran.id].finish()
            await engine.wait_execution(GREEDY, box.id, ran.id, 5)
        for caller in (GREEDY, MODEST):
            for each in engine.list_sandboxes(caller):
                await engine.release_sandbox(caller, each.id)


async def test_owners_with_large_records_leave_room_for_the_next() -> None:
    engine, context = make_engine(World())
    context.registry.quota = CallerQuota(record_bytes=16_000)
    least = LimitChanges(memory_bytes=MIN_MEMORY_BYTES)
    large = SandboxRequest(limits=least, env={"A": "a" * 3_999})
    counts = []
    async with context.tasks:
        for uid in range(2000, 2008):
            owner = Caller(uid, uid, 1, is_admin=False)
            made = 0
            with suppress(QuotaExceeded):
                while True:
                    await engine.create_sandbox(owner, large)
                    made += 1
            counts.append(made)
        # Four at most of one, and then half of what is left of half of the sum.
        assert counts == [4, 4, 4, 2, 1, 0, 0, 0]
        little = SandboxRequest(limits=least, env={"A": "a" * 999})
        await engine.create_sandbox(MODEST, little)
        await engine.create_sandbox(Caller(0, 0, 1, is_admin=True), large)
        for live in context.registry:
            await engine.release_sandbox(Caller(0, 0, 1, is_admin=True), live.sandbox.id)


async def test_records_that_make_room_meanwhile_are_gone_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Room for output is made beside the upkeep, whose round must not end there."""
    world = World()
    engine, context = make_engine(world, retention_executions=0)
    upkeep = make_upkeep(context)
    async with context.tasks:
        box = await engine.create_sandbox(GREEDY, SandboxRequest(limits=SMALL))
        live = context.registry.find(GREEDY, box.id)
        for _ in range(3):
            ran = await engine.start_execution(
                GREEDY, box.id, ExecutionRequest(Command(argv=("true",)))
            )
            world.shims[ran.id].finish()
            await live.execution(ran.id).collected.wait()
        removed: list[str] = []

        async def remove_execution(_sandbox_id: str, execution_id: str) -> None:
            removed.append(execution_id)
            # What the other one gives up while this removal is under way.
            for other in list(live.executions)[:1]:
                del live.executions[other]

        monkeypatch.setattr(context.workspaces, "remove_execution", remove_execution)
        await upkeep.pass_once()
        assert not live.executions
        assert len(removed) == 2
        await engine.release_sandbox(GREEDY, box.id)
