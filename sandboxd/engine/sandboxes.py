# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a sandbox: create, change, suspend, resume, release."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

from sandboxd.core.limits import BY_NAME, SCOPE_LIMITS
from sandboxd.core.model import (
    Caller,
    Enforcement,
    ErrorCode,
    EventType,
    Execution,
    Isolation,
    LimitChanges,
    Limits,
    Network,
    Sandbox,
    SandboxState,
)
from sandboxd.core.names import new_id
from sandboxd.core.policy import check_required
from sandboxd.core.turns import Turn
from sandboxd.engine.context import Context
from sandboxd.engine.executions import destroy, order_kill
from sandboxd.engine.file_uses import end_file_uses
from sandboxd.engine.registry import LiveSandbox
from sandboxd.engine.requests import SandboxChanges, SandboxRequest
from sandboxd.engine.retention import sandbox_bytes
from sandboxd.errors import LimitBelowUsage, OperationTimedOut, SandboxdError, SandboxReleased

_log = logging.getLogger(__name__)
_END_SECONDS = 15.0
_LAST_LOOK_SECONDS = 0.5
_RELEASE_SECONDS = 60.0
_UID_SECONDS = 5.0
_MOST_RETRY_SECONDS = 60.0
_RETRY_SECONDS = 0.05


class Sandboxes:
    """Creates, changes and releases sandboxes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(
        self, caller: Caller, request: SandboxRequest, *, one_shot: bool = False
    ) -> LiveSandbox:
        """Create a sandbox; on any error no trace is left."""
        context = self._context
        context.registry.check_takes_work()
        limits = context.settings.policy.for_sandbox(request.limits)
        enforcement = context.enforcement()
        check_required(request.require, request.require_by, enforcement)
        level, network = self._checked_levels(request)
        registry = context.registry
        with registry.reservation(
            caller.uid, request.name, limits.memory_bytes, sandbox_bytes(request)
        ):
            sandbox_id = new_id()
            in_turn = context.starts.one(Turn(caller.uid, sandbox_id))
            async with in_turn, AsyncExitStack() as undo:
                uid = await context.uids.take(sandbox_id)
                undo.push_async_callback(context.uids.give_back, uid)
                sandbox = self._new(
                    caller, request, sandbox_id, uid, isolation=level, network=network,
                    limits=limits, enforcement=enforcement,
                )  # fmt: skip
                sandbox.is_one_shot = one_shot
                undo.push_async_callback(context.workspaces.lift_disk_limit, uid)
                undo.push_async_callback(context.workspaces.remove, sandbox_id)
                await context.workspaces.create(sandbox)
                await context.store.save_sandbox(sandbox)
                await context.scheme.create_sandbox(sandbox)
                undo.push_async_callback(context.scheme.release_sandbox, sandbox)
                # A killed builder leaves mounts behind.
                undo.push_async_callback(context.roots.remove, sandbox)
                await self.build_root(sandbox)
                undo.pop_all()
            live = LiveSandbox(sandbox)
            registry.add(live)
        context.lifecycle.sandbox(EventType.SANDBOX_CREATED, sandbox)
        return live

    async def change(self, live: LiveSandbox, asked: SandboxChanges) -> None:
        """Change limits, metadata and deadlines live; limits change wholly or not at all."""
        async with live.lock:
            sandbox, metadata = live.sandbox, asked.metadata
            _check_not_released(sandbox)
            if metadata is not None:
                held = sandbox_bytes(sandbox)
                more = sandbox_bytes(replace(sandbox, metadata=metadata)) - held
                self._context.registry.check_quota(
                    sandbox.owner_uid, record_bytes=more, held_bytes=held
                )
            if asked.limits.as_dict():
                await self._change_limits(live, asked.limits, force=asked.force)
                sandbox.names_timeout |= asked.limits.timeout_seconds is not None
            if metadata is not None:
                sandbox.metadata = dict(metadata)
            if asked.lifetime_seconds is not None:
                self._set_lifetime(sandbox, asked.lifetime_seconds)
            if asked.idle_timeout_seconds is not None:
                sandbox.idle_timeout_seconds = asked.idle_timeout_seconds
                live.touch(self._context.clock)
            await self._context.store.save_sandbox(sandbox)
            self._context.lifecycle.sandbox(EventType.SANDBOX_CHANGED, sandbox)

    async def suspend(self, live: LiveSandbox) -> None:
        """Freeze every process; refuse new executions until `resume`."""
        async with live.lock:
            _check_not_released(live.sandbox)
            if live.sandbox.state is not SandboxState.READY:
                return
            live.sandbox.state = SandboxState.SUSPENDED
            async with live.settled:
                await live.settled.wait_for(lambda: live.starting == 0)
            try:
                # Saved first: the next daemon must not take a frozen execution for running.
                await self._context.store.save_sandbox(live.sandbox)
                await self._context.scheme.suspend_sandbox(live.sandbox)
            except BaseException:
                # No process was frozen. A release that began meanwhile has set the newer state.
                if live.sandbox.state is SandboxState.SUSPENDED:
                    live.sandbox.state = SandboxState.READY
                await self._context.save_sandbox(live.sandbox)
                raise
            await asyncio.gather(*(e.shim.freeze() for e in live.running() if e.shim))
            live.suspended_monotonic = self._context.clock.monotonic()
            self._context.lifecycle.sandbox(EventType.SANDBOX_SUSPENDED, live.sandbox)

    async def resume(self, live: LiveSandbox) -> None:
        """Thaw every process."""
        async with live.lock:
            _check_not_released(live.sandbox)
            if live.sandbox.state is not SandboxState.SUSPENDED:
                return
            await asyncio.gather(*(e.shim.thaw() for e in live.running() if e.shim))
            await self._context.scheme.resume_sandbox(live.sandbox)
            # A release that began meanwhile waits for the lock and has set the newer state.
            if live.sandbox.state is SandboxState.SUSPENDED:
                live.sandbox.state = SandboxState.READY
            live.touch(self._context.clock)
            now = live.sandbox.used_monotonic
            for running in live.running():
                if running.deadline_monotonic is not None and live.suspended_monotonic is not None:
                    running.deadline_monotonic += now - live.suspended_monotonic
            live.suspended_monotonic = None
            await self._context.store.save_sandbox(live.sandbox)
            self._context.lifecycle.sandbox(EventType.SANDBOX_RESUMED, live.sandbox)

    def start_release(self, live: LiveSandbox, code: ErrorCode) -> asyncio.Task[None]:
        """Start a release, unless running; the task ends with the release, the first code stays."""
        if live.release is None or (live.release.done() and not live.is_over):
            code = live.sandbox.release_code or code
            if live.release is None:
                live.sandbox.state = SandboxState.RELEASING
                live.sandbox.release_code = code
                self._context.lifecycle.sandbox(EventType.SANDBOX_RELEASING, live.sandbox, code)
            name = f"release of sandbox {live.sandbox.id}"
            live.release = self._context.tasks.start(self._release(live, code), name)
        return live.release

    async def release(self, live: LiveSandbox, code: ErrorCode) -> None:
        """Release a sandbox and wait for the end. Raises OperationTimedOut."""
        if live.is_over:
            return
        task = self.start_release(live, code)
        done, _ = await asyncio.wait([task], timeout=_RELEASE_SECONDS)
        if not done or not live.is_over:
            raise OperationTimedOut(
                f"cannot release sandbox {live.sandbox.id} yet: something of it is still there",
                hint="it is tried again in the background; see the journal for what is left",
            )

    async def build_root(self, sandbox: Sandbox) -> None:
        """Make the sandbox's root and network unless present; save the state of the binds."""
        spaces = self._context.workspaces
        await spaces.follow_host(sandbox)
        binds = await self._context.roots.build(
            sandbox,
            home=spaces.home(sandbox.id),
            tmp_directory=spaces.tmp(sandbox.id),
            identity_files=spaces.identity_files(sandbox),
        )
        if binds != sandbox.binds:
            sandbox.binds = binds
            await self._context.store.save_sandbox(sandbox)

    # -- private

    def _new(
        self, caller: Caller, request: SandboxRequest, sandbox_id: str, uid: int, *,
        isolation: Isolation, network: Network, limits: Limits,
        enforcement: Mapping[str, Enforcement],
    ) -> Sandbox:  # fmt: skip
        context = self._context
        sandbox = Sandbox(
            id=sandbox_id,
            name=request.name,
            owner_uid=caller.uid,
            uid=uid,
            isolation=isolation,
            network=network,
            rootfs=request.rootfs,
            binds=tuple(replace(bind, ownership=None) for bind in request.binds),
            scheme=context.scheme.name,
            limits=limits,
            enforcement=enforcement,
            created_at=context.clock.now(),
            last_used_at=context.clock.now(),
            env=dict(request.env),
            metadata=dict(request.metadata),
            unit=context.scheme.sandbox_unit(sandbox_id),
            used_monotonic=context.clock.monotonic(),
            idle_timeout_seconds=request.idle_timeout_seconds,
            names_timeout=request.limits.timeout_seconds is not None,
            request_id=None if request.origin is None else request.origin.request_id,
        )
        if request.lifetime_seconds is not None:
            self._set_lifetime(sandbox, request.lifetime_seconds)
        return sandbox

    def _checked_levels(self, request: SandboxRequest) -> tuple[Isolation, Network]:
        """Return isolation and network. Raises if the host cannot give level, root or binds."""
        offers = self._context.settings.offers
        level, network = offers.choose(request.isolation, request.network)
        for field in ("rootfs", "binds"):
            if getattr(request, field):
                offers.check_own_root(level, field)
        self._context.settings.binds.check(request.binds)
        return level, network

    def _set_lifetime(self, sandbox: Sandbox, seconds: float) -> None:
        clock = self._context.clock
        sandbox.expires_at = clock.now() + timedelta(seconds=seconds)
        sandbox.expires_monotonic = clock.monotonic() + seconds

    async def _change_limits(self, live: LiveSandbox, asked: LimitChanges, *, force: bool) -> None:
        context, sandbox = self._context, live.sandbox
        context.settings.policy.for_sandbox(asked)
        limits = context.settings.policy.changed(sandbox.limits, asked)
        more = limits.memory_bytes - sandbox.limits.memory_bytes
        used = context.scheme.memory_current(sandbox)
        if more < 0 and used is not None and used > limits.memory_bytes and not force:
            raise LimitBelowUsage(
                f"cannot lower memory_bytes to {limits.memory_bytes}: {used} bytes are in use",
                hint="free memory inside, or repeat with `force: true` and risk an OOM kill",
                details={"limit": "memory_bytes", "asked": limits.memory_bytes, "current": used},
            )
        if more > 0:
            held_bytes = sandbox.limits.memory_bytes
            context.registry.check_quota(
                sandbox.owner_uid, memory_bytes=more, held_bytes=held_bytes
            )
            context.registry.budget.check(
                more, context.registry.committed_bytes, held_bytes=held_bytes
            )
        is_busy = bool(live.running()) or live.starting > 0
        if limits.pids > sandbox.limits.pids and is_busy:
            held = context.scheme.holds_all_tasks
            context.registry.check_tasks(live, limits.pids, is_sum_held=held)
        before = sandbox.limits
        # Reserved at once: no concurrent request may promise the same memory.
        sandbox.limits = replace(
            before,
            memory_bytes=max(before.memory_bytes, limits.memory_bytes),
            pids=max(before.pids, limits.pids),
        )
        changes = [(e, _follow(e.execution, limits)) for e in live.running()]
        try:
            await context.workspaces.limit_disk(sandbox, limits.disk_bytes)
            await context.scheme.change_limits(
                sandbox, limits, [(e.execution, changed) for e, changed in changes]
            )
        except BaseException:
            sandbox.limits = before
            await context.workspaces.limit_disk(sandbox, before.disk_bytes)
            raise
        sandbox.limits = limits
        sandbox.enforcement = context.enforcement()
        for running, changed in changes:
            running.execution.limits = changed

    async def _release(self, live: LiveSandbox, code: ErrorCode) -> None:
        """Release all parts in reverse order; a failed part is tried again by the next call.

        Only automatic tries delay the next try and are logged, since callers may ask at any rate.
        """
        is_asked_for = self._context.clock.monotonic() < live.retry_monotonic
        try:
            await self._release_all_of(live, code)
        except (OSError, SandboxdError) as exc:
            if is_asked_for:
                _log.debug("Cannot finish the release of sandbox %s: %s", live.sandbox.id, exc)
                return
            live.release_failures += 1
            wait = min(_MOST_RETRY_SECONDS, 2.0**live.release_failures)
            live.retry_monotonic = self._context.clock.monotonic() + wait
            _log.error(
                "Cannot finish the release of sandbox %s, trying again in %.0f s: %s",
                live.sandbox.id,
                wait,
                exc,
            )

    async def _release_all_of(self, live: LiveSandbox, code: ErrorCode) -> None:
        context, sandbox = self._context, live.sandbox
        turn = Turn(sandbox.owner_uid, sandbox.id)
        async with live.lock:
            await self._context.save_sandbox(sandbox)
            async with live.settled:
                await live.settled.wait_for(lambda: live.starting == 0)
            await end_file_uses(live)
            await self._end_executions(live, code)
            async with context.ends.one(turn):
                await context.scheme.kill_sandbox(sandbox)
            await _check_ended(live)
            async with context.ends.one(turn):
                await context.scheme.release_sandbox(sandbox)
                await context.roots.remove(sandbox)
            # Left files would count against the next sandbox with the same uid.
            await context.workspaces.remove_contents(sandbox)
            async with context.ends.one(turn):
                await context.workspaces.lift_disk_limit(sandbox.uid)
            if not await self._free_uid(sandbox.uid, turn):
                raise OperationTimedOut(f"a process of uid {sandbox.uid} does not die")
            sandbox.state = SandboxState.RELEASED
            sandbox.env = {}
            sandbox.released_monotonic = context.clock.monotonic()
            async with context.ends.one(turn):
                await context.save_sandbox(sandbox)
            context.lifecycle.sandbox(EventType.SANDBOX_RELEASED, sandbox)

    async def _end_executions(self, live: LiveSandbox, code: ErrorCode) -> None:
        seconds = 0.0
        for running in live.running():
            seconds = max(seconds, await order_kill(running, code))
        await _collected(live, seconds)
        for running in live.running():
            await destroy(running)
        if not await _collected(live, _END_SECONDS):
            _log.error("Cannot end all executions of sandbox %s in time", live.sandbox.id)

    async def _free_uid(self, uid: int, turn: Turn) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _UID_SECONDS
        while True:
            async with self._context.ends.one(turn):
                if await self._context.uids.give_back(uid):
                    return True
            if loop.time() > deadline:
                return False
            # /proc has no event for the end of a process; killed processes need a moment.
            await asyncio.sleep(_RETRY_SECONDS)


def _check_not_released(sandbox: Sandbox) -> None:
    """Raise SandboxReleased; called under the lock, since a release may have come first."""
    if sandbox.state not in (SandboxState.READY, SandboxState.SUSPENDED):
        raise SandboxReleased(
            f"cannot use sandbox {sandbox.id}: it is {sandbox.state}", hint="create another one"
        )


async def _collected(live: LiveSandbox, seconds: float) -> bool:
    """Wait until all executions are over and cleared up; False after the timeout."""
    try:
        async with asyncio.timeout(seconds), live.settled:
            await live.settled.wait_for(
                lambda: all(one.collected.is_set() for one in live.executions.values())
            )
    except TimeoutError:
        return False
    return True


async def _check_ended(live: LiveSandbox) -> None:
    """Raise OperationTimedOut while a shim lives, and with it a process of the sandbox."""
    for running in live.executions.values():
        shim = running.shim or running.remains
        if shim is not None and not await shim.gone(timeout_seconds=_LAST_LOOK_SECONDS):
            raise OperationTimedOut(f"a process of execution {running.execution.id} does not die")
        running.remains = None


def _follow(execution: Execution, sandbox_limits: Limits) -> Limits:
    """Return an execution's limits: its own where asked for, all but shares at most the
    sandbox's."""
    changes = {}
    for name in SCOPE_LIMITS:
        bound = getattr(sandbox_limits, name)
        if name in execution.own_limits:
            own = getattr(execution.limits, name)
            bound = min(own, bound) if BY_NAME[name].bounds_executions else own
        changes[name] = bound
    return replace(execution.limits, **changes)
