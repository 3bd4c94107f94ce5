# SPDX-License-Identifier: Apache-2.0
"""Levels and networks from inside: what a sandbox's executions share, and with nobody else."""

from __future__ import annotations

import os
import pwd
import socket
from typing import Any

import pytest

from tests.conftest import unmet
from tests.contract.conftest import Create
from tests.contract.probes import path_of, printed, python, refused, require_level, start
from tests.harness import Daemon

pytestmark = pytest.mark.usefixtures("requires_root")
LEVELS = ("basic", "standard", "strict")
OWN_ROOTS = LEVELS[1:]
LISTEN = """
import socket
listener = socket.create_server(("127.0.0.1", 7070))
print("listening", flush=True)
while True: listener.accept()[0].sendall(b"hello")
"""
CONNECT = """
import socket
try:
    print(socket.create_connection(("127.0.0.1", 7070), 5).recv(9).decode())
except OSError as exc:
    print(exc.strerror)
"""
INTERFACES = """
lines = open("/proc/net/dev").read().splitlines()[2:]
print(*(line.split(":")[0].strip() for line in lines))
"""
KERNEL_OBJECTS = """
import ctypes
libc = ctypes.CDLL(None)
count = lambda make: next(n for n in range(1000) if make() < 0)
if libc.semget(0, 251, 0o600) >= 0: raise SystemExit("large sets")
print(count(lambda: libc.semget(0, 250, 0o600)), count(lambda: libc.msgget(0, 0o600)))
"""
NAMESPACES = "import os; print(*(os.stat('/proc/self/ns/' + n).st_ino for n in {names!r}))"


def asked(daemon: Daemon, level: str, network: str | None = None) -> dict[str, str]:
    """The fields that ask for a level; not met where the host cannot give it."""
    require_level(daemon, level)
    if network is None:
        return {"isolation": level}
    isolation = daemon.ok("GET", "/v1/host")["isolation"]
    if not isolation["networks"][network]["available"]:
        unmet(f"network {network}")
    return {"isolation": level, "network": network}


def said(daemon: Daemon, sandbox: Any, command: list[str] | str) -> str:
    ran = daemon.execute(sandbox["id"], command)
    assert ran["exit_code"] == 0, ran
    return str(ran["stdout"]).strip()


def ids(daemon: Daemon, sandbox: Any, *names: str) -> list[int]:
    code = NAMESPACES.format(names=names)
    return [int(word) for word in said(daemon, sandbox, python(code)).split()]


def own_ids(*names: str) -> list[int]:
    return [os.stat(f"/proc/self/ns/{name}").st_ino for name in names]


@pytest.mark.parametrize("offered", LEVELS)
def test_a_sandbox_says_what_it_got(daemon: Daemon, create: Create, offered: str) -> None:
    made = create(**asked(daemon, offered, "none"))
    assert (made["isolation"], made["network"]) == (offered, "none")
    assert create(isolation=offered)["network"] == "loopback"


@pytest.mark.usefixtures("requires_bubblewrap")
def test_the_default_is_the_best_but_strict(daemon: Daemon, create: Create) -> None:
    isolation = daemon.ok("GET", "/v1/host")["isolation"]
    made = create()
    assert made["isolation"] == isolation["default_level"] == "standard"
    assert made["network"] == isolation["default_network"] == "loopback"
    assert create(isolation="auto")["isolation"] == "standard"


@pytest.mark.parametrize("offered", ["strict"])
def test_strict_never_has_the_hosts_network(daemon: Daemon, offered: str) -> None:
    body = {**asked(daemon, offered), "network": "host"}
    refused(daemon.request("POST", "/v1/sandboxes", body), 400, "ISOLATION_UNSUPPORTED")


@pytest.mark.parametrize("offered", LEVELS)
def test_localhost_is_shared_inside_and_with_nobody_else(
    daemon: Daemon, create: Create, offered: str
) -> None:
    mine, other = create(**asked(daemon, offered, "loopback")), create(isolation=offered)
    running = start(daemon, mine, python(LISTEN))
    printed(daemon, running, b"listening")
    assert said(daemon, mine, python(CONNECT)) == "hello"
    assert said(daemon, mine, python(INTERFACES)) == "lo"
    assert said(daemon, other, python(CONNECT)) == "Connection refused"
    with socket.socket() as ours:
        assert ours.connect_ex(("127.0.0.1", 7070)) != 0
    daemon.request("POST", f"{path_of(running)}/kill", {})


@pytest.mark.parametrize("offered", LEVELS)
def test_without_a_network_not_even_localhost_is_there(
    daemon: Daemon, create: Create, offered: str
) -> None:
    made = create(**asked(daemon, offered, "none"))
    assert said(daemon, made, python(CONNECT)) == "Network is unreachable"


@pytest.mark.parametrize("offered", ["basic", "standard"])
def test_the_hosts_network_is_the_hosts(daemon: Daemon, create: Create, offered: str) -> None:
    made = create(**asked(daemon, offered, "host"))
    assert ids(daemon, made, "net") == own_ids("net")
    with socket.create_server(("127.0.0.1", 0)) as ours:
        code = CONNECT.replace("7070", str(ours.getsockname()[1])).replace(".recv(9).decode()", "")
        assert "socket" in said(daemon, made, python(code))


@pytest.mark.parametrize("offered", OWN_ROOTS)
def test_executions_share_ipc_uts_and_net_but_no_mounts(
    daemon: Daemon, create: Create, offered: str
) -> None:
    mine, other = create(**asked(daemon, offered)), create(isolation=offered)
    shared = ("ipc", "uts", "net")
    first = ids(daemon, mine, *shared)
    assert ids(daemon, mine, *shared) == first
    assert not set(first) & set(ids(daemon, other, *shared))
    assert not set(first) & set(own_ids(*shared))
    # While the other one runs, since their numbers are used again.
    code = NAMESPACES.format(names=("mnt", "pid"))
    code += "; import sys, time; sys.stdout.flush(); time.sleep(300)"
    running = start(daemon, mine, python(code))
    theirs = {int(word) for word in printed(daemon, running, b"\n").split()}
    assert not theirs & set(ids(daemon, mine, "mnt", "pid"))
    assert said(daemon, mine, ["uname", "-n"]) == "sandbox"


@pytest.mark.parametrize("offered", OWN_ROOTS)
@pytest.mark.parametrize("directory", ["/tmp", "/var/tmp", "/dev/shm", "$HOME"])
def test_files_are_shared_inside_and_with_nobody_else(
    daemon: Daemon, create: Create, offered: str, directory: str
) -> None:
    mine, other = create(**asked(daemon, offered)), create(isolation=offered)
    said(daemon, mine, f"echo mine > {directory}/file")
    assert said(daemon, mine, f"cat {directory}/file") == "mine"
    assert daemon.execute(other["id"], f"ls -A {directory}")["stdout"] == ""


@pytest.mark.parametrize("offered", OWN_ROOTS)
def test_only_home_tmp_and_shm_can_be_written(daemon: Daemon, create: Create, offered: str) -> None:
    made = create(**asked(daemon, offered))
    found = said(daemon, made, "find / -xdev -writable -type d 2>/dev/null; pwd; echo $HOME")
    *found_paths, cwd, home = found.splitlines()
    assert cwd == home == "/home/sandbox"
    assert set(found_paths) == {"/home/sandbox", "/tmp", "/var/tmp"}
    mounts = said(daemon, made, ["cat", "/proc/self/mounts"]).splitlines()
    writable = {line.split()[1] for line in mounts if line.split()[3].startswith("rw")}
    devices = {f"/dev/{n}" for n in ("full", "null", "pts", "random", "tty", "urandom", "zero")}
    allowed = {"/home/sandbox", "/tmp", "/var/tmp", "/dev/shm", "/proc"}
    assert {path for path in writable if not path.startswith("/proc/")} == allowed | devices
    for line in mounts:
        path, options = line.split()[1], line.split()[3].split(",")
        assert "nosuid" in options, line
        # What strict masks is covered by /dev/null itself.
        is_mask = offered == "strict" and path.startswith("/proc/")
        assert "nodev" in options or path in devices or is_mask, line


@pytest.mark.parametrize("offered", OWN_ROOTS)
def test_nothing_else_of_the_host_is_there(daemon: Daemon, create: Create, offered: str) -> None:
    made = create(**asked(daemon, offered))
    usual = {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run",
             "sbin", "sys", "tmp", "usr", "var"}  # fmt: skip
    assert set(said(daemon, made, ["ls", "/"]).split()) <= usual
    assert said(daemon, made, "ls -A /run; ls -A /home").split() == ["sandbox"]
    # Of the host's state what programs of /usr have there, of /sys what tells of processors.
    assert set(said(daemon, made, "ls -A /var").split()) <= {"lib", "tmp"}
    shown = said(daemon, made, "ls -d /sys/* /sys/devices/system/* 2>/dev/null || true").split()
    assert set(shown) <= {
        "/sys/devices", "/sys/devices/system/cpu", "/sys/devices/system/node",
    }  # fmt: skip
    for path in ("/etc/shadow", "/etc/ssh", "/sys/kernel", "/sys/fs", "/root", str(daemon.state),
                 daemon.socket, "/var/lib/dpkg", "/var/lib/systemd", "/var/log", "/dev/mem",
                 "/dev/kmsg", "/dev/fuse", "/dev/vda"):  # fmt: skip
        ran = daemon.execute(made["id"], ["stat", path])
        assert ran["exit_code"] == 1, path
        assert "No such file" in ran["stderr"]
    accounts = said(daemon, made, "cut -d: -f1 /etc/passwd; id -un").split()
    assert (accounts[:2], accounts[-2:]) == (["sandbox", "root"], ["nobody", "sandbox"])
    people = {entry.pw_name for entry in pwd.getpwall() if 100 <= entry.pw_uid < 65534}
    assert not (people - {"_apt"}) & set(accounts)


@pytest.mark.parametrize("offered", OWN_ROOTS)
def test_a_full_shm_says_so_and_leaves_half_the_memory(
    daemon: Daemon, create: Create, offered: str
) -> None:
    made = create(**asked(daemon, offered), limits={"memory_bytes": 64 << 20})
    ran = daemon.execute(made["id"], "head -c 60M /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x")
    assert ran["status"] == "EXITED", ran
    assert "No space left" in ran["stderr"]
    assert int(ran["stdout"]) == 32 << 20
    assert said(daemon, made, ["true"]) == ""


@pytest.mark.parametrize("offered", LEVELS)
def test_what_the_kernel_keeps_for_semaphores_and_queues_is_little(
    daemon: Daemon, create: Create, offered: str
) -> None:
    made = create(**asked(daemon, offered))
    sets, queues = said(daemon, made, python(KERNEL_OBJECTS)).split()
    # 250 semaphores of 64 bytes each, and 16384 messages of as many.
    assert 0 < int(sets) <= 128
    assert 0 < int(queues) <= 32


@pytest.mark.parametrize("offered", ["strict"])
def test_what_strict_hides_of_the_kernel(daemon: Daemon, create: Create, offered: str) -> None:
    made = create(**asked(daemon, offered))
    for name in ("kallsyms", "keys", "timer_list", "interrupts", "modules", "iomem"):
        assert said(daemon, made, f"cat /proc/{name}") == "", name
    assert said(daemon, made, "ls -A /proc/bus /proc/irq /proc/driver").split() == [
        "/proc/bus:", "/proc/driver:", "/proc/irq:",
    ]  # fmt: skip
    mounts = said(daemon, made, ["cat", "/proc/self/mounts"])
    assert "proc /proc/sys proc ro," in mounts
    code = "import os; print(*sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))"
    assert "1" not in said(daemon, made, python(code)).split()
    assert said(daemon, made, ["cat", "/proc/meminfo", "/proc/cpuinfo"])


@pytest.mark.parametrize(
    "field", [{"rootfs": "none"}, {"binds": [{"source": "/etc", "target": "/m"}]}]
)
def test_images_and_binds_are_the_admins_to_allow(daemon: Daemon, field: Any) -> None:
    answer = daemon.request("POST", "/v1/sandboxes", {**asked(daemon, "standard"), **field})
    assert (answer.status, answer.code) in [(400, "INVALID_REQUEST"), (403, "ACCESS_DENIED")]
    body = {"isolation": "basic", **field}
    refused(daemon.request("POST", "/v1/sandboxes", body), 400, "ISOLATION_UNSUPPORTED")
