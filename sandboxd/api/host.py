# SPDX-License-Identifier: Apache-2.0
"""Handlers about the host and the daemon itself."""

from __future__ import annotations

from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.core.model import EnforcedBy
from sandboxd.errors import Draining
from sandboxd.wire.host import HealthAnswer, HostAnswer, ReadyAnswer, ResourceControlAnswer
from sandboxd.wire.requests import Nothing


async def health(call: Call[Nothing, Nothing]) -> Reply:
    """Answer with the means that hold limits; succeeds whenever the daemon answers."""
    host = HostAnswer.model_validate(call.engine.host())
    control = ResourceControlAnswer(
        scheme=host.scheme,
        cgroup=host.cgroup,
        sandbox_memory_quota=_holds_sum(host, "memory_bytes"),
        sandbox_cpu_quota=_holds_sum(host, "cpus"),
        sandbox_pids_quota=_holds_sum(host, "pids"),
        sandbox_io_quota=_holds_sum(host, "io_read_bytes_per_second")
        and _holds_sum(host, "io_write_bytes_per_second"),
        sandbox_disk_quota=_holds_sum(host, "disk_bytes"),
        limits=host.limits,
        enforcement=host.enforcement,
    )
    answer = HealthAnswer(
        status="ok", version=host.version, ready=host.ready, resource_control=control
    )
    return Reply(200, answer)


async def readiness(call: Call[Nothing, Nothing]) -> Reply:
    """Answer that the daemon takes work. Raises Draining while not."""
    if not call.engine.is_ready:
        raise Draining("cannot take work: sandboxd is not ready", details={"ready": False})
    if call.engine.host().draining:
        raise Draining("cannot take work: this host is being drained", details={"draining": True})
    return Reply(200, ReadyAnswer(ready=True))


async def get_host(call: Call[Nothing, Nothing]) -> Reply:
    """Return the host's abilities and the capacity in use."""
    return Reply(200, HostAnswer.model_validate(call.engine.host(call.caller)))


async def drain(call: Call[Nothing, Nothing]) -> Reply:
    """Take no new work; running executions go on."""
    return Reply(200, HostAnswer.model_validate(await call.engine.set_draining(draining=True)))


async def undrain(call: Call[Nothing, Nothing]) -> Reply:
    """Take work again."""
    return Reply(200, HostAnswer.model_validate(await call.engine.set_draining(draining=False)))


def _holds_sum(host: HostAnswer, limit: str) -> bool:
    """Return whether kernel or supervisor holds the sum over a sandbox."""
    held = host.enforcement.get(limit)
    return held is not None and held.by != EnforcedBy.NONE
