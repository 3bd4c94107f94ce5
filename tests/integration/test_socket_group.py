# SPDX-License-Identifier: Apache-2.0
"""Who may connect to a socket that the daemon makes itself, and as what."""

from __future__ import annotations

import grp
import os
import subprocess
import sys

import pytest

from tests.harness import ROOT, running_daemon

NOBODY = 65534
# Becomes somebody, connects, and prints how many sandboxes it sees, or that it may not.
LOOK = """
import os, sys
from tests.harness import request
path, uid, *groups = sys.argv[1], *map(int, sys.argv[2:])
os.setgroups(groups)
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
try:
    print(len(request(path, "GET", "/v1/sandboxes").json["sandboxes"]))
except PermissionError:
    print("refused")
"""


def seen(path: str, *groups: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, path, str(NOBODY), *map(str, groups)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.usefixtures("requires_root")
def test_members_of_the_socket_group_are_callers_and_not_admins() -> None:
    users, admins = grp.getgrnam("daemon"), grp.getgrnam("adm")
    with running_daemon(SANDBOX_SOCKET_GROUP="daemon", SANDBOX_ADMIN_GROUP="adm") as daemon:
        found = os.stat(daemon.socket)
        assert (found.st_mode & 0o777, found.st_gid) == (0o660, users.gr_gid)
        daemon.create()
        assert seen(daemon.socket) == "refused"
        assert seen(daemon.socket, users.gr_gid) == "0"
        assert seen(daemon.socket, users.gr_gid, admins.gr_gid) == "1"
