# SPDX-License-Identifier: Apache-2.0
"""Settings: where they come from, and the ones with which a daemon must not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.probes import has_unified_systemd
from tests.fixtures import daemon_fixture
from tests.harness import Daemon, running_daemon
from tests.integration.process import refusal, run_daemon, unstarted

daemon = daemon_fixture(unstarted, scope="function")


BAD = {
    "SANDBOX_CGROUP_MODE": ("maybe",), "SANDBOX_ISOLATION": ("total",),
    "SANDBOX_CPU_QUOTA": ("x", "0"), "SANDBOX_PIDS_LIMIT": ("-1", "1.5"),
    "SANDBOX_MEMORY_LIMIT_BYTES": ("lots",), "SANDBOX_DISK_LIMIT_BYTES": ("0",),
    "SANDBOX_IO_READ_BYTES_PER_SECOND": ("nan",),
    "SANDBOX_WORKER_MEMORY_RESERVE_BYTES": ("infinity",),
}  # fmt: skip


@pytest.mark.parametrize("position", [0, 1])
def test_bad_settings_are_refused_with_all_their_names(daemon: Daemon, position: int) -> None:
    given = {name: values[position] for name, values in BAD.items() if values[position:]}
    words = refusal(daemon, **given).lower()
    for name in given:
        assert name.removeprefix("SANDBOX_").lower() in words


@pytest.mark.parametrize(
    ("text", "named"),
    [("nosuch = 1\n", "nosuch"), ("pids_limit = 0\n", "pids_limit"), ("pids_limit = \n", "line 1"),
     ('memory_limit_bytes = ["1G"]\n', "memory_limit_bytes"), ("\x00", "sandboxd.toml")],
)  # fmt: skip
def test_a_bad_file_is_refused_with_what_is_wrong(daemon: Daemon, text: str, named: str) -> None:
    path = daemon.state / "sandboxd.toml"
    path.write_text(text)
    assert named in refusal(daemon, "--config", str(path))


def test_a_named_file_has_to_be_there(daemon: Daemon) -> None:
    path = str(daemon.state / "missing.toml")
    assert path in refusal(daemon, "--config", path)


def test_the_environment_comes_over_the_file(daemon: Daemon) -> None:
    path = daemon.state / "sandboxd.toml"
    path.write_text('pids_limit = 77\nmemory_limit_bytes = "48M"\ncpu_quota = "150%"\n')
    daemon.environment = {"SANDBOX_PIDS_LIMIT": "88"}
    daemon.start("--config", str(path))
    limits = daemon.ok("GET", "/v1/host")["limits"]
    assert (limits["pids"], limits["memory_bytes"], limits["cpus"]) == (88, 48 << 20, 1.5)
    made = daemon.create()
    assert made["limits"]["pids"] == 88
    assert daemon.execute(made["id"], ["true"])["limits"]["memory_bytes"] == 48 << 20


def test_required_cgroups_start_or_are_refused_with_the_reason(daemon: Daemon) -> None:
    if has_unified_systemd():
        daemon.environment = {"SANDBOX_CGROUP_MODE": "required"}
        daemon.start()
        assert daemon.ok("GET", "/v1/host")["scheme"] == "systemd"
        return
    words = refusal(daemon, SANDBOX_CGROUP_MODE="required")
    assert "SANDBOX_CGROUP_MODE" in words
    assert "systemd" in words or "cgroup" in words.replace("CGROUP_MODE", "")


def test_a_level_that_is_not_built_is_no_silent_downgrade(daemon: Daemon) -> None:
    level = "strict"
    status, words = run_daemon(daemon, SANDBOX_ISOLATION=level)
    assert status != 0
    assert "SANDBOX_ISOLATION" in words
    assert level in words
    assert "Traceback" not in words


def test_a_default_memory_limit_that_never_fits_is_refused(daemon: Daemon) -> None:
    words = refusal(daemon, SANDBOX_MEMORY_LIMIT_BYTES="100T")
    assert "SANDBOX_MEMORY_LIMIT_BYTES" in words
    assert "100 TiB" in words


def test_a_default_memory_limit_below_the_least_is_refused(daemon: Daemon) -> None:
    assert "SANDBOX_MEMORY_LIMIT_BYTES" in refusal(daemon, SANDBOX_MEMORY_LIMIT_BYTES="1M")


def test_a_reserve_that_leaves_nothing_is_refused(daemon: Daemon) -> None:
    words = refusal(daemon, SANDBOX_WORKER_MEMORY_RESERVE_BYTES="100T")
    assert "SANDBOX_WORKER_MEMORY_RESERVE_BYTES" in words


def test_unknown_arguments_are_refused(daemon: Daemon) -> None:
    status, words = run_daemon(daemon, "--nosuch")
    assert status == 2
    assert "--nosuch" in words


def memory_of_the_host() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no MemTotal")


def test_a_small_budget_is_kept_and_told() -> None:
    """Default memory nobody set: half the budget, if that is below 2 GiB."""
    budget = 512 << 20
    reserve = memory_of_the_host() - budget
    with running_daemon(SANDBOX_WORKER_MEMORY_RESERVE_BYTES=str(reserve)) as daemon:
        host = daemon.ok("GET", "/v1/host")
        total = host["capacity"]["budget_bytes"]
        assert total <= budget
        assert host["limits"]["memory_bytes"] == total // 2
        made = [daemon.create() for _ in range(2)]
        answer = daemon.request("POST", "/v1/sandboxes", {"limits": {"memory_bytes": "16M"}})
        assert (answer.status, answer.code) == (503, "CAPACITY_EXCEEDED")
        assert int(answer.headers["Retry-After"]) > 0
        error = answer.json["error"]
        assert error["retryable"] is True
        figures = error["details"]
        assert figures["budget_bytes"] == total
        assert figures["committed_bytes"] == 2 * (total // 2)
        assert figures["asked_bytes"] == 16 << 20
        run = daemon.request("POST", "/v1/run", {"argv": ["true"]})
        assert (run.status, run.code) == (503, "CAPACITY_EXCEEDED")
        raised = daemon.request(
            "PATCH", f"/v1/sandboxes/{made[0]['id']}", {"limits": {"memory_bytes": total}}
        )
        assert (raised.status, raised.code) == (503, "CAPACITY_EXCEEDED")
        # A sandbox that is there still works, and what it gives back can be had.
        assert daemon.execute(made[0]["id"], ["true"])["exit_code"] == 0
        lower = {"limits": {"memory_bytes": "64M"}}
        daemon.ok("PATCH", f"/v1/sandboxes/{made[0]['id']}", lower)
        daemon.release(made[1]["id"])
        daemon.create(limits={"memory_bytes": total - (64 << 20)})


def test_no_setting_of_ours_reaches_the_commands() -> None:
    with running_daemon(SANDBOX_PIDS_LIMIT="99", SANDBOX_MEMORY_LIMIT_BYTES="64M") as daemon:
        made = daemon.create()
        ran = daemon.execute(made["id"], ["env"])
        assert "SANDBOX" not in ran["stdout"]


def test_pids_that_no_sandbox_may_have_here_are_refused(daemon: Daemon) -> None:
    words = refusal(daemon, SANDBOX_PIDS_LIMIT="4000000")
    assert "SANDBOX_PIDS_LIMIT" in words
    assert "kernel." in words or "pids.max" in words


@pytest.mark.usefixtures("requires_root")
def test_all_sandboxes_together_leave_the_host_tasks() -> None:
    """None may have more than half of what all may; and under systemd the kernel holds the sum,
    elsewhere no more run than may have it."""
    with running_daemon(SANDBOX_MAX_PIDS="4194304") as daemon:
        host = daemon.ok("GET", "/v1/host")
        total = host["capacity"]["tasks"]
        most = int(Path("/proc/sys/kernel/threads-max").read_text())
        assert total < min(most, int(Path("/proc/sys/kernel/pid_max").read_text()))
        over = {"limits": {"pids": total // 2 + 1, "memory_bytes": "16M"}}
        answer = daemon.request("POST", "/v1/sandboxes", over)
        assert (answer.status, answer.code) == (400, "LIMIT_TOO_LARGE")
        half = {"pids": total // 2, "memory_bytes": "16M"}
        made = [daemon.create(limits=half)["id"] for _ in range(3)]
        sleeper = {"argv": ["sleep", "1000"], "wait": False}
        ran = [daemon.request("POST", f"/v1/sandboxes/{one}/executions", sleeper) for one in made]
        if host["scheme"] == "systemd":
            assert [one.status for one in ran] == [201, 201, 201]
            parent = made_slice(daemon, made[0])
            assert int((parent / "pids.max").read_text()) == total
            return
        assert [one.status for one in ran] == [201, 201, 503]
        assert ran[2].code == "CAPACITY_EXCEEDED"
        assert ran[2].json["error"]["details"]["tasks_total"] == total
        # Another execution of one that runs shares what it has; more for it must fit as well.
        assert daemon.request("POST", f"/v1/sandboxes/{made[0]}/executions", sleeper).status == 201
        daemon.release(made[1])
        small = daemon.create(limits={"pids": 16, "memory_bytes": "16M"})["id"]
        path = f"/v1/sandboxes/{small}"
        assert daemon.request("POST", f"{path}/executions", sleeper).status == 201
        raised = daemon.request("PATCH", path, {"limits": {"pids": total // 2}})
        assert raised.status == 200
        assert daemon.request("POST", f"/v1/sandboxes/{made[2]}/executions", sleeper).code == (
            "CAPACITY_EXCEEDED"
        )
        lowered = daemon.request("PATCH", path, {"limits": {"pids": 16}})
        assert lowered.status == 200


def test_what_one_caller_s_sandboxes_may_have_of_processes_is_bounded() -> None:
    with running_daemon(SANDBOX_MAX_PIDS_PER_CALLER="100") as daemon:
        first, second = (daemon.create(limits={"pids": 60, "memory_bytes": "16M"}) for _ in "ab")
        sleeper = {"argv": ["sleep", "1000"], "wait": False}
        paths = [f"/v1/sandboxes/{one['id']}" for one in (first, second)]
        assert daemon.request("POST", f"{paths[0]}/executions", sleeper).status == 201
        refused = daemon.request("POST", f"{paths[1]}/executions", sleeper)
        assert (refused.status, refused.code) == (429, "CALLER_QUOTA_EXCEEDED")
        details = refused.json["error"]["details"]
        assert (details["quota"], details["maximum"], details["used"]) == ("pids", 100, 60)
        # Beside it runs what still fits, and what runs already shares what it has.
        assert daemon.request("PATCH", paths[1], {"limits": {"pids": 40}}).status == 200
        assert daemon.request("POST", f"{paths[1]}/executions", sleeper).status == 201
        assert daemon.request("POST", f"{paths[0]}/executions", sleeper).status == 201
        raised = daemon.request("PATCH", paths[1], {"limits": {"pids": 41}})
        assert (raised.status, raised.code) == (429, "CALLER_QUOTA_EXCEEDED")


@pytest.mark.usefixtures("requires_root", "requires_bubblewrap")
def test_no_request_gets_less_than_the_admin_allows() -> None:
    settings = {"SANDBOX_ISOLATION_MINIMUM": "standard", "SANDBOX_NETWORKS": "none, loopback"}
    with running_daemon(**settings) as daemon:
        for body, barred_by in (
            ({"isolation": "basic"}, "SANDBOX_ISOLATION_MINIMUM=standard"),
            ({"network": "host"}, "SANDBOX_NETWORKS=none,loopback"),
        ):
            answer = daemon.request("POST", "/v1/sandboxes", body)
            assert (answer.status, answer.code) == (403, "ACCESS_DENIED")
            assert answer.json["error"]["details"]["barred_by"] == barred_by
            run = daemon.request("POST", "/v1/run", {"argv": ["true"], **body})
            assert (run.status, run.code) == (403, "ACCESS_DENIED")
        found = daemon.ok("GET", "/v1/host")["isolation"]
        assert found["levels"]["basic"]["barred_by"] == "SANDBOX_ISOLATION_MINIMUM=standard"
        assert not found["levels"]["basic"]["available"]
        assert found["levels"]["standard"]["barred_by"] is None
        assert not found["networks"]["host"]["available"]
        made = daemon.create()
        assert (made["isolation"], made["network"]) == ("standard", "loopback")


def test_settings_of_what_is_allowed_that_contradict_each_other_are_refused(
    daemon: Daemon,
) -> None:
    words = refusal(daemon, SANDBOX_ISOLATION="basic", SANDBOX_ISOLATION_MINIMUM="standard")
    assert "SANDBOX_ISOLATION_MINIMUM=standard" in words
    assert "networks" in refusal(daemon, SANDBOX_NETWORKS="internet")
    assert "networks" in refusal(daemon, SANDBOX_NETWORKS=" , ")


def made_slice(daemon: Daemon, sandbox_id: str) -> Path:
    """The cgroup of the slice around all sandboxes."""
    unit = daemon.ok("GET", f"/v1/sandboxes/{sandbox_id}")["unit"]
    found = next(Path("/sys/fs/cgroup").glob(f"**/{unit}"))
    return found.parent.parent
