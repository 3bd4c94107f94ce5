# SPDX-License-Identifier: Apache-2.0
"""The Debian package on a booted host without network: install, use, upgrade, remove, purge.

`./dev test --system` builds it first. The tests follow one life of it, in their order.
"""

from __future__ import annotations

import grp
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd import __version__
from tests.conftest import ANOTHER_UID, unmet
from tests.contract.probes import path_of, start
from tests.harness import ROOT, Daemon
from tests.machine.runs import BUNDLED_SUITES
from tests.system import host

pytestmark = pytest.mark.timeout(600)
UNITS = Path("/usr/lib/systemd/system")
NEXT = f"{__version__}+next"
UPGRADED = 10
SOMEBODY = ("setpriv", f"--reuid={ANOTHER_UID}", f"--regid={ANOTHER_UID}")
# The checkout, and the daemon that other tests share.
OF_OTHER_TESTS = re.compile("/(opt/sandboxd|output|root|tmp|var/log|var/lib/sandboxd-|run/sbx-)")
OF_OTHER_DAEMONS = re.compile("sandboxd_(?!daemon)")
# What any package's life changes, and other programs of the host.
OF_THE_HOST = re.compile(
    r"/(proc|sys|dev|var/(cache|tmp|backups)|var/lib/(dpkg|apt|systemd)|etc/\.pwd\.lock"
    r"|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?"
    r"|run/(systemd|udev|log|user|dbus|machine|lock|mount))(/.*)?"
)


class Service(Daemon):
    """The harness' daemon, but the installed one."""

    def __init__(self) -> None:
        self.socket = "/run/sandboxd/sandboxd.sock"

    @property
    def pid(self) -> str:
        return host.show("sandboxd.service", "MainPID")["MainPID"]


def run(*command: str | Path, code: int = 0) -> str:
    """Its output, both streams; it must exit with `code`."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    return done.stdout


def paths(*more: str) -> set[str]:
    """What is on the disk and in /run, in so far as a package may be to blame for it."""
    found = [run("find", place, "-xdev", *more) for place in ("/", "/run")]
    return {path for path in "".join(found).splitlines() if not is_of_others(path)}


def is_of_others(path: str) -> bool:
    if OF_OTHER_TESTS.match(path):
        return True
    return bool(OF_THE_HOST.fullmatch(path)) and "sandboxd" not in path


def units() -> set[str]:
    """Those of the service and of no other daemon."""
    return {unit for unit in host.sandboxd_units() if not OF_OTHER_DAEMONS.match(unit)}


def scopes() -> set[str]:
    return {unit for unit in units() if unit.endswith(".scope")}


@pytest.fixture(scope="module")
def is_bundled() -> bool:
    """Whether this release's own libraries are too old for sandboxd."""
    return platform.freedesktop_os_release()["VERSION_CODENAME"] in BUNDLED_SUITES


@pytest.fixture(scope="module")
def package(is_bundled: bool) -> Path:
    """The one that is for this release."""
    name, option = ("*~bundled_*", " --bundled") if is_bundled else ("*_all", "")
    built = sorted((ROOT / "build/deb").glob(f"sandboxd_{name}.deb"))
    if len(built) != 1:
        unmet(f"the Debian package in build/deb (./dev deb{option} builds it)")
    return built[0]


@pytest.fixture(scope="module")
def service(
    requires_systemd: None, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Installed; all of it is gone afterwards."""
    # Of a later time than any file that is there.
    marker = tmp_path_factory.mktemp("package") / "marker"
    before = paths()
    assert not units()
    marker.touch()
    try:
        run("apt-get", "install", "--yes", "--no-install-recommends", package)
        yield Service()
    finally:
        run("dpkg", "--purge", "sandboxd")
    assert paths() - before == set()
    changed = paths("-type", "f", "-newer", str(marker))
    assert {path for path in changed if not path.startswith("/run/")} == set()
    assert not units()
    assert not re.search("/(var/lib|run)/sandboxd/", Path("/proc/self/mountinfo").read_text())


@pytest.fixture
def running(service: Service) -> Iterator[list[Any]]:
    """Executions in a sandbox that is released at the end, if there is still somebody to ask."""
    made = service.create(name="kept", limits={"memory_bytes": "256M"})
    yield [start(service, made, "echo up; exec sleep 600") for _ in range(UPGRADED)]
    if Path(service.socket).exists():
        service.release("kept")


def test_it_runs_a_command_for_anybody_in_the_group(service: Service) -> None:
    command = ["sandboxctl", "run", "-v", "--memory", "64M", "--", "sh", "-c", "echo $((6 * 7))"]
    member = (*SOMEBODY, f"--groups={grp.getgrnam('sandboxd').gr_gid}", "--")
    said = run(*member, *command).splitlines()
    assert said[0] == "42"
    assert [line for line in said if re.match(r" *memory_bytes +64 MiB +kernel", line)]
    assert service.ok("GET", "/v1/host")["scheme"] == "systemd"


def test_nobody_else_can_connect(service: Service) -> None:
    said = run(*SOMEBODY, "--clear-groups", "--", "sandboxctl", "ls", code=125)
    assert "only members of the socket's group may connect" in said


def test_what_debian_would_test(service: Service, package: Path, is_bundled: bool) -> None:
    """The main job, a verdict of OOM, an upgrade: debian/tests."""
    if is_bundled:
        # autopkgtest takes the package's name and what it depends on from debian/control.
        run("sh", ROOT / "debian/tests/smoke")
        run("sh", ROOT / "debian/tests/upgrade")
        return
    # What it compiles of itself would be taken for something the package left.
    command = ("env", "PYTHONDONTWRITEBYTECODE=1", "autopkgtest", "--no-built-binaries")
    said = run(*command, package, ROOT, "--", "null")
    assert re.findall(r"(?m)^(\w+) +PASS$", said)[-2:] == ["smoke", "upgrade"]


def test_work_goes_on_through_an_upgrade(
    service: Service, running: list[Any], package: Path, tmp_path: Path
) -> None:
    daemon = service.pid
    spawner = host.show("sandboxd-spawner.service", "MainPID")
    uid = int(service.execute("kept", "id -u")["stdout"])
    before = (scopes(), host.processes_of(uid))
    assert [len(found) for found in before] == [UPGRADED, UPGRADED]
    run("dpkg", "--install", _newer(package, tmp_path))
    assert service.ok("GET", "/v1/host")["version"] == NEXT
    assert service.pid != daemon
    assert host.show("sandboxd-spawner.service", "MainPID") != spawner
    assert (scopes(), host.processes_of(uid)) == before
    for execution in running:
        assert service.ok("GET", path_of(execution))["status"] == "RUNNING"
    ended = service.wait(service.ok("POST", f"{path_of(running[0])}/kill", {}))
    assert (ended["status"], ended["stdout"]) == ("KILLED", "up\n")
    assert service.execute("kept", "echo on")["stdout"] == "on\n"


def _newer(package: Path, scratch: Path) -> Path:
    """The same package, but of a later version, in name and in what the daemon says."""
    tree = scratch / "tree"
    run("dpkg-deb", "--raw-extract", package, tree)
    (module,) = (tree / "usr/lib").glob("**/sandboxd/__init__.py")
    for path in (tree / "DEBIAN/control", module):
        text = path.read_text()
        assert text.count(__version__) == 1
        path.write_text(text.replace(__version__, NEXT))
    made = scratch / "newer.deb"
    run("dpkg-deb", "-Znone", "--build", tree, made)
    return made


def test_removed_it_says_what_still_runs_and_installed_again_knows_it(
    service: Service, package: Path
) -> None:
    made = service.create(name="left", limits={"memory_bytes": "64M"})
    left = start(service, made, "until [ -e over ]; do sleep 0.1; done; echo late; exit 3")
    said = run("dpkg", "--remove", "sandboxd")
    assert left["id"] in said
    assert not Path(service.socket).exists()
    assert [unit for unit in scopes() if left["id"] in unit]
    run("dpkg", "--install", package)
    service.execute("left", "touch over")
    ended = service.wait(left)
    assert (ended["status"], ended["exit_code"], ended["stdout"]) == ("EXITED", 3, "late\n")
    service.release("left")


def test_purge_ends_everything(service: Service, running: list[Any]) -> None:
    uids = [int(service.execute("kept", "id -u")["stdout"])]
    suspended = service.create(name="suspended", limits={"memory_bytes": "64M"})
    uids.append(int(service.execute("suspended", "id -u")["stdout"]))
    start(service, suspended, "exec sleep 600")
    service.ok("POST", "/v1/sandboxes/suspended/suspend")
    for uid in uids:
        assert host.processes_of(uid)
    run("apt-get", "purge", "--yes", "sandboxd")
    for uid in uids:
        assert not host.processes_of(uid)
    assert not units()
    for path in ("/var/lib/sandboxd", "/run/sandboxd", "/etc/sandboxd"):
        assert not Path(path).exists()
