# SPDX-License-Identifier: Apache-2.0
"""CPython's own tests inside a sandbox and outside, as an ordinary uid: what fails inside alone is
a difference that a sandbox makes, and each one is to be meant."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.conftest import ANOTHER_UID, unmet
from tests.fixtures import daemon_fixture
from tests.harness import Daemon

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(7200)]
# Debian's: a sandbox sees no other.
PYTHON = "/usr/bin/python3"
SECONDS = 3000
# Where a sandbox may differ from a process of the host's.
MODULES = (
    "test_fcntl", "test_mmap", "test_os", "test_pathlib", "test_posix", "test_pty", "test_pwd",
    "test_grp", "test_resource", "test_selectors", "test_shutil", "test_signal", "test_socket",
    "test_subprocess", "test_tarfile", "test_tempfile", "test_threading", "test_uuid",
)  # fmt: skip
# What fails inside alone, and why.
MEANT = {
    "test.test_socket.GeneralModuleTests.testInterfaceNameIndex": "asks netlink",
    "test.test_socket.GeneralModuleTests.test_getnameinfo_ipv6_scopeid_symbolic": "asks netlink",
    "test.test_resource.ResourceTest.test_fsize_ismax": "a file may not be larger than the disk",
}
daemon = daemon_fixture(SANDBOX_MEMORY_LIMIT_BYTES="2G")


def words(report: str) -> list[str]:
    """The command that writes its results to `report`."""
    return [PYTHON, "-m", "test", "-j2", "--timeout=600", f"--junit-xml={report}", *MODULES]


def failed(report: bytes) -> tuple[set[str], int]:
    """Names of the tests that failed, and how many passed."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    bad = {
        str(case.get("name")).partition(" ")[0]
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    return bad, len(cases) - len(bad)


@pytest.fixture
def directory() -> Iterator[Path]:
    """One of another uid's, with nothing above it that keeps that uid out."""
    with tempfile.TemporaryDirectory(prefix="outside-") as made:
        os.chown(made, ANOTHER_UID, ANOTHER_UID)
        yield Path(made)


def outside(directory: Path) -> tuple[set[str], int]:
    who = ["setpriv", f"--reuid={ANOTHER_UID}", f"--regid={ANOTHER_UID}", "--clear-groups"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "LANG": "C.UTF-8"}
    ran = subprocess.run(
        [*who, "--", *words("outside.xml")], cwd=directory, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS,
    )  # fmt: skip
    assert ran.returncode in (0, 2), ran.stdout[-4000:].decode() + ran.stderr[-4000:].decode()
    return failed((directory / "outside.xml").read_bytes())


def inside(daemon: Daemon, level: str) -> tuple[set[str], int]:
    limits: Any = {"memory_bytes": "2G", "pids": 1024, "disk_bytes": "4G"}
    made = daemon.create(isolation=level, limits=limits)["id"]
    ran = daemon.execute(
        made, words("inside.xml"), timeout_seconds=SECONDS, max_output_bytes="64M", wait=False
    )
    ended = daemon.wait(ran, SECONDS)
    # 2 is "some failed", which is compared below.
    assert (ended["status"], ended["exit_code"] in (0, 2)) == ("EXITED", True), ended["stdout"]
    report = daemon.request("GET", f"/v1/sandboxes/{made}/files/inside.xml")
    daemon.release(made)
    return failed(report.body)


def test_a_sandbox_fails_nothing_of_cpython_s_by_accident(daemon: Daemon, directory: Path) -> None:
    tests = "import test.test_os"
    if subprocess.run([PYTHON, "-c", tests], capture_output=True).returncode:
        unmet("CPython's tests: Debian's libpython3.*-testsuite, for /usr/bin/python3")
    host_failed, host_passed = outside(directory)
    failed_inside, passed_inside = inside(daemon, "standard")
    assert failed_inside - host_failed - set(MEANT) == set()
    assert passed_inside >= host_passed * 0.98
