# SPDX-License-Identifier: Apache-2.0
"""The libraries of the bundled package: the pinned wheels, unpacked."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import bootstrap
import buildroot

HERE = Path(__file__).resolve().parent
# The Pythons of Debian 12 and Ubuntu 24.04.
PYTHONS = ("3.11", "3.12")
# The manylinux tags of current wheels that glibc 2.36 can run.
_GLIBC_TAGS = ("manylinux_2_17", "manylinux2014", "manylinux_2_28", "manylinux_2_34")
_REQUIREMENTS = HERE / "requirements-run.txt"
_DEBIAN = HERE / "bundled"
_VERSION = re.compile(r"\((\S+)\)")


def adapt(tree: Path) -> None:
    """Turn a staged source tree into the bundled package's. Raises bootstrap.SetupError."""
    for file in _DEBIAN.iterdir():
        shutil.copyfile(file, tree / "debian" / file.name)
        (tree / "debian" / file.name).chmod(file.stat().st_mode)
    changelog = tree / "debian/changelog"
    text = _VERSION.sub(lambda match: f"({bundled_version(match[1])})", changelog.read_text(), 1)
    changelog.write_text(text)
    for python in PYTHONS:
        _unpack(wheels(python), tree / "libraries" / f"python{python}")


def bundled_version(version: str) -> str:
    """Return a version that sorts before the native package's, for the upgrade of a host."""
    return f"{version}~bundled"


def wheels(python: str) -> list[Path]:
    """Return the pinned wheels for a Python, from the cache or by pip. Raises SetupError."""
    directory = buildroot.cache_directory(f"wheels-{python}-{platform.machine()}")
    pip = [str(bootstrap.venv_python("run")), "-m", "pip"]
    command = [
        *pip,
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
    ]
    command += ["--only-binary", ":all:", "--require-hashes", "--python-version", python]
    for tag in _GLIBC_TAGS:
        command += ["--platform", f"{tag}_{platform.machine()}"]
    command += ["--dest", str(directory), "-r", str(_REQUIREMENTS)]
    wanted = set(re.findall(r"(?m)^([\w.-]+==[\w.]+)", _REQUIREMENTS.read_text()))
    found = {_pin(path): path for path in directory.glob("*.whl")}
    if not wanted <= found.keys():
        bootstrap.say(f"downloading pinned wheels for Python {python} with pip")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise bootstrap.SetupError(f"`{' '.join(command)}`:\n{done.stderr}")
        found = {_pin(path): path for path in directory.glob("*.whl")}
    return [found[pin] for pin in sorted(wanted)]


def _pin(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name.replace('_', '-').lower()}=={version}"


def _unpack(files: list[Path], into: Path) -> None:
    """Unpack wheels into a site-packages directory (PEP 427). Raises SetupError for data files."""
    for wheel in files:
        with zipfile.ZipFile(wheel) as archive:
            if any(".data/" in name for name in archive.namelist()):
                raise bootstrap.SetupError(f"cannot unpack {wheel.name}: it has data files")
            archive.extractall(into)
