# SPDX-License-Identifier: Apache-2.0
"""What the packages' files say of the program, without building anything."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import bundle
import deb
import pytest

from sandboxd import __version__

SCRIPTS = sorted((deb.ROOT / "debian").glob("sandboxd.p*")) + sorted(
    (deb.ROOT / "packaging/bundled").glob("compile.p*")
)


def test_the_packages_version_is_the_programs() -> None:
    assert deb.version() == __version__


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True, timeout=30)


@pytest.mark.parametrize("control", ["debian/control", "packaging/bundled/control"])
def test_both_packages_are_built_from_the_same_libraries(control: str) -> None:
    text = (deb.ROOT / control).read_text()
    project = (deb.ROOT / "pyproject.toml").read_text()
    bounds = dict(re.findall(r'"(aiohttp|dbus-fast|jinja2|pydantic|rich)>=(\S+)"', project))
    assert len(bounds) == 5
    for name, bound in bounds.items():
        assert f"python3-{name} (>= {bound})" in text


def test_a_staged_tree_says_nothing_of_the_checkouts_modes(tmp_path: Path) -> None:
    deb.stage(tmp_path / "tree", deb.NATIVE)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "tree").rglob("*")}
    assert modes == {0o755, 0o644}
    assert (tmp_path / "tree/debian/rules").stat().st_mode & 0o777 == 0o755
    assert not [path for path in (tmp_path / "tree").rglob("*") if path.name == "__pycache__"]


def test_the_bundle_is_older_than_the_native_package_of_the_same_version() -> None:
    versions = (f"{deb.version()}~bundled", "lt", deb.version())
    assert bundle.bundled_version(deb.version()) == versions[0]
    subprocess.run(["dpkg", "--compare-versions", *versions], check=True, timeout=30)
