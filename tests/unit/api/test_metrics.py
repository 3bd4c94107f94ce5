# SPDX-License-Identifier: Apache-2.0
"""/metrics: a form that Prometheus reads, a number of series that does not grow, nobody else's."""

from __future__ import annotations

import re

import pytest

from sandboxd.api.peer import Peer
from tests.unit.api.harness import Served, served

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+')


async def scrape(server: Served) -> dict[str, float]:
    answered = await server.ask("GET", "/metrics")
    assert answered.status == 200
    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples_of(answered.body.decode())


def samples_of(text: str) -> dict[str, float]:
    assert text.endswith("\n")
    samples = {}
    typed = set()
    for line in text.splitlines():
        if line.startswith("#"):
            typed.add(line.split()[2])
            continue
        assert SAMPLE.fullmatch(line), line
        name, _, value = line.rpartition(" ")
        family = re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0])
        assert family in typed or name.partition("{")[0] in typed
        assert name not in samples
        samples[name] = float(value)
    return samples


async def test_it_counts_what_is_there_and_what_came() -> None:
    async with served() as server:
        await server.ask("POST", "/v1/run", {"argv": ["true"]})
        await server.ask("GET", "/nothing")
        await server.ask("OPTIONS", "/nothing")
        headers = {"Idempotency-Key": "k"}
        await server.ask("POST", "/v1/sandboxes/nosuch/suspend", headers=headers)
        found = await scrape(server)
        # The run's, which went with it.
        assert found['sandboxd_sandboxes{state="ready"}'] == 0
        assert found['sandboxd_sandboxes{state="released"}'] == 1
        assert found['sandboxd_executions{status="EXITED"}'] == 1
        assert found['sandboxd_http_requests_total{method="POST",status="200"}'] == 1
        assert found['sandboxd_http_requests_total{method="other",status="404"}'] == 1
        assert found['sandboxd_http_refusals_total{code="ROUTE_NOT_FOUND"}'] == 2
        assert found['sandboxd_http_request_seconds_bucket{le="+Inf"}'] == 4
        assert found["sandboxd_http_request_seconds_count"] == 4
        assert found['sandboxd_http_refusals_total{code="SANDBOX_NOT_FOUND"}'] == 1


async def test_the_number_of_series_does_not_grow() -> None:
    async with served() as server:
        await server.ask("POST", "/v1/run", {"argv": ["true"]})
        await scrape(server)
        before = await scrape(server)
        for number in range(20):
            await server.ask("POST", "/v1/sandboxes", {"name": f"box-{number}"})
            await server.ask("POST", "/v1/run", {"argv": ["true"]})
        after = await scrape(server)
        assert set(after) - set(before) == {
            'sandboxd_http_requests_total{method="POST",status="201"}'
        }


async def test_a_caller_that_is_no_admin_sees_its_own_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as server:
        await server.ask("POST", "/v1/run", {"argv": ["true"]})
        stranger = Peer(1, 54321, 54321, frozenset())
        monkeypatch.setattr("sandboxd.api.connection.read_peer", lambda _: stranger)
        # A new connection: the one that is kept alive is the first caller's.
        raw = await server.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        found = samples_of(raw.partition(b"\r\n\r\n")[2].decode())
        assert not any("_total" in name for name in found)
        assert sum(v for name, v in found.items() if name.startswith("sandboxd_sandboxes")) == 0
