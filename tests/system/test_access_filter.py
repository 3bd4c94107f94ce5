# SPDX-License-Identifier: Apache-2.0
"""Access filters: what systemd shows of them, and what root is denied in a sandbox's cgroup."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import unmet
from tests.contract.probes import python, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon
from tests.system import host

pytestmark = pytest.mark.timeout(180)
LINK_LOCAL, DENIED, OTHER = "169.254.7.1", "10.9.8.7", "10.9.9.1"
# Without a daemon's or a shim's help: only the cgroup stands in the way of this root process.
_TRY = f"""
import errno, json, os, socket, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
results = {{}}
for address in {(LINK_LOCAL, DENIED, OTHER, "127.0.0.1", "::1")!r}:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        try: results[address] = "sent" if sender.sendto(b"x", (address, 9)) else ""
        except OSError as exc: results[address] = errno.errorcode[exc.errno]
for device in ("null", "urandom", "ptmx", "kmsg", "vda"):
    try:
        os.close(os.open("/dev/" + device, os.O_RDONLY | os.O_NONBLOCK))
        results[device] = "opened"
    except OSError as exc: results[device] = errno.errorcode[exc.errno]
print(json.dumps(results))
"""
ALL_SENT = dict.fromkeys((LINK_LOCAL, DENIED, OTHER, "127.0.0.1", "::1"), "sent")
ALL_OPENED = dict.fromkeys(("null", "urandom", "ptmx", "kmsg", "vda"), "opened")


@pytest.fixture(scope="module", autouse=True)
def addresses() -> Iterator[None]:
    """Addresses of this machine's own, so that something answers for them."""
    for address in (LINK_LOCAL, DENIED, OTHER):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    yield
    for address in (LINK_LOCAL, DENIED, OTHER):
        subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)


daemon = daemon_fixture(
    needs=["requires_systemd"],
    SANDBOX_CGROUP_MODE="required",
    SANDBOX_DENIED_ADDRESSES="10.9.8.0/24",
)


def offered(daemon: Daemon, level: str, network: str) -> None:
    isolation = daemon.ok("GET", "/v1/host")["isolation"]
    for offer in (isolation["levels"][level], isolation["networks"][network]):
        if not offer["available"]:
            unmet(str(offer["lacks"]))


def tried_in(unit: str | None) -> dict[str, str]:
    """What root gets in a unit's cgroup, or (None) in our own."""
    directory = "/sys/fs/cgroup" if unit is None else str(host.cgroup(unit) / "job")
    done = subprocess.run(
        [sys.executable, "-c", _TRY, directory], capture_output=True, text=True, check=True
    )
    results: dict[str, str] = json.loads(done.stdout)
    return results


def test_without_a_filter_nothing_is_denied() -> None:
    assert tried_in(None) == ALL_SENT | ALL_OPENED


@pytest.mark.parametrize("level", ["basic", "standard", "strict"])
@pytest.mark.parametrize("network", ["none", "loopback", "host"])
def test_the_filter_holds_root_itself(daemon: Daemon, level: str, network: str) -> None:
    if (level, network) == ("strict", "host"):
        return
    offered(daemon, level, network)
    limits = {"memory_bytes": "128M"}
    made = daemon.create(isolation=level, network=network, limits=limits)
    try:
        running = start(daemon, made, ["sleep", "1000"])
        shown = host.show(made["unit"], "IPAddressDeny", "IPAddressAllow", "DevicePolicy")
        assert shown["DevicePolicy"] == ("auto" if level == "basic" else "closed")
        if network == "host":
            denied = {
                "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128",
                "168.63.129.16/32", "100.100.100.200/32", "10.9.8.0/24",
            }  # fmt: skip
            wanted = ALL_SENT | {LINK_LOCAL: "EPERM", DENIED: "EPERM"}
        else:
            denied = {"0.0.0.0/0", "::/0"}
            wanted = ALL_SENT | dict.fromkeys((LINK_LOCAL, DENIED, OTHER), "EPERM")
            assert set(shown["IPAddressAllow"].split()) == {"127.0.0.0/8", "::1/128"}
        assert set(shown["IPAddressDeny"].split()) == denied
        if level == "basic":
            wanted |= ALL_OPENED
        else:
            wanted |= ALL_OPENED | {"kmsg": "EPERM", "vda": "EPERM"}
        assert tried_in(running["unit"]) == wanted
    finally:
        daemon.release(made["id"])


def test_a_command_on_the_host_s_network_cannot_reach_what_is_denied(daemon: Daemon) -> None:
    made = daemon.create(isolation="basic", network="host", limits={"memory_bytes": "128M"})
    code = f"""
import errno, socket
for address in {(LINK_LOCAL, DENIED, OTHER)!r}:
    try: print("sent", socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (address, 9)))
    except OSError as exc: print(errno.errorcode[exc.errno])
"""
    ran: Any = daemon.execute(made["id"], python(code))
    daemon.release(made["id"])
    assert ran["stdout"].split("\n")[:3] == ["EPERM", "EPERM", "sent 1"]


def test_nothing_of_the_filter_is_missing_here(daemon: Daemon) -> None:
    missing = daemon.ok("GET", "/v1/host")["missing"]
    assert not [one for one in missing if "filter" in one]
