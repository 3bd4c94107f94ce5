# SPDX-License-Identifier: Apache-2.0
"""Limits as asked for: units, bounds, what is required, and changes to a live sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import MEMORY_BYTES, Create
from tests.contract.probes import executions, path_of, refused, start
from tests.harness import Daemon

MIB = 1 << 20
SIZES = ("memory_bytes", "io_read_bytes_per_second", "io_write_bytes_per_second", "disk_bytes",
         "max_output_bytes", "file_size_bytes")  # fmt: skip
DURATIONS = ("timeout_seconds", "cpu_seconds")
COUNTS = ("pids", "open_files", "cpu_weight")
NEVER: tuple[Any, ...] = (0, -1, "0", "-1", "infinity", "nan", "", "x", "12Q", True, [], {}, 1e400,
                          float("nan"), "1e999", "0x10", "١", " ")  # fmt: skip


def post(daemon: Daemon, **limits: Any) -> Any:
    return daemon.request("POST", "/v1/sandboxes", {"limits": limits})


@pytest.mark.parametrize("name", [*SIZES, *DURATIONS, *COUNTS, "cpus"])
def test_nothing_means_unlimited(daemon: Daemon, name: str) -> None:
    for value in NEVER:
        error = refused(post(daemon, **{name: value}), 400, "INVALID_REQUEST")
        assert error["details"]["fields"], value
        assert all(field["reason"] for field in error["details"]["fields"]), value


@pytest.mark.parametrize(
    ("name", "value"),
    [("memory_bytes", 1.5), ("memory_bytes", "1.0000001"), ("pids", "10"), ("pids", 1.5),
     ("pids", 1 << 40), ("cpus", "0%"), ("cpus", "150"), ("cpus", "%"), ("open_files", 1 << 40),
     ("cpu_weight", 10_001), ("cpu_weight", "50"),
     ("timeout_seconds", "5 parsecs"), ("timeout_seconds", "1min -1s"), ("nosuch", 5)],
)  # fmt: skip
def test_a_malformed_limit_is_refused(daemon: Daemon, name: str, value: Any) -> None:
    error = refused(post(daemon, **{name: value}), 400, "INVALID_REQUEST")
    assert [field["path"] for field in error["details"]["fields"]] == [f"limits.{name}"]


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [("memory_bytes", "64M", 64 * MIB), ("memory_bytes", 64 * MIB, 64 * MIB),
     ("disk_bytes", "1G", 1 << 30), ("io_read_bytes_per_second", "512K", 512 << 10),
     ("timeout_seconds", "90s", 90), ("timeout_seconds", "5min", 300),
     ("timeout_seconds", "1min 30s", 90), ("timeout_seconds", 0.25, 0.25),
     ("cpus", "150%", 1.5), ("cpus", 0.5, 0.5), ("cpus", 1, 1), ("pids", 7, 7),
     ("cpu_weight", 1, 1), ("cpu_weight", 10_000, 10_000), ("cpu_weight", None, 100),
     ("cpu_seconds", "2s", 2), ("open_files", 64, 64), ("memory_bytes", None, MEMORY_BYTES),
     ("cpu_seconds", None, None)],
)  # fmt: skip
def test_units_are_understood_and_answers_are_numbers(
    create: Create, name: str, given: Any, taken: Any
) -> None:
    answered = create(limits={name: given})["limits"][name]
    assert answered == taken
    assert not isinstance(answered, str)


def test_too_little_memory_is_refused_with_the_least(daemon: Daemon) -> None:
    for value in (1, 4096, 4 * MIB - 1, "100K"):
        error = refused(post(daemon, memory_bytes=value), 400, "LIMIT_TOO_SMALL")
        assert error["details"]["minimum"] == 4 * MIB
        assert str(4 * MIB) in error["message"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"pids": 1 << 20}, "LIMIT_TOO_LARGE"), ({"timeout_seconds": "52w"}, "LIMIT_TOO_LARGE")],
)
def test_more_than_the_server_s_maximum_is_refused(daemon: Daemon, limits: Any, code: str) -> None:
    error = refused(post(daemon, **limits), 400, code)
    (name,) = limits
    assert error["details"]["limit"] == name
    assert f"{error['details']['maximum']:g}" in error["message"]


def test_more_memory_than_the_host_has_is_refused(daemon: Daemon) -> None:
    answer = post(daemon, memory_bytes=1 << 60)
    if answer.status == 400:
        refused(answer, 400, "LIMIT_TOO_LARGE")
    else:
        error = refused(answer, 503, "CAPACITY_EXCEEDED")
        assert (error["retryable"], "Retry-After" in answer.headers) == (False, False)
        assert str(error["details"]["budget_bytes"]) in error["hint"]


def test_a_change_to_more_memory_than_the_host_has_is_refused(daemon: Daemon, sandbox: Any) -> None:
    budget = daemon.ok("GET", "/v1/host")["capacity"]["budget_bytes"]
    body = {"limits": {"memory_bytes": budget + 1}}
    error = refused(
        daemon.request("PATCH", f"/v1/sandboxes/{sandbox['id']}", body), 503, "CAPACITY_EXCEEDED"
    )
    assert error["retryable"] is False


@pytest.mark.parametrize(
    ("name", "above"),
    [("memory_bytes", MEMORY_BYTES + 1), ("cpus", 2.5), ("pids", 513),
     ("io_read_bytes_per_second", "257M"), ("io_write_bytes_per_second", "257M")],
)  # fmt: skip
def test_an_execution_may_not_have_more_than_its_sandbox(
    daemon: Daemon, sandbox: Any, name: str, above: Any
) -> None:
    body = {"argv": ["true"], "limits": {name: above}}
    error = refused(daemon.request("POST", executions(sandbox), body), 400, "LIMIT_TOO_LARGE")
    assert error["details"]["limit"] == name
    assert error["details"]["maximum"] == sandbox["limits"][name]
    assert daemon.ok("GET", executions(sandbox))["executions"] == []


def test_a_share_of_an_execution_is_not_bounded_by_its_sandbox_s(
    daemon: Daemon, sandbox: Any
) -> None:
    running = start(daemon, sandbox, ["sleep", "300"], limits={"cpu_weight": 10_000})
    assert running["limits"]["cpu_weight"] == 10_000
    target = f"/v1/sandboxes/{sandbox['id']}"
    for weight in (50, 200):
        daemon.ok("PATCH", target, {"limits": {"cpu_weight": weight}})
        assert daemon.ok("GET", path_of(running))["limits"]["cpu_weight"] == 10_000


def test_an_execution_s_own_limits_are_its_own(daemon: Daemon, sandbox: Any) -> None:
    asked = {"memory_bytes": 64 * MIB, "pids": 20, "open_files": 99, "cpus": 0.5}
    ran = daemon.execute(sandbox["id"], ["true"], limits=asked)
    assert {name: ran["limits"][name] for name in asked} == asked
    assert daemon.ok("GET", f"/v1/sandboxes/{sandbox['id']}")["limits"] == sandbox["limits"]


def test_a_limit_said_twice_is_refused(daemon: Daemon, sandbox: Any) -> None:
    body = {"argv": ["true"], "timeout_seconds": 5, "limits": {"timeout_seconds": 6}}
    refused(daemon.request("POST", executions(sandbox), body), 400, "INVALID_REQUEST")


def test_require_is_honest(daemon: Daemon, sandbox: Any) -> None:
    """What the host says it cannot enforce is an error when required, and else is accepted."""
    for name, held in sandbox["enforcement"].items():
        for by in ("any", "kernel"):
            body = {"require": [name], "require_by": by}
            answer = daemon.request("POST", "/v1/sandboxes", body)
            if held["by"] == "kernel" or (by == "any" and held["by"] == "supervisor"):
                assert answer.status == 201, (name, answer.body)
                daemon.release(answer.json["id"])
            else:
                error = refused(answer, 400, "LIMIT_UNSUPPORTED")
                assert name in error["message"]
    run = {"argv": ["true"], "require": ["disk_bytes"], "require_by": "kernel"}
    answer = daemon.request("POST", "/v1/run", run)
    expected = 200 if sandbox["enforcement"]["disk_bytes"]["by"] == "kernel" else 400
    assert answer.status == expected


@pytest.mark.parametrize(
    "body",
    [{"require": ["nosuch"]}, {"require": "pids"}, {"require": [1]}, {"require": [["pids"]]},
     {"require": ["pids"], "require_by": "magic"}],
)  # fmt: skip
def test_a_malformed_require_is_refused(daemon: Daemon, body: Any) -> None:
    refused(daemon.request("POST", "/v1/sandboxes", body), 400, "INVALID_REQUEST")


def test_a_change_reaches_sandbox_and_running_executions(daemon: Daemon, sandbox: Any) -> None:
    running = start(daemon, sandbox, ["sleep", "300"])
    own = start(daemon, sandbox, ["sleep", "300"], limits={"pids": 30})
    target = f"/v1/sandboxes/{sandbox['id']}"
    for pids, own_pids in ((200, 30), (20, 20), (300, 30)):
        changed = daemon.ok("PATCH", target, {"limits": {"pids": pids}})
        assert changed["limits"] == {**sandbox["limits"], "pids": pids}
        assert daemon.ok("GET", path_of(running))["limits"]["pids"] == pids
        assert daemon.ok("GET", path_of(own))["limits"]["pids"] <= own_pids
    assert daemon.ok("GET", target)["limits"]["pids"] == 300


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"memory_bytes": 1}, "LIMIT_TOO_SMALL"), ({"pids": 0}, "INVALID_REQUEST"),
     ({"pids": 1 << 20}, "LIMIT_TOO_LARGE"), ({"nosuch": 1}, "INVALID_REQUEST")],
)  # fmt: skip
def test_a_bad_change_changes_nothing(daemon: Daemon, sandbox: Any, limits: Any, code: str) -> None:
    target = f"/v1/sandboxes/{sandbox['id']}"
    body = {"limits": {"cpus": 1, **limits}, "metadata": {"a": "b"}}
    refused(daemon.request("PATCH", target, body), 400, code)
    after = daemon.ok("GET", target)
    assert (after["limits"], after["metadata"]) == (sandbox["limits"], sandbox["metadata"])
