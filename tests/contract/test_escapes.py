# SPDX-License-Identifier: Apache-2.0
"""The escape suite: every attempt of tests/escapes as a sandbox's own command, at each level this
host offers, and once as root outside, where it must come out otherwise."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.probes import find, printed, python, require_level, start
from tests.contract.selection import MODES
from tests.escapes.attempt import LACKING, LEVELS, Attempt, argv
from tests.escapes.hostside import HostSide, host_facts
from tests.escapes.table import ATTEMPTS, ESCAPES, STRICT_ONLY
from tests.harness import ROOT, Daemon, running_daemon

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(180)]
MEMORY = {"memory_bytes": "64M"}
HOST = host_facts()
_BIND = "/mnt/bind"
_VICTIM = """
import sys, time
for path in ("/tmp/of-victim", "/dev/shm/of-victim", "secret"):
    open(path, "w").write("secret")
import fcntl, os
lock = open("/usr/bin/env", "rb")
fcntl.flock(lock, fcntl.LOCK_SH)
os.chmod("secret", 0o777); os.chmod(".", 0o777)
print("ready", flush=True)
while True:
    open("/usr/bin/env", "rb").close()
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def daemon(scheme: str, host: HostSide) -> Iterator[Daemon]:
    """A daemon as it is installed, but for a path that may be bound: its socket is for root
    alone."""
    settings = {"SANDBOX_CGROUP_MODE": MODES[scheme], "SANDBOX_BIND_PATHS": f"{host.bind}:rw"}
    with running_daemon(**settings) as running:
        yield running


@pytest.fixture(scope="module")
def host() -> Iterator[HostSide]:
    """What lies about on the host."""
    with HostSide() as side:
        yield side


@dataclass(frozen=True)
class Place:
    """An attacker and a victim at one level."""

    level: str
    attacker: Any
    inside: Mapping[str, Any]
    outside: Mapping[str, Any]


@contextlib.contextmanager
def place_at(daemon: Daemon, host: HostSide, level: str) -> Iterator[Place]:
    with contextlib.ExitStack() as cleanup:
        body = {"isolation": level, "limits": MEMORY, "timeout_seconds": 100000}
        bind = {"source": str(host.bind), "target": _BIND, "writable": True}
        # At basic commands see the host's own.
        bound = {} if level == "basic" else {"binds": [bind]}
        attacker, victim = daemon.create(**body, **bound), daemon.create(**body)
        for one in (attacker, victim):
            cleanup.callback(daemon.release, one["id"])
        marker = f"marker-{secrets.token_hex(8)}"
        running = start(daemon, victim, python(_VICTIM, marker))
        printed(daemon, running, b"ready")
        records = daemon.state / "sandboxes" / victim["id"]
        victim_uid = (records / "home").stat().st_uid
        victim_pid = find(marker, victim_uid)[0]
        host.arm(daemon.state / "sandboxes" / attacker["id"] / "home")
        execution = records / "executions" / running["id"]
        control = daemon.runtime / "executions" / f"{victim['id']}-{running['id']}" / "control"
        for path in (execution, control):
            assert path.exists(), path
        common = {
            **host.facts(attacker),
            "api": daemon.socket,
            "control": str(control),
            # Whoever looks for it must not find themselves.
            "marker_reversed": marker[::-1],
            "spawner": str(daemon.runtime / "spawner.sock"),
            "state": str(daemon.state),
            "victim_home": str(records / "home"),
            "victim_pid": victim_pid,
            "victim_records": str(execution),
            "victim_uid": victim_uid,
        }
        inside = {
            "above_home": "",
            **({"bind": _BIND} if bound else {}),
            "trusted_pid": 1,
            "victim_shm": "/dev/shm/of-victim",
            "victim_tmp": "/tmp/of-victim",
        }
        root = f"/proc/{victim_pid}/root"
        outside = {
            "above_home": str(records),
            "trusted_pid": victim_pid,
            "victim_shm": f"{root}/dev/shm/of-victim",
            "victim_tmp": f"{root}/tmp/of-victim",
        }
        yield Place(level, attacker, common | inside, common | outside)


@pytest.fixture(scope="module", params=LEVELS)
def place(daemon: Daemon, host: HostSide, request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_at(daemon, host, require_level(daemon, request.param)) as made:
        yield made


def made_inside(daemon: Daemon, attempt: Attempt, place: Place) -> str:
    """What came of the attempt, made by the sandbox's own command."""
    command = argv(attempt, place.inside, python("")[0])
    ran = daemon.execute(place.attacker["id"], command, timeout_seconds=60)
    if ran["status"] == "SIGNALED":
        return signal.Signals(ran["signal"]).name
    assert (ran["status"], ran["exit_code"]) == ("EXITED", 0), ran["stderr"]
    return str(ran["stdout"]).strip()


def name_of(attempt: Attempt) -> str:
    return attempt.name


def is_here(need: str | None) -> bool:
    """Whether this host has it; what is made for the attempts is not among what a host has."""
    return need is None or bool(HOST.get(need, True))


@pytest.mark.parametrize("attempt", [a for a in ATTEMPTS if is_here(a.needs)], ids=name_of)
def test_attempt(daemon: Daemon, place: Place, attempt: Attempt) -> None:
    result = made_inside(daemon, attempt, place)
    assert result in attempt.expected(place.level, place.attacker["network"])


@pytest.fixture(scope="module")
def basic_place(daemon: Daemon, host: HostSide) -> Iterator[Place]:
    with place_at(daemon, host, "basic") as made:
        yield made


# A session of its own, away from our terminal; namespaces of its own, away from our mounts.
_OUTSIDE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x00020000 | 0x04000000) != 0 or libc.mount(b"none", b"/", None, 0x44000, None):
    sys.exit(f"cannot leave the mounts alone: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[1], sys.argv[1:])
"""


def made_outside(attempt: Attempt, place: Place, directory: Path) -> str:
    """What comes of the same code for root on the host."""
    interpreter = python("")[0]
    with open(os.devnull) as left_open:
        done = subprocess.run(
            [sys.executable, "-c", _OUTSIDE, *argv(attempt, place.outside, interpreter)],
            cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            start_new_session=True, pass_fds=[left_open.fileno()],
        )  # fmt: skip
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "attempt",
    [a for a in ATTEMPTS if is_here(a.needs) and is_here(a.control_needs)],
    ids=name_of,
)
def test_it_can_be_done_at_all(attempt: Attempt, basic_place: Place, host: HostSide) -> None:
    """Else the attempt would prove nothing: root outside gets another result from it."""
    result = made_outside(attempt, basic_place, host.armed)
    # A kernel without the part has nothing to show.
    lacks = attempt.rare and result in LACKING
    assert lacks or result in attempt.outside.split("|")


def test_the_table_is_large_and_nothing_in_it_is_open() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS)
    for attempt in ESCAPES:
        for level in ("standard", "strict"):
            assert "open" not in attempt.expected(level, "loopback"), attempt.name
    for attempt in STRICT_ONLY:
        assert "open" not in attempt.expected("strict", "loopback"), attempt.name
    assert len(ESCAPES) >= 60


def test_security_md_names_what_is_open_at_basic() -> None:
    """Beside the network, which is a setting of its own."""
    text = (ROOT / "SECURITY.md").read_text().split("## What is open at basic")[1]
    listed = re.findall(r"^- (.+)$", text.split("\n## ")[0], re.MULTILINE)
    found = {a.name for a in ESCAPES if "open" in a.expected("basic", "loopback")}
    assert set(listed) == found
    networked = {a.name for a in ESCAPES if "open" in a.expected("strict", "host")}
    assert networked == {a.name for a in ESCAPES if a.on_host_network is not None}


def test_no_attempt_expects_the_same_inside_as_outside() -> None:
    for attempt in ESCAPES:
        for level in LEVELS:
            blocked = attempt.expected(level, "loopback") - {"open"}
            assert not blocked & set(attempt.outside.split("|")), attempt.name
