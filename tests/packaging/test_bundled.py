# SPDX-License-Identifier: Apache-2.0
"""The package with libraries of its own, installed on Debian 12: no systemd there, so that the
rlimit scheme does the main job."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import deb
import pytest

from tests.conftest import unmet
from tests.packaging import lintian
from tests.packaging.chroot import Chroot

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("requires_root")]
# Without a service manager; a runit or s6 `run` file has the one line `exec sandboxd`.
SERVICE = """\
set -e
sandboxd & pid=$!
tries=0
until sandboxctl ls >/dev/null 2>&1; do
    tries=$((tries + 1)); [ $tries -lt 150 ]; sleep 0.2
done
"""
WORK = f"""\
{SERVICE}
sandboxctl create --name box >/dev/null
sandboxctl exec -q box -- sh -c 'echo data > file; cat file; id -u'
execution=$(sandboxctl exec -d box -- sleep 300)
kill $pid; wait $pid
grep -lz '^300$' /proc/[0-9]*/cmdline | wc -l
apt-get purge --yes sandboxd
echo "left: $(grep -lz -e '^300$' -e '^/run/sandboxd/spawner.sock$' /proc/[0-9]*/cmdline | wc -l)"
ls -d /var/lib/sandboxd /run/sandboxd /run/sandboxd-uids /etc/sandboxd /usr/lib/sandboxd || true
"""


@pytest.fixture(scope="module")
def root(requires_root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chroot]:
    """Debian 12 with the package installed."""
    for program in ("mmdebstrap", "unshare"):
        if shutil.which(program) is None:
            unmet(f"{program} (apt-get install mmdebstrap util-linux)")
    package = deb.build(deb.BUNDLED, deb.ROOT / "build/deb")
    path = tmp_path_factory.mktemp("roots") / "bookworm"
    path.mkdir()
    root = Chroot.build("bookworm", path)
    shutil.copy(package, path / "srv")
    succeeded(root.run("apt-get", "-qq", "update", directory="/"))
    install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "install", "--yes"]
    said = succeeded(root.run(*install, f"/srv/{package.name}", directory="/"))
    assert "Can't" not in said
    yield root
    shutil.rmtree(path)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lintian_finds_no_errors_and_no_warnings(tmp_path: Path) -> None:
    package = deb.build(deb.BUNDLED, deb.ROOT / "build/deb")
    assert lintian.findings(package, tmp_path) == ""


def test_it_runs_a_command(root: Chroot) -> None:
    command = ["sandboxctl", "run", "--memory", "256M", "--", "python3", "-c", "print(6*7)"]
    done = root.run(*command, directory="/")
    assert succeeded(done) == "42\n"
    assert "rlimit scheme" in done.stderr


def test_it_knows_a_command_that_took_too_much_memory(root: Chroot) -> None:
    hungry = "x = []\nwhile True: x.append(bytearray(1 << 22))"
    command = ["sandboxctl", "run", "--memory", "64M", "--", "python3", "-c", hungry]
    done = root.run(*command, directory="/")
    assert done.returncode == 137
    assert "OOM_KILLED" in done.stderr


def test_libraries_are_its_own(root: Chroot) -> None:
    code = "import pydantic, aiohttp, dbus_fast, sandboxd; print(pydantic.__file__)"
    done = root.run("/usr/lib/sandboxd/bin/python3", "-I", "-c", code, directory="/")
    assert succeeded(done).startswith("/usr/lib/sandboxd/lib/python3.11/site-packages/")


def test_the_native_package_is_refused_there(root: Chroot) -> None:
    native = deb.build(deb.NATIVE, deb.ROOT / "build/deb")
    shutil.copy(native, root.path / "srv")
    command = ["apt-get", "install", "--simulate", f"/srv/{native.name}"]
    done = root.run(*command, directory="/")
    assert done.returncode != 0
    assert "python3-pydantic (>= 2.10)" in done.stdout + done.stderr


def test_purge_ends_everything_and_leaves_nothing(root: Chroot) -> None:
    done = root.run("sh", "-c", WORK, directory="/", seconds=300)
    lines = succeeded(done).splitlines()
    assert lines[0] == "data"
    assert int(lines[1]) > 0
    assert int(lines[2]) > 0, "it went on without the daemon"
    assert lines[-1] == "left: 0", "none of /var/lib/sandboxd and the like is listed after it"
    assert not Path(root.path, "usr/lib/sandboxd").exists()
