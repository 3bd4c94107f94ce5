# SPDX-License-Identifier: Apache-2.0
"""Handlers about the host and the daemon itself."""

from __future__ import annotations

from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.core.levels import Offer
from sandboxd.core.model import EnforcedBy
from sandboxd.engine.requests import HostReport
from sandboxd.errors import Draining
from sandboxd.wire.answers import LimitsAnswer, enforcement_answer
from sandboxd.wire.host import (
    CapacityAnswer,
    CgroupAnswer,
    HealthAnswer,
    HostAnswer,
    IsolationAnswer,
    MissingFeatureAnswer,
    OfferAnswer,
    ReadyAnswer,
    ResourceControlAnswer,
)
from sandboxd.wire.requests import Nothing


async def health(call: Call[Nothing, Nothing]) -> Reply:
    """Answer with the means that hold limits; succeeds whenever the daemon answers."""
    host = call.engine.host()
    control = ResourceControlAnswer(
        scheme=host.scheme,
        cgroup=_cgroup(host),
        sandbox_memory_quota=_holds_sum(host, "memory_bytes"),
        sandbox_cpu_quota=_holds_sum(host, "cpus"),
        sandbox_pids_quota=_holds_sum(host, "pids"),
        sandbox_io_quota=_holds_sum(host, "io_read_bytes_per_second")
        and _holds_sum(host, "io_write_bytes_per_second"),
        sandbox_disk_quota=_holds_sum(host, "disk_bytes"),
        limits=LimitsAnswer.model_validate(host.limits),
        enforcement=enforcement_answer(host.enforcement),
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
    return Reply(200, _host_answer(call.engine.host(call.caller)))


async def drain(call: Call[Nothing, Nothing]) -> Reply:
    """Take no new work; running executions go on."""
    return Reply(200, _host_answer(await call.engine.set_draining(draining=True)))


async def undrain(call: Call[Nothing, Nothing]) -> Reply:
    """Take work again."""
    return Reply(200, _host_answer(await call.engine.set_draining(draining=False)))


def _host_answer(host: HostReport) -> HostAnswer:
    capacity = CapacityAnswer(
        budget_bytes=host.budget_bytes,
        reserve_bytes=host.reserve_bytes,
        committed_bytes=host.committed_bytes,
        free_bytes=host.free_bytes,
        slots=host.slots,
        tasks=host.tasks_total,
        tasks_source=host.tasks_source,
    )
    isolation = IsolationAnswer(
        default_level=host.offers.default_level,
        default_network=host.offers.default_network,
        levels={name.value: _offer(offer) for name, offer in host.offers.levels.items()},
        networks={name.value: _offer(offer) for name, offer in host.offers.networks.items()},
    )
    return HostAnswer(
        version=host.version,
        instance_id=host.instance_id,
        ready=host.ready,
        draining=host.draining,
        executions_running=host.executions_running,
        scheme=host.scheme,
        reason=host.reason,
        cgroup=_cgroup(host),
        capacity=capacity,
        limits=LimitsAnswer.model_validate(host.limits),
        enforcement=enforcement_answer(host.enforcement),
        isolation=isolation,
        missing=list(host.missing),
    )


def _offer(offer: Offer) -> OfferAnswer:
    missing = [MissingFeatureAnswer(what=one.what, remedy=one.remedy) for one in offer.missing]
    return OfferAnswer(
        available=offer.available, detail=offer.detail, lacks=missing, barred_by=offer.barred_by
    )


def _cgroup(host: HostReport) -> CgroupAnswer:
    return CgroupAnswer(
        mode=host.cgroup_mode, version=host.cgroup_version, detail=host.cgroup_detail
    )


def _holds_sum(host: HostReport, limit: str) -> bool:
    """Return whether kernel or supervisor holds the sum over a sandbox."""
    held = host.enforcement.get(limit)
    return held is not None and held.by is not EnforcedBy.NONE
