#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the hash-pinned requirements files that `./dev` installs into its private venv.

Run by hand, with any Python that has pip: `python3 packaging/pin.py`. Each file adds to the
previous files (run, test, lint). Chosen are the newest releases within the ranges of pyproject.toml
that have a wheel for every Python and machine of `PYTHONS` and `MACHINES`.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
# The manylinux tags of current wheels that pip on Debian 12 (glibc 2.36) accepts.
GLIBC_TAGS = ("manylinux_2_17", "manylinux2014", "manylinux_2_28", "manylinux_2_34")
# `./dev test --oldest` puts these in place of newer releases: Debian 13's versions.
OLDEST = ("aiohttp==3.11.16",)
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Written by packaging/pin.py; do not edit. Wheels for Python {pythons} on {machines}.
"""


def resolve(requirements: list[str], python: str, machine: str) -> Iterator[tuple[str, str]]:
    """Yield ("name==version", sha256) of each wheel that pip would install on the target."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--target", scratch]
        command += ["--report", str(report), "--python-version", python]
        for tag in GLIBC_TAGS:
            command += ["--platform", f"{tag}_{machine}"]
        subprocess.run([*command, *requirements], check=True)
        for wheel in json.loads(report.read_text())["install"]:
            name = re.sub(r"[-_.]+", "-", wheel["metadata"]["name"]).lower()
            sha256 = wheel["download_info"]["archive_info"]["hashes"]["sha256"]
            yield f"{name}=={wheel['metadata']['version']}", sha256


def pin(requirements: list[str]) -> dict[str, set[str]]:
    """Resolve for all Pythons and machines; the versions must agree."""
    pins: dict[str, set[str]] = {}
    for python in PYTHONS:
        for machine in MACHINES:
            for pinned, sha256 in resolve(requirements, python, machine):
                pins.setdefault(pinned, set()).add(sha256)
    names = [pinned.partition("==")[0] for pinned in pins]
    if clashes := {name for name in names if names.count(name) > 1}:
        raise SystemExit(f"pin: versions differ between Pythons or machines: {sorted(clashes)}")
    return pins


def main() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    layers = {"run": project["dependencies"], "test": extras["test"], "lint": extras["lint"]}
    pins = pin([requirement for layer in layers.values() for requirement in layer])
    header = HEADER.format(pythons=", ".join(PYTHONS), machines=", ".join(MACHINES))
    written: set[str] = set()
    wanted: list[str] = []
    for layer, requirements in layers.items():
        wanted += requirements
        closure = {pinned for pinned, _ in resolve(wanted, PYTHONS[0], MACHINES[0])}
        if strays := closure - pins.keys():
            raise SystemExit(f"pin: {layer} alone resolves to other versions: {sorted(strays)}")
        lines = [
            " \\\n    ".join([pinned, *(f"--hash=sha256:{sha}" for sha in sorted(pins[pinned]))])
            for pinned in sorted(closure - written)
        ]
        target = HERE / f"requirements-{layer}.txt"
        target.write_text(header + "\n".join(lines) + "\n")
        written |= closure
        print(f"pin: {target.name}: {len(lines)} packages", file=sys.stderr)
    oldest = [each for each in sorted(pin([*OLDEST]).items()) if each[0] in OLDEST]
    lines = [" \\\n    ".join([name, *(f"--hash=sha256:{sha}" for sha in sorted(shas))])
             for name, shas in oldest]  # fmt: skip
    (HERE / "requirements-oldest.txt").write_text(header + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
