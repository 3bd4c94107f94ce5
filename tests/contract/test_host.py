# SPDX-License-Identifier: Apache-2.0
"""What the daemon says of itself and of its host."""

from __future__ import annotations

import os
from typing import Any

from tests.contract.conftest import MEMORY_BYTES, Create
from tests.harness import Daemon

LIMITS = {"memory_bytes", "cpus", "cpu_weight", "pids",
          "io_read_bytes_per_second", "io_write_bytes_per_second",
          "disk_bytes", "timeout_seconds", "cpu_seconds", "max_output_bytes", "open_files",
          "file_size_bytes"}  # fmt: skip
MIB = 1 << 20
ROUTES = {
    "/v1/sandboxes": {"get", "post"}, "/v1/sandboxes/{sandbox}": {"get", "patch", "delete"},
    "/v1/sandboxes/{sandbox}/suspend": {"post"}, "/v1/sandboxes/{sandbox}/resume": {"post"},
    "/v1/sandboxes/{sandbox}/executions": {"get", "post"},
    "/v1/sandboxes/{sandbox}/executions/{execution}": {"get"},
    "/v1/sandboxes/{sandbox}/executions/{execution}/kill": {"post"},
    "/v1/sandboxes/{sandbox}/executions/{execution}/output": {"get"},
    "/v1/executions": {"get"}, "/v1/run": {"post"}, "/v1/host": {"get"},
    "/v1/host/drain": {"post"}, "/v1/host/undrain": {"post"},
    "/healthz": {"get"}, "/readyz": {"get"},
}  # fmt: skip


def capacity(daemon: Daemon) -> Any:
    return daemon.ok("GET", "/v1/host")["capacity"]


def test_healthz_says_what_holds_limits(daemon: Daemon, scheme: str) -> None:
    health = daemon.ok("GET", "/healthz")
    control = health["resource_control"]
    assert control["scheme"] == scheme
    assert control["cgroup"]["mode"] == {"rlimit": "off", "systemd": "required"}[scheme]
    assert set(control["cgroup"]) >= {"mode", "version", "detail"}
    assert set(control["limits"]) == set(control["enforcement"]) == LIMITS
    for name in ("memory", "cpu", "pids", "io", "disk"):
        assert isinstance(control[f"sandbox_{name}_quota"], bool)
    if scheme == "systemd":
        assert control["sandbox_memory_quota"] is True
        assert control["enforcement"]["memory_bytes"]["by"] == "kernel"


def test_defaults_are_those_of_the_contract(daemon: Daemon, sandbox: Any) -> None:
    limits = daemon.ok("GET", "/healthz")["resource_control"]["limits"]
    assert limits == {
        "memory_bytes": MEMORY_BYTES, "cpus": 2, "cpu_weight": 100, "pids": 512,
        "cpu_seconds": None,
        "io_read_bytes_per_second": 256 * MIB, "io_write_bytes_per_second": 256 * MIB,
        "disk_bytes": 10 << 30, "timeout_seconds": 300, "max_output_bytes": 10 * MIB,
        "open_files": 1024, "file_size_bytes": 10 << 30,
    }  # fmt: skip
    assert sandbox["limits"] == limits


def test_readyz_is_ready(daemon: Daemon) -> None:
    assert daemon.request("GET", "/readyz").status == 200


def test_host_says_version_scheme_and_why(daemon: Daemon, scheme: str) -> None:
    host = daemon.ok("GET", "/v1/host")
    assert host["version"] == daemon.ok("GET", "/healthz")["version"]
    assert host["scheme"] == scheme
    assert host["reason"]


def test_host_says_what_isolation_it_offers_and_lacks(daemon: Daemon, scheme: str) -> None:
    isolation = daemon.ok("GET", "/v1/host")["isolation"]
    levels, networks = isolation["levels"], isolation["networks"]
    is_root = os.geteuid() == 0
    least = "basic" if is_root else "none"
    assert set(levels) == {least, "basic", "standard", "strict"}
    assert set(networks) == {"none", "loopback", "host"}
    for offer in (*levels.values(), *networks.values()):
        assert offer["available"] is not bool(offer["lacks"])
        assert all(lack["what"] and lack["remedy"] for lack in offer["lacks"])
    assert levels[least]["available"]
    assert levels["basic"]["available"] is is_root
    assert networks["host"]["available"]
    assert levels["strict"]["available"] is False or scheme == "systemd"
    best = "standard" if levels["standard"]["available"] else least
    assert isolation["default_level"] == best
    best = "loopback" if networks["loopback"]["available"] else "host"
    assert isolation["default_network"] == best


def test_capacity_follows_what_is_promised(daemon: Daemon, create: Create) -> None:
    before = capacity(daemon)
    made = create(limits={"memory_bytes": 64 * MIB})
    during = capacity(daemon)
    assert during["committed_bytes"] - before["committed_bytes"] == 64 * MIB
    assert before["free_bytes"] - during["free_bytes"] == 64 * MIB
    assert during["budget_bytes"] == during["committed_bytes"] + during["free_bytes"]
    daemon.ok("PATCH", f"/v1/sandboxes/{made['id']}", {"limits": {"memory_bytes": 96 * MIB}})
    assert capacity(daemon)["committed_bytes"] - before["committed_bytes"] == 96 * MIB
    daemon.release(made["id"])
    assert capacity(daemon) == before


def test_capacity_slots_are_sandboxes_of_the_default_size(daemon: Daemon) -> None:
    found = capacity(daemon)
    assert found["slots"] == found["free_bytes"] // MEMORY_BYTES
    assert found["reserve_bytes"] == 256 * MIB


def test_openapi_names_every_route_and_error(daemon: Daemon) -> None:
    document = daemon.ok("GET", "/openapi.json")
    assert document["openapi"].startswith("3.")
    for path, methods in ROUTES.items():
        assert methods <= set(document["paths"][path]), path
    text = str(document)
    for code in ("INVALID_REQUEST", "LIMIT_TOO_SMALL", "LIMIT_TOO_LARGE", "LIMIT_UNSUPPORTED",
                 "ISOLATION_UNSUPPORTED", "ACCESS_DENIED", "SANDBOX_NOT_FOUND", "NAME_IN_USE",
                 "EXECUTION_NOT_FOUND", "SANDBOX_SUSPENDED", "SANDBOX_RELEASED", "DRAINING",
                 "EXECUTION_FINISHED", "LIMIT_BELOW_USAGE", "EXECUTION_NOT_STARTED",
                 "EXECUTION_LIMIT_REACHED", "INTERNAL", "SYSTEMD_REFUSED", "SYSTEMD_UNAVAILABLE",
                 "CAPACITY_EXCEEDED", "HOST_DISK_FULL", "OPERATION_TIMED_OUT"):  # fmt: skip
        assert code in text, code


def test_head_is_get_without_a_body(daemon: Daemon) -> None:
    answer = daemon.request("HEAD", "/healthz")
    assert answer.status in {200, 405}
    assert answer.body == b""
