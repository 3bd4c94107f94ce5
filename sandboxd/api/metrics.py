# SPDX-License-Identifier: Apache-2.0
"""Handler of /metrics: Prometheus text format 0.0.4, sums only.

No series is about one sandbox or one caller, so the number of series does not grow with use. A
caller that is no admin sees sums over the caller's own sandboxes and executions alone. The
prometheus-client library is not used: the library has one registry per process, but the numbers
here depend on the caller.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator, Mapping

from aiohttp import web

from sandboxd.api.routes import Call
from sandboxd.api.seen import BUCKETS_SECONDS, Seen
from sandboxd.core.model import ExecutionStatus, SandboxState
from sandboxd.engine.lifecycle import Counters
from sandboxd.wire.requests import Nothing

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def get_metrics(call: Call[Nothing, Nothing]) -> web.StreamResponse:
    """Return all sums that the caller may see."""
    lines = [*_host(call), *_own(call)]
    if call.caller.is_admin:
        lines += [*_life(call.engine.counters), *_requests(call.seen), *_process()]
    text = "\n".join(lines) + "\n"
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


def _family(name: str, kind: str, about: str, samples: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of a metric family; samples: labels in braces, or "" -> value."""
    yield f"# HELP sandboxd_{name} {about}"
    yield f"# TYPE sandboxd_{name} {kind}"
    for labels, value in samples.items():
        yield f"sandboxd_{name}{labels} {value!r}"


def _one(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    yield from _family(name, kind, about, {"": value})


def _host(call: Call[Nothing, Nothing]) -> Iterator[str]:
    host = call.engine.host(call.caller)
    memory = host.capacity
    info = {f'{{version="{host.version}",scheme="{host.scheme}"}}': 1}
    yield from _family("info", "gauge", "The daemon's version and scheme.", info)
    yield from _one("ready", "gauge", "Whether it takes work.", int(call.engine.is_ready))
    for name, about, value in (
        ("budget", "Memory that limits may promise together.", memory.budget_bytes),
        ("reserve", "Memory kept back for the host.", memory.reserve_bytes),
        ("committed", "Memory that limits promise now.", memory.committed_bytes),
    ):
        yield from _one(f"memory_{name}_bytes", "gauge", about, value)


def _own(call: Call[Nothing, Nothing]) -> Iterator[str]:
    states = Counter(sandbox.state for sandbox in call.engine.list_sandboxes(call.caller))
    samples = {f'{{state="{state}"}}': states[state] for state in SandboxState}
    yield from _family("sandboxes", "gauge", "Sandboxes whose records are kept.", samples)
    statuses = Counter(one.outcome.status for one in call.engine.list_executions(call.caller))
    samples = {f'{{status="{status}"}}': statuses[status] for status in ExecutionStatus}
    yield from _family("executions", "gauge", "Executions whose records are kept.", samples)


def _life(counters: Counters) -> Iterator[str]:
    for name, about, value in (
        ("sandboxes_created", "Sandboxes made.", counters.sandboxes_created),
        ("sandboxes_released", "Sandboxes released.", counters.sandboxes_released),
        ("executions_started", "Executions started.", counters.executions_started),
        ("cpu_seconds", "CPU time of ended executions.", counters.cpu_seconds),
    ):
        yield from _one(f"{name}_total", "counter", about, value)
    ended = counters.executions_ended
    samples = {
        f'{{status="{status}"}}': ended.get(status, 0)
        for status in ExecutionStatus
        if status.is_final
    }
    yield from _family("executions_ended_total", "counter", "Verdicts.", samples)


def _requests(seen: Seen) -> Iterator[str]:
    answers = {
        f'{{method="{method}",status="{status}"}}': count
        for (method, status), count in sorted(seen.answers.items())
    }
    yield from _family("http_requests_total", "counter", "Answers.", answers)
    refusals = {f'{{code="{code}"}}': n for code, n in sorted(seen.refusals.items())}
    yield from _family("http_refusals_total", "counter", "Errors answered, by code.", refusals)
    name = "sandboxd_http_request_seconds"
    yield f"# HELP {name} Time to answer, waits for executions included."
    yield f"# TYPE {name} histogram"
    total = 0
    for bound, count in zip((*BUCKETS_SECONDS, "+Inf"), seen.durations, strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {seen.seconds!r}"
    yield f"{name}_count {total}"


def _process() -> Iterator[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    yield from _one("process_cpu_seconds_total", "counter", "CPU time of the daemon itself.", cpu)
    peak = used.ru_maxrss * 1024
    yield from _one("process_peak_resident_bytes", "gauge", "Most memory the daemon had.", peak)
