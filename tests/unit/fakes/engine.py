# SPDX-License-Identifier: Apache-2.0
"""An engine over the fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sandboxd.core.binds import BindPolicy
from sandboxd.core.levels import Findings, MissingFeature, offers
from sandboxd.core.policy import Budget, LimitPolicy, TaskBudget
from sandboxd.engine.context import Context, Settings, Tasks
from sandboxd.engine.disk import DiskKeeper
from sandboxd.engine.engine import Engine
from sandboxd.engine.executions import Executions
from sandboxd.engine.lifecycle import Lifecycle
from sandboxd.engine.registry import Registry
from sandboxd.engine.requests import CgroupReport
from sandboxd.engine.sandboxes import Sandboxes
from sandboxd.engine.upkeep import Upkeep
from sandboxd.engine.usage_sampler import UsageSampler
from tests.unit.fakes.schemes import FakeRoots, FakeScheme
from tests.unit.fakes.shims import FakeLauncher
from tests.unit.fakes.stores import FakeHistoryStore, FakeStore, FakeUids, FakeWorkspaces
from tests.unit.fakes.world import World
from tests.unit.values import LIMITS

FOUR_SANDBOXES = Budget(5 * LIMITS.memory_bytes, LIMITS.memory_bytes)
MANY_TASKS = TaskBudget(1 << 22, "a test")


def settings(**changes: object) -> Settings:
    """Settings for a test."""
    missing = (MissingFeature("a test's root", "none"),)
    found = Findings(is_root=True, kernel_limits=False, root=missing, network=missing)
    chosen: dict[str, object] = {
        "version": "0",
        "instance_id": "iiiiiiiiiiii",
        "policy": LimitPolicy(LIMITS, {}),
        "offers": offers(found, "auto"),
        "binds": BindPolicy({"/data": False}),
        "private_mounts": True,
        "cgroup": CgroupReport("auto", "unified", ""),
        "max_executions": 3,
        **changes,
    }
    return Settings(**chosen)  # type: ignore[arg-type]


def make_context(
    world: World,
    *,
    budget: Budget = FOUR_SANDBOXES,
    tasks: TaskBudget = MANY_TASKS,
    **changes: object,
) -> Context:
    """A context of fakes."""
    return Context(
        settings=settings(**changes),
        clock=world,
        scheme=FakeScheme(world),
        launcher=FakeLauncher(world),
        roots=FakeRoots(world),
        workspaces=FakeWorkspaces(world),
        uids=FakeUids(world),
        store=FakeStore(world),
        history_store=FakeHistoryStore(world),
        registry=Registry(budget, tasks),
        tasks=Tasks(),
        lifecycle=Lifecycle(world),
    )


def make_upkeep(context: Context) -> Upkeep:
    """An engine's upkeep alone."""
    return Upkeep(
        context, Sandboxes(context), Executions(context), UsageSampler(context), DiskKeeper(context)
    )


@asynccontextmanager
async def running_engine(world: World, **changes: Any) -> AsyncIterator[Engine]:
    """An engine that has taken over what the world has, and works until the end of the context;
    commands go on."""
    engine, context = make_engine(world, **changes)
    failure: Exception | None = None
    async with context.tasks:
        await engine.open()
        try:
            yield engine
            await engine.close()
        except Exception as exc:
            failure = exc
        finally:
            context.tasks.cancel_all()
    if failure is not None:
        # Raised past the task group, which would wrap the error.
        raise failure


def make_engine(world: World, **changes: Any) -> tuple[Engine, Context]:
    """An engine over fakes. changes: of `make_context`."""
    context = make_context(world, **changes)
    return Engine(context), context
