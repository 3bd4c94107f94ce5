# SPDX-License-Identifier: Apache-2.0
"""Memory limits hold the sum over all processes, wherever the memory is; OOM_KILLED says so."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import eventually, python, start
from tests.harness import Daemon

MIB = 1 << 20
LIMIT = 256 * MIB
# Without root a supervisor waits for its turn like everybody.
OVERSHOOT = (32 if os.getuid() == 0 else 192) * MIB
# Each tells how far it got, in MiB, in a file that outlives it, and grows by 1 GiB/s at most.
GROW = """
import mmap, os, time
progress = os.open("progress", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
began = time.monotonic()
def tell(n):
    os.pwrite(progress, b"%6d" % n, 0)
    while time.monotonic() < began + n * 0.001: pass
chunk = b"x" * (1 << 20)
held = []
"""
BOMBS = {
    "one process": "while 1: held.append(bytearray(chunk)); tell(len(held))",
    "twenty processes": """
for _ in range(19):
    if os.fork() == 0: break
while 1: held.append(bytearray(chunk))
""",
    "memfd": """
fd = os.memfd_create("bomb")
while 1: os.write(fd, chunk); held.append(0); tell(len(held))
""",
    "memfds, never more than one growing": """
while 1: held.append(os.memfd_create("x")); os.write(held[-1], chunk * 4); tell(4 * len(held))
""",
    "shared mapping": """
while 1: held.append(mmap.mmap(-1, 1 << 20)); held[-1][:] = chunk; tell(len(held))
""",
    "threads whose main thread has ended": """
import ctypes, threading
def grow():
    time.sleep(0.2)
    while 1: held.append(bytearray(chunk)); tell(len(held))
threading.Thread(target=grow).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
""",
    "shared mapping that is let go and kept": """
while 1:
    held.append(mmap.mmap(-1, 1 << 20)); held[-1][:] = chunk
    held[-1].madvise(mmap.MADV_DONTNEED); tell(len(held))
""",
    "memfds that are mapped and closed": """
import ctypes
place = ctypes.CDLL(None).mmap
place.argtypes = [ctypes.c_size_t] * 6
place.restype = ctypes.c_size_t
while 1:
    fd = os.memfd_create("x"); os.write(fd, chunk)
    held.append(place(0, 1 << 20, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0))
    os.close(fd); tell(len(held))
""",
}
# What no resident set tells: it is found by scans, which have a fifth of a supervisor's time.
FOUND_BY_SCANS = {"shared mapping that is let go and kept", "memfds that are mapped and closed"}
# Terabytes that nothing is in, and room for more than any limit that is then filled.
RESERVE = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_size_t]
private_anonymous, noreserve = 0x22, 0x4000
for size, protection in ((20 << 40, 0), (200 << 30, 3)):
    place = libc.mmap(None, size, protection, private_anonymous | noreserve, -1, 0)
    assert place != ctypes.c_void_p(-1).value, size
ctypes.memset(place, 1, 1 << 20)
print("whole", flush=True)
"""
FILL = "for n in range(1, 4096): ctypes.memset(place + (n << 20), 1, 1 << 20); tell(n)"
BESIDE = """
import os, time
held = bytearray(150 << 20)
held[::4096] = b"x" * len(held[::4096])
for _ in range(20):
    if os.fork() == 0:
        time.sleep(1.5); os._exit(0)
while 1:
    try: os.wait()
    except ChildProcessError: break
print("whole")
"""


def progress_mib(daemon: Daemon, sandbox: Any) -> int:
    return int((daemon.state / "sandboxes" / sandbox["id"] / "home" / "progress").read_text())


def is_oom(ran: Any, owner: str) -> bool:
    found = (ran["status"], ran["error_code"], ran["limit_owner"])
    shown = {name: ran[name] for name in ("exit_code", "signal", "usage", "stdout", "stderr")}
    assert found == ("OOM_KILLED", "SANDBOX_MEMORY_LIMIT_EXCEEDED", owner), shown
    return True


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_killed_as_one(daemon: Daemon, create: Create, kind: str) -> None:
    made = create(limits={"memory_bytes": LIMIT, "open_files": 4096})
    ran = daemon.execute(made["id"], python(GROW + BOMBS[kind]), timeout_seconds=50)
    assert is_oom(ran, "sandbox")
    assert ran["usage"]["oom_kills"] >= 1
    if kind != "twenty processes":
        overshoot = 3 * OVERSHOOT if kind in FOUND_BY_SCANS else OVERSHOOT
        assert progress_mib(daemon, made) * MIB <= LIMIT + overshoot
    assert daemon.execute(made["id"], ["echo", "on"])["stdout"] == "on\n"


@pytest.mark.usefixtures("alone")
def test_memory_that_is_only_reserved_does_not_count(daemon: Daemon, create: Create) -> None:
    made = create(limits={"memory_bytes": LIMIT})
    ran = daemon.execute(made["id"], python(RESERVE))
    assert (ran["status"], ran["stdout"], ran["stderr"]) == ("EXITED", "whole\n", "")
    ran = daemon.execute(made["id"], python(GROW + RESERVE + FILL), timeout_seconds=50)
    assert is_oom(ran, "sandbox")
    assert progress_mib(daemon, made) * MIB <= LIMIT + OVERSHOOT


@pytest.mark.usefixtures("requires_root")
def test_files_in_dev_shm_are_bounded(daemon: Daemon, create: Create) -> None:
    """Full, or an OOM kill: never more than the limit."""
    made = create(limits={"memory_bytes": LIMIT})
    script = "head -c 1G /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x; sleep 0.5"
    ran = daemon.execute(made["id"], script)
    if ran["status"] == "EXITED":
        assert int(ran["stdout"]) <= LIMIT
    else:
        assert is_oom(ran, "sandbox")
    both = 'head -c 150M /dev/zero > /dev/shm/x; exec python3 -IS -c "$CODE"'
    # And has both for longer than a supervisor on a busy host needs to see it.
    hold = "import time\nx = bytearray(150 << 20)\nx[::4096] = b'x' * len(x[::4096])\ntime.sleep(5)"
    ran = daemon.execute(made["id"], both, env={"CODE": hold})
    assert is_oom(ran, "sandbox")


def test_memory_shared_by_forks_counts_once(daemon: Daemon, create: Create) -> None:
    made = create(limits={"memory_bytes": LIMIT})
    ran = daemon.execute(made["id"], python(BESIDE), timeout_seconds=50)
    assert (ran["status"], ran["stdout"]) == ("EXITED", "whole\n")
    assert 150 * MIB <= ran["usage"]["memory_peak_bytes"] <= LIMIT


def test_an_execution_s_own_limit_ends_it_alone(daemon: Daemon, create: Create) -> None:
    made = create(limits={"memory_bytes": LIMIT})
    other = start(daemon, made, ["sleep", "300"])
    code = GROW + BOMBS["one process"]
    ran = daemon.execute(made["id"], python(code), limits={"memory_bytes": 64 * MIB})
    assert is_oom(ran, "execution")
    assert daemon.ok("GET", f"/v1/sandboxes/{made['id']}/executions/{other['id']}")["status"] == (
        "RUNNING"
    )


def test_the_sandbox_s_limit_ends_all_who_share_it(daemon: Daemon, create: Create) -> None:
    made = create(limits={"memory_bytes": LIMIT})
    code = "import time\nx = bytearray(100 << 20)\nx[::4096] = b'x' * len(x[::4096])\n"
    first = start(daemon, made, python(code + "print('in', flush=True)\ntime.sleep(300)"))
    ran = daemon.execute(made["id"], python(GROW + BOMBS["one process"]))
    assert is_oom(ran, "sandbox")
    target = f"/v1/sandboxes/{made['id']}/executions/{first['id']}"
    if daemon.ok("GET", target)["status"] == "RUNNING":
        daemon.ok("POST", f"{target}/kill")
    ended = daemon.wait(first)
    assert ended["status"] in {"OOM_KILLED", "KILLED"}


def test_a_bare_sigkill_is_no_oom(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], "kill -KILL $$")
    assert (ran["status"], ran["signal"], ran["error_code"]) == ("SIGNALED", 9, None)


def test_a_limit_below_use_is_refused_and_by_force_held(daemon: Daemon, create: Create) -> None:
    made = create(limits={"memory_bytes": LIMIT})
    code = "import time\nx = bytearray(100 << 20)\nx[::4096] = b'x' * len(x[::4096])\n"
    running = start(daemon, made, python(code + "open('in', 'w').close()\ntime.sleep(300)"))
    home = daemon.state / "sandboxes" / made["id"] / "home"
    eventually((home / "in").exists, 20)
    target = f"/v1/sandboxes/{made['id']}"
    answer = daemon.request("PATCH", target, {"limits": {"memory_bytes": 64 * MIB}})
    assert (answer.status, answer.code) == (409, "LIMIT_BELOW_USAGE"), answer.body
    daemon.ok("PATCH", target, {"limits": {"memory_bytes": 512 * MIB}})
    daemon.ok("PATCH", target, {"limits": {"memory_bytes": 64 * MIB}, "force": True})
    ended = daemon.wait(running)
    assert is_oom(ended, "sandbox")
