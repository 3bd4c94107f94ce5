# SPDX-License-Identifier: Apache-2.0
"""The README's two commands in roots of each release that have python3, ca-certificates and no
more."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import unmet
from tests.packaging.chroot import CHECKOUT, Chroot

pytestmark = [pytest.mark.timeout(5400), pytest.mark.usefixtures("requires_root")]
# Runtimes, headers and linters that ./dev does not install for tests, and what is not root's to
# try. Any other reason is a prerequisite that it forgot.
EXPECTED_SKIPS = re.compile(
    r": (no (gcc|go|java|node|kernel headers of \w+) here"
    r"|(ruff|mypy) \(\./dev lint installs it\)"
    r"|for a user other than root"
    r")$"
)
UNPRIVILEGED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


class Expected(NamedTuple):
    suite: str
    # What set-up has to say on the first call, and where the libraries then are.
    first_words: tuple[str, ...]
    uses_venv: bool


RELEASES = {
    "debian12": Expected(
        "bookworm",
        ("installing Debian packages with apt-get: python3-venv", "making a private venv"),
        uses_venv=True,
    ),
    "debian13": Expected(
        "trixie",
        ("installing Debian packages with apt-get: python3-aiohttp python3-dbus-fast",),
        uses_venv=False,
    ),
    "ubuntu2404": Expected(
        "noble",
        ("installing Debian packages with apt-get: python3-venv", "making a private venv"),
        uses_venv=True,
    ),
}


class Minimal(NamedTuple):
    root: Chroot
    expected: Expected


@pytest.fixture(scope="module", params=RELEASES)
def minimal(
    request: pytest.FixtureRequest, requires_root: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Minimal]:
    for program in ("mmdebstrap", "unshare", "setpriv"):
        if shutil.which(program) is None:
            unmet(f"{program} (apt-get install mmdebstrap util-linux)")
    expected = RELEASES[request.param]
    path = tmp_path_factory.mktemp("roots") / expected.suite
    path.mkdir()
    yield Minimal(Chroot.build(expected.suite, path), expected)
    shutil.rmtree(path)


def readme_command(start: str) -> list[str]:
    """Return the words of the README's command line that begins with `start`."""
    lines = (CHECKOUT / "README.md").read_text().splitlines()
    return shlex.split(next(line for line in lines if line.startswith(start)), comments=True)


def test_without_root_it_names_the_command_to_run(minimal: Minimal) -> None:
    done = minimal.root.run(*UNPRIVILEGED, "env", "HOME=/tmp", "./dev", "ctl", "--help")
    assert done.returncode == 1
    assert "as root run: apt-get update && apt-get install python3-venv" in done.stderr
    assert "Traceback" not in done.stderr


def test_run(minimal: Minimal) -> None:
    command = readme_command("./dev run")
    first = minimal.root.run(*command)
    assert first.returncode == 0, first.stderr
    assert "42" in first.stdout.split()
    for words in minimal.expected.first_words:
        assert f"dev: {words}" in first.stderr
    venv = minimal.root.path / minimal.root.checkout.lstrip("/") / ".venv"
    assert venv.exists() == minimal.expected.uses_venv
    # No systemd here: what holds the limits instead has to be said.
    assert "rlimit" in first.stderr

    second = minimal.root.run(*command)
    assert second.returncode == 0, second.stderr
    assert "42" in second.stdout.split()
    assert "dev:" not in second.stderr


def test_test(minimal: Minimal) -> None:
    done = minimal.root.run(*readme_command("./dev test"), "-rs", seconds=5000)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.search(r"^=+ [1-9]\d* passed.* in ", lines[-1])
    skipped = [line for line in lines if line.startswith("SKIPPED ")]
    assert not [line for line in skipped if not EXPECTED_SKIPS.search(line)]


def test_second_start_is_quick(minimal: Minimal) -> None:
    minimal.root.run("./dev", "ctl", "--help")
    begun = time.monotonic()
    done = minimal.root.run("./dev", "ctl", "--help")
    seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    assert seconds < 2, "half a second on a quiet host, mounts included"


def test_read_only_checkout(minimal: Minimal) -> None:
    remount = f"mount --bind -o ro {Chroot.checkout} {Chroot.checkout}"
    script = f"{remount} && cd {Chroot.checkout} && ./dev test -q tests/unit/test_dev.py"
    if minimal.expected.uses_venv:
        shutil.rmtree(minimal.root.path / Chroot.checkout.lstrip("/") / ".venv")
    done = minimal.root.run("sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("is not writable" in done.stderr) == minimal.expected.uses_venv
    assert Path(minimal.root.path, "root/.cache/sandboxd").exists()
