# SPDX-License-Identifier: Apache-2.0
"""Handlers of /v1/sandboxes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from sandboxd.api.pages import page_reply
from sandboxd.api.records import sandbox_reply
from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.core.model import LimitChanges
from sandboxd.engine.requests import SandboxChanges, SandboxRequest
from sandboxd.wire.answers import SandboxAnswer
from sandboxd.wire.metrics import MetricsAnswer
from sandboxd.wire.queries import MetricsQuery, SandboxesQuery
from sandboxd.wire.requests import ChangeSandbox, CreateSandbox, Nothing, SandboxFields

B = TypeVar("B", bound=SandboxFields)


def sandbox_request(call: Call[B, Nothing], limits: LimitChanges) -> SandboxRequest:
    """Return the request of a new sandbox, long-lived or for a single run."""
    body = call.body
    return SandboxRequest(
        name=body.name,
        limits=limits,
        require=body.required(),
        require_by=body.required_holder(),
        isolation=body.isolation,
        network=body.network,
        rootfs=body.rootfs,
        binds=body.decode_binds(),
        metadata=body.metadata or {},
        origin=call.origin,
    )


async def create_sandbox(call: Call[CreateSandbox, Nothing]) -> Reply:
    """Make a sandbox."""
    body = call.body
    request = replace(
        sandbox_request(call, body.limits.changes() if body.limits else LimitChanges()),
        env=body.env or {},
        lifetime_seconds=body.timeout_seconds,
        idle_timeout_seconds=body.idle_timeout_seconds,
    )
    sandbox = await call.work.shield(call.engine.create_sandbox(call.caller, request))
    call.drop_body()
    return await sandbox_reply(call, sandbox, 201)


async def list_sandboxes(call: Call[Nothing, SandboxesQuery]) -> Reply:
    """List the sandboxes that the caller may see."""
    query = call.query
    found = [sandbox for sandbox in call.engine.list_sandboxes(call.caller) if query.fits(sandbox)]
    return await page_reply(
        "sandboxes",
        found,
        SandboxAnswer.model_validate,
        call.share,
        cursor=query.cursor,
        limit=query.limit,
    )


async def get_sandbox(call: Call[Nothing, Nothing]) -> Reply:
    """Return a sandbox."""
    return await sandbox_reply(call, call.engine.get_sandbox(call.caller, call.sandbox))


async def get_metrics(call: Call[Nothing, MetricsQuery]) -> Reply:
    """Return the usage of a sandbox, and of each running execution if asked."""
    report = await call.engine.usage(
        call.caller, call.sandbox, by_execution=call.query.by_execution
    )
    answer = MetricsAnswer.of(
        report.sandbox,
        report.usage,
        running=report.executions_running,
        total=report.executions_total,
        by_execution=report.by_execution,
    )
    return Reply(200, answer)


async def change_sandbox(call: Call[ChangeSandbox, Nothing]) -> Reply:
    """Change limits, metadata and deadlines, running executions included."""
    body = call.body
    asked = SandboxChanges(
        limits=body.limits.changes() if body.limits else LimitChanges(),
        metadata=body.metadata,
        lifetime_seconds=body.timeout_seconds,
        idle_timeout_seconds=body.idle_timeout_seconds,
        force=bool(body.force),
    )
    change = call.engine.change_sandbox(call.caller, call.sandbox, asked)
    return await sandbox_reply(call, await call.work.shield(change))


async def release_sandbox(call: Call[Nothing, Nothing]) -> Reply:
    """Release a sandbox; answers after the removal is complete."""
    await call.work.shield(call.engine.release_sandbox(call.caller, call.sandbox))
    return Reply(204)


async def suspend_sandbox(call: Call[Nothing, Nothing]) -> Reply:
    """Freeze every process in a sandbox."""
    suspended = call.engine.suspend_sandbox(call.caller, call.sandbox)
    return await sandbox_reply(call, await call.work.shield(suspended))


async def resume_sandbox(call: Call[Nothing, Nothing]) -> Reply:
    """Let a sandbox's processes go on."""
    resumed = call.engine.resume_sandbox(call.caller, call.sandbox)
    return await sandbox_reply(call, await call.work.shield(resumed))
