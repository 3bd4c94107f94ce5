# SPDX-License-Identifier: Apache-2.0
"""Debian's own judgement of a built package."""

from __future__ import annotations

import shutil
from pathlib import Path

import buildroot


def findings(package: Path, scratch: Path, *options: str) -> str:
    """What lintian says of the package and what was built with it; it must exit with 0."""
    version = package.name.split("_")[1]
    for file in package.parent.glob(f"sandboxd_{version}_*"):
        shutil.copy(file, scratch)
    root = buildroot.ensure(buildroot.LINT_PACKAGES)
    changes = next(scratch.glob("*.changes")).name
    command = ["lintian", "--allow-root", "--no-cfg", *options, changes]
    done = buildroot.run(root, command, work=scratch)
    assert done.returncode == 0, done.stdout
    return done.stdout
