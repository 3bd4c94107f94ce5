# SPDX-License-Identifier: Apache-2.0
"""The Debian package as a file: what is in it, what lintian says, and that its bytes depend on the
sources alone. tests/system/test_package.py installs it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import buildroot
import deb
import pytest

from tests.packaging import lintian

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("requires_root")]
EXPECTED = (
    "./etc/sandboxd/sandboxd.toml",
    "./usr/bin/sandboxctl",
    "./usr/sbin/sandboxd",
    *(f"./usr/lib/systemd/system/{name}" for name in (
        "sandboxd.service", "sandboxd.socket", "sandboxd.slice", "sandboxd_daemon.slice",
        "sandboxd-spawner.service", "sandboxd-supervisor.service",
    )),
    "./usr/lib/sysusers.d/sandboxd.conf",
    "./usr/lib/tmpfiles.d/sandboxd.conf",
    "./usr/lib/python3/dist-packages/sandboxd/unit_templates/sandboxd.service.j2",
    "./usr/share/bash-completion/completions/sandboxctl",
    "./usr/share/fish/vendor_completions.d/sandboxctl.fish",
    "./usr/share/zsh/vendor-completions/_sandboxctl",
    "./usr/share/man/man1/sandboxctl.1.gz",
    "./usr/share/man/man5/sandboxd.toml.5.gz",
    "./usr/share/man/man7/sandboxd-api.7.gz",
    "./usr/share/man/man8/sandboxd.8.gz",
)  # fmt: skip


@pytest.fixture(scope="module")
def package(requires_root: None) -> Path:
    """The one in build/deb, built if need be."""
    return deb.build(deb.NATIVE, deb.ROOT / "build/deb")


def dpkg(*arguments: str | Path) -> str:
    return subprocess.run(
        ["dpkg-deb", *arguments], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_it_has_what_a_host_needs(package: Path) -> None:
    paths = {line.split()[5] for line in dpkg("--contents", package).splitlines()}
    assert set(EXPECTED) <= paths
    assert not [path for path in paths if "__pycache__" in path]


def test_dependencies_have_the_bounds_that_are_tested(package: Path) -> None:
    depends = dpkg("--field", package, "Depends")
    project = (deb.ROOT / "pyproject.toml").read_text()
    for name, bound in re.findall(
        r'"(aiohttp|dbus-fast|jinja2|pydantic|pystemd|rich)>=(\S+)"', project
    ):
        assert f"python3-{name} (>= {bound})" in depends
    assert "bubblewrap" in depends


def test_no_script_restarts_a_slice(package: Path, tmp_path: Path) -> None:
    dpkg("--control", package, tmp_path)
    scripts = [tmp_path / name for name in ("postinst", "prerm", "postrm")]
    found = [line for path in scripts for line in path.read_text().splitlines()]
    assert any("deb-systemd-invoke restart" in line for line in found)
    assert not [line for line in found if "restart" in line and ".slice" in line]
    assert not [line for line in found if "restart" in line and ".socket" in line]


def test_programs_take_no_modules_from_where_they_are_run(package: Path, tmp_path: Path) -> None:
    dpkg("--extract", package, tmp_path)
    for name in ("usr/bin/sandboxctl", "usr/sbin/sandboxd"):
        assert re.match(r"#! ?/usr/bin/python3 -I\n", (tmp_path / name).read_text())


def test_lintian_finds_nothing(package: Path, tmp_path: Path) -> None:
    assert lintian.findings(package, tmp_path, "-i", "--pedantic", "--display-info") == ""


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    root = buildroot.ensure(buildroot.BUILD_PACKAGES)
    hashes = set()
    for number, (timezone, mask) in enumerate([("UTC", 0o022), ("Asia/Kathmandu", 0o077)]):
        tree = tmp_path / f"{number}" / f"sandboxd-{'again' * number}"
        old = os.umask(mask)
        try:
            deb.stage(tree, deb.NATIVE)
            for path in tree.rglob("*"):
                # Newer than the changelog, as in every checkout; that time is the bound.
                os.utime(path, (2e9 + number * 86400, 2e9 + number * 86400))
                if path.is_file() and not path.stat().st_mode & 0o100:
                    path.chmod(0o600 if number else 0o664)
            made = deb.make(root, tree, environment={"TZ": timezone, "COLUMNS": f"{80 + number}"})
        finally:
            os.umask(old)
        hashes.add(hashlib.sha256(made.read_bytes()).hexdigest())
    assert len(hashes) == 1
