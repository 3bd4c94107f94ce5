# SPDX-License-Identifier: Apache-2.0
"""What a daemon was started with, and what it was given, and who keeps it."""

from __future__ import annotations

import ctypes
import os

from sandboxd.isolation import syscalls
from tests.conftest import unmet
from tests.contract.probes import python, resident_bytes
from tests.harness import running_daemon

_MACHINE = os.uname().machine
_ADD_KEY, _KEYCTL = (syscalls.number(name, _MACHINE) for name in ("add_key", "keyctl"))
_JOIN, _SESSION = 1, -3

_READ_SECRET = f"""
import ctypes
libc = ctypes.CDLL(None)
print(libc.syscall({_KEYCTL}, 10, {_SESSION}, b"user", b"secret", 0))
print(libc.syscall({_ADD_KEY}, b"user", b"left", b"behind", 6, {_SESSION}))
"""


def test_a_command_has_no_use_of_the_daemons_session_keyring() -> None:
    """A login's session holds what its user's file systems and tickets are opened with."""
    libc = ctypes.CDLL(None)
    # Asks for the session's own without making one: a container's filter may refuse all of them.
    if libc.syscall(_KEYCTL, 0, _SESSION, 0) <= 0:
        unmet("keyrings of sessions (keyctl(2))")
    assert libc.syscall(_KEYCTL, _JOIN, None) > 0
    assert libc.syscall(_ADD_KEY, b"user", b"secret", b"hunter2", 7, _SESSION) > 0
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        sandbox = daemon.create()
        found, added = daemon.execute(sandbox["id"], python(_READ_SECRET))["stdout"].split()
    assert int(found) == -1
    # The filter refuses it; a key of its own would outlive the command.
    assert int(added) == -1
    assert libc.syscall(_KEYCTL, 10, _SESSION, b"user", b"left", 0) == -1


def test_the_input_of_ended_commands_is_not_kept_in_memory() -> None:
    """Records are kept for an hour, and each may have had eight MiB of input."""
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        sandbox = daemon.create()
        text = "x" * (4 << 20)
        daemon.execute(sandbox["id"], ["true"], stdin=text)
        before = resident_bytes(daemon)
        for _ in range(20):
            daemon.execute(sandbox["id"], ["true"], stdin=text)
        assert resident_bytes(daemon) - before < 40 << 20
